// What tables show of a node and its GPUs. Every cell says in words what is not known.
import type { GPU, Node } from "../api/client";
import { bytesOf, count, integer, size } from "./format";
import styles from "./node.module.css";
import { sharersOf, type Share } from "./shares";
import type { Tone } from "./status";

const classNames: Record<string, string> = { local: "Local", reserved: "Reserved", ondemand: "On demand" };

/** The class of a node as people call it. */
export const classOf = (name: string): string => classNames[name] ?? name;

export const classes = Object.keys(classNames);

const states: Record<Node["state"], { word: string; glyph: string; tone: Tone }> = {
  running: { word: "running", glyph: "●", tone: "running" },
  idle: { word: "idle", glyph: "○", tone: "queued" },
  foreign: { word: "used by others", glyph: "◐", tone: "attention" },
  error: { word: "error", glyph: "✕", tone: "failed" },
  suspect: { word: "not reporting", glyph: "✕", tone: "failed" },
  lost: { word: "lost", glyph: "✕", tone: "failed" },
  removed: { word: "removed", glyph: "✕", tone: "failed" },
};

/** The state of a node as a word. */
export const stateOf = (n: Node): string => states[n.state].word + (n.cordoned ? ", cordoned" : "");

/** Whether a node does not report: what is said of it is old. */
export const isAway = (n: Node): boolean => n.state === "suspect" || n.state === "lost";

/** The state of a node as a word with a glyph, so that it is not told by colour alone. */
export function NodeStatus({ node: n }: { node: Node }) {
  const s = states[n.state];

  return (
    <span className={styles[s.tone]} title={n.reason}>
      <span aria-hidden="true">{s.glyph}</span> {s.word}
      {n.cordoned && <span className={styles.attention}>, cordoned</span>}
      {n.warnings?.map((w) => (
        <span key={w.reason} className={styles.attention} title={w.reason}>, {w.cause.replaceAll("_", " ")}</span>
      ))}
    </span>
  );
}

/** The GPUs of a node as people write them: 4× A100 80 GB. */
export function kindsOf(n: Node): string {
  const kinds = new Map<string, number>();
  for (const g of n.gpus) {
    const kind = `${g.model} ${size(bytesOf(g.memory))}`;
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }

  return [...kinds].map(([kind, n]) => `${n}× ${kind}`).join(", ") || "no GPUs";
}

/** What the GPUs of a node draw, in watts: as they are measured now, else as was measured with as many busy. */
export function wattsOf(n: Node): number | undefined {
  const read = n.gpus.map((g) => g.use?.watts).filter((w) => w !== undefined);
  if (read.length > 0 && read.length === n.gpus.length) return read.reduce((sum, w) => sum + w, 0);

  return n.draw_w;
}

/** The temperature of the hottest GPU of a node. */
export function heatOf(n: Node): number | undefined {
  const read = n.gpus.map((g) => g.use?.celsius).filter((c) => c !== undefined);

  return read.length > 0 ? Math.max(...read) : undefined;
}

export const watts = (w: number | undefined): string =>
  w === undefined ? "–" : w >= 10_000 ? `${(w / 1000).toFixed(1)} kW` : `${Math.round(w)} W`;

export const celsius = (c: number | undefined): string => (c === undefined ? "–" : `${Math.round(c)} °C`);

/** How much of a GPU is taken, 0 to 1: the shares of its runs, or all of it. */
export function takenOf(n: Node, g: GPU): number {
  const runs = n.runs.filter((r) => r.gpus?.includes(g.index));
  const shares = runs.reduce((sum, r) => sum + (r.share ?? 1), 0);

  return g.state === "running" ? Math.min(1, shares > 0 ? shares : 1) : 0;
}

/** A GPU in words: what it does, for whom, and what was read from it. */
export function wordsOf(n: Node, g: GPU): string {
  const taken = takenOf(n, g);
  const shares = sharesOn(n, g);
  const parts = [
    shares ? `shared: ${sharersOf(shares)}` : g.state === "running"
      ? `${taken < 1 ? `${Math.round(taken * 100)} % shared by` : "running"} ${jobsOn(n, g).join(", ")}`
      : g.state === "error" ? `error: ${g.error ?? "unknown"}` : g.state === "foreign" ? "used by others" : "idle",
  ];
  if (g.use?.busy !== undefined) parts.push(`${Math.round(g.use.busy * 100)} % busy`);
  if (g.use?.memory !== undefined) parts.push(`${size(bytesOf(g.use.memory))} in use`);
  if (g.use?.watts !== undefined) parts.push(watts(g.use.watts));
  if (g.use?.celsius !== undefined) parts.push(celsius(g.use.celsius));

  return `GPU ${g.index}: ${parts.join(", ")}`;
}

/** The jobs on a GPU. */
export const jobsOn = (n: Node, g: GPU): string[] =>
  [...new Set(n.runs.filter((r) => r.gpus?.includes(g.index)).map((r) => r.job))];

/** Who shares a GPU, undefined if it is not shared. What they get is not known while the node does not report. */
export function sharesOn(n: Node, g: GPU): Share[] | undefined {
  return isAway(n) ? g.shares?.map((s) => ({ ...s, use: undefined })) : g.shares;
}

/** How many of some GPUs are shared, behind how many are in use. */
export function sharedOf(gpus: GPU[]): string {
  const shared = gpus.filter((g) => g.shares).length;

  return shared > 0 ? ` (${integer(shared)} shared)` : "";
}

/** The GPUs of a node in words, for those who do not see the cells. */
function summaryOf(n: Node): string {
  const parts = Object.entries({ running: "running", idle: "idle", error: "in error", foreign: "used by others" })
    .map(([state, word]) => ({ word, number: n.gpus.filter((g) => g.state === state).length }))
    .filter((p) => p.number > 0)
    .map((p) => `${p.number} ${p.word}${p.word === "running" ? sharedOf(n.gpus) : ""}`);
  return `${count(n.gpus.length, "GPU")}${isAway(n) ? ", not reporting" : `: ${parts.join(", ")}`}`;
}

/**
 * Every GPU of a node as a cell: its colour is its state, its fill how busy it is or how much of it is taken. One that
 * is shared has a part for each job.
 */
export function Cells({ node: n }: { node: Node }) {
  if (n.gpus.length === 0) return <span className="faint">no GPUs</span>;

  return (
    <span className={styles.cells} role="img" aria-label={summaryOf(n)}>
      {n.gpus.map((g) => {
        const taken = takenOf(n, g);
        const fill = taken < 1 ? taken : (g.use?.busy ?? 1);

        return (
          <span key={g.index} className={styles.cell} data-state={isAway(n) ? "away" : g.state} title={wordsOf(n, g)}>
            {g.shares?.map((s) => (
              <span key={s.job} className={styles.part} style={{ height: `${s.share * 100}%` }} />
            )) ?? (
              <span style={{ height: `${g.state === "running" ? Math.max(12, fill * 100) : 100}%` }} />
            )}
          </span>
        );
      })}
    </span>
  );
}
