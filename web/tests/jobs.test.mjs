// up: --tariff TESTS/prices.yaml
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import {
  address, eventually, inspect, launch, looks, open, signedIn, signIn, submit, submitAll, trainyard,
} from "./kit.mjs";

let browser;
let state; // of a browser that is signed in

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => { await browser.close(); });

test("a yard without jobs says what to do", async () => {
  const page = await open(browser, state);
  await page.goto(address + "jobs");
  await page.getByText("No job has been submitted yet").waitFor();
  await inspect(page, "jobs-empty");
  await page.context().close();
});

test("the list of jobs is filtered by the server, and its address can be sent", async () => {
  for (let i = 0; i < 3; i++) submit(`sweep-${i}`, "exit 3");
  submit("vit-large", "sleep 600", "--gpus", "2");
  const page = await open(browser, state);
  await page.goto(address + "jobs?name=sweep");
  const rows = page.getByRole("grid", { name: "Jobs" }).getByRole("row");
  await page.getByRole("row", { name: /sweep-2/ }).waitFor();
  await eventually(async () => assert.equal(await rows.count(), 4, "the head and three rows"));

  await eventually(async () => assert.match(await rows.nth(1).textContent(), /sweep-2/, "the newest come first"));
  await page.getByRole("button", { name: "Submitted" }).click();
  await page.waitForURL(/sort=submitted/);
  await page.locator("[aria-rowindex='2']", { hasText: "sweep-0" }).waitFor();
  await page.getByRole("button", { name: "Submitted" }).click();

  await page.getByText("Columns").click();
  await page.getByLabel("Priority").check();
  await page.getByRole("columnheader", { name: "Priority" }).waitFor();
  await eventually(() => assert.match(page.url(), /cols=.*priority/));
  await page.getByText("Columns").click();

  await page.getByLabel("Name contains").fill("sweep-1");
  await page.waitForURL(/name=sweep-1/);
  await page.getByRole("row", { name: /sweep-2/ }).waitFor({ state: "detached" });
  await page.getByRole("heading", { level: 1, name: /^1 job: 1 failed/ }).waitFor();

  await page.getByLabel("State", { exact: true }).selectOption("running");
  await page.getByText("No job matches").waitFor();
  await page.getByRole("button", { name: "Clear all filters" }).click();
  await page.getByRole("row", { name: /vit-large/ }).waitFor();

  await page.getByRole("link", { name: "Failed this week" }).click();
  await page.waitForURL(/state=failed&days=7&sort=-ended/);
  await page.getByRole("row", { name: /vit-large/ }).waitFor({ state: "detached" });
  await page.getByRole("columnheader", { name: "Ended" }).waitFor();
  await page.goBack();
  await page.getByRole("row", { name: /vit-large/ }).waitFor();

  for (const look of looks) {
    const other = await open(browser, state, look);
    await other.goto(address + "jobs");
    await other.getByRole("row", { name: /vit-large/ }).waitFor();
    await inspect(other, `jobs-${look.name}`);
    await other.getByRole("row", { name: /vit-large/ }).click();
    await other.getByRole("heading", { name: /vit-large/ }).waitFor();
    await other.getByRole("button", { name: "Cancel job" }).waitFor();
    await inspect(other, `job-${look.name}`);
    await other.context().close();
  }

  await page.context().close();
});

