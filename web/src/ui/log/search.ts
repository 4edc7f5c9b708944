import { Problem } from "../../api/client";
import { readLines, type LogLine, type LogOf, type LogRange } from "../../api/logs";
import { keyOf } from "./lines";

/** How long to wait when the server has too many searches under way, in milliseconds. */
const turnAfter = 700;

/** Asks, and again if the server has too many searches under way. */
async function ask(of: LogOf, range: LogRange, signal: AbortSignal) {
  for (;;) {
    try {
      return await readLines(of, range, signal);
    } catch (problem) {
      if (!(problem instanceof Problem) || problem.code !== "too_many_searches") throw problem;

      await new Promise((resolve) => { setTimeout(resolve, turnAfter); });
    }
  }
}

/** The nearest line after or before another that looks like an error; undefined if there is none. */
export async function findError(
  of: LogOf,
  from: number,
  backward: boolean,
  signal: AbortSignal,
  onProgress: (line: number) => void,
): Promise<LogLine | undefined> {
  let at: number | undefined = backward ? from : from + 1;

  while (at !== undefined) {
    onProgress(at);
    const page = await ask(of, { errors: true, from: at, backward, limit: 1, cut: 1 }, signal);
    if (page.lines[0]) return page.lines[0];

    at = page.next;
  }

  return undefined;
}

/** What a search has found. */
export interface SearchState {
  hits: LogLine[];
  byKey: ReadonlyMap<string, LogLine>; // the same by keyOf
  upTo: number; // how many lines were looked at
  running: boolean;
  problem: Problem | undefined;
}

/** A search pauses after so many lines: nobody reads more of them. */
export const hitsAtATime = 1000;

const hitsEach = 200;
const hitCut = 300;

export const nothing: SearchState = { hits: [], byKey: new Map(), upTo: 0, running: false, problem: undefined };

/**
 * Search looks for lines that match an expression, rank after rank from the first line on, and can be stopped and gone
 * on with.
 */
export class Search {
  private state = nothing;
  private readonly listeners = new Set<() => void>();
  private control = new AbortController();
  private rank = 0; // the one that is looked at
  private line = 1; // from which on
  private done = 0; // lines of the ranks before

  constructor(private readonly of: LogOf[], private readonly expression: string) {}

  subscribe = (fn: () => void): (() => void) => {
    this.listeners.add(fn);

    return () => this.listeners.delete(fn);
  };

  getState = (): SearchState => this.state;

  stop = (): void => {
    this.control.abort();
    this.set({ running: false });
  };

  /** Searches on after the last line that was looked at. */
  start = (): void => {
    this.control.abort();
    this.control = new AbortController();
    void this.run(this.control.signal);
  };

  private set(change: Partial<SearchState>): void {
    this.state = { ...this.state, ...change };
    this.listeners.forEach((fn) => { fn(); });
  }

  private async run(signal: AbortSignal): Promise<void> {
    this.set({ running: true, problem: undefined });
    const enough = this.state.hits.length + hitsAtATime;

    try {
      for (let of = this.of[this.rank]; of && this.state.hits.length < enough; of = this.of[this.rank]) {
        const page = await ask(of, { grep: this.expression, from: this.line, limit: hitsEach, cut: hitCut }, signal);
        const hits = [...this.state.hits, ...page.lines];
        const upTo = this.done + (page.next === undefined ? page.total : page.next - 1);
        this.set({ hits, upTo, byKey: new Map(hits.map((h) => [keyOf(h), h])) });
        this.line = page.next ?? page.total + 1;
        if (page.next !== undefined) continue;
        if (this.rank === this.of.length - 1) break; // searching on looks at what has come since

        this.done += page.total;
        this.rank++;
        this.line = 1;
      }

      this.set({ running: false });
    } catch (problem) {
      if (signal.aborted) return;

      this.set({ running: false, problem: problem instanceof Problem ? problem : undefined });
    }
  }
}
