import styles from "./spark.module.css";

const width = 96;
const height = 20;

/** Spark is a small curve without axes. What it shows is in its label, and its figures are beside it. */
export function Spark({ values, label }: { values: number[]; label: string }) {
  if (values.length < 2) return null;

  const low = Math.min(...values);
  const span = Math.max(...values) - low;
  const at = (v: number, i: number) => {
    const x = (i / (values.length - 1)) * width;
    const y = span === 0 ? height / 2 : 1 + (1 - (v - low) / span) * (height - 2);

    return `${x.toFixed(1)},${y.toFixed(1)}`;
  };

  return (
    <svg className={styles.spark} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
      <title>{label}</title>
      <polyline points={values.map(at).join(" ")} />
    </svg>
  );
}

/** Bars is a row of small bars, each from 0 to 1, with what each stands for. */
export function Bars({ bars, label }: { bars: { share: number | undefined; name: string }[]; label: string }) {
  const step = 8;

  return (
    <svg className={styles.bars} viewBox={`0 0 ${bars.length * step} ${height}`} role="img" aria-label={label}>
      {bars.map((b, i) => (
        <g key={b.name}>
          <title>{b.name}</title>
          <rect className={styles.room} x={i * step} y={0} width={step - 1} height={height} />
          {b.share !== undefined && (
            <rect x={i * step} y={height * (1 - b.share)} width={step - 1} height={height * b.share} />
          )}
        </g>
      ))}
    </svg>
  );
}
