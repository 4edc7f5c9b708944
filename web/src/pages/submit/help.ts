// What the schema of job files says of its fields, for the form.
import schema from "../../../../api/jobfile.schema.json";
import type { Path } from "./jobfile";

interface Described {
  description?: string;
  enum?: string[];
  properties?: Record<string, Described>;
}

function at(path: Path): Described | undefined {
  return path.reduce<Described | undefined>((of, name) => of?.properties?.[name], schema);
}

export function helpOf(path: Path): string {
  return at(path)?.description ?? "";
}

/** choicesOf returns the words that a field can be, the default first. */
export function choicesOf(path: Path): string[] {
  return at(path)?.enum ?? [];
}

/** defaultOf returns what counts where a field is not given, "" if the schema does not say. */
export function defaultOf(path: Path): string {
  return /Default: ([^,.]+)[,.]/.exec(helpOf(path))?.[1] ?? "";
}
