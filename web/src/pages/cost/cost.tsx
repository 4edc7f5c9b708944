import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import type { Schemas } from "../../api/client";
import { usageSeries, type Ask } from "../../api/queries/cost";
import { useQueryString } from "../../route/route";
import { useUser } from "../../shell/session";
import { count, dollars } from "../../ui/format";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Plot } from "../../ui/plot";
import { Tabs } from "../../ui/tabs";
import { ByKey } from "./bykey";
import { Controls } from "./controls";
import styles from "./cost.module.css";
import { hours, kwh } from "./figures";
import { Groups } from "./groups";
import { Limits } from "./limits";
import { atThisPace, periodOf, type Period } from "./period";
import { Savings } from "./savings";
import { choiceOf, nameOfKey, nameOfValue, type Choice, type Show } from "./scope";
import { Waste } from "./waste";

/** Cost answers: what was used, what it cost, who pays, where budgets will end, and what was saved and wasted. */
export function Cost() {
  const user = useUser();
  const now = useNow();
  const [query] = useQueryString();
  const period = periodOf(query, now);
  const choice = choiceOf(query, user);

  return (
    <>
      {!period && <h1>Cost of a period</h1>}
      {period && <Report period={period} choice={choice} now={now} />}
      {!period && (
        <>
          <Controls period={undefined} choice={choice} show={choice.show ?? "cost"} now={now} />
          <Notice title="This is not a period">
            <p>
              It begins on a day that is not after the last one, and not in the future. Days are written as 2026-11-01.
            </p>
          </Notice>
        </>
      )}
    </>
  );
}

function Report({ period, choice, now }: { period: Period; choice: Choice; now: number }) {
  const ask: Ask = {
    from: new Date(period.begin).toISOString(),
    to: period.open ? "" : new Date(period.end).toISOString(),
    where: choice.where,
  };
  const series = useQuery(usageSeries(ask, choice.by));
  const show = choice.show ?? (series.data && unpriced(series.data) ? "gpu" : "cost");
  const file = `${new Date(period.begin).toISOString().slice(0, 10)}-${choice.by}`;

  return (
    <>
      <h1 aria-busy={series.isPending}>
        {series.data ? headline(series.data, period, choice, now) : series.error ? `Cost ${period.words}` : "\u00a0"}
      </h1>
      <Controls period={period} choice={choice} show={show} now={now} />
      {series.error && <ProblemNotice problem={series.error} onRetry={() => void series.refetch()} />}
      {series.data?.no_tariff && (
        <p className="faint">
          The server has no tariff, so what local and reserved nodes cost is not known; an admin starts it
          with <code>--tariff FILE</code>.
        </p>
      )}
      {series.data && <Chart data={series.data} period={period} show={show} />}
      <Tabs
        name="part"
        tabs={[
          { id: "table", title: nameOfKey[choice.by], view: () => <ByKey ask={ask} by={choice.by} file={file} /> },
          { id: "limits", title: "Quotas and budgets", view: () => <Limits now={now} /> },
          {
            id: "groups",
            title: "Utilization",
            view: () => <Groups from={ask.from} to={ask.to} researcher={choice.researcher} file={file} />,
          },
          { id: "savings", title: "Savings", view: () => <Savings ask={ask} now={now} file={file} /> },
          {
            id: "waste",
            title: "Waste",
            view: () => <Waste from={ask.from} to={ask.to} owner={choice.researcher} />,
          },
        ]}
      />
    </>
  );
}

type Series = Schemas["UsageSeries"];

/** unpriced reports whether nothing is known of what anything cost. */
const unpriced = (s: Series): boolean => s.no_tariff === true && s.total.cost_usd === 0;

/** The page in one sentence. */
function headline(s: Series, period: Period, choice: Choice, now: number): string {
  const idle = choice.everyone && choice.where.length === 0 ? ", used or idle" : "";
  const used = `${hours(s.total.gpu_seconds)} GPU-hours${idle}`;
  if (unpriced(s)) return `${used} ${period.words}; what they cost is not known.`;

  const pace = period.id === "month" ? atThisPace(s.total.cost_usd, period, now) : undefined;
  const end = pace === undefined ? "" : `; at this pace about ${dollars(pace)} by the end of the month`;

  return `${dollars(s.total.cost_usd)} ${period.words}${end}. ${used}; ${kwh(s.total.energy_kwh)} kWh.`;
}

const figureOf: Record<Show, { of: (l: Series["lines"][number]) => number[]; write: (v: number) => string }> = {
  cost: { of: (l) => l.cost_usd, write: dollars },
  gpu: { of: (l) => l.gpu_seconds.map((s) => s / 3600), write: (v) => `${hours(3600 * v)} h` },
  energy: { of: (l) => l.energy_kwh, write: (v) => `${kwh(v)} kWh` },
};

const stepLength: Record<string, number> = { hour: 3600, day: 86_400, week: 7 * 86_400 };

/** The period as bars, one for each hour, day or week. */
function Chart({ data, period, show }: { data: Series; period: Period; show: Show }) {
  const { of, write } = figureOf[show];
  const starts = useMemo(() => data.starts.map((t) => Date.parse(t) / 1000), [data]);
  const columns = useMemo(() => data.lines.map(of), [data, of]);
  const any = columns.some((c) => c.some((v) => v > 0));
  if (!any) {
    return (
      <Notice title={`Nothing was used ${period.words}`}>
        <p>Choose another period, or submit a job: it is counted from its first second on.</p>
      </Notice>
    );
  }

  const length = stepLength[data.step] ?? 0;
  const label = (x: number) =>
    new Date(x * 1000).toLocaleString("en-GB", {
      timeZone: "UTC",
      ...(data.step === "hour" ? { hour: "2-digit", minute: "2-digit" } : { day: "numeric", month: "short" }),
    });

  return (
    <>
      <Plot
        label={`${names[show]} by ${data.step} and ${data.by}, ${period.words}`}
        x={starts}
        data={columns}
        series={data.lines.map((l, i) => ({
          name: nameOfLine(l, data.by),
          format: write,
          tone: l.others ? "faint" : i + 1,
        }))}
        stacked
        time
        range={[(starts[0] ?? 0) - length * 0.2, Math.max(period.end / 1000, (starts.at(-1) ?? 0) + length)]}
        formatX={label}
        height={240}
      />
      <p className={styles.caption}>
        {names[show]} by {data.step}, in UTC. Jobs that run count up to now.
      </p>
    </>
  );
}

const names: Record<Show, string> = { cost: "Cost", gpu: "GPU-hours", energy: "Energy" };

function nameOfLine(l: Series["lines"][number], by: string): string {
  if (l.others) return count(l.others, "other");

  return nameOfValue(l.key, by);
}
