// What pages do to things. Each fails with a Problem that says why it was refused.
import { Problem, request, type Job, type Schemas } from "./client";

/** What can be done to many jobs at once. */
export type Verb = "cancel" | "pause" | "resume";

export function changeJob(verb: Verb | "kill" | "save", id: string): Promise<Job> {
  const path = { job: id };

  switch (verb) {
    case "cancel":
      return request("post", "/api/v1/jobs/{job}/cancel", { path });
    case "kill":
      return request("post", "/api/v1/jobs/{job}/kill", { path });
    case "pause":
      return request("post", "/api/v1/jobs/{job}/pause", { path });
    case "resume":
      return request("post", "/api/v1/jobs/{job}/resume", { path });
    case "save":
      return request("post", "/api/v1/jobs/{job}/save", { path });
  }
}

/** Changes fields of the job file of a job that is queued or paused: priority=60, resources.gpus=2. */
export function editJob(id: string, set: string[]): Promise<Job> {
  return request("post", "/api/v1/jobs/{job}/edit", { path: { job: id }, body: { set } });
}

/** Keeps a checkpoint whatever the rule of its job says, or no longer. */
export function pinCheckpoint(checkpoint: string, on: boolean): Promise<Schemas["Checkpoint"]> {
  const path = { checkpoint };

  return on
    ? request("put", "/api/v1/checkpoints/{checkpoint}/pin", { path })
    : request("delete", "/api/v1/checkpoints/{checkpoint}/pin", { path });
}

/** An answer to a question: one of its options, or none of them. */
export type Answer = { accept: string } | "dismiss";

export function answerQuestion(question: string, a: Answer): Promise<unknown> {
  const path = { question };

  return a === "dismiss"
    ? request("post", "/api/v1/inbox/{question}/dismiss", { path })
    : request("post", "/api/v1/inbox/{question}/accept", { path, body: { option: a.accept } });
}

/** How many calls are under way at the same time where many things are changed. */
const atOnce = 4;

/** What became of a change of many jobs. */
export interface Outcome {
  changed: number;
  refused: string[]; // why, one for each that was not changed
}

/** Changes many jobs. One that cannot be changed does not keep the others from it. */
export async function changeJobs(verb: Verb, ids: string[]): Promise<Outcome> {
  const waiting = [...ids];
  const outcome: Outcome = { changed: 0, refused: [] };

  const work = async () => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      try {
        await changeJob(verb, id);
        outcome.changed++;
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;

        outcome.refused.push(problem.message);
      }
    }
  };

  await Promise.all(Array.from({ length: atOnce }, work));

  return outcome;
}
