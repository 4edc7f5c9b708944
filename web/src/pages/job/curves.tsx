import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import type { JobDetail, Schemas } from "../../api/client";
import { curve, metrics } from "../../api/queries/job";
import { useQueryString } from "../../route/route";
import { hasEnded } from "../../ui/job";
import { Notice, ProblemNotice } from "../../ui/notice";
import { joined, Plot, type Mark, type Series } from "../../ui/plot";
import { dropsOf, fitOf, isLearningRate, pointsOf, restartsOf, type Table } from "./course";
import styles from "./job.module.css";
import { clockOf, type Range } from "./range";

/** Metrics of a job: which there are, which are shown, and the learning rate, of which drops are marked. */
export function useCurves(j: JobDetail) {
  const live = !hasEnded(j);
  const [query, set] = useQueryString();
  const listed = useQuery(metrics(j.id, live));
  const known = useMemo(() => listed.data?.metrics ?? [], [listed.data]);
  const chosen = query.getAll("metric").filter((name) => known.some((m) => m.name === name));
  const shown = chosen.length > 0 ? chosen : firstOf(known, j);
  const rate = known.find((m) => isLearningRate(m.name))?.name;
  const asked = useQueries({ queries: shown.map((name) => curve(j.id, name, live)) });
  const rates = useQuery({ ...curve(j.id, rate ?? "", live), enabled: rate !== undefined });

  const choose = (name: string, on: boolean) => {
    const names = on ? [...shown, name] : shown.filter((n) => n !== name);
    set((q) => {
      q.delete("metric");
      names.forEach((n) => { q.append("metric", n); });
    });
  };

  return {
    listed,
    known,
    shown,
    choose,
    curves: asked.flatMap((a) => (a.data ? [a.data] : [])),
    problem: asked.find((a) => a.error)?.error,
    drops: rates.data ? dropsOf(rates.data.points) : [],
    log: query.get("log") === "1",
    setLog: (on: boolean) => { set((q) => { q.set("log", on ? "1" : ""); }); },
  };
}

/** The metric that matters most: that of the forecast or of the target, else a loss, else the first. */
function firstOf(known: Schemas["Metric"][], j: JobDetail): string[] {
  const best = known.find((m) => m.name === j.forecast?.metric) ?? known.find((m) => m.goal !== undefined)
    ?? known.find((m) => /loss/i.test(m.name)) ?? known[0];

  return best ? [best.name] : [];
}

type Curves = ReturnType<typeof useCurves>;

/** Whether curves need a second axis: one of them lies far from the first. */
export function sidesOf(curves: Schemas["Curve"][]): boolean[] {
  const middle = (c: Schemas["Curve"] | undefined) => {
    const values = (c?.points ?? []).flatMap((p) => (p.v === null ? [] : [Math.abs(p.v)])).sort((a, b) => a - b);

    return values[Math.floor(values.length / 2)] ?? 0;
  };
  const first = middle(curves[0]);

  return curves.map((c) => {
    const ratio = middle(c) / first;

    return Number.isFinite(ratio) && (ratio > 20 || ratio < 1 / 20);
  });
}

interface Props {
  job: JobDetail;
  of: Curves;
  range: Range;
  now: number;
  onRange: (from: number, to: number) => void;
}

/** CurvePlot shows metrics with fit, interval and target, and marks restarts and drops of the learning rate. */
export function CurvePlot({ job: j, of, range, now, onRange }: Props) {
  const { curves, log, drops } = of;
  const table = useMemo(() => tableOf(curves, j, log, range), [curves, j, log, range]);
  const marks = useMemo(() => {
    const list: Mark[] = [...restartsOf(j.runs), ...drops];

    return hasEnded(j) ? list : [...list, { x: now, name: "now" }];
  }, [j, drops, now]);

  if (of.problem) return <ProblemNotice problem={of.problem} />;

  return (
    <Plot
      label={labelOf(curves, j, marks, range)}
      {...table}
      time
      log={log}
      range={range}
      onRange={onRange}
      formatX={clockOf(range)}
      marks={marks}
      height={280}
      sync="job"
    />
  );
}

/** All curves in one table, each with its series. */
function tableOf(curves: Schemas["Curve"][], j: JobDetail, log: boolean, [from, to]: Range) {
  const sides = sidesOf(curves);
  const tables: Table[] = [];
  const series: Series[] = [];
  const bands: [number, number][] = [];

  curves.forEach((c, i) => {
    const tone = i + 1;
    const scale = sides[i] ? "right" : "y";
    tables.push(pointsOf(c, log));
    series.push({ name: c.name, tone, scale });

    const fit = fitOf(c, j, log);
    if (fit) {
      tables.push(fit);
      bands.push([series.length + 1, series.length + 2]);
      series.push(
        { name: "fit", tone, dashed: true, scale },
        { name: "80 % high", tone, edge: true, scale },
        { name: "80 % low", tone, edge: true, scale },
      );
    }

    if (c.goal !== undefined) {
      tables.push([[from, to], [c.goal, c.goal]]);
      series.push({ name: "target", tone: "done", dashed: true, scale });
    }
  });

  return { ...joined(tables), series, bands };
}

/** The plot in a sentence, for who does not see it. */
function labelOf(curves: Schemas["Curve"][], j: JobDetail, marks: Mark[], range: Range): string {
  const parts = curves.map((c) => {
    const first = c.points.find((p) => p.v !== null)?.v;
    const target = c.goal === undefined ? "" : `, target ${c.goal}`;

    return `${c.name} from ${first ?? "unknown"} to ${Number(c.value.toPrecision(4))} at step ${c.step}${target}`;
  });

  const clock = clockOf(range);
  const marked = marks.filter((m) => m.name !== "now").map((m) => `${m.name} at ${clock(m.x)}`);

  return [`Curve of ${j.id}`, ...parts, ...marked].join("; ");
}

/** Which metrics are shown, and how. */
export function CurveChoice({ of }: { of: Curves }) {
  return (
    <div className={styles.choices} role="group" aria-label="Metrics">
      {of.known.map((m) => (
        <label key={m.name} title={`from ${m.source}`}>
          <input
            type="checkbox"
            checked={of.shown.includes(m.name)}
            disabled={of.shown.length === 1 && of.shown[0] === m.name}
            onChange={(e) => { of.choose(m.name, e.target.checked); }}
          />
          <bdi>{m.name}</bdi> <span className="figure faint">{Number(m.value.toPrecision(4))}</span>
        </label>
      ))}
      {of.known.length > 0 && (
        <label>
          <input type="checkbox" checked={of.log} onChange={(e) => { of.setLog(e.target.checked); }} />
          Log scale
        </label>
      )}
    </div>
  );
}

/** Says why there is no curve. */
export function NoCurve({ job: j, of }: { job: JobDetail; of: Curves }) {
  if (of.listed.error) {
    return <ProblemNotice problem={of.listed.error} onRetry={() => void of.listed.refetch()} />;
  }

  if (of.listed.isPending) return <p className="faint" aria-busy="true">Loading the metrics…</p>;

  return (
    <Notice title={hasEnded(j) ? "It reported no metrics" : "It has reported no metrics yet"}>
      <p className="faint">
        Metrics are read from its output, from TensorBoard files, or reported by{" "}
        <code>trainyard.log(step, loss=…)</code>.
      </p>
    </Notice>
  );
}
