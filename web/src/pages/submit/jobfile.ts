// The text of a job file, and changes of it. The text is what counts: the form shows what it says, and changes no more
// of it than one value, so that comments and the rest stay as they were written.
import { isMap, isNode, isScalar, isSeq, parseDocument, stringify, type Document, type ToStringOptions } from "yaml";

/** A path in a job: ["resources", "gpus"]. */
export type Path = string[];

/** One job of a file: files may have several, separated by lines of three dashes. */
export interface Part {
  from: number; // where its text begins
  text: string;
  line: number; // its first line, from 1
  doc: Document;
  problem?: string; // why it cannot be shown as a form
}

// A line of three dashes at the margin always separates: what is inside of a job is indented.
const separator = /^---[ \t]*(?:#.*)?(?:\n|$)/gm;

/** parts returns the jobs of a file. A separator before the first job belongs to it. */
export function parts(text: string): Part[] {
  const begins = [0];
  for (const m of text.matchAll(separator)) {
    if (/\S/.test(text.slice(begins.at(-1), m.index).replace(/^[ \t]*#.*$/gm, ""))) begins.push(m.index + m[0].length);
  }

  return begins.map((from, i) => partOf(text, from, i));

  function partOf(all: string, from: number, at: number): Part {
    const next = begins[at + 1];
    const rest = all.slice(from, next);
    const own = next === undefined ? rest : rest.replace(/---[^\n]*\n?$/, "");
    const doc = parseDocument(own, { keepSourceTokens: false });
    const line = all.slice(0, from).split("\n").length;

    return { from, text: own, line, doc, ...problemOf(doc, line) };
  }
}

function problemOf(doc: Document, line: number): { problem?: string } {
  const first = doc.errors[0];
  if (first) {
    const at = first.linePos ? `line ${first.linePos[0].line + line - 1}: ` : "";

    return { problem: at + (first.message.split("\n")[0] ?? "").replace(/ at line \d+, column \d+:?$/, "") };
  }

  if (!isEmpty(doc) && !isMap(doc.contents)) return { problem: "a job file is a list of fields such as run: …" };

  return {};
}

/** isEmpty reports whether there is nothing but comments. */
function isEmpty(doc: Document): boolean {
  return doc.contents === null || (isScalar(doc.contents) && doc.contents.value === null);
}

/** valueOf returns what a job says at a path as text: as it is written, lists with commas, "" for nothing. */
export function valueOf(part: Part, path: Path): string {
  return textOf(nodeAt(part.doc, path), path.at(-1) === "run" || path.at(-1) === "setup" ? "\n" : ", ");
}

function nodeAt(doc: Document, path: Path): unknown {
  return isMap(doc.contents) ? doc.getIn(path, true) : undefined;
}

function textOf(node: unknown, separator: string): string {
  if (isScalar(node)) {
    if (typeof node.value === "string") return node.value.replace(/\n$/, "");

    return node.value === null ? "" : (node.source ?? "");
  }

  if (isSeq(node)) return node.items.map((n) => textOf(n, separator)).join(separator);

  return "";
}

/** isPlain reports whether the form can show a value: mappings and aliases are edited in the text. */
export function isPlain(part: Part, path: Path): boolean {
  const node = nodeAt(part.doc, path);

  return node === undefined || isScalar(node) || (isSeq(node) && node.items.every((n) => isScalar(n)));
}

/** fieldsOf returns the fields that a job has. */
export function fieldsOf(part: Part): string[] {
  if (!isMap(part.doc.contents)) return [];

  return part.doc.contents.items.flatMap((p) => (isScalar(p.key) ? [String(p.key.value)] : []));
}

/** asked returns the variables that a job takes from whoever submits it: those of env without a value. */
export function asked(part: Part): string[] {
  const env = nodeAt(part.doc, ["env"]);
  if (isMap(env)) {
    const open = env.items.filter((p) => p.value === null || (isScalar(p.value) && p.value.value === null));

    return open.flatMap((p) => (isScalar(p.key) ? [String(p.key.value)] : []));
  }

  if (isSeq(env)) {
    return env.items.flatMap((n) => (isScalar(n) && /^\w+$/.test(String(n.value)) ? [String(n.value)] : []));
  }

  return [];
}

/** How the form writes a value: a text, a word or number as it is, or a list with commas. */
export type Kind = "text" | "word" | "list";

/** change returns the text of a file with a value of one of its jobs changed; "" removes it. */
export function change(file: string, part: Part, path: Path, value: string, kind: Kind): string {
  const own = changePart(part, path, value, kind);

  return file.slice(0, part.from) + own + file.slice(part.from + part.text.length);
}

function changePart(part: Part, path: Path, value: string, kind: Kind): string {
  const { text, doc } = part;
  const wanted = value.trim() === "" ? undefined : nodeFor(value, kind);
  const name = path.at(-1) ?? "";
  const above = path.slice(0, -1);
  const holder = above.length === 0 ? doc.contents : nodeAt(doc, above);
  const pair = pairOf(holder, name);

  if (wanted === undefined) {
    if (!pair || !isMap(holder)) return text;
    if (holder.items.length === 1 && above.length > 0) return changePart(part, above, "", kind);

    return holder.flow ? changeFlow(text, path, wanted) : splice(text, placeOf(text, pair), "");
  }

  const inline = pair && replaceInline(text, pair, wanted, isMap(holder) && holder.flow === true);
  if (inline !== undefined) return inline;

  if (isMap(holder) && holder.items.length > 0) {
    if (holder.flow) return changeFlow(text, path, wanted);

    const place = placeOf(text, pair ?? holder.items.at(-1));
    const indent = indentOf(text, holder.items[0]);

    return splice(text, pair ? place : [place[1], place[1]], writePair(name, wanted, indent));
  }

  const outer = above.length > 0 ? pairOf(doc.contents, above[0] ?? "") : undefined;
  if (outer) { // it has no value yet
    const isNull = outer.value === null || (isScalar(outer.value) && outer.value.value === null);
    const end = endOfLine(text, startOf(outer));

    return isNull ? splice(text, [end, end], writePair(name, wanted, "  ")) : text;
  }

  if (!isMap(doc.contents) && !isEmpty(doc)) return text;

  return splice(text, [text.length, text.length], writeNested(path, wanted));
}

type Pair = { key: unknown; value: unknown } | undefined;
type Place = [number, number];

function pairOf(holder: unknown, name: string): Pair {
  return isMap(holder) ? holder.items.find((p) => isScalar(p.key) && p.key.value === name) : undefined;
}

function startOf(pair: Pair): number {
  return isNode(pair?.key) ? (pair.key.range?.[0] ?? 0) : 0;
}

/** placeOf returns the lines of a field, with the comment behind its value. */
function placeOf(text: string, pair: Pair): Place {
  const start = startOf(pair);
  const end = isNode(pair?.value) ? (pair.value.range?.[1] ?? start) : start;

  // The end of a text of several lines is behind its last line.
  return [text.lastIndexOf("\n", start - 1) + 1, text[end - 1] === "\n" ? end : endOfLine(text, Math.max(start, end))];
}

/** endOfLine returns where the next line begins. */
function endOfLine(text: string, from: number): number {
  const end = text.indexOf("\n", from);

  return end < 0 ? text.length : end + 1;
}

function indentOf(text: string, pair: Pair): string {
  const start = startOf(pair);

  return " ".repeat(start - text.lastIndexOf("\n", start - 1) - 1);
}

function splice(text: string, [from, to]: Place, by: string): string {
  const before = text.slice(0, from);
  const gap = by !== "" && before !== "" && !before.endsWith("\n") ? "\n" : "";

  return before + gap + by + text.slice(to);
}

const flow: ToStringOptions = { collectionStyle: "flow", flowCollectionPadding: false, lineWidth: 0 };

/** replaceInline replaces a value on one line by one on the same line, so that nothing else moves. */
function replaceInline(text: string, pair: Pair, wanted: unknown, inFlow: boolean): string | undefined {
  const old = pair?.value;
  if (!(isScalar(old) || (isSeq(old) && old.flow)) || !old.range || old.range[0] === old.range[1]) return undefined;

  if (typeof wanted === "string" && wanted.includes("\n")) return undefined; // it gets lines of its own

  const place: Place = [old.range[0], old.range[1]];
  const written = stringify(wanted, flow).trimEnd();
  if (text.slice(...place).includes("\n")) return undefined;
  if (inFlow && /[,[\]{}]/.test(written) && !Array.isArray(wanted)) return undefined; // they have a meaning there

  return text.slice(0, place[0]) + written + text.slice(place[1]);
}

/** changeFlow changes a value within braces. */
function changeFlow(text: string, path: Path, wanted: unknown): string {
  const doc = parseDocument(text);
  if (wanted === undefined) doc.deleteIn(path);
  else doc.setIn(path, doc.createNode(wanted, { flow: true }));

  return doc.toString({ lineWidth: 0, flowCollectionPadding: false });
}

/** writePair writes a field on lines of its own. */
function writePair(name: string, wanted: unknown, indent: string): string {
  const lines = Array.isArray(wanted)
    ? `${name}: ${stringify(wanted, flow)}`
    : stringify({ [name]: wanted }, { lineWidth: 0 });

  return lines.replace(/^(?=.)/gm, indent);
}

function writeNested(path: Path, wanted: unknown): string {
  const [first = "", second] = path;

  return second === undefined ? writePair(first, wanted, "") : `${first}:\n${writePair(second, wanted, "  ")}`;
}

function nodeFor(value: string, kind: Kind): unknown {
  switch (kind) {
    case "text": {
      const lines = value.replace(/\n+$/, "");

      return lines.includes("\n") ? lines + "\n" : lines;
    }
    case "word":
      return word(value.trim());
    case "list": {
      const words = value.split(",").map((w) => word(w.trim())).filter((w) => w !== "");

      return words.length === 1 ? words[0] : words;
    }
  }
}

/** word is a number where the same digits are written for it. */
function word(text: string): string | number {
  return text !== "" && String(Number(text)) === text ? Number(text) : text;
}

// A deadline without a zone is meant where the person is, which the server cannot know.
const noZone = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?$/;

/** withZones returns the text of a file with the zone of this browser at deadlines that have none. */
export function withZones(text: string): string {
  let out = text;

  for (const part of parts(text).toReversed()) {
    const node = nodeAt(part.doc, ["deadline"]);
    if (!isScalar(node) || !node.range || typeof node.value !== "string" || !noZone.test(node.value)) continue;

    out = out.slice(0, part.from + node.range[0]) + withZone(node.value) + out.slice(part.from + node.range[1]);
  }

  return out;
}

/** withZone writes a local time with seconds and the offset of this browser's clock: 2026-12-01T09:00:00+01:00. */
export function withZone(local: string): string {
  const at = local.replace(" ", "T") + (/:\d\d:/.test(local) ? "" : ":00");
  const minutes = -new Date(at).getTimezoneOffset();
  const two = (n: number) => String(Math.floor(n)).padStart(2, "0");

  return `${at}${minutes < 0 ? "-" : "+"}${two(Math.abs(minutes) / 60)}:${two(Math.abs(minutes) % 60)}`;
}

/** lineOf returns the line of a field in the file, from 1; that of the job if it has none. */
export function lineOf(part: Part, field: string): number {
  const pair = pairOf(part.doc.contents, field);

  return pair === undefined ? part.line : part.line + part.text.slice(0, startOf(pair)).split("\n").length - 1;
}
