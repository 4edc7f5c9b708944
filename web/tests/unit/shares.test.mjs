import assert from "node:assert/strict";
import { after, test } from "node:test";

import { close, htmlOf, load, textOf } from "./kit.mjs";

const shares = await load("/src/ui/shares.ts");
const { ShareBar, Sharers } = await load("/src/ui/sharebar.tsx");
const { ShareFacts } = await load("/src/pages/job/share.tsx");
const { sharesOn, wordsOf } = await load("/src/ui/node.tsx");
const { rowsOf } = await load("/src/pages/node/day.tsx");
after(close);

const use = { got: 0.25, wanted: 0.9, served: 0.8, mode: "token", memory: "1GB" };
const small = { job: "j9", name: "small", owner: "ada", share: 0.25, class: "normal", memory: "10GB", use };
const large = {
  job: "j4", owner: "bob", share: 0.5, class: "guaranteed", limit: 0.8, memory: "40GB",
  use: { ...use, got: 0.74, wanted: 1, memory: "9GB" },
};

test("what is promised, what is got and what is free add up", () => {
  assert.equal(shares.freeOf([small, large]), 0.25);
  assert.equal(shares.freeOf([0.1, 0.2, 0.7].map((share) => ({ ...small, share }))), 0, "sums are not exact");
  assert.equal(shares.filledOf(large), 1, "a job that gets more than its share fills its part, not those of others");
  assert.equal(shares.filledOf({ ...small, use: { ...use, got: 0.125 } }), 0.5);
  assert.equal(shares.filledOf({ ...small, use: undefined }), 0);
  assert.equal(shares.cappedOf({ shares: [small, large], memory: "141GB" }), "50 GB of 141 GB");
  assert.equal(shares.memoryOf(large), "9 GB of 40 GB");
  assert.equal(shares.memoryOf({ ...large, use: undefined }), "up to 40 GB");
});

test("every mode has plain words, and one that is not known is not made up", () => {
  for (const [mode, words] of [
    ["whole", /one job has all of it/], ["open", /at the same time/], ["token", /take turns/], ["mig", /slices/], ["mps", /MPS/],
  ]) {
    assert.match(shares.modeOf([{ ...small, use: undefined }, { ...large, use: { ...use, mode } }]), words);
  }

  assert.equal(shares.modeOf([{ ...small, use: undefined }]), "not measured");
});

test("a bar has a part for each share and for what is free, and says the same in words", () => {
  const html = htmlOf(ShareBar, { shares: [small, large], own: "j4" });
  assert.match(html, /role="img" aria-label="j9 small of ada: 25 %, gets 25 %; j4 of bob: 50 %, gets 74 %; 25 % free"/);
  assert.deepEqual([...html.matchAll(/flex-grow:([\d.]+)/g)].map((m) => Number(m[1])), [0.25, 0.5, 0.25]);
  assert.deepEqual([...html.matchAll(/inline-size:([\d.]+)%/g)].map((m) => Number(m[1])), [100, 100]);
  assert.deepEqual([...html.matchAll(/data-own="(\w+)"/g)].map((m) => m[1]), ["false", "true"]);
  assert.doesNotMatch(htmlOf(ShareBar, { shares: [{ ...small, share: 1 }] }), /free/);
});

test("who gets less than its share, or is not held to it, stands out", () => {
  const short = { ...small, use: { ...use, got: 0.1, short_since: "2026-11-17T10:00:00Z" } };
  const html = htmlOf(ShareBar, { shares: [short, large] });
  assert.deepEqual([...html.matchAll(/data-trouble="(\w+)"/g)].map((m) => m[1]), ["true", "false"]);
  assert.equal(textOf(Sharers, { shares: [short] }), "j9 small ada 25 %, gets 10 %, less than its share");
  assert.match(textOf(Sharers, { shares: [{ ...small, use: { ...use, bypassed: 1 } }] }), /not held to its share$/);
  assert.equal(textOf(Sharers, { shares: [{ ...small, use: undefined }], free: 0.75 }), "j9 small ada 25 % 75 % free");
  assert.match(htmlOf(Sharers, { shares: [short] }), /href="http:\/\/portal\/job\/j9"/);
});

