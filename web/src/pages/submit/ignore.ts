// Which files of a folder are uploaded: the rules of the command line (internal/workdir/ignore.go and internal/glob). A
// test compares the two.

export const ownIgnoreName = ".trainyardignore";
export const gitIgnoreName = ".gitignore";

/** Files that usually hold keys, tokens or passwords: left out unless an ignore file says otherwise. */
const confidential = `
.env
.env.*
!.env.example
!.env.sample
!.env.template
*.pem
*.key
*.p12
*.pfx
*.kdbx
id_rsa
id_dsa
id_ecdsa
id_ed25519
*.token
.netrc
.pgpass
.pypirc
.npmrc
.git-credentials
.aws/
.ssh/
.gnupg/
.kube/
.azure/
**/.docker/config.json
**/.config/gcloud/
**/.config/trainyard/
**/huggingface/token
**/.huggingface/token
`;

/** One line of an ignore file. */
interface Rule {
  keep: boolean; // the line began with "!"
  dirOnly: boolean; // the line ended with "/"
  anchored: boolean; // it holds from the folder of the file on, not at any depth
  parts: string[];
}

/** The rules of one folder's ignore file, on top of those of the folders above it. */
interface List {
  above: List | undefined;
  dir: string; // "" for the top
  rules: Rule[];
}

/** The rules of both kinds of ignore files: what .trainyardignore says counts, otherwise what .gitignore does. */
export interface Rules {
  own: List | undefined;
  git: List | undefined;
}

export const noRules: Rules = { own: undefined, git: undefined };

const secrets: List = { above: undefined, dir: "", rules: parse(confidential) };

/** within returns the rules that hold in a folder with these ignore files; undefined where it has none. */
export function within(rules: Rules, dir: string, own: string | undefined, git: string | undefined): Rules {
  return {
    own: own === undefined ? rules.own : { above: rules.own, dir, rules: parse(own) },
    git: git === undefined ? rules.git : { above: rules.git, dir, rules: parse(git) },
  };
}

/** What becomes of a file or folder. Secret is left out because of its name alone, which people are told. */
export type Verdict = "taken" | "ignored" | "secret";

/** What lies in an ignored folder is never asked about. */
export function verdictOn(rules: Rules, name: string, isDir: boolean): Verdict {
  for (const list of [rules.own, rules.git]) {
    if (matching(list, name, isDir)) return ignores(list, name, isDir) ? "ignored" : "taken";
  }

  return ignores(secrets, name, isDir) ? "secret" : "taken";
}

function matching(list: List | undefined, name: string, isDir: boolean): Rule | undefined {
  for (let l = list; l; l = l.above) {
    const parts = (l.dir === "" ? name : name.slice(l.dir.length + 1)).split("/");
    const found = l.rules.findLast((r) => matches(r, parts, isDir));
    if (found) return found;
  }

  return undefined;
}

/** The last line that matches decides, and a folder's own file stands above those of the folders around it. */
function ignores(list: List | undefined, name: string, isDir: boolean): boolean {
  return matching(list, name, isDir)?.keep === false;
}

function matches(r: Rule, name: string[], isDir: boolean): boolean {
  if (r.dirOnly && !isDir) return false;

  return r.anchored ? matchParts(r.parts, name) : matchPart(r.parts[0] ?? "", name.at(-1) ?? "");
}

/** Like Git it has no errors: a line that makes no sense matches nothing. */
function parse(text: string): Rule[] {
  return text.replace(/^\ufeff/, "").split("\n").flatMap((line) => parseLine(line.replace(/\r$/, "")));
}

function parseLine(text: string): Rule[] {
  let line = trimEnd(text);
  if (line === "" || line.startsWith("#")) return [];

  const keep = line.startsWith("!");
  if (keep) line = line.slice(1);

  const dirOnly = line.endsWith("/");
  if (dirOnly) line = line.slice(0, -1);
  if (line === "") return [];

  return [{ keep, dirOnly, anchored: line.includes("/"), parts: line.replace(/^\//, "").split("/") }];
}

/** trimEnd cuts spaces that no backslash protects. */
function trimEnd(text: string): string {
  let s = text;
  while (s.endsWith(" ")) {
    const cut = s.slice(0, -1);
    const slashes = /\\*$/.exec(cut)?.[0].length ?? 0;
    if (slashes % 2 === 1) return s;

    s = cut;
  }

  return s;
}

/** matchParts matches a split pattern with a split path. "**" stands for any number of folders. */
function matchParts(pattern: string[], name: string[]): boolean {
  let from = [true, ...name.map(() => false)]; // which beginnings of the path are reached

  pattern.forEach((part, i) => {
    const next = from.map(() => false);
    if (/^\*{2,}$/.test(part)) {
      const last = i === pattern.length - 1; // where it needs at least one name
      let open = false;
      from.forEach((reached, j) => {
        next[j] = open || (reached && !last);
        open ||= reached;
      });
    } else {
      name.forEach((n, j) => { next[j + 1] = (from[j] ?? false) && matchPart(part, n); });
    }

    from = next;
  });

  return from.at(-1) ?? false;
}

const encoder = new TextEncoder();

/**
 * matchPart matches one name with one pattern without slashes, byte by byte: "*" is any text, "?" any one byte, "[a-z]"
 * and "[!a-z]" are classes, "\" takes the next byte as it is. It goes back to the last "*" only.
 */
function matchPart(patternText: string, nameText: string): boolean {
  const [pattern, name] = [encoder.encode(patternText), encoder.encode(nameText)];
  let [p, n, starP, starN] = [0, 0, -1, 0];

  while (n < name.length) {
    if (pattern[p] === star) {
      [starP, starN] = [p, n];
      p++;
      continue;
    }

    const width = matchOne(pattern, p, name[n] ?? 0);
    if (width > 0) {
      p += width;
      n++;
      continue;
    }

    if (starP < 0) return false;

    starN++;
    [p, n] = [starP + 1, starN];
  }

  while (pattern[p] === star) p++;

  return p === pattern.length;
}

const [star, question, open, close, backslash, bang, caret, dash] = [...encoder.encode("*?[]\\!^-")];

/** matchOne returns how much of a pattern matches one byte; 0 for nothing. */
function matchOne(pattern: Uint8Array, p: number, c: number): number {
  switch (pattern[p]) {
    case undefined:
      return 0;
    case question:
      return 1;
    case open:
      return matchClass(pattern, p, c);
    case backslash:
      return pattern[p + 1] === c ? 2 : 0;
  }

  return pattern[p] === c ? 1 : 0;
}

/** matchClass matches a byte with a class such as [a-z_] or [!0-9]. A class that does not end matches nothing. */
function matchClass(pattern: Uint8Array, p: number, c: number): number {
  let i = p + 1;
  const negated = pattern[i] === bang || pattern[i] === caret;
  if (negated) i++;

  let found = false;
  for (let first = true; i < pattern.length; first = false) {
    if (pattern[i] === close && !first) return found === negated ? 0 : i + 1 - p;

    if (pattern[i] === backslash) i++;
    const low = pattern[i];
    if (low === undefined) return 0;

    let high = low;
    i++;
    if (pattern[i] === dash && i + 1 < pattern.length && pattern[i + 1] !== close) {
      i++;
      if (pattern[i] === backslash) i++;
      const end = pattern[i];
      if (end === undefined) return 0;

      high = end;
      i++;
    }

    found ||= low <= c && c <= high;
  }

  return 0;
}
