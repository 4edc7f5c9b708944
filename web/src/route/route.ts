// The address of the page is the state of the page: which page it is, and all that was chosen on it.
import { useCallback, useSyncExternalStore } from "react";

const changed = new Event("trainyard:route");

function subscribe(fn: () => void): () => void {
  addEventListener("popstate", fn);
  addEventListener(changed.type, fn);

  return () => {
    removeEventListener("popstate", fn);
    removeEventListener(changed.type, fn);
  };
}

/** The path below the place where the portal is served, without slashes around it. */
function currentPath(): string {
  const base = new URL(document.baseURI).pathname;

  return decodeURI(location.pathname).slice(base.length).replace(/\/+$/, "");
}

/** usePath returns the path of the page: "" for Home, else such as "jobs". */
export function usePath(): string {
  return useSyncExternalStore(subscribe, currentPath);
}

/** hrefOf is the address of a page, with what was chosen on it. */
export function hrefOf(path: string, query: Record<string, string> = {}): string {
  const url = new URL(path || "./", document.baseURI);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);

  return url.href;
}

/** Goes to a page. Another page begins at its top; what was chosen on the same page leaves it where it is. */
export function go(href: string, how: "push" | "replace" = "push"): void {
  if (href === location.href) return;

  const another = new URL(href).pathname !== location.pathname;
  if (how === "push") history.pushState(null, "", href);
  else history.replaceState(null, "", href);

  dispatchEvent(changed);
  if (another) scrollTo(0, 0);
}

/** useQueryString returns what was chosen on the page, and changes it. A choice that is undone leaves the address. */
export function useQueryString(): [URLSearchParams, (change: (q: URLSearchParams) => void, how?: "push") => void] {
  const text = useSyncExternalStore(subscribe, () => location.search);
  const set = useCallback((change: (q: URLSearchParams) => void, how?: "push") => {
    const url = new URL(location.href);
    change(url.searchParams);
    for (const [name, value] of [...url.searchParams]) if (value === "") url.searchParams.delete(name);
    go(url.href, how ?? "replace");
  }, []);

  return [new URLSearchParams(text), set];
}
