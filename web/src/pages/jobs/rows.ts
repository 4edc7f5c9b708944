import { keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";

import { request, type Job, type Problem } from "../../api/client";
import { jobs, pageSize, type JobFilter } from "../../api/queries";

export interface Rows {
  list: Job[];
  complete: boolean; // all that match are loaded
  loading: boolean; // nothing of what is asked for is there yet
  problem: Problem | undefined;
  loadMore: () => void;
  retry: () => void;
}

/** By how many rows the part that is kept up to date grows, and how many it has at least. */
const step = pageSize / 2;

interface Page {
  jobs: Job[];
  next?: string | undefined;
}

/** The part of the list that is kept up to date: from the page with the first visible row to some way below it. */
function windowOf(pages: Page[], first: number): { from: number; cursor: string; limit: number } {
  let from = 0;
  let cursor = "";

  for (const page of pages) {
    if (first < from + page.jobs.length || page.next === undefined) break;

    from += page.jobs.length;
    cursor = page.next;
  }

  return { from, cursor, limit: Math.min(2 * pageSize, Math.ceil((first - from + step) / step) * step) };
}

/** What is in the list: how many rows are as they were loaded, then the fresh ones, then the rest. */
interface Merged {
  list: Job[];
  gap: boolean; // jobs are missing after the fresh ones: more have come than were asked for
}

/** merge puts fresh rows in the place of those that were loaded between their ends. */
function merge(past: Job[], fresh: Page, from: number): Merged {
  const isFresh = new Set(fresh.jobs.map((j) => j.id));
  const places = new Map(past.map((j, i) => [j.id, i]));
  const near = from + 2 * fresh.jobs.length; // one from further below has come up
  const placeOf = (j: Job) => places.get(j.id) ?? -1;
  const known = fresh.jobs.findLast((j) => placeOf(j) >= from && placeOf(j) < near);

  const gap = known === undefined && fresh.next !== undefined && past.length > from;
  const end = fresh.next === undefined ? past.length : known === undefined ? from : placeOf(known) + 1;
  const others = (list: Job[]) => list.filter((j) => !isFresh.has(j.id));

  return { list: [...others(past.slice(0, from)), ...fresh.jobs, ...others(past.slice(end))], gap };
}

/**
 * useJobRows returns the jobs that match, as far as they are loaded. What is scrolled past stays as it was; the rows
 * around the first visible one are kept up to date, and new ones among them inserted.
 */
export function useJobRows(filter: JobFilter, first: number): Rows {
  const cache = useQueryClient();
  const key = useMemo(() => ["loaded jobs", filter], [filter]); // not "jobs": events would load all pages again
  const loaded = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam: cursor, signal }) =>
      request("get", "/api/v1/jobs", { query: { ...filter, cursor, limit: pageSize }, signal }),
    initialPageParam: "",
    getNextPageParam: (page) => page.next,
    staleTime: Infinity,
    gcTime: 0,
    placeholderData: keepPreviousData,
  });

  const past = useMemo(() => loaded.data?.pages.flatMap((p) => p.jobs) ?? [], [loaded.data]);
  const { from, cursor, limit } = windowOf(loaded.data?.pages ?? [], first);
  const other = loaded.data === undefined || loaded.isPlaceholderData; // what is shown is of the filter before
  const live = useQuery({ ...jobs(filter, cursor, limit), enabled: !other });
  const fresh = other ? undefined : live.data;
  const moving = live.isPlaceholderData; // the fresh ones are of another part of the list

  const { list, gap } = useMemo((): Merged => {
    if (!fresh) return { list: past, gap: false };
    if (!moving) return merge(past, fresh, from);

    const byId = new Map(fresh.jobs.map((j) => [j.id, j]));

    return { list: past.map((j) => byId.get(j.id) ?? j), gap: false };
  }, [past, fresh, moving, from]);

  // So much is new that the list begins anew.
  useEffect(() => {
    if (gap && from === 0) cache.setQueryData(key, { pages: [fresh], pageParams: [""] });
  }, [gap, from, fresh, cache, key]);

  const { hasNextPage, isFetchingNextPage, fetchNextPage } = loaded;

  return {
    list,
    complete: !other && !hasNextPage,
    loading: loaded.data === undefined && loaded.error === null,
    problem: loaded.error ?? undefined,
    loadMore: () => { if (hasNextPage && !isFetchingNextPage) void fetchNextPage(); },
    retry: () => void loaded.refetch(),
  };
}
