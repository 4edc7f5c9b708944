// up: --tariff TESTS/tariff.yaml --mix-users yes
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";

import { address, eventually, inspect, launch, looks, open, signedIn, submit, trainyard } from "./kit.mjs";

let browser;
let state;
let me;

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
  me = JSON.parse(trainyard("whoami", "-o", "json")).user;
});
after(async () => { await browser.close(); });

const usd = (amount) => amount.toLocaleString("en-US", { style: "currency", currency: "USD" });

/** What the command line reports of all time. */
const report = (by) => JSON.parse(trainyard("usage", "--by", by, "--last", "all", "-o", "json"));

/** Runs a job for a moment, so that it costs something. */
function spend(name, script, ...flags) {
  const id = submit(name, script, ...flags);
  try {
    trainyard("wait", id);
  } catch {
    // it failed, as some are meant to
  }

  return id;
}

test("a yard in which nothing has run says so", async () => {
  const page = await open(browser, state);
  await page.goto(address + "cost");
  await page.getByRole("heading", { level: 1, name: /^\$0\.00 so far in \w+ \d{4}/ }).waitFor();
  await page.getByRole("link", { name: "Quotas and budgets" }).click();
  await page.getByText("No quotas and no budgets").or(page.getByText("no quota", { exact: true }).first()).waitFor();
  await inspect(page, "cost-empty");
  await page.context().close();
});

