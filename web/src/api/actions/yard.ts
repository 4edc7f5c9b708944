// What is done to nodes and to the queue. Each fails with a Problem that says why it was refused.
import { request, type Job, type Node, type Schemas } from "../client";

export type NodeVerb = "cordon" | "uncordon" | "drain" | "accept";

export function changeNode(verb: NodeVerb, name: string): Promise<Node> {
  const path = { node: name };

  switch (verb) {
    case "cordon":
      return request("post", "/api/v1/nodes/{node}/cordon", { path });
    case "uncordon":
      return request("post", "/api/v1/nodes/{node}/uncordon", { path });
    case "drain":
      return request("post", "/api/v1/nodes/{node}/drain", { path });
    case "accept":
      return request("post", "/api/v1/nodes/{node}/accept", { path });
  }
}

/** Takes a node out of the yard for good. With force its runs are declared lost. */
export async function removeNode(name: string, force: boolean): Promise<void> {
  await request("delete", "/api/v1/nodes/{node}", { path: { node: name }, query: { force } });
}

/** Returns a GPU to service that its agent has quarantined. */
export function clearGPUError(name: string, gpu: number): Promise<Node> {
  return request("post", "/api/v1/nodes/{node}/gpus/{gpu}/clear-error", { path: { node: name, gpu } });
}

/** Gives a provisioned node back. */
export async function releaseLease(id: string): Promise<void> {
  await request("post", "/api/v1/leases/{lease}/release", { path: { lease: id } });
}

export interface JoinWish {
  class: "local" | "reserved" | "ondemand";
  pool: string;
  uses: number;
  ttl: string;
}

/** Makes a token with which machines join. */
export function joinToken(wish: JoinWish): Promise<Schemas["NewToken"]> {
  const { pool, ...rest } = wish;

  return request("post", "/api/v1/tokens", { body: { kind: "join", ...rest, ...(pool === "" ? {} : { pool }) } });
}

export function setPriority(job: string, priority: number): Promise<Job> {
  return request("post", "/api/v1/jobs/{job}/edit", { path: { job }, body: { set: [`priority=${priority}`] } });
}
