import { useEffect, useState } from "react";

import { Problem } from "../../api/client";
import { dryRun, type SubmitReply, type SubmitRequest } from "../../api/drafts";

/** How long nothing is typed before the file is checked. */
const settledAfter = 400;

/** How often options are priced anew: other jobs come and go. */
const pricedEvery = 30_000;

/** How long after a server that did not respond is asked again. */
const askedAgainAfter = 3_000;

/** What the server said of a file. What it said of the one before is shown until then. */
export interface Check {
  reply?: SubmitReply;
  problem?: Problem;
  of: SubmitRequest;
}

/** useCheck asks what would happen to the jobs of a file, once it is not changed for a moment: one call at a time. */
export function useCheck(body: SubmitRequest | undefined): Check | undefined {
  const [check, setCheck] = useState<Check>();

  useEffect(() => {
    if (!body) return;

    const stop = new AbortController();
    void keepChecking(body, stop.signal, setCheck);

    return () => { stop.abort(); };
  }, [body]);

  return body && check;
}

async function keepChecking(of: SubmitRequest, signal: AbortSignal, set: (c: Check) => void): Promise<void> {
  for (let pause = settledAfter; await slept(pause, signal);) {
    if (document.hidden && pause === pricedEvery) continue;

    try {
      set({ of, reply: await dryRun(of, signal) });
      pause = pricedEvery;
    } catch (problem) {
      if (!(problem instanceof Problem)) return; // it is not asked any more

      set({ of, problem });
      if (!isAway(problem)) return; // it stays wrong until it is changed

      pause = askedAgainAfter;
    }
  }
}

/** isAway reports whether a problem is not one of the file. */
export function isAway(p: Problem): boolean {
  return p.status === 0 || p.status === 429 || p.status >= 500;
}

function slept(ms: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => { resolve(true); }, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve(false);
    });
  });
}
