import type { Schemas } from "../../api/client";
import type { SubmitReply } from "../../api/drafts";
import { dollars, time } from "../../ui/format";
import { Table, type Column } from "../../ui/table";
import styles from "./submit.module.css";

type Planned = Schemas["PlannedJob"];
type Option = Schemas["Option"];

/** Options shows where each job could run: when, until when and for how much, the one that would be chosen first. */
export function Options({ reply, now, old }: { reply: SubmitReply; now: number; old: boolean }) {
  const plan = reply.plan ?? [];

  return (
    <div className={old ? styles.old : undefined} aria-busy={old}>
      {plan.map((p, i) => (
        <div key={i} className={styles.plan}>
          {plan.length > 1 && (
            <h3><bdi>{p.name ?? `Job ${i + 1}`}</bdi> <span className="faint">{p.resources}</span></h3>
          )}
          <Job planned={p} now={now} label={`Options of ${p.name ?? `job ${i + 1}`}`} />
        </div>
      ))}
      {reply.notes?.map((n) => <p key={n} className={styles.note}>{n}</p>)}
    </div>
  );
}

function Job({ planned: p, now, label }: { planned: Planned; now: number; label: string }) {
  const options = p.options ?? [];
  const first = options[0];

  return (
    <>
      {p.why.blocker !== "none" && <p className={styles.waits}>{p.why.sentence}</p>}
      {first && <Table label={label} columns={columns(now)} rows={options} id={(o) => String(options.indexOf(o))} />}
      <p className="faint">{basisOf(p, first)}</p>
    </>
  );
}

/** What the figures are based on, or why there are none. */
function basisOf(p: Planned, first: Option | undefined): string {
  if (!first) return p.fit_count === 0 ? "No node could run it now." : `It fits on ${p.fits.join(", ")}.`;
  const basis = first.basis.replaceAll("`", "");
  if (first.guess) return `Run time unknown; planned by ${basis}. Say how long you expect it to take.`;

  return `Times based on ${basis}, with 80 % intervals.`;
}

function columns(now: number): Column<Option>[] {
  return [
    {
      id: "where",
      name: "Where",
      lead: true,
      cell: (o) => <><bdi>{o.what}</bdi> <span className="faint">{o.class}</span></>,
    },
    { id: "start", name: "Start", figure: true, cell: (o) => startOf(o, now) },
    { id: "finish", name: "Finish", figure: true, cell: (o) => finishOf(o, now) },
    { id: "cost", name: "Cost", figure: true, cell: costOf },
    { id: "why", name: "Why", cell: (o) => o.verdict },
  ];
}

/** isNow reports whether a start is so near that it is none to wait for. */
const isNow = (at: string, now: number): boolean => Date.parse(at) - now < 60_000;

function startOf(o: Option, now: number): string {
  return o.start === undefined || isNow(o.start, now) ? "now" : time(o.start, now);
}

function finishOf(o: Option, now: number) {
  if (o.finish === undefined || o.guess) return <span className="faint">unknown</span>;
  if (o.earliest === undefined || o.latest === undefined) return time(o.finish, now);

  return (
    <>
      {time(o.finish, now)} <span className="faint">({time(o.earliest, now)}–{time(o.latest, now)})</span>
    </>
  );
}

function costOf(o: Option) {
  if (o.unpriced) return <span className="faint">no price</span>;
  if (o.guess && o.cost > 0) return <span className="faint">unknown</span>;
  if (o.cost_most <= o.cost * 1.005) return dollars(o.cost);

  return <>{dollars(o.cost)} <span className="faint">(up to {dollars(o.cost_most)})</span></>;
}

/** sentenceOf says in a sentence what would happen. */
export function sentenceOf(reply: SubmitReply, now: number): string {
  const plan = reply.plan ?? [];
  const p = plan[0];
  if (!p) return "Submit a job";

  const name = plan.length > 1 ? `${plan.length} jobs: ${p.name ?? "the first"}` : (p.name ?? "The job");
  const o = p.options?.[0];
  const begins = o?.start ?? p.why.start;
  if (p.why.blocker !== "none" && begins === undefined) return `${name} would wait: ${p.why.sentence}`;

  const start = begins === undefined || isNow(begins, now) ? "now" : `about ${time(begins, now)}`;
  const where = o ? ` on ${o.what}` : "";
  const end = o?.finish !== undefined && !o.guess ? `, done about ${time(o.finish, now)}` : "";
  const cost = o && !o.unpriced && !o.guess && o.cost > 0 ? `, ${dollars(o.cost)}` : "";

  return `${name} would start ${start}${where}${end}${cost}`;
}