test("of a node that does not report, only what was promised is said", () => {
  const gpu = { index: 0, state: "running", shares: [small] };
  assert.equal(sharesOn({ state: "running" }, gpu), gpu.shares);
  assert.equal(sharesOn({ state: "lost" }, gpu)[0].use, undefined);
  assert.equal(sharesOn({ state: "lost" }, { index: 0 }), undefined);
  assert.equal(wordsOf({ state: "running", runs: [] }, gpu), "GPU 0: shared: j9 small of ada: 25 %, gets 25 %; 75 % free");
  assert.equal(wordsOf({ state: "lost", runs: [] }, gpu), "GPU 0: shared: j9 small of ada: 25 %; 75 % free");
  assert.equal(wordsOf({ state: "idle", runs: [] }, { index: 0, state: "idle" }), "GPU 0: idle", "as before");
});

test("a job says what it asked for, what it gets and who is beside it", () => {
  const of = (job) => textOf(ShareFacts, { job: { spec: {}, ...job }, now: Date.parse("2026-11-17T12:00:00Z") });

  const held = of({ gpu_share: { ...large, node: "n1", gpu: 3, beside: [small] } });
  assert.match(held, /^GPU share 50 % of GPU 3 of n1, up to 40 GB of its memory guaranteed: .*at most 80 % of the GPU/);
  assert.match(held, /Gets 74 % of the GPU, wants 100 %; memory 9 GB of 40 GB jobs take turns; it has had 80 % of what/);
  assert.match(held, /Beside j9 small ada 25 %, gets 25 % 25 % free$/);

  const alone = of({ gpu_share: { ...large, use: undefined, limit: undefined, node: "n1", gpu: 3, beside: [] } });
  assert.match(alone, /no limit Gets not measured yet Beside nobody; 50 % of the GPU is free$/);

  const badly = of({ gpu_share: { ...large, node: "n1", gpu: 3, beside: [], use: {
    ...use, denials: 3, bypassed: 2, short_since: "2026-11-17T10:00:00Z",
  } } });
  assert.match(badly, /less than its share since \d\d:\d\d\. .*2 processes use the GPU without .*3 allocations refused: .*Raise gpu_memory/);
});

test("a job that waits says on which terms it asks for a share, and one with whole GPUs says nothing", () => {
  const of = (resources) => textOf(ShareFacts, { job: { spec: { resources } }, now: 0 });

  assert.match(of({ gpu_share: 0.5, share_class: "opportunistic", share_limit: 0.7 }),
    /^GPU share opportunistic: .*; at most 70 % of the GPU$/);
  assert.match(of({ gpu_share: 0.5 }), /^GPU share normal: .*; no limit$/);
  assert.equal(of({ gpu_share: 1 }), "");
  assert.equal(of({ gpus: "2" }), "");
});

test("runs that shared a GPU at the same time are in rows of their own", () => {
  const at = (hour) => `2026-11-17T${hour}:00:00Z`;
  const run = (name, from, to, share) => ({ run: name, from: at(from), to: to && at(to), share });
  const rows = (...runs) => {
    const found = rowsOf(runs);

    return [found.rows, ...runs.map((r) => found.row.get(r.run))];
  };

  assert.deepEqual(rows(run("c", "12", undefined, 0.5), run("b", "11", "13", 0.5), run("a", "10", "12", 0.5)), [2, 0, 1, 0]);
  assert.deepEqual(rows(run("b", "12", "13"), run("a", "10", "12")), [1, 0, 0], "whole GPUs look as before");
  assert.deepEqual(rows(), [1]);
});
