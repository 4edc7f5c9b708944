// What the pages of cost and of forecast quality ask the server.
import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { addressOf, request, type Problem } from "../client";

/** How often what jobs that run have cost is asked for: no event tells of it. */
const every = 60_000;

/** Reports take turns on the server, a few of each user at a time. One that found no turn is asked for again. */
const turns = {
  retry: (failures: number, problem: Problem) => problem.code === "too_many_reports" && failures < 5,
  retryDelay: 2000,
};

/** What a report is about: a period (to is "" until now), and what it is confined to as KEY=VALUE. */
export interface Ask {
  from: string;
  to: string;
  where: string[];
}

/** The keys by which the portal divides cost. */
export type Key = "researcher" | "project" | "class" | "gpu" | "account" | "node";

/** How many values have a colour of their own. */
const most = 6;

export function usageSeries(ask: Ask, by: Key) {
  return queryOptions({
    queryKey: ["usage", "series", ask, by],
    queryFn: ({ signal }) => request("get", "/api/v1/usage/series", { query: { ...ask, by, most }, signal }),
    refetchInterval: every,
    placeholderData: keepPreviousData,
    ...turns,
  });
}

export function usageReport(ask: Ask, by: Key) {
  return queryOptions({
    queryKey: ["usage", "report", ask, by],
    queryFn: ({ signal }) => request("get", "/api/v1/usage/report", { query: { ...ask, by: [by] }, signal }),
    refetchInterval: every,
    ...turns,
  });
}

/** The four groups of figures, of one researcher or of all that one may see. */
export function usageGroups(from: string, to: string, researcher: string) {
  return queryOptions({
    queryKey: ["usage", "groups", from, to, researcher],
    queryFn: ({ signal }) => request("get", "/api/v1/usage", { query: { from, to, researcher }, signal }),
    refetchInterval: every,
    ...turns,
  });
}

export function savings(ask: Ask) {
  return queryOptions({
    queryKey: ["usage", "savings", ask],
    queryFn: ({ signal }) => request("get", "/api/v1/savings", { query: { ...ask, by: ["kind"] }, signal }),
    ...turns,
  });
}

export function waste(from: string, to: string, owner: string) {
  return queryOptions({
    queryKey: ["usage", "waste", from, to, owner],
    queryFn: ({ signal }) => request("get", "/api/v1/waste", { query: { from, to, owner }, signal }),
    ...turns,
  });
}

/** How many subjects with a quota are shown. */
export const quotasShown = 200;

export const quotas = queryOptions({
  queryKey: ["quotas"],
  queryFn: ({ signal }) => request("get", "/api/v1/quotas", { query: { limit: quotasShown }, signal }),
  refetchInterval: every,
});

export const forecastRecord = queryOptions({
  queryKey: ["forecast record"],
  queryFn: ({ signal }) => request("get", "/api/v1/forecasts", { signal }),
  refetchInterval: every,
});

/** The address of a report as CSV. */
export function csvOf(path: string, query: Record<string, string | string[]>): string {
  const url = addressOf(path);
  for (const [name, value] of Object.entries({ ...query, format: "csv" })) {
    for (const one of [value].flat()) if (one !== "") url.searchParams.append(name, one);
  }

  return url.href;
}