test("the list is sorted by the server", async () => {
  const ids = ["order-b", "order-c", "order-a"].map((name) => submit(name, "sleep 600"));
  const [first, second, third] = ids;
  const page = await open(browser, state);
  await page.goto(address + "jobs?name=order");
  await page.getByRole("row", { name: /order-b.*running/ }).waitFor();
  trainyard("kill", second);
  await page.getByRole("row", { name: /order-c.*cancelled/ }).waitFor();
  trainyard("kill", first);
  await page.getByRole("row", { name: /order-b.*cancelled/ }).waitFor();
  const names = () => page.getByRole("grid", { name: "Jobs" }).getByRole("row")
    .evaluateAll((rows) => rows.slice(1).map((r) => /order-./.exec(r.textContent)[0]));
  const sorted = (...want) => page.waitForFunction(
    (w) => [...document.querySelectorAll("[role=grid] [aria-rowindex]")].slice(1)
      .map((r) => /order-./.exec(r.textContent)?.[0]).join() === w, want.join());

  await sorted("order-a", "order-c", "order-b"); // the newest first
  await page.getByRole("button", { name: "Name" }).click();
  await page.waitForURL(/sort=name/);
  await sorted("order-a", "order-b", "order-c");
  await eventually(async () => {
    assert.equal(await page.getByRole("columnheader", { name: "Name" }).getAttribute("aria-sort"), "ascending");
  });
  await page.getByRole("button", { name: "Name" }).click();
  await sorted("order-c", "order-b", "order-a");

  await page.goto(address + "jobs?name=order&sort=-ended");
  await sorted("order-b", "order-c", "order-a"); // what runs comes last
  trainyard("kill", third);
  await sorted("order-a", "order-b", "order-c"); // and first when it has ended, without a reload
  await page.getByRole("button", { name: "Cost" }).click();
  await page.waitForURL(/sort=-cost/);
  await eventually(async () => assert.equal((await names()).length, 3));
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("an action shows its effect", async () => {
  const page = await open(browser, state);
  await page.goto(address + "jobs?name=vit-large");
  await page.getByRole("row", { name: /vit-large/ }).click();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("button", { name: "Resume" }).waitFor();
  page.on("dialog", (d) => void d.accept());
  await page.getByRole("button", { name: "Cancel job" }).click();
  await page.getByRole("button", { name: "Cancel job" }).waitFor({ state: "detached" });
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("a long list is loaded as one scrolls, nothing jumps, and many changes are few questions", async () => {
  const holder = submit("holder", "sleep 600", "--gpus", "2");
  const names = Array.from({ length: 150 }, (_, i) => `crowd-${String(i).padStart(3, "0")}`);
  submitAll(names.map((name) => `name: ${name}\nrun: "true"\nresources: {gpus: 4}\n`)); // none fits beside the holder

  const page = await open(browser, state);
  await page.goto(address + "jobs?name=crowd");
  await page.getByRole("heading", { level: 1, name: /^150 jobs: 150 pending/ }).waitFor();
  const grid = page.getByRole("grid", { name: "Jobs" });
  await grid.getByRole("row", { name: /crowd-149/ }).waitFor();

  await page.waitForFunction(() => {
    const g = document.querySelector("[role=grid]");
    g.scrollTop = g.scrollHeight;

    return g.textContent.includes("crowd-000");
  });
  const drawn = await grid.getByRole("row").count();
  assert.ok(drawn < 80, `${drawn} of 150 rows are drawn`);

  // Ten rows down: a new job above moves nothing that is visible.
  await grid.evaluate((g) => { g.scrollTop = 320; });
  const row = grid.getByRole("row", { name: /crowd-135/ });
  await row.waitFor();
  const before = await row.boundingBox();
  submitAll(['name: crowd-new\nrun: "true"\nresources: {gpus: 4}\n']);
  await page.getByRole("heading", { level: 1, name: /^151 jobs/ }).waitFor();
  await page.waitForFunction(() => document.querySelector("[role=grid]").scrollTop === 352);
  assert.equal((await row.boundingBox()).y, before.y, "the row has moved");
  await grid.evaluate((g) => { g.scrollTop = 0; });
  await grid.getByRole("row", { name: /crowd-new/ }).waitFor();

  let asked = 0;
  page.on("request", (r) => { if (r.url().includes("/api/v1/jobs")) asked++; });
  trainyard("cancel", "--name", "crowd", "--yes");
  await page.getByRole("heading", { level: 1, name: /^151 jobs: 151 cancelled/ }).waitFor();
  assert.ok(asked < 100, `${asked} questions for the end of 151 jobs`);

  trainyard("kill", holder);
  await page.context().close();
});

test("several jobs are changed at once", async () => {
  const ids = ["bulk-a", "bulk-b"].map((name) => submit(name, "sleep 600"));
  const page = await open(browser, state);
  page.on("dialog", (d) => void d.accept());
  await page.goto(address + "jobs?name=bulk");
  await page.getByLabel(`Select ${ids[0]}`).check();
  await page.getByRole("row", { name: /bulk-b/ }).focus();
  await page.keyboard.press("Space");
  await page.getByText("2 jobs selected").waitFor();
  await inspect(page, "jobs-selected");
  await page.getByRole("button", { name: "Cancel jobs" }).click();
  await page.getByText("2 jobs cancelled").waitFor();
  await page.getByRole("heading", { level: 1, name: /^2 jobs: 2 cancelled/ }).waitFor();

  await page.getByLabel("Select all that are loaded").check();
  await page.getByText("2 jobs selected").waitFor();
  await page.getByLabel("Select all that are loaded").uncheck();
  await page.getByLabel(`Select ${ids[0]}`).check();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText(/1 not: job j\d+ has already/).waitFor();
  await page.context().close();
});

test("who may only look can select and change nothing", async () => {
  const page = await open(browser);
  await page.goto(address + "jobs?name=sweep-1");
  await signIn(page, "read");
  await page.getByRole("row", { name: /sweep-1/ }).waitFor();
  assert.equal(await page.getByRole("checkbox", { name: /^Select/ }).count(), 0);
  await page.context().close();
});
