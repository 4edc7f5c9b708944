import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";

import type { Mistake, Problem } from "../../api/client";
import { jobFile, type SubmitRequest } from "../../api/drafts";
import { Link } from "../../route/link";
import { useQueryString } from "../../route/route";
import { useUser } from "../../shell/session";
import { count, time } from "../../ui/format";
import { useMedia } from "../../ui/media";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Tabs } from "../../ui/tabs";
import { Aim } from "./aim";
import { isAway, useCheck, type Check } from "./check";
import { draftKey, loadDraft, saveDraft, type Draft } from "./draft";
import { useDrop } from "./drop";
import { Editor, Mistakes } from "./editor";
import { chosenFolder, droppedFolder } from "./folder";
import { Form, type OnSet } from "./form";
import { asked, change, lineOf, parts, valueOf, withZones, type Part } from "./jobfile";
import { Options, sentenceOf } from "./options";
import { Start } from "./start";
import { useSubmission, type Submission } from "./submission";
import styles from "./submit.module.css";
import { useFolder, withWorkdir, WorkdirLine } from "./workdir";

/** Submit is where a job file is written, priced and submitted. submit?from=j12 begins with the file of a past job. */
export function Submit() {
  const who = useUser();
  const [query] = useQueryString();
  const from = query.get("from") ?? "";
  const key = draftKey(who.user, from);

  if (who.role === "viewer") {
    return <Notice title="Viewers cannot submit jobs"><p>An admin can give you the role researcher.</p></Notice>;
  }

  if (who.scope === "read") {
    return (
      <Notice title="This session can only read">
        <p>Sign in with a token of scope submit: <code>trainyard tokens create --scope submit</code></p>
      </Notice>
    );
  }

  return <Begin key={key} storage={key} user={who.user} from={from} />;
}

interface Origin {
  storage: string; // where the draft is kept
  user: string;
  from: string; // the job whose file it began with, "" for none
}

function Begin(origin: Origin) {
  const [stored] = useState(() => loadDraft(origin.storage));
  if (stored || origin.from === "") return <Write {...origin} initial={stored ?? { text: "" }} />;

  return <FromJob {...origin} />;
}

function FromJob(origin: Origin) {
  const found = useQuery(jobFile(origin.from));
  if (found.isPending) return <h1 aria-busy="true">Loading the file of {origin.from}…</h1>;
  if (found.error) {
    return (
      <ProblemNotice problem={found.error} onRetry={() => void found.refetch()} />
    );
  }

  const { file: text, workdir: digest, notes } = found.data;
  const workdir = digest ? { digest, name: `the files of ${origin.from}`, files: 0, size: 0, secret: [] } : undefined;

  return <Write {...origin} initial={{ text, workdir, notes }} />;
}

/** How wide the page must be for the form beside the text. */
const sideBySide = "(min-width: 900px)";

