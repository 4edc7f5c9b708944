import { useQuery } from "@tanstack/react-query";

import type { Node } from "../../api/client";
import { node as nodeQuery } from "../../api/queries/yard";
import { Link } from "../../route/link";
import { Fact, Facts } from "../../ui/facts";
import { bytesOf, count, dollars, duration, integer, size, time } from "../../ui/format";
import {
  Cells, celsius, classOf, heatOf, isAway, kindsOf, NodeStatus, stateOf, watts, wattsOf,
} from "../../ui/node";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Actions } from "./actions";
import { Day } from "./day";
import { GPUs } from "./gpus";
import { History } from "./history";
import { Lease } from "./lease";
import styles from "./node.module.css";
import { Shared } from "./shared";

/** NodePage shows one node: what it is and does, its last day, its health, and what can be done to it. */
export function NodePage({ rest: name }: { rest: string }) {
  const found = useQuery({ ...nodeQuery(name), enabled: name !== "", retry: false });
  const now = useNow();

  if (name === "") return <Notice title="No node is named in the address"><Link to="nodes">All nodes</Link></Notice>;
  if (found.error?.status === 404) {
    return (
      <Notice title={`Node ${name} not found`}>
        <p>It has not joined, or was removed. <Link to="nodes">All nodes</Link></p>
      </Notice>
    );
  }

  const n = found.data;

  return (
    <>
      <p className={styles.back}><Link to="nodes">Nodes</Link> /</p>
      <h1 className={styles.headline}>{n ? headline(n, now) : name}</h1>
      {found.error && <ProblemNotice problem={found.error} onRetry={() => void found.refetch()} />}
      {found.isPending && <p className="faint" aria-busy="true">Loading…</p>}
      {n && (
        <>
          {isUnusual(n) && <p className={styles.reason}>{n.reason}</p>}
          {n.problem && <p className={styles.problem}>{n.problem.reason}</p>}
          {n.warnings?.map((w) => <p key={w.reason} className={styles.warning}>{w.reason}</p>)}
          <Actions node={n} />
          <div className={styles.split}>
            <div className={styles.main}>
              <Shared node={n} now={now} />
              <Day node={n} now={now} />
              <GPUs node={n} now={now} />
              <History node={n} now={now} />
            </div>
            <aside aria-label="Facts">
              {n.lease && <Lease id={n.lease.id} now={now} />}
              <About node={n} now={now} />
            </aside>
          </div>
        </>
      )}
    </>
  );
}

/** Whether there is more to say of its state than the word for it. */
const isUnusual = (n: Node): boolean => n.cordoned || isAway(n) || n.state === "error" || n.reserved !== undefined;

/** The page in one sentence. */
function headline(n: Node, now: number): string {
  const since = `for ${duration((now - Date.parse(n.since)) / 1000)}`;
  const seen = n.last_seen ? `; last seen ${time(n.last_seen, now)}` : "";
  if (isAway(n)) return `${n.id} is ${stateOf(n)} ${since}${seen}`;

  const busy = n.gpus.filter((g) => g.state === "running").length;
  const gpus = n.gpus.length === 0 ? "" : ` on ${integer(busy)} of ${count(n.gpus.length, "GPU")}`;
  const state = n.state === "error" ? "in error" : stateOf(n);
  const runs = n.jobs.length === 0 ? `is ${state} ${since}` : `runs ${count(n.jobs.length, "job")}${gpus}`;
  const price = n.price ? `; ${dollars(busy > 0 ? n.price.hourly_usd : n.price.idle_usd)}/h` : "";

  return `${n.id} ${runs}${n.cordoned && n.jobs.length > 0 ? ", cordoned" : ""}${price}`;
}

function About({ node: n, now }: { node: Node; now: number }) {
  const heat = heatOf(n);

  return (
    <Facts>
      <Fact name="State"><NodeStatus node={n} /> <span className="faint">since {time(n.since, now)}</span></Fact>
      {n.activity && <Fact name="Activity">{n.activity}</Fact>}
      <Fact name="Class">{classOf(n.class)}{n.pool ? `, pool ${n.pool}` : ""}</Fact>
      {n.labels && n.labels.length > 0 && <Fact name="Labels">{n.labels.join(", ")}</Fact>}
      <Fact name="GPUs"><Cells node={n} /> {kindsOf(n)}</Fact>
      {n.tflops !== undefined && (
        <Fact name="TFLOPS">
          {integer(Math.round(n.tflops))}{n.tflops_origin ? ` (${originOf(n.tflops_origin)})` : ""}
        </Fact>
      )}
      <Fact name="Power">
        {wattsOf(n) === undefined ? "not measured" : watts(wattsOf(n))}
        {n.power_limit_w ? `; the limit is ${watts(n.power_limit_w)}` : ""}
      </Fact>
      {n.gpus.length > 0 && (
        <Fact name="Temperature">{heat === undefined ? "not measured" : `${celsius(heat)}, the hottest GPU`}</Fact>
      )}
      <Fact name="Price">
        {n.price ? (
          <>
            {dollars(n.price.hourly_usd)}/h: node {dollars(n.price.node_cost_usd)}, energy{" "}
            {dollars(n.price.energy_cost_usd)}; idle {dollars(n.price.idle_usd)}/h
          </>
        ) : "unknown: the yard has no tariff for it"}
      </Fact>
      <Fact name="CPUs">{n.cpus_free} of {n.cpus} free</Fact>
      <Fact name="Memory">{size(bytesOf(n.memory_free))} of {size(bytesOf(n.memory))} free</Fact>
      <Fact name="Disk">{size(bytesOf(n.disk))}</Fact>
      {n.reserved && <Fact name="Reserved">for <bdi>{n.reserved.user}</bdi> until {time(n.reserved.until, now)}</Fact>}
      {n.tenant && <Fact name="Dedicated">to <bdi>{n.tenant}</bdi> until it is empty</Fact>}
      <Fact name="System">{n.os} {n.arch}</Fact>
      <Fact name="Address">{n.address}</Fact>
      <Fact name="Agent">{n.version}</Fact>
      {n.isolation && <Fact name="Isolation">{n.isolation}{n.single_user ? ", one user at a time" : ""}</Fact>}
      {n.limits && <Fact name="Limits">{n.limits}</Fact>}
      {n.gpus.length > 0 && (
        <Fact name="GPU shares">{n.shares ? "possible" : "not possible: jobs have whole GPUs"}</Fact>
      )}
      {n.shared && n.shared.length > 0 && (
        <Fact name="Shared">
          {n.shared.map((s) => `${s.name} at ${s.path}${s.ok ? "" : " (not used)"}`).join(", ")}
        </Fact>
      )}
      {n.last_seen && <Fact name="Last seen">{time(n.last_seen, now)}</Fact>}
    </Facts>
  );
}

const origins: Record<string, string> = { measured: "measured", table: "by model", mixed: "partly measured" };

const originOf = (origin: string): string => origins[origin] ?? origin;
