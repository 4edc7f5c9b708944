import type { QueuedJob } from "../../api/client";
import { time } from "../../ui/format";
import styles from "./queue.module.css";
import { between, placeOf, ticksOf, timesOf, wordsOf, type Axis } from "./times";

/** A job on the common axis: how long it has waited, when it is expected to start, and how long it then runs. */
export function Bar({ job, axis, now, holders }: { job: QueuedJob; axis: Axis; now: number; holders: boolean }) {
  const t = timesOf(job, now);

  return (
    <div className={styles.bar} role="img" aria-label={wordsOf(t, now)}>
      <span className={styles.now} style={{ left: `${placeOf(axis, now)}%` }} />
      <span className={styles.waited} style={between(axis, t.queued, now)} />
      {t.start !== undefined && (
        <>
          <span className={styles.until} style={between(axis, now, t.start)} />
          <span className={styles.interval} style={between(axis, t.startLow, t.startHigh)} />
          <span className={styles.run} style={between(axis, t.start, t.end)} />
          <span className={styles.late} style={between(axis, t.end, t.latest)} />
        </>
      )}
      {holders && job.why.holders?.map((h) => h.until && (
        <span
          key={`${h.job} ${h.node}`}
          className={styles.frees}
          style={{ left: `${placeOf(axis, Date.parse(h.until))}%` }}
        />
      ))}
    </div>
  );
}

/** The axis with its times. */
export function AxisHead({ axis, now, narrow }: { axis: Axis; now: number; narrow: boolean }) {
  const place = placeOf(axis, now);
  const room = narrow ? 16 : 9; // that the words of a time need beside now, in percent
  const fits = (at: number) => Math.abs(at - place) > room && at < 100 - room / 2;

  return (
    <div className={styles.axis} aria-hidden="true">
      {ticksOf(axis, narrow ? 3 : 6)
        .filter((at) => fits(placeOf(axis, at)))
        .map((at) => <span key={at} style={{ left: `${placeOf(axis, at)}%` }}>{tick(at, axis, now)}</span>)}
      <span className={styles.today} style={{ left: `${place}%` }}>now</span>
    </div>
  );
}

/** A time at the axis; on an axis of days the hour says nothing. */
function tick(at: number, axis: Axis, now: number): string {
  if (axis.to - axis.from < 4 * 86_400_000) return time(at, now);

  return new Date(at).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}
