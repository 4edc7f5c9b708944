import { useInfiniteQuery, useQuery } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { dataset, datasets, datasetUses } from "../../api/queries/admin";
import { Link } from "../../route/link";
import { Fact, Facts } from "../../ui/facts";
import { bytesOf, count, size, time } from "../../ui/format";
import { More } from "../../ui/more";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Table, type Column } from "../../ui/table";
import styles from "./data.module.css";

type Dataset = Schemas["Dataset"];
type Use = Schemas["DatasetUse"];

/** Data lists the datasets, or shows the one that the path names. */
export function Data({ rest }: { rest: string }) {
  return rest === "" ? <List /> : <One key={rest} name={rest} />;
}

/** Where a dataset may be used, in words. */
const placeText: Record<string, string> = {
  local: "on premises only",
  cloud: "in the cloud only",
  any: "anywhere",
  nowhere: "nowhere: the rules of this and another dataset with the same data contradict each other",
};

const placeOf = (d: Dataset): string => d.effective_place ?? d.place;

/** Who may use a dataset: an empty list is everybody. */
function readersText(d: Dataset): string {
  const list = d.readers ?? [];

  return list.length === 0 || list.includes("*") ? "everybody" : [d.owner, ...list].join(", ");
}

function copyText(c: Schemas["Copy"]): string {
  if (c.node) return `node ${c.node}`;
  if (c.pool) return `pool ${c.pool}`;

  return c.at === "cloud" ? "all cloud nodes" : c.at === "local" ? "all local nodes" : "all nodes";
}

const columns: Column<Dataset>[] = [
  {
    id: "name", name: "Dataset", lead: true, sort: (d) => d.id,
    cell: (d) => <Link to={`data/${d.id}`}><bdi>{d.id}</bdi></Link>,
  },
  {
    id: "size", name: "Size", figure: true, sort: (d) => bytesOf(d.size),
    cell: (d) => (d.size ? size(bytesOf(d.size)) : <span className="faint">unknown</span>),
  },
  {
    id: "place", name: "May be used", sort: placeOf,
    cell: (d) => placeText[placeOf(d)]?.split(":")[0] ?? placeOf(d),
  },
  { id: "readers", name: "By", sort: readersText, cell: (d) => <bdi>{readersText(d)}</bdi> },
  {
    id: "copies", name: "Copies", sort: (d) => d.copies?.length ?? 0,
    cell: (d) => <Copies copies={d.copies ?? []} />,
  },
  { id: "owner", name: "Owner", sort: (d) => d.owner, cell: (d) => <bdi>{d.owner}</bdi> },
];

function Copies({ copies }: { copies: Schemas["Copy"][] }) {
  if (copies.length === 0) return <span className="faint">none known</span>;

  const more = copies.length > 2 ? ` and ${copies.length - 2} more` : "";

  return <>{copies.slice(0, 2).map(copyText).join(", ")}{more}</>;
}

function List() {
  const list = useInfiniteQuery(datasets);
  const all = list.data?.pages.flatMap((p) => p.datasets) ?? [];

  if (list.error) {
    return <><h1>Datasets</h1><ProblemNotice problem={list.error} onRetry={() => void list.refetch()} /></>;
  }

  if (list.isPending) return <><h1>Datasets</h1><p className="faint" aria-busy="true">Loading…</p></>;

  if (all.length === 0) {
    return (
      <>
        <h1>No dataset is registered</h1>
        <Notice title="Name data once, and jobs can ask for it wherever they run">
          <p>
            A registered dataset has a rule that says where it may be used, and jobs that name it under{" "}
            <code>data</code> run only there. Register one:{" "}
            <code>trainyard data add scans --place local --size 40GB --source /data/scans</code>
          </p>
        </Notice>
      </>
    );
  }

  const total = all.reduce((sum, d) => sum + bytesOf(d.size), 0);
  const local = all.filter((d) => placeOf(d) === "local").length;

  return (
    <>
      <h1>
        {count(all.length, "dataset")}{list.hasNextPage ? " and more" : ""}
        {total > 0 && `, ${size(total)}`}; {local === 0 ? "none" : local} may be used on premises only
      </h1>
      <Table label="Datasets" columns={columns} rows={all} id={(d) => d.id} sortIn="sort" />
      <More list={list} />
    </>
  );
}

