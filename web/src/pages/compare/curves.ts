import type { Schemas } from "../../api/client";

type Curve = Schemas["Curve"];

/** What curves are drawn by. */
export type Axis = "step" | "time";

/** Several curves over common values of x. */
export interface Aligned {
  x: number[];
  data: (number | null)[][];
}

/** Puts curves over each other: by step, or by the time since each began. */
export function align(curves: (Curve | undefined)[], axis: Axis): Aligned {
  const rows = new Map<number, (number | null)[]>();

  curves.forEach((curve, i) => {
    const points = curve?.points ?? [];
    const start = points[0]?.t ?? 0;

    for (const p of points) {
      const x = axis === "step" ? p.s : p.t - start;
      const row = rows.get(x) ?? curves.map(() => null);
      row[i] = p.v;
      rows.set(x, row);
    }
  });

  const x = [...rows.keys()].sort((a, b) => a - b);

  return { x, data: curves.map((_, i) => x.map((at) => rows.get(at)?.[i] ?? null)) };
}

/** The metrics that jobs have, those of most jobs first. */
export function commonMetrics(lists: { name: string }[][]): string[] {
  const counts = new Map<string, number>();
  for (const { name } of lists.flat()) counts.set(name, (counts.get(name) ?? 0) + 1);

  return [...counts].sort(([a, m], [b, n]) => n - m || a.localeCompare(b)).map(([name]) => name);
}
