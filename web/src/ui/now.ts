import { useSyncExternalStore } from "react";

// One clock for the whole page, so that all times change together and at most every ten seconds.
const every = 10_000;
let now = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(fn: () => void): () => void {
  listeners.add(fn);
  timer ??= setInterval(() => {
    now = Date.now();
    listeners.forEach((l) => { l(); });
  }, every);

  return () => {
    listeners.delete(fn);
    if (listeners.size > 0) return;

    clearInterval(timer);
    timer = undefined;
  };
}

/** useNow returns the time, and changes every ten seconds. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}
