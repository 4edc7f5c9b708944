import { useMutation, useQueryClient } from "@tanstack/react-query";

import { clearGPUError } from "../../api/actions/yard";
import type { GPU, Node } from "../../api/client";
import { node as nodeQuery } from "../../api/queries/yard";
import { Link } from "../../route/link";
import { useUser } from "../../shell/session";
import { bytesOf, integer, size, time } from "../../ui/format";
import { celsius, jobsOn, takenOf, watts } from "../../ui/node";
import { Table, type Column } from "../../ui/table";
import styles from "./node.module.css";

/** Who uses a GPU that the yard has not given them. */
const foreignOf = (g: GPU): string =>
  (g.foreign ?? []).map((p) => `${p.user ?? "unknown user"}: ${p.program ?? `process ${p.pid}`}`).join(", ");

/** GPUs is each device with what it does, what was read from it, and the evidence of its health. */
export function GPUs({ node: n, now }: { node: Node; now: number }) {
  const cache = useQueryClient();
  const { role, scope } = useUser();
  const mayClear = (role === "admin" || role === "operator") && scope === "admin";
  const clear = useMutation({
    mutationFn: (gpu: number) => clearGPUError(n.id, gpu),
    onSuccess: (changed) => { cache.setQueryData(nodeQuery(n.id).queryKey, changed); },
  });

  if (n.gpus.length === 0) return null;

  const sick = n.gpus.filter((g) => g.error ?? g.health).length;
  const columns: Column<GPU>[] = [
    { id: "gpu", name: "GPU", lead: true, cell: (g) => <>{g.index} <span className="faint">{g.model}</span></> },
    {
      id: "state", name: "State", lead: true,
      cell: (g) => (
        <span data-state={g.state} className={styles.gpu}>
          {g.state === "foreign" ? "used by others" : g.state}
          {g.since && <span className="faint"> since {time(g.since, now)}</span>}
        </span>
      ),
    },
    {
      id: "job", name: "Runs",
      cell: (g) => (g.state === "foreign" ? foreignOf(g) : (
        <span className={styles.jobs}>
          {jobsOn(n, g).map((j, i) => <span key={j}>{i > 0 && ", "}<Link to={`job/${j}`}>{j}</Link></span>)}
          {takenOf(n, g) > 0 && takenOf(n, g) < 1 && ` (${Math.round(takenOf(n, g) * 100)} % taken)`}
        </span>
      )),
    },
    {
      id: "busy", name: "Busy", figure: true,
      cell: (g) => (g.use?.busy === undefined ? "–" : `${Math.round(g.use.busy * 100)} %`),
    },
    {
      id: "memory", name: "Memory", figure: true,
      cell: (g) => (g.use?.memory ? `${size(bytesOf(g.use.memory))} of ` : "") + size(bytesOf(g.memory)),
    },
    { id: "watts", name: "Power", figure: true, cell: (g) => watts(g.use?.watts) },
    { id: "heat", name: "Temperature", figure: true, cell: (g) => celsius(g.use?.celsius) },
    {
      id: "tflops", name: "TFLOPS", figure: true,
      cell: (g) => (g.tflops === undefined ? "–" : (
        <>
          {integer(Math.round(g.tflops))} <span className="faint">{g.measured_tflops ? "measured" : "by model"}</span>
        </>
      )),
    },
    {
      id: "health", name: "Health",
      cell: (g) => (
        <>
          {g.error && <span className={styles.problem}>{g.error}</span>}
          {g.error && g.health && "; "}
          {g.health}
          {!g.error && !g.health && <span className="faint">nothing found</span>}
          {g.error && mayClear && (
            <button disabled={clear.isPending} onClick={() => { clear.mutate(g.index); }}>Return to service</button>
          )}
        </>
      ),
    },
  ];

  return (
    <section aria-labelledby="gpus">
      <h2 id="gpus">GPUs and their health{sick > 0 ? ` · ${sick} with findings` : ""}</h2>
      <Table label="GPUs" columns={columns} rows={n.gpus} id={(g) => String(g.index)} />
      {clear.error && <p role="alert" className={styles.problem}>{clear.error.message}</p>}
    </section>
  );
}
