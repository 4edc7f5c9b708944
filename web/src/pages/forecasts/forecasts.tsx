import { useQuery } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { forecastRecord } from "../../api/queries/cost";
import { Link } from "../../route/link";
import { ago, count, integer, time } from "../../ui/format";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Table, type Column } from "../../ui/table";
import styles from "./forecasts.module.css";
import { Calibration, Trend } from "./plots";
import { percent } from "./words";

type Record_ = Schemas["ForecastRecord"];

/** ForecastQuality answers: can I rely on the times that are shown here? */
export function ForecastQuality() {
  const record = useQuery(forecastRecord);
  const now = useNow();
  const r = record.data;

  return (
    <>
      <h1 aria-busy={record.isPending}>{r ? headline(r) : record.error ? "Forecast quality" : "\u00a0"}</h1>
      {record.error && <ProblemNotice problem={record.error} onRetry={() => void record.refetch()} />}
      {r && r.scored === 0 && <NoHistory jobs={r.jobs} />}
      {r && r.scored > 0 && <Details record={r} now={now} />}
    </>
  );
}

/** The page in one sentence. */
function headline(r: Record_): string {
  if (r.scored === 0) return "No forecast has been checked yet.";

  const all = r.methods.find((m) => m.method === "blend")?.errors.find((e) => e.quarter === 0);
  const error = all ? `The median error of the remaining time is ${percent(all.median)}` : "";
  if (r.scored < r.wanted) {
    return `Forecasts of ${count(r.scored, "job")} were checked and ${r.wanted} are wanted: until then intervals are ` +
      `guesses. ${error}.`;
  }

  const covered = r.covered_of > 0
    ? `${percent(r.covered)} of ${count(r.covered_of, "outcome")} fell within the 80 % interval. `
    : "";

  return `${covered}${error}, on ${count(r.scored, "job")}.`;
}

function NoHistory({ jobs }: { jobs: number }) {
  return (
    <Notice title={jobs === 0 ? "No job has succeeded yet" : `${count(jobs, "job")} succeeded, none to compare with`}>
      <p>
        Every job that succeeds is replayed as if it were still running, and what would have been forecast is compared
        with what came. Past jobs of another system can be imported:
      </p>
      <pre>trainyard forecast import old-jobs.csv</pre>
    </Notice>
  );
}

const noTrend: Schemas["TrendAccuracy"][] = [];
const noLevels: Schemas["Reliability"][] = [];

function Details({ record: r, now }: { record: Record_; now: number }) {
  return (
    <>
      <p className="faint">
        Each of the newest {integer(r.scored)} jobs that succeeded is replayed at four points of its way, with what was
        known then. An error of 10 % means: of 60 minutes that were left, 6 were wrong.
      </p>
      <div className={styles.plots}>
        <Trend trend={r.trend ?? noTrend} />
        <Calibration levels={r.reliability ?? noLevels} wanted={r.wanted} />
      </div>
      <h2>By how far jobs were, and by method</h2>
      <Table label="Median error by progress" columns={methodColumns} rows={methodsOf(r)} id={(m) => m.method} />
      <h2>By what the forecast was based on</h2>
      <Table label="Accuracy by basis" columns={basisColumns} rows={r.bases ?? []} id={(b) => b.basis} />
      <h2>Largest errors of the newest jobs</h2>
      {(r.worst ?? []).length === 0
        ? <p className="faint">None of jobs that you may see. Imported jobs are not listed.</p>
        : <Table label="Largest errors" columns={worstColumns(now)} rows={r.worst ?? []} id={(w) => w.job} />}
      <h2>Duration model</h2>
      <Model record={r} now={now} />
    </>
  );
}

type Method = Schemas["MethodAccuracy"];

/** What methods are, in words. */
const methods: Record<string, string> = {
  blend: "all together (what is shown)", steps: "declared steps", match: "curves of similar jobs",
  nohistory: "own curve",
  duration: "duration model", reported: "the program's own estimate", repeat: "earlier runs of the same job",
};

/** methodsOf puts what is shown to people before its parts. */
function methodsOf(r: Record_): Method[] {
  return r.methods.toSorted((a, b) => Number(b.method === "blend") - Number(a.method === "blend"));
}

