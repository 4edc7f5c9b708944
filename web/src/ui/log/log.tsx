import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore, type ReactNode } from "react";

import { Problem, type JobDetail } from "../../api/client";
import { downloadOf, type LogOf } from "../../api/logs";
import { job } from "../../api/queries";
import { Link } from "../../route/link";
import { hrefOf, usePath, useQueryString } from "../../route/route";
import { useKeys } from "../../shell/keys";
import { count, integer, size } from "../format";
import { hasEnded, nameOf } from "../job";
import { Notice, ProblemNotice } from "../notice";
import { keyOf, Lines, type LogState } from "./lines";
import { Merged, mostRanks } from "./merged";
import { findError, nothing, Search, type SearchState } from "./search";
import { parseAnsi, spansOf } from "./ansi";
import styles from "./log.module.css";
import { LogView, type Jump } from "./view";

/**
 * Log shows the output of a job: of one rank of one run, live, at any length, or of all its ranks by time. What was
 * chosen is in the address: run, rank, line, find, wrap and times. With full it takes the whole page, and has its
 * heading.
 */
export function Log({ job: id, full = false }: { job: string; full?: boolean }) {
  const found = useQuery(job(id));
  const [q] = useQueryString();

  if (found.isPending) return <p className="faint" aria-busy="true">Loading…</p>;
  if (!found.data) return <ProblemNotice problem={found.error} onRetry={() => void found.refetch()} />;

  const detail = found.data;
  const wanted = q.get("run");
  const run = wanted === null ? newest(detail) : detail.runs.find((r) => String(r.epoch) === wanted);
  if (detail.runs.length === 0) return <NotYet job={detail} full={full} />;

  const chosenRank = q.get("rank") ?? "0";
  const rank = chosenRank === "all" ? chosenRank : Number(chosenRank);
  const most = run && Math.max(1, run.ranks.length);
  if (!most || !(rank === "all" ? most <= mostRanks : rank >= 0 && rank < most)) {
    const what = run ? `Rank ${chosenRank} of run ${run.epoch}` : `Run ${wanted ?? ""}`;

    return (
      <Notice title={`${what} of ${detail.id} not found`}>
        <p><Link to={`logs/${detail.id}`}>Show its newest output</Link></p>
      </Notice>
    );
  }

  const ranks = rank === "all" ? Array.from({ length: most }, (_, i) => i) : [rank];

  return <Output key={`${run.id}/${rank}`} detail={detail} run={run.id} ranks={ranks} full={full} />;
}

/** newest is the run whose output is shown unless another is asked for. */
function newest(j: JobDetail): JobDetail["runs"][number] | undefined {
  return j.runs.toSorted((a, b) => b.epoch - a.epoch)[0];
}

function NotYet({ job: j, full }: { job: JobDetail; full: boolean }) {
  const title = `${j.id} ${nameOf(j)} has printed nothing: it has not run${hasEnded(j) ? "" : " yet"}`;

  return (
    <>
      {full && <h1>{title}</h1>}
      <Notice title={full ? j.reason : title}>
        {!hasEnded(j) && <p className="faint">Its output appears here as soon as it runs.</p>}
      </Notice>
    </>
  );
}

const noSubscription = () => () => undefined;
const nothingFound = () => nothing;

/** A line of a rank. */
interface Place {
  rank: number;
  line: number;
}

interface OutputProps {
  detail: JobDetail;
  run: string;
  ranks: number[]; // one, or all of them by time
  full: boolean;
}

