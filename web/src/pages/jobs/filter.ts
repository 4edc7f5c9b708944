// What is chosen on the page of jobs, in the address: ?state=running&state=failed&owner=ada&cols=id,name,status
import { liveStates, type JobFilter, type JobSort } from "../../api/queries";
import { orderOf } from "./columns";

/** The choices of states. "live" stands for all that have not ended. */
export const stateChoices = [
  { value: "", name: "All" },
  { value: "live", name: "Not ended" },
  { value: "running", name: "Running" },
  { value: "pending", name: "Queued" },
  { value: "paused", name: "Paused" },
  { value: "failed", name: "Failed" },
  { value: "succeeded", name: "Succeeded" },
  { value: "cancelled", name: "Cancelled" },
];

/** The choices of periods, as how many days back jobs were submitted. */
export const periodChoices = [
  { value: "", name: "Any time" },
  { value: "1", name: "Last day" },
  { value: "7", name: "Last 7 days" },
  { value: "30", name: "Last 30 days" },
];

const day = 86_400_000;

/** filterOf is what the server is asked for. Periods begin at an hour: the question stays the same for a while. */
export function filterOf(q: URLSearchParams, now: number): JobFilter {
  const state = q.get("state") ?? "";
  const days = Number(q.get("days") ?? "");
  const hour = day / 24;
  const { column, direction } = orderOf(q);
  const order: JobFilter = column === "submitted"
    ? { order: direction === "ascending" ? "oldest" : "newest" }
    : { sort: `${direction === "descending" ? "-" : ""}${column}` as JobSort };

  return {
    name: q.get("name") ?? "",
    owner: q.get("owner") ?? "",
    project: q.get("project") ?? "",
    node: q.get("node") ?? "",
    array: q.get("array") ?? "",
    state: state === "live" ? liveStates : state === "" ? [] : [state],
    since: days > 0 ? new Date(Math.floor((now - days * day) / hour) * hour).toISOString() : "",
    ...order,
  };
}

/** Views that many want. Each is an address, as is whatever else somebody has chosen. */
export const views: { name: string; query: (user: string) => Record<string, string> }[] = [
  { name: "All", query: () => ({}) },
  { name: "Mine", query: (user) => ({ owner: user }) },
  { name: "Not ended", query: () => ({ state: "live" }) },
  { name: "Failed this week", query: () => ({ state: "failed", days: "7", sort: "-ended" }) },
  { name: "Most expensive", query: () => ({ sort: "-cost" }) },
];

/** Whether the address is that of a view, whatever columns are shown and whatever job is open. */
export function isView(q: URLSearchParams, query: Record<string, string>): boolean {
  const chosen = Object.fromEntries([...q].filter(([name]) => name !== "cols" && name !== "job"));

  return Object.keys({ ...chosen, ...query }).every((name) => chosen[name] === query[name]);
}

const filters = ["name", "owner", "project", "node", "array", "state", "days"];

/** Whether anything is chosen that leaves jobs out. */
export function isFiltered(q: URLSearchParams): boolean {
  return filters.some((name) => q.has(name));
}

/** Undoes everything that leaves jobs out. */
export function clearFilters(q: URLSearchParams): void {
  filters.forEach((name) => { q.delete(name); });
}
