// Whose cost the page is about and how it is divided, in the address: ?by=class&show=gpu&researcher=ada
import type { Whoami } from "../../api/client";
import type { Key } from "../../api/queries/cost";

/** What the bars show. */
export type Show = "cost" | "gpu" | "energy";

export const shows: { id: Show; name: string }[] = [
  { id: "cost", name: "Cost" },
  { id: "gpu", name: "GPU-hours" },
  { id: "energy", name: "Energy" },
];

export const nameOfKey: Record<Key, string> = {
  researcher: "By researcher",
  project: "By project",
  class: "By class",
  gpu: "By GPU model",
  account: "Used and unused",
  node: "By node",
};

export interface Choice {
  by: Key;
  show: Show | undefined; // undefined: cost, if it is known
  researcher: string; // only theirs; "" for all that one may see
  project: string;
  where: string[];
  everyone: boolean; // the user may see everyone's
}

export function choiceOf(q: URLSearchParams, user: Whoami): Choice {
  const everyone = user.role === "admin" || user.role === "operator";
  const researcher = q.get("researcher") ?? "";
  const project = q.get("project") ?? "";
  const by = q.get("by") ?? "";

  return {
    by: by in nameOfKey ? (by as Key) : everyone && researcher === "" ? "researcher" : "project",
    show: shows.find((s) => s.id === q.get("show"))?.id,
    researcher,
    project,
    where: [
      ...(researcher === "" ? [] : [`researcher=${researcher}`]),
      ...(project === "" ? [] : [`project=${project}`]),
    ],
    everyone,
  };
}

/** nameOfValue is what a value of a key is called: what has no researcher is the yard's. */
export function nameOfValue(value: string, by: string): string {
  if (value !== "") return by === "class" && value === "ondemand" ? "on demand" : value;

  return { researcher: "the yard", project: "no project", gpu: "no GPU" }[by] ?? "none";
}
