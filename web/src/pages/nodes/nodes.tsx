import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import type { Node } from "../../api/client";
import { allNodes, maxNodes } from "../../api/queries/yard";
import { Link } from "../../route/link";
import { useQueryString } from "../../route/route";
import { useUser } from "../../shell/session";
import { ago, bytesOf, count, dollars, duration, integer, size } from "../../ui/format";
import {
  Cells, celsius, classes, classOf, heatOf, isAway, kindsOf, NodeStatus, sharedOf, watts, wattsOf,
} from "../../ui/node";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Table, type Column } from "../../ui/table";
import { Join } from "./join";
import styles from "./nodes.module.css";
import { Shared } from "./shared";

/** Nodes answers what the yard has, what of it is free, who runs what, and what it costs. */
export function Nodes() {
  const [q, set] = useQueryString();
  const found = useQuery(allNodes);
  const now = useNow();
  const { role, scope } = useUser();
  const mayJoin = (role === "admin" || role === "operator") && scope === "admin";
  const list = found.data?.list;
  const address = q.toString();
  const shown = useMemo(() => {
    const byClass = (a: Node, b: Node) => classes.indexOf(a.class) - classes.indexOf(b.class);

    return (list ?? []).filter(matches(new URLSearchParams(address))).sort(byClass);
  }, [list, address]);
  const joins = q.has("join");

  return (
    <>
      <h1 className={styles.headline}>{list ? headline(list) : " "}</h1>
      {found.error && <ProblemNotice problem={found.error} onRetry={() => void found.refetch()} />}
      {found.isPending && <p className="faint" aria-busy="true">Loading…</p>}
      {list && list.length > 0 && <Classes list={list} />}
      {list && (
        <div className={styles.filters} role="group" aria-label="Filters">
          {list.length > 0 && <Filters list={list} />}
          {mayJoin && !joins && (
            <button className={styles.add} onClick={() => { set((s) => { s.set("join", "1"); }); }}>Add a node</button>
          )}
        </div>
      )}
      {joins && mayJoin && <Join onClose={() => { set((s) => { s.delete("join"); }); }} />}
      {list?.length === 0 && !joins && (
        <Notice title="No node has joined yet">
          <p>
            {mayJoin
              ? "Add one above: the page gives you one command to run on the machine."
              : "An operator or admin adds nodes, here or with trainyard tokens create --join."}
          </p>
        </Notice>
      )}
      {list && list.length > 0 && shown.length === 0 && (
        <Notice title="No node matches">
          <button onClick={() => { set(clearFilters); }}>Clear all filters</button>
        </Notice>
      )}
      {shown.length > 0 && (
        <Table label="Nodes" columns={columnsAt(now)} rows={shown} id={(n) => n.id} sortIn="sort" />
      )}
      <Shared list={shown} />
      {found.data?.more && <p className="faint">Only the first {integer(maxNodes)} nodes by name are shown.</p>}
    </>
  );
}

const filters = ["name", "class", "state", "gpu"];

const clearFilters = (s: URLSearchParams): void => { filters.forEach((f) => { s.delete(f); }); };

const modelsOf = (n: Node): string[] => [...new Set(n.gpus.map((g) => g.model))];

/** What is chosen in the address. */
function matches(q: URLSearchParams): (n: Node) => boolean {
  const [name, kind, state, gpu] = filters.map((f) => q.get(f) ?? "");

  return (n) =>
    (name === "" || n.id.includes(name ?? "")) &&
    (kind === "" || n.class === kind) &&
    (state === "" || n.state === state || (state === "cordoned" && n.cordoned) || (state === "away" && isAway(n))) &&
    (gpu === "" || modelsOf(n).includes(gpu ?? ""));
}

/** The page in one sentence. */
function headline(list: Node[]): string {
  if (list.length === 0) return "No nodes";

  const gpus = list.filter((n) => !isAway(n)).flatMap((n) => n.gpus);
  const number = (state: string) => gpus.filter((g) => g.state === state).length;
  const busy = `${integer(number("running"))} of ${count(gpus.length, "GPU")} busy${sharedOf(gpus)}`;
  const parts = [busy, `${integer(number("idle"))} idle`];
  if (number("foreign") > 0) parts.push(`${integer(number("foreign"))} used by others`);
  if (number("error") > 0) parts.push(`${integer(number("error"))} in error`);

  const away = list.filter(isAway).length;
  if (away > 0) parts.push(`${count(away, "node")} not reporting`);

  const paid = list.filter((n) => n.class === "ondemand").reduce((sum, n) => sum + (n.price?.hourly_usd ?? 0), 0);
  if (paid > 0) parts.push(`on demand ${dollars(paid)}/h`);

  return `${count(list.length, "node")}: ${parts.join(", ")}`;
}

/** The three classes side by side. */
function Classes({ list }: { list: Node[] }) {
  return (
    <ul className={styles.classes} aria-label="By class">
      {classes.map((name) => {
        const of = list.filter((n) => n.class === name);
        const gpus = of.flatMap((n) => n.gpus);
        const busy = gpus.filter((g) => g.state === "running").length;
        const sum = (value: (n: Node) => number | undefined) => of.reduce((total, n) => total + (value(n) ?? 0), 0);
        const tflops = sum((n) => n.tflops);
        const memory = gpus.reduce((total, g) => total + bytesOf(g.memory), 0);
        const power = sum(wattsOf);
        const hourly = sum((n) => n.price?.hourly_usd);
        const facts = [
          ...(tflops > 0 ? [`${integer(Math.round(tflops))} TFLOPS`] : []),
          ...(memory > 0 ? [`${size(memory)} GPU memory`] : []),
          ...(power > 0 ? [watts(power)] : []),
          ...(hourly > 0 ? [`${dollars(hourly)}/h`] : []),
        ];

        return (
          <li key={name}>
            <div className={styles.class}>{classOf(name)}</div>
            <div>
              {of.length === 0 ? <span className="faint">none</span> : (
                <>{count(of.length, "node")}, {integer(busy)}/{integer(gpus.length)} GPUs busy</>
              )}
            </div>
            <div className="faint">{facts.join(" · ")}</div>
          </li>
        );
      })}
    </ul>
  );
}

