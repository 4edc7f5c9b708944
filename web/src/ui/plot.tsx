import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { useThemeName } from "./theme";
import styles from "./plot.module.css";

/** The lines and areas of a plot. Columns of data are in the order of the series, after that of x. */
export interface Series {
  name: string;
  tone?: number | string; // 1 to 6 for a series, or the name of a state such as "failed"
  dashed?: boolean; // what is expected, not measured
  bars?: boolean; // as bars instead of a line
  fill?: boolean; // down to zero
  gaps?: boolean; // a null breaks the line
  edge?: boolean; // of a band: only the band is drawn
  scale?: "y" | "right";
  format?: (value: number) => string;
  bytes?: boolean; // ticks are at multiples that are whole in KB, MB and GB
}

/** A vertical line with a name, such as now, a restart or a checkpoint. */
export interface Mark {
  x: number;
  name: string;
  tone?: string;
}

/** A stretch of x as a bar over the whole height, such as the time in which a job ran. */
export interface Block {
  from: number;
  to: number;
  name: string; // written in it where there is room
  tone: string;
  pale?: boolean;
}

interface Props {
  label: string; // what a screen reader says
  x: (number | null)[]; // ascending; seconds since 1970 where time is true
  data: (number | null | undefined)[][]; // one column for each series
  series: Series[];
  stacked?: boolean; // bars stand on each other, the first at the bottom; each begins at its x
  bands?: [number, number][]; // upper and lower series (counted from 0) with the room between them filled
  time?: boolean;
  log?: boolean;
  range?: [number, number] | undefined; // of x
  onRange?: (from: number, to: number) => void; // a range of x was chosen with the mouse
  yRange?: [number, number]; // at least this much of y is shown
  height?: number;
  bare?: boolean; // without the axis of x: plots below each other need one
  room?: boolean; // room for an axis on the right, where the plots around have one
  formatX?: (value: number) => string;
  marks?: Mark[];
  blocks?: Block[];
  sync?: string; // plots with the same name share their cursor
  onCursor?: (x: number | null) => void;
  legend?: boolean;
}

/** A shorter drag is a click with a shaking hand. */
const leastSelection = 5;

// The declarations of uPlot have these as const enums, which a bundler cannot read.
const logarithmic: unknown = 3;
const onTheRight: unknown = 1;

/** Room for the figures beside a plot: $1,000.00 and 999.9 GB. */
const sideRoom = 68;

/** How far ticks of bytes may be apart: 1 B, 2 B, 4 B … 512 TB. */
const powersOfTwo = Array.from({ length: 50 }, (_, i) => 2 ** i);

const colour = (tone: number | string): string =>
  getComputedStyle(document.documentElement)
    .getPropertyValue(typeof tone === "number" ? `--series-${((tone - 1) % 6) + 1}` : `--${tone}`)
    .trim();

