import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import type { Schemas } from "../../api/client";
import { csvOf, usageGroups } from "../../api/queries/cost";
import { Link } from "../../route/link";
import { count, dollars, integer } from "../../ui/format";
import { ProblemNotice } from "../../ui/notice";
import { Table, type Column } from "../../ui/table";
import styles from "./cost.module.css";
import { CSV, hours, Money, percent, Share } from "./figures";
import { nameOfValue } from "./scope";

type Usage = Schemas["Usage"];

/** How many nodes are shown, those with the lowest use first; the table to download has all. */
const shownNodes = 50;

/** Groups are the four groups of metrics: own nodes, on-demand nodes, both by researcher; and what nobody used. */
export function Groups({ from, to, researcher, file }: { from: string; to: string; researcher: string; file: string }) {
  const usage = useQuery(usageGroups(from, to, researcher));

  if (usage.error) return <ProblemNotice problem={usage.error} onRetry={() => void usage.refetch()} />;
  if (!usage.data) return <p className="faint" aria-busy="true">Loading…</p>;

  const u = usage.data;
  const nodes = u.use_rate.filter((r) => r.node).toSorted((a, b) => rateOf(a) - rateOf(b));
  const classes = u.use_rate.filter((r) => !r.node);

  return (
    <>
      <p className={styles.tools}>
        <CSV href={csvOf("/api/v1/usage", { from, to, researcher })} name={`utilization-${file}`} />
      </p>
      <Part title="Use of local and reserved nodes" none="None in this period" rows={classes.length}>
        <Table label="Use by class and node" columns={rates} rows={[...classes, ...nodes.slice(0, shownNodes)]}
          id={(r) => `${r.class}/${r.node ?? ""}`} />
        {nodes.length > shownNodes && (
          <p className="faint">
            The {shownNodes} nodes with the lowest use; {count(nodes.length - shownNodes, "more node")} in the CSV.
          </p>
        )}
      </Part>
      <Part title="On-demand nodes" none="None were provisioned" rows={provisioned(u.on_demand).length}>
        <Table label="On-demand nodes by offer" columns={byOffer} rows={provisioned(u.on_demand)}
          id={(p) => p.offer ?? ""} />
      </Part>
      <Part title="Time on local and reserved nodes, by researcher" none="None" rows={u.own_by_researcher.length}>
        <Table label="Own nodes by researcher" columns={own(u)} rows={u.own_by_researcher}
          id={(r) => `${r.researcher}/${r.class}`} sortIn="own" />
      </Part>
      <Part title="On-demand nodes, by researcher" none="None were provisioned" rows={u.on_demand_by_researcher.length}>
        <Table label="On-demand nodes by researcher" columns={byResearcher} rows={u.on_demand_by_researcher}
          id={(p) => p.researcher ?? ""} />
      </Part>
      <Part title="Paid for but not used" none="None" rows={u.unused.length}>
        <Table label="Unused capacity" columns={unused(u)} rows={u.unused} id={(r) => `${r.class}/${r.account}`} />
      </Part>
    </>
  );
}

function Part({ title, none, rows, children }: { title: string; none: string; rows: number; children: ReactNode }) {
  return (
    <section>
      <h2>{title}</h2>
      {rows === 0 ? <p className="faint">{none}</p> : children}
    </section>
  );
}

/** The row of all offers together says nothing if there were none. */
function provisioned(list: Usage["on_demand"]): Usage["on_demand"] {
  return list.length === 1 && list[0]?.creations === 0 && list[0].node_seconds === 0 ? [] : list;
}

type Rate = Usage["use_rate"][number];

/** rateOf is the used share of GPUs, or of the node if it has none. */
const rateOf = (r: Rate): number => (r.available_gpu_seconds > 0 ? r.gpu_rate : r.node_rate);

