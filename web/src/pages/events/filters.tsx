import { useState } from "react";

import type { EventFilter } from "../../api/queries/admin";
import { useQueryString } from "../../route/route";
import styles from "./events.module.css";

const day = 24 * 3_600_000;

/** How far back events are shown. */
const periods: { value: string; name: string; ms: number }[] = [
  { value: "", name: "Any time", ms: Infinity },
  { value: "1h", name: "Last hour", ms: 3_600_000 },
  { value: "24h", name: "Last 24 hours", ms: day },
  { value: "7d", name: "Last 7 days", ms: 7 * day },
  { value: "30d", name: "Last 30 days", ms: 30 * day },
];

const kinds = [
  "job", "job.submitted", "job.failed", "run", "node", "gpu", "share", "lease", "data", "user", "token", "quota",
  "project", "provider", "access", "access.refused", "access.read", "access.tunnel",
];

/** filterOf reads the filter from the address. What is a job looks like one; else it is a node. */
export function filterOf(query: URLSearchParams): EventFilter {
  const what = query.get("what") ?? "";
  const isJob = /^j\d+$|@last$/.test(what);

  return {
    kind: query.get("kind") ?? "",
    actor: query.get("who") ?? "",
    job: isJob ? what : "",
    node: isJob ? "" : what,
    audit: query.has("audit"),
  };
}

export function sinceOf(query: URLSearchParams): number {
  return periods.find((p) => p.value === (query.get("since") ?? ""))?.ms ?? Infinity;
}

/** Filters are fields for what is in the address. */
export function Filters({ everything }: { everything: boolean }) {
  const [query, setQuery] = useQueryString();
  const set = (name: string, value: string) => {
    setQuery((q) => {
      q.set(name, value);
      q.delete("open");
    });
  };

  return (
    <div className={styles.filters} role="search" aria-label="Events">
      <Field key={`kind ${query.get("kind") ?? ""}`} name="kind" label="Kind" hint="node.lost" list="event-kinds" />
      <datalist id="event-kinds">{kinds.map((k) => <option key={k} value={k} />)}</datalist>
      <Field key={`who ${query.get("who") ?? ""}`} name="who" label="Who" hint="ada, node/lab-1" />
      <Field key={`what ${query.get("what") ?? ""}`} name="what" label="Job or node" hint="j12, lab-1" />
      <label>
        <span className="hidden">Since</span>
        <select value={query.get("since") ?? ""} onChange={(e) => { set("since", e.target.value); }}>
          {periods.map((p) => <option key={p.value} value={p.value}>{p.name}</option>)}
        </select>
      </label>
      <label className={styles.check}>
        <input
          type="checkbox"
          checked={query.has("audit")}
          onChange={(e) => { set("audit", e.target.checked ? "1" : ""); }}
        />
        {everything ? "Audit: only what callers did or tried" : "Only what you did or tried"}
      </label>
    </div>
  );
}

/** Field changes the address when its text is done: each letter would be a question. */
function Field({ name, label, hint, list }: { name: string; label: string; hint: string; list?: string }) {
  const [query, setQuery] = useQueryString();
  const [text, setText] = useState(query.get(name) ?? "");
  const apply = () => {
    if (text.trim() !== (query.get(name) ?? "")) {
      setQuery((q) => {
        q.set(name, text.trim());
        q.delete("open");
      });
    }
  };

  return (
    <label>
      <span className="hidden">{label}</span>
      <input
        type="search"
        value={text}
        list={list}
        placeholder={`${label}: ${hint}`}
        onChange={(e) => { setText(e.target.value); }}
        onBlur={apply}
        onKeyDown={(e) => { if (e.key === "Enter") apply(); }}
      />
    </label>
  );
}
