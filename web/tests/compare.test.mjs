import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { address, eventually, inspect, launch, looks, open, signedIn, submit, trainyard } from "./kit.mjs";

let browser;
let state;
let ids; // of jobs with metrics

const program = `
import sys
import trainyard

rate = float(sys.argv[1])
for step in range(1, 101):
    trainyard.log(step, {"loss": 2 / (1 + rate * step), "accuracy": 1 - 1 / step})
if rate > 0.1:
    trainyard.log(100, {"extra": 1.5})
`;

/** Submits a job with a rate as parameter, and waits until it has ended. */
function train(name, rate) {
  const folder = join(process.env.HOME, "train");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "train.py"), program);
  writeFileSync(join(folder, "job.yaml"), `
name: ${name}
workdir: .
run: python3 train.py ${rate}
params: {rate: ${rate}, batch_size: 32, note: "שלום עולם"}
resources: {gpus: 1}
`);
  const id = trainyard("submit", "-d", "-q", "--yes", join(folder, "job.yaml")).trim();
  trainyard("wait", id);

  return id;
}

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
  ids = [train("slow", 0.1), train("fast", 0.5)];
});
after(async () => { await browser.close(); });

/** The cells of a row of a table. */
async function cells(page, table, name) {
  const found = page.getByRole("table", { name: table }).getByRole("row").filter({ hasText: name }).first();
  await found.waitFor();

  return (await found.getByRole("cell").allInnerTexts()).map((t) => t.replace(/\s+/g, " "));
}

test("jobs are compared by curves, results and job files", async () => {
  const page = await open(browser, state);
  await page.goto(`${address}compare?job=${ids[0]}&job=${ids[1]}&metric=loss`);
  const range = `loss from 0.03922 (${ids[1]}) to 0.1818 (${ids[0]})`;
  await page.getByRole("heading", { level: 1, name: `2 jobs compared: ${range}` }).waitFor();
  await page.getByRole("img", { name: `loss of ${ids[0]}, ${ids[1]}` }).waitFor();
  await page.getByText(`${ids[1]} fast`).first().waitFor();

  await eventually(async () => {
    assert.deepEqual((await cells(page, "Results", "State")).slice(1), ["✓ succeeded", "✓ succeeded"]);
  });
  await eventually(async () => assert.deepEqual((await cells(page, "Results", "accuracy")).slice(1), ["0.99", "0.99"]));
  await eventually(async () => assert.deepEqual((await cells(page, "Results", "extra")).slice(1), ["none", "1.5"]));

  // What differs is marked, comes first, and can be shown alone.
  const files = page.getByRole("table", { name: "Job files" });
  const rate = await cells(page, "Job files", "params.rate");
  assert.match(rate[0], /≠.*params\.rate/);
  assert.deepEqual(rate.slice(1), ["0.1", "0.5"]);
  await eventually(async () => assert.doesNotMatch((await cells(page, "Job files", "params.batch_size"))[0], /≠/));
  await eventually(async () => assert.match(await files.getByRole("row").nth(1).textContent(), /≠/));
  await page.getByLabel("Only what differs").check();
  await files.getByText("params.batch_size").waitFor({ state: "detached" });
  await page.waitForURL(/different=1/);

  await page.getByLabel("Metric", { exact: true }).selectOption("extra");
  await page.getByText(`${ids[0]} without extra`).waitFor();
  await page.getByLabel("Metric", { exact: true }).selectOption("accuracy");
  await page.getByLabel("By", { exact: true }).selectOption("time");
  await page.getByLabel("Log scale").check();
  await page.waitForURL(/metric=accuracy.*by=time.*log=1/);
  await page.reload();
  await page.getByRole("img", { name: /accuracy of/ }).waitFor();
  await eventually(async () => assert.equal(await page.getByLabel("By", { exact: true }).inputValue(), "time"));
  assert.deepEqual(page.errors, []);
  await page.context().close();

  for (const look of looks) {
    const other = await open(browser, state, look);
    await other.goto(`${address}compare?job=${ids[0]}&job=${ids[1]}&metric=loss`);
    await other.getByRole("img", { name: /loss of/ }).waitFor();
    await cells(other, "Job files", "params.rate");
    await inspect(other, `compare-${look.name}`);
    await other.context().close();
  }
});

test("jobs are added and removed, and what is missing is said", async () => {
  const page = await open(browser, state);
  await page.goto(`${address}compare`);
  await page.getByText("Choose jobs to compare").waitFor();
  await inspect(page, "compare-empty");
  await page.getByLabel("Add a job by its id or name").fill(ids[0]);
  await page.keyboard.press("Enter");
  await page.getByText(`Choose a job to compare with ${ids[0]} slow`).waitFor();
  await page.getByLabel("Add a job by its id or name").fill("fast");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: /^2 jobs compared/ }).waitFor();

  const plain = submit("no-metrics", "true");
  await page.getByLabel("Add a job by its id or name").fill(plain);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: /^3 jobs compared/ }).waitFor();
  await page.getByText(`${plain} without`).waitFor();
  await page.getByRole("button", { name: `Remove ${ids[0]}` }).click();
  await page.getByRole("heading", { level: 1, name: /^2 jobs compared/ }).waitFor();
  assert.deepEqual(page.errors, []);

  await page.goto(`${address}compare?job=${ids[0]}&job=j999999&job=${plain}`);
  await page.getByText("j999999 not found").waitFor();
  await page.getByRole("button", { name: "Compare without j999999" }).click();
  await page.getByRole("heading", { level: 1, name: /^2 jobs compared/ }).waitFor();
  await page.context().close();
});
