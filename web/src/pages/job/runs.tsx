import type { JobDetail, Schemas } from "../../api/client";
import { Link } from "../../route/link";
import { count, dollars, duration, percent, size, time } from "../../ui/format";
import { Table, type Column } from "../../ui/table";
import { costByRun, seconds } from "./course";
import styles from "./job.module.css";

type Run = Schemas["Run"];
type Amounts = Schemas["UseAmounts"];

/** Runs lists the attempts, newest first: where, how long, what they cost and how they ended. */
export function Runs({ job: j, cost, now }: { job: JobDetail; cost: Schemas["UsageReport"] | undefined; now: number }) {
  const costs = costByRun(cost);
  const columns: Column<Run>[] = [
    { id: "run", name: "Run", cell: (r) => r.id, lead: true },
    { id: "state", name: "State", cell: (r) => (r.state === "ended" ? (r.cause ?? "ended") : r.state), lead: true },
    { id: "where", name: "Where", cell: (r) => <Places run={r} /> },
    { id: "ordered", name: "Placed", cell: (r) => time(r.ordered, now) },
    { id: "setup", name: "Set-up", figure: true, cell: (r) => lasted(r.ordered, r.started ?? r.ended, now) },
    { id: "ran", name: "Ran", figure: true, cell: (r) => (r.started ? lasted(r.started, r.ended, now) : "–") },
    { id: "cost", name: "Cost", figure: true, cell: (r) => amount(costs.get(r.id)) },
    { id: "reason", name: "Reason", cell: (r) => <span className={styles.words}>{endOf(r)}</span> },
  ];

  return <Table label="Runs" columns={columns} rows={j.runs.toReversed()} id={(r) => r.id} />;
}

const amount = (cost: number | undefined) => (cost === undefined ? "unknown" : dollars(cost));

function lasted(from: string, to: string | undefined, now: number): string {
  return duration((to ? seconds(to) : now / 1000) - seconds(from));
}

/** Why a run ended, and with which exit codes; what is the same of all ranks is said once. */
function endOf(r: Run): string {
  const codeOf = (k: Schemas["Rank"]) => k.signal ?? (k.exit_code ? `exit code ${k.exit_code}` : "");
  const codes = [...new Set(r.ranks.map(codeOf))].filter((c) => c !== "" && !r.reason?.includes(c));

  return [...(r.reason ? [r.reason] : []), ...codes].join("; ");
}

/** Where the ranks of a run are. Of many the first are named. */
function Places({ run }: { run: Run }) {
  const most = 4;

  return (
    <ul className={styles.names}>
      {run.ranks.slice(0, most).map((k) => (
        <li key={k.rank}><Link to={`node/${k.node}`}>{k.node}</Link>{gpusOf(k)}</li>
      ))}
      {run.ranks.length > most && <li className="faint">and {run.ranks.length - most} more</li>}
    </ul>
  );
}

function gpusOf(k: Schemas["Rank"]): string {
  const n = k.gpus?.length ?? 0;
  if (n === 0) return "";
  if (k.share !== undefined && k.share < 1) return ` · ${percent(k.share)} of GPU ${k.gpus?.[0] ?? 0}`;

  return ` · GPU${n === 1 ? "" : "s"} ${k.gpus?.join(", ") ?? ""}`;
}

/** Use is what the newest run uses of its nodes, against what it asked for, and what to ask for the next time. */
export function Use({ use: u }: { use: Schemas["Utilization"] }) {
  const { asked } = u;
  const rows = [
    row("GPU busy", (a) => a.gpu_busy, percent, count(asked.gpus, "GPU")),
    row("GPU memory", (a) => a.gpu_memory, size, ""),
    row("CPUs", (a) => a.cpus, (v) => v.toFixed(1), asked.cpus),
    row("Memory", (a) => a.memory, size, asked.memory ?? "no limit"),
  ].filter((r) => r.peak !== undefined || r.now !== undefined);

  function row(name: string, pick: (a: Amounts) => number | undefined, format: (v: number) => string, of: string) {
    return { name, format, of, now: u.now && pick(u.now), mean: pick(u.mean), peak: pick(u.peak) };
  }

  type Row = (typeof rows)[number];
  const figure = (r: Row, v: number | undefined) => (v === undefined ? "–" : r.format(v));
  const columns: Column<Row>[] = [
    { id: "what", name: "Of its nodes", cell: (r) => r.name, lead: true },
    ...(u.now ? [{ id: "now", name: "Now", figure: true, cell: (r: Row) => figure(r, r.now) }] : []),
    { id: "mean", name: "On average", figure: true, cell: (r) => figure(r, r.mean) },
    { id: "peak", name: "At most", figure: true, cell: (r) => figure(r, r.peak) },
    { id: "asked", name: "Asked for, on each node", figure: true, cell: (r) => r.of },
  ];

  return (
    <>
      <p className="faint">Run {u.run}, measured for {duration(u.elapsed_seconds)}.</p>
      <Table label="Use of nodes and GPUs" columns={columns} rows={rows} id={(r) => r.name} />
      {u.advice && u.advice.length > 0 && (
        <>
          <p>For the next submit:</p>
          <ul>{u.advice.map((a) => <li key={a}>{a}</li>)}</ul>
        </>
      )}
      <Ranks use={u} />
    </>
  );
}

/** Use by rank, where there are several. */
function Ranks({ use: u }: { use: Schemas["Utilization"] }) {
  if (u.ranks.length < 2) return null;

  const columns: Column<Schemas["RankUse"]>[] = [
    { id: "rank", name: "Rank", cell: (r) => r.rank, lead: true },
    { id: "node", name: "Node", cell: (r) => <Link to={`node/${r.node}`}>{r.node}</Link>, lead: true },
    { id: "gpus", name: "GPUs busy", cell: (r) => (r.gpus ?? []).map((g) => percent(g.busy)).join(" ") || "–" },
    { id: "memory", name: "Memory", figure: true, cell: (r) => size(r.memory ?? 0) },
    { id: "peak", name: "At most", figure: true, cell: (r) => size(r.memory_peak ?? 0) },
  ];

  return (
    <details>
      <summary>By rank</summary>
      <Table label="Use by rank" columns={columns} rows={u.ranks} id={(r) => String(r.rank)} />
    </details>
  );
}
