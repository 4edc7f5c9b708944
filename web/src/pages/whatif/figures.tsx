import type { Schemas } from "../../api/client";
import { dollars, duration } from "../../ui/format";
import { Table, type Column } from "../../ui/table";
import styles from "./whatif.module.css";

type Figure = Schemas["WhatIfFigure"];
type Unit = Figure["unit"];
type Band = Schemas["JobBand"];

/** write writes a figure in its unit. */
function write(unit: Unit, v: number): string {
  switch (unit) {
    case "s":
      return duration(v);
    case "share":
      return `${(100 * v).toFixed(0)} %`;
    case "kWh":
      return `${Number(v.toPrecision(3))} kWh`;
    case "money":
      return dollars(v);
    case "count":
      return String(Number(v.toFixed(1)));
    case "number":
      return String(Number(v.toPrecision(3)));
  }
}

/** writeBand writes a figure with its interval, if that says more. */
export function writeBand(unit: Unit, b: Band): string {
  const [low, mid, high] = [write(unit, b.low), write(unit, b.mid), write(unit, b.high)];

  return low === mid && high === mid ? mid : `${mid} (${low}–${high})`;
}

const signed = (unit: Unit, v: number): string => (v < 0 ? `−${write(unit, -v)}` : `+${write(unit, v)}`);

/** What a change is worth: nothing is said of one that may be none. */
function verdict(f: Figure): "better" | "worse" | "" {
  if (f.best === 0 || f.change.low * f.change.high <= 0) return "";

  return Math.sign(f.change.mid) === f.best ? "better" : "worse";
}

/** Figures shows the same figures of both cases side by side. */
export function Figures({ figures, changed }: { figures: Figure[]; changed: boolean }) {
  const columns: Column<Figure>[] = [
    { id: "title", name: "Figure", lead: true, cell: (f) => f.title },
    { id: "today", name: "Today", figure: true, cell: (f) => writeBand(f.unit, f.today) },
  ];

  if (changed) {
    columns.push(
      { id: "then", name: "Then", figure: true, cell: (f) => writeBand(f.unit, f.then) },
      {
        id: "change", name: "Change", figure: true, cell: (f) => {
          if (f.change.mid === 0) return <span className="faint">none</span>;

          const says = verdict(f);

          return (
            <>
              {signed(f.unit, f.change.mid)}{" "}
              <span className={styles[says === "" ? "unclear" : says]}>
                {says === "" ? (f.best === 0 ? "" : "not certain") : says}
              </span>
            </>
          );
        },
      },
    );
  }

  return <Table label="Figures" columns={columns} rows={figures} id={(f) => f.key} />;
}
