import { useQueryClient } from "@tanstack/react-query";

import type { JobDetail } from "../../api/client";
import { job } from "../../api/queries";
import { Link } from "../../route/link";
import { Fact, Facts } from "../../ui/facts";
import { dollars, duration, percent, time } from "../../ui/format";
import { Cost, endOf, foreseen, hasEnded, Remaining } from "../../ui/job";
import { Progress } from "../../ui/progress";
import { Options } from "../../ui/question";
import { Status, toneOf } from "../../ui/status";
import { Actions, ApplyRemedy, PauseHolder } from "./actions";
import styles from "./job.module.css";
import { ShareFacts } from "./share";

/** Answers is the column beside the curve: state and reason, when it is done, what it costs, where, and what to do. */
export function Answers({ job: j, now }: { job: JobDetail; now: number }) {
  return (
    <section aria-label="State" className={styles.answers}>
      <p><Status status={j.status} /> <span className="faint">since {time(j.since, now)}</span></p>
      {j.reason !== "" && <p className={styles.words}>{j.reason}</p>}
      {j.remarks?.map((r) => <p key={r} className={styles.remark}>{r}</p>)}
      {j.why && <Why job={j} why={j.why} now={now} />}
      <Questions job={j} now={now} />
      <Actions job={j} />
      <Facts>
        {toneOf(j.status) === "running" && <Fact name="Progress"><Progress percent={j.percent} /></Fact>}
        <Fact name="Remaining"><Remaining job={j} now={now} /></Fact>
        {!hasEnded(j) && endOf(j, now) !== "" && <Fact name="Est. finish"><Finish job={j} now={now} /></Fact>}
        {!hasEnded(j) && j.forecast && <Fact name="Based on"><Basis forecast={j.forecast} /></Fact>}
        <Fact name="Cost">
          <Cost job={j} />{j.budget ? <span className="faint"> of a budget of {j.budget}</span> : null}
        </Fact>
        <Fact name="Where"><Where job={j} /></Fact>
        <Fact name="Resources">{j.resources}</Fact>
        <ShareFacts job={j} now={now} />
        <Fact name="Owner">
          <Link to="jobs" query={{ owner: j.owner }}>{j.owner}</Link>
          {j.project && <>, project <Link to="jobs" query={{ project: j.project }}>{j.project}</Link></>}
        </Fact>
        {j.deadline && <Fact name="Deadline">{time(j.deadline, now)}</Fact>}
        <Fact name="Submitted">{time(j.submitted, now)}</Fact>
        {j.ended && (
          <Fact name="Ended">
            {time(j.ended, now)}{j.exit_code === undefined ? "" : `, exit code ${j.exit_code}`}
          </Fact>
        )}
      </Facts>
    </section>
  );
}

/** Why it waits: who holds what, until when, and what would change it. */
function Why({ job: j, why, now }: { job: JobDetail; why: NonNullable<JobDetail["why"]>; now: number }) {
  return (
    <details className={styles.why} open>
      <summary>Why it waits</summary>
      {why.sentence !== j.reason && <p className={styles.words}>{why.sentence}</p>}
      {why.position !== undefined && <p>Position {why.position} in the queue</p>}
      {why.start && <p>Expected start {time(why.start, now)}</p>}
      {why.holders && why.holders.length > 0 && (
        <ul>
          {why.holders.map((h) => (
            <li key={`${h.job} ${h.node}`}>
              <Link to={`job/${h.job}`}>{h.job}</Link> ({h.owner}) holds {held(h)} on{" "}
              <Link to={`node/${h.node}`}>{h.node}</Link>{h.until ? ` until about ${time(h.until, now)}` : ""}
              {" "}<PauseHolder holder={h} />
            </li>
          ))}
        </ul>
      )}
      {why.remedies && why.remedies.length > 0 && (
        <>
          <p>What would change it:</p>
          <ul>{why.remedies.map((r) => <li key={r}>{r} <ApplyRemedy job={j} text={r} /></li>)}</ul>
          <p>
            <Link to="submit" query={{ from: j.id }}>Change its job file and submit it again</Link>
          </p>
        </>
      )}
    </details>
  );
}

function held(h: { gpus: number; cpus: string }): string {
  return h.gpus > 0 ? `${h.gpus} GPU${h.gpus === 1 ? "" : "s"}` : `${h.cpus} CPUs`;
}

/** Questions are what the yard asks about it, with priced options. */
function Questions({ job: j, now }: { job: JobDetail; now: number }) {
  const cache = useQueryClient();
  const remove = (id: string) => {
    cache.setQueryData(job(j.id).queryKey, (old) =>
      old && { ...old, questions: (old.questions ?? []).filter((q) => q.id !== id) });
  };

  return j.questions?.map((q) => (
    <div key={q.id} className={styles.question}>
      <p className={styles.remark}>{q.sentence}</p>
      <Options question={q} now={now} onAnswered={() => { remove(q.id); }} />
      {q.unless && <p className="faint">Without an answer: {q.unless}</p>}
    </div>
  ));
}

type Forecast = NonNullable<JobDetail["forecast"]>;

function Finish({ job: j, now }: { job: JobDetail; now: number }) {
  const f = foreseen(j);
  if (!f) return null;

  const late = j.deadline !== undefined && Date.parse(f.end) > Date.parse(j.deadline);

  return (
    <>
      {time(f.end, now)} <span className="faint">({time(f.end_low, now)}–{time(f.end_high, now)}, 80 %)</span>
      {late && <span className={styles.remark}> after its deadline</span>}
    </>
  );
}

/** What the forecast is based on, and how good such forecasts have been. */
function Basis({ forecast: f }: { forecast: Forecast }) {
  const checked = f.checked ?? 0;
  const methods = (f.methods ?? []).filter((m) => m.weight > 0);

  return (
    <>
      <span className={styles.words}>{f.why}</span>
      <p className="faint">
        {checked > 0
          ? `Of ${checked} intervals of past jobs, ${percent(f.covered ?? 0)} contained the actual finish; 80 % should.`
          : "No finished job yet tells how good such forecasts are."}
      </p>
      {methods.length > 0 && (
        <ul className={styles.methods}>
          {methods.map((m) => (
            <li key={m.method}>
              {m.method}: {m.remaining < 0 ? "no estimate" : duration(m.remaining)}, weight {percent(m.weight)}
              {m.error >= 0 ? `, median error ${percent(m.error)}` : ""}
            </li>
          ))}
        </ul>
      )}
      {f.elsewhere && f.elsewhere.length > 0 && (
        <ul className={styles.methods}>
          {f.elsewhere.map((e) => (
            <li key={`${e.gpus} ${e.gpu}`} title={e.why}>
              on {e.gpus}× {e.gpu} it would take {duration(e.remaining)}
              {e.cost > 0 ? ` and cost ${dollars(e.cost)}` : ""}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Where({ job: j }: { job: JobDetail }) {
  if (!j.nodes || j.nodes.length === 0) {
    return <span className="faint">{hasEnded(j) ? "it has ended" : "nowhere yet"}</span>;
  }

  return (
    <ul className={styles.names}>
      {j.nodes.map((n) => <li key={n}><Link to={`node/${n}`}>{n}</Link></li>)}
    </ul>
  );
}
