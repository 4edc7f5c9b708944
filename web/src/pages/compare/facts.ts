// What is compared of jobs beside their curves: every field of their job files, written so that equal ones are equal.
import type { JobDetail } from "../../api/client";

/** A fact of several jobs: one value for each, "" where a job has none. */
export interface Row {
  name: string;
  values: string[];
  differs: boolean;
}

/** The fields of job files, those that differ first. */
export function fieldsOf(jobs: JobDetail[]): Row[] {
  const fields = jobs.map((j) => flatten(j.spec));
  const names = [...new Set(fields.flatMap((f) => [...f.keys()]))];
  const rows = names.map((name) => rowOf(name, fields.map((f) => f.get(name) ?? "")));

  return [...rows.filter((r) => r.differs), ...rows.filter((r) => !r.differs)];
}

export function rowOf(name: string, values: string[]): Row {
  return { name, values, differs: new Set(values).size > 1 };
}

/** flatten names what is nested: params.lr. Lists are one value. */
function flatten(value: unknown, name = "", into = new Map<string, string>()): Map<string, string> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    for (const [key, inner] of Object.entries(value)) flatten(inner, name === "" ? key : `${name}.${key}`, into);
  } else if (Array.isArray(value)) {
    into.set(name, value.map((v) => (typeof v === "object" ? JSON.stringify(v) : String(v))).join(", "));
  } else if (value !== null && value !== undefined) {
    into.set(name, typeof value === "string" ? value : JSON.stringify(value));
  }

  return into;
}
