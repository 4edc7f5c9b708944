import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";

import { putQuota, removeQuota } from "../../api/actions/admin";
import type { Schemas } from "../../api/client";
import { quotas } from "../../api/queries/admin";
import { useUser } from "../../shell/session";
import { dollars, time } from "../../ui/format";
import { More } from "../../ui/more";
import { ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Table, type Column } from "../../ui/table";
import styles from "./admin.module.css";
import { Field, Form, Refusal, textOf, useAct } from "./form";

type Quota = Schemas["Quota"];
type Usage = Schemas["QuotaUsage"];
type Period = NonNullable<Schemas["QuotaRequest"]["period"]>;
type OnExceeded = NonNullable<Schemas["QuotaRequest"]["on_exceeded"]>;

const exceeded: Record<OnExceeded, string> = {
  ask: "ask the owner",
  warn: "warn only",
  downgrade: "cheaper nodes only",
  stop: "stop jobs",
};

/** What a subject is called: each/user stands for every user without a quota of their own. */
function subjectText(subject: string): string {
  const [kind, name] = subject.split("/", 2);

  return kind === "each" ? `every other ${name ?? ""}` : `${kind ?? ""} ${name ?? ""}`;
}

/** Limits are quotas and budgets, and what is used of them. */
export function Limits() {
  const who = useUser();
  const mayChange = who.role === "admin" && who.scope === "admin";
  const list = useInfiniteQuery(quotas);
  const put = useAct(({ subject, ...body }: Quota) => putQuota(subject, body), "quotas");
  const remove = useAct(removeQuota, "quotas");
  const [edited, setEdited] = useState("");

  if (list.error) return <ProblemNotice problem={list.error} onRetry={() => void list.refetch()} />;
  if (list.isPending) return <p className="faint" aria-busy="true">Loading…</p>;

  const limits = list.data.pages[0]?.quotas ?? [];
  const usage = list.data.pages.flatMap((p) => p.usage);

  const columns: Column<Quota>[] = [
    { id: "of", name: "For", lead: true, cell: (q) => <bdi>{subjectText(q.subject)}</bdi> },
    { id: "gpus", name: "GPUs at once", figure: true, cell: (q) => limitText(q.gpus, q.borrow ? ", may borrow" : "") },
    { id: "nodes", name: "On-demand nodes", figure: true, cell: (q) => limitText(q.nodes) },
    { id: "hours", name: "GPU-hours", figure: true, cell: (q) => limitText(q.gpu_hours, ` a ${q.period ?? "month"}`) },
    {
      id: "budget", name: "Budget", figure: true,
      cell: (q) => (q.budget ? `${q.budget} a ${q.period ?? "month"}` : <span className="faint">no limit</span>),
    },
    { id: "then", name: "When used up", cell: (q) => exceeded[q.on_exceeded ?? "ask"] },
  ];
  if (mayChange) {
    columns.push({
      id: "act", name: "", cell: (q) => (
        <span className={styles.actions}>
          <button aria-label={`Change the quota of ${q.subject}`} onClick={() => { setEdited(q.subject); }}>
            Change
          </button>
          <button
            aria-label={`Remove the quota of ${q.subject}`}
            disabled={remove.isPending}
            onClick={() => { if (confirm(`Remove the quota of ${q.subject}?`)) remove.mutate(q.subject); }}
          >
            Remove
          </button>
        </span>
      ),
    });
  }

  return (
    <>
      {mayChange
        ? (
          <Edit
            key={edited}
            quota={limits.find((q) => q.subject === edited)}
            busy={put.isPending}
            put={put}
            onDone={() => { setEdited(""); }}
          />
        )
        : <p className="faint">You see the quotas that apply to you. Admins change them.</p>}
      <Refusal problem={remove.error} />
      {limits.length === 0
        ? <p>No quota is set: nobody is limited.</p>
        : <Table label="Quotas" columns={columns} rows={limits} id={(q) => q.subject} />}
      <h2>Used now</h2>
      {list.data.pages[0]?.no_tariff && (
        <p className="faint">The server has no tariff: what local and reserved nodes cost is unknown, not nothing.</p>
      )}
      {usage.length === 0
        ? <p className="faint">Nobody with a quota has used anything yet.</p>
        : <UsageTable usage={usage} />}
      <More list={list} />
    </>
  );
}

function limitText(limit: number | undefined, more = "") {
  return limit === undefined || limit === 0 ? <span className="faint">no limit</span> : `${limit}${more}`;
}

