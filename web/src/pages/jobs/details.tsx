import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

import { changeJob, type Verb } from "../../api/actions";
import type { JobDetail } from "../../api/client";
import { job } from "../../api/queries";
import { Link } from "../../route/link";
import { useMayChange } from "../../shell/session";
import { Fact, Facts } from "../../ui/facts";
import { dollars, time } from "../../ui/format";
import { Cost, endOf, hasEnded, nameOf, Remaining } from "../../ui/job";
import { ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Progress } from "../../ui/progress";
import { Skeleton } from "../../ui/skeleton";
import { Status, toneOf } from "../../ui/status";
import styles from "./details.module.css";

/** Details shows one job beside the list: its state with the reason, when it is done, what it costs, and its runs. */
export function Details({ id, onClose }: { id: string; onClose: () => void }) {
  const found = useQuery(job(id));
  const now = useNow();
  const title = useRef<HTMLHeadingElement>(null);

  useEffect(() => { title.current?.focus({ preventScroll: true }); }, []);

  return (
    <section className={styles.details} aria-labelledby="job-title">
      <div className={styles.top}>
        <h1 id="job-title" ref={title} tabIndex={-1}>{id}{found.data && <> <bdi>{nameOf(found.data)}</bdi></>}</h1>
        <div className={styles.links}>
          <Link to={`job/${id}`}>Whole page</Link>
          <button onClick={onClose} aria-label="Close">✕</button>
        </div>
      </div>
      {found.error && <ProblemNotice problem={found.error} onRetry={() => void found.refetch()} />}
      {found.isPending && <Skeleton rows={10} height={29} />}
      {found.data && <About job={found.data} now={now} />}
    </section>
  );
}

function About({ job: j, now }: { job: JobDetail; now: number }) {
  const runs = j.runs.toReversed();

  return (
    <>
      <p><Status status={j.status} /> <span className="faint">since {time(j.since, now)}</span></p>
      {j.reason !== "" && <p className={styles.reason} dir="auto">{j.reason}</p>}
      {j.remarks?.map((r) => <p key={r} className={styles.remark}>{r}</p>)}
      {j.why && <Why why={j.why} now={now} />}
      <p><Link to={`job/${j.id}`}>Curve, time line, output and files</Link></p>
      <Actions job={j} />
      <Facts>
        {!hasEnded(j) && (
          <Fact name="Progress">
            {toneOf(j.status) === "running" ? <Progress percent={j.percent} /> : "not running"}
          </Fact>
        )}
        <Fact name="Remaining"><Remaining job={j} now={now} /></Fact>
        {!hasEnded(j) && endOf(j, now) !== "" && <Fact name="Est. finish">{endOf(j, now)}</Fact>}
        {j.forecast && <Fact name="Based on">{j.forecast.why}</Fact>}
        <Fact name="Cost"><Cost job={j} /></Fact>
        <Fact name="Where">{j.nodes?.join(", ") ?? "nowhere"}</Fact>
        <Fact name="Resources">{j.resources}</Fact>
        <Fact name="Owner">{j.owner}{j.project ? `, project ${j.project}` : ""}</Fact>
        <Fact name="Priority">{j.priority}</Fact>
        <Fact name="Submitted">{time(j.submitted, now)}</Fact>
        {j.ended && (
          <Fact name="Ended">
            {time(j.ended, now)}{j.exit_code === undefined ? "" : `, exit code ${j.exit_code}`}
          </Fact>
        )}
      </Facts>
      {runs.length > 0 && (
        <>
          <h2>Runs</h2>
          <ul className={styles.runs}>
            {runs.map((r) => (
              <li key={r.id}>
                <span>{r.id} <span className="faint">{r.state}</span></span>
                <span className="figure faint">{time(r.ordered, now)}</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

/** Why it waits: who holds what, until when, and what would change it. */
function Why({ why, now }: { why: NonNullable<JobDetail["why"]>; now: number }) {
  return (
    <details className={styles.why} open>
      <summary>Why it waits</summary>
      <p>{why.sentence}</p>
      {why.start && <p>Expected start {time(why.start, now)}</p>}
      {why.remedies && why.remedies.length > 0 && <ul>{why.remedies.map((r) => <li key={r}>{r}</li>)}</ul>}
    </details>
  );
}

/** What can be done to it. The effect shows at once with the answer; a refusal says why. */
function Actions({ job: j }: { job: JobDetail }) {
  const cache = useQueryClient();
  const mayChange = useMayChange();
  const act = useMutation({
    mutationFn: (verb: Verb) => changeJob(verb, j.id),
    onSuccess: (changed) => {
      cache.setQueryData(job(j.id).queryKey, (old) => old && { ...old, ...changed });
    },
    onSettled: () => cache.invalidateQueries({ queryKey: ["jobs"] }),
  });

  if (hasEnded(j) || !mayChange) return null;

  const lost = j.no_checkpoint && toneOf(j.status) === "running";
  const cancel = () => {
    const warning = lost ? " It saves no checkpoints: its work is lost." : "";
    if (confirm(`Cancel ${j.id} ${nameOf(j)}?${warning}`)) act.mutate("cancel");
  };

  return (
    <div className={styles.actions}>
      {j.state === "paused"
        ? <button disabled={act.isPending} onClick={() => { act.mutate("resume"); }}>Resume</button>
        : <button disabled={act.isPending} onClick={() => { act.mutate("pause"); }}>Pause</button>}
      <button disabled={act.isPending} onClick={cancel}>Cancel job</button>
      {j.budget && <span className="faint">budget {j.budget}, {dollars(j.cost_usd ?? 0)} used</span>}
      {act.error && <p role="alert" className={styles.refused}>{act.error.message}</p>}
    </div>
  );
}