const quarters = ["All", "0–25 %", "25–50 %", "50–75 %", "75–100 %"];

const methodColumns: Column<Method>[] = [
  { id: "method", name: "Method", lead: true, cell: (m) => methods[m.method] ?? m.method },
  ...quarters.map((name, quarter): Column<Method> => ({
    id: name, name, figure: true, cell: (m) => <ErrorOf of={m.errors.find((e) => e.quarter === quarter)} />,
  })),
];

/** The error of a method, how many forecasts it is of, and how many had no end. */
function ErrorOf({ of: e }: { of: Schemas["Accuracy"] | undefined }) {
  if (!e || e.count === 0) return <span className="faint">–</span>;
  if (e.failed >= e.count) return <span className="faint">no estimate ({e.count})</span>;

  return (
    <>
      {percent(e.median)} <span className="faint">({e.count}{e.failed > 0 ? `, ${e.failed} without` : ""})</span>
    </>
  );
}

const bases: Record<string, string> = {
  steps: "declared steps", like: "similar jobs", alone: "its own curve alone", before: "no point reported yet",
};

const basisColumns: Column<Schemas["BasisAccuracy"]>[] = [
  { id: "basis", name: "Basis", lead: true, cell: (b) => bases[b.basis] ?? b.basis },
  { id: "n", name: "Forecasts", figure: true, cell: (b) => integer(b.count) },
  { id: "median", name: "Median error", figure: true, cell: (b) => percent(b.median) },
  { id: "p80", name: "Four of five within", figure: true, cell: (b) => percent(b.p80) },
  {
    id: "covered", name: "In the 80 % interval", figure: true,
    cell: (b) => (b.covered_of > 0
      ? <>{percent(b.covered)} <span className="faint">of {integer(b.covered_of)}</span></>
      : <span className="faint">guesses so far</span>),
  },
];

const worstColumns = (now: number): Column<Schemas["WorstForecast"]>[] => [
  {
    id: "job", name: "Job", lead: true,
    cell: (w) => <Link to={`job/${w.job}`}>{w.job} <bdi>{w.name ?? "unnamed"}</bdi></Link>,
  },
  { id: "owner", name: "Owner", cell: (w) => <bdi>{w.owner}</bdi> },
  { id: "what", name: "What was left took", figure: true, cell: (w) => ratio(w.ratio) },
  { id: "at", name: "When done", figure: true, cell: (w) => percent(w.progress) },
  { id: "basis", name: "Based on", cell: (w) => bases[w.basis] ?? w.basis },
  {
    id: "in", name: "80 % interval",
    cell: (w) => (w.covered === undefined ? <span className="faint">a guess</span> : w.covered ? "held" : "missed"),
  },
  { id: "end", name: "Finished", figure: true, cell: (w) => time(w.finished, now) },
];

/** ratio says how much longer or shorter something took than expected. */
function ratio(r: number): string {
  return `${r >= 10 ? Math.round(r) : r.toPrecision(2)}× the estimate`;
}

function Model({ record: r, now }: { record: Record_; now: number }) {
  const m = r.model;
  if (!m) return <p className="faint">None: {r.no_model ?? "it is being trained"}.</p>;

  return (
    <>
      <p>
        Version {m.version}, trained {ago(m.trained, now)} on {count(m.records, "job")}.{" "}
        <span className="faint">Errors are of jobs that it was not trained on.</span>
      </p>
      <Table label="Learners of the duration model" columns={learnerColumns} rows={m.validation}
        id={(l) => l.learner} />
    </>
  );
}

const learnerColumns: Column<Schemas["LearnerErrors"]>[] = [
  { id: "learner", name: "Learner", lead: true, cell: (l) => l.learner },
  { id: "median", name: "Median error", figure: true, cell: (l) => percent(l.median) },
  { id: "p80", name: "Four of five within", figure: true, cell: (l) => percent(l.p80) },
  { id: "within", name: "Within 25 %", figure: true, cell: (l) => percent(l.within25) },
  { id: "weight", name: "Weight", figure: true, cell: (l) => percent(l.weight) },
];
