import type { ReactNode } from "react";

import type { Problem } from "../api/client";
import styles from "./notice.module.css";

/** Notice says in words why there is nothing to see, and what to do. */
export function Notice({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className={styles.notice}>
      <p className={styles.title}>{title}</p>
      {children}
    </div>
  );
}

/** ProblemNotice says what the server said. */
export function ProblemNotice({ problem, onRetry }: { problem: Problem; onRetry?: () => void }) {
  return (
    <div className={styles.notice} role="alert">
      <p className={styles.title}>{problem.message}</p>
      {problem.remedy !== "" && <p className="faint">{problem.remedy}</p>}
      {onRetry && <button onClick={onRetry}>Try again</button>}
    </div>
  );
}
