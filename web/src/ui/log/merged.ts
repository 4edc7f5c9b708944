import { Problem } from "../../api/client";
import { readLines, type LogLine, type LogLines as Answer, type LogOf } from "../../api/logs";
import type { LogState, Source } from "./lines";

/** The output of more ranks is not shown as one: nobody could read it. */
export const mostRanks = 64;

/** Lines are cut to so many bytes; whole ones are loaded when somebody asks for them. */
const cut = 4096;

/** How many of the last lines of a rank come first, and how many at a time after that. */
const tail = 200;
const each = 500;

/** How far a rank may be ahead before lines in between are left out: they are loaded when somebody scrolls up. */
const farthest = 5000;

/** How many lines before those that are shown are kept, and from how many on the others are forgotten. */
const margin = 2000;
const keepLines = 30_000;

/** Nearer than so many lines to the first one that is loaded, the lines before it are loaded. */
const near = 100;

/** How far apart looks at ranks that still print are, in milliseconds. */
const lookEvery = 1000;

/** What is loaded of a rank: its lines from a number on, without a gap. */
interface Rank {
  of: LogOf;
  lines: LogLine[];
  from: number; // the number of the first of them
  size: number;
  counted: number;
  ended: boolean;
}

/** A line with the time that it is sorted by: within a rank lines stay in order. */
interface Timed {
  line: LogLine;
  at: number;
}

/**
 * Merged is the output of all ranks of a run in the order of time. The last lines of each rank are loaded, and those
 * before them as somebody scrolls up. Ranks are looked at one after the other: a question that waits for output would
 * take one of the few connections of the browser for each of them.
 */
export class Merged implements Source {
  private state: LogState = {
    loaded: false, before: 0, total: 0, size: 0, counted: 0, ended: false, away: "", problem: undefined, version: 0,
  };

  private readonly listeners = new Set<() => void>();
  private readonly ranks: Rank[];
  private list: LogLine[] = [];
  private first = 1;
  private loading = false;
  private life = new AbortController();

  constructor(of: LogOf[]) {
    this.ranks = of.map((one) => ({ of: one, lines: [], from: 0, size: 0, counted: 0, ended: false }));
  }

  subscribe = (fn: () => void): (() => void) => {
    this.listeners.add(fn);

    return () => this.listeners.delete(fn);
  };

  getState = (): LogState => this.state;

  line(number: number): LogLine | undefined {
    return this.list[number - this.state.before - 1];
  }

  lengths(): [number, number][] {
    return this.list.map((l, i) => [this.state.before + i + 1, l.text.length]);
  }

  start(): () => void {
    const life = new AbortController();
    this.life = life;
    void this.follow(life.signal);

    return () => { life.abort(); };
  }

  want(first: number): void {
    this.first = first;
    if (this.state.before > 0 && first - this.state.before <= near) void this.loadEarlier();
  }

  async loadWhole(number: number): Promise<void> {
    const line = this.line(number);
    const rank = this.ranks.find((r) => r.of.rank === line?.rank);
    if (!line || !rank) return;

    const page = await readLines(rank.of, { from: line.number ?? 1, limit: 1 }, this.life.signal);
    rank.lines = rank.lines.map((l) => (l.number === line.number ? (page.lines[0] ?? l) : l));
    this.merge({});
  }

  private set(change: Partial<LogState>): void {
    this.state = { ...this.state, ...change, version: this.state.version + 1 };
    this.listeners.forEach((fn) => { fn(); });
  }

