// What is being written, kept for a reload of the tab. Values of variables are not kept: they may be secrets.
import type { Workdir } from "./upload";

export interface Draft {
  text: string;
  workdir?: Workdir | undefined;
  notes?: string[] | undefined; // what was left out of the file of a past job
}

/** Each user of a browser, and each job that somebody starts from, has a draft. */
export function draftKey(user: string, from: string): string {
  return `trainyard:submit:${user}:${from}`;
}

export function loadDraft(key: string): Draft | undefined {
  try {
    const stored = sessionStorage.getItem(key);

    return stored === null ? undefined : (JSON.parse(stored) as Draft);
  } catch {
    return undefined; // nothing can be stored here
  }
}

/** saveDraft keeps a draft; an empty one is forgotten. */
export function saveDraft(key: string, draft: Draft): void {
  try {
    if (draft.text === "" && !draft.workdir) sessionStorage.removeItem(key);
    else sessionStorage.setItem(key, JSON.stringify(draft));
  } catch {
    // It lasts until the page is closed.
  }
}
