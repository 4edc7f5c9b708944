import { Problem } from "../../api/client";
import { readLines, type LogLine, type LogLines as Answer, type LogOf } from "../../api/logs";

/** What is known of a log. */
export interface LogState {
  loaded: boolean; // the server has answered
  before: number; // lines before the first that can be shown by now
  total: number; // lines
  size: number; // bytes
  counted: number; // bytes whose lines are counted
  ended: boolean; // no more will come
  away: string; // why the server does not answer, while it is tried again
  problem: Problem | undefined;
  version: number; // changes when lines were loaded
}

/** Lines are cut to so many bytes; whole ones are loaded when somebody asks for them. */
const cut = 4096;

/** What shows lines asks for them here: the output of a rank, or that of all ranks by time. */
export interface Source {
  subscribe: (fn: () => void) => () => void;
  getState: () => LogState;
  line: (number: number) => LogLine | undefined;
  lengths: () => [number, number][];
  start: () => () => void;
  want: (first: number, last: number) => void;
  loadWhole: (number: number) => Promise<void>;
}

/** What identifies a line among those of a run. */
export const keyOf = (l: LogLine): string => `${l.rank}:${l.number ?? 0}`;

/** How many of the last lines come with each look at a log that grows. */
const tail = 200;

/** How long the server waits for more output before it answers, in seconds. */
const wait = 20;

/** How far apart looks at a log that grows are at least, and loads while somebody scrolls, in milliseconds. */
const lookEvery = 250;
const loadEvery = 60;

/** How many lines and characters are kept. Beyond that, those that are far from what is shown are forgotten. */
const keepLines = 20_000;
const keepCharacters = 16_000_000;

/** At most so many lines are asked for at a time. */
const most = 500;

/** How many lines are loaded before somebody who scrolls gets there. */
const ahead = 300;

const firstPause = 500;
const longestPause = 10_000;

/**
 * Lines keeps the part of a log that is looked at, and how long the log is. However fast a job prints, what is loaded
 * is what is shown, so that nobody falls behind and no line is skipped: whoever scrolls up gets the lines in between.
 */
export class Lines implements Source {
  private state: LogState = {
    loaded: false, before: 0, total: 0, size: 0, counted: 0, ended: false, away: "", problem: undefined, version: 0,
  };

  private readonly listeners = new Set<() => void>();
  private readonly known = new Map<number, LogLine>();
  private open: number[] = []; // lines that had no end yet
  private characters = 0;
  private first = 1;
  private last = 0;
  private direction = 0; // of the last scroll: -1 is up
  private timer: ReturnType<typeof setTimeout> | undefined;
  private loading: { control: AbortController; first: number; last: number } | undefined;
  private life = new AbortController();

  constructor(readonly of: LogOf) {}

  subscribe = (fn: () => void): (() => void) => {
    this.listeners.add(fn);

    return () => this.listeners.delete(fn);
  };

  getState = (): LogState => this.state;

  line(number: number): LogLine | undefined {
    return this.known.get(number);
  }

  /** The numbers of the lines that are known, and how long they are. */
  lengths(): [number, number][] {
    return [...this.known.values()].map((l) => [l.number ?? 0, l.text.length]);
  }

  /** Follows the log until the function that it returns is called. */
  start(): () => void {
    const life = new AbortController();
    this.life = life;
    void this.follow(life.signal);

    return () => {
      life.abort();
      this.loading?.control.abort();
      clearTimeout(this.timer);
      this.timer = undefined;
    };
  }

