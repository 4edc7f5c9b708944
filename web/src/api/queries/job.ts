// What the page of one job asks beyond the job itself.
import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { request } from "../client";

/** How often values of metrics are asked for: no event tells of them. */
const valuesEvery = 5000;

/** How many points of a curve are asked for: more than a screen shows. */
const curvePoints = 600;

/** How many of the newest events of a job are shown. */
export const eventTail = 500;

export function metrics(job: string, live: boolean) {
  return queryOptions({
    queryKey: ["metrics", job],
    queryFn: ({ signal }) => request("get", "/api/v1/jobs/{job}/metrics", { path: { job }, signal }),
    refetchInterval: live ? valuesEvery : false,
  });
}

export function curve(job: string, metric: string, live: boolean) {
  return queryOptions({
    queryKey: ["metrics", job, "curve", metric],
    queryFn: ({ signal }) =>
      request("get", "/api/v1/jobs/{job}/curve", { path: { job }, query: { metric, points: curvePoints }, signal }),
    refetchInterval: live ? valuesEvery : false,
  });
}

export function jobEvents(job: string) {
  return queryOptions({
    queryKey: ["job events", job],
    queryFn: ({ signal }) =>
      request("get", "/api/v1/events", { query: { job, tail: eventTail, limit: eventTail }, signal }),
    placeholderData: keepPreviousData,
  });
}

/** What its runs have cost, by hour. */
export function jobCost(job: string) {
  return queryOptions({
    queryKey: ["usage", "job", job],
    queryFn: ({ signal }) =>
      request("get", "/api/v1/usage/report", { query: { by: ["run,hour"], where: [`job=${job}`] }, signal }),
    refetchInterval: 60_000,
  });
}

export function checkpoints(job: string) {
  return queryOptions({
    queryKey: ["checkpoints", job],
    queryFn: ({ signal }) => request("get", "/api/v1/jobs/{job}/checkpoints", { path: { job }, signal }),
  });
}

/** The output files that one rank of a run has left. */
export function outputFiles(job: string, run: string, rank: number) {
  return queryOptions({
    queryKey: ["outputs", run, rank],
    queryFn: ({ signal }) =>
      request("get", "/api/v1/jobs/{job}/outputs/{run}/{rank}", { path: { job, run, rank }, signal }),
    staleTime: Infinity, // they do not change any more
  });
}
