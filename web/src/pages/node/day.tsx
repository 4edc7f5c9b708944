import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import type { FeedEvent, Node, Schemas } from "../../api/client";
import { nodeEvents, nodeRuns } from "../../api/queries/yard";
import { Link } from "../../route/link";
import { duration, time } from "../../ui/format";
import { ProblemNotice } from "../../ui/notice";
import { Table, type Column } from "../../ui/table";
import styles from "./node.module.css";

type Run = Schemas["PastRun"];

const hour = 3_600_000;

/** Day is the last day of a node: a lane for each GPU, with the runs on it. */
export function Day({ node: n, now }: { node: Node; now: number }) {
  // The question stays the same for an hour.
  const from = Math.floor(now / hour - 23) * hour;
  const runs = useQuery(nodeRuns(n.id, useMemo(() => new Date(from).toISOString(), [from])));
  const events = useQuery(nodeEvents(n.id));
  const list = runs.data?.runs ?? [];
  const lanes = n.gpus.length > 0 ? n.gpus.map((g) => g.index) : [-1];
  const told = (events.data?.events ?? []).filter((e) => e.kind.startsWith("node.") && Date.parse(e.at) >= from);

  return (
    <section aria-labelledby="day">
      <h2 id="day">Last day</h2>
      {runs.error && <ProblemNotice problem={runs.error} onRetry={() => void runs.refetch()} />}
      {runs.data && list.length === 0 && <p className="faint">Nothing ran here in the last day.</p>}
      {list.length > 0 && (
        <div className={styles.day} role="img" aria-label={wordsOf(list, now)}>
          {lanes.map((lane) => (
            <Lane
              key={lane}
              gpu={lane}
              runs={list.filter((r) => (lane < 0 ? true : r.gpus?.includes(lane)))}
              ticks={told}
              from={from}
              now={now}
            />
          ))}
          <div className={styles.lane} aria-hidden="true">
            <span />
            <div className={styles.scale}>
              {[0, 6, 12, 18].map((h) => {
                const at = from + h * hour;

                return <span key={h} style={{ left: place(at, from, now) }}>{time(at, at)}</span>;
              })}
              <span className={styles.end}>now</span>
            </div>
          </div>
        </div>
      )}
      {list.length > 0 && (
        <Table label="Runs" columns={columnsAt(now)} rows={list} id={(r) => r.run} />
      )}
      {runs.data?.partial && (
        <p className="faint">
          Only its newest 100 jobs are shown. <Link to="jobs" query={{ node: n.id }}>All jobs of this node</Link>
        </p>
      )}
    </section>
  );
}

interface LaneProps {
  gpu: number; // -1 for all that ran on a node without GPUs
  runs: Run[];
  ticks: FeedEvent[];
  from: number;
  now: number;
}

/** Lane is a GPU in the last day. Runs that shared it are below each other. */
function Lane({ gpu, runs, ticks, from, now }: LaneProps) {
  const { rows, row } = rowsOf(runs);

  return (
    <div className={styles.lane}>
      <span className="faint">{gpu < 0 ? "CPU" : gpu}</span>
      <div className={styles.track} style={{ blockSize: rows > 1 ? rows * sharedRow : undefined }}>
        {ticks.map((e) => (
          <i key={e.seq} className={styles.tick} style={{ left: place(Date.parse(e.at), from, now) }} />
        ))}
        {runs.map((r) => (
          <span
            key={r.run}
            data-ended={r.to !== undefined}
            title={`${labelOf(r)}: ${time(r.from, now)} to ${r.to ? time(r.to, now) : "now"}`}
            style={{ ...spanOf(r, from, now), ...(rows > 1 ? { top: (row.get(r.run) ?? 0) * sharedRow + 1 } : {}) }}
          >
            {r.job}
          </span>
        ))}
      </div>
    </div>
  );
}

/** How high a run is that shares its GPU, in pixels. */
const sharedRow = 18;

/** In which row each run is, so that those that shared a GPU at the same time do not cover each other. */
export function rowsOf(runs: Run[]): { rows: number; row: Map<string, number> } {
  const ends: number[] = [];
  const row = new Map<string, number>();

  for (const r of runs.toSorted((a, b) => Date.parse(a.from) - Date.parse(b.from))) {
    const begin = Date.parse(r.from);
    const free = ends.findIndex((end) => end <= begin);
    const at = r.share === undefined ? 0 : free < 0 ? ends.length : free;

    ends[at] = r.to ? Date.parse(r.to) : Infinity;
    row.set(r.run, at);
  }

  return { rows: Math.max(1, ends.length), row };
}

const labelOf = (r: Run): string => `${r.job} ${r.name ?? ""} of ${r.owner}`.replace("  ", " ");

const place = (at: number, from: number, now: number): string =>
  `${Math.min(100, Math.max(0, ((at - from) / (now - from)) * 100))}%`;

function spanOf(r: Run, from: number, now: number) {
  const begin = Math.max(from, Date.parse(r.from));
  const end = r.to ? Date.parse(r.to) : now;

  // One that has just begun is visible, too.
  const left = `min(${place(begin, from, now)}, 100% - 3px)`;

  return { left, width: `${(Math.max(0, end - begin) / (now - from)) * 100}%` };
}

/** Which GPUs it had, and how much of one that it shared. */
function gpusOf(r: Run): string {
  if (!r.gpus || r.gpus.length === 0) return "none";

  return r.gpus.join(", ") + (r.share ? ` (${Math.round(r.share * 100)} %)` : "");
}

/** The lanes in words. */
function wordsOf(list: Run[], now: number): string {
  const running = list.filter((r) => r.to === undefined).length;

  return `${list.length} runs in the last day, ${running} of them running at ${time(now, now)}; the table has the same`;
}

function columnsAt(now: number): Column<Run>[] {
  const end = (r: Run) => (r.to ? Date.parse(r.to) : now);

  return [
    {
      id: "job", name: "Job", lead: true,
      cell: (r) => <Link to={`job/${r.job}`}>{r.job} <bdi>{r.name}</bdi></Link>,
    },
    { id: "owner", name: "Owner", cell: (r) => <bdi>{r.owner}</bdi> },
    { id: "gpus", name: "GPUs", cell: gpusOf },
    { id: "from", name: "From", figure: true, cell: (r) => time(r.from, now) },
    { id: "took", name: "Took", figure: true, cell: (r) => duration((end(r) - Date.parse(r.from)) / 1000) },
    {
      id: "end", name: "Ended", lead: true,
      cell: (r) => (r.to ? <span className="faint">{(r.cause ?? "ended").replaceAll("_", " ")}</span> : "running"),
    },
  ];
}
