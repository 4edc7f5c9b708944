import { useQuery } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { readiness, retention, serverInfo } from "../../api/queries/admin";
import { Fact, Facts } from "../../ui/facts";
import { ago, bytesOf, count, size, time } from "../../ui/format";
import { ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Table, type Column } from "../../ui/table";
import styles from "./admin.module.css";

type Share = Schemas["RetentionShare"];

/** Server is how the server is, what it keeps, for how long, and how much that is. */
export function Server() {
  const info = useQuery(serverInfo);
  const ready = useQuery(readiness);
  const kept = useQuery(retention);
  const now = useNow();

  return (
    <div className={styles.split}>
      <div>
        <h2>Health</h2>
        {info.error && <ProblemNotice problem={info.error} />}
        <Facts>
          {ready.data && (
            <Fact name="State">
              {ready.data.ready ? "ready" : <span className={styles.off}>not ready: {ready.data.text}</span>}
            </Fact>
          )}
          {info.data && (
            <>
              <Fact name="Version">{info.data.version}</Fact>
              <Fact name="Started">{time(info.data.started, now)}, {ago(info.data.started, now)}</Fact>
              <Fact name="Store">{info.data.store === "postgres" ? "PostgreSQL" : "SQLite"}</Fact>
              <Fact name="CA"><code>{info.data.ca_hash}</code></Fact>
            </>
          )}
          {kept.data?.disks?.map((d) => <Disk key={d.path} disk={d} />)}
        </Facts>
        <p className="faint">Machines are checked by <code>trainyard doctor</code>, run there.</p>
      </div>
      <div>
        <h2>Kept</h2>
        {kept.error && <ProblemNotice problem={kept.error} onRetry={() => void kept.refetch()} />}
        {kept.data && <Limits limits={kept.data.limits} />}
      </div>
      <div className={styles.wide}>
        {kept.data && <Collected of={kept.data} now={now} />}
      </div>
    </div>
  );
}

function Disk({ disk: d }: { disk: Schemas["Disk"] }) {
  const low = bytesOf(d.free) <= bytesOf(d.reserve);

  return (
    <Fact name="Disk">
      <code>{d.path}</code>: {size(bytesOf(d.free))} free of {size(bytesOf(d.total))}
      {low
        ? <span className={styles.off}>, uploads are refused below {size(bytesOf(d.reserve))}</span>
        : <span className="faint">, of which uploads leave {size(bytesOf(d.reserve))}</span>}
    </Fact>
  );
}

/** A length of time after which something is removed. */
const forHowLong = (t: string | undefined): string => (t === undefined || t === "0s" || t === "" ? "for ever" : t);

const most = (room: string | undefined, of = ""): string =>
  bytesOf(room) === 0 ? "" : `, at most ${size(bytesOf(room))}${of}`;

function Limits({ limits: l }: { limits: Schemas["RetentionLimits"] }) {
  return (
    <Facts>
      <Fact name="Jobs">{forHowLong(l.jobs)} after their end</Fact>
      <Fact name="Output">
        {forHowLong(l.output)}{most(l.max_output, " for each user")}{most(l.max_all_output, " for all")}
      </Fact>
      <Fact name="Checkpoints">{forHowLong(l.checkpoints)}{most(l.max_checkpoints)}</Fact>
      <Fact name="Output files">{forHowLong(l.output_files)}{most(l.max_output_files, " for each user")}</Fact>
      <Fact name="Workdirs">{forHowLong(l.workdirs)}</Fact>
      <Fact name="Events">{forHowLong(l.events)}</Fact>
      <Fact name="Usage">by job and hour {forHowLong(l.postings)}</Fact>
      <Fact name="Unused">blobs that nothing refers to {forHowLong(l.unused)}</Fact>
    </Facts>
  );
}

function Collected({ of: r, now }: { of: Schemas["Retention"]; now: number }) {
  const columns: Column<Share>[] = [
    { id: "user", name: "User", lead: true, sort: (s) => s.user, cell: (s) => <bdi>{s.user}</bdi> },
    { id: "jobs", name: "Jobs", figure: true, sort: (s) => s.jobs, cell: (s) => s.jobs },
    {
      id: "output", name: "Output", figure: true, sort: (s) => bytesOf(s.output),
      cell: (s) => size(bytesOf(s.output)),
    },
    {
      id: "saved", name: "Checkpoints", figure: true, sort: (s) => bytesOf(s.checkpoints),
      cell: (s) => size(bytesOf(s.checkpoints)),
    },
    {
      id: "files", name: "Output files", figure: true, sort: (s) => bytesOf(s.output_files),
      cell: (s) => size(bytesOf(s.output_files)),
    },
  ];
  const c = r.collected;

  return (
    <>
      <h2>Collection</h2>
      {c
        ? (
          <p>
            {ago(c.at, now) === "now" ? "Just now" : ago(c.at, now)} the server removed{" "}
            {c.removed ? c.removed : "nothing"} and kept {count(c.jobs, "job")},{" "}
            {size(bytesOf(c.files.bytes))} of working directories, {size(bytesOf(c.chunks.bytes))} of checkpoints and
            output files, {size(bytesOf(c.output.bytes))} of output.
            {c.failure && <span className={styles.off}> It was not completed: {c.failure}</span>}
          </p>
        )
        : (
          <p className="faint">
            Nothing was collected since the server started, or it is not shown to you: operators and admins see it.
          </p>
        )}
      {r.users.length > 0 && (
        <Table label="Kept by user" columns={columns} rows={r.users} id={(s) => s.user} sortIn="sort" />
      )}
    </>
  );
}
