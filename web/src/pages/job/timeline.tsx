import type { FeedEvent } from "../../api/client";
import { eventTail } from "../../api/queries/job";
import { dollars, time } from "../../ui/format";
import { Table, type Column } from "../../ui/table";
import { seconds, valueAt, type Table as Course } from "./course";
import styles from "./job.module.css";

/** An entry of the time line: an event, or several of the same kind one after the other. */
interface Entry {
  event: FeedEvent; // the newest
  times: number;
}

/** Timeline is what happened to a job, newest first, with the reasons and with what it had cost by then. */
export function Timeline({ events, cost, now }: { events: FeedEvent[]; cost: Course | undefined; now: number }) {
  const columns: Column<Entry>[] = [
    { id: "at", name: "When", cell: ({ event }) => <When at={event.at} now={now} />, lead: true },
    { id: "what", name: "What", cell: (e) => <What entry={e} />, lead: true },
    { id: "reason", name: "Reason", cell: ({ event }) => <span className={styles.words}>{event.reason ?? ""}</span> },
  ];
  if (cost) {
    columns.push({
      id: "cost",
      name: "Cost by then",
      figure: true,
      cell: ({ event }) => dollars(valueAt(cost, seconds(event.at)) ?? 0),
    });
  }

  return (
    <>
      <Table label="What happened" columns={columns} rows={entriesOf(events)} id={(e) => String(e.event.seq)} />
      {events.length >= eventTail && (
        <p className="faint">
          These are the newest {eventTail} events; the command <code>trainyard events</code> has all.
        </p>
      )}
    </>
  );
}

/** entriesOf puts the newest first, and what only repeats itself into one entry. */
function entriesOf(events: FeedEvent[]): Entry[] {
  const list: Entry[] = [];

  for (const event of events.toReversed()) {
    const last = list.at(-1);
    if (last && last.event.kind === event.kind && /checkpoint/.test(event.kind)) last.times++;
    else list.push({ event, times: 1 });
  }

  return list;
}

function When({ at, now }: { at: string; now: number }) {
  return <time dateTime={at} title={new Date(at).toLocaleString("en-GB")} className="faint">{time(at, now)}</time>;
}

function What({ entry: { event, times } }: { entry: Entry }) {
  const actor = /^(yard|node\/.*|)$/.test(event.actor) ? "" : ` by ${event.actor}`;

  return (
    <span className={styles.what} data-tone={toneOfEvent(event.kind)}>
      {wordsOf(event)}{times > 1 ? ` ×${times}` : ""}{actor}
    </span>
  );
}

/** Events of which the kind alone says little. */
const shareWords: Record<string, string> = {
  "share.short": "less than its GPU share",
  "share.denied": "out of its GPU memory",
  "share.bypassed": "not held to its GPU share",
};

/** An event in words: job.target_reached is "target reached", run.ended is "run j1.2 ended". */
function wordsOf(e: FeedEvent): string {
  const share = shareWords[e.kind];
  if (share) return share;

  const [noun = "", ...rest] = e.kind.split(".");
  const verb = rest.join(" ").replaceAll("_", " ");
  if (noun === "job") return verb === "pending" ? "queued" : verb;

  return noun === "run" && e.run ? `run ${e.run} ${verb}` : `${noun} ${verb}`;
}

function toneOfEvent(kind: string): string {
  if (/failed|lost|refused|timed_out|nan|not_number/.test(kind)) return "failed";
  if (/recovering|paus|stopping|held|slow|stalled|cancel|asked|move|^share/.test(kind)) return "attention";
  if (/succeeded|reached|checkpoint/.test(kind)) return "done";

  return /running|starting/.test(kind) ? "running" : "";
}
