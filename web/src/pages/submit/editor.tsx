import { useEffect, useRef } from "react";

import type { Mistake } from "../../api/client";
import { count } from "../../ui/format";
import styles from "./editor.module.css";

interface Props {
  text: string;
  mistakes: Mistake[];
  goal: Mistake | undefined; // where the cursor shall be; a new one moves it
  onChange: (text: string) => void;
}

/**
 * Editor is the text of the job file, with what is wrong behind its line. The lines below the text give it its size, so
 * that it never scrolls within itself and both stay in step.
 */
export function Editor({ text, mistakes, goal, onChange }: Props) {
  const field = useRef<HTMLTextAreaElement>(null);
  const lines = text.split("\n");

  useEffect(() => {
    const at = field.current;
    if (!goal || !at) return;

    const before = at.value.split("\n").slice(0, (goal.line ?? 1) - 1);
    const place = before.reduce((n, l) => n + l.length + 1, 0) + Math.max(0, (goal.column ?? 1) - 1);
    at.focus();
    at.setSelectionRange(place, place);
  }, [goal]);

  return (
    <div className={styles.box}>
      <div className={styles.lines} aria-hidden="true">
        {lines.map((line, i) => {
          const wrong = mistakes.filter((m) => m.line === i + 1);

          return (
            <div key={i} className={wrong.length > 0 ? styles.wrong : undefined}>
              <span className={styles.ghost}>{line || " "}</span>
              {wrong.length > 0 && <span className={styles.says}>{wrong.map((m) => m.detail).join("; ")}</span>}
            </div>
          );
        })}
      </div>
      <textarea
        ref={field}
        aria-label="Job file in YAML"
        aria-invalid={mistakes.length > 0}
        aria-describedby="mistakes"
        className={styles.text}
        value={text}
        placeholder={"name: train\nrun: python3 train.py\nresources: {gpus: 1}"}
        spellCheck={false}
        autoCapitalize="off"
        autoComplete="off"
        wrap="off"
        onChange={(e) => { onChange(e.target.value); }}
      />
    </div>
  );
}

interface MistakesProps {
  text: string;
  mistakes: Mistake[];
  checking: boolean;
  onGo: (m: Mistake) => void;
}

/** Mistakes lists what is wrong with the file, or says that nothing is. */
export function Mistakes({ text, mistakes, checking, onGo }: MistakesProps) {
  return (
    <div id="mistakes" className={styles.mistakes} role="status">
      <p className="faint">{sentenceOf(text, mistakes, checking)}</p>
      {mistakes.length > 0 && (
        <ul>
          {mistakes.map((m, i) => (
            <li key={i}>
              {m.line ? <button onClick={() => { onGo({ ...m }); }}>line {m.line}</button> : null}
              <span>
                {m.field ? <code>{m.field}</code> : null} {m.detail}
                {m.remedy ? <span className="faint">: {m.remedy}</span> : null}
              </span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function sentenceOf(text: string, mistakes: Mistake[], checking: boolean): string {
  if (text.trim() === "") return "The file is empty; only run is required";
  if (checking) return "Checking…";

  return mistakes.length > 0 ? count(mistakes.length, "mistake") : "The file is valid";
}
