import type { GPU, Node } from "../../api/client";
import { Link } from "../../route/link";
import { percent } from "../../ui/format";
import { sharesOn } from "../../ui/node";
import { ShareBar, Sharers } from "../../ui/sharebar";
import { cappedOf, freeOf, modeOf, type Share } from "../../ui/shares";
import { Table, type Column } from "../../ui/table";
import styles from "./nodes.module.css";

/** A GPU that is shared, and its node. */
interface Row {
  node: Node;
  gpu: GPU;
  shares: Share[];
}

/** Shared is every GPU that jobs share: who has how much of it, and what is left. */
export function Shared({ list }: { list: Node[] }) {
  const rows = list.flatMap((node) =>
    node.gpus.flatMap((gpu) => {
      const shares = sharesOn(node, gpu);

      return shares ? [{ node, gpu, shares }] : [];
    }));
  if (rows.length === 0) return null;

  return (
    <section aria-labelledby="shared">
      <h2 id="shared">Shared GPUs · {rows.length}</h2>
      <Table label="Shared GPUs" columns={columns} rows={rows} id={(r) => `${r.node.id} ${r.gpu.index}`} />
    </section>
  );
}

const columns: Column<Row>[] = [
  {
    id: "gpu", name: "GPU", lead: true,
    cell: (r) => (
      <span className={styles.gpu}>
        <Link to={`node/${r.node.id}`}><bdi>{r.node.id}</bdi> GPU {r.gpu.index}</Link>{" "}
        <span className="faint">{r.gpu.model}</span>
      </span>
    ),
  },
  {
    id: "shares", name: "Shares", lead: true,
    cell: (r) => (
      <div className={styles.shares}>
        <ShareBar shares={r.shares} />
        <Sharers shares={r.shares} />
      </div>
    ),
  },
  { id: "free", name: "Free", figure: true, cell: (r) => percent(freeOf(r.shares)) },
  { id: "memory", name: "Memory caps", figure: true, cell: (r) => cappedOf(r.gpu) },
  { id: "mode", name: "Divided", cell: (r) => <span className={styles.mode}>{modeOf(r.shares)}</span> },
];
