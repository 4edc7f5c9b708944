import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";

import { jobCounts } from "../../api/queries";
import { Link } from "../../route/link";
import { useQueryString } from "../../route/route";
import { useKeys } from "../../shell/keys";
import { useMayChange, useUser } from "../../shell/session";
import { count, integer } from "../../ui/format";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Skeleton } from "../../ui/skeleton";
import { Bulk } from "./bulk";
import { colsOf, columns, columnsOf, orderOf, shownColumns, sortAfter } from "./columns";
import { Details } from "./details";
import { clearFilters, filterOf, isFiltered, isView, periodChoices, stateChoices, views } from "./filter";
import styles from "./jobs.module.css";
import { useJobRows } from "./rows";
import { JobTable } from "./table";

/** Jobs lists all jobs that one may see. What is chosen is in the address. */
export function Jobs() {
  const [q, set] = useQueryString();
  const now = useNow();
  const address = q.toString();
  const chosen = useMemo(() => new URLSearchParams(address), [address]);
  const hour = Math.floor(now / 3_600_000);
  const filter = useMemo(() => filterOf(chosen, hour * 3_600_000), [chosen, hour]);
  const [first, setFirst] = useState(0);
  const rows = useJobRows(filter, first);
  const mayChange = useMayChange();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const select = (job: string) => {
    setSelected((old) => {
      const next = new Set(old);
      if (!next.delete(job)) next.add(job);

      return next;
    });
  };
  const counts = useQuery(jobCounts(filter));
  const total = counts.data?.counts?.reduce((sum, c) => sum + c.jobs, 0);
  const open = q.get("job") ?? "";
  const close = () => {
    set((s) => { s.delete("job"); });
    requestAnimationFrame(() => document.getElementById(`row-${open}`)?.focus({ preventScroll: true }));
  };
  useKeys(open === "" ? {} : { Escape: close });

  return (
    <>
      <h1 className={styles.headline}>{headline(total, counts.data?.counts ?? [])}</h1>
      <Views />
      <Filters />
      <Bulk selected={selected} onClear={() => { setSelected(new Set()); }} />
      <div className={styles.split} data-open={open !== ""}>
        <div className={styles.list}>
          {rows.problem && <ProblemNotice problem={rows.problem} onRetry={rows.retry} />}
          {rows.loading && <Skeleton rows={12} />}
          {!rows.problem && rows.complete && rows.list.length === 0 && (
            <NoJobs filtered={isFiltered(q)} onClear={() => { set(clearFilters); }} />
          )}
          {rows.list.length > 0 && (
            <JobTable
              key={JSON.stringify(filter)} // another list begins at its top
              list={rows.list}
              columns={shownColumns(q)}
              order={orderOf(q)}
              onSort={(column) => { set((s) => { s.set("sort", sortAfter(orderOf(s), column)); }); }}
              now={now}
              total={total}
              open={open}
              mayChange={mayChange}
              selected={selected}
              onSelect={select}
              onSelectAll={(all) => { setSelected(new Set(all ? rows.list.map((j) => j.id) : [])); }}
              onOpen={(job) => { set((s) => { s.set("job", job); }, "push"); }}
              onFirst={setFirst}
              onEnd={rows.loadMore}
            />
          )}
        </div>
        {open !== "" && <Details key={open} id={open} onClose={close} />}
      </div>
    </>
  );
}

/** The page in one sentence. */
function headline(total: number | undefined, counts: { status: string; jobs: number }[]): string {
  if (total === undefined) return " ";
  if (total === 0) return "No jobs";

  const words = counts.map((c) => `${integer(c.jobs)} ${c.status.toLowerCase().replaceAll("_", " ")}`);

  return `${count(total, "job")}: ${words.join(", ")}`;
}

function NoJobs({ filtered, onClear }: { filtered: boolean; onClear: () => void }) {
  if (filtered) {
    return <Notice title="No job matches"><button onClick={onClear}>Clear all filters</button></Notice>;
  }

  return (
    <Notice title="No job has been submitted yet">
      <p><Link to="submit">Submit the first</Link> here or from a terminal; it appears at once.</p>
      <pre>trainyard run -- python train.py{"\n"}trainyard submit job.yaml</pre>
    </Notice>
  );
}

/** Views are addresses that many want. */
function Views() {
  const [q] = useQueryString();
  const { user } = useUser();

  return (
    <nav className={styles.views} aria-label="Views">
      {views.map((v) => {
        const query = v.query(user);
        const current = isView(q, query) ? "true" : undefined;

        return <Link key={v.name} to="jobs" query={query} aria-current={current}>{v.name}</Link>;
      })}
    </nav>
  );
}

/** How long the list waits for the next key while somebody types. The first key after a pause changes it at once. */
const typingFor = 80;
const pause = 400;

function Filters() {
  const [q, set] = useQueryString();
  const { user } = useUser();
  const inAddress = q.get("name") ?? "";
  const [name, setName] = useState(inAddress);
  const [known, setKnown] = useState(inAddress);
  const typed = useRef(0); // when a key was pressed

  // The address was changed elsewhere: by the search above, or by going back.
  if (known !== inAddress) {
    setKnown(inAddress);
    setName(inAddress);
  }

  useEffect(() => {
    if (name === inAddress) return;

    const types = Date.now() - typed.current < pause;
    typed.current = Date.now();
    const timer = setTimeout(() => { set((s) => { s.set("name", name); }); }, types ? typingFor : 0);

    return () => { clearTimeout(timer); };
  }, [name, inAddress, set]);

  const shown = columnsOf(q).map((c) => c.id);
  const others = ["owner", "project", "node", "array"].filter((k) => q.has(k) && !(k === "owner" && q.get(k) === user));
  const choose = (what: string, value: string) => { set((s) => { s.set(what, value); }); };

  return (
    <div className={styles.filters} role="group" aria-label="Filters">
      <input
        type="search"
        aria-label="Name contains"
        placeholder="Name contains"
        value={name}
        onChange={(e) => { setName(e.target.value); }}
      />
      <select aria-label="State" value={q.get("state") ?? ""} onChange={(e) => { choose("state", e.target.value); }}>
        {stateChoices.map((c) => <option key={c.value} value={c.value}>{c.name}</option>)}
      </select>
      <select aria-label="Submitted" value={q.get("days") ?? ""} onChange={(e) => { choose("days", e.target.value); }}>
        {periodChoices.map((c) => <option key={c.value} value={c.value}>{c.name}</option>)}
      </select>
      <label className={styles.check}>
        <input
          type="checkbox"
          checked={q.get("owner") === user}
          onChange={(e) => { choose("owner", e.target.checked ? user : ""); }}
        />
        Mine
      </label>
      {others.map((k) => (
        <button key={k} onClick={() => { choose(k, ""); }} aria-label={`Remove filter ${k} ${q.get(k) ?? ""}`}>
          {k}: {q.get(k)} ✕
        </button>
      ))}
      <details className={styles.columns}>
        <summary>Columns</summary>
        <div>
          {columns.filter((c) => c.id !== "id").map((c) => (
            <label key={c.id} className={styles.check}>
              <input
                type="checkbox"
                checked={shown.includes(c.id)}
                onChange={(e) => {
                  const ids = e.target.checked ? [...shown, c.id] : shown.filter((x) => x !== c.id);
                  choose("cols", colsOf(ids));
                }}
              />
              {c.name}
            </label>
          ))}
        </div>
      </details>
    </div>
  );
}
