import { useLayoutEffect, useRef, useState, type KeyboardEvent } from "react";

import type { Job } from "../../api/client";
import { Changed } from "../../ui/changed";
import { Cost, hasCost, nameOf, Remaining, whereOf } from "../../ui/job";
import { useMedia } from "../../ui/media";
import { Status } from "../../ui/status";
import type { Column, Order } from "./columns";
import styles from "./table.module.css";

interface Props {
  list: Job[];
  columns: Column[];
  now: number;
  total: number | undefined;
  open: string; // the job beside the list
  mayChange: boolean; // jobs can be selected
  selected: ReadonlySet<string>;
  onSelect: (job: string) => void;
  onSelectAll: (all: boolean) => void; // of those that are loaded
  order: Order;
  onSort: (column: Column) => void;
  onOpen: (job: string) => void;
  onFirst: (index: number) => void; // the first visible row has changed
  onEnd: () => void; // the last rows are visible
}

const overscan = 12;

/** What a row needs at least: the least width of each column, and the gaps of table.module.css. */
function leastWidth(tracks: string[]): number {
  const widths = tracks.map((t) => Number(/\d+/.exec(t)?.[0] ?? 0));

  return widths.reduce((sum, width) => sum + width, 0) + 12 * (tracks.length - 1) + 16;
}

/**
 * JobTable draws the rows that are visible, and a few around them. The first visible job stays where it is when rows
 * are inserted above it.
 */