function Output({ detail, run, ranks, full }: OutputProps) {
  const [q, setQuery] = useQueryString();
  const path = usePath();
  const several = ranks.length > 1;
  const numbers = ranks.join(); // the same list as long as these are the same
  const logs = useMemo<LogOf[]>(
    () => numbers.split(",").map((n) => ({ job: detail.id, run, rank: Number(n) })), [detail.id, run, numbers],
  );
  const of = useMemo(() => logs[0] ?? { job: detail.id, run, rank: 0 }, [logs, detail.id, run]);
  const lines = useMemo(() => (several ? new Merged(logs) : new Lines(of)), [several, logs, of]);
  const state = useSyncExternalStore(lines.subscribe, lines.getState);
  const mark = several ? 0 : Math.max(0, Math.floor(Number(q.get("line") ?? 0)) || 0);
  const expression = q.get("find") ?? "";
  const wrap = q.has("wrap");
  const times = q.has("times");
  const [jump, setJump] = useState<Jump>({ line: mark });
  const first = useRef(1);
  const onFirst = useCallback((line: number) => { first.current = line; }, []);

  useEffect(() => lines.start(), [lines]);

  const search = useMemo(() => (expression === "" ? undefined : new Search(logs, expression)), [logs, expression]);
  const found = useSyncExternalStore(search?.subscribe ?? noSubscription, search?.getState ?? nothingFound);

  useEffect(() => {
    search?.start();

    return () => { search?.stop(); };
  }, [search]);

  const epoch = run.slice(run.lastIndexOf(".") + 1);
  const addressOf = useCallback(
    (at: Place) => hrefOf(path, { ...Object.fromEntries(new URLSearchParams(location.search)), run: epoch,
      rank: String(at.rank), line: String(at.line) }),
    [path, epoch],
  );
  const marked = useCallback((at: Place) => {
    setQuery((s) => {
      s.set("run", epoch);
      s.set("rank", String(at.rank));
      s.set("line", String(at.line));
    });
  }, [setQuery, epoch]);
  // Where a line of the view is. One of several ranks is shown among those of its own rank.
  const placeOf = (number: number): Place => {
    const line = several ? lines.line(number) : undefined;

    return { rank: line?.rank ?? of.rank, line: line?.number ?? number };
  };
  const goTo = (at: Place) => {
    marked(at);
    setJump({ line: at.line });
  };
  const goToLine = (line: number) => { goTo({ rank: of.rank, line }); };

  const errors = useErrors(of, (backward) => {
    if (mark > 0) return mark;

    return backward ? state.total + 1 : first.current - 1;
  }, goToLine);
  const step = (by: number) => {
    const from = mark > 0 ? mark : by > 0 ? 0 : Infinity;
    const next = by > 0
      ? found.hits.find((h) => (h.number ?? 0) > from)
      : found.hits.findLast((h) => (h.number ?? 0) < from);
    if (next?.number) goToLine(next.number);
  };
  useKeys(several ? {} : {
    e: () => { errors.find(false); },
    E: () => { errors.find(true); },
    n: () => { step(1); },
    N: () => { step(-1); },
  });

  const choose = (what: string, value: string) => { setQuery((s) => { s.set(what, value); }); };
  const headline = sentence(detail, state);

  return (
    <section className={styles.log} data-full={full} aria-label={`Output of ${detail.id}`}>
      {full
        ? <h1><Link to={`job/${detail.id}`}>{detail.id}</Link> <bdi>{nameOf(detail)}</bdi>: {headline}</h1>
        : <p className={styles.headline}>{headline}</p>}
      <div className={styles.bar} role="group" aria-label="Output">
        <Source detail={detail} run={run} rank={several ? "all" : String(of.rank)} />
        <FindField expression={expression} onFind={(text) => { choose("find", text); }} />
        {!several && (
          <>
            <span>
              <button onClick={() => { errors.find(true); }} title="Previous line that looks like an error (E)">
                ‹ Error
              </button>{" "}
              <button onClick={() => { errors.find(false); }} title="Next line that looks like an error (e)">
                Error ›
              </button>
            </span>
            <LineField total={state.total} onGo={goToLine} />
          </>
        )}
        <Check name="Wrap" on={wrap} onChange={(on) => { choose("wrap", on ? "1" : ""); }} />
        <Check name="Times" on={times} onChange={(on) => { choose("times", on ? "1" : ""); }} />
        {!several && (
          <a className={`${styles.button ?? ""} ${styles.space ?? ""}`} href={downloadOf(of)} download>Download</a>
        )}
        {!full && <Link className={styles.button} to={`logs/${detail.id}`} query={chosen(q)}>Full screen</Link>}
      </div>
      {errors.note !== "" && (
        <p className={styles.note} role="status">
          {errors.note} {errors.busy && <button onClick={errors.stop}>Stop</button>}
        </p>
      )}
      {search && (
        <Found
          search={search}
          state={found}
          log={state}
          mark={mark}
          several={several}
          hrefOf={addressOf}
          onGo={goTo}
          onStep={step}
        >
          <button onClick={() => { choose("find", ""); }}>Close search</button>
        </Found>
      )}
      {state.away !== "" && <p className={styles.note} role="status">No live output: {state.away}. Trying again…</p>}
      <Body state={state} ended={hasEnded(detail)}>
        <LogView
          lines={lines}
          label={several ? `Output of ${run}, all ranks` : `Output of ${run}, rank ${of.rank}`}
          ranks={several}
          wrap={wrap}
          times={times}
          mark={mark}
          hits={found.byKey}
          jump={jump}
          hrefOf={(line) => addressOf(placeOf(line))}
          onMark={(line) => { marked(placeOf(line)); }}
          onFirst={onFirst}
        />
      </Body>
    </section>
  );
}

