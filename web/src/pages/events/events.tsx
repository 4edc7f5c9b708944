import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import type { FeedEvent } from "../../api/client";
import { events, newEvents, type EventFilter } from "../../api/queries/admin";
import { Link } from "../../route/link";
import { useQueryString } from "../../route/route";
import { useUser } from "../../shell/session";
import { Fact, Facts } from "../../ui/facts";
import { ago, count, integer, time } from "../../ui/format";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import styles from "./events.module.css";
import { Filters, filterOf, sinceOf } from "./filters";

/** How far down the page counts as its top. */
const top = 40;

/**
 * Events lists what happened, the newest first. What is new comes in at the top while one looks at the top, and is held
 * back while one reads further down or has unfolded an event, so that nothing moves under the eyes.
 */
export function Events() {
  const [query, setQuery] = useQueryString();
  const who = useUser();
  const now = useNow();
  const filter = filterOf(query);
  const since = sinceOf(query);
  const list = useInfiniteQuery(events(filter));
  useQuery(newEvents(filter, list.isSuccess));

  const open = query.get("open") ?? "";
  const all = list.data?.pages.flat() ?? [];
  const newest = all[0]?.seq ?? 0;
  const [held, hold] = useHeld(newest, open !== "");
  const shown = all.filter((e) => e.seq <= held && Date.parse(e.at) >= now - since);
  const waiting = all.filter((e) => e.seq > held).length;
  const complete = !list.hasNextPage || shown.length < all.length - waiting; // the rest is older than wanted

  const everything = who.role === "admin" || who.role === "operator";
  const unfold = (e: FeedEvent, is: boolean) => {
    if (is && open !== String(e.seq)) {
      hold(held === Infinity ? newest : held);
      setQuery((q) => { q.set("open", String(e.seq)); });
    } else if (!is && open === String(e.seq)) {
      setQuery((q) => { q.delete("open"); });
    }
  };

  return (
    <>
      <h1>
        {list.isSuccess
          ? headline(shown, complete, everything, filter, now)
          : everything ? "Events of the yard" : "Your events"}
      </h1>
      <Filters everything={everything} />
      {list.error && <ProblemNotice problem={list.error} onRetry={() => void list.refetch()} />}
      {list.isPending && <p className="faint" aria-busy="true">Loading…</p>}
      {waiting > 0 && (
        <div className={styles.waiting}>
          <button
            onClick={() => {
              hold(Infinity);
              setQuery((q) => { q.delete("open"); });
              scrollTo(0, 0);
            }}
          >
            {count(waiting, "new event")}: show
          </button>
        </div>
      )}
      {list.isSuccess && shown.length === 0 && (
        <Notice title="No event matches">
          <p>
            {everything
              ? "Events older than the yard keeps them are gone; see the page Admin for how long that is."
              : "You see what concerns your own jobs and things. Operators and admins see everything."}
          </p>
        </Notice>
      )}
      <ol className={styles.list} aria-label="Events">
        {shown.map((e) => (
          <li key={e.seq}>
            <Row event={e} open={open === String(e.seq)} now={now} onUnfold={unfold} />
          </li>
        ))}
      </ol>
      {!complete && (
        <p>
          <button disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
            {list.isFetchingNextPage ? "Loading…" : "Show older events"}
          </button>
        </p>
      )}
    </>
  );
}

/** useHeld says up to which event is shown: Infinity at the top of the page. */
function useHeld(newest: number, reading: boolean): [number, (seq: number) => void] {
  const [held, hold] = useState(Infinity);

  useEffect(() => {
    const scrolled = () => {
      if (scrollY > top) hold((h) => (h === Infinity ? newest : h));
      else if (!reading) hold(Infinity);
    };
    addEventListener("scroll", scrolled, { passive: true });

    return () => { removeEventListener("scroll", scrolled); };
  }, [newest, reading]);

  return [held, hold];
}

function headline(
  shown: FeedEvent[], complete: boolean, everything: boolean, filter: EventFilter, now: number,
): string {
  const what = filter.audit ? "audited event" : "event";
  const last = shown[0];
  if (!last) return `No ${what}s`;

  const whose = everything ? "" : " of yours";
  const oldest = shown.at(-1)?.at ?? last.at;

  return `${complete ? "" : "The newest "}${count(shown.length, what)}${whose} since ${time(oldest, now)}; ` +
    `the last ${ago(last.at, now) === "now" ? "just now" : ago(last.at, now)}`;
}

/** What an event is about. */
const aboutOf = (e: FeedEvent): string => e.run ?? e.job ?? e.node ?? e.lease ?? e.owner ?? "";

/** Whether an event is one that somebody should look at. */
const alarming = /\.(failed|lost|refused|error|held|stray|rejected|problem)/;

function Row({ event: e, open, now, onUnfold }: {
  event: FeedEvent;
  open: boolean;
  now: number;
  onUnfold: (e: FeedEvent, open: boolean) => void;
}) {
  return (
    <details open={open} onToggle={(t) => { onUnfold(e, t.currentTarget.open); }}>
      <summary className={styles.row}>
        <time dateTime={e.at} title={new Date(e.at).toLocaleString("en-GB")}>{time(e.at, now)}</time>
        <span className={alarming.test(e.kind) ? styles.alarming : undefined}>{e.kind}</span>
        <span className={styles.cut}><bdi>{aboutOf(e)}</bdi></span>
        <span className={styles.cut}><bdi>{e.actor}</bdi></span>
        <span className={styles.reason}><bdi>{e.reason ?? changeOf(e)}</bdi></span>
      </summary>
      {open && (
        <Facts>
          <Fact name="Number">{integer(e.seq)}</Fact>
          <Fact name="Time">{new Date(e.at).toLocaleString("en-GB", { timeZoneName: "short" })}</Fact>
          <Fact name="By"><bdi>{e.actor}</bdi></Fact>
          {e.address && <Fact name="From">{e.address}{e.token && `, with token ${e.token}`}</Fact>}
          {e.owner && <Fact name="Owner"><bdi>{e.owner}</bdi></Fact>}
          {e.job && <Fact name="Job"><Link to={`job/${e.job}`}>{e.job}</Link></Fact>}
          {e.node && <Fact name="Node"><Link to={`node/${e.node}`}>{e.node}</Link></Fact>}
          {e.lease && <Fact name="Lease">{e.lease}</Fact>}
          {changeOf(e) !== "" && <Fact name="Change"><bdi>{changeOf(e)}</bdi></Fact>}
          {e.count !== undefined && e.count > 1 && <Fact name="Calls">{integer(e.count)}</Fact>}
          {e.not_before && <Fact name="Not before">{time(e.not_before, now)}</Fact>}
          {e.reason && <Fact name="Reason"><bdi>{e.reason}</bdi></Fact>}
        </Facts>
      )}
    </details>
  );
}

function changeOf(e: FeedEvent): string {
  if (e.from && e.to) return `${e.from} → ${e.to}`;

  return e.to ?? e.from ?? "";
}
