import { useState } from "react";

import type { Schemas } from "../../api/client";
import { Link } from "../../route/link";
import { count, duration, time } from "../../ui/format";
import { useNow } from "../../ui/now";
import { Table, type Column } from "../../ui/table";
import styles from "./whatif.module.css";

type Row = Schemas["WhatIfJob"];
type End = Schemas["WhatIfEnd"];

/** How many jobs are shown at first. */
const few = 25;

/** JobTable says of each job when it starts and ends. */
export function JobTable({ list, now: begin, jobs, changed }: {
  list: Row[];
  now: string;
  jobs: number;
  changed: boolean;
}) {
  const now = useNow();
  const [all, setAll] = useState(false);
  const at = (seconds: number) => time(Date.parse(begin) + 1000 * seconds, now);
  const end = (e: End) => (e.end ? (
    <span title={`${at(e.end.low)} – ${at(e.end.high)}`}>{at(e.end.mid)}</span>
  ) : <span className="faint">not in 30 days</span>);
  const start = (j: Row, e: End) => {
    if (e.start === undefined) return <span className="faint">{e.end && !waits(j) ? "runs" : "never"}</span>;

    return e.start < 1 ? "now" : at(e.start);
  };

  const columns: Column<Row>[] = [
    {
      id: "job", name: "Job", lead: true, sort: (j) => Number(j.job.slice(1)),
      cell: (j) => <Link to={`job/${j.job}`} className={styles.name}>{j.job} <bdi>{j.name}</bdi></Link>,
    },
    { id: "owner", name: "Owner", sort: (j) => j.owner, cell: (j) => <bdi>{j.owner}</bdi> },
    { id: "basis", name: "Run time from", sort: (j) => j.basis, cell: (j) => j.basis.replace("_", " ") },
    { id: "start", name: "Start", figure: true, sort: (j) => j.today.start ?? -1, cell: (j) => start(j, j.today) },
    { id: "end", name: "End", figure: true, sort: (j) => j.today.end?.mid ?? Infinity, cell: (j) => end(j.today) },
  ];

  if (changed) {
    columns.push(
      {
        id: "start2", name: "Start then", figure: true, sort: (j) => j.then.start ?? -1,
        cell: (j) => start(j, j.then),
      },
      {
        id: "end2", name: "End then", figure: true, sort: (j) => j.then.end?.mid ?? Infinity,
        cell: (j) => end(j.then),
      },
      { id: "sooner", name: "Ends", figure: true, sort: soonerBy, cell: (j) => <Sooner by={soonerBy(j)} /> },
    );
  }

  return (
    <>
      <h2>Jobs</h2>
      <Table label="Jobs" columns={columns} rows={all ? list : list.slice(0, few)} id={(j) => j.job} sortIn="sort" />
      {!all && list.length > few && (
        <p><button onClick={() => { setAll(true); }}>Show all {count(list.length, "job")}</button></p>
      )}
      {all && jobs > list.length && <p className="faint">The first {list.length} of {jobs} jobs are listed.</p>}
    </>
  );
}

const waits = (j: Row): boolean => j.state === "pending" || j.state === "recovering";

/** By how many seconds a job ends sooner; infinite if it ends in one case only, 0 if in neither. */
function soonerBy(j: Row): number {
  if (!j.today.end && !j.then.end) return 0;

  return (j.today.end?.mid ?? Infinity) - (j.then.end?.mid ?? Infinity);
}

function Sooner({ by }: { by: number }) {
  if (by === Infinity) return <span className={styles.better}>at all</span>;
  if (by === -Infinity) return <span className={styles.worse}>never</span>;
  if (Math.abs(by) < 1) return <span className="faint">same</span>;

  return by > 0
    ? <span className={styles.better}>{duration(by)} sooner</span>
    : <span className={styles.worse}>{duration(-by)} later</span>;
}