/** What was chosen of the output, without what the page around it has in its address. */
function chosen(q: URLSearchParams): Record<string, string> {
  const names = ["run", "rank", "line", "find", "wrap", "times"];

  return Object.fromEntries([...q].filter(([name]) => names.includes(name)));
}

/** The log in a sentence. */
function sentence(j: JobDetail, s: LogState): string {
  if (!s.loaded) return "loading…";
  if (s.counted < s.size) {
    return `counting lines, ${Math.floor((100 * s.counted) / s.size)} % of ${size(s.size)}`;
  }

  const live = s.ended ? (hasEnded(j) ? j.status.toLowerCase().replaceAll("_", " ") : "this run has ended") : "live";

  return `${count(s.total, "line")}, ${size(s.size)}, ${live}`;
}

/** Body shows the lines, or says why there are none. */
function Body({ state, ended, children }: { state: LogState; ended: boolean; children: ReactNode }) {
  if (state.problem) return <ProblemNotice problem={state.problem} />;
  if (state.loaded && state.size === 0) {
    return (
      <Notice title={state.ended ? "It has printed nothing" : "It has printed nothing yet"}>
        {!state.ended && !ended && <p className="faint">Its output appears here as it comes.</p>}
      </Notice>
    );
  }

  return <>{children}</>;
}

/** Source chooses the run and the rank, where there are several. */
function Source({ detail, run, rank }: { detail: JobDetail; run: string; rank: string }) {
  const [, setQuery] = useQueryString();
  const runs = detail.runs.toSorted((a, b) => b.epoch - a.epoch);
  const ranks = detail.runs.find((r) => r.id === run)?.ranks ?? [];
  const choose = (what: string, value: string) => {
    setQuery((s) => {
      s.set(what, value);
      s.delete("line");
      if (what === "run") s.delete("rank");
    });
  };

  return (
    <>
      {runs.length > 1 && (
        <select
          aria-label="Run"
          value={runs.find((r) => r.id === run)?.epoch}
          onChange={(e) => { choose("run", e.target.value); }}
        >
          {runs.map((r) => <option key={r.id} value={r.epoch}>Run {r.epoch}, {r.state}</option>)}
        </select>
      )}
      {ranks.length > 1 && (
        <select aria-label="Rank" value={rank} onChange={(e) => { choose("rank", e.target.value); }}>
          {ranks.length <= mostRanks && <option value="all">All ranks by time</option>}
          {ranks.map((r, i) => <option key={i} value={i}>Rank {i} on {r.node}</option>)}
        </select>
      )}
    </>
  );
}

function Check({ name, on, onChange }: { name: string; on: boolean; onChange: (on: boolean) => void }) {
  return (
    <label className={styles.check}>
      <input type="checkbox" checked={on} onChange={(e) => { onChange(e.target.checked); }} />
      {name}
    </label>
  );
}

function FindField({ expression, onFind }: { expression: string; onFind: (text: string) => void }) {
  return (
    <form
      key={expression} // another address, another text
      role="search"
      onSubmit={(e) => {
        e.preventDefault();
        const text = new FormData(e.currentTarget).get("find");
        onFind(typeof text === "string" ? text : "");
      }}
    >
      <input
        name="find"
        type="search"
        aria-label="Find lines that match a regular expression"
        placeholder="Find, e.g. loss=.*nan"
        maxLength={1000}
        defaultValue={expression}
      />
      <button>Find</button>
    </form>
  );
}

