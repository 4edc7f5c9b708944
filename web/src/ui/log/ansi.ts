// Colours of terminals in text of which nobody knows who wrote it. Nothing of it is ever read as HTML.

/** Colours are the tokens of base.css, so that they can be read in both themes. */
export type Hue = "red" | "green" | "yellow" | "blue" | "magenta" | "cyan" | "grey";

export interface Style {
  colour?: Hue;
  back?: Hue;
  bold?: boolean;
  faint?: boolean;
  italic?: boolean;
  underline?: boolean;
}

export interface Piece {
  text: string;
  style: Style;
  match?: boolean; // it was looked for
}

/** Where something is in a text: from a character up to another. */
export type Span = readonly [from: number, to: number];

const plain: Style = {};

// Escape sequences: those of colours and the like (1), other control sequences, and strings for the terminal such as
// titles and links.
const sequence = /\x1b\[([\d;:]*)m|\x1b\[[\d;:?<=>]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?/g;

const control = /[\x00-\x08\x0a-\x1f\x7f]/g;

/**
 * Splits a line into pieces of one style, each of them a match or not. Other control characters are shown, as the
 * command line does.
 */
export function parseAnsi(text: string, matches: readonly Span[] = []): Piece[] {
  if (matches.length === 0 && !text.includes("\x1b")) return [{ text: shown(text), style: plain }];

  const pieces: Piece[] = [];
  let style = plain;
  let done = 0;

  const push = (from: number, to: number, match: boolean) => {
    if (to > from) pieces.push({ text: shown(text.slice(from, to)), style, ...(match ? { match } : {}) });
  };
  const add = (end: number) => {
    let from = done;

    for (const [begin, stop] of matches) {
      if (stop <= from || begin >= end) continue;

      push(from, begin, false);
      push(Math.max(from, begin), Math.min(stop, end), true);
      from = Math.min(stop, end);
    }

    push(from, end, false);
  };

  for (const found of text.matchAll(sequence)) {
    add(found.index);
    done = found.index + found[0].length;
    if (found[1] !== undefined) style = changed(style, found[1].split(/[;:]/).map(Number));
  }

  add(text.length);

  return pieces;
}

/** spansOf turns matches in bytes of UTF-8, as the server counts them, into characters of a text. */
export function spansOf(text: string, matches: readonly number[] = []): Span[] {
  const spans: Span[] = [];
  let at = 0; // the character, and the byte that it begins with
  let byte = 0;
  const characterOf = (wanted: number): number => {
    while (byte < wanted && at < text.length) {
      const code = text.codePointAt(at) ?? 0;
      byte += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
      at += code < 0x10000 ? 1 : 2;
    }

    return at;
  };

  for (let i = 0; i + 1 < matches.length; i += 2) {
    spans.push([characterOf(matches[i] ?? 0), characterOf(matches[i + 1] ?? 0)]);
  }

  return spans;
}

/** shown makes control characters visible: ^G for a bell. */
function shown(text: string): string {
  return text.replace(control, (c) => `^${String.fromCharCode(c.charCodeAt(0) ^ 64)}`);
}

const hues: (Hue | undefined)[] = [undefined, "red", "green", "yellow", "blue", "magenta", "cyan", undefined];

/** changed applies the numbers of one sequence. */
function changed(style: Style, codes: number[]): Style {
  let next = { ...style };

  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 0) next = {};
    else if (code === 1) next.bold = true;
    else if (code === 2) next.faint = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 22) next = { ...next, bold: false, faint: false };
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 38 || code === 48) {
      const { hue, used } = extended(codes.slice(i + 1));
      next = with_(next, code === 38 ? "colour" : "back", hue);
      i += used;
    } else {
      next = simple(next, code);
    }
  }

  return next;
}

function with_(style: Style, which: "colour" | "back", hue: Hue | undefined): Style {
  const next = { ...style };
  if (hue) next[which] = hue;
  else if (which === "colour") delete next.colour;
  else delete next.back;

  return next;
}

/** simple applies one of the 16 colours, or takes one away. */
function simple(style: Style, code: number): Style {
  if (code === 90) return with_(style, "colour", "grey");
  if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) return with_(style, "colour", hues[code % 10]);
  if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) return with_(style, "back", hues[code % 10]);
  if (code === 39) return with_(style, "colour", undefined);

  return code === 49 ? with_(style, "back", undefined) : style;
}

/** extended reads a colour of 256 or of 16 million, and returns which of ours is nearest. */
function extended(codes: number[]): { hue: Hue | undefined; used: number } {
  const [kind, a = 0, b = 0, c = 0] = codes;
  if (kind === 2) return { hue: nearest(a, b, c), used: 4 };
  if (kind !== 5) return { hue: undefined, used: 1 };
  if (a < 16) return { hue: hues[a % 8], used: 2 };
  if (a >= 232) return { hue: a < 250 ? "grey" : undefined, used: 2 };

  const part = (n: number) => (n === 0 ? 0 : 55 + 40 * n);
  const n = a - 16;

  return { hue: nearest(part(Math.floor(n / 36)), part(Math.floor(n / 6) % 6), part(n % 6)), used: 2 };
}

function nearest(r: number, g: number, b: number): Hue | undefined {
  const most = Math.max(r, g, b);
  const range = most - Math.min(r, g, b);
  if (range < 40) return most > 60 && most < 200 ? "grey" : undefined;

  const sixth = most === r ? (g - b) / range : most === g ? 2 + (b - r) / range : 4 + (r - g) / range;
  const wheel: Hue[] = ["red", "yellow", "green", "cyan", "blue", "magenta"];

  return wheel[(Math.round(sixth) + 6) % 6];
}
