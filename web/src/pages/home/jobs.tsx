import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import type { Job, Schemas } from "../../api/client";
import { curves, endedStates, jobs } from "../../api/queries";
import { Link } from "../../route/link";
import { Changed } from "../../ui/changed";
import { duration, figure, time } from "../../ui/format";
import { Cost, nameOf, Remaining, whereOf } from "../../ui/job";
import { Progress } from "../../ui/progress";
import { Spark } from "../../ui/spark";
import { Status, toneOf } from "../../ui/status";
import styles from "./home.module.css";

type Curve = Schemas["JobCurve"];

/** MyJobs is one line for each job: how far it is, how long it still takes, what it costs, and where it runs. */
export function MyJobs({ list, now }: { list: Job[]; now: number }) {
  const running = list.filter((j) => j.started !== undefined).map((j) => j.id).sort().join(" ");
  const ids = useMemo(() => (running === "" ? [] : running.split(" ")), [running]);
  const known = useQuery(curves(ids));
  const byJob = useMemo(() => new Map(known.data?.curves.map((c) => [c.job, c])), [known.data]);

  return (
    <table className={styles.jobs}>
      <thead>
        <tr>
          <th scope="col">Job</th>
          <th scope="col" className="figure">Progress</th>
          <th scope="col" className="figure">Remaining</th>
          <th scope="col" className="figure">Cost</th>
          <th scope="col">Where, or why it waits</th>
        </tr>
      </thead>
      <tbody>
        {list.map((j) => {
          const brief = toneOf(j.status) === "running" || j.status === "PENDING";

          return (
            <tr key={j.id}>
              <td className={styles.name}>
                <Changed of={j.seq} />
                <Status status={j.status} brief={brief} />{" "}
                <Link to={`job/${j.id}`} title={nameOf(j)}>{j.id} <bdi>{nameOf(j)}</bdi></Link>
              </td>
              <td className="figure" data-label="Progress">
                <ProgressOf job={j} curve={byJob.get(j.id)} />
              </td>
              <td className="figure" data-label="Remaining"><Remaining job={j} now={now} /></td>
              <td className="figure" data-label="Cost"><Cost job={j} /></td>
              <td className={styles.where} dir="auto">
                {whereOf(j)}
                {j.remarks?.map((r) => <span key={r} className={styles.remark}>{r}</span>)}
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

/** The course of the metric of a job in a few pixels, and how far it is, if only by its newest value. */
function ProgressOf({ job: j, curve }: { job: Job; curve: Curve | undefined }) {
  const last = curve?.values.at(-1);
  const goal = curve?.goal === undefined ? "" : `, target ${figure(curve.goal)}`;
  const newest = curve && last !== undefined ? `${curve.metric} ${figure(last)}${goal}` : "";
  const runs = toneOf(j.status) === "running";

  return (
    <span className={styles.progress}>
      {curve && <Spark values={curve.values} label={newest} />}
      {runs && (j.percent !== undefined || newest === "") && <Progress percent={j.percent} />}
      {runs && j.percent === undefined && newest !== "" && <span className="faint cut">{newest}</span>}
      {!runs && <span className="faint">{waitOf(j)}</span>}
    </span>
  );
}

/** How long a job still waits, as far as that is known. */
function waitOf(j: Job): string {
  const wait = j.forecast?.wait.mid ?? 0;
  if (toneOf(j.status) !== "queued") return j.status.toLowerCase();

  return wait > 0 ? `starts in about ${duration(wait)}` : "waits";
}

const latest = 5;

/** What became of one's jobs while nobody looked. */
export function EndedLately({ user, now }: { user: string; now: number }) {
  const ended = useQuery(jobs({ owner: user, state: endedStates, sort: "-ended" }, "", latest));
  if (!ended.data || ended.data.jobs.length === 0) return null;

  return (
    <section aria-labelledby="ended">
      <h2 id="ended">Ended lately</h2>
      <table className={styles.jobs}>
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col" className="figure">Ended</th>
            <th scope="col" className="figure">Took</th>
            <th scope="col" className="figure">Cost</th>
            <th scope="col">How</th>
          </tr>
        </thead>
        <tbody>
          {ended.data.jobs.map((j) => (
            <tr key={j.id}>
              <td className={styles.name}>
                <Changed of={j.seq} />
                <Status status={j.status} brief />{" "}
                <Link to={`job/${j.id}`} title={nameOf(j)}>{j.id} <bdi>{nameOf(j)}</bdi></Link>
              </td>
              <td className="figure" data-label="Ended">{time(j.ended ?? j.since, now)}</td>
              <td className="figure"><Remaining job={j} now={now} /></td>
              <td className="figure" data-label="Cost"><Cost job={j} /></td>
              <td className={styles.where} dir="auto">{j.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {ended.data.next && (
        <p><Link to="jobs" query={{ owner: user, sort: "-ended" }}>All of my jobs</Link></p>
      )}
    </section>
  );
}
