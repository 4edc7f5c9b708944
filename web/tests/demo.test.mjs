// up: --demo
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { address, inspect, launch, looks, open, signedIn } from "./kit.mjs";

let browser;
let state;

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => { await browser.close(); });

test("every page says that the yard is a demo", async () => {
  for (const look of looks) {
    const page = await open(browser, state, look);

    for (const path of ["", "jobs"]) {
      await page.goto(address + path);
      await page.getByText("of this yard are simulated").waitFor();
    }

    await page.goto(address);
    await page.getByRole("heading", { name: /^Needs you · \d/ }).waitFor(); // the sentence above may say it too
    await inspect(page, `demo-${look.name}`);
    await page.context().close();
  }
});

test("what fills the screen leaves room for the note that it is a demo", async () => {
  const page = await open(browser, state);
  const { jobs } = await (await page.request.get(`${address}api/v1/jobs?state=running&limit=1`)).json();

  for (const [path, box] of [["jobs", page.getByRole("grid")], [`logs/${jobs[0].id}`, page.locator("[data-wrap]")]]) {
    await page.goto(address + path);
    await box.waitFor();
    const { y, height } = await box.boundingBox();
    assert.ok(y + height <= page.viewportSize().height, `${path} ends at ${y + height} px`);
  }

  await page.context().close();
});

test("the figures of the pages fit each other", async () => {
  const page = await open(browser, state);
  const ask = async (path) => (await page.request.get(`${address}api/v1/${path}`)).json();

  // The yard goes on while it is asked: jobs may start and end between two questions.
  for (;;) {
    const first = await ask("summary");
    const live = (await ask("jobs?state=running&state=starting&limit=500")).jobs;
    const second = await ask("summary");
    if (first.running !== second.running) continue;

    assert.equal(live.length, second.running, "the summary counts other jobs than the list has");
    break;
  }

  const from = new Date(Date.now() - 40 * 86_400_000).toISOString();
  const { total, rows } = await ask(`usage/report?by=researcher&by=project&from=${from}`);
  const sum = rows.reduce((all, row) => all + row.cost_usd, 0);
  const paid = total.cost_usd;
  assert.ok(paid > 1000 && Math.abs(sum - paid) < 0.01 * paid, `the rows come to ${sum}, the total is ${paid}`);
  assert.ok(new Set(rows.map((row) => row.keys[0])).size > 5, "few researchers have used anything");
  await page.context().close();
});
