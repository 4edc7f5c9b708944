// The time that the plots show. It is in the address: all of the life of the job, its newest run, or from and to.
import type { JobDetail } from "../../api/client";
import { useQueryString } from "../../route/route";
import { foreseen } from "../../ui/job";
import { seconds } from "./course";

export type Range = [number, number];

/** useRange returns what is shown, which choice that is, and functions that choose. */
export function useRange(j: JobDetail, now: number) {
  const [query, set] = useQueryString();
  const from = Number(query.get("from") ?? NaN);
  const to = Number(query.get("to") ?? NaN);
  const choice = to > from ? "own" : query.get("range") === "run" && newestStart(j) ? "run" : "life";

  return {
    range: choice === "own" ? ([from, to] as Range) : rangeOf(j, choice === "run", now),
    choice,
    choose: (name: string) => {
      set((q) => {
        q.delete("from");
        q.delete("to");
        q.set("range", name === "life" ? "" : name);
      });
    },
    select: (a: number, b: number) => {
      set((q) => {
        q.set("from", a.toFixed(1));
        q.set("to", b.toFixed(1));
      });
    },
  };
}

const newestStart = (j: JobDetail): string | undefined => j.runs.findLast((r) => r.started)?.started;

/** From the beginning to the expected end, with a little room after it. */
function rangeOf(j: JobDetail, run: boolean, now: number): Range {
  const from = seconds((run && newestStart(j)) || j.submitted);
  const f = foreseen(j);
  const expected = f ? seconds(f.end) : now;
  const to = j.ended ? seconds(j.ended) : Math.max(now, expected);

  return [from, to + Math.max((to - from) * 0.03, 1)];
}

/** How a time is written in a range: with seconds where minutes are too coarse, with the day where it matters. */
export function clockOf([from, to]: Range): (x: number) => string {
  const span = to - from;
  const oneDay = new Date(from * 1000).toDateString() === new Date(to * 1000).toDateString();
  const clock = { hour: "2-digit", minute: "2-digit" } as const;

  return (x) => {
    const t = new Date(x * 1000);
    if (span < 600) return t.toLocaleTimeString("en-GB", { ...clock, second: "2-digit" });
    if (oneDay) return t.toLocaleTimeString("en-GB", clock);

    return t.toLocaleString("en-GB", { ...clock, day: "numeric", month: "short" }).replace(",", "");
  };
}
