// What pages ask the server. The first part of a key is the resource: the feed of events marks resources as changed
// (feed.ts), so a page that asks through here is live without doing anything for it.
import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { request, type Problem } from "./client";

/** How often progress, costs and forecasts of running jobs are asked for: no event tells of them. */
const driftEvery = 15_000;

declare module "@tanstack/react-query" {
  interface Register {
    defaultError: Problem;
  }
}

export const whoami = queryOptions({
  queryKey: ["whoami"],
  queryFn: ({ signal }) => request("get", "/api/v1/whoami", { signal }),
  staleTime: Infinity,
});

export const summary = queryOptions({
  queryKey: ["summary"],
  queryFn: ({ signal }) => request("get", "/api/v1/summary", { signal }),
  refetchInterval: 2 * driftEvery, // researchers get no events of jobs of others
});

/** Which jobs are asked for. */
export interface JobFilter {
  name?: string;
  state?: string[];
  owner?: string;
  project?: string;
  node?: string;
  array?: string;
  since?: string;
  order?: "newest" | "oldest";
  sort?: JobSort;
}

/** What the server sorts jobs by instead of by submission. */
export type JobSort = "name" | "-name" | "cost" | "-cost" | "ended" | "-ended";

/** States of jobs that have not ended. */
export const liveStates = ["pending", "starting", "running", "recovering", "pausing", "paused", "cancelling"];

/** States of jobs that have ended. */
export const endedStates = ["succeeded", "failed", "cancelled"];

export const pageSize = 100;

/** One page of jobs after the cursor. */
export function jobs(filter: JobFilter, cursor = "", limit = pageSize) {
  return queryOptions({
    queryKey: ["jobs", "page", filter, cursor, limit],
    queryFn: ({ signal }) => request("get", "/api/v1/jobs", { query: { ...filter, cursor, limit }, signal }),
    refetchInterval: driftEvery,
    placeholderData: keepPreviousData,
  });
}

/** How many jobs match, by status. */
export function jobCounts(filter: JobFilter) {
  return queryOptions({
    queryKey: ["job counts", filter],
    queryFn: ({ signal }) => request("get", "/api/v1/jobs", { query: { ...filter, limit: 1, counts: true }, signal }),
    placeholderData: keepPreviousData,
  });
}

export function job(name: string) {
  return queryOptions({
    queryKey: ["jobs", "one", name],
    queryFn: ({ signal }) => request("get", "/api/v1/jobs/{job}", { path: { job: name }, signal }),
    refetchInterval: driftEvery,
  });
}

export function inbox(owner: string) {
  return queryOptions({
    queryKey: ["inbox", owner],
    queryFn: ({ signal }) => request("get", "/api/v1/inbox", { query: { owner, limit: 50 }, signal }),
  });
}

/** What a user's jobs have cost since a time, or with "" the whole yard. */
export function costSince(user: string, from: string) {
  const where = user === "" ? [] : [`researcher=${user}`];

  return queryOptions({
    queryKey: ["usage", user, from],
    queryFn: ({ signal }) => request("get", "/api/v1/usage/report", { query: { from, where }, signal }),
    refetchInterval: 60_000,
  });
}

/** How much of the GPUs was used in each of the last 24 hours. */
export const lastHours = queryOptions({
  queryKey: ["use hours"],
  queryFn: ({ signal }) => request("get", "/api/v1/summary/hours", { signal }),
  refetchInterval: 60_000,
});

/** The main metric of at most 50 jobs. */
export function curves(jobs: string[]) {
  return queryOptions({
    queryKey: ["curves", jobs],
    queryFn: ({ signal }) => request("get", "/api/v1/curves", { query: { job: jobs }, signal }),
    enabled: jobs.length > 0,
    refetchInterval: driftEvery,
    placeholderData: keepPreviousData,
  });
}
