import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import type { Job } from "../../api/client";
import { costSince, inbox, jobs, liveStates } from "../../api/queries";
import { Link } from "../../route/link";
import { useUser } from "../../shell/session";
import { dollars, time } from "../../ui/format";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Skeleton } from "../../ui/skeleton";
import { toneOf } from "../../ui/status";
import styles from "./home.module.css";
import { EndedLately, MyJobs } from "./jobs";
import { NeedsYou } from "./needs";
import { useMidnight } from "./today";
import { Yard } from "./yard";

/** How many of one's jobs Home shows; the rest is on the page of jobs. */
const shown = 50;

/** Home answers: when will my jobs be done, where do they run, what do they cost, and what needs me. */
export function Home() {
  const { user } = useUser();
  const now = useNow();
  const mine = useQuery(jobs({ owner: user, state: liveStates }, "", shown));
  const asked = useQuery(inbox(user));
  const questions = useMemo(() => asked.data?.questions.filter((q) => !q.notice) ?? [], [asked.data]);

  return (
    <>
      <Headline list={mine.data?.jobs} more={mine.data?.next !== undefined} questions={questions.length} now={now} />
      {asked.error && <ProblemNotice problem={asked.error} onRetry={() => void asked.refetch()} />}
      <NeedsYou questions={questions} jobs={mine.data?.jobs ?? []} now={now} />
      <h2>My jobs</h2>
      {mine.error && <ProblemNotice problem={mine.error} onRetry={() => void mine.refetch()} />}
      {mine.data?.jobs.length === 0 && <NothingRuns user={user} />}
      {mine.data && mine.data.jobs.length > 0 && <MyJobs list={mine.data.jobs} now={now} />}
      {mine.data?.next && (
        <p><Link to="jobs" query={{ owner: user, state: "live" }}>All that run or are queued</Link></p>
      )}
      {mine.isPending && <Skeleton rows={4} />}
      <EndedLately user={user} now={now} />
      <Yard />
    </>
  );
}

interface HeadlineProps {
  list: Job[] | undefined;
  more: boolean; // there are more than the list has
  questions: number;
  now: number;
}

/** The page in one sentence, with its figures. */
function Headline({ list, more, questions, now }: HeadlineProps) {
  const { user } = useUser();
  const cost = useQuery(costSince(user, useMidnight(now)));

  if (!list) return <h1 className={styles.headline} aria-busy="true">&nbsp;</h1>;

  const known = cost.data && !(cost.data.no_tariff && cost.data.total.cost_usd === 0);
  const spent = known ? [`${dollars(cost.data.total.cost_usd)} so far today`] : [];
  const needs = questions > 0 ? [`${questions} ${questions === 1 ? "needs" : "need"} you`] : [];

  const running = list.filter((j) => toneOf(j.status) === "running");
  const queued = list.filter((j) => toneOf(j.status) === "queued");
  const paused = list.length - running.length - queued.length;

  const ends = running.map((j) => j.forecast).filter((f) => f && !f.starting).map((f) => Date.parse(f?.end ?? ""));
  const which = running.length === 1 ? "" : "the last ";
  const done = ends.length === 0 ? "" : `, ${which}done about ${time(Math.max(...ends), now)}`;

  const starts = queued.map((j) => j.forecast?.wait.mid).filter((w) => w !== undefined && w > 0) as number[];
  const next = starts.length === 0 ? "" : `, next start about ${time(now + Math.min(...starts) * 1000, now)}`;

  const some = (n: number, words: string) => (n === 0 ? [] : [`${more ? "at least " : ""}${n} ${words}`]);
  const parts = list.length === 0
    ? ["Nothing runs and nothing is queued"]
    : [
      ...some(running.length, `running${done}`),
      ...some(queued.length, `queued${next}`),
      ...some(paused, "paused or ending"),
    ];

  return <h1 className={styles.headline}>{[...parts, ...spent, ...needs].join(". ")}.</h1>;
}

function NothingRuns({ user }: { user: string }) {
  return (
    <Notice title="None of your jobs is running or queued">
      <p>
        <Link to="submit">Submit a job</Link> here or from a terminal, then watch it on this page.{" "}
        <Link to="jobs" query={{ owner: user }}>Past jobs</Link> stay.
      </p>
      <pre>trainyard run -- python train.py{"\n"}trainyard submit job.yaml</pre>
    </Notice>
  );
}
