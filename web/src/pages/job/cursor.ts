import { useSyncExternalStore } from "react";

// The one cursor of the plots of the page. It moves with the mouse, so it is not in the state of the page.
let at: number | null = null;
const listeners = new Set<() => void>();

export function moveCursor(x: number | null): void {
  if (x === at) return;

  at = x;
  listeners.forEach((fn) => { fn(); });
}

function subscribe(fn: () => void): () => void {
  listeners.add(fn);

  return () => listeners.delete(fn);
}

/** useCursor returns the time that the cursor is at; null if it is outside of the plots. */
export function useCursor(): number | null {
  return useSyncExternalStore(subscribe, () => at);
}
