import { useQuery } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { waste } from "../../api/queries/cost";
import { Link } from "../../route/link";
import { useUser } from "../../shell/session";
import { count } from "../../ui/format";
import { Notice, ProblemNotice } from "../../ui/notice";
import { Table, type Column } from "../../ui/table";
import styles from "./cost.module.css";
import { hours, Money } from "./figures";

type Finding = Schemas["Finding"];

const kinds: Record<Finding["kind"], string> = {
  idle_node: "Idle node", out_of_service: "Out of service", provisioning: "On-demand nodes",
  requests: "Asked for too much", failures: "Fails again and again",
};

/** Waste is what was paid for without use, with the figures behind it and what would avoid it. */
export function Waste({ from, to, owner }: { from: string; to: string; owner: string }) {
  const found = useQuery(waste(from, to, owner));
  const { role } = useUser();

  if (found.error) return <ProblemNotice problem={found.error} onRetry={() => void found.refetch()} />;
  if (!found.data) return <p className="faint" aria-busy="true">Loading…</p>;

  const { findings, jobs_checked: checked } = found.data;
  const looked = `${count(checked, "job")} that ended in the period ${checked === 1 ? "was" : "were"} looked at.`;
  const further = role === "admin" && (
    <p className={styles.caption}>
      <code>trainyard recommend</code> replays a period in the simulator with other nodes, prices and settings.
    </p>
  );
  if (findings.length === 0) {
    return (
      <Notice title="No waste was found">
        <p>
          {looked} Found would be nodes that are mostly idle or out of service for a day, on-demand nodes that cost much
          beside runs, jobs that fail again and again, and jobs that ask for more than they use.
        </p>
        {further}
      </Notice>
    );
  }

  return (
    <>
      <Table label="Waste" columns={columns} rows={findings} id={(f) => `${f.kind}/${f.owner ?? ""}/${f.subject}`} />
      <p className={styles.caption}>{looked}</p>
      {further}
    </>
  );
}

const columns: Column<Finding>[] = [
  { id: "what", name: "What", lead: true, cell: (f) => kinds[f.kind] },
  { id: "subject", name: "Which", lead: true, cell: (f) => <Subject of={f} /> },
  { id: "cost", name: "Cost", figure: true, cell: (f) => <Money amount={f.cost_usd} noTariff /> },
  {
    id: "gpu", name: "GPU-hours", figure: true,
    cell: (f) => (f.gpu_seconds > 0 ? hours(f.gpu_seconds) : <span className="faint">–</span>),
  },
  { id: "why", name: "Evidence", cell: (f) => <p className={styles.evidence}>{f.evidence} <Jobs of={f} /></p> },
  { id: "do", name: "What would avoid it", cell: (f) => f.remedy },
];

function Subject({ of: f }: { of: Finding }) {
  if (f.kind === "idle_node" || f.kind === "out_of_service") {
    return <Link to={`node/${encodeURIComponent(f.subject)}`}><bdi>{f.subject}</bdi></Link>;
  }

  return <><bdi>{f.subject}</bdi>{f.owner && <span className="faint"> of <bdi>{f.owner}</bdi></span>}</>;
}

/** The jobs behind a finding. */
function Jobs({ of: f }: { of: Finding }) {
  const jobs = f.jobs ?? [];
  const more = (f.job_count ?? 0) - jobs.length;

  return (
    <>
      {jobs.map((j, i) => <span key={j}>{i > 0 && ", "}<Link to={`job/${j}`}>{j}</Link></span>)}
      {more > 0 && <span className="faint"> and {more} more</span>}
    </>
  );
}
