import { useQueries } from "@tanstack/react-query";
import { useMemo, type ReactNode } from "react";

import type { JobDetail, Schemas } from "../../api/client";
import { job } from "../../api/queries";
import { curve, metrics } from "../../api/queries/job";
import { Link } from "../../route/link";
import { useQueryString } from "../../route/route";
import { count, dollars, duration, integer, time } from "../../ui/format";
import { Cost, hasEnded, nameOf, Remaining, whereOf } from "../../ui/job";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Plot } from "../../ui/plot";
import { Status } from "../../ui/status";
import { Table, type Column } from "../../ui/table";
import styles from "./compare.module.css";
import { align, commonMetrics, type Axis } from "./curves";
import { fieldsOf, rowOf, type Row } from "./facts";

/** More curves than these cannot be told apart on one plot: 6 colours, each as a line and dashed. */
const most = 12;
const colours = 6;

/** Compare shows jobs side by side: curves on one plot, facts and job files with what differs. */
export function Compare() {
  const [q, set] = useQueryString();
  const asked = [...new Set(q.getAll("job"))];
  const ids = asked.slice(0, most);
  const found = useQueries({ queries: ids.map((id) => job(id)) });
  const jobs = found.map((f) => f.data).filter((j) => j !== undefined);
  const refused = found.find((f) => f.error)?.error;
  const remove = (id: string) => {
    set((s) => {
      s.delete("job");
      asked.filter((a) => a !== id).forEach((a) => { s.append("job", a); });
    });
  };

  if (refused) {
    const which = ids[found.findIndex((f) => f.error)] ?? "";

    return (
      <>
        <ProblemNotice problem={refused} onRetry={() => { found.forEach((f) => void f.refetch()); }} />
        <button onClick={() => { remove(which); }}>Compare without {which}</button>
      </>
    );
  }

  if (jobs.length < ids.length) return <p className="faint" aria-busy="true">Loading…</p>;

  return (
    <>
      {jobs.length < 2 ? <Choose one={jobs[0]} /> : <Comparison jobs={jobs} />}
      {asked.length > most && <p className="faint">The first {most} of {count(asked.length, "job")} are compared.</p>}
      <Picked jobs={jobs} onRemove={remove} onAdd={(id) => { set((s) => { s.append("job", id); }); }} />
    </>
  );
}

function Choose({ one }: { one: JobDetail | undefined }) {
  return (
    <Notice title={one ? `Choose a job to compare with ${one.id} ${nameOf(one)}` : "Choose jobs to compare"}>
      <p>Add them below, or select them on the page <Link to="jobs">Jobs</Link>.</p>
    </Notice>
  );
}

interface PickedProps {
  jobs: JobDetail[];
  onRemove: (id: string) => void;
  onAdd: (id: string) => void;
}

/** Picked is what is compared: jobs are added and removed. */
function Picked({ jobs, onRemove, onAdd }: PickedProps) {
  return (
    <div className={styles.picked} role="group" aria-label="Jobs compared">
      {jobs.map((j) => (
        <button key={j.id} onClick={() => { onRemove(j.id); }}>
          <span className="hidden">Remove </span>{j.id} <bdi>{nameOf(j)}</bdi> <span aria-hidden="true">✕</span>
        </button>
      ))}
      <form
        onSubmit={(e) => {
          e.preventDefault();
          const field = new FormData(e.currentTarget).get("id");
          const id = typeof field === "string" ? field.trim() : "";
          if (id !== "") onAdd(id);
          e.currentTarget.reset();
        }}
      >
        <input name="id" aria-label="Add a job by its id or name" placeholder="Add a job, e.g. j12" maxLength={68} />
        <button disabled={jobs.length >= most}>Add</button>
      </form>
    </div>
  );
}

