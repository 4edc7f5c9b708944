import { useMutation, useQueryClient } from "@tanstack/react-query";

import { changeJobs, type Verb } from "../../api/actions";
import { Link } from "../../route/link";
import { count } from "../../ui/format";
import styles from "./jobs.module.css";

const past: Record<Verb, string> = { cancel: "cancelled", pause: "paused", resume: "resumed" };

/** More curves than these cannot be told apart on one plot. */
const maxCompared = 12;

/** Bulk changes all jobs that are selected, and says what became of it. */
export function Bulk({ selected, onClear }: { selected: ReadonlySet<string>; onClear: () => void }) {
  const cache = useQueryClient();
  const act = useMutation({
    mutationFn: (verb: Verb) => changeJobs(verb, [...selected]),
    onSuccess: onClear,
    onSettled: () => cache.invalidateQueries({ queryKey: ["jobs"] }),
  });

  const run = (verb: Verb) => {
    if (verb === "cancel" && !confirm(`Cancel ${count(selected.size, "job")}?`)) return;

    act.mutate(verb);
  };

  return (
    <div className={styles.bulk} role="group" aria-label="Selected jobs">
      {selected.size > 0 && (
        <>
          <span>{count(selected.size, "job")} selected</span>
          <button disabled={act.isPending} onClick={() => { run("pause"); }}>Pause</button>
          <button disabled={act.isPending} onClick={() => { run("resume"); }}>Resume</button>
          <button disabled={act.isPending} onClick={() => { run("cancel"); }}>Cancel jobs</button>
          {selected.size > 1 && selected.size <= maxCompared && (
            <Link to={`compare?${[...selected].map((id) => `job=${id}`).join("&")}`}>Compare</Link>
          )}
          <button disabled={act.isPending} onClick={onClear}>Clear selection</button>
        </>
      )}
      <span role="status">
        {act.isPending && `Working on ${count(selected.size, "job")}…`}
        {act.data && selected.size === 0 && (
          <>
            {count(act.data.changed, "job")} {past[act.variables]}
            {act.data.refused.length > 0 && (
              <span className={styles.refused}>
                , {act.data.refused.length} not: {[...new Set(act.data.refused)].slice(0, 3).join("; ")}
              </span>
            )}
          </>
        )}
      </span>
    </div>
  );
}
