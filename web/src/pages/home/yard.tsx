import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import type { Schemas } from "../../api/client";
import { costSince, summary, lastHours } from "../../api/queries";
import { Link } from "../../route/link";
import { useUser } from "../../shell/session";
import { count, dollars, integer, percent, time } from "../../ui/format";
import { ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Skeleton } from "../../ui/skeleton";
import { Bars } from "../../ui/spark";
import styles from "./home.module.css";
import { useMidnight } from "./today";

const classNames: Record<string, string> = { local: "Local", reserved: "Reserved", ondemand: "On demand" };

/** The yard in one line: its GPUs by class, the queue, what it costs, and how the last day was. */
export function Yard() {
  const yard = useQuery(summary);
  const { role } = useUser();

  return (
    <section aria-labelledby="the-yard">
      <h2 id="the-yard">The yard</h2>
      {yard.error && <ProblemNotice problem={yard.error} onRetry={() => void yard.refetch()} />}
      {yard.isPending && <Skeleton rows={2} height={28} />}
      {yard.data && (
        <ul className={styles.yard}>
          {yard.data.classes.length === 0 && (
            <li>
              No node has joined yet: <code>trainyard tokens create --join</code> prints the command for a machine
            </li>
          )}
          {yard.data.classes.map((c) => <ClassItem key={c.class} of={c} />)}
          <Item name="Running">{integer(yard.data.running)}</Item>
          <Item name="Queue"><Link to="queue">{integer(yard.data.queued)}</Link></Item>
          {role !== "researcher" && role !== "viewer" && <Spend />}
          {yard.data.classes.some((c) => c.gpus.total > 0) && <LastDay />}
        </ul>
      )}
    </section>
  );
}

function Item({ name, children }: { name: string; children: ReactNode }) {
  return <li><span className="faint">{name}</span> {children}</li>;
}

/** What the nodes of a class are doing. What is not as it should be has the colour of it. */
function ClassItem({ of: c }: { of: Schemas["ClassSummary"] }) {
  const name = classNames[c.class] ?? c.class;
  const price = c.hourly_usd === undefined ? "" : ` (${dollars(c.hourly_usd)}/h)`;
  if (c.gpus.total === 0) return <Item name={name}>{count(c.nodes, "node")} without GPUs{price}</Item>;

  return (
    <Item name={name}>
      {integer(c.gpus.running)}/{integer(c.gpus.total)} GPUs busy
      {c.gpus.idle > 0 && `, ${integer(c.gpus.idle)} idle`}
      {c.gpus.foreign > 0 && `, ${integer(c.gpus.foreign)} used by others`}
      {c.gpus.error > 0 && <span className={styles.bad}>, {integer(c.gpus.error)} in error</span>}
      {c.away > 0 && <span className={styles.bad}>, {integer(c.away)} of {count(c.nodes, "node")} away</span>}
      {price}
    </Item>
  );
}

/** What the whole yard has cost today, for those who may know. */
function Spend() {
  const cost = useQuery(costSince("", useMidnight(useNow())));
  if (!cost.data) return null;

  const unknown = cost.data.no_tariff && cost.data.total.cost_usd === 0;

  return <Item name="Spend today">{unknown ? "unknown (no tariff)" : dollars(cost.data.total.cost_usd)}</Item>;
}

/** How much of the GPUs was used in the last 24 hours, hour by hour. */
function LastDay() {
  const known = useQuery(lastHours);
  const now = useNow();
  if (!known.data) return null;

  const hours = known.data.hours;
  const sum = (of: (h: Schemas["UseHour"]) => number) => hours.reduce((s, h) => s + of(h), 0);
  const available = sum((h) => h.available_gpu_seconds);
  if (available === 0) return null;

  const used = percent(sum((h) => h.busy_gpu_seconds) / available);
  const bars = hours.map((h) => {
    const share = h.available_gpu_seconds > 0 ? h.busy_gpu_seconds / h.available_gpu_seconds : undefined;

    return { share, name: `${time(h.from, now)} ${share === undefined ? "nothing there" : `${percent(share)} used`}` };
  });

  return (
    <li className={styles.day}>
      <Bars bars={bars} label={`GPUs used in the last 24 hours: ${used}`} />{" "}
      <span className="faint">last 24 h, {used} used</span>
    </li>
  );
}
