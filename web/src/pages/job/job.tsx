import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, type ReactNode } from "react";

import type { JobDetail, Problem } from "../../api/client";
import { job } from "../../api/queries";
import { checkpoints, jobCost, jobEvents } from "../../api/queries/job";
import { Link } from "../../route/link";
import { dollars, time } from "../../ui/format";
import { endOf, hasEnded, nameOf } from "../../ui/job";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Log } from "../../ui/log/log";
import { Tabs } from "../../ui/tabs";
import { Answers } from "./answers";
import { costOf, stretchesOf } from "./course";
import { CurveChoice, CurvePlot, NoCurve, sidesOf, useCurves } from "./curves";
import { Checkpoints, JobFile, Outputs } from "./files";
import styles from "./job.module.css";
import { Lanes } from "./lanes";
import { useRange } from "./range";
import { Runs, Use } from "./runs";
import { Timeline } from "./timeline";

/** JobPage is one job: when it is done, what it costs, where it runs and why, what happened, and what to do. */
export function JobPage({ rest: id }: { rest: string }) {
  const found = useQuery({ ...job(id), enabled: id !== "" });
  const now = useNow();
  const j = found.data;
  const title = j ? `${j.id} ${nameOf(j)} · Trainyard` : "";

  useEffect(() => { if (title !== "") document.title = title; }, [title]);

  if (id === "") return <Notice title="No job was named"><Link to="jobs">Go to Jobs</Link></Notice>;
  if (j) return <Life key={j.id} job={j} now={now} />;
  if (!found.error) return <p className="faint" aria-busy="true">Loading job {id}…</p>;

  return (
    <>
      <h1>Job <bdi>{id}</bdi></h1>
      <ProblemNotice problem={found.error} onRetry={() => void found.refetch()} />
      <Link to="jobs">Go to Jobs</Link>
    </>
  );
}

function Life({ job: j, now }: { job: JobDetail; now: number }) {
  const seconds = now / 1000;
  const events = useQuery(jobEvents(j.id));
  const cost = useQuery(jobCost(j.id));
  const saved = useQuery(checkpoints(j.id));
  const curves = useCurves(j);
  const { range, choice, choose, select } = useRange(j, seconds);
  const happened = useMemo(() => events.data?.events ?? [], [events.data]);
  const stretches = useMemo(() => stretchesOf(j, happened, seconds), [j, happened, seconds]);
  const spent = useMemo(() => costOf(cost.data, j.runs, seconds), [cost.data, j.runs, seconds]);
  const list = saved.data?.checkpoints ?? [];

  return (
    <>
      <h1 className={styles.headline}>{j.id} <bdi>{nameOf(j)}</bdi>: {sentenceOf(j, now)}</h1>
      <div className={styles.split}>
        <Answers job={j} now={now} />
        <section aria-label="Curve" className={styles.curve}>
          <div className={styles.bar}>
            <CurveChoice of={curves} />
            <RangeChoice job={j} choice={choice} choose={choose} />
          </div>
          {curves.curves.length > 0
            ? <CurvePlot job={j} of={curves} range={range} now={seconds} onRange={select} />
            : <NoCurve job={j} of={curves} />}
          <Lanes
            job={j}
            stretches={stretches}
            saved={list}
            cost={cost.data}
            range={range}
            room={sidesOf(curves.curves).includes(true)}
            now={seconds}
            onRange={select}
          />
        </section>
      </div>
      <Tabs
        name="show"
        tabs={[
          { id: "time", title: "Time line", view: () => (
            <Part problem={events.error}><Timeline events={happened} cost={spent} now={now} /></Part>
          ) },
          { id: "runs", title: `Runs · ${j.runs.length}`, view: () => (
            j.runs.length > 0
              ? <Runs job={j} cost={cost.data} now={now} />
              : <p className="faint">It has not run yet.</p>
          ) },
          { id: "use", title: "Use", view: () => (
            j.utilization ? <Use use={j.utilization} /> : <p className="faint">Nothing was measured yet.</p>
          ) },
          { id: "checkpoints", title: `Checkpoints · ${list.length}`, view: () => (
            <Part problem={saved.error}><Checkpoints job={j} list={list} now={now} /></Part>
          ) },
          { id: "files", title: "Files", view: () => <Outputs job={j} /> },
          { id: "output", title: "Output", view: () => <Log job={j.id} /> },
          { id: "file", title: "Job file", view: () => <JobFile job={j} /> },
        ]}
      />
    </>
  );
}

/** A part of the page, or why it cannot be shown. */
function Part({ problem, children }: { problem: Problem | null; children: ReactNode }) {
  return problem ? <ProblemNotice problem={problem} /> : children;
}

function RangeChoice({ job: j, choice, choose }: {
  job: JobDetail;
  choice: string;
  choose: (name: string) => void;
}) {
  return (
    <label className={styles.range}>
      <span className="faint">Shown</span>
      <select value={choice} onChange={(e) => { choose(e.target.value); }}>
        <option value="life">whole life</option>
        {j.runs.some((r) => r.started) && <option value="run">newest run</option>}
        {choice === "own" && <option value="own">what was selected</option>}
      </select>
    </label>
  );
}

/** The job in a sentence: its state, when it is done, and what it costs. */
function sentenceOf(j: JobDetail, now: number): string {
  const word = j.status.toLowerCase().replaceAll("_", " ");
  const cost = j.cost_usd ?? 0;
  const end = j.forecast?.cost.mid ?? 0;
  const parts: string[] = [];

  if (hasEnded(j)) {
    parts.push(j.ran ? `${word} after ${j.ran}` : `${word} without a run`);
    if (cost > 0) parts.push(`it cost ${dollars(cost)}`);

    return parts.join("; ");
  }

  parts.push(j.state === "pending" ? "queued" : word);
  if (j.why?.start) parts.push(`expected start ${time(j.why.start, now)}`);

  const at = endOf(j, now);
  parts.push(at === "" ? "its end is not known yet" : `done about ${at}`);

  if (cost > 0 || end > 0) parts.push(`${dollars(cost)} so far${end > cost ? `, ${dollars(end)} at the end` : ""}`);

  return parts.join(", ");
}
