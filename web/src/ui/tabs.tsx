import type { ReactNode } from "react";

import { Link } from "../route/link";
import { usePath, useQueryString } from "../route/route";
import styles from "./tabs.module.css";

/** Tabs are parts of a page, chosen in the address: links, so that they can be sent and opened beside each other. */
export function Tabs({ name, tabs }: { name: string; tabs: { id: string; title: string; view: () => ReactNode }[] }) {
  const path = usePath();
  const [query] = useQueryString();
  const current = tabs.find((t) => t.id === query.get(name)) ?? tabs[0];

  const linkOf = (id: string) => {
    const all = Object.fromEntries(query);

    return { ...all, [name]: id };
  };

  return (
    <>
      <nav className={styles.tabs} aria-label="Parts of the page">
        {tabs.map((t) => (
          <Link key={t.id} to={path} query={linkOf(t.id)} aria-current={t === current ? "true" : undefined}>
            {t.title}
          </Link>
        ))}
      </nav>
      {current?.view()}
    </>
  );
}
