import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { address, eventually, inspect, launch, looks, open, signedIn, submitAll, trainyard } from "./kit.mjs";

let browser;
let state;
let holder; // of all GPUs

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => { await browser.close(); });

const waiting = (name, more = "") => `name: ${name}\nrun: "true"\nexpect: 2h\nresources: {gpus: 4}\n${more}`;
const row = (page, index) => page.locator(`[aria-rowindex='${index + 1}']`);

test("an empty queue says so, and jobs appear in their order", async () => {
  const page = await open(browser, state);
  await page.goto(address + "nodes");
  await page.getByRole("heading", { level: 1 }).first().waitFor();

  // A machine without a network has no less of its own yard.
  await page.evaluate(() => { window.dispatchEvent(new Event("offline")); });
  await page.getByRole("link", { name: "Queue" }).first().click();
  await page.getByText("Nothing is queued").waitFor();
  await inspect(page, "queue-empty");

  submitAll(['name: holder\nrun: sleep 900\nexpect: 3h\nresources: {gpus: 4}\n']);
  holder = trainyard("jobs", "-q", "--name", "holder").trim();
  submitAll([waiting("alpha"), waiting("beta"), waiting("gamma")]);
  await page.getByRole("heading", { level: 1, name: /^3 jobs queued/ }).waitFor();
  await row(page, 1).getByText("alpha").waitFor();
  await row(page, 3).getByText("gamma").waitFor();
  await row(page, 3).getByRole("img", { name: /expected to start about/ }).waitFor();

  // Another priority moves a job without a reload, and one that leaves is gone.
  submitAll([waiting("urgent", "priority: 70\n")]);
  await row(page, 1).getByText("urgent").waitFor();
  trainyard("cancel", "urgent");
  await row(page, 1).getByText("alpha").waitFor();
  await page.context().close();
});

test("who holds what is shown for the row that is pointed at", async () => {
  const page = await open(browser, state);
  await page.goto(address + "queue");
  await row(page, 2).getByText("beta").waitFor();
  await row(page, 2).hover();
  const note = page.getByRole("tooltip");
  await note.getByText(new RegExp(`${holder} of .* holds 4 GPUs on here`)).waitFor();

  await page.mouse.move(0, 0);
  await note.waitFor({ state: "detached" });
  await row(page, 1).focus();
  await page.keyboard.press("ArrowDown");
  await note.waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL(/job=j\d+/);
  await page.getByRole("heading", { level: 2, name: /beta/ }).waitFor();
  await page.getByText("Who holds what").waitFor();
  await page.getByRole("link", { name: holder }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("heading", { level: 2, name: /beta/ }).waitFor({ state: "detached" });
  await page.context().close();
});

test("the effect of a priority is shown before it is applied", async () => {
  const page = await open(browser, state);
  await page.goto(address + "queue");
  await row(page, 3).getByText("gamma").waitFor();
  await row(page, 3).click();
  const priority = page.getByLabel("Priority");
  const apply = page.getByRole("button", { name: "Apply" });
  await priority.waitFor();
  await eventually(async () => assert.ok(await apply.isDisabled(), "there is nothing to apply"));

  await priority.fill("101");
  await page.getByText("A whole number from 0 to 100").waitFor();
  await priority.fill("80");
  await page.getByText("From position 3 to position 1").waitFor();
  await page.getByText(/2 jobs would come after it: j\d+ \(.*\), j\d+ \(.*\)/).waitFor();
  await page.getByText(/Still waits: .*here/).waitFor();

  // The simulator says who ends when: gamma goes before alpha and beta, which end later.
  const simulated = page.getByRole("list", { name: "Simulated effect" });
  await simulated.getByText(/It would start .* instead of .* and end \d+h\w* sooner, /).waitFor();
  await simulated.getByText(/2 other jobs would end later: j\d+ \(.*\) by \d+h\w*, j\d+ \(.*\) by \d+h/).waitFor();
  await row(page, 1).getByText("alpha").waitFor(); // nothing has changed yet
  await inspect(page, "queue-effect");

  await apply.click();
  await row(page, 1).getByText("gamma").waitFor();
  await page.getByText("Another value shows its effect").waitFor();
  await page.context().close();
});

test("the queue looks right everywhere", async () => {
  submitAll([waiting("a-name" + "-that-is-long".repeat(4)), waiting("small", "priority: 1\n")]);

  for (const look of looks) {
    const page = await open(browser, state, look);
    await page.goto(address + "queue");
    await row(page, 1).getByText("gamma").waitFor();
    await inspect(page, `queue-${look.name}`);

    for (const span of ["3", "48", "168", ""]) {
      await page.getByLabel("Look ahead").selectOption(span);
      await page.waitForURL((u) => (u.searchParams.get("span") ?? "") === span);
      const places = await page.locator("[role=columnheader] [aria-hidden] span").evaluateAll((words) =>
        words.map((w) => w.getBoundingClientRect()).map((r) => [r.left, r.right]).sort((a, b) => a[0] - b[0]));
      places.forEach(([left], i) => {
        assert.ok(i === 0 || left >= places[i - 1][1], `times at the axis overlap at ${span} hours on ${look.name}`);
      });
    }

    await row(page, 1).click();
    await page.getByRole("heading", { level: 2, name: /gamma/ }).waitFor();
    await page.getByText("Who holds what").waitFor();
    await inspect(page, `queue-open-${look.name}`);
    await page.context().close();
  }
});

test("of a long queue only what is visible is loaded and drawn", async () => {
  for (const part of ["a", "b"]) submitAll(Array.from({ length: 150 }, (_, i) => waiting(`crowd-${part}${i}`)));

  const page = await open(browser, state);
  const asked = new Set();
  page.on("request", (r) => {
    const url = new URL(r.url());
    if (url.pathname.endsWith("/api/v1/queue")) asked.add(url.searchParams.get("cursor") ?? "0");
  });
  await page.goto(address + "queue?span=24");
  await page.getByRole("heading", { level: 1, name: /^305 jobs queued/ }).waitFor();
  const grid = page.getByRole("grid", { name: "Queue" });
  await row(page, 1).getByText("gamma").waitFor();
  await grid.evaluate((g) => { g.scrollTop = g.scrollHeight; });
  await grid.getByText("crowd-b149").waitFor();

  const drawn = await grid.getByRole("row").count();
  assert.ok(drawn < 60, `${drawn} of 305 rows are drawn`);
  assert.ok(!asked.has("100"), "a part was loaded that was never visible");

  trainyard("kill", holder);
  await page.context().close();
});
