import type { Schemas } from "../../api/client";
import { time } from "../../ui/format";
import { Plot, type Series } from "../../ui/plot";
import styles from "./whatif.module.css";

type Lines = Schemas["WhatIfLines"];

/** Timeline draws how both cases go on, on the same axis. */
export function Timeline({ of: r, changed }: { of: Schemas["WhatIf"]; changed: boolean }) {
  const begin = Date.parse(r.now) / 1000;
  const x = r.timeline.seconds.map((s) => begin + s);
  const percent = (v: number) => `${Math.round(100 * v)} %`;

  return (
    <>
      <p className={styles.legend} aria-hidden="true">
        <span data-line="today">today</span>
        {changed && <span data-line="then">then</span>}
        <span className="faint">lines are medians, bands hold 80 % of the simulations</span>
      </p>
      <div className={styles.plots}>
        <figure>
          <figcaption>Jobs of now that have not ended</figcaption>
          <Both label="Jobs that have not ended" x={x} lines={r.timeline.left} changed={changed} write={String} />
        </figure>
        <figure>
          <figcaption>GPUs in use</figcaption>
          <Both label="Share of GPUs in use" x={x} lines={r.timeline.use} changed={changed} write={percent} />
        </figure>
      </div>
    </>
  );
}

/** Both draws one figure of both cases over time. */
function Both({ label, x, lines, changed, write }: {
  label: string;
  x: number[];
  lines: Lines;
  changed: boolean;
  write: (v: number) => string;
}) {
  const cases = changed ? [lines.today, lines.then] : [lines.today];
  const tones = [1, 2];
  const series = cases.flatMap((_, i): Series[] => {
    const tone = tones[i] ?? 1;
    const name = i === 0 ? "today" : "then";

    return [
      { name, tone, format: write },
      { name: `${name}, high`, tone, dashed: true, format: write },
      { name: `${name}, low`, tone, dashed: true, format: write },
    ];
  });

  return (
    <Plot
      label={`${label} over time, ${changed ? "today and then" : "today"}`}
      x={x}
      data={cases.flatMap((c) => [c.mid, c.high, c.low])}
      series={series}
      bands={cases.map((_, i): [number, number] => [3 * i + 1, 3 * i + 2])}
      time
      height={180}
      legend={false}
      sync="whatif"
      formatX={(v) => time(v * 1000, Date.now())}
    />
  );
}
