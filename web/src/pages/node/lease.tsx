import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { releaseLease } from "../../api/actions/yard";
import { lease as leaseQuery } from "../../api/queries/yard";
import { Link } from "../../route/link";
import { useUser } from "../../shell/session";
import { Confirm } from "../../ui/confirm";
import { Fact, Facts } from "../../ui/facts";
import { dollars, duration, time } from "../../ui/format";
import { ProblemNotice } from "../../ui/notice";

/** Lease is what a provisioned node costs, as it grows. */
export function Lease({ id, now }: { id: string; now: number }) {
  const cache = useQueryClient();
  const { role, scope } = useUser();
  const [asks, setAsks] = useState(false);
  const found = useQuery(leaseQuery(id));
  const release = useMutation({
    mutationFn: () => releaseLease(id),
    onSuccess: () => { setAsks(false); },
    onSettled: () => cache.invalidateQueries({ queryKey: ["nodes"] }),
  });

  if (found.error) return <ProblemNotice problem={found.error} />;
  if (!found.data) return <p className="faint" aria-busy="true">Loading…</p>;

  const l = found.data;
  const lives = l.ended === undefined;
  const hourly = l.kept_seconds > 0 ? (l.cost_usd / l.kept_seconds) * 3600 : 0;

  return (
    <>
      <h2>Provisioned</h2>
      <Facts>
        <Fact name="Cost so far">
          <Ticking from={l.cost_usd} perSecond={lives ? hourly / 3600 : 0} at={found.dataUpdatedAt} />
          {hourly > 0 && ` at ${dollars(hourly)}/h`}
        </Fact>
        <Fact name="Kept for">{duration(l.kept_seconds + (lives ? (now - found.dataUpdatedAt) / 1000 : 0))}</Fact>
        <Fact name="Lease">{l.id}, {l.state}{l.ends ? `, ends ${time(l.ends, now)} unless it is renewed` : ""}</Fact>
        {l.job && <Fact name="For">{<Link to={`job/${l.job}`}>{l.job}</Link>}{l.owner ? ` of ${l.owner}` : ""}</Fact>}
        {l.reason !== "" && <Fact name="Because">{l.reason}</Fact>}
      </Facts>
      {lives && (role === "admin" || role === "operator") && scope === "admin" && (
        <button onClick={() => { setAsks(true); }}>Release</button>
      )}
      {asks && (
        <Confirm
          title={`Release ${l.node ?? l.id}?`}
          action="Release"
          busy={release.isPending}
          problem={release.error}
          onConfirm={() => { release.mutate(); }}
          onClose={() => { setAsks(false); }}
        >
          <p>The machine is given back to its provider. Jobs that run on it are stopped and restart elsewhere.</p>
        </Confirm>
      )}
    </>
  );
}

/** An amount that grows every second, from what it was at a time. */
function Ticking({ from, perSecond, at }: { from: number; perSecond: number; at: number }) {
  const [now, setNow] = useState(at);

  useEffect(() => {
    if (perSecond === 0) return;

    const timer = setInterval(() => { setNow(Date.now()); }, 1000);

    return () => { clearInterval(timer); };
  }, [perSecond]);

  const amount = from + perSecond * Math.max(0, (now - at) / 1000);

  return <b className="figure">{amount < 100 ? `$${amount.toFixed(4)}` : dollars(amount)}</b>;
}
