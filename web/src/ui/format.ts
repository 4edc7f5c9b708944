// The one way to write figures, the same as that of the command line (internal/humanize).

const minute = 60;
const hour = 60 * minute;
const day = 24 * hour;

/** A duration in at most two units: 45s, 1h30m, 3d4h. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < minute) return `${s}s`;
  if (s < hour) return twoUnits(s, minute, "m", 1, "s", 10 * minute);
  if (s < day) return twoUnits(s, hour, "h", minute, "m", 10 * hour);

  return twoUnits(s, day, "d", hour, "h", 10 * day);
}

const unitSeconds: Record<string, number> = { d: day, h: hour, m: minute, s: 1, ms: 0.001 };

/** The seconds of a duration as the API writes it: 1h30m, 1m7s999ms. */
export function secondsOf(text: string): number {
  const parts = text.matchAll(/([\d.]+)(ms|[dhms])/g);

  return [...parts].reduce((sum, [, amount, unit]) => sum + Number(amount) * (unitSeconds[unit ?? ""] ?? 0), 0);
}

/** twoUnits leaves the small unit out where it says nothing: above exact, and if it is zero. */
function twoUnits(s: number, large: number, l: string, small: number, sm: string, exact: number): string {
  if (s >= exact) return `${Math.round(s / large)}${l}`;

  const rounded = Math.round(s / small) * small;
  const rest = Math.round((rounded % large) / small);

  return `${Math.floor(rounded / large)}${l}` + (rest > 0 ? `${rest}${sm}` : "");
}

/** An amount of money. Small amounts have as many digits as they need. */
export function dollars(amount: number): string {
  if (amount === 0) return "$0.00";
  if (amount < 0.01) return "<$0.01";

  return amount.toLocaleString("en-US", { style: "currency", currency: "USD" });
}

export function integer(n: number): string {
  return integers.format(n);
}

const integers = new Intl.NumberFormat("en-US"); // to make one takes longer than to use it

/** A measured value, with as many digits as say something. */
export function figure(value: number): string {
  return String(Number(value.toPrecision(4)));
}

/** A share as a percentage. */
export function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

/** count writes a number with its noun: 1 job, 12 jobs. */
export function count(n: number, noun: string): string {
  return `${integer(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** A time of today as 18:40, of another day with its date. Local time, as everywhere in the portal. */
export function time(at: string | number | Date, now: number): string {
  const t = new Date(at);
  const clock = t.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const today = new Date(now);
  if (t.toDateString() === today.toDateString()) return clock;

  const date = t.toLocaleDateString("en-GB", {
    day: "numeric",
    month: "short",
    ...(t.getFullYear() === today.getFullYear() ? {} : { year: "numeric" }),
  });

  return `${date} ${clock}`;
}

/** How long ago a time was, in one unit: 5m ago. */
export function ago(at: string, now: number): string {
  const s = Math.max(0, (now - Date.parse(at)) / 1000);
  if (s < minute) return "now";
  if (s < hour) return `${Math.floor(s / minute)}m ago`;
  if (s < day) return `${Math.floor(s / hour)}h ago`;

  return `${Math.floor(s / day)}d ago`;
}

const sizes = ["B", "KB", "MB", "GB", "TB", "PB"];

/** bytesOf reads an amount of memory as the API writes it: 80GB. */
export function bytesOf(text: string | undefined): number {
  const [, number, unit] = /^([\d.]+)([KMGTP]?B)$/.exec(text ?? "") ?? [];

  return Number(number ?? 0) * 1024 ** Math.max(0, sizes.indexOf(unit ?? "B"));
}

/** An amount of memory or data: 15.6 GB. */
export function size(bytes: number): string {
  const step = bytes < 1 ? 0 : Math.min(sizes.length - 1, Math.floor(Math.log(bytes) / Math.log(1024) + 1e-5));

  return `${Number((bytes / 1024 ** step).toFixed(step === 0 ? 0 : 1))} ${sizes[step] ?? "B"}`;
}