  /** Looks at all ranks until none of them prints any more. */
  private async follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        for (const rank of this.ranks) if (!isWhole(rank)) await this.look(rank, signal);
        this.merge({ loaded: true, away: "", problem: undefined });
        if (this.ranks.every(isWhole)) return;
      } catch (problem) {
        if (!(problem instanceof Problem)) return; // it was ended

        const refused = problem.status !== 0 && problem.status !== 429 && problem.status < 500;
        this.set({ away: refused ? "" : problem.message, problem: refused ? problem : undefined });
        if (refused) return;
      }

      await new Promise((resolve) => { setTimeout(resolve, lookEvery); });
    }
  }

  /** Loads what a rank has printed since it was looked at last. */
  private async look(rank: Rank, signal: AbortSignal): Promise<void> {
    while (rank.lines.at(-1)?.partial) rank.lines.pop(); // it may have gone on, or changed places

    const next = rank.from + rank.lines.length;
    let page: Answer = await readLines(rank.of, { from: next > 0 ? next : -tail, limit: each, cut }, signal);

    if (next > 0 && page.total > next + farthest) {
      page = await readLines(rank.of, { from: -tail, limit: tail, cut }, signal);
      rank.lines = [];
    }

    if (rank.lines.length === 0) rank.from = page.lines[0]?.number ?? page.total + 1;
    rank.lines.push(...page.lines);
    rank.size = page.size;
    rank.counted = page.counted;
    rank.ended = page.ended && rank.from + rank.lines.length > page.total;
  }

  /** Loads lines before those that are loaded: of the ranks of which the fewest are known. */
  private async loadEarlier(): Promise<void> {
    if (this.loading) return;

    this.loading = true;
    const enough = this.list.length + each;

    try {
      while (this.list.length < enough) {
        const rank = latest(this.ranks);
        if (!rank) break;

        const { from } = rank;
        const page = await readLines(rank.of, { from, backward: true, limit: each, cut }, this.life.signal);
        if (rank.from !== from) continue; // other lines are loaded by now: these would leave a gap

        rank.lines.unshift(...page.lines);
        rank.from = page.lines[0]?.number ?? 1;
        this.merge({});
      }
    } catch (problem) {
      if (!(problem instanceof Problem)) return; // it was ended; otherwise whoever scrolls tries again
    } finally {
      this.loading = false;
    }
  }

  /** Puts the lines of all ranks in order, as far back as they are known of each rank. */
  private merge(change: Partial<LogState>): void {
    const start = latest(this.ranks);
    const horizon = start ? Date.parse(start.lines[0]?.at ?? "") || 0 : 0;
    const known: Timed[] = [];
    let before = 0;

    for (const rank of this.ranks) {
      const timed = timesOf(rank.lines);
      const skipped = timed.findIndex((t) => t.at >= horizon);
      const shown = skipped < 0 ? [] : timed.slice(skipped);
      before += Math.max(0, rank.from + timed.length - shown.length - 1);
      known.push(...shown);
    }

    this.list = known.sort((a, b) => a.at - b.at).map((t) => t.line); // lines of the same time stay by rank
    const sum = (of: (r: Rank) => number) => this.ranks.reduce((total, r) => total + of(r), 0);

    this.set({
      ...change, before, total: before + this.list.length, size: sum((r) => r.size), counted: sum((r) => r.counted),
      ended: this.ranks.every((r) => r.ended),
    });
    if (this.list.length > keepLines) this.tidy();
  }

  /** Forgets lines far before those that are shown. */
  private tidy(): void {
    const oldest = this.line(this.first - margin);
    if (!oldest) return;

    for (const rank of this.ranks) {
      const keep = rank.lines.findIndex((l) => l.at >= oldest.at);
      const gone = keep < 0 ? Math.max(0, rank.lines.length - 1) : keep;
      rank.lines.splice(0, gone);
      rank.from += gone;
    }

    this.merge({});
  }
}

/** Whether all is known of the end of a rank's output. */
const isWhole = (r: Rank): boolean => r.ended && r.counted === r.size;

/** The rank whose first loaded line is the newest, of those that have lines before it. */
function latest(ranks: Rank[]): Rank | undefined {
  return ranks.filter((r) => r.from > 1 && r.lines.length > 0)
    .reduce<Rank | undefined>((a, b) => ((a?.lines[0]?.at ?? "") > (b.lines[0]?.at ?? "") ? a : b), undefined);
}

function timesOf(lines: LogLine[]): Timed[] {
  let at = 0;

  return lines.map((line) => {
    at = Math.max(at, Date.parse(line.at));

    return { line, at };
  });
}
