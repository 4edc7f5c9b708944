// What the pages Data, Events, Admin and What-if ask.
import {
  infiniteQueryOptions, keepPreviousData, queryOptions, type InfiniteData,
} from "@tanstack/react-query";

import { isReady, request, type FeedEvent, type Problem, type Schemas } from "../client";

/** How much is asked for at once; "Show more" asks for the next. */
const pageSize = 200;

/** pagesOf reads a list page by page. */
function pagesOf<T extends { next?: string }>(
  key: string[],
  read: (cursor: string, signal: AbortSignal) => Promise<T>,
) {
  return infiniteQueryOptions<T, Problem, InfiniteData<T, string>, string[], string>({
    queryKey: key,
    queryFn: ({ pageParam, signal }) => read(pageParam, signal),
    initialPageParam: "",
    getNextPageParam: (last) => (last.next === undefined || last.next === "" ? undefined : last.next),
  });
}

export const datasets = pagesOf(["datasets", "list"], (cursor, signal) =>
  request("get", "/api/v1/datasets", { query: { cursor, limit: pageSize }, signal }));

export function dataset(name: string) {
  return queryOptions({
    queryKey: ["datasets", "one", name],
    queryFn: ({ signal }) => request("get", "/api/v1/datasets/{dataset}", { path: { dataset: name }, signal }),
  });
}

/** Where a dataset was used. Only its owner and those who see the usage of its owner may ask. */
export function datasetUses(name: string) {
  return queryOptions({
    queryKey: ["datasets", "audit", name],
    queryFn: ({ signal }) =>
      request("get", "/api/v1/datasets/{dataset}/audit", { path: { dataset: name }, query: { limit: 100 }, signal }),
  });
}

/** Which events are asked for. */
export interface EventFilter {
  kind?: string;
  actor?: string;
  job?: string;
  node?: string;
  audit?: boolean;
}

export const eventPage = 100;

const eventKey = (filter: EventFilter) => ["past events", filter];

/** Events, the newest first: each page has those before the oldest of the last one. */
export function events(filter: EventFilter) {
  return infiniteQueryOptions<FeedEvent[], Problem, InfiniteData<FeedEvent[], number>, unknown[], number>({
    queryKey: eventKey(filter),
    queryFn: async ({ pageParam, signal }) => {
      const older = pageParam === 0 ? {} : { before: pageParam };
      const query = { ...filter, ...older, tail: eventPage, limit: eventPage };
      const page = await request("get", "/api/v1/events", { query, signal });

      return page.events.reverse();
    },
    initialPageParam: 0,
    getNextPageParam: (last) => (last.length < eventPage ? undefined : last.at(-1)?.seq),
    staleTime: Infinity, // what has happened stays as it is; newEvents adds what happens
  });
}

/** How many events a page keeps; the oldest are asked for again when somebody wants to see them. */
const mostEvents = 1000;

/** Adds what has happened since to the events that are there. The feed asks for it when something happens. */
export function newEvents(filter: EventFilter, enabled: boolean) {
  return queryOptions({
    queryKey: ["events", filter],
    queryFn: async ({ client, signal }) => {
      const known = client.getQueryData<InfiniteData<FeedEvent[], number>>(eventKey(filter));
      if (!known) return 0;

      const last = known.pages[0]?.[0]?.seq ?? 0;
      const query = { ...filter, cursor: String(last), limit: 500 };
      const page = await request("get", "/api/v1/events", { query, signal });
      const fresh = page.events.reverse();

      if (fresh.length === query.limit) void client.resetQueries({ queryKey: eventKey(filter) }); // too far behind
      else if (fresh.length > 0) client.setQueryData(eventKey(filter), withNew(known, fresh));

      return fresh.length;
    },
    enabled,
    staleTime: Infinity,
  });
}

function withNew(known: InfiniteData<FeedEvent[], number>, fresh: FeedEvent[]): InfiniteData<FeedEvent[], number> {
  const first = [...fresh, ...(known.pages[0] ?? [])].slice(0, mostEvents);
  const pages = [first, ...known.pages.slice(1)];
  let room = mostEvents;
  const full = pages.findIndex((p) => (room -= p.length) < 0);
  const end = full < 0 ? pages.length : Math.max(1, full);

  return { pages: pages.slice(0, end), pageParams: known.pageParams.slice(0, end) };
}

export const users = pagesOf(["users"], (cursor, signal) =>
  request("get", "/api/v1/users", { query: { cursor, limit: pageSize }, signal }));

/** Tokens of a user, "" for all that the caller may see. */
export function tokens(owner: string) {
  return pagesOf(["tokens", owner], (cursor, signal) =>
    request("get", "/api/v1/tokens", { query: { owner, cursor, limit: pageSize }, signal }));
}

export const quotas = pagesOf(["quotas"], (cursor, signal) =>
  request("get", "/api/v1/quotas", { query: { cursor, limit: pageSize }, signal }));

export const offers = pagesOf(["offers"], (cursor, signal) =>
  request("get", "/api/v1/offers", { query: { cursor, limit: pageSize }, signal }));

/** What was found when leases were compared with what providers show. */
export const reaper = queryOptions({
  queryKey: ["reaper"],
  queryFn: ({ signal }) => request("get", "/api/v1/reaper", { signal }),
});

export const retention = queryOptions({
  queryKey: ["retention"],
  queryFn: ({ signal }) => request("get", "/api/v1/retention", { signal }),
  refetchInterval: 60_000,
});

export const policies = queryOptions({
  queryKey: ["policies"],
  queryFn: ({ signal }) => request("get", "/api/v1/policies", { signal }),
  staleTime: Infinity, // until the server starts anew
});

export const serverInfo = queryOptions({
  queryKey: ["info"],
  queryFn: ({ signal }) => request("get", "/api/v1/info", { signal }),
  refetchInterval: 60_000,
});

/** Whether the server is ready to work, and if not, why. */
export const readiness = queryOptions({
  queryKey: ["readiness"],
  queryFn: ({ signal }) => isReady(signal),
  refetchInterval: 15_000,
});

/** A simulation of the yard as it is and with a change. It ends when nobody waits for it any more. */
export function whatIf(change: Schemas["WhatIfRequest"]) {
  return queryOptions({
    queryKey: ["what-if", change],
    queryFn: ({ signal }) => request("post", "/api/v1/whatif", { body: change, signal }),
    placeholderData: keepPreviousData,
    staleTime: Infinity, // figures that change by themselves cannot be compared
    retry: false,
    refetchInterval: false, // whoever asked may ask again
  });
}
