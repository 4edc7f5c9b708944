import styles from "./skeleton.module.css";

/** Skeleton keeps the room of rows that are not there yet, so that nothing jumps when they come. */
export function Skeleton({ rows, height = 32 }: { rows: number; height?: number }) {
  return (
    <div className={styles.skeleton} aria-busy="true">
      <span className="hidden" role="status">Loading…</span>
      {Array.from({ length: rows }, (_, i) => (
        <div key={i} className={styles.row} style={{ blockSize: height }} aria-hidden="true">
          <span style={{ inlineSize: `${30 + ((i * 17) % 40)}%` }} />
        </div>
      ))}
    </div>
  );
}