function Comparison({ jobs }: { jobs: JobDetail[] }) {
  const [q, set] = useQueryString();
  const now = useNow();
  const lists = useQueries({ queries: jobs.map((j) => metrics(j.id, !hasEnded(j))) });
  const measured = lists.map((l) => l.data?.metrics ?? []);
  const names = commonMetrics(measured);
  const metric = names.includes(q.get("metric") ?? "") ? (q.get("metric") ?? "") : (names[0] ?? "");
  const onlyDifferent = q.has("different");
  const fields = fieldsOf(jobs).filter((r) => r.differs || !onlyDifferent);
  const different = fields.filter((r) => r.differs).length;

  return (
    <>
      <h1>{headline(jobs, measured, metric)}</h1>
      {metric === "" ? (
        lists.every((l) => l.data) && (
          <Notice title="None of these jobs has reported a metric">
            <p>Curves appear here when they do.</p>
          </Notice>
        )
      ) : (
        <Curves
          jobs={jobs}
          metric={metric}
          names={names}
          has={measured.map((list) => list.some((m) => m.name === metric))}
        />
      )}
      <h2>Results</h2>
      <JobTable label="Results" jobs={jobs} rows={resultsOf(jobs, measured, names, now)} />
      <h2>Job files</h2>
      <p className={styles.fields}>
        <span>{different === 0 ? "No field differs" : `Fields that differ: ${integer(different)}`}</span>
        <label className={styles.check}>
          <input
            type="checkbox"
            checked={onlyDifferent}
            onChange={(e) => { set((s) => { s.set("different", e.target.checked ? "1" : ""); }); }}
          />
          Only what differs
        </label>
      </p>
      {fields.length > 0 && (
        <JobTable label="Job files" jobs={jobs} rows={fields.map((r) => ({ ...r, cells: r.values.map(valueCell) }))} />
      )}
    </>
  );
}

const valueCell = (text: string): ReactNode => (text === "" ? <span className="faint">none</span> : <bdi>{text}</bdi>);

/** The page in one sentence. */
function headline(jobs: JobDetail[], measured: Schemas["Metric"][][], metric: string): string {
  const values = measured.map((list) => list.find((m) => m.name === metric)?.value);
  const parts = [
    rangeOf(metric, jobs, values, (v) => String(Number(v.toPrecision(4)))),
    rangeOf("cost", jobs, jobs.map((j) => j.cost_usd), dollars),
  ].filter((p) => p !== "");

  return `${count(jobs.length, "job")} compared${parts.length > 0 ? `: ${parts.join(", ")}` : ""}`;
}

/** The least and the greatest of a figure, and whose they are. */
function rangeOf(
  what: string, jobs: JobDetail[], values: (number | undefined)[], format: (v: number) => string,
): string {
  const known = values.flatMap((v, i) => (v === undefined ? [] : [{ v, id: jobs[i]?.id ?? "" }]));
  const sorted = known.toSorted((a, b) => a.v - b.v);
  const [low, high] = [sorted[0], sorted.at(-1)];
  if (!low || !high || known.length < 2 || high.v === 0) return "";

  return low.v === high.v
    ? `${what} ${format(low.v)} each`
    : `${what} from ${format(low.v)} (${low.id}) to ${format(high.v)} (${high.id})`;
}

/** What the answers are: the same list as long as they are the same. */
function dataOf(answers: { data: Schemas["Curve"] | undefined }[]): (Schemas["Curve"] | undefined)[] {
  return answers.map((a) => a.data);
}

interface CurvesProps {
  jobs: JobDetail[];
  metric: string;
  names: string[];
  has: boolean[]; // whether a job has the metric
}

