// up: --mix-users yes
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { address, eventually, inspect, launch, looks, open, signedIn, submit, submitAll, trainyard } from "./kit.mjs";

let browser;
let state;

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => { await browser.close(); });

const rows = (page) => page.getByRole("list", { name: "Events" }).locator("summary");

test("events are live, filtered by the address, and unfold", async () => {
  const page = await open(browser, state);
  await page.goto(address + "events");
  await page.getByRole("heading", { level: 1, name: /event/ }).waitFor();
  const first = submit("one", "true");
  await rows(page).filter({ hasText: "job.submitted" }).filter({ hasText: first }).waitFor();

  await page.getByPlaceholder(/^Kind/).fill("node");
  await page.keyboard.press("Enter");
  await page.waitForURL(/kind=node/);
  await rows(page).filter({ hasText: "job.submitted" }).waitFor({ state: "detached" });
  await rows(page).filter({ hasText: "node." }).first().waitFor();

  await page.goto(address + `events?what=${first}&kind=job.submitted`);
  await rows(page).first().waitFor();
  await eventually(async () => assert.equal(await rows(page).count(), 1));
  await rows(page).first().click();
  await page.waitForURL(/open=\d+/);
  await page.getByText("From", { exact: true }).waitFor(); // the address of the caller

  const same = await open(browser, state);
  await same.goto(page.url());
  await same.getByText("From", { exact: true }).waitFor();
  await same.context().close();

  await page.goto(address + "events?who=nobody");
  await page.getByText("No event matches").waitFor();
  await page.goto(address + "events?audit=1&since=1h");
  await page.getByRole("heading", { level: 1, name: /audited event/ }).waitFor();
  await rows(page).filter({ hasText: "job.submitted" }).first().waitFor();
  assert.equal(await rows(page).filter({ hasText: "job.running" }).count(), 0);

  for (const look of looks) {
    const other = await open(browser, state, look);
    await other.goto(address + "events");
    await rows(other).filter({ hasText: "job.submitted" }).first().click();
    await other.getByText("Number", { exact: true }).waitFor();
    await inspect(other, `events-${look.name}`);
    await other.context().close();
  }

  await page.context().close();
});

test("what is new waits while one reads, and older events are loaded page by page", async () => {
  const holder = submit("holder", "sleep 600", "--gpus", "2");
  submitAll(Array.from({ length: 150 }, (_, i) => `name: crowd-${i}\nrun: "true"\nresources: {gpus: 4}\n`));

  const page = await open(browser, state);
  await page.goto(address + "events?kind=job.submitted");
  await page.getByRole("heading", { level: 1, name: /^The newest 100 events/ }).waitFor();
  await page.evaluate(() => { scrollTo(0, 600); });
  await page.waitForFunction(() => scrollY === 600);
  const tenth = rows(page).nth(25);
  const text = await tenth.textContent();
  const { y } = await tenth.boundingBox();

  submitAll(['name: late\nrun: "true"\nresources: {gpus: 4}\n']);
  const button = page.getByRole("button", { name: "1 new event: show" });
  await button.waitFor();
  assert.equal(await tenth.textContent(), text, "another row is at its place");
  assert.equal((await tenth.boundingBox()).y, y, "the row has moved");
  await button.click();
  await page.getByRole("heading", { level: 1, name: /^The newest 101 events/ }).waitFor();

  await page.getByRole("button", { name: "Show older events" }).click();
  await page.getByRole("heading", { level: 1, name: /^1\d\d events since/ }).waitFor();
  const numbers = await rows(page).allTextContents();
  assert.equal(new Set(numbers.map((t) => /j\d+/.exec(t)[0])).size, numbers.length, "an event is shown twice");

  trainyard("cancel", "--name", "crowd", "--yes");
  trainyard("kill", holder);
  await page.context().close();
});

test("a researcher sees what concerns them, without addresses of others", async () => {
  trainyard("users", "add", "ada");
  const token = trainyard("tokens", "create", "--owner", "ada", "--scope", "read", "-q").trim();
  const page = await open(browser);
  await page.goto(address + "events");
  await page.getByLabel("Access token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { level: 1, name: /of yours|No event/ }).waitFor();
  await page.getByText("Only what you did or tried").waitFor();
  assert.equal(await rows(page).filter({ hasText: "job.submitted" }).count(), 0);
  await page.context().close();
});
