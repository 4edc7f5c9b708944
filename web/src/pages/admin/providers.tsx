import { useInfiniteQuery, useQuery } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { offers, reaper } from "../../api/queries/admin";
import { useUser } from "../../shell/session";
import { bytesOf, count, size, time } from "../../ui/format";
import { More } from "../../ui/more";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Table, type Column } from "../../ui/table";
import styles from "./admin.module.css";

type Offer = Schemas["FleetOffer"];

/** Providers are where nodes can be provisioned, what they cost there, and whether the provider answers. */
export function Providers() {
  const list = useInfiniteQuery(offers);
  const now = useNow();

  if (list.error) return <ProblemNotice problem={list.error} onRetry={() => void list.refetch()} />;
  if (list.isPending) return <p className="faint" aria-busy="true">Loading…</p>;

  const all = list.data.pages.flatMap((p) => p.offers);
  const closed = list.data.pages[0]?.closed ?? [];
  const names = [...new Set(all.map((o) => o.provider))];

  if (all.length === 0 && closed.length === 0) {
    return (
      <Notice title="No cloud provider is configured">
        <p>
          Jobs run on local and reserved nodes only. An operator adds providers in the configuration of the server; see
          docs/operators/providers.md.
        </p>
      </Notice>
    );
  }

  return (
    <>
      <p>
        {count(all.length, "offer")}{list.hasNextPage ? " and more" : ""} of {names.join(", ")}
        {closed.length > 0 && `; ${count(closed.length, "refusal")} in force`}
      </p>
      <State />
      {closed.map((c) => (
        <p key={c.what} className={styles.off}>
          {c.what} is not requested until {time(c.until, now)}: {c.why} ({count(c.times, "refusal")} in a row,{" "}
          {count(c.offers, "offer")})
        </p>
      ))}
      <Table label="Offers" columns={columns} rows={all} id={(o) => o.name} sortIn="sort" />
      <More list={list} />
    </>
  );
}

const columns: Column<Offer>[] = [
  { id: "provider", name: "Provider", lead: true, sort: (o) => o.provider, cell: (o) => o.provider },
  {
    id: "type", name: "Instance", lead: true, sort: (o) => o.type,
    cell: (o) => <>{o.type}{o.spot && <span className="faint"> spot</span>}</>,
  },
  {
    id: "region", name: "Region", sort: (o) => o.region ?? "",
    cell: (o) => [o.region, o.zone].filter(Boolean).join(" "),
  },
  {
    id: "gpus", name: "GPUs", sort: (o) => o.gpu ?? "",
    cell: (o) => (o.gpus ? `${o.gpus}× ${o.gpu ?? ""} ${o.gpu_memory ? size(bytesOf(o.gpu_memory)) : ""}` : "none"),
  },
  {
    id: "memory", name: "Memory", figure: true, sort: (o) => bytesOf(o.memory),
    cell: (o) => size(bytesOf(o.memory)),
  },
  {
    id: "price", name: "Price", figure: true, sort: (o) => Number(o.hourly.replace("$", "")),
    cell: (o) => `${o.hourly}/h`,
  },
  { id: "boot", name: "Boots in", figure: true, cell: (o) => o.boot ?? <span className="faint">unknown</span> },
  { id: "most", name: "At most", figure: true, cell: (o) => o.max_nodes ?? <span className="faint">no limit</span> },
];

/** State says which providers fail, and what was found there that should not be. */
function State() {
  const who = useUser();
  const may = who.role === "admin" || who.role === "operator";
  const report = useQuery({ ...reaper, enabled: may });
  const now = useNow();
  if (!may) return <p className="faint">Operators and admins also see whether providers answer.</p>;
  if (report.error) return <ProblemNotice problem={report.error} />;
  if (!report.data) return <p className="faint" aria-busy="true">Loading…</p>;

  const r = report.data;

  return (
    <>
      {r.failing.length === 0
        ? (
          <p>
            All providers answer; {count(r.live, "lease")} in use
            {r.overdue.length > 0 && <span className={styles.off}>, {r.overdue.length} overdue</span>}.
          </p>
        )
        : r.failing.map((f) => <p key={f.provider} className={styles.off}>{f.provider} fails: {f.why}</p>)}
      {r.strays.map((e) => (
        <p key={e.seq} className={styles.off}>{time(e.at, now)} instance without a lease: {e.reason}</p>
      ))}
    </>
  );
}
