import type { GPU, Node } from "../../api/client";
import { Link } from "../../route/link";
import { count, percent, time } from "../../ui/format";
import { sharesOn } from "../../ui/node";
import { ShareBar } from "../../ui/sharebar";
import { cappedOf, freeOf, memoryOf, modeOf, titleOf, troubleOf, type Share } from "../../ui/shares";
import { Table, type Column } from "../../ui/table";
import styles from "./node.module.css";

/** Shared is every GPU of a node that jobs share: what each was promised of it, and what it gets. */
export function Shared({ node: n, now }: { node: Node; now: number }) {
  const shared = n.gpus.filter((g) => g.shares);
  if (shared.length === 0) return null;

  return (
    <section aria-labelledby="shared">
      <h2 id="shared">Shared GPUs · {shared.length}</h2>
      {shared.map((g) => <Shares key={g.index} gpu={g} shares={sharesOn(n, g) ?? []} now={now} />)}
    </section>
  );
}

function Shares({ gpu: g, shares, now }: { gpu: GPU; shares: Share[]; now: number }) {
  const free = freeOf(shares);

  return (
    <div className={styles.shared}>
      <p>
        GPU {g.index} <span className="faint">{g.model}</span>: {count(shares.length, "job")},{" "}
        {free > 0 ? `${percent(free)} free` : "all of it is taken"}; {modeOf(shares)}.{" "}
        <span className="faint">Memory caps: {cappedOf(g)}.</span>
      </p>
      <ShareBar shares={shares} />
      <Table label={`Shares of GPU ${g.index}`} columns={columnsAt(now)} rows={shares} id={(s) => s.job} />
    </div>
  );
}

function columnsAt(now: number): Column<Share>[] {
  return [
    {
      id: "job", name: "Job", lead: true,
      cell: (s) => (
        <>
          <Link to={`job/${s.job}`}><bdi>{titleOf(s)}</bdi></Link>
          {troubleOf(s) !== "" && (
            <div className={styles.warning}>
              {troubleOf(s)}{s.use?.short_since && !s.use.bypassed ? ` since ${time(s.use.short_since, now)}` : ""}
            </div>
          )}
        </>
      ),
    },
    { id: "owner", name: "Owner", lead: true, cell: (s) => <bdi>{s.owner}</bdi> },
    { id: "share", name: "Share", figure: true, cell: (s) => percent(s.share) },
    { id: "gets", name: "Gets", figure: true, cell: (s) => (s.use ? percent(s.use.got) : "–") },
    { id: "wants", name: "Wants", figure: true, cell: (s) => (s.use ? percent(s.use.wanted) : "–") },
    { id: "memory", name: "Memory", figure: true, cell: memoryOf },
    { id: "class", name: "Class", cell: (s) => s.class },
    { id: "limit", name: "Limit", figure: true, cell: (s) => (s.limit === undefined ? "none" : percent(s.limit)) },
  ];
}