/** Edit sets a quota, a new one or the one that was chosen. */
function Edit({ quota: q, busy, put, onDone }: {
  quota: Quota | undefined;
  busy: boolean;
  put: ReturnType<typeof useAct<Quota, Quota>>;
  onDone: () => void;
}) {
  const [kind, name] = (q?.subject ?? "user/").split("/", 2);
  const number = (f: FormData, of: string) => (textOf(f, of) === "" ? {} : { [of]: Number(textOf(f, of)) });
  const submit = async (f: FormData) => {
    const subject = `${textOf(f, "kind")}/${textOf(f, "name")}`;
    const budget = textOf(f, "budget");
    await put.mutateAsync({
      subject,
      ...number(f, "gpus"),
      ...number(f, "nodes"),
      ...number(f, "gpu_hours"),
      ...(budget === "" ? {} : { budget: budget.startsWith("$") ? budget : `$${budget}` }),
      period: textOf(f, "period") as Period,
      on_exceeded: textOf(f, "on_exceeded") as OnExceeded,
      borrow: f.has("borrow"),
      ...(q?.warn_at === undefined ? {} : { warn_at: q.warn_at }),
    });
    onDone();
  };

  return (
    <Form
      title={q ? `Change the quota of ${subjectText(q.subject)}` : "Set a quota"}
      action="Set"
      busy={busy}
      problem={put.error}
      onSubmit={submit}
      startOpen={q !== undefined}
    >
      <Field label="For">
        <select name="kind" defaultValue={kind}>
          <option value="user">user</option>
          <option value="project">project</option>
          <option value="each">every other …</option>
        </select>
      </Field>
      <Field label="Name" hint="user or project after “every other”">
        <input name="name" defaultValue={name} required maxLength={63} autoComplete="off" />
      </Field>
      <Field label="GPUs at once" hint="empty for no limit">
        <input name="gpus" type="number" min={0} defaultValue={q?.gpus} />
      </Field>
      <Field label="On-demand nodes at once">
        <input name="nodes" type="number" min={0} defaultValue={q?.nodes} />
      </Field>
      <Field label="GPU-hours a period">
        <input name="gpu_hours" type="number" min={0} step="any" defaultValue={q?.gpu_hours} />
      </Field>
      <Field label="Budget a period" hint="e.g. $200">
        <input name="budget" defaultValue={q?.budget} maxLength={20} />
      </Field>
      <Field label="Period">
        <select name="period" defaultValue={q?.period ?? "month"}>
          {["day", "week", "month"].map((p) => <option key={p}>{p}</option>)}
        </select>
      </Field>
      <Field label="When used up">
        <select name="on_exceeded" defaultValue={q?.on_exceeded ?? "ask"}>
          {Object.entries(exceeded).map(([value, text]) => <option key={value} value={value}>{text}</option>)}
        </select>
      </Field>
      <label className={styles.check}>
        <input name="borrow" type="checkbox" defaultChecked={q?.borrow} /> may borrow idle GPUs beyond the limit
      </label>
    </Form>
  );
}

function UsageTable({ usage }: { usage: Usage[] }) {
  const now = useNow();
  const columns: Column<Usage>[] = [
    { id: "of", name: "Who", lead: true, sort: (u) => u.subject, cell: (u) => <bdi>{subjectText(u.subject)}</bdi> },
    { id: "gpus", name: "GPUs now", figure: true, sort: (u) => u.gpus, cell: (u) => Number(u.gpus.toFixed(2)) },
    {
      id: "hours", name: "GPU-hours", figure: true, sort: (u) => u.gpu_hours.used,
      cell: (u) => <PeriodCell of={u.gpu_hours} write={(v) => v.toFixed(1)} now={now} />,
    },
    {
      id: "cost", name: "Cost", figure: true, sort: (u) => u.cost_usd.used,
      cell: (u) => <PeriodCell of={u.cost_usd} write={dollars} now={now} />,
    },
    { id: "ends", name: "Resets", sort: (u) => u.ends, cell: (u) => time(u.ends, now) },
  ];

  return <Table label="Usage of quotas" columns={columns} rows={usage} id={(u) => u.subject} sortIn="sort" />;
}

/** What is used in a period, of how much, and where it will end. */
function PeriodCell({ of: p, write, now }: {
  of: Schemas["PeriodUsage"];
  write: (v: number) => string;
  now: number;
}) {
  const limit = p.limit !== undefined && p.limit > 0 ? ` of ${write(p.limit)}` : "";

  return (
    <>
      {write(p.used)}{limit}
      {p.used_up
        ? <span className={styles.off}> used up {time(p.used_up, now)}</span>
        : p.expected > p.used && <span className="faint"> → {write(p.expected)}</span>}
    </>
  );
}
