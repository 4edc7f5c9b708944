import type { QueuedJob, Schemas } from "../../api/client";
import { count, time } from "../../ui/format";
import styles from "./queue.module.css";

/** What somebody holds, and until when. */
export function holdOf(h: Schemas["Holder"], now: number): string {
  const what = h.gpus > 0 ? count(h.gpus, "GPU") : `${h.cpus} CPUs`;

  return `${what} on ${h.node} ${h.until ? `until about ${time(h.until, now)}` : "with no known end"}`;
}

/** Who holds what a job waits for: a note beside the row that is pointed at. The panel of the job has all of it. */
export function Holders({ why, now, above }: { why: QueuedJob["why"]; now: number; above: boolean }) {
  const holders = why.holders ?? [];

  return (
    <div id="holders" role="tooltip" className={styles.note} data-above={above}>
      <p>{why.sentence}</p>
      {holders.length > 0 && (
        <ul>
          {holders.map((h) => (
            <li key={`${h.job} ${h.node}`}>
              {h.job} of <bdi>{h.owner}</bdi> holds {holdOf(h, now)}
            </li>
          ))}
        </ul>
      )}
      {why.start && <p>Earliest start {time(why.start, now)}</p>}
    </div>
  );
}
