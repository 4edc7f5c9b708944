import { useMemo } from "react";

import type { Schemas } from "../../api/client";
import { count } from "../../ui/format";
import { Plot } from "../../ui/plot";
import styles from "./forecasts.module.css";
import { percent } from "./words";

const dayOf = (x: number): string =>
  new Date(x * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** How good forecasts were over time: error and coverage of jobs by the day or week in which they finished. */
export function Trend({ trend }: { trend: Schemas["TrendAccuracy"][] }) {
  const first = trend[0];
  const last = trend.at(-1);
  const x = useMemo(() => trend.map((t) => Date.parse(t.start) / 1000), [trend]);
  const data = useMemo(
    () => [
      trend.map((t) => t.median),
      trend.map((t) => (t.covered_of > 0 ? t.covered : null)),
      trend.map(() => 0.8),
    ],
    [trend],
  );

  return (
    <section>
      <h2>Over time</h2>
      {!first || !last || trend.length < 2
        ? <p className="faint">All jobs finished on one day so far; two are a trend.</p>
        : (
          <Plot
            label={`Median error and coverage of the 80 % interval over time, ${count(trend.length, "point")}`}
            x={x}
            data={data}
            series={[
              { name: "median error", format: percent },
              { name: "in the 80 % interval", format: percent },
              { name: "aim", tone: "faint", dashed: true, format: percent },
            ]}
            time
            formatX={dayOf}
            height={220}
          />
        )}
      <p className={styles.caption}>By the day or week in which jobs finished, in UTC.</p>
    </section>
  );
}

/** Whether what is said with a probability comes true as often. */
export function Calibration({ levels, wanted }: { levels: Schemas["Reliability"][]; wanted: number }) {
  const n = levels[0]?.count ?? 0;
  const said = useMemo(() => [0, ...levels.map((l) => l.expected), 1], [levels]);
  const data = useMemo(() => [[0, ...levels.map((l) => l.observed), 1], said], [levels, said]);

  return (
    <section>
      <h2>Calibration</h2>
      {levels.length === 0
        ? <p className="faint">It takes {wanted} finished jobs with the same basis to say what is probable.</p>
        : (
          <Plot
            label={`Calibration: ${levels.map((l) => `${percent(l.expected)}: ${percent(l.observed)}`).join("; ")}`}
            x={said}
            data={data}
            series={[
              { name: "came true", format: percent },
              { name: "ideal", tone: "faint", dashed: true, format: percent },
            ]}
            range={[0, 1]}
            formatX={percent}
            height={220}
          />
        )}
      <p className={styles.caption}>
        How often jobs took at most as long as was said with that probability
        {n > 0 ? `, of ${count(n, "forecast")}` : ""}. Each job is judged by those that had finished before it. Above
        the line: jobs are faster than forecast.
      </p>
    </section>
  );
}
