import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { address, eventually, inspect, launch, looks, open, signedIn, submitAll } from "./kit.mjs";

let browser;
let state;

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => { await browser.close(); });

test("a yard without jobs says so", async () => {
  const page = await open(browser, state);
  await page.goto(address + "whatif");
  await page.getByRole("heading", { level: 1, name: /No job is running or queued/ }).waitFor();
  await inspect(page, "whatif-empty");
  await page.context().close();
});

test("more nodes end the jobs sooner, and the address is the question", async () => {
  submitAll(Array.from({ length: 4 }, (_, i) =>
    `name: train-${i}\nrun: sleep 600\nexpect: 1h\nresources: {gpus: 4}\n`));

  const page = await open(browser, state);
  await page.goto(address + "whatif");
  await page.getByRole("heading", { level: 1, name: /^As it is, 4 running or queued jobs will be done in about/ }).waitFor();
  await page.getByLabel("Nodes", { exact: true }).fill("1");
  await page.getByLabel("each").fill("4");
  await page.getByRole("button", { name: "Simulate", exact: true }).click();
  await page.waitForURL(/nodes=1xA100/);
  await page.getByRole("heading", { level: 1, name: /^With 1xA100:80GBx4 added: 4 .* instead of/ }).waitFor();
  const makespan = page.getByRole("row", { name: /^makespan/ });
  await makespan.getByText("better").waitFor();
  await page.getByRole("row", { name: /train-3/ }).getByText(/sooner/).waitFor();

  const sent = await open(browser, state);
  await sent.goto(page.url());
  await sent.getByRole("heading", { level: 1, name: /^With 1xA100:80GBx4 added/ }).waitFor();
  await eventually(async () => assert.equal(await sent.getByLabel("Nodes", { exact: true }).inputValue(), "1"));
  await sent.context().close();

  for (const look of looks) {
    const other = await open(browser, state, look);
    await other.goto(page.url());
    await other.getByRole("heading", { level: 1, name: /^With 1xA100:80GBx4 added/ }).waitFor();
    await other.getByRole("img", { name: /Jobs that have not ended/ }).waitFor();
    await inspect(other, `whatif-${look.name}`);
    await other.context().close();
  }

  await page.context().close();
});

test("policy, prices and load are changed, and what is wrong is said", async () => {
  const page = await open(browser, state);
  await page.goto(address + "whatif");
  await page.getByLabel("Policy").selectOption("srtf");
  await page.getByLabel(/Dollars for a GPU/).fill("A100");
  await page.getByText("write a price as GPU=DOLLARS").waitFor();
  await page.getByLabel(/Dollars for a GPU/).fill("A100=2");
  await page.getByRole("button", { name: "Simulate", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: /^With policy srtf, A100 at \$2\.00\/h/ }).waitFor();
  await page.getByRole("row", { name: /^money, nodes in use/ }).getByText("$0.00").waitFor();

  await page.getByLabel("Load").selectOption("2");
  await page.getByRole("button", { name: "Simulate", exact: true }).click();
  await page.waitForURL(/load=2/);
  await page.getByRole("heading", { level: 1, name: /2× the submissions of the last day/ }).waitFor();

  await page.goto(address + "whatif?policy=magic");
  await page.getByRole("alert").filter({ hasText: "magic" }).waitFor();
  await page.getByRole("button", { name: "Change nothing" }).click();
  await page.getByRole("heading", { level: 1, name: /^As it is/ }).waitFor();
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("a simulation is cancelled", async () => {
  const page = await open(browser, state);
  await page.route("**/api/v1/whatif", async () => undefined); // the answer does not come
  await page.goto(address + "whatif");
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByText("Cancelled.").waitFor();
  await page.unroute("**/api/v1/whatif");
  await page.getByRole("status").getByRole("button", { name: "Simulate" }).click();
  await page.getByRole("heading", { level: 1, name: /^As it is/ }).waitFor();
  await page.context().close();
});
