import {
  memo, useEffect, useLayoutEffect, useMemo, useRef, useState, useSyncExternalStore, type MouseEvent,
} from "react";

import type { LogLine } from "../../api/logs";
import { count, integer, size } from "../format";
import { parseAnsi, spansOf, type Style } from "./ansi";
import { keyOf, type Source } from "./lines";
import styles from "./log.module.css";

/** The height of a line that is not wrapped; log.module.css has the same. */
const rowHeight = 18;

/** Browsers cannot scroll further than this. Beyond it the scroll bar counts lines, not pixels. */
const tallest = 15_000_000;

const overscan = 20;

/** How many lines are shown above one that was jumped to. */
const context = 6;

/** Up to so many lines the scroll bar knows how high each wrapped line is; beyond, how high they are on average. */
const fewLines = 2000;

/** How wide a character is about, and what is beside the text. */
const characterWidth = 7.3;
const besideText = 110;

/** A scroll has ended when nothing has moved for this time. */
const settledAfter = 150;

/** Where a view begins: a line, counted from 0, and how many pixels of it are above the view. */
interface Position {
  line: number;
  px: number;
}

/** A jump to a line. Another object is another jump, also to the same line. */
export interface Jump {
  line: number; // from 1; 0 is the end, which is followed
}

interface Props {
  lines: Source;
  label: string;
  ranks: boolean; // the lines are of several ranks, and say of which
  wrap: boolean;
  times: boolean;
  mark: number; // the line in the address; 0 for none
  hits: ReadonlyMap<string, LogLine>; // by keyOf: the lines that were looked for
  jump: Jump;
  hrefOf: (line: number) => string;
  onMark: (line: number) => void;
  onFirst: (line: number) => void; // the first line that is visible
}

/**
 * LogView draws the lines that are visible, however many there are. They are drawn in a layer that stays in place; the
 * scroll bar of the browser only says where in the log it is, so that lines may have any height.
 */
