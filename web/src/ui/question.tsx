import { useMutation, useQueryClient } from "@tanstack/react-query";

import { answerQuestion, type Answer } from "../api/actions";
import type { Question, Schemas } from "../api/client";
import { dollars, time } from "./format";
import styles from "./question.module.css";

type Option = Schemas["QuestionOption"];

/**
 * Options are the answers to a question, with what each costs and when the job ends with it. An answer shows at once:
 * onAnswered takes the question away; if the server refuses the answer, the options come back and it says why.
 */
export function Options({ question: q, now, onAnswered }: { question: Question; now: number; onAnswered: () => void }) {
  const cache = useQueryClient();
  const answer = useMutation({
    mutationFn: (a: Answer) => answerQuestion(q.id, a),
    onSuccess: onAnswered,
    onSettled: () =>
      Promise.all(["inbox", "jobs"].map((resource) => cache.invalidateQueries({ queryKey: [resource] }))),
  });

  const accept = (o: Option) => {
    if (o.action.verb === "cancel" && !confirm(`Cancel ${q.job}?`)) return;

    answer.mutate({ accept: o.id });
  };

  if (answer.isPending) return <p className={styles.answered} role="status">{sentenceOf(q, answer.variables)}</p>;

  return (
    <div className={styles.options}>
      {q.options.map((o) => (
        <button key={o.id} onClick={() => { accept(o); }}>
          <span dir="auto">{o.sentence}</span>
          <span className={styles.price}>{priceOf(o, now)}</span>
        </button>
      ))}
      <button onClick={() => { answer.mutate("dismiss"); }}>Dismiss</button>
      {answer.error && (
        <p className={styles.refused} role="alert">
          {answer.error.message}{answer.error.remedy === "" ? "" : `: ${answer.error.remedy}`}
        </p>
      )}
    </div>
  );
}

/** What was answered, in words. */
function sentenceOf(q: Question, a: Answer): string {
  return a === "dismiss" ? "Dismissed" : `Accepted: ${q.options.find((o) => o.id === a.accept)?.sentence ?? a.accept}`;
}

/** What an option costs from now on, and when the job ends with it. */
function priceOf(o: Option, now: number): string {
  const parts: string[] = [];
  if (o.cost_usd !== undefined) parts.push(dollars(o.cost_usd));
  if (o.end !== undefined) parts.push(`done about ${time(o.end, now)}`);

  return parts.join(", ");
}
