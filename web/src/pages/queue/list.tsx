import { useLayoutEffect, useRef, useState, type KeyboardEvent } from "react";

import type { QueuedJob } from "../../api/client";
import { duration, integer, time } from "../../ui/format";
import { nameOf } from "../../ui/job";
import { useMedia } from "../../ui/media";
import { AxisHead, Bar } from "./bar";
import { Holders } from "./holders";
import styles from "./queue.module.css";
import { timesOf, type Axis } from "./times";

interface Props {
  total: number;
  rowAt: (index: number) => QueuedJob | undefined; // undefined until it is loaded
  axis: Axis;
  now: number;
  open: string; // the job beside the list
  onOpen: (job: string) => void;
  onView: (first: number, count: number) => void; // what is visible has changed
}

const overscan = 6;

/** QueueList draws the rows that are visible, and a few around them. */
export function QueueList({ total, rowAt, axis, now, open, onOpen, onView }: Props) {
  const narrow = useMedia("(max-width: 820px)");
  const rowHeight = narrow ? 92 : 52;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ first: 0, count: 20 });
  const [focus, setFocus] = useState(0);
  const [pointed, setPointed] = useState(-1); // by the mouse or by the keyboard

  const look = () => {
    const b = box.current;
    if (!b) return;

    const first = Math.floor(b.scrollTop / rowHeight);
    const count = Math.ceil(b.clientHeight / rowHeight);
    setView((v) => (v.first === first && v.count === count ? v : { first, count }));
    onView(first, count);
  };

  useLayoutEffect(() => {
    look();
    addEventListener("resize", look);

    return () => { removeEventListener("resize", look); };
  });

  const start = Math.max(0, view.first - overscan);
  const end = Math.min(total, view.first + view.count + overscan);
  const drawn = Array.from({ length: Math.max(0, end - start) }, (_, i) => start + i);
  const current = Math.min(focus, total - 1);

  const walk = (e: KeyboardEvent, index: number) => {
    const page = Math.max(1, view.count - 2);
    const steps: Record<string, number> = {
      ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity,
    };
    const by = steps[e.key];
    const b = box.current;
    if (by === undefined || !b) return;

    e.preventDefault();
    const to = Math.min(total - 1, Math.max(0, index + by));
    const room = b.clientHeight - (narrow ? 0 : 32);
    const top = to * rowHeight;
    if (top < b.scrollTop) b.scrollTop = top;
    else if (top + rowHeight > b.scrollTop + room) b.scrollTop = top + rowHeight - room;

    const show = () => {
      const row = document.getElementById(`place-${to}`);
      row?.focus({ preventScroll: true });

      return row !== null;
    };
    setFocus(to);
    if (!show()) requestAnimationFrame(show);
  };

  return (
    <div ref={box} className={styles.box} onScroll={look} role="grid" aria-label="Queue" aria-rowcount={total + 1}>
      <div role="row" aria-rowindex={1} className={styles.head}>
        <div role="columnheader" className="figure">#</div>
        <div role="columnheader">Job, and why it waits</div>
        <div role="columnheader" className="figure">Expected start</div>
        <div role="columnheader">
          <span className="hidden">Time</span>
          <AxisHead axis={axis} now={now} narrow={narrow} />
        </div>
      </div>
      <div role="rowgroup" className={styles.body} style={{ height: total * rowHeight }}>
        {drawn.map((index) => {
          const j = rowAt(index);

          return (
            <div
              key={index}
              id={`place-${index}`}
              role="row"
              aria-rowindex={index + 2}
              aria-current={j !== undefined && j.id === open}
              aria-describedby={index === pointed && j && j.id !== open ? "holders" : undefined}
              tabIndex={index === current ? 0 : -1}
              className={styles.row}
              style={{ transform: `translateY(${index * rowHeight}px)`, height: rowHeight }}
              onClick={() => { if (j) onOpen(j.id); }}
              onFocus={() => { setFocus(index); setPointed(index); }}
              onBlur={() => { setPointed(-1); }}
              onMouseEnter={() => { setPointed(index); }}
              onMouseLeave={() => { setPointed(-1); }}
              onKeyDown={(e) => {
                if (e.key === "Enter" && j) onOpen(j.id);
                else if (e.key === "Escape") setPointed(-1);
                else walk(e, index);
              }}
            >
              {j
                ? <Row job={j} axis={axis} now={now} pointed={index === pointed} />
                : <div role="gridcell" className={`${styles.absent} faint`}>Loading…</div>}
              {j && index === pointed && j.id !== open && (
                <div role="gridcell" className={styles.aside}>
                  <Holders why={j.why} now={now} above={index - view.first > view.count / 2} />
                </div>
              )}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Row({ job: j, axis, now, pointed }: { job: QueuedJob; axis: Axis; now: number; pointed: boolean }) {
  return (
    <>
      <div role="gridcell" className={`${styles.position} figure`}>{integer(j.position)}</div>
      <div role="gridcell" className={styles.job}>
        <div className="cut">
          <b>{j.id}</b> <bdi>{nameOf(j)}</bdi>{" "}
          <span className="faint">
            <bdi>{j.owner}</bdi> · {j.resources}{j.priority === 0 ? "" : ` · priority ${j.priority}`}
          </span>
        </div>
        <div className="faint cut" title={j.why.sentence}>{j.why.sentence}</div>
      </div>
      <div role="gridcell" className={`${styles.start} figure`}><Start job={j} now={now} /></div>
      <div role="gridcell" className={styles.time}><Bar job={j} axis={axis} now={now} holders={pointed} /></div>
    </>
  );
}

/** When it is expected to start, with the interval. */
function Start({ job: j, now }: { job: QueuedJob; now: number }) {
  const t = timesOf(j, now);
  if (t.start === undefined) return <span className="faint">unknown</span>;

  const left = (at: number) => duration((at - now) / 1000);

  return (
    <>
      <div>{time(t.start, now)}</div>
      <div className="faint">
        in {t.startHigh > t.startLow ? `${left(t.startLow)}–${left(t.startHigh)}` : left(t.start)}
      </div>
    </>
  );
}
