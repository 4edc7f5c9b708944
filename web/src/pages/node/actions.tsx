import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { changeNode, removeNode, type NodeVerb } from "../../api/actions/yard";
import type { Job, Node } from "../../api/client";
import { jobs } from "../../api/queries";
import { node as nodeQuery } from "../../api/queries/yard";
import { go, hrefOf } from "../../route/route";
import { useUser } from "../../shell/session";
import { Confirm } from "../../ui/confirm";
import { count } from "../../ui/format";
import { nameOf } from "../../ui/job";
import styles from "./node.module.css";

/** Actions is what can be done to a node. What stops jobs says so before. */
export function Actions({ node: n }: { node: Node }) {
  const { role, scope } = useUser();
  const cache = useQueryClient();
  const [asks, setAsks] = useState<"" | "drain" | "remove">("");
  const [force, setForce] = useState(false);
  const settled = () => cache.invalidateQueries({ queryKey: ["nodes"] });
  const change = useMutation({
    mutationFn: (verb: NodeVerb) => changeNode(verb, n.id),
    onSuccess: (changed) => {
      cache.setQueryData(nodeQuery(n.id).queryKey, changed);
      setAsks("");
    },
    onSettled: settled,
  });
  const remove = useMutation({
    mutationFn: () => removeNode(n.id, force),
    onSuccess: () => {
      go(hrefOf("nodes"));
      void settled();
    },
  });

  if (role !== "admin" && role !== "operator") return null;
  if (scope !== "admin") {
    return <p className="faint">To cordon, drain or remove it, sign in with a token of scope admin.</p>;
  }

  const busy = change.isPending || remove.isPending;

  return (
    <div className={styles.actions}>
      {n.cordoned
        ? <button disabled={busy} onClick={() => { change.mutate("uncordon"); }}>Resume scheduling</button>
        : <button disabled={busy} onClick={() => { change.mutate("cordon"); }}>Cordon</button>}
      {(n.jobs.length > 0 || !n.cordoned) && (
        <button disabled={busy} onClick={() => { change.reset(); setAsks("drain"); }}>Drain</button>
      )}
      <button disabled={busy} onClick={() => { remove.reset(); setForce(false); setAsks("remove"); }}>Remove</button>
      {n.cordoned && n.jobs.length > 0 && (
        <span className="faint">No new jobs are placed here; {count(n.jobs.length, "job")} still on it.</span>
      )}
      {asks === "" && change.error && <p role="alert" className={styles.problem}>{change.error.message}</p>}
      {asks === "drain" && (
        <Confirm
          title={`Drain ${n.id}?`}
          action="Drain"
          busy={busy}
          problem={change.error}
          onConfirm={() => { change.mutate("drain"); }}
          onClose={() => { setAsks(""); }}
        >
          <p>No new jobs are placed here until scheduling is resumed.</p>
          <Stopped node={n} how="stopped and queued again, to run elsewhere or here later" />
        </Confirm>
      )}
      {asks === "remove" && (
        <Confirm
          title={`Remove ${n.id}?`}
          action="Remove"
          busy={busy}
          problem={remove.error}
          onConfirm={() => { remove.mutate(); }}
          onClose={() => { setAsks(""); }}
        >
          <p>It leaves the yard for good: its certificate is not accepted any more. To come back it must join again.</p>
          {n.jobs.length > 0 && (
            <>
              <Stopped node={n} how="declared lost and queued again" />
              <label className={styles.check}>
                <input type="checkbox" checked={force} onChange={(e) => { setForce(e.target.checked); }} />
                Remove it although jobs run on it
              </label>
            </>
          )}
        </Confirm>
      )}
    </div>
  );
}

/** Which jobs an action stops, and which of them lose their work. */
function Stopped({ node: n, how }: { node: Node; how: string }) {
  const found = useQuery(jobs({ node: n.id, state: ["starting", "running", "pausing", "cancelling"] }, "", 50));
  if (n.jobs.length === 0) return <p>Nothing runs on it.</p>;

  const known = new Map<string, Job>(found.data?.jobs.map((j) => [j.id, j]));

  return (
    <>
      <p>{n.jobs.length === 1 ? "This job is" : `These ${n.jobs.length} jobs are`} {how}:</p>
      <ul>
        {n.jobs.slice(0, 20).map((id) => {
          const j = known.get(id);

          return (
            <li key={id}>
              {id} {j && <><bdi>{nameOf(j)}</bdi> of <bdi>{j.owner}</bdi></>}
              {j?.no_checkpoint && <span className={styles.problem}>: saves no checkpoints, its work is lost</span>}
            </li>
          );
        })}
      </ul>
      {n.jobs.length > 20 && <p>and {n.jobs.length - 20} more</p>}
    </>
  );
}
