// Every page of the portal. A page is entered here and nowhere else: the navigation, the keys and the routes follow.
import { lazy, type ComponentType } from "react";

import { Home } from "../pages/home/home";

export interface Page {
  path: string; // below the place where the portal is served; "" for Home
  name: string;
  key?: string; // after g
  place: "bar" | "more" | "none"; // of its link: in the bar, in the menu More, or only on other pages
  view: ComponentType<{ rest: string }>; // rest is what follows the path: "j12" of jobs/j12
}

/** pageOf finds the page of a path, and what follows the path of the page: the longest path wins. */
export function pageOf(path: string): { page: Page; rest: string } | undefined {
  const fits = (p: Page) => path === p.path || (p.path !== "" && path.startsWith(p.path + "/"));
  const page = pages.filter(fits).sort((a, b) => b.path.length - a.path.length)[0];

  return page && { page, rest: path.slice(page.path.length + 1) };
}

// Home is the first screen. The others are loaded when they are opened.
export const pages: Page[] = [
  { path: "", name: "Home", key: "h", place: "bar", view: Home },
  {
    path: "jobs",
    name: "Jobs",
    key: "j",
    place: "bar",
    view: lazy(() => import("../pages/jobs/jobs").then((m) => ({ default: m.Jobs }))),
  },
  {
    path: "queue",
    name: "Queue",
    key: "q",
    place: "bar",
    view: lazy(() => import("../pages/queue/queue").then((m) => ({ default: m.Queue }))),
  },
  {
    path: "nodes",
    name: "Nodes",
    key: "n",
    place: "bar",
    view: lazy(() => import("../pages/nodes/nodes").then((m) => ({ default: m.Nodes }))),
  },
  {
    path: "cost",
    name: "Cost",
    key: "c",
    place: "bar",
    view: lazy(() => import("../pages/cost/cost").then((m) => ({ default: m.Cost }))),
  },
  {
    path: "data",
    name: "Data",
    key: "d",
    place: "bar",
    view: lazy(() => import("../pages/data/data").then((m) => ({ default: m.Data }))),
  },
  {
    path: "whatif",
    name: "What-if",
    key: "w",
    place: "bar",
    view: lazy(() => import("../pages/whatif/whatif").then((m) => ({ default: m.WhatIf }))),
  },
  {
    path: "submit",
    name: "Submit",
    key: "s",
    place: "bar",
    view: lazy(() => import("../pages/submit/submit").then((m) => ({ default: m.Submit }))),
  },
  {
    path: "forecasts",
    name: "Forecast quality",
    place: "more",
    view: lazy(() => import("../pages/forecasts/forecasts").then((m) => ({ default: m.ForecastQuality }))),
  },
  {
    path: "events",
    name: "Events",
    key: "e",
    place: "more",
    view: lazy(() => import("../pages/events/events").then((m) => ({ default: m.Events }))),
  },
  {
    path: "admin",
    name: "Admin",
    key: "a",
    place: "more",
    view: lazy(() => import("../pages/admin/admin").then((m) => ({ default: m.Admin }))),
  },
  {
    path: "job",
    name: "Job",
    place: "none",
    view: lazy(() => import("../pages/job/job").then((m) => ({ default: m.JobPage }))),
  },
  {
    path: "logs",
    name: "Output",
    place: "none",
    view: lazy(() => import("../pages/logs/logs").then((m) => ({ default: m.Logs }))),
  },
  {
    path: "compare",
    name: "Compare",
    place: "none",
    view: lazy(() => import("../pages/compare/compare").then((m) => ({ default: m.Compare }))),
  },
  {
    path: "node",
    name: "Node",
    place: "none",
    view: lazy(() => import("../pages/node/node").then((m) => ({ default: m.NodePage }))),
  },
];