function LineField({ total, onGo }: { total: number; onGo: (line: number) => void }) {
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        const line = Number(new FormData(e.currentTarget).get("line"));
        if (line >= 1) onGo(Math.min(Math.floor(line), total));
      }}
    >
      <input name="line" type="number" aria-label="Go to line" placeholder="Go to line" min={1} />
    </form>
  );
}

interface FoundProps {
  search: Search;
  state: SearchState;
  log: LogState;
  mark: number;
  several: boolean; // ranks were searched
  hrefOf: (at: Place) => string;
  onGo: (at: Place) => void;
  onStep: (by: number) => void;
  children: ReactNode;
}

/** Found lists the lines that a search has found, and how far it is. */
function Found({ search, state, log, mark, several, hrefOf, onGo, onStep, children }: FoundProps) {
  const rest = state.upTo < log.total && !state.running;
  const placeOf = (h: SearchState["hits"][number]): Place => ({ rank: h.rank, line: h.number ?? 0 });

  return (
    <>
      <div className={styles.note}>
        {state.problem
          ? <span role="alert" className={styles.refused}>{state.problem.message}</span>
          : (
            <span role="status">
              {count(state.hits.length, "line")} found
              {state.running && log.total > 0 && `, searched ${Math.floor((100 * state.upTo) / log.total)} %…`}
              {rest && ` up to line ${integer(state.upTo)}`}
            </span>
          )}
        {state.running && <button onClick={search.stop}>Stop</button>}
        {rest && !state.problem && <button onClick={search.start}>Search on</button>}
        {state.hits.length > 0 && !several && (
          <>
            <button onClick={() => { onStep(-1); }} title="N">‹ Previous</button>
            <button onClick={() => { onStep(1); }} title="n">Next ›</button>
          </>
        )}
        {children}
      </div>
      {state.hits.length > 0 && (
        <ol className={styles.hits} aria-label="Lines found">
          {state.hits.map((h) => (
            <li key={keyOf(h)}>
              <a
                href={hrefOf(placeOf(h))}
                aria-current={h.number === mark ? "true" : undefined}
                onClick={(e) => {
                  if (e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;

                  e.preventDefault();
                  onGo(placeOf(h));
                }}
              >
                <span>{several ? `${h.rank}:` : ""}{integer(h.number ?? 0)}</span>
                <bdi>
                  {parseAnsi(h.text, spansOf(h.text, h.matches)).map((p, i) => (
                    p.match ? <mark key={i}>{p.text}</mark> : p.text
                  ))}
                </bdi>
              </a>
            </li>
          ))}
        </ol>
      )}
    </>
  );
}

/** useErrors goes to the next or previous line that looks like an error. */
function useErrors(of: LogOf, start: (backward: boolean) => number, onFound: (line: number) => void) {
  const [note, setNote] = useState("");
  const [busy, setBusy] = useState(false);
  const control = useRef<AbortController>(undefined);

  useEffect(() => () => { control.current?.abort(); }, [of]);

  const stop = () => {
    control.current?.abort();
    setBusy(false);
    setNote("");
  };

  const find = (backward: boolean) => {
    control.current?.abort();
    const mine = new AbortController();
    control.current = mine;
    const direction = backward ? "before" : "after";
    const from = start(backward);
    setBusy(true);
    setNote("");

    findError(of, from, backward, mine.signal, (line) => {
      if (line !== from + 1 && line !== from) setNote(`Looking for errors ${direction} line ${integer(line)}…`);
    }).then((line) => {
      setBusy(false);
      setNote(line ? "" : `No line ${from < 1 ? "" : `${direction} line ${integer(from)} `}looks like an error.`);
      if (line?.number) onFound(line.number);
    }, (problem: unknown) => {
      if (mine.signal.aborted) return;

      setBusy(false);
      setNote(problem instanceof Problem ? problem.message : "The search failed.");
    });
  };

  return { note, busy, find, stop };
}
