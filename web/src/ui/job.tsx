// What tables show of a job. Every cell says in words what is not known.
import type { Job } from "../api/client";
import { dollars, duration, secondsOf, time } from "./format";
import { toneOf } from "./status";

export const hasEnded = (j: Job): boolean => j.ended !== undefined;

/** nameOf is what a job is called; many have no name. */
export function nameOf(j: Job): string {
  return j.name ?? "unnamed";
}

/** foreseen is the forecast of a job, if anything is known: not while it starts, nor before its first run. */
export function foreseen(j: Job): NonNullable<Job["forecast"]> | undefined {
  return j.forecast && !j.forecast.starting && j.forecast.basis !== "" ? j.forecast : undefined;
}

/** How long it still takes, with the 80 % interval. */
export function Remaining({ job: j, now }: { job: Job; now: number }) {
  if (hasEnded(j)) return <span className="faint">{j.ran ? `ran ${duration(secondsOf(j.ran))}` : "did not run"}</span>;

  const f = foreseen(j);
  if (!f) return <span className="faint">unknown yet</span>;

  // The forecast was made some time ago; what has passed since is gone, unless the job does not run.
  const passed = toneOf(j.status) === "running" ? (now - Date.parse(f.at)) / 1000 : 0;
  const left = (s: number) => duration(Math.max(0, s - passed));

  return (
    <span title={f.why}>
      {left(f.remaining.mid)}{" "}
      <span className="faint">({left(f.remaining.low)}–{left(f.remaining.high)}{f.guess ? ", guess" : ""})</span>
    </span>
  );
}

/** hasCost reports whether anything is known of what a job costs: without a tariff nothing is. */
export const hasCost = (j: Job): boolean => (j.cost_usd ?? 0) > 0 || (j.forecast?.cost.mid ?? 0) > 0;

/** What it has cost so far, and what it is expected to cost. */
export function Cost({ job: j }: { job: Job }) {
  const far = j.cost_usd ?? 0;
  const end = j.forecast?.cost.mid ?? 0;
  if (!hasCost(j)) return <span className="faint">unknown</span>;
  if (hasEnded(j) || end <= far) return <>{dollars(far)}</>;

  return <>{dollars(far)} <span className="faint">→ {dollars(end)}</span></>;
}

/** Where it runs, or why it does not. */
export function whereOf(j: Job): string {
  if (j.nodes && j.nodes.length > 0) {
    const more = j.nodes.length > 2 ? ` and ${j.nodes.length - 2} more` : "";

    return `${j.nodes.slice(0, 2).join(", ")}${more} · ${j.resources}`;
  }

  return j.reason === "" ? j.resources : j.reason;
}

/** Its estimated end as a time, "" if there is none. */
export function endOf(j: Job, now: number): string {
  const f = foreseen(j);

  return f ? time(f.end, now) : "";
}
