import { useSyncExternalStore } from "react";

export type Theme = "light" | "dark" | "system";

const key = "trainyard:theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

/** What was chosen. Where nothing can be stored, the system decides. */
function chosen(): Theme {
  try {
    const t = localStorage.getItem(key);

    return t === "light" || t === "dark" ? t : "system";
  } catch {
    return "system";
  }
}

/** Shows the chosen theme; called before anything is drawn. */
export function applyTheme(): void {
  const t = chosen();
  document.documentElement.dataset.theme = t === "system" ? (system.matches ? "dark" : "light") : t;
}

export function chooseTheme(t: Theme): void {
  try {
    if (t === "system") localStorage.removeItem(key);
    else localStorage.setItem(key, t);
  } catch {
    // It counts until the page is closed.
  }

  applyTheme();
  listeners.forEach((fn) => { fn(); });
}

function subscribe(fn: () => void): () => void {
  listeners.add(fn);

  return () => listeners.delete(fn);
}

/** useTheme returns what was chosen. */
export function useTheme(): Theme {
  return useSyncExternalStore(subscribe, chosen);
}

/** useThemeName returns what is shown, light or dark: what is drawn on a canvas is drawn anew when it changes. */
export function useThemeName(): string {
  return useSyncExternalStore(subscribe, () => document.documentElement.dataset.theme ?? "light");
}

system.addEventListener("change", () => {
  applyTheme();
  listeners.forEach((fn) => { fn(); });
});
