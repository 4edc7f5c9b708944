// The one live connection of a browser tab. Events do not carry what pages show; they say what has changed. What is on
// the screen is then asked for again, each resource at most once in its interval however many events arrive.
import type { QueryClient } from "@tanstack/react-query";

import { addressOf, follow, Problem, request, type FeedEvent, type FeedItem } from "./client";

/** How far apart a resource is asked for, in milliseconds, and which kinds of events concern it. */
const resources: { key: string; every: number; kinds: RegExp }[] = [
  { key: "jobs", every: 1000, kinds: /^(job|run|share)\./ },
  { key: "job events", every: 2000, kinds: /./ },
  { key: "metrics", every: 5000, kinds: /^(run\.|job\.running)/ },
  { key: "checkpoints", every: 1000, kinds: /^(checkpoint|run|job\.checkpoint)/ },
  { key: "job counts", every: 3000, kinds: /^job\./ },
  { key: "inbox", every: 1000, kinds: /^(inbox|question|job)\./ },
  { key: "summary", every: 2000, kinds: /^(job|run|node|gpu|lease)\./ },
  { key: "queue", every: 2000, kinds: /^(job|run|node|lease)\./ },
  { key: "nodes", every: 3000, kinds: /^(run|node|gpu|share|lease)\.|^job\.(starting|running|pending|recovering)/ },
  { key: "events", every: 1000, kinds: /./ },
  { key: "datasets", every: 2000, kinds: /^data\./ },
  { key: "users", every: 2000, kinds: /^user\./ },
  { key: "tokens", every: 2000, kinds: /^(token|user)\./ },
  { key: "offers", every: 10_000, kinds: /^(lease|provider)\./ },
  { key: "reaper", every: 10_000, kinds: /^(lease|provider)\./ },
  { key: "usage", every: 60_000, kinds: /^(job|run|lease)\./ },
  { key: "quotas", every: 10_000, kinds: /^(job|run|lease|quota|project)\./ },
  { key: "forecast record", every: 60_000, kinds: /^job\./ },
];

/** How long events are collected, so that those that come together cost one question. */
const collectFor = 150;

/** A tab that nobody looks at gives its connection back after this time: browsers have six for a server. */
const hiddenFor = 20_000;

const firstPause = 500;
const longestPause = 15_000;

export type FeedState =
  | { kind: "connecting" }
  | { kind: "live" }
  | { kind: "resting" } // nobody looks
  | { kind: "away"; since: number; why: string }; // why is "" if the server does not respond

/** Feed keeps the cache up to date from start until the function that start returns is called. */
export class Feed {
  state: FeedState = { kind: "connecting" };

  private readonly listeners = new Set<() => void>();
  private readonly timers = new Map<string, ReturnType<typeof setTimeout>>();
  private readonly asked = new Map<string, number>();
  private connection = new AbortController();
  private rest: ReturnType<typeof setTimeout> | undefined;
  private wake: () => void = () => undefined;
  private cursor = "";
  private stopped = false;

  constructor(private readonly cache: QueryClient) {}

  subscribe = (fn: () => void): (() => void) => {
    this.listeners.add(fn);

    return () => this.listeners.delete(fn);
  };

  start(): () => void {
    const life = new AbortController();
    this.stopped = false;
    document.addEventListener("visibilitychange", this.look);
    void this.run(life.signal);

    return () => {
      life.abort();
      this.stopped = true;
      this.connection.abort();
      this.wake();
      document.removeEventListener("visibilitychange", this.look);
      clearTimeout(this.rest);
      this.timers.forEach((timer) => { clearTimeout(timer); });
      this.timers.clear();
    };
  }

  /** Connects at once, because somebody asked for it. */
  retryNow = (): void => { this.wake(); };

  private set(state: FeedState): void {
    this.state = state;
    this.listeners.forEach((fn) => { fn(); });
  }

  /** Stays connected, except while nobody looks. */
  private async run(life: AbortSignal): Promise<void> {
    let pause = firstPause;

    while (!life.aborted) {
      this.connection = new AbortController();

      try {
        await this.connect(AbortSignal.any([life, this.connection.signal]), () => { pause = firstPause; });
        this.away(""); // it has ended, or fell silent
      } catch (problem) {
        if (problem instanceof Problem) {
          if (problem.status === 401) return; // the page to sign in is shown

          this.away(problem.status === 0 ? "" : problem.message);
        }
      }

      if (this.state.kind === "resting") await this.sleep(undefined);
      else await this.sleep(pause * (0.75 + Math.random() / 2));

      pause = Math.min(pause * 2, longestPause);
    }
  }

  private away(why: string): void {
    if (this.state.kind === "resting") return;

    this.set({ kind: "away", since: this.state.kind === "away" ? this.state.since : Date.now(), why });
  }

  /** Sleeps for a time, or until it is woken. */
  private sleep(ms: number | undefined): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === undefined ? undefined : setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Follows the feed after the last event that was seen, so that none is missed. */
  private async connect(signal: AbortSignal, onOpen: () => void): Promise<void> {
    if (this.cursor === "") {
      const page = await request("get", "/api/v1/events", { query: { tail: 1, limit: 1 }, signal });
      this.cursor = page.next;
    }

    const url = addressOf("/api/v1/events/follow");
    url.searchParams.set("cursor", this.cursor);

    await follow(url, signal, {
      open: () => {
        onOpen();
        if (this.state.kind !== "connecting") this.changedAll(); // forecasts went on meanwhile
        this.set({ kind: "live" });
      },
      item: (item) => { this.take(item); },
    });
  }

  private look = (): void => {
    clearTimeout(this.rest);

    if (document.hidden) {
      this.rest = setTimeout(() => {
        this.set({ kind: "resting" });
        this.connection.abort();
      }, hiddenFor);
    } else if (this.state.kind === "resting") {
      this.wake();
    }
  };

  private take(item: FeedItem): void {
    if (item.cursor !== "") this.cursor = item.cursor;
    if (item.kind !== "") return; // why the feed ends; it is taken up again

    const event = JSON.parse(item.data) as FeedEvent;
    for (const r of resources) if (r.kinds.test(event.kind)) this.changed(r.key, r.every);
  }

  private changedAll(): void {
    for (const r of resources) this.changed(r.key, r.every);
  }

  /** Asks for a resource again: soon, but not before its interval has passed. */
  private changed(key: string, every: number): void {
    if (this.timers.has(key)) return;

    const due = (this.asked.get(key) ?? 0) + every - Date.now();
    const timer = setTimeout(() => {
      this.timers.delete(key);
      this.asked.set(key, Date.now());
      void this.ask(key, every);
    }, Math.max(due, collectFor));

    this.timers.set(key, timer);
  }

  /**
   * Asks for what is on the screen of a resource. An answer that is on its way already may be older than the change:
   * it is not given up, or a slow server would never be heard, but asked for once more when it has come.
   */
  private async ask(key: string, every: number): Promise<void> {
    const queryKey = [key];
    const underWay = this.cache.isFetching({ queryKey }) > 0;

    await this.cache.invalidateQueries({ queryKey }, { cancelRefetch: false });
    if (underWay && !this.stopped) this.changed(key, every);
  }
}