function Write({ initial, storage, user, from }: Origin & { initial: Draft }) {
  const [draft, setDraft] = useState(initial);
  const [before, setBefore] = useState<string>(); // what a template or file has replaced
  const [offered, setOffered] = useState<string>(); // the job file of a folder that was dropped
  const [values, setValues] = useState<Record<string, string>>({});
  const [chosen, setChosen] = useState(0);
  const [problem, setProblem] = useState("");
  const [goal, setGoal] = useState<Mistake>();
  const [, setQuery] = useQueryString();
  const now = useNow();
  const wide = useMedia(sideBySide);

  useEffect(() => { saveDraft(storage, draft); }, [storage, draft]);

  const jobs = useMemo(() => parts(draft.text), [draft.text]);
  const part = jobs[Math.min(chosen, jobs.length - 1)];
  const body = useMemo(() => bodyOf(draft.text, jobs, values), [draft.text, jobs, values]);
  const check = useCheck(body);
  const submission = useSubmission(storage, () => { setDraft({ text: "" }); });

  const setText = (text: string) => {
    setBefore(undefined);
    setDraft((d) => ({ ...d, text }));
  };
  const replace = (text: string) => {
    setBefore(draft.text.trim() === "" ? undefined : draft.text);
    setOffered(undefined);
    setDraft((d) => ({ ...d, text: d.workdir ? withWorkdir(text) : text }));
  };
  const folder = useFolder(draft.text, ({ workdir, text, used }) => {
    setOffered(used ? undefined : text);
    setDraft((d) => ({ ...d, workdir, text: withWorkdir(used ? (text ?? "") : d.text) }));
  });
  const open = async (file: File) => {
    setProblem(file.size > 1 << 20 ? `${file.name} is larger than a job file may be (1 MB)` : "");
    if (file.size <= 1 << 20) replace((await file.text()).replaceAll("\r\n", "\n"));
  };
  const dragging = useDrop((entry, file) => {
    if (entry?.isDirectory) void folder.take(droppedFolder(entry as FileSystemDirectoryEntry));
    else if (file) void open(file);
  });

  if (!part) return null;

  const set: OnSet = (path, value, kind) => {
    setText(change(draft.text, part, path, value, kind));
  };
  const request = body && (draft.workdir ? { ...body, workdir: draft.workdir.digest } : body);
  const wrong = [...withoutFolder(jobs, draft), ...mistakesIn(check?.problem)];
  const mistakes = wrong.length > 0 || !request ? wrong : mistakesIn(submission.problemOf(request));
  const checking = body !== undefined && check?.of !== body;
  const editor = <Editor text={draft.text} mistakes={mistakes} goal={goal} onChange={setText} />;
  const list = (
    <Mistakes
      text={draft.text}
      mistakes={mistakes}
      checking={checking}
      onGo={(m) => {
        if (!wide) setQuery((q) => { q.set("view", "yaml"); });
        setGoal(m);
      }}
    />
  );
  const form = (
    <>
      {jobs.length > 1 && <Chooser jobs={jobs} chosen={jobs.indexOf(part)} onChoose={setChosen} />}
      <Form part={part} mistakes={ofPart(mistakes, jobs, part)} onSet={set} />
      <Variables names={[...new Set(jobs.flatMap(asked))]} values={values} onChange={setValues} />
    </>
  );

  const options = (
    <section aria-labelledby="options">
      <h2 id="options">Where it would run</h2>
      <Aim part={part} onSet={set} />
      {body && check?.reply && <Options reply={check.reply} now={now} old={checking} />}
      {body && check?.problem && !isAway(check.problem) && (
        <p className="faint">Options with start, finish and cost are shown once the file is valid.</p>
      )}
        {!body && <p className="faint">Options with start, finish and cost are shown once there is a command.</p>}
    </section>
  );

  return (
    <div data-dropping={dragging}>
      <div className={styles.top}>
        <h1 aria-live="polite">{headline(body, check, mistakes, from, now)}</h1>
        <button
          className="primary"
          disabled={!request || submission.pending || folder.state?.kind === "busy" || (!checking && wrong.length > 0)}
          onClick={() => { if (request) submission.submit(request); }}
        >
          {submission.pending ? "Submitting…" : jobs.length > 1 ? `Submit ${jobs.length} jobs` : "Submit job"}
        </button>
      </div>
      <Said submission={submission} check={check} problem={problem} now={now} />
      <Start
        user={user}
        onText={replace}
        onFile={(f) => void open(f)}
        onFolder={(files) => {
          const chosenOne = chosenFolder(files);
          if (chosenOne) void folder.take(chosenOne);
        }}
      />
      {before !== undefined && (
        <p className={styles.workdir}>
          <span>Your text was replaced.</span>
          <button onClick={() => { setText(before); }}>Undo</button>
        </p>
      )}
      {offered !== undefined && (
        <p className={styles.workdir}>
          <span>The folder has a job.yaml.</span>
          <button onClick={() => { replace(offered); }}>Use it</button>
        </p>
      )}
      {draft.notes?.map((n) => <p key={n} className={styles.note}>{from}: {n}</p>)}
      <WorkdirLine
        workdir={draft.workdir}
        state={folder.state}
        onCancel={folder.cancel}
        onRemove={() => { setDraft((d) => ({ ...d, workdir: undefined })); }}
      />
      {wide
        ? (
          <div className={styles.sides}>
            <div>{form}</div>
            <div>{editor}{list}{options}</div>
          </div>
        )
        : (
          <>
            <Tabs
              name="view"
              tabs={[
                { id: "form", title: "Form", view: () => form },
                { id: "yaml", title: "YAML", view: () => editor },
              ]}
            />
            {list}
            {options}
          </>
        )}
    </div>
  );
}