export function LogView(props: Props) {
  const { lines, label, ranks, wrap, times, mark, hits, jump, hrefOf, onMark, onFirst } = props;
  const { before, total: all, version } = useSyncExternalStore(lines.subscribe, lines.getState);
  const total = all - before; // that can be shown; positions in them are counted from 0
  const box = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const scrolled = useRef(0); // where the box was when it was looked at last
  const scrolling = useRef<ReturnType<typeof setTimeout>>(undefined);
  const begin = useRef(0); // how many lines were before those that can be shown
  const [{ room, width }, setRoom] = useState({ room: 400, width: 800 });
  const [at, setAt] = useState<Position>(positionOf(jump.line)); // counted from the first line of all
  const [following, setFollowing] = useState(jump.line === 0);
  const [seen, setSeen] = useState(0); // how many lines there were when following ended
  const [, setSettled] = useState(0);
  const [known, setKnown] = useState(jump);

  if (known !== jump) {
    setKnown(jump);
    setAt(positionOf(jump.line));
    setFollowing(jump.line === 0);
    setSeen(all);
  }

  const columns = Math.max(10, Math.floor((width - besideText) / characterWidth));
  const scale = useMemo(
    () => scaleOf(lines, version, before, total, wrap ? columns : Infinity),
    [lines, version, before, total, wrap, columns],
  );
  const height = Math.max(Math.min(scale.whole, tallest), room);
  const end = height - room; // how far the box can be scrolled
  const exact = !wrap && scale.whole <= tallest;
  const rows = Math.ceil(room / rowHeight);
  const here = { ...at, line: Math.max(0, at.line - before) };
  const place = following ? endOf(total, room, wrap) : within(here, total, wrap ? Infinity : scale.whole - room);
  const first = Math.max(0, place.line - overscan);
  const last = Math.min(total, place.line + rows + overscan);

  useEffect(() => { lines.want(before + first + 1, before + last); }, [lines, before, first, last, total]);
  useEffect(() => { onFirst(before + place.line + 1); }, [onFirst, before, place.line]);

  useEffect(() => {
    const b = box.current;
    if (!b) return;

    const watch = new ResizeObserver(() => { setRoom({ room: b.clientHeight, width: b.clientWidth }); });
    watch.observe(b);

    return () => { watch.disconnect(); };
  }, []);

  // The layer is moved so that the first line is where it belongs, and the scroll bar says where that is.
  useLayoutEffect(() => {
    const b = box.current;
    const l = list.current;
    if (!b || !l) return;

    const row = l.children[place.line - first];
    const above = wrap && row instanceof HTMLElement ? row.offsetTop : (place.line - first) * rowHeight;
    const offset = wrap && following ? Math.max(0, l.offsetHeight - b.clientHeight) : above + place.px;
    l.style.transform = `translateY(${-offset}px)`;

    // Lines have come before those that were there: what is shown stays where it is.
    if (begin.current !== before && !following) {
      b.scrollTop += (begin.current - before) * rowHeight;
      scrolled.current = b.scrollTop;
    }

    begin.current = before;

    // Whoever scrolls may be further by now than what is drawn: to set the bar would take them back.
    if (scrolling.current && !following) return;

    const top = (scale.top(place.line) + place.px) * (scale.whole > room ? end / (scale.whole - room) : 0);
    const aim = following ? end : Math.min(top, end);
    if (Math.abs(b.scrollTop - aim) >= 1) b.scrollTop = aim;
    scrolled.current = b.scrollTop;
  });

  const look = () => {
    const b = box.current;
    const l = list.current;
    if (!b || !l) return;

    const top = b.scrollTop;
    const by = top - scrolled.current;
    if (by === 0) return; // to the side, or by the effect above

    scrolled.current = top;
    clearTimeout(scrolling.current);
    scrolling.current = setTimeout(() => {
      scrolling.current = undefined;
      setSettled((n) => n + 1); // the scroll bar takes the place that fits the line
    }, settledAfter);

    const next = nextPlace(l, top, by);
    if (!next) {
      setFollowing(true);
      return;
    }

    if (following) {
      setSeen(all);
      setFollowing(false);
    }

    setAt({ ...next, line: next.line + before });
  };

  /** Where the box was scrolled to; undefined for the end. */
  const nextPlace = (l: HTMLElement, top: number, by: number): Position | undefined => {
    if (top >= end - 1) return undefined;
    if (top <= 0) return { line: 0, px: 0 };
    if (exact) return toPosition(top);
    if (Math.abs(by) > 3 * room) return { line: scale.line((top / end) * (scale.whole - room)), px: 0 };

    const now = following && wrap ? topOf(l, first) : place;
    const next = moved(now, by, total, (line) => heightOf(l, line - first));
    const row = l.children[next.line - first];
    const below = row instanceof HTMLElement && last === total ? l.offsetHeight - row.offsetTop - next.px : Infinity;

    return by > 0 && below <= room ? undefined : next;
  };

  const mayMark = (e: MouseEvent, line: number) => {
    if (e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;

    e.preventDefault();
    onMark(line);
  };

  const fresh = following || seen === 0 ? 0 : all - seen;
  const digits = String(all).length;
  const numbers = Array.from({ length: Math.max(0, last - first) }, (_, i) => before + first + i + 1);

  return (
    <div className={styles.frame}>
      <div
        ref={box}
        className={styles.box}
        data-wrap={wrap}
        onScroll={look}
        role="region"
        aria-label={label}
        tabIndex={0}
      >
        <div className={styles.height} style={{ height }}>
          <div className={styles.layer} style={{ height: room }}>
            <div ref={list} className={styles.list} style={{ "--digits": digits } as object}>
              {numbers.map((n) => {
                const line = lines.line(n);

                return (
                  <Row
                    key={n}
                    number={n}
                    line={line}
                    ranks={ranks}
                    times={times}
                    marked={n === mark}
                    hit={line && hits.get(keyOf(line))}
                    hrefOf={hrefOf}
                    onMark={mayMark}
                    onWhole={() => void lines.loadWhole(n)}
                  />
                );
              })}
            </div>
          </div>
        </div>
      </div>
      {!following && (
        <button className={styles.end} onClick={() => { setFollowing(true); }}>
          {fresh > 0 ? `${count(fresh, "new line")} ↓` : "To the end ↓"}
        </button>
      )}
    </div>
  );
}

function positionOf(line: number): Position {
  return { line: Math.max(0, line - 1 - context), px: 0 };
}

function toPosition(px: number): Position {
  const top = Math.max(0, px);

  return { line: Math.floor(top / rowHeight), px: top % rowHeight };
}

/** within keeps a position within the log, and the end of the log at the end of the view. */
function within(at: Position, total: number, end: number): Position {
  if (at.line * rowHeight + at.px > end) return toPosition(end);

  return at.line < total ? at : { line: Math.max(0, total - 1), px: 0 };
}

/** endOf is a position from which on everything is visible: about that if lines are wrapped. */
function endOf(total: number, room: number, wrap: boolean): Position {
  const end = toPosition(total * rowHeight - room);

  return wrap ? { line: end.line, px: 0 } : end;
}

/** How far down lines are, as far as that is known, and which line is how far down. */
interface Scale {
  whole: number;
  top: (line: number) => number;
  line: (top: number) => number;
}

/** scaleOf guesses the height of lines that are wrapped at so many columns from how long they are. */
function scaleOf(lines: Source, version: number, before: number, total: number, columns: number): Scale {
  if (columns === Infinity || version === 0) return evenScale(total, rowHeight);

  const lengths = lines.lengths();
  const rowsOf = (length: number) => Math.max(1, Math.ceil(length / columns));

  if (total > fewLines) {
    const rows = lengths.reduce((sum, [, length]) => sum + rowsOf(length), 0);

    return evenScale(total, lengths.length > 0 ? (rowHeight * rows) / lengths.length : rowHeight);
  }

  const tops = new Float64Array(total + 1);
  const heights = new Map(lengths.map(([number, length]) => [number, rowHeight * rowsOf(length)]));
  for (let i = 0; i < total; i++) tops[i + 1] = (tops[i] ?? 0) + (heights.get(before + i + 1) ?? rowHeight);

  return {
    whole: tops[total] ?? 0,
    top: (line) => tops[line] ?? 0,
    line: (top) => Math.max(0, tops.findIndex((t) => t > top) - 1),
  };
}

function evenScale(total: number, height: number): Scale {
  return {
    whole: total * height,
    top: (line) => line * height,
    line: (top) => Math.min(Math.max(0, total - 1), Math.floor(top / height)),
  };
}

/** moved goes so many pixels on, over lines of whatever height. */
function moved(at: Position, by: number, total: number, height: (line: number) => number): Position {
  let { line } = at;
  let px = at.px + by;

  while (px < 0 && line > 0) {
    line--;
    px += height(line);
  }

  while (line < total - 1 && px >= height(line)) {
    px -= height(line);
    line++;
  }

  return { line, px: Math.max(0, px) };
}

function heightOf(list: HTMLElement, index: number): number {
  const row = list.children[index];

  return row instanceof HTMLElement ? row.offsetHeight : rowHeight;
}

/** topOf is the position of what is at the top of a list that ends at the end of the view. */
function topOf(list: HTMLElement, first: number): Position {
  const room = list.parentElement?.clientHeight ?? 0;
  let above = Math.max(0, list.offsetHeight - room);

  for (let i = 0; i < list.children.length; i++) {
    const height = heightOf(list, i);
    if (above < height) return { line: first + i, px: above };

    above -= height;
  }

  return { line: first, px: 0 };
}

interface RowProps {
  number: number;
  line: LogLine | undefined;
  ranks: boolean;
  times: boolean;
  marked: boolean;
  hit: LogLine | undefined; // what a search has found in it
  hrefOf: (line: number) => string; // called for the rows that are drawn, not for all in every frame
  onMark: (e: MouseEvent, line: number) => void;
  onWhole: () => void;
}

const sameRow = (a: RowProps, b: RowProps): boolean =>
  a.number === b.number && a.line === b.line && a.ranks === b.ranks && a.times === b.times &&
  a.marked === b.marked && a.hit === b.hit && a.hrefOf === b.hrefOf;

/** A line. It is drawn again only if what it shows has changed. */
const Row = memo(function Row({ number, line, ranks, times, marked, hit, hrefOf, onMark, onWhole }: RowProps) {
  const pieces = useMemo(() => (line ? parseAnsi(line.text, spansOf(line.text, hit?.matches)) : []), [line, hit]);
  const shown = integer(ranks ? (line?.number ?? 0) : number);

  return (
    <div
      className={styles.row}
      data-line={number}
      data-stream={line?.stream}
      data-marked={marked || undefined}
      data-hit={hit !== undefined || undefined}
      aria-busy={line ? undefined : true}
    >
      <a
        className={styles.number}
        href={hrefOf(number)}
        aria-label={ranks ? `Rank and line ${line?.rank ?? ""}:${shown}` : `Line ${shown}`}
        aria-current={marked ? "true" : undefined}
        onClick={(e) => { onMark(e, number); }}
        tabIndex={-1}
      >
        {ranks && line && <span className={styles.rank}>{line.rank}:</span>}{line || !ranks ? shown : ""}
      </a>
      {times && <span className={styles.time}>{line ? clock(line.at) : ""}</span>}
      {line?.stream === "yard" && <span className={styles.yard}>Trainyard</span>}
      <span className={styles.text}>
        <bdi>
          {pieces.map((p, i) => {
            if (p.match) return <mark key={i} className={classOf(p.style)}>{p.text}</mark>;

            return Object.keys(p.style).length === 0
              ? p.text
              : <span key={i} className={classOf(p.style)}>{p.text}</span>;
          })}
        </bdi>
        {line?.length !== undefined && (
          <button className={styles.whole} onClick={onWhole}>… show all {size(line.length)}</button>
        )}
      </span>
    </div>
  );
}, sameRow);

/** The time of a line, to the millisecond. Every frame of a log that is scrolled has many. */
function clock(at: string): string {
  const t = new Date(at);
  const two = (n: number) => String(n).padStart(2, "0");

  const millis = String(t.getMilliseconds()).padStart(3, "0");

  return `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}.${millis}`;
}

function classOf(s: Style): string {
  const names = [
    s.colour && !s.back && styles[s.colour],
    s.back && styles[`${s.back}Back`],
    s.bold && styles.bold,
    s.faint && styles.faint,
    s.italic && styles.italic,
    s.underline && styles.underline,
  ];

  return names.filter(Boolean).join(" ");
}
