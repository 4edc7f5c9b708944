import { useQueryClient } from "@tanstack/react-query";
import { Suspense, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";

import { Feed } from "../api/feed";
import { Link } from "../route/link";
import { go, hrefOf, usePath } from "../route/route";
import { Notice } from "../ui/notice";
import { duration } from "../ui/format";
import { useNow } from "../ui/now";
import { Skeleton } from "../ui/skeleton";
import { Boundary } from "./boundary";
import { Keys } from "./help";
import { useKeys } from "./keys";
import { pageOf, pages, type Page } from "./pages";
import { signOut, useUser } from "./session";
import styles from "./shell.module.css";
import { chooseTheme, useTheme, type Theme } from "../ui/theme";

/** Shell is what surrounds every page: navigation, search, the user, and a note while the server is away. */
export function Shell() {
  const cache = useQueryClient();
  const [feed] = useState(() => new Feed(cache));
  const path = usePath();
  const who = useUser();
  const search = useRef<HTMLInputElement>(null);
  const [help, setHelp] = useState(false);
  const found = pageOf(path);
  const page = found?.page;

  useEffect(() => feed.start(), [feed]);
  useEffect(() => { document.title = page ? `${page.name} · Trainyard` : "Trainyard"; }, [page]);

  const keys = useMemo(() => {
    const known: Record<string, () => void> = {
      "/": () => { search.current?.focus(); },
      "?": () => { setHelp(true); },
    };
    for (const p of pages) if (p.key) known[`g ${p.key}`] = () => { go(hrefOf(p.path)); };

    return known;
  }, []);
  useKeys(keys);

  return (
    <>
      <button className={styles.skip} onClick={() => document.getElementById("main")?.focus()}>
        Skip to the content
      </button>
      <header className={styles.bar}>
        <Link to="" className={styles.brand}>Trainyard</Link>
        <nav aria-label="Pages" className={styles.nav}>
          <div className={styles.pages}>
            {pages.filter((p) => p.place === "bar").map((p) => <PageLink key={p.path} page={p} current={page} />)}
          </div>
          <More current={page} />
        </nav>
        <form
          className={styles.search}
          role="search"
          onSubmit={(e) => {
            e.preventDefault();
            const name = search.current?.value.trim() ?? "";
            go(/^j\d+$/.test(name) ? hrefOf(`job/${name}`) : hrefOf("jobs", name === "" ? {} : { name }));
            search.current?.blur();
          }}
        >
          <input ref={search} type="search" aria-label="Search jobs by name or id" placeholder="/  search jobs" />
        </form>
        <UserMenu onHelp={() => { setHelp(true); }} />
      </header>
      {who.demo && (
        <p className={styles.demo}>
          <strong>Demo.</strong> The people, nodes, prices and jobs of this yard are simulated.
        </p>
      )}
      <FeedNote feed={feed} />
      <main id="main" tabIndex={-1} className={styles.main}>
        <Boundary of={path}>
          <Suspense fallback={<Skeleton rows={8} />}>
            {found ? <found.page.view key={found.page.path} rest={found.rest} /> : (
              <Notice title={`Page ${path} not found`}><Link to="">Go to Home</Link></Notice>
            )}
          </Suspense>
        </Boundary>
      </main>
      {help && <Keys onClose={() => { setHelp(false); }} />}
    </>
  );
}

function PageLink({ page, current }: { page: Page; current: Page | undefined }) {
  return <Link to={page.path} aria-current={page === current ? "page" : undefined}>{page.name}</Link>;
}

/** More is the menu of the pages that are not in the bar. */
function More({ current }: { current: Page | undefined }) {
  const menu = useMenu();
  const here = pages.filter((p) => p.place === "more");
  if (here.length === 0) return null;

  return (
    <details ref={menu} className={styles.more}>
      <summary>{current?.place === "more" ? current.name : "More"}</summary>
      <div className={styles.menu}>{here.map((p) => <PageLink key={p.path} page={p} current={current} />)}</div>
    </details>
  );
}

/** useMenu closes a menu on Escape, and when something else or one of its links is clicked. */
function useMenu() {
  const menu = useRef<HTMLDetailsElement>(null);

  useEffect(() => {
    const close = (e: Event) => {
      if (e instanceof KeyboardEvent && e.key !== "Escape") return;

      const at = e.target as Element;
      if (e instanceof MouseEvent && menu.current?.contains(at) && !at.closest("a")) return;

      menu.current?.removeAttribute("open");
    };
    addEventListener("keydown", close);
    addEventListener("click", close);

    return () => {
      removeEventListener("keydown", close);
      removeEventListener("click", close);
    };
  }, []);

  return menu;
}

/** FeedNote says that what is shown may be old, and since when. */
function FeedNote({ feed }: { feed: Feed }) {
  const state = useSyncExternalStore(feed.subscribe, () => feed.state);
  const now = useNow();
  if (state.kind !== "away") return null;

  const since = Math.max(0, (now - state.since) / 1000);

  return (
    <div className={styles.note} role="status">
      <span>
        {state.why === "" ? "Server not responding" : `No live updates: ${state.why}`}
        {since >= 10 ? ` for ${duration(since)}` : ""}. The figures below may be old; connecting again…
      </span>
      <button onClick={feed.retryNow}>Try now</button>
    </div>
  );
}

const themes: { value: Theme; name: string }[] = [
  { value: "system", name: "System" },
  { value: "light", name: "Light" },
  { value: "dark", name: "Dark" },
];

function UserMenu({ onHelp }: { onHelp: () => void }) {
  const who = useUser();
  const theme = useTheme();
  const menu = useMenu();

  return (
    <details ref={menu} className={styles.user}>
      <summary className="cut">{who.user}</summary>
      <div className={styles.menu}>
        <p className="faint">{who.role}, token scope {who.scope}</p>
        <label>
          Theme
          <select value={theme} onChange={(e) => { chooseTheme(e.target.value as Theme); }}>
            {themes.map((t) => <option key={t.value} value={t.value}>{t.name}</option>)}
          </select>
        </label>
        <button onClick={onHelp}>Keyboard shortcuts</button>
        <button onClick={() => void signOut(false)}>Sign out</button>
        <button onClick={() => void signOut(true)}>Sign out everywhere</button>
      </div>
    </details>
  );
}