/** bodyOf is what is sent; undefined while there is nothing to send. */
function bodyOf(text: string, jobs: Part[], values: Record<string, string>): SubmitRequest | undefined {
  if (text.trim() === "") return undefined;

  const names = jobs.flatMap(asked).filter((n) => (values[n] ?? "") !== "");
  const env = Object.fromEntries(names.map((n) => [n, values[n] ?? ""]));

  return { file: withZones(text), ...(names.length > 0 ? { env } : {}) };
}

/** withoutFolder says that a file names a working directory that is not uploaded: jobs would find nothing in it. */
function withoutFolder(jobs: Part[], draft: Draft): Mistake[] {
  const named = jobs.find((p) => valueOf(p, ["workdir"]) !== "");
  if (!named || draft.workdir) return [];

  return [{
    status: 400, title: "", kind: "invalid", code: "workdir_missing", field: "workdir", line: lineOf(named, "workdir"),
    detail: "the folder of workdir is not uploaded", remedy: "choose or drop it, or remove the field",
  }];
}

/** mistakesIn returns what is wrong with the file, each with its place. */
function mistakesIn(problem: Problem | undefined): Mistake[] {
  return !problem || isAway(problem) ? [] : problem.parts;
}

/** ofPart returns the mistakes that the form of a job shows. */
function ofPart(mistakes: Mistake[], jobs: Part[], part: Part): Mistake[] {
  const next = jobs[jobs.indexOf(part) + 1]?.line ?? Infinity;

  return mistakes.filter((m) => m.line === undefined || (m.line >= part.line && m.line < next));
}

function headline(
  body: SubmitRequest | undefined, check: Check | undefined, mistakes: Mistake[], from: string, now: number,
): string {
  if (!body) return from === "" ? "Submit a job" : `Submit ${from} again`;
  if (mistakes.length > 0) return `${count(mistakes.length, "mistake")} in the job file`;

  return check?.reply ? sentenceOf(check.reply, now) : "Checking the job file…";
}

/** Chooser chooses the job of a file that the form shows. */
function Chooser({ jobs, chosen, onChoose }: { jobs: Part[]; chosen: number; onChoose: (i: number) => void }) {
  return (
    <label className={styles.chooser}>
      Job of the file
      <select value={chosen} onChange={(e) => { onChoose(Number(e.target.value)); }}>
        {jobs.map((p, i) => (
          <option key={p.from} value={i}>{i + 1} of {jobs.length}: {valueOf(p, ["name"]) || "unnamed"}</option>
        ))}
      </select>
    </label>
  );
}

interface VariablesProps {
  names: string[];
  values: Record<string, string>;
  onChange: (values: Record<string, string>) => void;
}

/** Variables asks for the values that a file takes from whoever submits it. */
function Variables({ names, values, onChange }: VariablesProps) {
  if (names.length === 0) return null;

  return (
    <fieldset className={styles.variables}>
      <legend>Variables that the file asks you for</legend>
      {names.map((n) => (
        <label key={n}>
          {n}
          <input
            autoComplete="off"
            value={values[n] ?? ""}
            onChange={(e) => { onChange({ ...values, [n]: e.target.value }); }}
          />
        </label>
      ))}
    </fieldset>
  );
}

/** Said is what became of a submission, and what is wrong apart from the file. */
function Said(props: { submission: Submission; check: Check | undefined; problem: string; now: number }) {
  const { submission, check, problem, now } = props;
  const away = [submission.problem, check?.problem].find((p) => p && isAway(p));
  const { schedule } = submission;

  return (
    <>
      {problem !== "" && <p role="alert" className={styles.refused}>{problem}</p>}
      {away && (
        <p role="alert" className={styles.refused}>{away.message}{away.remedy === "" ? "" : `: ${away.remedy}`}</p>
      )}
      {schedule && (
        <p role="status">
          Schedule {schedule.id} was added
          {schedule.next ? `; its first jobs are submitted ${time(schedule.next, now)}` : ""}. {" "}
          <Link to="jobs">See jobs</Link>
        </p>
      )}
    </>
  );
}
