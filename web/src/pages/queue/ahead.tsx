import { useQuery } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { whatIf } from "../../api/queries/admin";
import { count, duration, time } from "../../ui/format";
import styles from "./queue.module.css";

type Row = Schemas["WhatIfJob"];

/** A job ends as before if it does within so many seconds, and within so much of what it takes. */
const same = 30;
const sameShare = 0.01;

/** How many simulations are made of each case: few, for somebody waits. */
const draws = 5;

/** How many of the jobs that end later are named. */
const named = 3;

/** Ahead simulates the yard with another priority of a job, and says who would end when. */
export function Ahead({ job, priority, now }: { job: string; priority: number; now: number }) {
  const found = useQuery({ ...whatIf({ priorities: { [job]: priority }, draws }), placeholderData: undefined });

  if (found.isFetching) return <p className="faint" aria-busy="true">Simulating the yard with that priority…</p>;
  if (found.error) return <p className="faint">Not simulated: {found.error.message}</p>;
  if (!found.data) return null;

  const { list, now: begin, jobs } = found.data;
  const own = list.find((j) => j.job === job);
  const others = list.filter((j) => j.job !== job);
  const later = others.filter((j) => laterBy(j) > 0).sort((a, b) => laterBy(b) - laterBy(a));
  const sooner = others.filter((j) => laterBy(j) < 0);
  const at = (seconds: number) => time(Date.parse(begin) + 1000 * seconds, now);

  return (
    <>
      <p className="faint">Simulated with the {count(jobs, "job")} of the yard, {count(found.data.draws, "time")}:</p>
      <ul aria-label="Simulated effect">
        {own && <li>{sentenceOf(own, at)}</li>}
        {later.length > 0 && (
          <li>
            {count(later.length, "other job")} would end later: {later.slice(0, named).map(delayOf).join(", ")}
            {later.length > named && ", …"}
          </li>
        )}
        {sooner.length > 0 && <li>{count(sooner.length, "other job")} would end sooner</li>}
        {later.length === 0 && sooner.length === 0 && <li>No other job would end at another time</li>}
      </ul>
      {found.data.gaps.length > 0 && (
        <details className={styles.gaps}>
          <summary>What is not simulated</summary>
          <ul>{found.data.gaps.map((g) => <li key={g}>{g}</li>)}</ul>
        </details>
      )}
    </>
  );
}

/** By how many seconds a job ends later; infinite if it does not end any more, 0 if that is about as before. */
function laterBy(j: Row): number {
  const { today, then } = j;
  if (!today.end && !then.end) return 0;

  const by = (then.end?.mid ?? Infinity) - (today.end?.mid ?? Infinity);

  return Math.abs(by) < Math.max(same, sameShare * (today.end?.mid ?? 0)) ? 0 : by;
}

function delayOf(j: Row): string {
  const by = laterBy(j);

  return `${j.job} (${j.owner}) ${by === Infinity ? "never" : `by ${duration(by)}`}`;
}

/** What becomes of the job itself. */
function sentenceOf(j: Row, at: (seconds: number) => string): string {
  const start = (e: Row["then"]) => (e.start === undefined ? "never" : e.start < 1 ? "now" : at(e.start));
  const end = (e: Row["then"]) => (e.end ? at(e.end.mid) : "not within 30 days");
  const by = laterBy(j);
  if (by === 0) return `It would start and end about as now: start ${start(j.then)}, end ${end(j.then)}`;

  const change = Number.isFinite(by) ? `${duration(Math.abs(by))} ${by > 0 ? "later" : "sooner"}, ` : "";

  return `It would start ${start(j.then)} instead of ${start(j.today)} and end ${change}${end(j.then)} instead of ` +
    end(j.today);
}
