import { useQuery } from "@tanstack/react-query";

import type { Node } from "../../api/client";
import { nodeEvents } from "../../api/queries/yard";
import { Link } from "../../route/link";
import { useUser } from "../../shell/session";
import { time } from "../../ui/format";
import { ProblemNotice } from "../../ui/notice";
import styles from "./node.module.css";

/** Whether somebody caused an event, and not the yard or a node by itself. */
const isPerson = (actor: string): boolean => actor !== "yard" && !actor.includes("/");

/** History is the newest events of a node, the last one first. */
export function History({ node: n, now }: { node: Node; now: number }) {
  const { role } = useUser();
  const found = useQuery(nodeEvents(n.id));
  const list = (found.data?.events ?? []).toReversed();

  return (
    <section aria-labelledby="history">
      <h2 id="history">History</h2>
      {found.error && <ProblemNotice problem={found.error} onRetry={() => void found.refetch()} />}
      {role !== "admin" && role !== "operator" && (
        <p className="faint">Events of your own jobs; operators and admins see all.</p>
      )}
      {found.data && list.length === 0 && <p className="faint">No events.</p>}
      <ul className={styles.events}>
        {list.map((e) => (
          <li key={e.seq}>
            <span className="figure faint">{time(e.at, now)}</span>
            <span className={styles.kind}>{e.kind}</span>
            <span>
              {e.job && <><Link to={`job/${e.job}`}>{e.job}</Link> </>}
              {e.reason ?? [e.from, e.to].filter((x) => x).join(" → ")}
              {isPerson(e.actor) && <span className="faint"> by <bdi>{e.actor}</bdi></span>}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
