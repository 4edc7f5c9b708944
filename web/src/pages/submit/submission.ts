import { useMutation } from "@tanstack/react-query";
import { useRef, useState } from "react";

import { submitFile, type SubmitReply, type SubmitRequest } from "../../api/drafts";
import { go, hrefOf } from "../../route/route";
import { saveDraft } from "./draft";

export type Submission = ReturnType<typeof useSubmission>;

/** useSubmission submits once: a request that is repeated has the same key, whatever became of the first one. */
export function useSubmission(storage: string, onScheduled: () => void) {
  const last = useRef({ text: "", key: "" });
  const busy = useRef(false);
  const [schedule, setSchedule] = useState<SubmitReply["schedule"]>();

  const send = useMutation({
    mutationFn: (request: SubmitRequest) => {
      const text = JSON.stringify(request);
      if (last.current.text !== text) last.current = { text, key: newKey() };

      return submitFile(request, last.current.key);
    },
    onSettled: () => { busy.current = false; },
    retry: (failures, p) => p.status === 0 && failures < 3,
    onSuccess: (reply) => {
      saveDraft(storage, { text: "" });
      setSchedule(reply.schedule);
      const first = reply.jobs[0];
      if (first) go(hrefOf(`job/${first.id}`));
      else onScheduled();
    },
  });

  return {
    pending: send.isPending,
    schedule,
    problem: send.error ?? undefined,
    /** problemOf is why a request was refused, if it was this one. */
    problemOf: (request: SubmitRequest) => (send.error && isSame(send.variables, request) ? send.error : undefined),
    submit: (request: SubmitRequest) => {
      if (busy.current) return; // isPending shows a moment later

      busy.current = true;
      send.mutate(request);
    },
  };
}

function isSame(a: SubmitRequest, b: SubmitRequest): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function newKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
}
