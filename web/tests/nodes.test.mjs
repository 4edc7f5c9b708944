import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { address, eventually, inspect, launch, looks, open, signedIn, submit, trainyard } from "./kit.mjs";

let browser;
let state;
let agent; // of the node that joins
let training; // a job

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => {
  agent?.kill("SIGTERM");
  await browser.close();
});

const row = (page, name) => page.getByRole("table", { name: "Nodes" }).getByRole("row", { name });

test("GPUs change with the jobs on them", async () => {
  const page = await open(browser, state);
  await page.goto(address + "nodes");
  await page.getByRole("heading", { level: 1, name: "1 node: 0 of 4 GPUs busy, 4 idle" }).waitFor();
  await page.getByRole("img", { name: "4 GPUs: 4 idle" }).waitFor();

  training = submit("training", "sleep 900", "--gpus", "2");
  await page.getByRole("heading", { level: 1, name: "1 node: 2 of 4 GPUs busy, 2 idle" }).waitFor();
  await page.getByRole("img", { name: "4 GPUs: 2 running, 2 idle" }).waitFor();
  await row(page, /here/).getByRole("link", { name: training }).waitFor();
  await page.context().close();
});

test("a machine joins with the command of the page", async () => {
  const page = await open(browser, state);
  await page.goto(address + "nodes");
  await page.getByRole("button", { name: "Add a node" }).click();
  await page.waitForURL(/join/);
  const form = page.getByRole("region", { name: "Add a node" });
  await form.getByLabel("Class").selectOption("reserved");
  await inspect(page, "nodes-join");
  await page.getByRole("button", { name: "Make the command" }).click();
  const command = await page.getByLabel("Command").textContent();
  await page.getByText(/lets 1 machine join until/).waitFor();
  assert.match(command, /^echo \S+ \| trainyard agent join https:\/\/\S+ --token -$/);
  await inspect(page, "nodes-command");

  const data = join(process.env.HOME, "second");
  mkdirSync(data, { recursive: true });
  const more = `--name second --data ${data} --fake-gpus 40xA100:80GB --probe off`;
  const line = command.replace("| trainyard", `| exec "$PORTAL_BINARY"`) + " " + more;
  agent = spawn("sh", ["-c", line], { env: process.env, stdio: "ignore" });

  await row(page, /second/).waitFor();
  await row(page, /second/).getByRole("img", { name: "40 GPUs: 40 idle" }).waitFor();
  await page.getByRole("heading", { level: 1, name: /^2 nodes: 2 of 44 GPUs busy/ }).waitFor();
  await page.getByRole("button", { name: "Done" }).click();
  await page.getByLabel("Command").waitFor({ state: "detached" });
  await page.context().close();
});

test("nodes are filtered and sorted, and the address can be sent", async () => {
  const page = await open(browser, state);
  await page.goto(address + "nodes?class=reserved");
  await row(page, /second/).waitFor();
  await row(page, /here/).waitFor({ state: "detached" });
  await page.getByLabel("Class", { exact: true }).selectOption("");
  await page.getByLabel("State").selectOption("running");
  await page.waitForURL(/state=running/);
  await row(page, /second/).waitFor({ state: "detached" });
  await page.getByLabel("Name contains").fill("nothing");
  await page.getByText("No node matches").waitFor();
  await page.getByRole("button", { name: "Clear all filters" }).click();
  await row(page, /second/).waitFor();

  const names = () => page.getByRole("table", { name: "Nodes" }).getByRole("row").allTextContents();
  await eventually(async () => assert.match((await names())[1], /^here/, "local nodes come first"));
  await page.getByLabel("Order").selectOption("idle");
  await page.waitForURL(/sort=idle/);
  await eventually(async () => assert.match((await names())[1], /^second/, "idle nodes come first"));
  await page.context().close();
});

test("nodes look right everywhere", async () => {
  for (const look of looks) {
    const page = await open(browser, state, look);
    await page.goto(address + "nodes");
    await row(page, /second/).waitFor();
    await inspect(page, `nodes-${look.name}`);
    await page.getByRole("link", { name: "here", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: /here runs 1 job on 2 of 4 GPUs/ }).waitFor();
    await page.getByRole("table", { name: "Runs" }).getByRole("link", { name: training }).waitFor();
    await page.getByText("node.joined").waitFor();
    await inspect(page, `node-${look.name}`);
    await page.context().close();
  }
});

test("a node is cordoned, drained and used again, after the page has said what that does", async () => {
  const page = await open(browser, state);
  await page.goto(address + "node/second");
  await page.getByRole("heading", { level: 1, name: /second is idle/ }).waitFor();
  await page.getByText("Nothing ran here in the last day").waitFor();
  await inspect(page, "node-idle");
  await page.getByRole("button", { name: "Cordon" }).click();
  await page.getByRole("button", { name: "Resume scheduling" }).waitFor();

  await page.goto(address + "node/here");
  await page.getByRole("button", { name: "Drain" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(new RegExp(`${training} training of .*saves no checkpoints, its work is lost`)).waitFor();
  await inspect(page, "node-drain");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Cordon" }).waitFor();

  await page.getByRole("button", { name: "Drain" }).click();
  await dialog.getByRole("button", { name: "Drain" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("heading", { level: 1, name: /here is idle, cordoned/ }).waitFor();
  await page.getByRole("table", { name: "Runs" }).getByText("preempted").waitFor();
  await page.getByRole("button", { name: "Resume scheduling" }).click();
  await page.getByRole("heading", { level: 1, name: /here runs 1 job/ }).waitFor();
  trainyard("kill", training);
  await page.context().close();
});

test("an answer that was on its way when something changed is not the last one", async () => {
  const page = await open(browser, state);
  // The first answer that knows of the job is held back until the job has ended.
  await page.addInitScript(() => {
    const ask = window.fetch;
    window.fetch = async (...what) => {
      const answer = await ask(...what);
      const isFirst = window.letGo === undefined && String(what[0]).includes("/nodes/here/runs");

      if (isFirst && (await answer.clone().text()).includes('"short"')) {
        await new Promise((resolve) => { window.letGo = resolve; });
      }

      return answer;
    };
  });
  await page.goto(address + "node/here");
  await page.getByRole("heading", { level: 1, name: /here is idle/ }).waitFor();

  const short = submit("short", "sleep 900", "--gpus", "1");
  await page.waitForFunction(() => window.letGo !== undefined);
  await page.getByRole("heading", { level: 1, name: /here runs 1 job/ }).waitFor();
  trainyard("kill", short);
  await page.getByRole("heading", { level: 1, name: /here is idle/ }).waitFor();
  await page.evaluate(() => { window.letGo(); });
  await page.getByRole("table", { name: "Runs" }).getByRole("row", { name: /short.*cancelled/ }).waitFor();
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("a node is removed, and a node that is not there is said", async () => {
  const page = await open(browser, state);
  await page.goto(address + "node/second");
  await page.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByText("It leaves the yard for good").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.waitForURL(/\/nodes$/);
  await row(page, /here/).waitFor();
  await row(page, /second/).waitFor({ state: "detached" });

  await page.goto(address + "node/second");
  await page.getByText("Node second not found").waitFor();
  await inspect(page, "node-missing");
  assert.deepEqual(page.errors, []);
  await page.context().close();
});
