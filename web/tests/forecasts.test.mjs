import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { address, eventually, inspect, launch, looks, open, signedIn, submit, trainyard } from "./kit.mjs";

let browser;
let state;

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => { await browser.close(); });

const record = () => JSON.parse(trainyard("forecast", "-o", "json"));

/** Waits until the record is as it should be. */
function until(what, good) {
  return eventually(() => {
    const r = record();
    assert.ok(good(r), `${what}: ${JSON.stringify(r)}`);

    return r;
  });
}

test("without history the page says what to do, and without a tariff costs are unknown", async () => {
  const page = await open(browser, state);
  await page.goto(address + "forecasts");
  await page.getByRole("heading", { level: 1, name: "No forecast has been checked yet." }).waitFor();
  await page.getByText("No job has succeeded yet").waitFor();
  await page.getByText("trainyard forecast import").waitFor();
  await inspect(page, "forecasts-empty");

  await page.goto(address + "cost");
  await page.getByRole("heading", { level: 1, name: /what they cost is not known/ }).waitFor();
  await page.getByText("The server has no tariff").waitFor();
  await inspect(page, "cost-no-tariff");
  await page.context().close();
});

test("how good forecasts have been, and which were worst", async () => {
  // Jobs of another system over a month, whose durations can be told from their names, but not exactly. Those that come
  // later are compared with those that came before.
  const head = "job,seconds,finished,name,task,model,batch,gpus,owner";
  const lines = Array.from({ length: 90 }, (_, i) => {
    const size = 1 + (i % 5);
    const day = String(1 + Math.floor(i / 3)).padStart(2, "0");
    const seconds = Math.round(600 * size * (1 + 0.3 * Math.sin(i)));

    return `old-${i},${seconds},2026-10-${day}T12:00:00Z,resnet-${size},vision,cnn,${32 * size},${size},grace`;
  });
  for (const part of [lines.slice(0, 30), lines.slice(30)]) {
    const file = join(process.env.HOME, "old.csv");
    writeFileSync(file, [head, ...part, ""].join("\n"));
    trainyard("forecast", "import", file);
  }

  const job = submit("resnet-1", "sleep 1");
  trainyard("wait", job);
  const r = await until("the job becomes history", (x) => x.scored >= x.wanted && (x.worst ?? []).some((w) => w.job === job));

  const page = await open(browser, state);
  await page.goto(address + "forecasts");
  await page.getByRole("heading", { level: 1, name: /The median error of the remaining time is .* on \d+ jobs/ }).waitFor();
  await page.getByRole("img", { name: /^Median error and coverage/ }).waitFor();
  await page.getByRole("img", { name: /^Calibration: / }).waitFor();
  assert.equal(r.reliability.length, 9);

  const methods = page.getByRole("table", { name: "Median error by progress" }).getByRole("row");
  await methods.nth(1).getByText("all together").waitFor();
  await page.getByRole("table", { name: "Accuracy by basis" }).getByRole("row").nth(1).waitFor();

  const worst = page.getByRole("table", { name: "Largest errors" });
  const link = worst.getByRole("link", { name: `${job} resnet-1` });
  await eventually(async () => assert.match(await link.getAttribute("href"), new RegExp(`/job/${job}$`)));
  await eventually(async () => {
    assert.match(await worst.getByRole("row", { name: new RegExp(job) }).textContent(), /× the estimate/);
  });
  await page.context().close();

  for (const look of looks) {
    const other = await open(browser, state, look);
    await other.goto(address + "forecasts");
    await other.getByRole("img", { name: /^Calibration: / }).waitFor();
    await inspect(other, `forecasts-${look.name}`);
    await other.context().close();
  }
});