const stateChoices = [
  ["", "Any state"], ["running", "Running"], ["idle", "Idle"], ["foreign", "Used by others"], ["error", "Error"],
  ["away", "Not reporting"], ["cordoned", "Cordoned"],
] as const;

const sortChoices = [
  ["", "Class and name"], ["idle", "Idle longest"], ["-tflops", "Fastest"], ["-heat", "Hottest"],
  ["-price", "Most expensive"],
] as const;

function Filters({ list }: { list: Node[] }) {
  const [q, set] = useQueryString();
  const models = useMemo(() => [...new Set(list.flatMap(modelsOf))].sort(), [list]);
  const choose = (what: string) => (e: { target: { value: string } }) => {
    set((s) => { s.set(what, e.target.value); });
  };

  return (
    <>
      <input
        type="search"
        aria-label="Name contains"
        placeholder="Name contains"
        value={q.get("name") ?? ""}
        onChange={choose("name")}
      />
      <select aria-label="Class" value={q.get("class") ?? ""} onChange={choose("class")}>
        <option value="">Any class</option>
        {classes.map((c) => <option key={c} value={c}>{classOf(c)}</option>)}
      </select>
      <select aria-label="State" value={q.get("state") ?? ""} onChange={choose("state")}>
        {stateChoices.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
      </select>
      <select aria-label="GPU" value={q.get("gpu") ?? ""} onChange={choose("gpu")}>
        <option value="">Any GPU</option>
        {models.map((m) => <option key={m} value={m}>{m}</option>)}
      </select>
      <select aria-label="Order" value={q.get("sort") ?? ""} onChange={choose("sort")}>
        {sortChoices.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
        {!sortChoices.some(([value]) => value === (q.get("sort") ?? "")) && (
          <option value={q.get("sort") ?? ""}>As chosen in the table</option>
        )}
      </select>
    </>
  );
}

/** Far in the future: nodes that are not idle come last. */
const never = 1e15;

function columnsAt(now: number): Column<Node>[] {
  return [
    {
      id: "name", name: "Node", lead: true, sort: (n) => n.id,
      cell: (n) => <Link to={`node/${n.id}`}><bdi>{n.id}</bdi></Link>,
    },
    { id: "state", name: "State", lead: true, sort: (n) => n.state, cell: (n) => <NodeStatus node={n} /> },
    { id: "class", name: "Class", sort: (n) => classes.indexOf(n.class), cell: (n) => classOf(n.class) },
    { id: "gpus", name: "GPUs", sort: (n) => -n.gpus.length, cell: (n) => <Cells node={n} /> },
    { id: "kind", name: "Kind", sort: kindsOf, cell: kindsOf },
    {
      id: "tflops", name: "TFLOPS", figure: true, sort: (n) => n.tflops ?? 0,
      cell: (n) => (n.tflops ? integer(Math.round(n.tflops)) : "–"),
    },
    { id: "memory", name: "Memory free", figure: true, sort: (n) => bytesOf(n.memory_free), cell: memoryOf },
    { id: "watts", name: "Power", figure: true, sort: (n) => wattsOf(n) ?? 0, cell: (n) => watts(wattsOf(n)) },
    { id: "heat", name: "Hottest", figure: true, sort: (n) => heatOf(n) ?? 0, cell: (n) => celsius(heatOf(n)) },
    { id: "jobs", name: "Runs", sort: (n) => -n.jobs.length, cell: (n) => <Jobs node={n} /> },
    {
      id: "idle", name: "Since", figure: true, sort: (n) => (n.state === "idle" ? Date.parse(n.since) : never),
      cell: (n) => <span title={new Date(n.since).toLocaleString()}>{sinceOf(n, now)}</span>,
    },
    {
      id: "price", name: "Price", figure: true, sort: (n) => n.price?.hourly_usd ?? 0,
      cell: (n) => (n.price ? `${dollars(n.price.hourly_usd)}/h` : "–"),
    },
  ];
}

const memoryOf = (n: Node): string => `${size(bytesOf(n.memory_free))} of ${size(bytesOf(n.memory))}`;

/** Since when it is in its state. */
function sinceOf(n: Node, now: number): string {
  return n.state === "idle" ? `idle ${duration((now - Date.parse(n.since)) / 1000)}` : ago(n.since, now);
}

/** How many jobs of a node are named. */
const named = 3;

function Jobs({ node: n }: { node: Node }) {
  if (n.jobs.length === 0) return <span className="faint">nothing</span>;

  return (
    <span className={styles.jobs}>
      {n.jobs.slice(0, named).map((j, i) => <span key={j}>{i > 0 && ", "}<Link to={`job/${j}`}>{j}</Link></span>)}
      {n.jobs.length > named && ` and ${integer(n.jobs.length - named)} more`}
    </span>
  );
}
