import { useEffect, useRef, useState, type ReactNode, type RefObject } from "react";

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

/** Of a table with more rows than these, those are drawn that are on the screen, and so many around them. */
const all = 150;
const around = 20;

/** Which rows are drawn, and how high rows are about. */
interface View {
  first: number;
  last: number;
  height: number;
}

/**
 * Table shows rows, few or thousands of them. On a small screen each row becomes two lines: the leading cells, then
 * the others with the names of their columns. Rows scroll with the page; pages/jobs has a list of its own for what the
 * browser does not have.
 */
export function Table<T>({ label, columns, rows, id, sortIn, foot }: Props<T>) {
  const [query, setQuery] = useQueryString();
  const order = sortIn ? (query.get(sortIn) ?? "") : "";
  const sorted = sortIn ? sortBy(rows, columns, order) : rows;
  const long = rows.length > all;
  const body = useRef<HTMLTableSectionElement>(null);
  const view = useView(body, long, rows.length);
  const first = long ? Math.min(view.first, rows.length - 1) : 0;
  const last = long ? Math.min(view.last, rows.length) : rows.length;

  const choose = (column: string) => {
    if (sortIn) setQuery((q) => { q.set(sortIn, order === column ? `-${column}` : column); });
  };

  return (
    <div className={styles.box}>
      {/* On a small screen the parts are no table for the browser any more; their roles keep it one for readers. */}
      <table
        className={styles.table}
        role="table"
        aria-label={label}
        aria-rowcount={long ? rows.length + 1 : undefined}
      >
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
        <tbody role="rowgroup" ref={body}>
          {first > 0 && <Space rows={first} height={view.height} columns={columns.length} />}
          {sorted.slice(first, last).map((row, i) => (
            <tr key={id(row)} role="row" aria-rowindex={long ? first + i + 2 : undefined}>
              {columns.map((c) => (
                <td key={c.id} role="cell" data-name={c.name} className={classOf(c)}>{c.cell(row)}</td>
              ))}
            </tr>
          ))}
          {last < rows.length && <Space rows={rows.length - last} height={view.height} columns={columns.length} />}
        </tbody>
        {foot && <tfoot>{foot}</tfoot>}
      </table>
    </div>
  );
}

/** The room of rows that are not drawn. */
function Space({ rows, height, columns }: { rows: number; height: number; columns: number }) {
  const style = { height: rows * height };

  return <tr className={styles.space} aria-hidden="true"><td colSpan={columns} style={style} /></tr>;
}

/** useView follows which rows of a long table are on the screen, as the page is scrolled. */
function useView(body: RefObject<HTMLTableSectionElement | null>, long: boolean, rows: number): View {
  const [view, setView] = useState<View>({ first: 0, last: all, height: 28 });

  useEffect(() => {
    const b = body.current;
    if (!long || !b) return;

    const look = () => {
      const drawn = [...b.rows].filter((r) => r.getAttribute("role") === "row");
      const top = drawn[0]?.getBoundingClientRect().top ?? 0;
      const height = ((drawn.at(-1)?.getBoundingClientRect().bottom ?? 0) - top) / Math.max(1, drawn.length) || 28;
      const above = -b.getBoundingClientRect().top;

      setView((v) => {
        // The height stays what it is unless it is far off, as on a screen of another width: nothing jumps.
        const h = Math.abs(height - v.height) > v.height / 4 ? height : v.height;
        const first = Math.max(0, Math.min(rows - 1, Math.floor(above / h)) - around);
        const last = Math.ceil((above + innerHeight) / h) + around;
        const same = h === v.height && Math.abs(first - v.first) < around / 2 && Math.abs(last - v.last) < around / 2;

        return same ? v : { first, last: Math.max(last, first + around), height: h };
      });
    };

    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);

    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [body, long, rows]);

  return view;
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
