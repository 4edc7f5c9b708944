import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";

import type { Schemas } from "../../api/client";
import { queue, queuePart } from "../../api/queries/yard";
import { Link } from "../../route/link";
import { useQueryString } from "../../route/route";
import { useKeys } from "../../shell/keys";
import { useUser } from "../../shell/session";
import { count, integer, time } from "../../ui/format";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { QueueList } from "./list";
import { Panel } from "./panel";
import styles from "./queue.module.css";
import { axisOf, spanName, spans, timesOf } from "./times";

/** Queue answers why jobs wait, in which order they are considered, and when they are expected to start and to end. */
export function Queue() {
  const [q, set] = useQueryString();
  const now = useNow();
  const owner = q.get("owner") ?? "";
  const open = q.get("job") ?? "";
  const [parts, setParts] = useState([0]);
  const first = useQuery(queue(owner, 0));
  const loaded = useQueries({ queries: parts.map((p) => queue(owner, p * queuePart)) });
  const total = first.data?.queued ?? 0;

  // All rows share the axis of the first ones: it stays the same while one scrolls.
  const span = Number(q.get("span") ?? "0");
  const axis = useMemo(() => axisOf(first.data?.jobs ?? [], now, span), [first.data, now, span]);

  const rowAt = (index: number) => {
    const part = Math.floor(index / queuePart);
    const data = part === 0 ? first.data : loaded[parts.indexOf(part)]?.data;

    return data?.jobs[index - part * queuePart];
  };

  const view = (from: number, rows: number) => {
    const last = Math.floor((from + rows) / queuePart);
    const wanted: number[] = [];
    for (let p = Math.floor(from / queuePart); p <= last; p++) if (p * queuePart < Math.max(total, 1)) wanted.push(p);
    setParts((old) => (old.join() === wanted.join() ? old : wanted));
  };

  const close = () => { set((s) => { s.delete("job"); }); };
  useKeys(open === "" ? {} : { Escape: close });
  const row = [first, ...loaded].flatMap((p) => p.data?.jobs ?? []).find((j) => j.id === open);

  return (
    <>
      <h1 className={styles.headline}>{headline(first.data, owner, now)}</h1>
      <Choices />
      {first.error && <ProblemNotice problem={first.error} onRetry={() => void first.refetch()} />}
      {first.isPending && <p className="faint" aria-busy="true">Loading…</p>}
      {first.data && total === 0 && <Empty held={first.data.held} owner={owner} />}
      {first.data && (total > 0 || open !== "") && (
        <div className={styles.split} data-open={open !== ""}>
          <div className={styles.list}>
            {total > 0 && (
              <QueueList
                key={owner} // another list begins at its top
                total={total}
                rowAt={rowAt}
                axis={axis}
                now={now}
                open={open}
                onOpen={(job) => { set((s) => { s.set("job", job); }, "push"); }}
                onView={view}
              />
            )}
          </div>
          {open !== "" && <Panel key={open} id={open} row={row} now={now} onClose={close} />}
        </div>
      )}
      {first.data && total > 0 && <Legend held={first.data.held} owner={owner} />}
    </>
  );
}

/** The page in one sentence. */
function headline(page: Schemas["QueuePage"] | undefined, owner: string, now: number): string {
  if (!page) return " ";

  const whose = owner === "" ? "" : ` of ${owner}`;
  if (page.queued === 0) return `No job${whose} is queued`;

  const starts = page.jobs.map((j) => timesOf(j, now).start).filter((s) => s !== undefined);
  const next = starts.length === 0
    ? "no start is known"
    : `the next start is expected about ${time(Math.min(...starts), now)}`;
  const waits = page.jobs.map((j) => now - Date.parse(j.queued));
  const held = page.held === 0 ? "" : `; ${integer(page.held)} more wait outside the queue`;
  const since = waits.length === 0 ? "" : ` ${time(now - Math.max(...waits), now)}`;

  return `${count(page.queued, "job")}${whose} queued, the longest since${since}; ${next}${held}`;
}

function Choices() {
  const [q, set] = useQueryString();
  const { user } = useUser();
  const other = q.get("owner") ?? "";

  return (
    <div className={styles.choices} role="group" aria-label="What is shown">
      <label>
        <input
          type="checkbox"
          checked={other === user}
          onChange={(e) => { set((s) => { s.set("owner", e.target.checked ? user : ""); }); }}
        />
        Mine
      </label>
      {other !== "" && other !== user && (
        <button onClick={() => { set((s) => { s.delete("owner"); }); }} aria-label={`Remove filter owner ${other}`}>
          owner: <bdi>{other}</bdi> ✕
        </button>
      )}
      <label>
        Look ahead{" "}
        <select value={q.get("span") ?? ""} onChange={(e) => { set((s) => { s.set("span", e.target.value); }); }}>
          <option value="">as far as most jobs need</option>
          {spans.map((h) => <option key={h} value={h}>{spanName(h)}</option>)}
        </select>
      </label>
    </div>
  );
}

function Empty({ held, owner }: { held: number; owner: string }) {
  return (
    <Notice title={owner === "" ? "Nothing is queued" : `No job of ${owner} is queued`}>
      {held > 0
        ? <Outside held={held} owner={owner} />
        : <p>Jobs that are submitted while all GPUs are busy appear here, with when they are expected to start.</p>}
    </Notice>
  );
}

/** Jobs that wait without being in the queue. */
function Outside({ held, owner }: { held: number; owner: string }) {
  return (
    <p>
      <Link to="jobs" query={{ state: "pending", ...(owner === "" ? {} : { owner }) }}>
        {count(held, "job")} outside the queue
      </Link>{" "}
      {held === 1 ? "waits" : "wait"} for jobs they need, a retry, a quota, a secret, or for GPUs that are being freed.
    </p>
  );
}

function Legend({ held, owner }: { held: number; owner: string }) {
  return (
    <div className={styles.legend}>
      <p className="faint">
        <span className={styles.key} data-of="waited" /> has waited
        <span className={styles.key} data-of="interval" /> expected start, 80 % interval
        <span className={styles.key} data-of="run" /> expected run
        <span className={styles.key} data-of="late" /> up to the end of its interval
      </p>
      {held > 0 && <Outside held={held} owner={owner} />}
    </div>
  );
}
