// The output of a run's rank, by line numbers.
import { addressOf, request, type Schemas } from "./client";

export type LogLine = Schemas["LogLine"];
export type LogLines = Schemas["LogLines"];

/** A rank of a run: what one log is of. */
export interface LogOf {
  job: string;
  run: string;
  rank: number;
}

/** Which lines are asked for. */
export interface LogRange {
  from?: number; // the first is 1, the last is -1
  backward?: boolean; // those before from
  limit?: number;
  cut?: number; // lines to so many bytes
  grep?: string;
  errors?: boolean;
  wait?: number; // seconds, for more output than after
  after?: number;
}

export function readLines(of: LogOf, range: LogRange, signal: AbortSignal): Promise<LogLines> {
  return request("get", "/api/v1/jobs/{job}/logs/{run}/{rank}/lines", {
    path: { job: of.job, run: of.run, rank: String(of.rank) }, query: range, signal,
  });
}

/** Where a browser downloads the output as a text file. */
export function downloadOf(of: LogOf): string {
  return addressOf(`/api/v1/jobs/${of.job}/logs/${of.run}/${of.rank}?format=text`).href;
}