export function JobTable(props: Props) {
  const { list, columns, now, total, open, mayChange, selected, onSelect, order, onOpen, onFirst, onEnd } = props;
  const narrow = useMedia("(max-width: 820px)");
  const rowHeight = narrow ? 68 : 32;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ first: 0, count: 40 });
  const [focus, setFocus] = useState("");
  const anchor = useRef({ id: "", index: 0 });

  const look = () => {
    const b = box.current;
    if (!b) return;

    const first = Math.max(0, Math.floor(b.scrollTop / rowHeight));
    const visible = Math.ceil(b.clientHeight / rowHeight);
    anchor.current = { id: b.scrollTop < rowHeight ? "" : (list[first]?.id ?? ""), index: first };
    setView((v) => (v.first === first && v.count === visible ? v : { first, count: visible }));
    onFirst(first);
    if (first + visible + overscan >= list.length) onEnd();
  };

  // What was inserted above the first visible row is made up for by scrolling.
  useLayoutEffect(() => {
    const b = box.current;
    const { id, index } = anchor.current;
    if (!b || id === "") return;

    const at = list.findIndex((j) => j.id === id);
    if (at >= 0 && at !== index) {
      b.scrollTop += (at - index) * rowHeight;
      anchor.current = { id, index: at };
    }
  }, [list, rowHeight]);

  useLayoutEffect(() => {
    look();
    addEventListener("resize", look);

    return () => { removeEventListener("resize", look); };
  });

  const start = Math.max(0, view.first - overscan);
  const drawn = list.slice(start, view.first + view.count + overscan);
  const tracks = [...(mayChange ? ["20px"] : []), ...columns.map((c) => c.width)];
  // All rows are as wide as the head, whatever is in them.
  const layout = { gridTemplateColumns: tracks.join(" "), minWidth: leastWidth(tracks) };
  const current = list.some((j) => j.id === focus) ? focus : (list[0]?.id ?? "");

  const walk = (e: KeyboardEvent, index: number) => {
    const page = Math.max(1, view.count - 2);
    const steps: Record<string, number> = {
      ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity,
    };
    const by = steps[e.key];
    if (by === undefined) return;

    e.preventDefault();
    const to = Math.min(list.length - 1, Math.max(0, index + by));
    const next = list[to];
    if (!next || !box.current) return;

    const head = narrow ? 0 : rowHeight;
    const top = to * rowHeight;
    const room = box.current.clientHeight - head;
    if (top < box.current.scrollTop) box.current.scrollTop = top;
    else if (top + rowHeight > box.current.scrollTop + room) box.current.scrollTop = top + rowHeight - room;

    // The next row is drawn already as a rule; one that is far away will be.
    const show = () => {
      const row = document.getElementById(`row-${next.id}`);
      row?.focus({ preventScroll: true });

      return row !== null;
    };
    setFocus(next.id);
    if (!show()) requestAnimationFrame(show);
  };

  return (
    <div
      ref={box}
      className={styles.box}
      onScroll={look}
      role="grid"
      aria-label="Jobs"
      aria-multiselectable="true"
      aria-rowcount={total === undefined ? -1 : total + 1}
    >
      {!narrow && (
        <div role="row" aria-rowindex={1} className={styles.head} style={layout}>
          {mayChange && (
            <div role="columnheader">
              <input
                type="checkbox"
                className={styles.pick}
                aria-label="Select all that are loaded"
                checked={list.every((j) => selected.has(j.id))}
                onChange={(e) => { props.onSelectAll(e.target.checked); }}
              />
            </div>
          )}
          {columns.map((c) => (
            <div
              key={c.id}
              role="columnheader"
              className={c.figure ? "figure" : "cut"}
              aria-sort={c.id === order.column ? order.direction : undefined}
            >
              {c.sort
                ? (
                  <button className={styles.sort} onClick={() => { props.onSort(c); }}>
                    {c.name}{arrowOf(c, order)}
                  </button>
                )
                : c.name}
            </div>
          ))}
        </div>
      )}
      <div role="rowgroup" className={styles.body} style={{ height: list.length * rowHeight }}>
        {drawn.map((j, i) => {
          const index = start + i;

          return (
            <div
              key={j.id}
              id={`row-${j.id}`}
              role="row"
              aria-rowindex={index + 2}
              aria-selected={selected.has(j.id)}
              aria-current={j.id === open}
              tabIndex={j.id === current ? 0 : -1}
              className={narrow ? styles.card : styles.row}
              style={{ transform: `translateY(${index * rowHeight}px)`, ...(narrow ? {} : layout) }}
              onClick={() => { setFocus(j.id); onOpen(j.id); }}
              onFocus={() => { setFocus(j.id); }}
              onKeyDown={(e) => {
                if (e.target !== e.currentTarget) return; // the key of the box to select it

                if (e.key === "Enter") onOpen(j.id);
                else if (e.key === " " && mayChange) {
                  e.preventDefault();
                  onSelect(j.id);
                } else walk(e, index);
              }}
            >
              <Changed of={j.seq} />
              {!narrow && mayChange && (
                <div role="gridcell">
                  <input
                    type="checkbox"
                    className={styles.pick}
                    aria-label={`Select ${j.id}`}
                    tabIndex={-1}
                    checked={selected.has(j.id)}
                    onClick={(e) => { e.stopPropagation(); }}
                    onChange={() => { onSelect(j.id); }}
                  />
                </div>
              )}
              {narrow ? <Card job={j} now={now} /> : columns.map((c) => (
                <div key={c.id} role="gridcell" className={c.figure ? "figure" : "cut"} title={c.title?.(j)}>
                  {c.cell(j, now)}
                </div>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function arrowOf(c: Column, order: Order): string {
  if (c.id !== order.column) return "";

  return order.direction === "ascending" ? " ↑" : " ↓";
}

/** A job on a small screen. */
function Card({ job: j, now }: { job: Job; now: number }) {
  return (
    <div role="gridcell">
      <div className={styles.line}>
        <span className="cut"><Status status={j.status} brief /> {j.id} <bdi>{nameOf(j)}</bdi></span>
        <span className="figure"><Remaining job={j} now={now} /></span>
      </div>
      <div className={styles.line}>
        <span className="faint cut">{j.owner} · <bdi>{whereOf(j)}</bdi></span>
        {hasCost(j) && <span className="figure faint"><Cost job={j} /></span>}
      </div>
    </div>
  );
}
