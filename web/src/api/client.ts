// The one way to call the server. Addresses, parameters and answers are typed by the generated schema.
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type Job = Schemas["Job"];
export type JobDetail = Schemas["JobDetail"];
export type Question = Schemas["Question"];
export type Whoami = Schemas["Whoami"];
export type FeedEvent = Schemas["Event"];
export type Summary = Schemas["Summary"];
export type Node = Schemas["Node"];
export type GPU = Schemas["GPU"];
export type QueuedJob = Schemas["QueuedJob"];

type Method = "get" | "put" | "post" | "delete";
type Operation<P extends keyof paths, M extends Method> = paths[P][M];
type Parameters<O, Kind extends string> = O extends { parameters: Partial<Record<Kind, infer Q>> } ? Q : never;
type Body<O> = O extends { requestBody?: { content: { "application/json": infer B } } } ? B : never;
type Answered<O, Status extends number> =
  O extends { responses: Record<Status, { content: { "application/json": infer A } }> } ? A : undefined;
type Answer<O> = Answered<O, 200> extends undefined ? Answered<O, 201> : Answered<O, 200>;

interface Options<O> {
  path?: Parameters<O, "path">;
  query?: Parameters<O, "query">;
  body?: Body<O>;
  key?: string; // requests with the same key are carried out once
  signal?: AbortSignal;
}

/** What is wrong at a place of a file. */
export type Mistake = Schemas["Problem"];

/** An answer that says what is wrong, or that the server could not be reached (status 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly remedy = "",
    readonly parts: Mistake[] = [], // each with its place, where a file was refused
  ) {
    super(detail);
  }
}

/** Whether the same request may succeed a little later: the server is away or busy, or nobody leads the yard now. */
export function mayPass(problem: unknown): boolean {
  return problem instanceof Problem && [0, 429, 502, 503, 504].includes(problem.status);
}

/** How often something that may pass is tried again, in milliseconds. */
export const tryAgainAfter = 3000;

/** How long an answer is waited for. */
const patience = 30_000;

/** The address of a path of the API, wherever the portal is served. */
export function addressOf(path: string): URL {
  return new URL(path.replace(/^\//, ""), document.baseURI);
}

const signedOutListeners = new Set<() => void>();

/** Calls fn whenever the server says that nobody is signed in. */
export function onSignedOut(fn: () => void): () => void {
  signedOutListeners.add(fn);

  return () => signedOutListeners.delete(fn);
}

/** Makes a call. It fails with a Problem, or as its signal says. */
export async function request<P extends keyof paths, M extends Method>(
  method: M,
  path: P,
  options: Options<Operation<P, M>> = {},
): Promise<Answer<Operation<P, M>>> {
  const url = addressOf(fillPath(path, options.path));
  addQuery(url, options.query);

  const headers = new Headers();
  if (options.body !== undefined) headers.set("Content-Type", "application/json");
  if (options.key !== undefined) headers.set("Idempotency-Key", options.key);

  const body = options.body === undefined ? null : JSON.stringify(options.body);
  const response = await call(url, { method: method.toUpperCase(), headers, body }, patience, options.signal);
  if (response.status === 204) return undefined as Answer<Operation<P, M>>;

  return (await response.json()) as Answer<Operation<P, M>>;
}

/** How long one file may travel. */
const uploadPatience = 600_000;

/** Uploads a content by its digest. It fails as request does. */
export async function putFile(digest: string, content: Blob, signal: AbortSignal): Promise<void> {
  await call(addressOf(`/api/v1/files/${digest}`), { method: "PUT", body: content }, uploadPatience, signal);
}

async function call(url: URL, init: RequestInit, limit: number, signal: AbortSignal | undefined): Promise<Response> {
  const timeout = AbortSignal.timeout(limit);
  let response: Response;

  try {
    response = await fetch(url, {
      ...init, credentials: "same-origin", signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;

    throw new Problem(0, "unreachable", "server not responding", "it is tried again by itself");
  }

  if (!response.ok) throw await refusal(response);

  return response;
}

/** Whether the server is ready to work, and if not, why: probes get text. */
export async function isReady(signal: AbortSignal): Promise<{ ready: boolean; text: string }> {
  try {
    const response = await fetch(addressOf("readyz"), { credentials: "same-origin", signal });

    return { ready: response.ok, text: (await response.text()).trim() };
  } catch (cause) {
    if (signal.aborted) throw cause;

    throw new Problem(0, "unreachable", "server not responding", "it is tried again by itself");
  }
}

function fillPath(path: string, values: unknown): string {
  const names = (values ?? {}) as Record<string, string | number>;

  return path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(names[name])));
}

function addQuery(url: URL, values: unknown): void {
  for (const [name, value] of Object.entries((values ?? {}) as Record<string, unknown>)) {
    if (value === undefined || value === "" || value === false) continue;

    for (const one of Array.isArray(value) ? (value as unknown[]) : [value]) url.searchParams.append(name, String(one));
  }
}

/** What the server said instead of an answer. Where nobody is signed in, all who want to know are told. */
async function refusal(response: Response): Promise<Problem> {
  if (response.status === 401) signedOutListeners.forEach((fn) => { fn(); });

  try {
    const p = (await response.json()) as Schemas["Problem"];

    return new Problem(response.status, p.code, p.detail, p.remedy, p.errors ?? [p]);
  } catch {
    return new Problem(response.status, "unknown", `unexpected answer of the server (${response.status})`);
  }
}

/** An item of a live feed. */
export interface FeedItem {
  cursor: string; // to go on after it
  kind: string; // "" for an ordinary one
  data: string;
}

/** How long a live feed may say nothing: the server says that it is still there more often than that. */
const silence = 30_000;

/**
 * follow reads a live feed until it ends or falls silent, which are no errors, or fails as request does. EventSource
 * would not say why a feed is refused, and would wait for ever for a server that is gone.
 */
export async function follow(
  url: URL,
  signal: AbortSignal,
  on: { open: () => void; item: (item: FeedItem) => void },
): Promise<void> {
  const watch = new AbortController();
  let alarm = setTimeout(() => { watch.abort(); }, silence);

  try {
    const response = await fetch(url, { credentials: "same-origin", signal: AbortSignal.any([signal, watch.signal]) });
    if (!response.ok || !response.body) throw await refusal(response);

    on.open();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";

    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;

      clearTimeout(alarm);
      alarm = setTimeout(() => { watch.abort(); }, silence);
      const blocks = (text + value).split("\n\n");
      text = blocks.pop() ?? "";
      for (const block of blocks) readItem(block, on.item);
    }
  } catch (cause) {
    if (cause instanceof Problem || signal.aborted) throw cause;
  } finally {
    clearTimeout(alarm);
  }
}

/** readItem reads one item of server-sent events. Comments have no data. */
function readItem(block: string, take: (item: FeedItem) => void): void {
  const item: FeedItem = { cursor: "", kind: "", data: "" };

  for (const line of block.split("\n")) {
    const [field, ...rest] = line.split(": ");
    const value = rest.join(": ");
    if (field === "id") item.cursor = value;
    else if (field === "event") item.kind = value;
    else if (field === "data") item.data = value;
  }

  if (item.data !== "") take(item);
}
