import styles from "./status.module.css";

/** What colours mean: nothing in the portal has another colour. */
export type Tone = "running" | "queued" | "attention" | "failed" | "done";

export function toneOf(status: string): Tone {
  switch (status) {
    case "RUNNING":
    case "STARTING":
      return "running";
    case "PENDING":
    case "RECOVERING":
    case "PREEMPTED":
      return "queued";
    case "PAUSED":
    case "PAUSING":
    case "SUSPENDED":
    case "CANCELLING":
      return "attention";
    case "SUCCEEDED":
    case "CANCELLED":
      return "done";
  }

  return "failed";
}

const glyphs: Record<Tone, string> = { running: "●", queued: "○", attention: "◐", failed: "✕", done: "✓" };

/** A status as a word with a glyph, so that it is not told by colour alone. */
export function Status({ status, brief = false }: { status: string; brief?: boolean }) {
  const tone = toneOf(status);
  const word = status.toLowerCase().replaceAll("_", " ");

  return (
    <span className={`${styles.status} ${styles[tone]}`}>
      <span aria-hidden="true">{glyphs[tone]}</span>
      <span className={brief ? "hidden" : undefined}>{word}</span>
    </span>
  );
}