/** Curves draws one metric of all jobs. */
function Curves({ jobs, metric, names, has }: CurvesProps) {
  const [q, set] = useQueryString();
  const axis: Axis = q.get("by") === "time" ? "time" : "step";
  const log = q.has("log");
  const curves = useQueries({
    queries: jobs.map((j, i) => ({ ...curve(j.id, metric, !hasEnded(j)), enabled: has[i] ?? false })),
    combine: dataOf,
  });
  const drawn = useMemo(() => align(curves, axis), [curves, axis]);
  const choose = (what: string, value: string) => { set((s) => { s.set(what, value); }); };
  const without = jobs.filter((_, i) => !has[i]).map((j) => j.id);

  return (
    <>
      <div className={styles.controls} role="group" aria-label="Plot">
        <select aria-label="Metric" value={metric} onChange={(e) => { choose("metric", e.target.value); }}>
          {names.map((n) => <option key={n} value={n}>{n}</option>)}
        </select>
        <select aria-label="By" value={axis === "step" ? "" : axis} onChange={(e) => { choose("by", e.target.value); }}>
          <option value="">by step</option>
          <option value="time">by time since its start</option>
        </select>
        <label className={styles.check}>
          <input type="checkbox" checked={log} onChange={(e) => { choose("log", e.target.checked ? "1" : ""); }} />
          Log scale
        </label>
        {without.length > 0 && <span className="faint">{without.join(", ")} without {metric}</span>}
      </div>
      <Plot
        label={`${metric} of ${jobs.map((j) => j.id).join(", ")}`}
        x={drawn.x}
        data={drawn.data}
        series={jobs.map((j, i) => ({
          name: `${j.id} ${nameOf(j).slice(0, 40)}`, tone: (i % colours) + 1, dashed: i >= colours,
        }))}
        log={log}
        height={300}
        {...(axis === "time" ? { formatX: duration } : {})}
      />
    </>
  );
}

/** A row with what is shown for each job. */
interface Cells extends Row {
  cells: ReactNode[];
}

/** What became of the jobs: state, time, cost, place and the newest value of each metric. */
function resultsOf(jobs: JobDetail[], measured: Schemas["Metric"][][], names: string[], now: number): Cells[] {
  const text = (name: string, of: (j: JobDetail) => string): Cells => {
    const row = rowOf(name, jobs.map(of));

    return { ...row, cells: row.values.map(valueCell) };
  };
  const shown = (name: string, of: (j: JobDetail) => string, cell: (j: JobDetail) => ReactNode): Cells =>
    ({ ...rowOf(name, jobs.map(of)), cells: jobs.map(cell) });
  const value = (name: string): Cells => {
    const row = rowOf(name, measured.map((list) => {
      const m = list.find((x) => x.name === name);

      return m ? String(Number(m.value.toPrecision(6))) : "";
    }));

    return { ...row, cells: row.values.map(valueCell) };
  };

  return [
    shown("State", (j) => j.status, (j) => <Status status={j.status} />),
    text("Owner", (j) => j.owner + (j.project ? `, project ${j.project}` : "")),
    text("Submitted", (j) => time(j.submitted, now)),
    text("Ran", (j) => j.ran ?? ""),
    ...(jobs.some((j) => !hasEnded(j))
      ? [shown("Remaining", (j) => j.id, (j) => <Remaining job={j} now={now} />)]
      : []),
    shown("Cost", (j) => String(j.cost_usd ?? ""), (j) => <Cost job={j} />),
    text("Where", (j) => whereOf(j)),
    text("Runs", (j) => String(j.runs.length)),
    ...names.map(value),
  ];
}

/** JobTable has a row for each fact and a column for each job. */
function JobTable({ label, jobs, rows }: { label: string; jobs: JobDetail[]; rows: Cells[] }) {
  const columns: Column<Cells>[] = [
    {
      id: "name",
      name: "",
      lead: true,
      cell: (r) => (
        <span className={r.differs ? styles.differs : styles.same}>
          {r.differs && <span title="differs">≠<span className="hidden"> differs: </span></span>} {r.name}
        </span>
      ),
    },
    ...jobs.map((j, i): Column<Cells> => ({
      id: j.id,
      name: `${j.id} ${nameOf(j)}`,
      cell: (r) => <span className={styles.value} data-differs={r.differs}>{r.cells[i]}</span>,
    })),
  ];

  return <div className={styles.table}><Table label={label} columns={columns} rows={rows} id={(r) => r.name} /></div>;
}
