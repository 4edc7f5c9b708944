import { useEffect, useRef } from "react";

import styles from "./help.module.css";
import { pages } from "./pages";

/** Keys lists the keyboard shortcuts. */
export function Keys({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);

  useEffect(() => { dialog.current?.showModal(); }, []);

  const keys: [string, string][] = [
    ["/", "search jobs"],
    ...pages.flatMap((p): [string, string][] => (p.key ? [[`g ${p.key}`, p.name]] : [])),
    ["↑ ↓", "walk through rows"],
    ["Enter", "open the row"],
    ["Space", "select the row"],
    ["Esc", "close"],
    ["e E", "next, previous error in output"],
    ["n N", "next, previous line found in output"],
    ["?", "this list"],
  ];

  return (
    <dialog ref={dialog} className={styles.keys} onClose={onClose} aria-labelledby="keys-title">
      <h1 id="keys-title">Keyboard shortcuts</h1>
      <dl>
        {keys.map(([key, what]) => (
          <div key={key}>
            <dt><kbd>{key}</kbd></dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <button onClick={() => dialog.current?.close()}>Close</button>
    </dialog>
  );
}
