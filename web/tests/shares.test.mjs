// gpu: shared
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { address, eventually, inspect, joinNode, launch, looks, open, signedIn, submit, trainyard } from "./kit.mjs";

let browser;
let state;
let large; // jobs that share the GPU of the node here
let small;

const { FAKE_GPU, FAKE_DRIVER, HOME } = process.env;

/** Submits a program of the fake GPU, with a part of it. */
function share(name, resources, run = "$FAKE_DRIVER/trainer kernel=600 sync=1000000") {
  const path = join(HOME, `${name}.yaml`);
  writeFileSync(path, [
    `name: ${name}`, `run: ${run}`, `resources: {cpus: 0.1, ${resources}}`,
    `env: {FAKE_GPU: ${FAKE_GPU}, FAKE_DRIVER: ${FAKE_DRIVER}, LD_LIBRARY_PATH: ${FAKE_DRIVER}}`, "",
  ].join("\n"));

  return trainyard("submit", "-d", "-q", "--yes", path).trim();
}

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
  large = share("large", "gpu_share: 0.5, gpu_memory: 20GB, share_limit: 0.9");
  small = share("small", "gpu_share: 0.3, gpu_memory: 8GB");
  await joinNode("whole", "2xA100:80GB");
  submit("alone", "sleep 900", "--gpus", "1", "--gpu", "A100");
});
after(async () => { await browser.close(); });

/** The bar of the GPU, once both jobs have had turns. */
const bar = (page) => page.getByRole("img", {
  name: new RegExp(`^${large} large of \\S+: 50 %, gets \\d+ %.*; ${small} small of \\S+: 30 %, gets \\d+ %.*; 20 % free$`),
});

test("Nodes shows who shares which GPU; GPUs that are not shared look as before", async () => {
  const page = await open(browser, state);
  await page.goto(address + "nodes");
  await page.getByRole("heading", { level: 1, name: "2 nodes: 2 of 3 GPUs busy (1 shared), 1 idle" }).waitFor();
  await page.getByRole("img", { name: "1 GPU: 1 running (1 shared)" }).waitFor();
  await page.getByRole("img", { name: "2 GPUs: 1 running, 1 idle", exact: true }).waitFor();

  const row = page.getByRole("table", { name: "Shared GPUs" }).getByRole("row", { name: /here GPU 0/ });
  await bar(row).waitFor();
  await row.getByText("jobs take turns").waitFor();
  await row.getByRole("cell", { name: "28 GB of 64 GB" }).waitFor();
  await row.getByRole("link", { name: `${small} small` }).waitFor();
  assert.equal(await page.getByRole("table", { name: "Shared GPUs" }).getByRole("row").count(), 2);

  await page.getByLabel("Name contains").fill("whole");
  await page.getByRole("heading", { name: "Shared GPUs" }).waitFor({ state: "detached" });
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("a node has a table for each shared GPU: what each job was promised, and what it gets", async () => {
  const page = await open(browser, state);
  await page.goto(address + "node/here");
  await bar(page).waitFor();
  await page.getByText("2 jobs, 20 % free; jobs take turns").waitFor();

  const shares = page.getByRole("table", { name: "Shares of GPU 0" });
  await shares.getByRole("row", { name: new RegExp(`${large} large \\S+ 50 % \\d+ % \\d+ % .* of 20 GB normal 90 %`) }).waitFor();
  await shares.getByRole("row", { name: new RegExp(`${small} small \\S+ 30 % \\d+ % \\d+ % .* of 8 GB normal none`) }).waitFor();

  // Both are visible in the last day, although they have run on one GPU at the same time.
  const [one, other] = await Promise.all([large, small].map((j) => page.locator(`[title^="${j} "][data-ended]`).boundingBox()));
  assert.ok(Math.abs(one.y - other.y) >= one.height, `runs are at ${one.y} and ${other.y}`);

  await shares.getByRole("link", { name: `${small} small` }).click();
  await page.waitForURL(new RegExp(`job/${small}$`));

  await page.goto(address + "node/whole");
  await page.getByRole("heading", { level: 1, name: /whole runs 1 job on 1 of 2 GPUs/ }).waitFor();
  assert.equal(await page.getByRole("heading", { name: "Shared GPUs" }).count(), 0);
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("pages with shares look right everywhere", async () => {
  for (const look of looks) {
    const page = await open(browser, state, look);

    for (const [path, name] of [["nodes", "nodes"], ["node/here", "node"], [`job/${large}`, "job"]]) {
      await page.goto(address + path);
      await bar(page).waitFor();
      await inspect(page, `shares-${name}-${look.name}`);
    }

    await page.context().close();
  }
});

test("a job shows its share, its neighbours, and what happened to it", async () => {
  const greedy = share("greedy", "gpu_share: 0.1, share_class: opportunistic, gpu_memory: 1GB",
    "while $FAKE_DRIVER/trainer mode=alloc; do sleep 1; done");
  const page = await open(browser, state);
  await page.goto(`${address}job/${large}`);
  await page.getByText(/^50 % of GPU 0 of here, up to 20 GB of its memory/).waitFor();
  await page.getByText("at most 90 % of the GPU").waitFor();
  await page.getByText(/\d+ % of the GPU, wants \d+ %; memory .* of 20 GB/).waitFor();
  const facts = page.getByRole("region", { name: "State" });
  await facts.getByRole("link", { name: `${small} small` }).waitFor();
  await facts.getByRole("link", { name: `${greedy} greedy` }).click();

  // It allocates more memory than it may have, again and again.
  await page.getByText("opportunistic: served with what others leave; no limit").waitFor();
  await page.getByText(/\d+ allocations? refused: it had all the memory/).waitFor();
  await page.getByRole("row", { name: /out of its GPU memory ran out of the 1 GB of memory of GPU 0 of here/ }).waitFor();
  await inspect(page, "shares-refused");

  trainyard("kill", greedy);
  trainyard("kill", large);
  await page.goto(`${address}job/${small}`);
  await page.getByText("nobody; 70 % of the GPU is free").waitFor();
  await page.goto(`${address}job/${large}`);
  await page.getByText("normal: its share, and a part of what others leave; at most 90 % of the GPU").waitFor();
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("a share is asked for in the form, which says what the server says", async () => {
  const page = await open(browser, state);
  await page.goto(address + "submit");
  const form = page.getByRole("form", { name: "Job" });
  const text = page.getByLabel("Job file in YAML");
  await form.getByLabel("Command").fill("train");
  await form.getByLabel("Share class").selectOption("guaranteed");
  await form.getByText("must not be given without gpu_share").waitFor();
  await form.getByLabel("Share of a GPU").fill("1.5");
  await form.getByText("must be a fraction of one GPU between 0.01 and 1, got 1.5").waitFor();
  await form.getByLabel("Share of a GPU").fill("0.5");
  await form.getByLabel("Share limit").fill("0.2");
  await form.getByText("must be at least gpu_share, 0.5, got 0.2").waitFor();
  await form.getByLabel("GPU memory").fill("8GB..10GB");
  await form.getByText("must be one amount with gpu_share, got 8GB..10GB").waitFor();
  await inspect(page, "shares-submit-mistakes");

  await form.getByLabel("GPU memory").fill("8GB");
  await form.getByLabel("Share limit").fill("0.8");
  await page.getByText("The file is valid", { exact: true }).waitFor();
  await eventually(async () => {
    const written = "run: train\nresources:\n  share_class: guaranteed\n  gpu_share: 0.5\n  share_limit: 0.8\n  gpu_memory: 8GB\n";
    assert.equal(await text.inputValue(), written);
  });
  await page.context().close();
});
