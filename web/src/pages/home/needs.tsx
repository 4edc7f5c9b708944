import { useQueryClient } from "@tanstack/react-query";

import type { Job, Question } from "../../api/client";
import { inbox } from "../../api/queries";
import { Link } from "../../route/link";
import { useMayChange, useUser } from "../../shell/session";
import { duration } from "../../ui/format";
import { nameOf } from "../../ui/job";
import { Options } from "../../ui/question";
import styles from "./home.module.css";

/** NeedsYou lists the questions of one's jobs, with what each answer costs and when the job ends then. */
export function NeedsYou({ questions, jobs, now }: { questions: Question[]; jobs: Job[]; now: number }) {
  if (questions.length === 0) return null;

  return (
    <section aria-labelledby="needs-you">
      <h2 id="needs-you">Needs you · {questions.length}</h2>
      {questions.map((q) => <Row key={q.id} question={q} job={jobs.find((j) => j.id === q.job)} now={now} />)}
    </section>
  );
}

function Row({ question: q, job, now }: { question: Question; job: Job | undefined; now: number }) {
  const cache = useQueryClient();
  const { user } = useUser();
  const mayAnswer = useMayChange();
  const remove = () => {
    cache.setQueryData(inbox(user).queryKey, (page) =>
      page && { ...page, questions: page.questions.filter((x) => x.id !== q.id) });
  };

  return (
    <div className={styles.question} role="group" aria-label={`Question about ${q.job}`}>
      <p className={styles.sentence}>
        <Link to={`job/${q.job}`}>{q.job}{job && <> <bdi>{nameOf(job)}</bdi></>}</Link>{" "}
        <span dir="auto">{q.sentence}</span>
        {q.unless && <span className="faint"> · without an answer {q.unless}{leftOf(q, now)}</span>}
      </p>
      {mayAnswer
        ? <Options question={q} now={now} onAnswered={remove} />
        : <p className="faint">To answer, sign in with a token of scope submit.</p>}
    </div>
  );
}

/** How long an answer is waited for. */
function leftOf(q: Question, now: number): string {
  return q.expires === undefined ? "" : ` in ${duration((Date.parse(q.expires) - now) / 1000)}`;
}
