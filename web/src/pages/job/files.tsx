import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { stringify } from "yaml";

import { pinCheckpoint } from "../../api/actions";
import { addressOf, type JobDetail, type Problem, type Schemas } from "../../api/client";
import { outputFiles } from "../../api/queries/job";
import { integer, size, time } from "../../ui/format";
import { hasEnded } from "../../ui/job";
import { ProblemNotice } from "../../ui/notice";
import { Table, type Column } from "../../ui/table";
import styles from "./job.module.css";

type Checkpoint = Schemas["Checkpoint"];

/** Checkpoints lists what the job can continue from, newest first. */
export function Checkpoints({ job: j, list, now }: { job: JobDetail; list: Checkpoint[]; now: number }) {
  if (list.length === 0) {
    return (
      <p className="faint">
        {j.no_checkpoint
          ? "Its job file has no checkpoint: a run that is stopped loses its work."
          : `No checkpoint ${hasEnded(j) ? "is kept" : "was saved yet"}.`}
      </p>
    );
  }

  const columns: Column<Checkpoint>[] = [
    { id: "id", name: "Checkpoint", cell: (c) => <><bdi>{c.name}</bdi> <Marks checkpoint={c} /></>, lead: true },
    { id: "step", name: "Step", figure: true, cell: (c) => (c.step === undefined ? "–" : integer(c.step)) },
    { id: "value", name: "Value", figure: true, cell: (c) => valueOf(c) },
    { id: "size", name: "Size", figure: true, cell: (c) => c.size },
    { id: "written", name: "Written", cell: (c) => time(c.written, now) },
    { id: "run", name: "Run", cell: (c) => c.run },
    { id: "do", name: "", cell: (c) => <CheckpointActions checkpoint={c} /> },
  ];

  return <Table label="Checkpoints" columns={columns} rows={list.toReversed()} id={(c) => c.id} />;
}

function valueOf(c: Checkpoint): string {
  return c.value === undefined ? "–" : `${c.metric ?? ""} ${Number(c.value.toPrecision(4))}`.trim();
}

function Marks({ checkpoint: c }: { checkpoint: Checkpoint }) {
  const words = [
    c.next ? "the next run continues from it" : "",
    c.pinned ? "kept" : "",
    c.state === "stored" ? "" : c.reason ? `${c.state}: ${c.reason}` : c.state,
  ].filter((w) => w !== "");

  return words.length > 0 ? <span className="faint">{words.join(", ")}</span> : null;
}

function CheckpointActions({ checkpoint: c }: { checkpoint: Checkpoint }) {
  const cache = useQueryClient();
  const pin = useMutation<unknown, Problem, boolean>({
    mutationFn: (on) => pinCheckpoint(c.id, on),
    onSettled: () => cache.invalidateQueries({ queryKey: ["checkpoints"] }),
  });
  if (c.state !== "stored") return null;

  return (
    <span className={styles.inline}>
      {c.shared === undefined && (
        <a href={addressOf(`/api/v1/checkpoints/${encodeURIComponent(c.id)}/archive`).href} download={`${c.id}.tar`}>
          Download
        </a>
      )}
      <button
        disabled={pin.isPending}
        onClick={() => { pin.mutate(!c.pinned); }}
        aria-label={`${c.pinned ? "Unpin" : "Keep"} ${c.name}`}
      >
        {c.pinned ? "Unpin" : "Keep"}
      </button>
      {pin.error && <span role="alert" className={styles.refused}>{pin.error.message}</span>}
    </span>
  );
}

/** Outputs lists the files that runs have left, by rank, and how to get them. */
export function Outputs({ job: j }: { job: JobDetail }) {
  const sets = j.outputs ?? [];
  if (sets.length === 0) {
    return (
      <p className="faint">
        No output files are kept. Name them under <code>outputs</code> in the job file, or fetch others from the folder
        of its newest run: <code>trainyard fetch {j.id} PATTERN</code>
      </p>
    );
  }

  return (
    <>
      {sets.map((s) => <OutputFiles key={`${s.run} ${s.rank}`} job={j.id} set={s} />)}
      <p className="faint">To get all of them: <code>trainyard fetch {j.id}</code></p>
    </>
  );
}

/** How many files are listed: of more the command line tells. */
const mostFiles = 200;

function OutputFiles({ job, set: s }: { job: string; set: Schemas["OutputSet"] }) {
  const [open, setOpen] = useState(false);
  const found = useQuery({ ...outputFiles(job, s.run, s.rank), enabled: open && s.removed === undefined });
  const files = found.data?.files ?? [];
  type File = (typeof files)[number];
  const columns: Column<File>[] = [
    { id: "path", name: "File", cell: (f) => <FileLink job={job} set={s} path={f.path} link={f.link} />, lead: true },
    { id: "size", name: "Size", figure: true, cell: (f) => size(f.size) },
  ];

  return (
    <details onToggle={(e) => { setOpen(e.currentTarget.open); }}>
      <summary>
        {integer(s.files)} file{s.files === 1 ? "" : "s"}, {s.bytes}{" "}
        <span className="faint">of rank {s.rank} of run {s.run} on {s.node}</span>
      </summary>
      {s.removed && <p className="faint">{s.removed}</p>}
      {s.notes?.map((n) => <p key={n} className="faint">{n}</p>)}
      {found.error && <ProblemNotice problem={found.error} />}
      {found.isLoading && <p className="faint" aria-busy="true">Loading…</p>}
      {files.length > 0 && (
        <Table
          label={`Files of rank ${s.rank} of ${s.run}`}
          columns={columns}
          rows={files.slice(0, mostFiles)}
          id={(f) => f.path}
        />
      )}
      {files.length > mostFiles && (
        <p className="faint">The first {mostFiles}; <code>trainyard fetch {job} --list</code> lists all.</p>
      )}
    </details>
  );
}

/** A file that can be downloaded, or a symbolic link, which says where it points. */
function FileLink({ job, set: s, path, link }: {
  job: string;
  set: Schemas["OutputSet"];
  path: string;
  link: string | undefined;
}) {
  const name = <bdi className={styles.words}>{path}</bdi>;
  if (link !== undefined) return <>{name} <span className="faint">→ {link}</span></>;

  const url = addressOf(`/api/v1/jobs/${job}/outputs/${s.run}/${s.rank}/file`);
  url.searchParams.set("path", path);

  return <a href={url.href} download>{name}</a>;
}

/** JobFile is the job file with the values that were filled in, as the yard runs it. */
export function JobFile({ job: j }: { job: JobDetail }) {
  const [copied, setCopied] = useState(false);
  const text = stringify(j.spec, { lineWidth: 0 });
  const masked = typeof j.spec === "object" && j.spec !== null && "env" in j.spec;

  return (
    <>
      <p className="faint">
        With defaults and changes filled in{masked ? "; values of env are hidden" : ""}.{" "}
        <button onClick={() => { void navigator.clipboard.writeText(text).then(() => { setCopied(true); }); }}>
          {copied ? "Copied" : "Copy"}
        </button>
      </p>
      <pre tabIndex={0} aria-label="Job file" className={styles.file}>{text}</pre>
    </>
  );
}
