import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { changeJob, editJob } from "../../api/actions";
import type { Job, JobDetail, Whoami } from "../../api/client";
import { job } from "../../api/queries";
import { Link } from "../../route/link";
import { useUser } from "../../shell/session";
import { hasEnded, nameOf } from "../../ui/job";
import { toneOf } from "../../ui/status";
import styles from "./job.module.css";

/** Why somebody may not change a job; "" if they may. The server decides; this keeps what is of no use off the page. */
function obstacle(who: Whoami, j: Pick<Job, "owner" | "project">): string {
  if (who.scope === "read") return "This session can only read: sign in with a token of scope submit to change jobs.";

  const leads = j.project !== undefined && who.leads?.includes(j.project);
  if (who.role === "admin" || who.user === j.owner || leads) return "";

  return `${j.owner}${j.project ? `, the leads of ${j.project}` : ""} and admins can change this job.`;
}

/** What can be done to a job. The effect shows at once with the answer; a refusal says why. */
export function Actions({ job: j }: { job: JobDetail }) {
  const who = useUser();
  const act = useChange(j, (verb: Parameters<typeof changeJob>[0]) => changeJob(verb, j.id));
  const why = obstacle(who, j);
  const clone = <Link to="submit" query={{ from: j.id }} className={styles.button}>Clone</Link>;

  if (hasEnded(j)) return <div className={styles.actions}>{clone}</div>;
  if (why !== "") return <div className={styles.actions}>{clone}<span className="faint">{why}</span></div>;

  const running = toneOf(j.status) === "running";
  const cancel = (verb: "cancel" | "kill") => {
    const warning = j.no_checkpoint && running ? " It saves no checkpoints: its work is lost." : "";
    if (confirm(`${verb === "kill" ? "Kill" : "Cancel"} ${j.id} ${nameOf(j)}?${warning}`)) act.mutate(verb);
  };
  const button = (name: string, onClick: () => void) => (
    <button key={name} disabled={act.isPending} onClick={onClick}>{name}</button>
  );

  return (
    <>
      <div className={styles.actions}>
        {clone}
        {running && !j.no_checkpoint && button("Save now", () => { act.mutate("save"); })}
        {j.state === "paused" && button("Resume", () => { act.mutate("resume"); })}
        {!["paused", "pausing", "cancelling"].includes(j.state) && button("Pause", () => { act.mutate("pause"); })}
        {j.state === "cancelling"
          ? button("Kill now", () => { cancel("kill"); })
          : button("Cancel job", () => { cancel("cancel"); })}
        {act.error && <p role="alert" className={styles.refused}>{act.error.message}</p>}
      </div>
      <Edit job={j} />
    </>
  );
}

/** A change of the job, whose answer is the job as it is now. */
function useChange<T>(j: JobDetail, change: (what: T) => Promise<Job>) {
  const cache = useQueryClient();

  return useMutation({
    mutationFn: change,
    onSuccess: (changed) => { cache.setQueryData(job(j.id).queryKey, (old) => old && { ...old, ...changed }); },
    onSettled: () =>
      Promise.all(["jobs", "job events"].map((resource) => cache.invalidateQueries({ queryKey: [resource] }))),
  });
}

/** ApplyRemedy makes the edit that a remedy of a waiting job stands for, if it is one. */
export function ApplyRemedy({ job: j, text }: { job: JobDetail; text: string }) {
  const who = useUser();
  const edit = useChange(j, (set: string[]) => editJob(j.id, set));
  const change = j.why?.changes?.find((c) => c.text === text);
  if (!change || obstacle(who, j) !== "") return null;

  return (
    <>
      <button disabled={edit.isPending} onClick={() => { edit.mutate(change.set); }}>
        Set {change.set.map(wordsOf).join(", ")}
      </button>
      {edit.error && <span role="alert" className={styles.refused}>{edit.error.message}</span>}
    </>
  );
}

/** A change of a job file in words: resources.gpus=2 is "gpus: 2"; without a value the field is removed. */
function wordsOf(change: string): string {
  return change.replace(/^resources\./, "").replace(/=$/, ": any").replace("=", ": ");
}

/** PauseHolder makes room: it pauses a job that holds what another one waits for. */
export function PauseHolder({ holder: h }: { holder: { job: string; owner: string } }) {
  const who = useUser();
  const cache = useQueryClient();
  const pause = useMutation({
    mutationFn: () => changeJob("pause", h.job),
    onSettled: () => cache.invalidateQueries({ queryKey: ["jobs"] }),
  });
  if (obstacle(who, { owner: h.owner }) !== "") return null;

  return (
    <>
      <button
        disabled={pause.isPending || pause.isSuccess}
        onClick={() => { if (confirm(`Pause ${h.job} of ${h.owner}, to make room?`)) pause.mutate(); }}
      >
        Pause {h.job}
      </button>
      {pause.error && <span role="alert" className={styles.refused}>{pause.error.message}</span>}
    </>
  );
}

const objectives = ["time", "balanced", "cost"];

/** Edit changes priority and objective, which can be while it does not run. */
function Edit({ job: j }: { job: JobDetail }) {
  const { objective = "balanced" } = (j.spec ?? {}) as { objective?: string };
  const [priority, setPriority] = useState(String(j.priority));
  const [goal, setGoal] = useState(objective);
  const save = useChange(j, (set: string[]) => editJob(j.id, set));

  if (!["pending", "recovering", "paused"].includes(j.state)) {
    return (
      <p className="faint">
        Priority {j.priority}, objective {objective}: they can be changed while it is queued or paused.
      </p>
    );
  }

  const changes: string[] = [];
  if (priority !== String(j.priority)) changes.push(`priority=${priority}`);
  if (goal !== objective) changes.push(`objective=${goal}`);

  return (
    <form
      className={styles.actions}
      aria-label="Priority and objective"
      onSubmit={(e) => {
        e.preventDefault();
        save.mutate(changes);
      }}
    >
      <label>
        Priority{" "}
        <input
          type="number" min={0} max={100} required value={priority}
          onChange={(e) => { setPriority(e.target.value); }}
        />
      </label>
      <label>
        Objective{" "}
        <select value={goal} onChange={(e) => { setGoal(e.target.value); }}>
          {objectives.map((o) => <option key={o}>{o}</option>)}
        </select>
      </label>
      <button disabled={save.isPending || changes.length === 0}>Apply</button>
      {save.error && <p role="alert" className={styles.refused}>{save.error.message}</p>}
    </form>
  );
}
