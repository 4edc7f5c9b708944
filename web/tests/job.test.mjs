// up: --tariff TESTS/prices.yaml
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { address, eventually, inspect, launch, looks, open, signedIn, signIn, submit, trainyard } from "./kit.mjs";

let browser;
let state; // of a browser that is signed in
let training; // a job that reports metrics and saves checkpoints, until it is stopped

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => { await browser.close(); });

const program = `
import json
import time

import trainyard

step = 0
latest = trainyard.latest_checkpoint()
if latest:
    step = json.loads((latest.path / "state.json").read_text())["step"]

def save():
    with trainyard.saving(step) as folder:
        (folder / "state.json").write_text(json.dumps({"step": step}))

while not trainyard.stopping():
    time.sleep(0.02 if step < 150 else 0.2)
    step += 1
    trainyard.log(step, {"loss": 2 / step**0.5, "lr": 0.1 if step <= 60 else 0.01, "val/accuracy": 1 - 1 / step**0.5})
    if trainyard.should_save(step, every=50):
        save()

save()
`;

/** Submits a job file with a working directory. */
function submitFile(name, text, files = {}) {
  const folder = join(process.env.HOME, name);
  mkdirSync(folder, { recursive: true });
  for (const [file, content] of Object.entries(files)) writeFileSync(join(folder, file), content);
  writeFileSync(join(folder, "job.yaml"), text);

  return trainyard("submit", "-q", "--yes", join(folder, "job.yaml")).trim();
}

