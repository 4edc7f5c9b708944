// The life of a job as data for its plots: everything over the same time, in seconds since 1970.
import type { FeedEvent, JobDetail, Schemas } from "../../api/client";
import { foreseen } from "../../ui/job";
import type { Block, Mark } from "../../ui/plot";

type Run = Schemas["Run"];

export const seconds = (at: string): number => Date.parse(at) / 1000;

/** How a job spent a stretch of its life. */
export type Kind = "queued" | "set-up" | "running" | "paused";

export interface Stretch {
  kind: Kind;
  from: number;
  to: number;
  run?: Run;
}

/** stretchesOf is the life of a job without gaps: what its runs do not cover it was queued or paused. */
export function stretchesOf(j: JobDetail, events: FeedEvent[], now: number): Stretch[] {
  const list: Stretch[] = [];
  const pauses = pausesOf(j, events, now);
  let at = seconds(j.submitted);

  const wait = (until: number) => {
    for (const p of pauses) {
      const [from, to] = [Math.max(p.from, at), Math.min(p.to, until)];
      if (to <= from) continue;

      add("queued", at, from);
      add("paused", from, to);
      at = to;
    }

    add("queued", at, until);
    at = Math.max(at, until);
  };

  const add = (kind: Kind, from: number, to: number, run?: Run) => {
    if (to > from) list.push({ kind, from, to, ...(run ? { run } : {}) });
  };

  for (const run of j.runs) {
    const ended = run.ended ? seconds(run.ended) : now;
    const started = run.started ? seconds(run.started) : ended;
    wait(seconds(run.ordered));
    add("set-up", at, started, run);
    add("running", started, ended, run);
    at = Math.max(at, ended);
  }

  wait(j.ended ? seconds(j.ended) : now);

  return list;
}

/** When it was paused. Of long ago there may be no events any more; what it is now is known without them. */
function pausesOf(j: JobDetail, events: FeedEvent[], now: number): { from: number; to: number }[] {
  const list: { from: number; to: number }[] = [];

  for (const e of events) {
    if (e.kind === "job.paused") list.push({ from: seconds(e.at), to: now });

    const last = list.at(-1);
    if (e.from === "paused" && last) last.to = seconds(e.at);
  }

  if (j.state === "paused" && list.at(-1)?.to !== now) list.push({ from: seconds(j.since), to: now });

  return list;
}

const tones: Record<Kind, string> = {
  queued: "queued", "set-up": "attention", running: "running", paused: "attention",
};

export function blocksOf(stretches: Stretch[]): Block[] {
  return stretches.map((s) => ({
    from: s.from,
    to: s.to,
    name: s.run && s.kind === "running" ? `running on ${nodesOf(s.run)}` : s.kind,
    tone: tones[s.kind],
    pale: s.kind === "queued" || s.kind === "paused",
  }));
}

/** The nodes of a run in a word or two. */
export function nodesOf(run: Run): string {
  const names = [...new Set(run.ranks.map((r) => r.node))];

  return names.length > 2 ? `${names.length} nodes` : names.join(", ");
}

/** When it was started again, here or elsewhere. */
export function restartsOf(runs: Run[]): Mark[] {
  return runs.flatMap((run, i): Mark[] => {
    const before = runs[i - 1];
    if (!before || !run.started) return [];

    const moved = nodesOf(before) !== nodesOf(run);

    return [{ x: seconds(run.started), name: moved ? `moved to ${nodesOf(run)}` : "restart", tone: "attention" }];
  });
}

/** A learning rate under the names that programs give it: lr, train/lr, learning_rate, lr-Adam/pg1. */
export const isLearningRate = (metric: string): boolean => /(^|[/_.])(lr|learning[-_ ]?rate)($|[-/_.\d])/i.test(metric);

/** More drops than these are a schedule that falls all the time, of which each step says nothing. */
const maxDrops = 8;

/** Where a learning rate was lowered by half or more at once. */
export function dropsOf(points: Schemas["MetricPoint"][]): Mark[] {
  const marks: Mark[] = [];
  let last: number | null = null;

  for (const p of points) {
    if (last !== null && p.v !== null && p.v > 0 && p.v <= last / 2) {
      marks.push({ x: p.t, name: `lr ${Number(p.v.toPrecision(2))}` });
    }

    last = p.v ?? last;
  }

  return marks.length > maxDrops ? [] : marks;
}

/** A table with its own times, as joined of ui/plot takes it. */
export type Table = [number[], ...(number | null)[][]];

export function pointsOf(curve: Schemas["Curve"], log: boolean): Table {
  const points = curve.points.toSorted((a, b) => a.t - b.t);

  return [points.map((p) => p.t), points.map((p) => (log && p.v !== null && p.v <= 0 ? null : p.v))];
}

