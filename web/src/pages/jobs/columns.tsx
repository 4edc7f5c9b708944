import type { ReactNode } from "react";

import type { Job } from "../../api/client";
import { ago, time } from "../../ui/format";
import { Cost, endOf, hasEnded, nameOf, Remaining, whereOf } from "../../ui/job";
import { Progress } from "../../ui/progress";
import { Status } from "../../ui/status";

export interface Column {
  id: string;
  name: string;
  width: string; // of a grid track
  figure?: boolean;
  cell: (j: Job, now: number) => ReactNode;
  title?: (j: Job) => string; // the whole text where it is cut
  // sort is how the server sorts by it at first: an index is needed, so that paging through everything is fast.
  sort?: "ascending" | "descending";
}

const projectOf = (j: Job): string => j.project ?? "";
const resourcesOf = (j: Job): string => j.resources;

export const columns: Column[] = [
  { id: "id", name: "Job", width: "76px", cell: (j) => j.id },
  {
    id: "name",
    name: "Name",
    width: "minmax(120px, 2fr)",
    cell: (j) => <bdi>{nameOf(j)}</bdi>,
    title: nameOf,
    sort: "ascending",
  },
  { id: "status", name: "Status", width: "132px", cell: (j) => <Status status={j.status} /> },
  { id: "owner", name: "Owner", width: "minmax(72px, 110px)", cell: (j) => j.owner, title: (j) => j.owner },
  { id: "project", name: "Project", width: "minmax(72px, 120px)", cell: projectOf, title: projectOf },
  {
    id: "progress",
    name: "Progress",
    width: "132px",
    figure: true,
    cell: (j) => (hasEnded(j) || j.started === undefined ? "" : <Progress percent={j.percent} />),
  },
  {
    id: "remaining",
    name: "Remaining",
    width: "184px",
    figure: true,
    cell: (j, now) => <Remaining job={j} now={now} />,
  },
  { id: "end", name: "Est. finish", width: "96px", figure: true, cell: (j, now) => (j.ended ? "" : endOf(j, now)) },
  { id: "cost", name: "Cost", width: "132px", figure: true, cell: (j) => <Cost job={j} />, sort: "descending" },
  {
    id: "where",
    name: "Where, or why",
    width: "minmax(140px, 3fr)",
    cell: (j) => <span dir="auto">{whereOf(j)}</span>,
    title: whereOf,
  },
  { id: "priority", name: "Priority", width: "64px", figure: true, cell: (j) => j.priority },
  { id: "resources", name: "Resources", width: "minmax(100px, 160px)", cell: resourcesOf, title: resourcesOf },
  {
    id: "submitted",
    name: "Submitted",
    width: "92px",
    figure: true,
    cell: (j, now) => ago(j.submitted, now),
    title: (j) => new Date(j.submitted).toLocaleString(),
    sort: "descending",
  },
  {
    id: "ended",
    name: "Ended",
    width: "104px",
    figure: true,
    cell: (j, now) => (j.ended ? time(j.ended, now) : ""),
    title: (j) => (j.ended ? new Date(j.ended).toLocaleString() : ""),
    sort: "descending",
  },
];

/** What is left of the columns while a job is open beside the list. */
const brief = ["id", "name", "status", "remaining", "submitted"];

const standard = ["id", "name", "status", "owner", "progress", "remaining", "cost", "where", "submitted"];

/** The order of a list: a column and a direction. */
export interface Order {
  column: string;
  direction: "ascending" | "descending";
}

/** orderOf reads the order in the address: sort=name, sort=-cost; without it the newest come first. */
export function orderOf(q: URLSearchParams): Order {
  const text = q.get("sort") ?? "";
  const column = columns.find((c) => c.sort && c.id === text.replace(/^-/, ""))?.id;
  if (!column) return { column: "submitted", direction: "descending" };

  return { column, direction: text.startsWith("-") ? "descending" : "ascending" };
}

/** sortAfter is what the address says once somebody has clicked on a column. */
export function sortAfter(order: Order, column: Column): string {
  const again = order.column === column.id;
  const ascending = again ? order.direction === "descending" : column.sort === "ascending";
  if (column.id === "submitted" && !ascending) return "";

  return ascending ? column.id : `-${column.id}`;
}

/**
 * columnsOf returns the chosen columns in their order: those of the address, else the standard ones. That by which the
 * list is sorted is among them.
 */
export function columnsOf(q: URLSearchParams): Column[] {
  const wanted = q.get("cols")?.split(",") ?? [...standard, orderOf(q).column];

  return columns.filter((c) => c.id === "id" || wanted.includes(c.id));
}

/** shownColumns returns what there is room for. */
export function shownColumns(q: URLSearchParams): Column[] {
  const chosen = columnsOf(q);

  return q.has("job") ? chosen.filter((c) => brief.includes(c.id) || c.id === orderOf(q).column) : chosen;
}

/** colsOf writes the choice into the address; the standard one is not written. */
export function colsOf(ids: string[]): string {
  return ids.length === standard.length && standard.every((c) => ids.includes(c)) ? "" : ids.join(",");
}