const rates: Column<Rate>[] = [
  {
    id: "node", name: "Node", lead: true,
    cell: (r) => (r.node
      ? <Link to={`node/${encodeURIComponent(r.node)}`}><bdi>{r.node}</bdi></Link>
      : `all ${r.class}`),
  },
  { id: "class", name: "Class", cell: (r) => nameOfValue(r.class, "class") },
  {
    id: "rate", name: "Used", figure: true,
    cell: (r) => <><Share of={rateOf(r)} label="used share" /> {percent(rateOf(r))}</>,
  },
  {
    id: "gpu", name: "GPU-hours", figure: true,
    cell: (r) => (r.available_gpu_seconds > 0
      ? `${hours(r.busy_gpu_seconds)} of ${hours(r.available_gpu_seconds)}`
      : <span className="faint">no GPUs</span>),
  },
  {
    id: "hours", name: "Node-hours", figure: true,
    cell: (r) => `${hours(r.busy_node_seconds)} of ${hours(r.available_node_seconds)}`,
  },
];

type Lease = Usage["on_demand"][number];

const leases: Column<Lease>[] = [
  { id: "n", name: "Created", figure: true, cell: (p) => integer(p.creations) },
  { id: "node", name: "Node-hours", figure: true, cell: (p) => hours(p.node_seconds) },
  { id: "gpu", name: "GPU-hours", figure: true, cell: (p) => hours(p.gpu_seconds) },
  { id: "est", name: "Estimated", figure: true, cell: (p) => dollars(p.estimated_usd) },
  {
    id: "bill", name: "Billed", figure: true,
    cell: (p) => (p.billed_leases > 0
      ? `${dollars(p.billed_usd)} for ${count(p.billed_leases, "lease")}`
      : <span className="faint">not yet</span>),
  },
];

const byOffer: Column<Lease>[] = [
  { id: "offer", name: "Offer", lead: true, cell: (p) => <bdi>{p.offer ?? "all"}</bdi> },
  ...leases,
];

const byResearcher: Column<Lease>[] = [
  {
    id: "who", name: "Researcher", lead: true,
    cell: (p) => <bdi>{nameOfValue(p.researcher ?? "", "researcher")}</bdi>,
  },
  ...leases,
];

const own = (u: Usage): Column<Usage["own_by_researcher"][number]>[] => [
  { id: "who", name: "Researcher", lead: true, sort: (r) => r.researcher, cell: (r) => <bdi>{r.researcher}</bdi> },
  { id: "class", name: "Class", cell: (r) => r.class },
  { id: "node", name: "Node-hours", figure: true, sort: (r) => r.node_seconds, cell: (r) => hours(r.node_seconds) },
  { id: "gpu", name: "GPU-hours", figure: true, sort: (r) => r.gpu_seconds, cell: (r) => hours(r.gpu_seconds) },
  {
    id: "cost", name: "Cost", figure: true, sort: (r) => r.cost_usd,
    cell: (r) => <Money amount={r.cost_usd} noTariff={u.no_tariff} />,
  },
];

/** What kept capacity from use, in words. */
const accounts: Record<string, string> = {
  idle: "idle", error: "broken or lost", foreign: "used by processes outside the yard", cordoned: "cordoned",
  boot: "booting", releasing: "being released", waste: "billed after the node was gone",
};

const unused = (u: Usage): Column<Usage["unused"][number]>[] => [
  { id: "class", name: "Class", lead: true, cell: (r) => nameOfValue(r.class, "class") },
  { id: "why", name: "Why", lead: true, cell: (r) => accounts[r.account] ?? r.account },
  { id: "node", name: "Node-hours", figure: true, cell: (r) => hours(r.node_seconds) },
  { id: "gpu", name: "GPU-hours", figure: true, cell: (r) => hours(r.gpu_seconds) },
  { id: "cost", name: "Cost", figure: true, cell: (r) => <Money amount={r.cost_usd} noTariff={u.no_tariff} /> },
];
