// A folder that somebody dropped or chose, and which of its files are part of a working directory.
import { gitIgnoreName, noRules, ownIgnoreName, verdictOn, within, type Rules } from "./ignore";

/** A folder as browsers show it: dropped ones are read as one goes, chosen ones are lists of files. */
export interface Folder {
  name: string;
  list: () => Promise<Entry[]>;
}

export type Entry = { name: string } & ({ folder: Folder } | { file: () => Promise<File> });

/** What a browser uploads at most. More is for the command line, which reads files piece by piece. */
export const limits = { files: 20_000, file: 512 << 20, total: 2 ** 31 };

/** Why a folder cannot be a working directory. */
export class Refused extends Error {
  constructor(message: string, readonly remedy: string) {
    super(message);
  }
}

const remedy = `leave out what the job does not need with lines in ${ownIgnoreName}, or use trainyard submit`;

/** A file of a working directory. */
export interface Found {
  path: string;
  file: File;
}

/** A folder as it was read. */
export interface Tree {
  files: Found[];
  size: number;
  secret: string[]; // left out because they look as if they held a secret
}

/** scan lists a folder without what its ignore files leave out. */
export async function scan(folder: Folder, signal: AbortSignal, progress: (files: number) => void): Promise<Tree> {
  const tree: Tree = { files: [], size: 0, secret: [] };
  await walk(folder, "", noRules);

  return tree;

  async function walk(at: Folder, dir: string, above: Rules): Promise<void> {
    signal.throwIfAborted();
    const entries = await at.list();
    const rules = within(above, dir, await textOf(entries, ownIgnoreName), await textOf(entries, gitIgnoreName));

    for (const entry of entries) {
      const path = dir === "" ? entry.name : `${dir}/${entry.name}`;
      const verdict = entry.name === ".git" ? "ignored" : verdictOn(rules, path, "folder" in entry);
      if (verdict === "secret") tree.secret.push(path);
      if (verdict !== "taken") continue;

      if ("folder" in entry) await walk(entry.folder, path, rules);
      else add(path, await entry.file());
    }
  }

  function add(path: string, file: File): void {
    tree.files.push({ path, file });
    tree.size += file.size;
    progress(tree.files.length);

    if (file.size > limits.file) throw new Refused(`${path} is larger than 512 MB`, remedy);
    if (tree.files.length > limits.files) throw new Refused("the folder has more than 20,000 files", remedy);
    if (tree.size > limits.total) throw new Refused("the folder is larger than 2 GB", remedy);
  }
}

const maxIgnoreFile = 1 << 20;

async function textOf(entries: Entry[], name: string): Promise<string | undefined> {
  const entry = entries.find((e) => e.name === name);
  if (!entry || "folder" in entry) return undefined;

  const file = await entry.file();
  if (file.size > maxIgnoreFile) throw new Refused(`${name} is too large`, "shorten it");

  return file.text();
}

/** below finds the folder at a relative path, as workdir names one; undefined if it is outside or not there. */
export async function below(folder: Folder, path: string): Promise<Folder | undefined> {
  let at = folder;
  for (const name of path.split("/")) {
    if (name === "" || name === ".") continue;

    const found = (await at.list()).find((e) => e.name === name);
    if (!found || !("folder" in found)) return undefined;

    at = found.folder;
  }

  return path.startsWith("/") ? undefined : at;
}

/** jobFileOf returns the job file of a folder: the one that trainyard init writes. */
export async function jobFileOf(folder: Folder): Promise<File | undefined> {
  const found = (await folder.list()).find((e) => e.name === "job.yaml" || e.name === "job.yml");

  return found && "file" in found ? found.file() : undefined;
}

/** chosenFolder makes a folder of the files that an <input webkitdirectory> has. */
export function chosenFolder(files: File[]): Folder | undefined {
  interface Node { folders: Map<string, Node>; files: Map<string, File> }

  const top: Node = { folders: new Map(), files: new Map() };
  let name = "";

  for (const file of files) {
    const [first = "", ...names] = file.webkitRelativePath.split("/");
    const last = names.pop();
    if (last === undefined) return undefined;

    name = first;
    let at = top;
    for (const n of names) {
      const next = at.folders.get(n) ?? { folders: new Map(), files: new Map() };
      at.folders.set(n, next);
      at = next;
    }

    at.files.set(last, file);
  }

  return files.length === 0 ? undefined : folderOf(name, top);

  function folderOf(of: string, node: Node): Folder {
    const entries: Entry[] = [
      ...[...node.folders].map(([n, f]) => ({ name: n, folder: folderOf(n, f) })),
      ...[...node.files].map(([n, f]) => ({ name: n, file: () => Promise.resolve(f) })),
    ];

    return { name: of, list: () => Promise.resolve(entries) };
  }
}

/** droppedFolder makes a folder of one that was dropped. */
export function droppedFolder(entry: FileSystemDirectoryEntry): Folder {
  return { name: entry.name, list: async () => (await readAll(entry)).map(entryOf) };
}

function entryOf(e: FileSystemEntry): Entry {
  if (e.isDirectory) return { name: e.name, folder: droppedFolder(e as FileSystemDirectoryEntry) };

  const file = () => new Promise<File>((resolve, reject) => {
    (e as FileSystemFileEntry).file(resolve, () => { reject(unreadable(e.fullPath)); });
  });

  return { name: e.name, file };
}

/** readAll reads a folder to its end: browsers give a hundred entries at a time. */
async function readAll(folder: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = folder.createReader();
  const all: FileSystemEntry[] = [];

  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => {
      reader.readEntries(resolve, () => { reject(unreadable(folder.fullPath)); });
    });
    if (some.length === 0) return all;

    all.push(...some);
  }
}

function unreadable(path: string): Refused {
  return new Refused(`cannot read ${path}`, `make it readable, or leave it out with a line in ${ownIgnoreName}`);
}
