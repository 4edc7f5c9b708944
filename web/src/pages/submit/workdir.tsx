import { useRef, useState } from "react";

import { Problem } from "../../api/client";
import { count, size } from "../../ui/format";
import { below, jobFileOf, Refused, scan, type Folder } from "./folder";
import { change, parts, valueOf } from "./jobfile";
import { upload, type Progress, type Workdir } from "./upload";
import styles from "./submit.module.css";

/** What is under way with a folder, or why it was refused. */
export type FolderState =
  | { kind: "busy"; name: string; progress: Progress | undefined }
  | { kind: "refused"; message: string; remedy: string };

/** What a folder is made into. */
export interface Taken {
  workdir: Workdir;
  text: string | undefined; // of its job file
  used: boolean; // the job file is the one that is shown
}

/** How far apart progress is shown, in milliseconds: folders have thousands of files. */
const shownEvery = 100;

/** useFolder uploads folders, one at a time: a second one replaces the first. */
export function useFolder(text: string, onTaken: (t: Taken) => void) {
  const [state, setState] = useState<FolderState>();
  const running = useRef<AbortController>(undefined);

  const cancel = () => {
    running.current?.abort();
    setState(undefined);
  };

  const take = async (folder: Folder) => {
    running.current?.abort();
    const stop = new AbortController();
    running.current = stop;
    let shown = -Infinity;
    const show = (progress: Progress | undefined) => {
      if (stop.signal.aborted || performance.now() - shown < shownEvery) return;

      shown = performance.now();
      setState({ kind: "busy", name: folder.name, progress });
    };
    show(undefined);

    try {
      const taken = await read(folder, text, stop.signal, show);
      setState(undefined);
      onTaken(taken);
    } catch (cause) {
      if (stop.signal.aborted) return;
      if (cause instanceof Refused || cause instanceof Problem) {
        setState({ kind: "refused", message: cause.message, remedy: cause.remedy });
      } else if (cause instanceof DOMException) { // a file that is gone, or may not be read
        setState({ kind: "refused", message: `cannot read ${folder.name}`, remedy: "choose the folder again" });
      } else {
        throw cause;
      }
    }
  };

  return { state, take, cancel };
}

/** read uploads a folder. If nothing is written yet, its job file is used, and workdir is what that says. */
async function read(
  folder: Folder, text: string, signal: AbortSignal, show: (p: Progress | undefined) => void,
): Promise<Taken> {
  const file = await (await jobFileOf(folder))?.text();
  const used = file !== undefined && text.trim() === "";
  const named = used ? workdirOf(file) : "";
  const root = await below(folder, named);
  if (!root) {
    throw new Refused(`workdir ${named} of job.yaml not found in ${folder.name}`, "choose the folder that has it");
  }

  const tree = await scan(root, signal, (files) => {
    show({ what: "reading", files, allFiles: files, bytes: 0, allBytes: 0 });
  });
  if (tree.files.length === 0) throw new Refused(`${folder.name} has no files to upload`, "choose another folder");

  return { workdir: await upload(folder.name, tree, signal, show), text: file?.replaceAll("\r\n", "\n"), used };
}

/** workdirOf is the working directory of a file: one for all of its jobs. */
function workdirOf(text: string): string {
  return parts(text).map((p) => valueOf(p, ["workdir"])).find((w) => w !== "") ?? "";
}

/** withWorkdir lets a file say that its jobs run in the folder. */
export function withWorkdir(text: string): string {
  const [first] = parts(text);

  if (!first || first.problem !== undefined || workdirOf(text) !== "") return text;

  return change(text, first, ["workdir"], ".", "word");
}

interface Props {
  workdir: Workdir | undefined;
  state: FolderState | undefined;
  onCancel: () => void;
  onRemove: () => void;
}

/** Workdir says what the job finds in its directory. */
export function WorkdirLine({ workdir: w, state, onCancel, onRemove }: Props) {
  if (state?.kind === "busy") {
    const p = state.progress;

    return (
      <p className={styles.workdir} role="status">
        <span><bdi>{state.name}</bdi>: {progressText(p)}</span>
        <progress aria-label="Upload" max={1} value={p && p.allBytes > 0 ? p.bytes / p.allBytes : undefined} />
        <button onClick={onCancel}>Cancel</button>
      </p>
    );
  }

  return (
    <>
      {state && (
        <p className={styles.refused} role="alert">
          {state.message}{state.remedy === "" ? "" : `: ${state.remedy}`}
        </p>
      )}
      {w && (
        <p className={styles.workdir}>
          <span>
            Working directory: <bdi>{w.name}</bdi>
            {w.files > 0 ? `, ${count(w.files, "file")}, ${size(w.size)}, uploaded` : ""}
          </span>
          <button onClick={onRemove}>Remove</button>
        </p>
      )}
      {w && w.secret.length > 0 && (
        <p className={styles.note}>
          Left out because they may hold secrets: {few(w.secret)}. Store secrets with trainyard secrets set;
          a line !NAME in .trainyardignore uploads a file all the same.
        </p>
      )}
    </>
  );
}

function progressText(p: Progress | undefined): string {
  if (!p) return "reading";
  if (p.what === "reading") return `reading ${count(p.files, "file")}`;

  return `uploading ${p.files} of ${count(p.allFiles, "file")}, ${size(p.bytes)} of ${size(p.allBytes)}`;
}

function few(names: string[]): string {
  const shown = names.slice(0, 5).join(", ");

  return names.length > 5 ? `${shown} and ${names.length - 5} more` : shown;
}
