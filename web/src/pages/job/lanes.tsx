import { useMemo, type ReactNode } from "react";

import type { JobDetail, Schemas } from "../../api/client";
import { dollars, percent, size } from "../../ui/format";
import { foreseen, hasEnded } from "../../ui/job";
import { joined, Plot, type Mark, type Series } from "../../ui/plot";
import { blocksOf, costOf, seconds, usageOf, valueAt, type Stretch, type Table } from "./course";
import { moveCursor, useCursor } from "./cursor";
import styles from "./job.module.css";
import { clockOf, type Range } from "./range";

interface Props {
  job: JobDetail;
  stretches: Stretch[];
  saved: Schemas["Checkpoint"][];
  cost: Schemas["UsageReport"] | undefined;
  range: Range;
  room: boolean; // the curve above has an axis on its right
  now: number;
  onRange: (from: number, to: number) => void;
}

/** Lanes show one fact each over the time of the curve above. One cursor goes through all of them. */
export function Lanes({ job: j, stretches, saved, cost, range, room, now, onRange }: Props) {
  const use = j.utilization;
  const shared = { range, room, onRange };
  const spent = useMemo(() => costOf(cost, j.runs, now), [cost, j.runs, now]);
  const tables = useMemo(() => ({
    busy: usageOf(use, (p) => p.gpu_busy),
    gpuMemory: usageOf(use, (p) => p.gpu_memory),
    cpus: usageOf(use, (p) => p.cpus),
    memory: usageOf(use, (p) => p.memory),
  }), [use]);

  return (
    <div className={styles.lanes}>
      <StateLane {...shared} job={j} stretches={stretches} saved={saved} />
      <Lane {...shared} name="GPU use" table={tables.busy} format={percent} top={1} />
      <Lane {...shared} name="GPU memory" table={tables.gpuMemory} format={size} bytes top={1} />
      <Lane {...shared} name="CPUs" table={tables.cpus} format={(v) => v.toFixed(1)} top={1} />
      <Lane {...shared} name="Memory" table={tables.memory} format={size} bytes top={1} />
      <CostLane {...shared} job={j} table={spent} now={now} />
      {!use && j.runs.length > 0 && <p className="faint">What it uses of its nodes is not measured yet.</p>}
      {use?.unmeasured && (
        <p className={styles.unmeasured}>
          Not measured: {use.unmeasured.map((m) => `${m.resource} (${m.why})`).join("; ")}
        </p>
      )}
    </div>
  );
}

type Shared = Pick<Props, "range" | "room" | "onRange">;

const stateHeight = 34;
const laneHeight = 64;
const foot = 30; // of the axis of time

/** One lane: its name, its value at the cursor, its course. */
function Frame({ name, value, children }: { name: string; value: ReactNode; children: ReactNode }) {
  return (
    <div className={styles.lane}>
      <div className={styles.laneHead}><span>{name}</span><span className="figure">{value}</span></div>
      {children}
    </div>
  );
}

// The lane of states has blocks; its one series holds the axis, and is not seen.
const stateSeries: Series[] = [{ name: "state", tone: "page", format: () => "" }];
const stateData = [[0, 0]];

type StateProps = Shared & Pick<Props, "job" | "stretches" | "saved">;

function StateLane({ job: j, stretches, saved, range, ...shared }: StateProps) {
  const blocks = useMemo(() => blocksOf(stretches), [stretches]);
  const marks = useMemo(() => saved.map((c): Mark => ({ x: seconds(c.written), name: "", tone: "done" })), [saved]);
  const [from, to] = range;
  const x = useMemo(() => [from, to], [from, to]);
  const clock = clockOf(range);
  const label = stretches.map((s) => `${s.kind} from ${clock(s.from)}`).join(", ");

  return (
    <Frame name="State" value={<StateValue job={j} stretches={stretches} saved={saved} range={range} />}>
      <Plot
        {...shared}
        label={`State of ${j.id}: ${label}`}
        x={x}
        data={stateData}
        series={stateSeries}
        yRange={[0, 1]}
        blocks={blocks}
        marks={marks}
        time
        bare
        range={range}
        height={stateHeight}
        legend={false}
        sync="job"
        onCursor={moveCursor} // it is always there, and follows the others
      />
    </Frame>
  );
}