test("what was used, by whom, on the page and as CSV", async () => {
  spend("train", "sleep 2", "--gpus", "2");
  for (let i = 0; i < 2; i++) spend("broken", "sleep 1; exit 3", "--gpus", "1", "--retry", "0");
  const { total, rows } = report("researcher");
  const mine = rows.find((r) => r.keys[0] === me);
  assert.ok(mine.cost_usd > 4, `2 seconds of 2 GPUs cost ${mine.cost_usd}`);

  const page = await open(browser, state);
  await page.goto(address + "cost");
  await page.getByRole("heading", { level: 1, name: `${usd(total.cost_usd)} so far in` }).waitFor();
  await page.getByRole("img", { name: /^Cost by day and researcher/ }).waitFor();
  const table = page.getByRole("table", { name: "Usage by researcher" });
  await table.getByRole("row", { name: new RegExp(`^${me} .*${usd(mine.cost_usd).replace("$", "\\$")}`) }).waitFor();

  const waiting = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download CSV" }).click();
  const download = await waiting;
  assert.match(download.suggestedFilename(), /^usage-\d{4}-\d\d-01-researcher\.csv$/);
  const lines = readFileSync(await download.path(), "utf8").trim().split("\n");
  assert.match(lines[0], /^researcher,node_seconds,gpu_seconds,/);
  assert.ok(lines.some((l) => l.startsWith(`${me},`)), lines.join("\n"));

  for (const look of looks) {
    const other = await open(browser, state, look);
    await other.goto(address + "cost");
    await other.getByRole("img", { name: /^Cost by day and researcher/ }).waitFor();
    await other.getByRole("table", { name: "Usage by researcher" }).waitFor();
    await inspect(other, `cost-${look.name}`);
    await other.context().close();
  }

  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("the address says the period, whose cost it is and how it is divided", async () => {
  const page = await open(browser, state);
  await page.goto(address + "cost?period=today");
  await page.getByRole("heading", { level: 1, name: /so far today/ }).waitFor();
  await page.getByRole("img", { name: /^Cost by hour and researcher/ }).waitFor();

  await page.getByLabel("Divided").selectOption("class");
  await page.waitForURL(/by=class/);
  await page.getByRole("table", { name: "Usage by class" }).getByRole("row", { name: /^local/ }).waitFor();
  await page.getByLabel("Show").selectOption("gpu");
  await page.getByRole("img", { name: /^GPU-hours by hour and class/ }).waitFor();

  await page.getByLabel("Divided").selectOption("researcher");
  await page.getByRole("table").getByRole("link", { name: me, exact: true }).click();
  await page.waitForURL(new RegExp(`researcher=${me}`));
  await page.getByRole("table", { name: "Usage by project" }).waitFor();
  await page.getByRole("button", { name: `Remove the filter researcher ${me}` }).click();
  await page.waitForURL((url) => !url.searchParams.has("researcher"));

  await page.getByLabel("From").fill("2020-01-01");
  await page.getByLabel("to", { exact: true }).fill("2020-01-31");
  await page.getByRole("heading", { level: 1, name: /from 1 Jan 2020 to 31 Jan 2020/ }).waitFor();
  await page.getByText("Nothing was used from 1 Jan 2020").waitFor();
  await page.getByLabel("to", { exact: true }).fill("2019-01-31");
  await page.getByText("This is not a period").waitFor();
  await page.getByRole("link", { name: "This month" }).click();
  await page.getByRole("heading", { level: 1, name: /so far in/ }).waitFor();
  await page.context().close();
});

test("budgets say where they will end, and are live", async () => {
  trainyard("quota", "set", `user/${me}`, "--budget", "500", "--gpus", "3");
  const page = await open(browser, state);
  await page.goto(address + "cost?part=limits");
  const row = page.getByRole("table", { name: "Quotas and budgets" }).getByRole("row", { name: new RegExp(`user/${me}`) });
  await row.getByText("of $500.00").waitFor();
  await row.getByText("0 of 3").waitFor();
  await row.getByRole("img", { name: /spent and .* expected of \$500\.00/ }).waitFor();

  const id = submit("long", "sleep 600", "--gpus", "1");
  await row.getByText("1 of 3").waitFor();
  await row.getByText(/jobs that run use it up|budget used up/).waitFor(); // an hour costs $3,600
  for (const look of looks) {
    const other = await open(browser, state, look);
    await other.goto(address + "cost?part=limits");
    await other.getByText("1 of 3").waitFor();
    await inspect(other, `cost-limits-${look.name}`);
    await other.context().close();
  }

  trainyard("kill", id);
  trainyard("quota", "remove", `user/${me}`);
  await page.context().close();
});

test("utilization, savings and waste have their figures", async () => {
  const page = await open(browser, state);
  await page.goto(address + "cost?part=groups");
  await page.getByRole("table", { name: "Use by class and node" }).getByRole("link", { name: "here" }).waitFor();
  await page.getByRole("table", { name: "Own nodes by researcher" }).getByRole("row", { name: new RegExp(me) }).waitFor();
  await page.getByText("None were provisioned").first().waitFor();
  await inspect(page, "cost-groups");

  await page.getByRole("link", { name: "Savings" }).click();
  await page.getByText("No decision was settled").or(page.getByRole("table", { name: "Decisions" })).waitFor();
  await inspect(page, "cost-savings");

  await page.getByRole("link", { name: "Waste" }).click();
  const found = page.getByRole("table", { name: "Waste" }).getByRole("row", { name: /Fails again and again broken/ });
  await found.getByText("2 of 2 jobs failed").waitFor();
  const link = found.getByRole("link", { name: /^j\d+$/ }).first();
  await eventually(async () => assert.match(await link.getAttribute("href"), /\/job\/j\d+$/));
  await inspect(page, "cost-waste");
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("a researcher sees their own usage", async () => {
  trainyard("users", "add", "ada", "--role", "researcher");
  const token = trainyard("tokens", "create", "--owner", "ada", "--scope", "read", "-q").trim();
  const page = await open(browser, undefined, looks.at(-1));
  await page.goto(address + "cost");
  await page.getByLabel("Access token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Your own usage").waitFor();
  await page.getByRole("heading", { level: 1, name: /^\$0\.00 so far in/ }).waitFor();
  await page.getByText("Nothing was used so far in").waitFor();
  assert.equal(await page.getByText(me, { exact: true }).count(), 0, "another's name is shown");

  await page.goto(address + `cost?researcher=${me}`);
  await page.getByText(`permission denied: ada cannot read usage and costs of ${me}`).first().waitFor();
  await inspect(page, "cost-denied");
  await page.context().close();
});
