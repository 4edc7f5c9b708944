import { useQuery } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { csvOf, usageReport, type Ask, type Key } from "../../api/queries/cost";
import { Link } from "../../route/link";
import { useQueryString } from "../../route/route";
import { count } from "../../ui/format";
import { Notice, ProblemNotice } from "../../ui/notice";
import { Table, type Column } from "../../ui/table";
import styles from "./cost.module.css";
import { CSV, hours, kwh, Money, percent, Share } from "./figures";
import { nameOfKey, nameOfValue } from "./scope";

type Row = Schemas["UsageRow"];

/** How many rows are shown; the table to download has all. */
const shown = 100;

/** ByKey is usage and cost divided by one key, with the total. */
export function ByKey({ ask, by, file }: { ask: Ask; by: Key; file: string }) {
  const report = useQuery(usageReport(ask, by));
  const [query] = useQueryString();

  if (report.error) return <ProblemNotice problem={report.error} onRetry={() => void report.refetch()} />;
  if (!report.data) return <p className="faint" aria-busy="true">Loading…</p>;

  const { rows, total, no_tariff: noTariff } = report.data;
  const valueOf = (r: Row) => r.keys[0] ?? "";
  const weigh = (r: Row) =>
    (total.cost_usd > 0 ? r.cost_usd / total.cost_usd : r.gpu_seconds / (total.gpu_seconds || 1));
  const order = query.get("sort") ?? "";
  const sorted = order === "" ? rows.toSorted((a, b) => weigh(b) - weigh(a)) : rows;
  if (rows.length === 0) return <Notice title="Nothing was used in this period" />;

  const columns: Column<Row>[] = [
    {
      id: "key", name: titleOf(by), lead: true, sort: valueOf,
      cell: (r) => <Value value={valueOf(r)} by={by} query={Object.fromEntries(query)} />,
    },
    {
      id: "cost", name: "Cost", figure: true, sort: (r) => r.cost_usd,
      cell: (r) => <Money amount={r.cost_usd} noTariff={noTariff} />,
    },
    {
      id: "share", name: "Share", figure: true, sort: weigh,
      cell: (r) => <><Share of={weigh(r)} label="share of the total" /> {percent(weigh(r))}</>,
    },
    { id: "gpu", name: "GPU-hours", figure: true, sort: (r) => r.gpu_seconds, cell: (r) => hours(r.gpu_seconds) },
    { id: "node", name: "Node-hours", figure: true, sort: (r) => r.node_seconds, cell: (r) => hours(r.node_seconds) },
    {
      id: "nodecost", name: "Nodes", figure: true, sort: (r) => r.node_cost_usd,
      cell: (r) => <Money amount={r.node_cost_usd} noTariff={noTariff} />,
    },
    {
      id: "energycost", name: "Energy", figure: true, sort: (r) => r.energy_cost_usd,
      cell: (r) => <Money amount={r.energy_cost_usd} noTariff={noTariff} />,
    },
    { id: "kwh", name: "kWh", figure: true, sort: (r) => r.energy_kwh, cell: (r) => kwh(r.energy_kwh) },
  ];

  return (
    <>
      <p className={styles.tools}>
        <CSV href={csvOf("/api/v1/usage/report", { ...ask, by })} name={`usage-${file}`} />
        <CSV
          href={csvOf("/api/v1/usage/report", { ...ask, by: `day,${by}` })}
          name={`usage-${file}-days`}
          of="by day"
        />
      </p>
      <Table
        label={`Usage ${nameOfKey[by].toLowerCase()}`}
        columns={columns}
        rows={sorted.slice(0, shown)}
        id={valueOf}
        sortIn="sort"
        foot={rows.length > 1 && (
          <tr>
            <td className={styles.total}>Total</td>
            <td className="figure" data-name="Cost"><Money amount={total.cost_usd} noTariff={noTariff} /></td>
            <td className={styles.wide} />
            <td className="figure" data-name="GPU-hours">{hours(total.gpu_seconds)}</td>
            <td className="figure" data-name="Node-hours">{hours(total.node_seconds)}</td>
            <td className="figure" data-name="Nodes"><Money amount={total.node_cost_usd} noTariff={noTariff} /></td>
            <td className="figure" data-name="Energy"><Money amount={total.energy_cost_usd} noTariff={noTariff} /></td>
            <td className="figure" data-name="kWh">{kwh(total.energy_kwh)}</td>
          </tr>
        )}
      />
      {rows.length > shown && (
        <p className="faint">
          and {count(rows.length - shown, "more row")}; the CSV has all, and the total counts them.
        </p>
      )}
    </>
  );
}

/** titleOf is the title of the column of a key: GPU model, Researcher. */
function titleOf(by: Key): string {
  const name = nameOfKey[by].replace(/^By /, "");

  return name.charAt(0).toUpperCase() + name.slice(1);
}

/** A value of the key. A researcher and a project lead to what is theirs, a node to its page. */
function Value({ value, by, query }: { value: string; by: Key; query: Record<string, string> }) {
  const name = <bdi>{nameOfValue(value, by)}</bdi>;
  if (value === "") return <span className="faint">{name}</span>;
  if (by === "node") return <Link to={`node/${encodeURIComponent(value)}`}>{name}</Link>;
  if (by !== "researcher" && by !== "project") return name;

  const next = by === "researcher" ? "project" : "researcher";

  return <Link to="cost" query={{ ...query, [by]: value, by: next }}>{name}</Link>;
}