  /** Loads lines that are shown, or will be soon, if they are not known. */
  want(first: number, last: number): void {
    if (first !== this.first) this.direction = Math.sign(first - this.first);
    this.first = first;
    this.last = last;
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      void this.load();
    }, loadEvery);
  }

  /** Loads a line that was cut. */
  async loadWhole(number: number): Promise<void> {
    const page = await readLines(this.of, { from: number, limit: 1 }, this.life.signal);
    this.take(page, { ...this.state, version: this.state.version + 1 });
  }

  private set(state: LogState): void {
    this.state = state;
    this.listeners.forEach((fn) => { fn(); });
  }

  private async follow(signal: AbortSignal): Promise<void> {
    let pause = firstPause;

    while (!signal.aborted) {
      const caughtUp = this.state.loaded && this.state.counted === this.state.size;

      try {
        const page = await readLines(
          this.of, { from: -tail, limit: tail, cut, after: this.state.size, ...(caughtUp ? { wait } : {}) }, signal,
        );
        pause = firstPause;
        this.takeTail(page);
        if (page.ended && page.counted === page.size) return;
        if (page.counted === page.size) await this.rest(lookEvery, signal);
      } catch (problem) {
        if (!(problem instanceof Problem)) return; // it was ended
        if (problem.status === 401) return; // the page to sign in is shown

        const refused = problem.status !== 0 && problem.status !== 429 && problem.status < 500;
        this.set({ ...this.state, away: refused ? "" : problem.message, problem: refused ? problem : undefined });
        if (refused) return;

        await this.rest(pause, signal);
        pause = Math.min(2 * pause, longestPause);
      }
    }
  }

  /** Rests for a time, and while nobody looks. */
  private async rest(ms: number, signal: AbortSignal): Promise<void> {
    await new Promise((resolve) => { setTimeout(resolve, ms); });

    if (document.hidden && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const done = () => { resolve(); };
        document.addEventListener("visibilitychange", done, { once: true });
        signal.addEventListener("abort", done, { once: true });
      });
    }
  }

  private takeTail(page: Answer): void {
    const { total, size, counted, ended } = page;

    this.take(page, {
      loaded: true, before: 0, total, size, counted, ended, away: "", problem: undefined,
      version: this.state.version + 1,
    });
  }

  private take(page: Answer, state: LogState): void {
    for (const number of this.open) this.forget(number); // they may have gone on, or changed places
    this.open = [];

    for (const line of page.lines) {
      const number = line.number ?? 0;
      this.forget(number);
      this.known.set(number, line);
      this.characters += line.text.length;
      if (line.partial && number > page.total - 2) this.open.push(number);
    }

    if (this.known.size > keepLines || this.characters > keepCharacters) this.tidy();
    this.set(state);
  }

  private forget(number: number): void {
    this.characters -= this.known.get(number)?.text.length ?? 0;
    this.known.delete(number);
  }

  private tidy(): void {
    const margin = most;
    for (const number of [...this.known.keys()]) {
      if (number < this.first - margin || number > this.last + margin) this.forget(number);
    }
  }

  /** Loads what is wanted and missing, one request after the other. */
  private async load(): Promise<void> {
    const missing = this.missing();
    if (!missing || this.life.signal.aborted) return;

    if (this.loading) {
      const { first, last, control } = this.loading;
      if (first <= missing.last && last >= missing.first) return; // some of it comes; then it is looked again

      control.abort(); // somebody has scrolled on
    }

    const control = new AbortController();
    const mine = { control, ...missing };
    this.loading = mine;

    try {
      const limit = missing.last - missing.first + 1;
      const signal = AbortSignal.any([control.signal, this.life.signal]);
      const page = await readLines(this.of, { from: missing.first, limit, cut }, signal);
      this.take(page, { ...this.state, version: this.state.version + 1 });
      if (page.lines.length > 0) this.want(this.first, this.last); // what is missing still
    } catch (problem) {
      if (problem instanceof Problem) this.want(this.first, this.last); // as long as it is shown it is tried again
    } finally {
      if (this.loading === mine) this.loading = undefined;
    }
  }

  /** The lines that are not known of those that are shown, or will be soon; no more than are asked for at once. */
  private missing(): { first: number; last: number } | undefined {
    const up = this.direction < 0;
    let first = Math.max(1, this.first - (up ? ahead : 0));
    let last = Math.min(this.last + (this.direction > 0 ? ahead : 0), this.state.total);
    while (first <= last && this.known.has(first)) first++;
    while (first <= last && this.known.has(last)) last--;
    if (first > last) return undefined;

    return up ? { first: Math.max(first, last - most + 1), last } : { first, last: Math.min(last, first + most - 1) };
  }
}
