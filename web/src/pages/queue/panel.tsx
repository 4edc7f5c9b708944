import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import { setPriority } from "../../api/actions/yard";
import type { QueuedJob, Schemas } from "../../api/client";
import { job as jobQuery } from "../../api/queries";
import { priorityPreview } from "../../api/queries/yard";
import { Link } from "../../route/link";
import { useUser } from "../../shell/session";
import { Fact, Facts } from "../../ui/facts";
import { count, duration, integer, time } from "../../ui/format";
import { nameOf, Remaining } from "../../ui/job";
import { ProblemNotice } from "../../ui/notice";
import { Ahead } from "./ahead";
import { holdOf } from "./holders";
import styles from "./queue.module.css";

/** Panel unfolds why a job waits: who holds what, until when, and what would change it. */
export function Panel({ id, row, now, onClose }: {
  id: string;
  row: QueuedJob | undefined; // undefined if it is not among the rows that are loaded
  now: number;
  onClose: () => void;
}) {
  const title = useRef<HTMLHeadingElement>(null);
  const found = useQuery(jobQuery(id));
  const j = found.data;
  const why = j?.why ?? row?.why;

  useEffect(() => { title.current?.focus({ preventScroll: true }); }, []);

  return (
    <section className={styles.panel} aria-labelledby="queued-job">
      <div className={styles.top}>
        <h2 id="queued-job" ref={title} tabIndex={-1}>{id} {j && <bdi>{nameOf(j)}</bdi>}</h2>
        <button onClick={onClose} aria-label="Close">✕</button>
      </div>
      {found.error && <ProblemNotice problem={found.error} onRetry={() => void found.refetch()} />}
      {j && !why && <p>It does not wait any more: {j.status.toLowerCase()}.</p>}
      {why && <p className={styles.reason}>{why.sentence}</p>}
      {j && why && <Priority key={j.priority} job={j} now={now} />}
      {j && why && (
        <Facts>
          {why.position !== undefined && <Fact name="Position">{integer(why.position)}</Fact>}
          {row && (
            <Fact name="Queued">{time(row.queued, now)}, for {duration((now - Date.parse(row.queued)) / 1000)}</Fact>
          )}
          <Fact name="Earliest">
            {why.start ? `${time(why.start, now)}, if nothing is placed before it` : "unknown"}
            {why.not_before && `, not before ${time(why.not_before, now)}`}
          </Fact>
          <Fact name="Run time"><Remaining job={j} now={now} /></Fact>
          <Fact name="Asks for">{j.resources}</Fact>
        </Facts>
      )}
      {why?.holders && why.holders.length > 0 && (
        <>
          <h3>Who holds what</h3>
          <ul className={styles.holders}>
            {why.holders.map((h) => (
              <li key={`${h.job} ${h.node}`}>
                <Link to={`job/${h.job}`}>{h.job}</Link> of <bdi>{h.owner}</bdi>: {holdOf(h, now)}
              </li>
            ))}
          </ul>
        </>
      )}
      {why?.remedies && why.remedies.length > 0 && (
        <>
          <h3>What would change it</h3>
          <ul className={styles.holders}>{why.remedies.map((r) => <li key={r}>{r}</li>)}</ul>
        </>
      )}
      <p><Link to={`job/${id}`}>Open the job</Link></p>
    </section>
  );
}

/** How long somebody types before the effect is asked for. */
const typingFor = 300;

/** Priority changes the priority of a job, after it has shown what that does to it and to others. */
function Priority({ job: j, now }: { job: Schemas["Job"]; now: number }) {
  const { user, role, scope } = useUser();
  const cache = useQueryClient();
  const [text, setText] = useState(String(j.priority));
  const [wanted, setWanted] = useState(j.priority);
  const value = Number(text);
  const valid = /^\d{1,3}$/.test(text) && value <= 100;

  useEffect(() => {
    if (!valid) return;

    const timer = setTimeout(() => { setWanted(value); }, typingFor);

    return () => { clearTimeout(timer); };
  }, [value, valid]);

  const effect = useQuery({ ...priorityPreview(j.id, wanted), enabled: wanted !== j.priority });
  const apply = useMutation({
    mutationFn: () => setPriority(j.id, wanted),
    onSuccess: (changed) => {
      cache.setQueryData(jobQuery(j.id).queryKey, (old) => old && { ...old, priority: changed.priority });
    },
    onSettled: () => {
      void cache.invalidateQueries({ queryKey: ["queue"] });
      void cache.invalidateQueries({ queryKey: ["jobs"] });
    },
  });

  if (scope === "read" || (role !== "admin" && j.owner !== user)) {
    return <p className="faint">Priority {j.priority}. Its owner or an admin can change it.</p>;
  }

  const settled = valid && value === wanted && wanted !== j.priority;

  return (
    <form
      className={styles.priority}
      onSubmit={(e) => {
        e.preventDefault();
        if (settled && effect.data) apply.mutate();
      }}
    >
      <label>
        Priority{" "}
        <input
          type="number"
          min={0}
          max={100}
          value={text}
          aria-describedby="effect"
          onChange={(e) => { setText(e.target.value); }}
        />
      </label>
      <button className="primary" disabled={!settled || !effect.data || apply.isPending}>Apply</button>
      <div id="effect" role="status" className={styles.effect}>
        {!valid && "A whole number from 0 to 100; higher ones come first."}
        {valid && wanted === j.priority && (
          <span className="faint">Another value shows its effect before it is applied.</span>
        )}
        {settled && effect.isFetching && !effect.data && "Asking what that would change…"}
        {settled && effect.data && <Effect of={effect.data} now={now} />}
        {settled && effect.data && role === "admin" && <Ahead job={j.id} priority={wanted} now={now} />}
        {settled && effect.error && <span className={styles.refused}>{effect.error.message}</span>}
        {apply.error && <span className={styles.refused}>{apply.error.message}</span>}
      </div>
    </form>
  );
}

/** What a change does, to the job and to others. */
function Effect({ of, now }: { of: Schemas["EditPreview"]; now: number }) {
  const { before, after, passed, passing, preempted } = of;
  const place = (n: number | undefined) => (n === undefined ? "outside the queue" : `position ${integer(n)}`);

  return (
    <ul>
      <li>
        {before.position === after.position
          ? `Stays at ${place(before.position)}`
          : `From ${place(before.position)} to ${place(after.position)}`}
      </li>
      <li>
        {of.starts ? "Starts: " : "Still waits: "}{after.why?.sentence}
        {!of.starts && after.why?.start && `; earliest start ${time(after.why.start, now)}`}
      </li>
      {passed.count > 0 && <li>{count(passed.count, "job")} would come after it: {listOf(passed)}</li>}
      {passing.count > 0 && <li>{count(passing.count, "job")} would come before it: {listOf(passing)}</li>}
      {preempted.length > 0 && (
        <li className={styles.refused}>
          Preempts {listOf({ count: preempted.length, jobs: preempted })}: stopped with a checkpoint, and queued again
        </li>
      )}
    </ul>
  );
}

/** How many jobs are named. */
const named = 5;

function listOf(p: Schemas["PassedJobs"]): string {
  const first = p.jobs.slice(0, named).map((j) => `${j.job} (${j.owner})`);
  const more = p.count - first.length;

  return first.join(", ") + (more > 0 ? ` and ${integer(more)} more` : "");
}
