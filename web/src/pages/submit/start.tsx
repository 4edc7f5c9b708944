import { useQuery } from "@tanstack/react-query";
import { useRef } from "react";

import { templates } from "../../api/drafts";
import { jobs } from "../../api/queries";
import { go, hrefOf } from "../../route/route";
import { nameOf } from "../../ui/job";
import { canUpload } from "./upload";
import styles from "./submit.module.css";

// React does not know it.
const wholeFolder = { webkitdirectory: "" };

interface Props {
  user: string;
  onText: (text: string) => void;
  onFile: (file: File) => void;
  onFolder: (files: File[]) => void;
}

/** Start is what one can begin with: a template, a past job, a file, a folder. */
export function Start({ user, onText, onFile, onFolder }: Props) {
  const all = useQuery(templates).data?.templates ?? [];
  const past = useQuery(jobs({ owner: user }, "", 15)).data?.jobs ?? [];
  const file = useRef<HTMLInputElement>(null);
  const folder = useRef<HTMLInputElement>(null);

  const choose = (value: string) => {
    const template = all.find((t) => `template ${t.name}` === value);
    if (template) onText(template.file);
    else if (value !== "") go(hrefOf("submit", { from: value }));
  };

  return (
    <div className={styles.start}>
      <select aria-label="Start from" value="" onChange={(e) => { choose(e.target.value); }}>
        <option value="">Start from…</option>
        <optgroup label="Templates">
          {all.map((t) => <option key={t.name} value={`template ${t.name}`}>{t.title}</option>)}
        </optgroup>
        {past.length > 0 && (
          <optgroup label="My jobs">
            {past.map((j) => <option key={j.id} value={j.id}>{j.id} {nameOf(j)}</option>)}
          </optgroup>
        )}
      </select>
      <button onClick={() => file.current?.click()}>Choose file…</button>
      <button disabled={!canUpload()} onClick={() => folder.current?.click()}>Choose folder…</button>
      <input
        ref={file}
        className="hidden"
        type="file"
        aria-label="Job file to open"
        tabIndex={-1}
        accept=".yaml,.yml,.json"
        onChange={(e) => {
          const one = e.target.files?.[0];
          if (one) onFile(one);
          e.target.value = "";
        }}
      />
      <input
        ref={folder}
        className="hidden"
        type="file"
        aria-label="Folder to upload"
        tabIndex={-1}
        {...wholeFolder}
        onChange={(e) => {
          onFolder([...(e.target.files ?? [])]);
          e.target.value = "";
        }}
      />
      <span className={canUpload() ? `faint ${styles.drop ?? ""}` : "faint"}>
        {canUpload()
          ? "or drop a job file, or the folder in which the job runs, anywhere on the page"
          : "or drop a job file. Folders are uploaded over HTTPS only: without it browsers compute no digests. "
            + "Open the portal with https, or use trainyard submit"}
      </span>
    </div>
  );
}