/** The state at the cursor; without a cursor how many checkpoints the green lines stand for. */
function StateValue({ job: j, stretches, saved, range }: Pick<Props, "job" | "stretches" | "saved" | "range">) {
  const at = useCursor();
  if (at === null) {
    return <span className="faint">{saved.length > 0 ? `green lines: ${saved.length} checkpoints` : ""}</span>;
  }

  const s = stretches.find((x) => x.from <= at && at < x.to);
  const word = s ? s.kind + (s.run ? ` (run ${s.run.id})` : "") : hasEnded(j) ? "ended" : "not yet";

  return <>{clockOf(range)(at)} · {word}</>;
}

interface LaneProps extends Shared {
  name: string;
  table: Table | undefined;
  format: (v: number) => string;
  bytes?: boolean;
  top: number; // at least so much is shown
}

function Lane({ name, table, format, bytes = false, top, ...shared }: LaneProps) {
  const series = useMemo(
    (): Series[] => [{ name, tone: 1, fill: true, gaps: true, format, bytes }], [name, format, bytes],
  );
  const parts = useMemo(() => (table ? joined([table]) : undefined), [table]);
  if (!table || !parts) return null;

  const newest = table[1]?.findLast((v) => v !== null) ?? 0;

  return (
    <Frame name={name} value={<LaneValue table={table} format={format} />}>
      <Plot
        {...shared}
        {...parts}
        label={`${name}, newest ${format(newest)}`}
        series={series}
        yRange={[0, top]}
        time
        bare
        height={laneHeight}
        legend={false}
        sync="job"
      />
    </Frame>
  );
}

function LaneValue({ table, format }: { table: Table; format: (v: number) => string }) {
  const at = useCursor();
  const v = at === null ? table[1]?.findLast((x) => x !== null) : valueAt(table, at);

  return v === undefined ? <span className="faint">–</span> : <>{format(v)}</>;
}

const costSeries: Series[] = [
  { name: "cost", tone: 1, fill: true, format: dollars },
  { name: "expected", tone: 1, dashed: true, format: dollars },
  { name: "80 % high", tone: 1, edge: true, format: dollars },
  { name: "80 % low", tone: 1, edge: true, format: dollars },
];

/** CostLane is the last: it has the axis of time. Without costs it has nothing but that. */
function CostLane({ job: j, table, now, range, ...shared }: Shared & {
  job: JobDetail;
  table: Table | undefined;
  now: number;
}) {
  const parts = useMemo(() => {
    const sum = table?.[1]?.at(-1) ?? 0;
    const f = foreseen(j);
    const tables: Table[] = [table ?? [[now], [0]]];
    if (f && f.cost.mid > sum) {
      const [at, end] = [Math.max(now, table?.[0].at(-1) ?? 0), Math.max(seconds(f.end), now + 1)];
      tables.push([[at, end], [sum, f.cost.mid], [sum, f.cost.high], [sum, Math.max(sum, f.cost.low)]]);
    } else {
      tables.push([[], [], [], []]);
    }

    return joined(tables);
  }, [table, j, now]);
  const known = table !== undefined || (j.forecast?.cost.mid ?? 0) > 0;

  return (
    <Frame name="Cost" value={table ? <LaneValue table={table} format={dollars} /> : <CostUnknown known={known} />}>
      <Plot
        {...shared}
        {...parts}
        label={`Cost so far ${table ? dollars(table[1]?.at(-1) ?? 0) : "unknown"}`}
        series={costSeries}
        bands={[[2, 3]]}
        yRange={[0, 0.01]}
        time
        range={range}
        formatX={clockOf(range)}
        height={known ? laneHeight + foot : foot + 12}
        legend={false}
        sync="job"
      />
    </Frame>
  );
}

function CostUnknown({ known }: { known: boolean }) {
  return <span className="faint">{known ? "nothing yet" : "nothing, or the yard has no tariff"}</span>;
}
