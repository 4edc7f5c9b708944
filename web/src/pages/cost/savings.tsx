import { useQuery } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { csvOf, savings, type Ask } from "../../api/queries/cost";
import { Link } from "../../route/link";
import { count, duration, integer, time } from "../../ui/format";
import { Notice, ProblemNotice } from "../../ui/notice";
import { Table, type Column } from "../../ui/table";
import styles from "./cost.module.css";
import { CSV, signed } from "./figures";

/** What kinds of decisions are, in words. */
const kinds: Record<string, string> = {
  placement: "where jobs ran", wait: "waiting instead of provisioning", preemption: "preempting", move: "moving jobs",
  power: "switching nodes off", estimate: "estimated when jobs started (version 0.1.0)",
};

/** Savings are what decisions about jobs that have ended saved against what would have been done instead. */
export function Savings({ ask, now, file }: { ask: Ask; now: number; file: string }) {
  const report = useQuery(savings(ask));

  if (report.error) return <ProblemNotice problem={report.error} onRetry={() => void report.refetch()} />;
  if (!report.data) return <p className="faint" aria-busy="true">Loading…</p>;

  const { rows, total, decisions } = report.data;
  if (total.decisions === 0) {
    return (
      <Notice title="No decision was settled in this period">
        <p>
          Where a job runs and when is settled when it has ended, by what it then did and cost. A yard with one kind of
          node and no offers has nothing to choose between.
        </p>
      </Notice>
    );
  }

  return (
    <>
      <p className={styles.tools}>
        <CSV href={csvOf("/api/v1/savings", { ...ask, by: "kind" })} name={`savings-${file}`} />
      </p>
      <p>
        {signed(total.saved_usd)} saved by {count(total.decisions, "decision")}, and jobs
        finished {later(total.saved_seconds)} than with what would have been done instead.
      </p>
      <Table label="Savings by kind of decision" columns={kindColumns} rows={rows} id={(r) => r.keys?.[0] ?? ""} />
      <h2>Decisions that saved or lost most</h2>
      <Table label="Decisions" columns={decisionColumns(now)} rows={decisions}
        id={(d) => `${d.job}/${d.kind}/${d.at}`} />
    </>
  );
}

/** later says how much earlier or later jobs finished, all together. */
function later(saved: number): string {
  return saved < 0 ? `${duration(-saved)} later` : `${duration(saved)} earlier`;
}

const kindColumns: Column<Schemas["SavingRow"]>[] = [
  { id: "kind", name: "By", lead: true, cell: (r) => kinds[r.keys?.[0] ?? ""] ?? r.keys?.[0] },
  { id: "n", name: "Decisions", figure: true, cell: (r) => integer(r.decisions) },
  { id: "usd", name: "Saved", figure: true, cell: (r) => signed(r.saved_usd) },
  { id: "time", name: "Jobs finished", figure: true, cell: (r) => later(r.saved_seconds) },
];

const decisionColumns = (now: number): Column<Schemas["SavingReason"]>[] => [
  { id: "job", name: "Job", lead: true, cell: (d) => <Link to={`job/${d.job}`}>{d.job}</Link> },
  { id: "owner", name: "Owner", lead: true, cell: (d) => <bdi>{d.owner}</bdi> },
  { id: "usd", name: "Saved", figure: true, cell: (d) => signed(d.saved_usd) },
  { id: "time", name: "Finished", figure: true, cell: (d) => later(d.saved_seconds) },
  { id: "kind", name: "By", cell: (d) => kinds[d.kind] ?? d.kind },
  { id: "why", name: "Instead of", cell: (d) => d.reason },
  { id: "at", name: "Settled", figure: true, cell: (d) => time(d.at, now) },
];