function One({ name }: { name: string }) {
  const one = useQuery(dataset(name));
  const uses = useQuery(datasetUses(name));
  const now = useNow();
  const d = one.data;

  if (one.error?.status === 404) {
    return (
      <>
        <h1>Dataset <bdi>{name}</bdi> not found</h1>
        <Notice title="It is not registered, or you may not use it">
          <p>Its owner or an admin can let you: <code>trainyard data set {name} --readers YOU</code></p>
          <p><Link to="data">All datasets</Link></p>
        </Notice>
      </>
    );
  }

  if (one.error) {
    return <><h1><bdi>{name}</bdi></h1><ProblemNotice problem={one.error} onRetry={() => void one.refetch()} /></>;
  }

  if (!d) return <><h1><bdi>{name}</bdi></h1><p className="faint" aria-busy="true">Loading…</p></>;

  const copies = d.copies ?? [];

  return (
    <>
      <p className={styles.path}><Link to="data">Data</Link></p>
      <h1>
        <bdi>{d.id}</bdi>: {d.size ? `${size(bytesOf(d.size))}, ` : ""}may be used{" "}
        {placeText[placeOf(d)] ?? placeOf(d)};{" "}
        {copies.length === 0 ? "no copy is known" : copies.length === 1 ? "1 copy" : `${copies.length} copies`}
      </h1>
      <div className={styles.split}>
        <div>
          <h2>Uses</h2>
          <Uses name={d.id} owner={d.owner} uses={uses} />
          <h2>Copies</h2>
          {copies.length === 0
            ? (
              <p className="faint">
                {d.source
                  ? "It is fetched from its source where a job needs it."
                  : "Neither a copy nor a source is known."}
              </p>
            )
            : (
              <Table
                label="Copies"
                columns={copyColumns}
                rows={copies}
                id={(c) => `${c.node ?? ""} ${c.pool ?? ""} ${c.at ?? ""} ${c.path ?? ""}`}
              />
            )}
        </div>
        <div>
          <Facts>
            <Fact name="Owner"><bdi>{d.owner}</bdi></Fact>
            <Fact name="Registered">{time(d.created, now)}</Fact>
            <Fact name="Place">
              {placeText[d.place] ?? d.place}
              {d.effective_place && (
                <span className="faint"> by its own rule; another dataset with the same data has a stricter one</span>
              )}
            </Fact>
            <Fact name="Readers"><bdi>{readersText(d)}</bdi></Fact>
            <Fact name="Size">{d.size ? size(bytesOf(d.size)) : "unknown"}</Fact>
            <Fact name="Source">{d.source ? <code>{d.source}</code> : "none"}</Fact>
          </Facts>
          <p className="faint">
            A job uses it by name: <code>data: [{d.id}]</code>. Its owner and admins change it with{" "}
            <code>trainyard data set {d.id}</code>.
          </p>
        </div>
      </div>
    </>
  );
}

const copyColumns: Column<Schemas["Copy"]>[] = [
  {
    id: "where", name: "Where", lead: true,
    cell: (c) => (c.node ? <Link to={`node/${c.node}`}>{c.node}</Link> : copyText(c)),
  },
  { id: "path", name: "Path", cell: (c) => (c.path ? <code>{c.path}</code> : <span className="faint">not said</span>) },
];

/** Uses says whether the data ever left the premises, and where it was used. */
function Uses({ name, owner, uses }: {
  name: string;
  owner: string;
  uses: { data?: Schemas["Audit"] | undefined; error: { status: number; message: string } | null };
}) {
  const now = useNow();

  if (uses.error?.status === 403 || uses.error?.status === 404) {
    return <p className="faint">Who used it where is shown to its owner, <bdi>{owner}</bdi>, and to admins.</p>;
  }

  if (uses.error) return <p className="faint">{uses.error.message}</p>;
  if (!uses.data) return <p className="faint" aria-busy="true">Loading…</p>;

  const a = uses.data;
  const columns: Column<Use>[] = [
    { id: "at", name: "When", lead: true, cell: (u) => time(u.at, now) },
    { id: "job", name: "Job", lead: true, cell: (u) => <Link to={`job/${u.job}`}>{u.job}</Link> },
    { id: "owner", name: "By", cell: (u) => <bdi>{u.owner}</bdi> },
    { id: "node", name: "On", cell: (u) => <Link to={`node/${u.node}`}>{u.node}</Link> },
    { id: "outside", name: "Premises", cell: (u) => (u.outside ? "outside" : "inside") },
    { id: "override", name: "Override", cell: (u) => u.override ?? "" },
  ];
  const shown = a.uses.some((u) => u.override) ? columns : columns.slice(0, -1);

  return (
    <>
      <p>
        <span className="faint">Did it ever leave the premises?</span> {a.answer}
        {a.complete ? "" : " Only the newest uses were examined."}
        {a.against > 0 && <span className={styles.against}> {count(a.against, "use")} broke its rule.</span>}
      </p>
      {a.uses.length > 0 && (
        <Table label={`Uses of ${name}`} columns={shown} rows={a.uses} id={(u) => `${u.run} ${u.node} ${u.at}`} />
      )}
      {a.uses.length < a.inside + a.outside && (
        <p className="faint">The newest {a.uses.length} of {a.inside + a.outside} uses are shown.</p>
      )}
    </>
  );
}
