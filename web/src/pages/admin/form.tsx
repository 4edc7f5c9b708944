import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode, type SubmitEvent } from "react";

import type { Problem } from "../../api/client";
import styles from "./admin.module.css";

/** useAct does something and asks for the resources again that it has changed. */
export function useAct<In, Out>(act: (input: In) => Promise<Out>, ...resources: string[]) {
  const cache = useQueryClient();

  return useMutation<Out, Problem, In>({
    mutationFn: act,
    onSettled: () => Promise.all(resources.map((r) => cache.invalidateQueries({ queryKey: [r] }))),
  });
}

/** Refusal says what the server did not want, where it was asked. */
export function Refusal({ problem }: { problem: Problem | null }) {
  if (!problem) return null;

  return (
    <p className={styles.refusal} role="alert">
      {problem.message}{problem.remedy !== "" && ` (${problem.remedy})`}
    </p>
  );
}

/** Form unfolds fields to make or change something, and folds them when it is done. */
export function Form({ title, action, busy, problem, onSubmit, startOpen = false, children }: {
  title: string;
  action: string;
  busy: boolean;
  problem: Problem | null;
  onSubmit: (fields: FormData) => Promise<unknown>;
  startOpen?: boolean;
  children: ReactNode;
}) {
  const [open, setOpen] = useState(startOpen);
  const submit = (e: SubmitEvent<HTMLFormElement>) => {
    e.preventDefault();
    onSubmit(new FormData(e.currentTarget)).then(() => { setOpen(false); }, () => undefined); // problem says why not
  };

  return (
    <details className={styles.form} open={open} onToggle={(e) => { setOpen(e.currentTarget.open); }}>
      <summary>{title}</summary>
      {open && (
        <form onSubmit={submit}>
          <div className={styles.fields}>{children}</div>
          <button className="primary" disabled={busy}>{busy ? "Working…" : action}</button>
          <Refusal problem={problem} />
        </form>
      )}
    </details>
  );
}

/** Field is a labelled control of a form. */
export function Field({ label, hint, children }: { label: string; hint?: string; children: ReactNode }) {
  return (
    <div className={styles.field}>
      <label><span>{label}</span>{children}</label>
      {hint !== undefined && <span className="faint">{hint}</span>}
    </div>
  );
}

export const textOf = (fields: FormData, name: string): string => {
  const value = fields.get(name);

  return typeof value === "string" ? value.trim() : "";
};
