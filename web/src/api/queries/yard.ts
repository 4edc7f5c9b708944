// What is asked of the queue and of nodes. See queries.ts about keys.
import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { request, type Node } from "../client";

/** How often figures are asked for of which no event tells: waits, temperatures, costs. */
const driftEvery = 15_000;

export const queuePart = 100;

/** A part of the queue: the jobs after so many. */
export function queue(owner: string, from: number) {
  return queryOptions({
    queryKey: ["queue", owner, from],
    queryFn: ({ signal }) =>
      request("get", "/api/v1/queue", {
        query: { owner, limit: queuePart, ...(from > 0 ? { cursor: String(from) } : {}) },
        signal,
      }),
    refetchInterval: driftEvery,
  });
}

/** What another priority of a job would change. */
export function priorityPreview(job: string, priority: number) {
  return queryOptions({
    queryKey: ["priority preview", job, priority],
    queryFn: ({ signal }) =>
      request("post", "/api/v1/jobs/{job}/edit/preview", {
        path: { job }, body: { set: [`priority=${priority}`] }, signal,
      }),
    retry: false,
    refetchInterval: false, // whoever asked may ask again
    staleTime: 5000,
  });
}

/** More nodes than these are not loaded into one page. */
export const maxNodes = 5000;

/** All nodes. */
export const allNodes = queryOptions({
  queryKey: ["nodes", "all"],
  queryFn: async ({ signal }) => {
    const list: Node[] = [];
    let cursor = "";

    do {
      const page = await request("get", "/api/v1/nodes", { query: { cursor, limit: 500 }, signal });
      list.push(...page.nodes);
      cursor = page.next ?? "";
    } while (cursor !== "" && list.length < maxNodes);

    return { list, more: cursor !== "" };
  },
  refetchInterval: driftEvery,
});

export function node(name: string) {
  return queryOptions({
    queryKey: ["nodes", "one", name],
    queryFn: ({ signal }) => request("get", "/api/v1/nodes/{node}", { path: { node: name }, signal }),
    refetchInterval: driftEvery,
  });
}

/** What ran on a node since a time. */
export function nodeRuns(name: string, since: string) {
  return queryOptions({
    queryKey: ["nodes", "runs", name, since],
    queryFn: ({ signal }) =>
      request("get", "/api/v1/nodes/{node}/runs", { path: { node: name }, query: { since }, signal }),
    placeholderData: keepPreviousData,
  });
}

/** The newest events of a node. */
export function nodeEvents(name: string) {
  return queryOptions({
    queryKey: ["nodes", "events", name],
    queryFn: ({ signal }) => request("get", "/api/v1/events", { query: { node: name, tail: 100, limit: 100 }, signal }),
  });
}

/** A lease of a provisioned node, with what it has cost so far. */
export function lease(id: string) {
  return queryOptions({
    queryKey: ["nodes", "lease", id],
    queryFn: ({ signal }) => request("get", "/api/v1/leases/{lease}", { path: { lease: id }, signal }),
    refetchInterval: 4 * driftEvery,
  });
}
