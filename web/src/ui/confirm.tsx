import { useEffect, useRef, type ReactNode } from "react";

import type { Problem } from "../api/client";
import styles from "./confirm.module.css";

interface Props {
  title: string;
  children: ReactNode; // what will happen
  action: string; // the word on the button
  busy: boolean;
  problem: Problem | null;
  onConfirm: () => void;
  onClose: () => void;
}

/** Confirm asks before something is done that others notice, and says what will happen. */
export function Confirm({ title, children, action, busy, problem, onConfirm, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);

  useEffect(() => { dialog.current?.showModal(); }, []);

  return (
    <dialog ref={dialog} className={styles.dialog} aria-labelledby="confirm-title" onClose={onClose}>
      <h1 id="confirm-title">{title}</h1>
      <div className={styles.effect}>{children}</div>
      {problem && (
        <p role="alert" className={styles.refused}>
          {problem.message}{problem.remedy === "" ? "" : `: ${problem.remedy}`}
        </p>
      )}
      <div className={styles.buttons}>
        <button onClick={() => { dialog.current?.close(); }}>Keep as it is</button>
        <button className="primary" disabled={busy} onClick={onConfirm}>{action}</button>
      </div>
    </dialog>
  );
}
