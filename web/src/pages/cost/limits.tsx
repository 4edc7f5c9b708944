import { useQuery } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { quotas, quotasShown } from "../../api/queries/cost";
import { useUser } from "../../shell/session";
import { dollars, time } from "../../ui/format";
import { Notice, ProblemNotice } from "../../ui/notice";
import { Table, type Column } from "../../ui/table";
import styles from "./cost.module.css";
import { Money } from "./figures";
import { atThisPace } from "./period";

type Usage = Schemas["QuotaUsage"];

/** Limits are the quotas and budgets, what is used of them, and where they will end. */
export function Limits({ now }: { now: number }) {
  const page = useQuery(quotas);
  const { role } = useUser();

  if (page.error) return <ProblemNotice problem={page.error} onRetry={() => void page.refetch()} />;
  if (!page.data) return <p className="faint" aria-busy="true">Loading…</p>;

  const how = role === "admin" && (
    <p className="faint">Set with <code>trainyard quota set user/NAME --gpus 8 --budget 500</code>.</p>
  );
  if (page.data.usage.length === 0) {
    return <Notice title="No quotas and no budgets">{how || <p>An admin sets them.</p>}</Notice>;
  }

  const { no_tariff: noTariff } = page.data;
  const columns: Column<Usage>[] = [
    { id: "subject", name: "Whose", lead: true, cell: (u) => <bdi>{u.subject}</bdi> },
    { id: "cost", name: "Spent", figure: true, cell: (u) => <Spent of={u} noTariff={noTariff} /> },
    { id: "bar", name: "Budget", cell: (u) => <Budget of={u} now={now} /> },
    { id: "outlook", name: "Outlook", cell: (u) => <Outlook of={u} now={now} /> },
    { id: "gpuh", name: "GPU-hours", figure: true, cell: (u) => ofLimit(u.gpu_hours, (v) => v.toFixed(1)) },
    {
      id: "gpus", name: "GPUs now", figure: true,
      cell: (u) => <>{u.gpus}{u.quota?.gpus ? ` of ${u.quota.gpus}` : ""}{u.quota?.borrow ? ", may borrow" : ""}</>,
    },
    {
      id: "nodes", name: "On-demand nodes", figure: true,
      cell: (u) => <>{u.nodes}{u.quota?.nodes ? ` of ${u.quota.nodes}` : ""}</>,
    },
    { id: "ends", name: "Period", cell: (u) => `${u.quota?.period ?? "month"}, until ${time(u.ends, now)}` },
    { id: "then", name: "When exceeded", cell: (u) => u.quota?.on_exceeded ?? <span className="faint">no quota</span> },
  ];

  return (
    <>
      <Table label="Quotas and budgets" columns={columns} rows={page.data.usage} id={(u) => u.subject} />
      {page.data.next && (
        <p className="faint">The first {quotasShown} by name; <code>trainyard quota</code> lists all.</p>
      )}
      <p className={styles.caption}>
        The bar: spent so far, then what jobs that run now are still expected to cost; the mark is the budget. At this
        pace means: if spending goes on as it was since the period began.
      </p>
      {how}
    </>
  );
}

/** What was spent. With a budget even nothing is a figure. */
function Spent({ of, noTariff }: { of: Usage; noTariff: boolean | undefined }) {
  const { limit, used } = of.cost_usd;
  if (!limit) return <Money amount={used} noTariff={noTariff} />;

  return <>{dollars(used)} <span className="faint">of {dollars(limit)}</span></>;
}

function ofLimit(u: Usage["gpu_hours"], write: (v: number) => string): string {
  return u.limit ? `${write(u.used)} of ${write(u.limit)}` : write(u.used);
}

/** paceOf is what will be spent at the end of the period if it goes on as until now. */
function paceOf(u: Usage, now: number): number | undefined {
  return atThisPace(u.cost_usd.used, { begin: Date.parse(u.begin), end: Date.parse(u.ends) }, now);
}

const width = 160;
const height = 12;

/** A budget as a bar. */
function Budget({ of: u, now }: { of: Usage; now: number }) {
  const { limit, used, expected } = u.cost_usd;
  if (!limit) return <span className="faint">none</span>;

  const pace = paceOf(u, now) ?? 0;
  const most = Math.min(Math.max(limit, expected, pace), 2 * limit) * 1.02;
  const x = (amount: number) => Math.min(width, (amount / most) * width);
  const label = `${dollars(used)} spent and ${dollars(expected)} expected of ${dollars(limit)}`;

  return (
    <svg className={styles.budget} width={width} height={height} role="img" aria-label={label}>
      <rect className={styles.expected} width={x(expected)} y={2} height={height - 4} />
      <rect className={used >= limit ? styles.over : styles.used} width={x(used)} y={2} height={height - 4} />
      <line className={styles.limit} x1={x(limit)} x2={x(limit)} y2={height} />
    </svg>
  );
}

/** Outlook says where the budget will end, as far as that can be said. */
function Outlook({ of: u, now }: { of: Usage; now: number }) {
  const { limit, used, expected, used_up: usedUp } = u.cost_usd;
  const pace = paceOf(u, now);
  const spent = u.gpu_hours.used_up;

  return (
    <>
      {usedUp && (
        <span className={styles.attention}>
          {Date.parse(usedUp) <= now ? "budget used up. " : `jobs that run use it up ${time(usedUp, now)}. `}
        </span>
      )}
      {spent && (
        <span className={styles.attention}>
          {Date.parse(spent) <= now ? "GPU-hours used up. " : `jobs that run use up GPU-hours ${time(spent, now)}. `}
        </span>
      )}
      {expected > used && `${dollars(expected)} if no further job starts. `}
      {pace !== undefined && pace > expected && (
        <span className={limit && pace > limit && !usedUp ? styles.attention : undefined}>
          At this pace {dollars(pace)}{limit && pace > limit && used < limit ? `, over budget ${overAt(u, now)}` : ""}.
        </span>
      )}
    </>
  );
}

/** overAt is when the budget is used up at this pace. */
function overAt(u: Usage, now: number): string {
  const begin = Date.parse(u.begin);
  const at = begin + ((u.cost_usd.limit ?? 0) / u.cost_usd.used) * (now - begin);

  return `about ${time(at, now)}`;
}