/** Plot draws curves. It is drawn anew when what it shows has changed, and scales with its place. */
export function Plot(props: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const theme = useThemeName();
  const {
    x, data, marks, blocks, range, series, stacked, bands, time, log, yRange, height, bare, room, sync, legend,
  } = props;
  const ranged = range !== undefined;
  const shape = JSON.stringify(
    [series, stacked, bands, time, log, ranged, yRange, height, bare, room, sync, legend, theme],
  );
  const latest = useRef(props);

  useEffect(() => { latest.current = props; }, [props]);

  useEffect(() => {
    const at = place.current;
    if (!at) return;

    const { x, data, stacked } = latest.current;
    const made = new uPlot(optionsOf(latest, at.clientWidth), columnsOf(x, data, stacked), at);
    plot.current = made;
    const watch = new ResizeObserver(() => { made.setSize({ width: at.clientWidth, height: made.height }); });
    watch.observe(at);

    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  const [from, to] = range ?? [];

  useEffect(() => {
    plot.current?.setData(columnsOf(x, data, stacked));
  }, [x, data, stacked, marks, blocks, from, to]);

  return <div ref={place} className={styles.plot} role="img" aria-label={props.label} />;
}

function columnsOf(x: Props["x"], data: Props["data"], stacked: boolean | undefined): uPlot.AlignedData {
  return [x, ...(stacked ? stack(data) : data)] as uPlot.AlignedData;
}

/** stack adds each column to those before it. The highest comes first and is drawn first: the others cover the rest. */
function stack(columns: Props["data"]): (number | null)[][] {
  const below: number[] = [];

  return columns
    .map((column) => column.map((v, i) => (below[i] = (below[i] ?? 0) + (v ?? 0))))
    .map((column) => column.map((sum) => (sum === 0 ? null : sum)))
    .reverse();
}

/** lineSeries draws a line, or bars beside those of others. */
function lineSeries(latest: { current: Props }, s: Series, i: number): uPlot.Series {
  return {
    label: s.name,
    scale: s.scale ?? "y",
    stroke: colour(s.tone ?? i + 1),
    width: s.edge ? 0 : 1.5,
    // A line needs two points.
    points: { show: (_, column) => latest.current.data[column - 1]?.filter((v) => v != null).length === 1 },
    spanGaps: !s.gaps,
    ...(s.dashed ? { dash: [5, 4] } : {}),
    ...(s.fill || s.bars ? { fill: `${colour(s.tone ?? i + 1)}33` } : {}),
    ...(s.bars && uPlot.paths.bars ? { paths: uPlot.paths.bars({ size: [0.9, 60] }) } : {}),
    value: (_, v?: number | null) => (v == null ? "–" : (s.format?.(v) ?? String(Number(v.toPrecision(4))))),
  };
}

/** stackSeries draws a series of a stack: bars in its colour, apart from each other by a thin line. */
function stackSeries(latest: { current: Props }, s: Series, i: number): uPlot.Series {
  return {
    label: s.name,
    scale: "y",
    stroke: colour("page"),
    width: 1,
    fill: colour(s.tone ?? i + 1),
    points: { show: false },
    ...(uPlot.paths.bars ? { paths: uPlot.paths.bars({ size: [0.9, 80], align: 1 }) } : {}),
    value: (_, v: number | null, _series, at: number | null) => {
      const own = v === null || at === null ? null : (latest.current.data[i]?.[at] ?? 0);

      return own === null ? "–" : (s.format?.(own) ?? String(Number(own.toPrecision(4))));
    },
  };
}

function optionsOf(latest: { current: Props }, width: number): uPlot.Options {
  const p = latest.current;
  const faint = colour("faint");
  const rule = { stroke: colour("rule"), width: 1 };
  const axis = { stroke: faint, grid: rule, ticks: rule, font: "12px system-ui, sans-serif" };
  const right = p.room ?? p.series.some((s) => s.scale === "right");
  const side = onTheRight as uPlot.Axis.Side;
  const xOf = (v: number | null) => (v === null ? "–" : (latest.current.formatX?.(v) ?? ""));
  const formatOf = (scale: string) => p.series.find((s) => (s.scale ?? "y") === scale)?.format;
  const values = (scale: string): Partial<uPlot.Axis> => {
    const format = formatOf(scale);

    if (!format) return {};

    return {
      values: (_: uPlot, ticks: (number | null)[]) => ticks.map((v) => (v === null ? "" : format(v))),
      ...(p.series.some((s) => s.bytes && (s.scale ?? "y") === scale) ? { incrs: powersOfTwo } : {}),
    };
  };

  return {
    width,
    height: p.height ?? 220,
    legend: { show: p.legend ?? true },
    // Plots that share a cursor are below each other: what has the same time has the same place.
    ...(p.sync ? { padding: [8, right ? 0 : 16, p.bare ? 4 : 0, 0] } : {}),
    cursor: {
      y: false,
      ...(p.sync ? { sync: { key: p.sync, scales: ["x", null] } } : {}),
      ...(p.onRange ? { drag: { x: true, y: false, setScale: false } } : {}),
    },
    scales: {
      x: { time: p.time ?? false, ...(p.range ? { range: (_, min, max) => latest.current.range ?? [min, max] } : {}) },
      y: {
        ...(p.log ? { distr: logarithmic as uPlot.Scale.Distr } : {}),
        ...(p.yRange ? atLeast(p.yRange) : {}),
        ...(p.stacked ? { range: (_, __, max: number) => [0, max > 0 ? max * 1.08 : 1] } : {}),
      },
    },
    series: [
      { label: p.time ? "time" : "at", ...(p.formatX ? { value: (_, v) => xOf(v) } : {}) },
      ...(p.stacked
        ? p.series.map((s, i) => stackSeries(latest, s, i)).reverse()
        : p.series.map((s, i) => lineSeries(latest, s, i))),
    ],
    bands: (p.bands ?? []).map(([upper, lower]) => ({
      series: [upper + 1, lower + 1], fill: `${colour(p.series[upper]?.tone ?? upper + 1)}22`,
    })),
    axes: [
      { ...axis, show: !p.bare, space: 80, ...(p.formatX ? { values: (_, ticks) => ticks.map(xOf) } : {}) },
      { ...axis, scale: "y", size: sideRoom, ...values("y") },
      ...(right ? [rightAxis(p, { ...axis, side, size: sideRoom, grid: { show: false } }, values("right"))] : []),
    ],
    hooks: {
      drawClear: [(u) => { drawBlocks(u, latest.current.blocks ?? []); }],
      draw: [(u) => { drawMarks(u, latest.current.marks ?? []); }],
      setCursor: [(u) => {
        const left = u.cursor.left ?? -1;
        latest.current.onCursor?.(left < 0 ? null : u.posToVal(left, "x"));
      }],
      setSelect: [(u) => {
        const { left, width } = u.select;
        if (!latest.current.onRange || width < leastSelection) return;

        latest.current.onRange(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      }],
    },
  };
}

function atLeast([low, high]: [number, number]): uPlot.Scale {
  const least = (v: number | null, end: number, pick: (...v: number[]) => number) => (v === null ? end : pick(v, end));

  return { range: (_, min, max) => [least(min, low, Math.min), least(max, high, Math.max)] };
}

/** The axis on the right, or the room for one: an axis without curves of its own is not drawn. */
function rightAxis(p: Props, axis: uPlot.Axis, values: Partial<uPlot.Axis>): uPlot.Axis {
  if (p.series.some((s) => s.scale === "right")) return { ...axis, ...values, scale: "right" };

  return { ...axis, scale: "y", values: () => [], ticks: { show: false } };
}

/** drawBlocks draws stretches below the curves. */
function drawBlocks(u: uPlot, blocks: Block[]): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";

  for (const b of blocks) {
    const from = Math.max(u.valToPos(b.from, "x", true), bbox.left);
    const to = Math.min(u.valToPos(b.to, "x", true), bbox.left + bbox.width);
    if (to < from) continue;

    ctx.fillStyle = `${colour(b.tone)}${b.pale ? "26" : "59"}`;
    ctx.fillRect(from, bbox.top, Math.max(to - from, devicePixelRatio), bbox.height);

    const pad = 6 * devicePixelRatio;
    if (ctx.measureText(b.name).width + 2 * pad > to - from) continue;

    ctx.fillStyle = colour("text");
    ctx.fillText(b.name, from + pad, bbox.top + bbox.height / 2);
  }

  ctx.restore();
}

/** drawMarks draws vertical lines over the curves, with their names at the top where there is room for them. */
function drawMarks(u: uPlot, marks: Mark[]): void {
  const { ctx, bbox } = u;
  const pad = 4 * devicePixelRatio;
  const end = bbox.left + bbox.width;
  let free = bbox.left;
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";

  for (const m of marks.toSorted((a, b) => a.x - b.x)) {
    const x = Math.round(u.valToPos(m.x, "x", true));
    if (x < bbox.left || x > end) continue;

    ctx.strokeStyle = ctx.fillStyle = colour(m.tone ?? "faint");
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();

    const { width } = ctx.measureText(m.name);
    const from = x + pad + width > end ? x - pad - width : x + pad;
    if (from < free) continue;

    ctx.fillText(m.name, from, bbox.top + 11 * devicePixelRatio);
    free = Math.max(from + width, x) + pad;
  }

  ctx.restore();
}

/** One table of curves that have x of their own. Where one has no value it has none, which is not a gap. */
export function joined(tables: [number[], ...(number | null)[][]][]): {
  x: number[];
  data: (number | null | undefined)[][];
} {
  const [x, ...data] = uPlot.join(tables) as [number[], ...(number | null | undefined)[][]];

  return { x, data };
}
