// Uploads a working directory as the command line does (internal/cli/upload): only what the server lacks, each content
// by its digest, and the list of files last, so that a list that is there is complete.
import { putFile, Problem } from "../../api/client";
import { joinFile, missingFiles } from "../../api/drafts";
import { Refused, type Found, type Tree } from "./folder";

const maxDigests = 10_000; // that the server is asked about at once
const uploaders = 4;
const attempts = 5;

// Large files travel in parts, so that an upload that was interrupted continues.
const inPartsFrom = 64 << 20;
const partSize = 32 << 20;

/** How far an upload is. */
export interface Progress {
  what: "reading" | "uploading";
  files: number;
  allFiles: number;
  bytes: number;
  allBytes: number;
}

/** A working directory that the server has. */
export interface Workdir {
  digest: string;
  name: string; // of the folder
  files: number;
  size: number;
  secret: string[]; // left out because they look as if they held a secret
}

/** canUpload reports whether this browser computes digests here: it does with HTTPS and on the machine itself. */
export const canUpload = (): boolean => isSecureContext;

/** upload sends what the server lacks of a folder, and returns what names the folder's content. */
export async function upload(
  name: string, tree: Tree, signal: AbortSignal, show: (p: Progress) => void,
): Promise<Workdir> {
  const lines = await digests(tree, signal, show);
  const byDigest = new Map(lines.map((l) => [l.digest, l]));
  const manifest = new Blob([encode(lines)]);
  const own = await digestOf(manifest);
  const missing = await lacks([own, ...byDigest.keys()], signal);

  const files = missing.flatMap((d) => byDigest.get(d) ?? []);
  const done: Progress = {
    what: "uploading", files: 0, allFiles: files.length, bytes: 0, allBytes: files.reduce((n, l) => n + l.size, 0),
  };
  const count = (fileCount: number, bytes: number) => {
    done.files += fileCount;
    done.bytes += bytes;
    show({ ...done });
  };

  count(0, 0);
  await each(files, async (line) => {
    await send(line, signal, (bytes) => { count(0, bytes); });
    count(1, 0);
  });

  if (missing.includes(own)) await patiently(signal, () => putFile(own, manifest, signal));

  return { digest: own, name, files: lines.length, size: tree.size, secret: tree.secret };
}

/** A line of the manifest. */
interface Line {
  path: string;
  mode: number;
  size: number;
  digest: string;
  file: File;
}

async function digests(tree: Tree, signal: AbortSignal, show: (p: Progress) => void): Promise<Line[]> {
  const lines: Line[] = [];
  let bytes = 0;

  for (const found of tree.files.toSorted((a, b) => compare(a.path, b.path))) {
    signal.throwIfAborted();
    lines.push(await lineOf(found));
    bytes += found.file.size;
    show({ what: "reading", files: lines.length, allFiles: tree.files.length, bytes, allBytes: tree.size });
  }

  return lines;
}

async function lineOf({ path, file }: Found): Promise<Line> {
  try {
    const start = await file.slice(0, 2).text();

    // Browsers do not say which files are programs. What begins with #! is one.
    return { path, mode: start === "#!" ? 0o755 : 0o644, size: file.size, digest: await digestOf(file), file };
  } catch (cause) {
    if (cause instanceof DOMException) {
      throw new Refused(`cannot read ${path}: it has changed`, "choose the folder again");
    }

    throw cause;
  }
}

async function digestOf(content: Blob): Promise<string> {
  const sum = await crypto.subtle.digest("SHA-256", await content.arrayBuffer());

  return [...new Uint8Array(sum)].map((b) => b.toString(16).padStart(2, "0")).join("");
}

/** encode writes the manifest as the command line does, so that the same folder has the same digest. */
function encode(lines: Line[]): string {
  const files = lines.map(({ path, mode, size, digest }) => ({ path, mode, size, digest }));

  return JSON.stringify({ files }).replace(
    /[<>&\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** compare orders paths by their bytes in UTF-8, as Go does: pairs of surrogates come last. */
function compare(a: string, b: string): number {
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;

  const [x, y] = [a.charCodeAt(i), b.charCodeAt(i)];
  if (Number.isNaN(x) || Number.isNaN(y)) return a.length - b.length;

  const isPair = (c: number) => c >= 0xd800 && c <= 0xdfff;

  return isPair(x) === isPair(y) ? x - y : isPair(x) ? 1 : -1;
}

async function lacks(all: string[], signal: AbortSignal): Promise<string[]> {
  const missing: string[] = [];
  for (let i = 0; i < all.length; i += maxDigests) {
    missing.push(...await patiently(signal, () => missingFiles(all.slice(i, i + maxDigests), signal)));
  }

  return missing;
}

/** send sends one file, in parts if it is large. */
async function send(line: Line, signal: AbortSignal, count: (bytes: number) => void): Promise<void> {
  if (line.size < inPartsFrom) {
    await patiently(signal, () => putFile(line.digest, line.file, signal));
    count(line.size);

    return;
  }

  const parts: { digest: string; content: Blob }[] = [];
  for (let from = 0; from < line.size; from += partSize) {
    const content = line.file.slice(from, from + partSize);
    parts.push({ digest: await digestOf(content), content });
  }

  const missing = new Set(await lacks([...new Set(parts.map((p) => p.digest))], signal));
  for (const { digest, content } of parts) {
    if (missing.delete(digest)) await patiently(signal, () => putFile(digest, content, signal));
    count(content.size);
  }

  const list = parts.map((p) => p.digest);
  while (!await patiently(signal, () => joinFile(line.digest, list, line.size, signal)));
}

/** each does something with all items, a few at a time, and stops at the first error. */
async function each<T>(items: T[], act: (item: T) => Promise<void>): Promise<void> {
  const waiting = [...items];
  const work = async () => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await act(item);
  };

  try {
    await Promise.all(Array.from({ length: uploaders }, work));
  } finally {
    waiting.length = 0;
  }
}

/** patiently calls again while the server does not respond, or has enough uploads of this user under way. */
async function patiently<T>(signal: AbortSignal, act: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await act();
    } catch (cause) {
      const later = cause instanceof Problem &&
        (cause.status === 0 || cause.status === 503 || cause.code === "too_many_uploads");
      if (!later || attempt === attempts) throw cause;
    }

    await new Promise((resolve) => { setTimeout(resolve, 250 * 2 ** attempt); });
    signal.throwIfAborted();
  }
}
