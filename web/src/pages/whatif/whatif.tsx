import { useQuery, useQueryClient } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { whatIf } from "../../api/queries/admin";
import { useQueryString } from "../../route/route";
import { CopyButton } from "../../ui/copy";
import { count, duration } from "../../ui/format";
import { useMedia } from "../../ui/media";
import { Notice, ProblemNotice } from "../../ui/notice";
import { changeOf, names, requestOf } from "./change";
import { Figures, writeBand } from "./figures";
import { ChangeForm } from "./form";
import { JobTable } from "./jobs";
import { Timeline } from "./timeline";
import styles from "./whatif.module.css";

type Result = Schemas["WhatIf"];

/** WhatIf simulates the yard as it is and with a change that the address has. */
export function WhatIf() {
  const [query, setQuery] = useQueryString();
  const change = changeOf(query);
  const cache = useQueryClient();
  const request = requestOf(change);
  const result = useQuery(whatIf(request));
  const wide = useMedia("(min-width: 901px)"); // else the form would be all that one sees
  const cancel = () => { void cache.cancelQueries({ queryKey: ["what-if"] }); };

  return (
    <>
      <h1>{result.data && !result.isPlaceholderData ? headline(result.data) : "What if the yard were another?"}</h1>
      <div className={styles.page}>
        <details className={styles.fold} open={wide}>
          <summary>What changes</summary>
          <ChangeForm
            key={names.map((n) => change[n]).join("|")}
            of={change}
            onAsk={(c) => {
              if (names.every((n) => c[n] === change[n])) void result.refetch();
              else setQuery((q) => { for (const n of names) q.set(n, c[n]); }, "push");
            }}
          />
        </details>
        <div className={styles.result} aria-busy={result.isFetching}>
          <p className={styles.state} role="status">
            {result.isFetching && <>Simulating the yard… <button onClick={cancel}>Cancel</button></>}
            {!result.isFetching && result.data && (
              <Share draws={result.data.draws} onAgain={() => void result.refetch()} />
            )}
            {!result.isFetching && !result.data && !result.error && (
              <>Cancelled. <button onClick={() => void result.refetch()}>Simulate</button></>
            )}
          </p>
          {result.error && <ProblemNotice problem={result.error} onRetry={() => void result.refetch()} />}
          {result.data && !result.error && <Comparison of={result.data} />}
        </div>
      </div>
    </>
  );
}

/** Share makes what is shown a link. */
function Share({ draws, onAgain }: { draws: number; onAgain: () => void }) {
  return (
    <>
      <span className="faint">
        {count(draws, "simulation")} of each case; intervals hold 80 % of them.{" "}
      </span>
      <button onClick={onAgain}>Simulate again</button>{" "}
      <CopyButton label="Copy link" text={() => location.href} />
    </>
  );
}

function figure(r: Result, key: string): Schemas["WhatIfFigure"] | undefined {
  return r.figures.find((f) => f.key === key);
}

/** headline says in a sentence what the change comes to. */
function headline(r: Result): string {
  const makespan = figure(r, "makespan_s");
  const waiting = figure(r, "waiting_mean_s");
  if (r.jobs === 0 && (r.arrived ?? 0) === 0) return "No job is running or queued: there is nothing to simulate";
  if (!makespan || !waiting) return "The yard, simulated";

  const jobs = (r.arrived ?? 0) > 0
    ? `${count(r.jobs, "job")} and ${r.arrived} that arrive`
    : count(r.jobs, "running or queued job");
  if (r.changes.length === 0) {
    return `As it is, ${jobs} will be done in about ${writeBand("s", makespan.today)}; mean wait ` +
      duration(waiting.today.mid);
  }

  const instead = (f: Schemas["WhatIfFigure"]) => `${duration(f.then.mid)} instead of ${duration(f.today.mid)}`;

  return `With ${r.changes.join(", ")}: ${jobs} done in about ${instead(makespan)}; mean wait ${instead(waiting)}`;
}

function Comparison({ of: r }: { of: Result }) {
  const changed = r.changes.length > 0;

  if (r.jobs === 0 && (r.arrived ?? 0) === 0) {
    return (
      <Notice title="Submit jobs, or choose a load">
        <p>With “as many as in the last day” the jobs that ended lately are submitted again.</p>
        <Gaps gaps={r.gaps} />
      </Notice>
    );
  }

  return (
    <>
      <Figures figures={r.figures} changed={changed} />
      <Timeline of={r} changed={changed} />
      <JobTable list={r.list} now={r.now} jobs={r.jobs} changed={changed} />
      <Gaps gaps={r.gaps} />
    </>
  );
}

function Gaps({ gaps }: { gaps: string[] }) {
  return (
    <>
      <h2>Not simulated as it really is</h2>
      <ul className={styles.gaps}>{gaps.map((g) => <li key={g}>{g}</li>)}</ul>
    </>
  );
}
