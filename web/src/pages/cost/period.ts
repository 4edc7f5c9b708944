// The period that the page is about, in the address: ?period=7d, or ?from=2026-11-01&to=2026-11-15. Days are those of
// the ledger and of budgets, in UTC.

const day = 86_400_000;

export const periods = [
  { id: "today", name: "Today" },
  { id: "7d", name: "Last 7 days" },
  { id: "month", name: "This month" },
  { id: "last-month", name: "Last month" },
];

export interface Period {
  id: string; // one of periods, or "days" for any others
  begin: number;
  end: number; // when it is over
  open: boolean; // it is not over yet
  words: string; // "so far in November"
}

/** periodOf reads the period, undefined if its days make no sense. */
export function periodOf(q: URLSearchParams, now: number): Period | undefined {
  const today = Math.floor(now / day) * day;
  const of = (id: string, begin: number, end: number, words: string): Period =>
    ({ id, begin, end, open: end > now, words });

  if (q.has("from") || q.has("to")) {
    const begin = dayOf(q.get("from"));
    const last = q.has("to") ? dayOf(q.get("to")) : today;
    if (begin === undefined || last === undefined || last < begin || begin > now) return undefined;

    return of("days", begin, last + day, last === begin ? `on ${date(begin)}` : `from ${date(begin)} to ${date(last)}`);
  }

  switch (q.get("period")) {
    case "today":
      return of("today", today, today + day, "so far today");
    case "7d":
      return of("7d", today - 6 * day, today + day, "in the last 7 days");
    case "last-month":
      return of("last-month", monthAt(now, -1), monthAt(now, 0), `in ${month(monthAt(now, -1))}`);
    default:
      return of("month", monthAt(now, 0), monthAt(now, 1), `so far in ${month(now)}`);
  }
}

function dayOf(text: string | null): number | undefined {
  const at = /^\d{4}-\d\d-\d\d$/.test(text ?? "") ? Date.parse(`${text}T00:00:00Z`) : NaN;

  return Number.isNaN(at) ? undefined : at;
}

/** monthAt is the beginning of a month, so many after that of a time. */
function monthAt(at: number, months: number): number {
  const t = new Date(at);

  return Date.UTC(t.getUTCFullYear(), t.getUTCMonth() + months, 1);
}

function month(at: number): string {
  return new Date(at).toLocaleDateString("en-GB", { month: "long", year: "numeric", timeZone: "UTC" });
}

/** date writes a day in UTC. */
export function date(at: number): string {
  return new Date(at).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
}

/** isoDay writes a day as addresses and the inputs of forms do. */
export function isoDay(at: number): string {
  return new Date(at).toISOString().slice(0, 10);
}

/** Where the period will end if it goes on as until now; undefined while that would say nothing, or is known. */
export function atThisPace(spent: number, p: { begin: number; end: number }, now: number): number | undefined {
  const passed = now - p.begin;
  if (passed < day / 4 || now >= p.end || spent <= 0) return undefined;

  return (spent / passed) * (p.end - p.begin);
}
