// How GPUs are shared, in words and figures.
import type { GPU, Schemas } from "../api/client";
import { bytesOf, percent, size } from "./format";

/** The part of a GPU that one job has. */
export type Share = Schemas["GPUShare"];

type Mode = NonNullable<Share["use"]>["mode"];

const modes: Record<Mode, string> = {
  whole: "one job has all of it for now",
  open: "jobs run at the same time",
  token: "jobs take turns",
  mig: "cut into slices by the GPU (MIG)",
  mps: "jobs run at the same time (MPS)",
};

/** How a GPU is divided at the moment. */
export function modeOf(shares: Share[]): string {
  const mode = shares.find((s) => s.use)?.use?.mode;

  return mode ? modes[mode] : "not measured";
}

const classes: Record<Share["class"], string> = {
  guaranteed: "guaranteed: served first until it has had its share",
  normal: "normal: its share, and a part of what others leave",
  opportunistic: "opportunistic: served with what others leave",
};

/** On which terms a job has its share. */
export function termsOf(kind: Share["class"], limit: number | undefined): string {
  const most = limit === undefined || limit === 1 ? "no limit" : `at most ${percent(limit)} of the GPU`;

  return `${classes[kind]}; ${most}`;
}

/** What nobody was promised of a GPU, 0 to 1. */
export function freeOf(shares: Share[]): number {
  const free = 1 - shares.reduce((sum, s) => sum + s.share, 0);

  return free < 0.005 ? 0 : free; // shares are added up; what is less than a percent is a rounding error
}

/** What a job is called. */
export const titleOf = (s: Share): string => (s.name ? `${s.job} ${s.name}` : s.job);

/** How much of its share a job uses, 0 to 1; nothing while that is not measured. */
export const filledOf = (s: Share): number => (s.use && s.share > 0 ? Math.min(1, s.use.got / s.share) : 0);

/** The memory of a GPU that a job has, and may have. */
export function memoryOf(s: Share): string {
  const cap = s.memory === undefined ? "" : size(bytesOf(s.memory));
  if (s.use?.memory === undefined) return cap === "" ? "unknown" : `up to ${cap}`;

  return cap === "" ? size(bytesOf(s.use.memory)) : `${size(bytesOf(s.use.memory))} of ${cap}`;
}

/** The memory of a GPU that its jobs may have together. */
export function cappedOf(g: GPU): string {
  const caps = (g.shares ?? []).reduce((sum, s) => sum + bytesOf(s.memory), 0);

  return `${size(caps)} of ${size(bytesOf(g.memory))}`;
}

/** What is wrong with a share, "" if nothing is. */
export function troubleOf(s: Share): string {
  if ((s.use?.bypassed ?? 0) > 0) return "not held to its share";

  return s.use?.short_since ? "less than its share" : "";
}

/** A share in words. */
export function wordsOf(s: Share): string {
  const got = s.use ? `, gets ${percent(s.use.got)}` : "";
  const trouble = troubleOf(s);

  return `${titleOf(s)} of ${s.owner}: ${percent(s.share)}${got}${trouble === "" ? "" : ` (${trouble})`}`;
}

/** Who shares a GPU, in words. */
export function sharersOf(shares: Share[]): string {
  const free = freeOf(shares);

  return [...shares.map(wordsOf), ...(free > 0 ? [`${percent(free)} free`] : [])].join("; ");
}
