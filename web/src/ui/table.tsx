import { useEffect, useRef, useState, type ReactNode } from "react";

import { useQueryString } from "../route/route";
import styles from "./table.module.css";

/** A column of a table. */
export interface Column<T> {
  id: string;
  name: string;
  cell: (row: T) => ReactNode;
  figure?: boolean; // right-aligned, tabular
  sort?: (row: T) => number | string; // makes the column sortable, in the browser
  lead?: boolean; // the first line of the row on a small screen
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  sortIn?: string; // the parameter in the address that keeps the order; without it the rows stay as they are
  foot?: ReactNode; // a row of totals: a <tr>
}

/** How many rows are drawn at first, and each time the last one comes into view. */
const step = 100;

/**
 * Table shows some hundreds of rows; those further down are drawn as one scrolls. On a small screen each row becomes
 * two lines: the leading cells, then the others with the names of their columns. More than some thousand rows need a
 * virtual list, as pages/jobs has one.
 */
export function Table<T>({ label, columns, rows, id, sortIn, foot }: Props<T>) {
  const [query, setQuery] = useQueryString();
  const order = sortIn ? (query.get(sortIn) ?? "") : "";
  const sorted = sortIn ? sortBy(rows, columns, order) : rows;
  const [shown, setShown] = useState(step);
  const end = useRef<HTMLDivElement>(null);

  useEffect(() => {
    if (!end.current) return;

    const watch = new IntersectionObserver((seen) => {
      if (seen.some((s) => s.isIntersecting)) setShown((n) => n + step);
    }, { rootMargin: "400px" });
    watch.observe(end.current);

    return () => { watch.disconnect(); };
  }, [shown, rows.length]);

  const choose = (column: string) => {
    if (sortIn) setQuery((q) => { q.set(sortIn, order === column ? `-${column}` : column); });
  };

  return (
    <div className={styles.box}>
      {/* On a small screen the parts are no table for the browser any more; their roles keep it one for readers. */}
      <table className={styles.table} role="table" aria-label={label}>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((c) => (
              <th
                role="columnheader"
                key={c.id}
                scope="col"
                className={c.figure ? "figure" : undefined}
                aria-sort={directionOf(c.id, order)}
              >
                {sortIn && c.sort
                  ? (
                    <button className={styles.sort} onClick={() => { choose(c.id); }}>
                      {c.name + arrowOf(c.id, order)}
                    </button>
                  )
                  : c.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {sorted.slice(0, shown).map((row) => (
            <tr key={id(row)} role="row">
              {columns.map((c) => (
                <td key={c.id} role="cell" data-name={c.name} className={classOf(c)}>{c.cell(row)}</td>
              ))}
            </tr>
          ))}
        </tbody>
        {foot && <tfoot>{foot}</tfoot>}
      </table>
      {shown < rows.length && <div ref={end} className="faint">{rows.length - shown} more rows…</div>}
    </div>
  );
}

function sortBy<T>(rows: T[], columns: Column<T>[], order: string): T[] {
  const value = columns.find((c) => c.id === order.replace(/^-/, ""))?.sort;
  if (!value) return rows;

  const sign = order.startsWith("-") ? -1 : 1;

  return rows.toSorted((a, b) => {
    const [x, y] = [value(a), value(b)];

    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  });
}

function directionOf(column: string, order: string): "ascending" | "descending" | undefined {
  if (order === column) return "ascending";

  return order === `-${column}` ? "descending" : undefined;
}

function arrowOf(column: string, order: string): string {
  if (order === column) return " ↑";

  return order === `-${column}` ? " ↓" : "";
}

function classOf<T>(column: Column<T>): string {
  return `${column.figure ? "figure" : ""} ${column.lead ? (styles.lead ?? "") : ""}`;
}
