// up: --mix-users yes --data-roots /usr/share
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { address, eventually, inspect, launch, looks, open, signedIn, submitAll, trainyard } from "./kit.mjs";

let browser;
let state;

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => { await browser.close(); });

test("a yard without datasets says how to register one", async () => {
  const page = await open(browser, state);
  await page.goto(address + "data");
  await page.getByRole("heading", { level: 1, name: "No dataset is registered" }).waitFor();
  await page.getByText("trainyard data add").waitFor();
  await inspect(page, "data-empty");

  trainyard("data", "add", "scans", "--place", "local", "--size", "40GB", "--source", "/usr/share", "--copy", "node=here:/usr/share");
  await page.getByRole("heading", { level: 1, name: /^1 dataset, 40 GB; 1 may be used on premises only/ }).waitFor();
  await page.context().close();
});

test("datasets have their rule, readers, copies and uses", async () => {
  const long = `imagenet-${"x".repeat(50)}`;
  trainyard("data", "add", long, "--place", "any", "--size", "2TB", "--source", "/usr/lib");
  submitAll(['name: reader\nrun: "true"\ndata: [scans]\n']);
  trainyard("wait", "reader");

  const page = await open(browser, state);
  await page.goto(address + "data");
  await page.getByRole("button", { name: "Size" }).click();
  await page.waitForURL(/sort=size/);
  const names = page.getByRole("table", { name: "Datasets" }).getByRole("link");
  await eventually(async () => assert.deepEqual(await names.allTextContents(), ["scans", long]));
  await page.getByRole("button", { name: "Size" }).click();
  await page.waitForURL(/sort=-size/);
  await eventually(async () => assert.deepEqual(await names.allTextContents(), [long, "scans"]));

  await page.getByRole("link", { name: "scans" }).click();
  await page.getByRole("heading", { level: 1, name: /scans: 40 GB, may be used on premises only; 1 copy/ }).waitFor();
  await page.getByRole("table", { name: "Uses of scans" }).getByRole("link", { name: /^j\d+$/ }).waitFor();
  await page.getByRole("table", { name: "Copies" }).getByRole("link", { name: "here" }).waitFor();

  for (const look of looks) {
    const other = await open(browser, state, look);
    await other.goto(address + "data");
    await other.getByRole("link", { name: long }).waitFor();
    await inspect(other, `data-${look.name}`);
    await other.getByRole("link", { name: "scans" }).click();
    await other.getByRole("table", { name: "Uses of scans" }).waitFor();
    await inspect(other, `dataset-${look.name}`);
    await other.context().close();
  }

  await page.goto(address + "data/missing");
  await page.getByRole("heading", { name: /Dataset missing not found/ }).waitFor();
  await page.context().close();
});

test("who may not see the uses is told who may", async () => {
  trainyard("users", "add", "ada");
  const token = trainyard("tokens", "create", "--owner", "ada", "--scope", "read", "-q").trim();
  const page = await open(browser);
  await page.goto(address + "data/scans");
  await page.getByLabel("Access token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Who used it where is shown to its owner").waitFor();
  await page.context().close();
});
