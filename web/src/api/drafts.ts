// What the page that submits asks and does.
import { queryOptions } from "@tanstack/react-query";

import { request, type Schemas } from "./client";

export type SubmitRequest = Schemas["SubmitRequest"];
export type SubmitReply = Schemas["SubmitReply"];

/** What would happen to the jobs of a file. It fails with the mistakes of the file. */
export function dryRun(body: SubmitRequest, signal: AbortSignal): Promise<SubmitReply> {
  return request("post", "/api/v1/jobs", { body: { ...body, dry_run: true }, signal });
}

/** Job files to start from. */
export const templates = queryOptions({
  queryKey: ["templates"],
  queryFn: ({ signal }) => request("get", "/api/v1/templates", { signal }),
  staleTime: Infinity, // they are part of the server
});

/** The file with which a job can be submitted again. */
export function jobFile(job: string) {
  return queryOptions({
    queryKey: ["job file", job],
    queryFn: ({ signal }) => request("get", "/api/v1/jobs/{job}/file", { path: { job }, signal }),
    staleTime: Infinity, // what is edited is a copy
    gcTime: 0,
  });
}

/** Submits a file. With the same key it is submitted once, however often this is called. */
export function submitFile(body: SubmitRequest, key: string): Promise<SubmitReply> {
  return request("post", "/api/v1/jobs", { body, key });
}

/** Which of these contents the server lacks. */
export async function missingFiles(digests: string[], signal: AbortSignal): Promise<string[]> {
  const reply = await request("post", "/api/v1/files/missing", { body: { digests }, signal });

  return reply.digests;
}

/** Lets the server make a file of parts that were uploaded, and reports whether it is done. */
export async function joinFile(digest: string, parts: string[], size: number, signal: AbortSignal): Promise<boolean> {
  const options = { path: { digest }, body: { parts, size }, signal };
  const reply = await request("post", "/api/v1/files/{digest}/join", options);

  return reply.done;
}