/**
 * The fitted curve over time: middle, upper and lower end of its interval. The server has it over steps. Up to the
 * newest value the times of steps are known; after that they are evenly apart, until the expected end of the job.
 */
export function fitOf(curve: Schemas["Curve"], j: JobDetail, log: boolean): Table | undefined {
  const { fit, points } = curve;
  const last = points.at(-1);
  const until = fit?.step.at(-1);
  if (!fit || !last || until === undefined) return undefined;

  const known = points.toSorted((a, b) => a.s - b.s);
  const f = foreseen(j);
  const end = f ? Math.max(seconds(f.end), last.t) : last.t;
  const room = until - last.s;
  let i = 0;

  const timeOf = (step: number): number => {
    if (step >= last.s) return room > 0 ? last.t + ((step - last.s) / room) * (end - last.t) : last.t;

    while (i < known.length - 1 && (known[i + 1]?.s ?? Infinity) <= step) i++;

    const [a, b] = [known[i], known[i + 1]];
    if (!a || !b || b.s === a.s) return a?.t ?? last.t;

    return a.t + ((step - a.s) / (b.s - a.s)) * (b.t - a.t);
  };

  const x: number[] = [];
  const columns: (number | null)[][] = [[], [], []];

  fit.step.forEach((step, k) => {
    const t = timeOf(step);
    if (t <= (x.at(-1) ?? -Infinity)) return; // times must rise

    x.push(t);
    [fit.mid[k], fit.high[k], fit.low[k]].forEach((v, c) => {
      columns[c]?.push(v === undefined || (log && v <= 0) ? null : v);
    });
  });

  return [x, ...columns];
}

/** What was used over time, in all runs of which it is known; a null is where a run ended. */
export function usageOf(
  use: Schemas["Utilization"] | undefined,
  pick: (p: Schemas["UsePoint"]) => number | undefined,
): Table | undefined {
  if (!use) return undefined;

  const x: number[] = [];
  const y: (number | null)[] = [];

  for (const points of [...(use.earlier ?? []).map((e) => e.points), use.points ?? []]) {
    for (const p of points) {
      const v = pick(p);
      if (v === undefined) continue;

      x.push(seconds(p.at));
      y.push(v);
    }

    const last = x.at(-1);
    if (last === undefined || y.at(-1) === null) continue;

    x.push(last + 0.001);
    y.push(null);
  }

  return y.some((v) => v !== null) ? [x, y] : undefined;
}

/** What it has cost, as a sum over time: within each hour of a run it grows evenly. */
export function costOf(report: Schemas["UsageReport"] | undefined, runs: Run[], now: number): Table | undefined {
  const pieces = (report?.rows ?? []).flatMap(({ keys: [name, hour = ""], cost_usd: cost }) => {
    const run = runs.find((r) => r.id === name);
    const begin = Date.parse(`${hour}:00:00Z`) / 1000;
    if (!run || cost === 0 || Number.isNaN(begin)) return [];

    const from = Math.max(begin, seconds(run.ordered));
    const to = Math.min(begin + 3600, run.ended ? seconds(run.ended) : now, now);

    return [{ from, to: Math.max(to, from), cost }];
  });
  if (pieces.length === 0) return undefined;

  const x: number[] = [];
  const y: number[] = [];
  let sum = 0;

  for (const p of pieces.toSorted((a, b) => a.from - b.from)) {
    const from = Math.max(p.from, (x.at(-1) ?? -Infinity) + 0.001);
    x.push(from, Math.max(p.to, from + 0.001));
    y.push(sum, sum + p.cost);
    sum += p.cost;
  }

  return [x, y];
}

/** The value of a table at a time: between two points the line between them; undefined where it has none. */
export function valueAt([x, y]: Table, at: number): number | undefined {
  const i = x.findLastIndex((t) => t <= at);
  if (i < 0 || !y) return undefined;

  const [a, b] = [y[i], y[i + 1]];
  const [from = 0, to] = [x[i], x[i + 1]];
  if (a === null || a === undefined) return undefined;
  if (b === null || b === undefined || to === undefined) return a;

  return a + ((at - from) / (to - from)) * (b - a);
}

/** What runs have cost, by run. Without a tariff nothing is known of runs that seem to cost nothing. */
export function costByRun(report: Schemas["UsageReport"] | undefined): Map<string, number> {
  const costs = new Map<string, number>();

  for (const { keys: [run = ""], cost_usd: cost } of report?.rows ?? []) {
    if (cost > 0 || !report?.no_tariff) costs.set(run, (costs.get(run) ?? 0) + cost);
  }

  return costs;
}