test("a job is shown with its curve, its forecast and its lanes", async () => {
  training = submitFile("train", `
name: train
workdir: .
run: python3 train.py
resources: {gpus: 1}
checkpoint: {dir: checkpoints}
target: {metric: loss, at_most: 0.02}
outputs: ["*.py"]
`, { "train.py": program });

  const page = await open(browser, state);
  await page.goto(`${address}job/${training}`);
  await page.getByRole("heading", { level: 1, name: /train: running/ }).waitFor();
  await page.getByRole("img", { name: /Curve of j\d+; loss from 2 to .* target 0.02; lr 0.01 at/ }).waitFor();
  await page.locator(".u-legend").getByText("fit", { exact: true }).waitFor();
  await page.getByRole("heading", { level: 1, name: /done about .* so far/ }).waitFor();
  await page.getByText(/intervals of past jobs|No finished job yet/).waitFor();

  await page.getByRole("checkbox", { name: /^lr/ }).check();
  await page.waitForURL(/metric=loss&metric=lr/);
  await page.locator(".u-legend").getByText("lr", { exact: true }).waitFor();
  await page.getByRole("checkbox", { name: "Log scale" }).check();
  await page.waitForURL(/log=1/);
  await page.reload();
  await page.locator(".u-legend").getByText("lr", { exact: true }).waitFor();
  await eventually(async () => {
    assert.ok(await page.getByRole("checkbox", { name: "Log scale" }).isChecked(), "the scale is not in the address");
  });

  // One cursor goes through the curve and all lanes.
  await page.getByRole("img", { name: /^State of .*running from/ }).waitFor();
  await page.getByRole("img", { name: /^Memory, newest/ }).waitFor();
  await page.getByRole("img", { name: /^Cost so far \$/ }).waitFor();
  const over = page.getByRole("img", { name: /^Curve of/ }).locator(".u-over");
  const box = await over.boundingBox();
  await page.getByLabel("Shown").selectOption("run");
  await page.waitForURL(/range=run/);
  await page.mouse.move(box.x + 40, box.y + 60);
  await page.getByText(new RegExp(`running \\(run ${training}\\.1\\)`)).waitFor();

  await inspect(page, "job-page-cursor");

  // What is dragged over is shown, and can be sent.
  await page.mouse.down();
  await page.mouse.move(box.x + 160, box.y + 60, { steps: 4 });
  await page.mouse.up();
  await page.waitForURL(/from=[\d.]+&to=[\d.]+/);
  await page.getByLabel("Shown").selectOption("life");
  await page.waitForURL((url) => !url.searchParams.has("from"));
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("it is paused, edited and resumed; restart, checkpoints and cost are in its time line", async () => {
  const page = await open(browser, state);
  await page.goto(`${address}job/${training}`);
  await page.getByText("they can be changed while it is queued or paused").waitFor();
  await page.getByRole("button", { name: "Save now" }).click();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("heading", { level: 1, name: /train: paused/ }).waitFor();

  await page.getByLabel("Priority", { exact: true }).fill("70");
  await page.getByRole("combobox", { name: "Objective" }).selectOption("time");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByRole("cell", { name: /edited by .*priority/ }).waitFor();

  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("heading", { level: 1, name: /train: running/ }).waitFor();
  await page.getByText(/Priority 70, objective time/).waitFor();
  await page.getByRole("img", { name: /^Curve of .*restart at/ }).waitFor();
  await page.getByRole("img", { name: /^State of .*paused from .*running from/ }).waitFor();

  await page.getByRole("cell", { name: /^paused by/ }).first().waitFor();
  await page.getByRole("cell", { name: /^checkpoint stored|^checkpoint saved/ }).first().waitFor();
  await page.getByRole("columnheader", { name: "Cost by then" }).waitFor();

  await page.getByRole("link", { name: "Runs · 2" }).click();
  await page.getByRole("row", { name: new RegExp(`${training}\\.1 .*\\$\\d`) }).waitFor();
  await page.getByRole("link", { name: "Use", exact: true }).click();
  await page.getByRole("row", { name: /^Memory/ }).waitFor();

  await page.getByRole("link", { name: /^Checkpoints · [1-9]/ }).click();
  await page.getByRole("button", { name: /^Keep/ }).first().click();
  await page.getByRole("button", { name: /^Unpin/ }).waitFor();
  const archive = await page.getByRole("link", { name: "Download" }).first().getAttribute("href");
  assert.equal((await page.context().request.get(archive)).status(), 200, archive);

  await page.getByRole("link", { name: "Job file" }).click();
  await page.getByLabel("Job file").filter({ hasText: "objective: time" }).waitFor();
  await page.getByRole("link", { name: "Files" }).click();
  await page.getByText(/1 file, /).click();
  const file = await page.getByRole("link", { name: "train.py" }).getAttribute("href");
  const content = await page.context().request.get(file);
  assert.equal(await content.text(), program);
  assert.match(content.headers()["content-disposition"], /^attachment/, "it would be shown as a page of the portal");

  await eventually(async () => {
    assert.match(await page.getByRole("link", { name: "Clone" }).getAttribute("href"), new RegExp(`submit\\?from=${training}$`));
  });
  await page.getByRole("link", { name: "Output", exact: true }).click();
  await eventually(async () => {
    assert.match(await page.getByRole("link", { name: "Full screen" }).getAttribute("href"), new RegExp(`logs/${training}`));
  });
  assert.deepEqual(page.errors, []);
  await page.context().close();

  for (const look of looks) {
    const other = await open(browser, state, look);
    await other.goto(`${address}job/${training}?metric=loss&metric=lr`);
    await other.getByRole("img", { name: /^Curve of .*restart at/ }).waitFor();
    await other.getByRole("cell", { name: /paused by/ }).first().waitFor();
    await inspect(other, `job-page-${look.name}`);
    await other.context().close();
  }
});

test("a job that waits says why, and what would let it start is one click", async () => {
  const name = "waits-" + "and-waits-".repeat(5) + "x";
  const waiting = submit(name, "sleep 600", "--gpus", "4");
  const page = await open(browser, state);
  page.on("dialog", (d) => void d.accept());
  await page.goto(address);
  await page.getByRole("search").getByRole("searchbox").fill(waiting);
  await page.keyboard.press("Enter");
  await page.waitForURL(new RegExp(`job/${waiting}$`));
  await page.getByRole("heading", { level: 1, name: /: queued/ }).waitFor();
  await page.getByText("It has reported no metrics yet").waitFor();
  await page.getByText(new RegExp(`${training} \\(\\w+\\) holds 1 GPU on`)).waitFor();
  await inspect(page, "job-page-waits");

  await page.setViewportSize(looks.at(-1).viewport);
  await inspect(page, "job-page-waits-375");
  await page.getByRole("button", { name: "Set gpus: 3" }).click(); // the fourth is held
  await page.getByRole("heading", { level: 1, name: /: running/ }).waitFor();

  const second = submit("second", "sleep 600", "--gpus", "1");
  await page.goto(`${address}job/${second}`);
  await page.getByRole("button", { name: `Pause ${training}` }).click();
  await page.getByRole("heading", { level: 1, name: /second: running/ }).waitFor();
  trainyard("kill", second);

  await page.goto(`${address}job/${waiting}`);
  await page.getByRole("button", { name: "Cancel job" }).click();
  await page.getByRole("heading", { level: 1, name: /: cancelled after/ }).waitFor();
  await page.getByRole("button", { name: "Cancel job" }).waitFor({ state: "detached" });
  await page.context().close();
});

test("a question about a job is answered beside its curve", async () => {
  const poor = submitFile("poor", "name: poor\nrun: sleep 600\nresources: {gpus: 1}\nbudget: $0.05\n");
  const page = await open(browser, state);
  await page.goto(`${address}job/${poor}`);
  await page.getByRole("button", { name: "Dismiss" }).waitFor();
  await inspect(page, "job-page-question");
  await page.getByRole("button", { name: /^let it spend \$0.05 more/ }).click();
  await page.getByRole("link", { name: "Runs · 2" }).waitFor(); // until that is spent, too
  trainyard("kill", poor);
  await page.context().close();
});

test("what is not there, or not allowed, is said", async () => {
  const page = await open(browser);
  await page.goto(`${address}job/j999`);
  await signIn(page, "read");
  await page.getByText(/j999/).first().waitFor();
  await page.getByRole("link", { name: "Go to Jobs" }).click();
  await page.getByRole("row", { name: /train/ }).first().click();
  await page.getByRole("link", { name: /Curve, time line/ }).click();
  await page.waitForURL(/job\/j\d+$/);
  await page.goto(`${address}job/${training}`);
  await page.getByText("This session can only read").waitFor();
  assert.equal(await page.getByRole("button", { name: "Cancel job" }).count(), 0);
  await page.context().close();
});
