// What would be changed, in the address, in a form and in a request.
import type { Schemas } from "../../api/client";

/** What is asked, as the address has it: all of it text. */
export interface Change {
  nodes: string; // 2xA100:80GBx8
  policy: string; // andreas:margin=0.2; "" for the one in force
  prices: string; // A100=2.40, V100=1.10
  load: string; // 1.5; "" if nobody submits anything
  assume: string; // 1h; "" for the default
}

export const names: (keyof Change)[] = ["nodes", "policy", "prices", "load", "assume"];

export function changeOf(query: URLSearchParams): Change {
  const text = (name: string) => query.get(name) ?? "";

  return {
    nodes: text("nodes"), policy: text("policy"), prices: text("prices"), load: text("load"), assume: text("assume"),
  };
}

/** requestOf turns the texts into a request. The server says what is wrong with them. */
export function requestOf(c: Change): Schemas["WhatIfRequest"] {
  const prices = c.prices.split(/[,;\s]+/).filter((p) => p !== "").map((p): [string, number] => {
    const [gpu = "", price = ""] = p.split("=", 2);

    return [gpu, Number(price.replace("$", ""))];
  });

  return {
    ...(c.nodes === "" ? {} : { add_nodes: c.nodes }),
    ...(c.policy === "" ? {} : { policy: c.policy }),
    ...(prices.length === 0 ? {} : { prices: Object.fromEntries(prices) }),
    ...(c.load === "" ? {} : { load: Number(c.load) }),
    ...(c.assume === "" ? {} : { assume: c.assume }),
  };
}

/** pricesProblem says what is wrong with the text of prices, "" if nothing is. */
export function pricesProblem(prices: string): string {
  const bad = prices.split(/[,;\s]+/).find((p) => p !== "" && !/^[\w:.-]+=\$?\d+(\.\d+)?$/.test(p));

  return bad === undefined ? "" : `write a price as GPU=DOLLARS, e.g. A100=2.40, not ${bad}`;
}

/** A policy with the values of its parameters. */
export interface Chosen {
  name: string;
  values: Record<string, string>;
}

export function parsePolicy(text: string): Chosen {
  const [name = "", ...parts] = text.split(/:(?=(?:[^"]*"[^"]*")*[^"]*$)/); // values in quotes may have colons
  const values = parts.map((p): [string, string] => [p.slice(0, p.indexOf("=")), p.slice(p.indexOf("=") + 1)]);

  return { name, values: Object.fromEntries(values) };
}

export function writePolicy(c: Chosen): string {
  const values = Object.entries(c.values).filter(([, v]) => v !== "");
  const quoted = (v: string) => (/[:,]/.test(v) && !v.startsWith('"') ? `"${v}"` : v);

  return [c.name, ...values.map(([name, v]) => `${name}=${quoted(v)}`)].join(":");
}
