import styles from "./progress.module.css";

/** How much of the work is done, as a thin bar with its figure. */
export function Progress({ percent }: { percent: number | undefined }) {
  if (percent === undefined) return <span className="faint">unknown</span>;

  const whole = Math.floor(percent);

  return (
    <span className={styles.progress}>
      <progress className={styles.bar} max={100} value={percent} aria-label="progress" />
      <span className="figure">{whole} %</span>
    </span>
  );
}
