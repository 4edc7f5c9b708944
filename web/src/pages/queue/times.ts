// When a queued job waits, starts and runs, and the axis on which that is drawn. Times are in milliseconds since 1970.
import type { QueuedJob } from "../../api/client";
import { duration, time } from "../../ui/format";

export interface Times {
  queued: number;
  start?: number; // expected; absent if unknown
  startLow: number;
  startHigh: number;
  end: number;
  latest: number; // the end of the interval
  guess: boolean;
}

/** timesOf is when a job was queued and is expected to start and to end. What is expected is not in the past. */
export function timesOf(j: QueuedJob, now: number): Times {
  const f = j.forecast;
  const made = f ? Date.parse(f.at) : now;
  const at = (seconds: number) => Math.max(now, made + seconds * 1000);
  const known = f !== undefined && f.wait.mid > 0;
  const planned = j.start ?? j.why.start;
  const start = known ? at(f.wait.mid) : planned ? Math.max(now, Date.parse(planned)) : undefined;
  const times = { queued: Date.parse(j.queued), guess: f?.guess ?? true };
  if (start === undefined) return { ...times, startLow: now, startHigh: now, end: now, latest: now };

  return {
    ...times,
    start,
    startLow: known ? at(f.wait.low) : start,
    startHigh: known ? at(f.wait.high) : start,
    end: start + (f?.remaining.mid ?? 0) * 1000,
    latest: start + (f?.remaining.high ?? 0) * 1000,
  };
}

/** The bar in words. */
export function wordsOf(t: Times, now: number): string {
  const waits = `waits for ${duration((now - t.queued) / 1000)}`;
  if (t.start === undefined) return `${waits}; expected start unknown`;

  const run = duration((t.end - t.start) / 1000);
  const most = duration((t.latest - t.start) / 1000);

  return `${waits}; expected to start about ${time(t.start, now)} and to run ${run}, at most ${most}`;
}

export interface Axis {
  from: number;
  to: number;
}

const hour = 3_600_000;

/** The spans that an axis may have, in hours. */
export const spans = [1, 3, 6, 12, 24, 48, 96, 168, 336, 720];

export const spanName = (hours: number): string => (hours <= 48 ? `${hours} h` : `${hours / 24} d`);

/** The least span that has so long in it. */
const spanFor = (ms: number): number => (spans.find((h) => h * hour >= ms) ?? 720) * hour;

/** The value below which nine of ten lie: one job that lasts for a month does not make all others invisible. */
function mostOf(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor((values.length - 1) * 0.9)] ?? 0;
}

/** axisOf is an axis on which most of the jobs are seen as a whole. Chosen is a number of hours, 0 for none. */
export function axisOf(jobs: QueuedJob[], now: number, chosen: number): Axis {
  const times = jobs.map((j) => timesOf(j, now));
  const ahead = chosen > 0 ? chosen * hour : spanFor(mostOf(times.map((t) => t.end - now)));
  const behind = Math.min(ahead, spanFor(mostOf(times.map((t) => now - t.queued))));

  return { from: now - behind, to: now + ahead };
}

/** Where a time is on the axis, in percent. */
export function placeOf(axis: Axis, at: number): number {
  return Math.min(100, Math.max(0, ((at - axis.from) / (axis.to - axis.from)) * 100));
}

/** The style of what lies between two times. */
export function between(axis: Axis, from: number, to: number): { left: string; width: string } {
  const left = placeOf(axis, from);

  return { left: `${left}%`, width: `${placeOf(axis, to) - left}%` };
}

/** The times that are written at the axis: full hours or days, at most so many. */
export function ticksOf(axis: Axis, most: number): number[] {
  const steps = [0.25, 0.5, 1, 2, 3, 6, 12, 24, 48, 96, 168];
  const step = steps.find((h) => (axis.to - axis.from) / (h * hour) <= most) ?? 336;
  const midnight = new Date(axis.from).setHours(0, 0, 0, 0);
  const ticks: number[] = [];

  for (let at = midnight; at < axis.to; at += step * hour) if (at > axis.from) ticks.push(at);

  return ticks;
}
