import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";

import { address, eventually, inspect, launch, looks, open, signedIn, signIn, trainyard } from "./kit.mjs";

let browser;
let state;

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => { await browser.close(); });

/** The page, with its text and its form. */
async function begin(path = "submit", look = looks[0]) {
  const page = await open(browser, state, look);
  await page.goto(address + path);
  await page.getByRole("button", { name: /^Submit (job|\d+ jobs)$/ }).waitFor();
  const text = page.getByLabel("Job file in YAML");

  return { page, text, form: page.getByRole("form", { name: "Job" }) };
}

/** Submits what is written and returns the id of the first job. */
async function submitted(page) {
  await page.getByRole("button", { name: /^Submit (job|\d+ jobs)$/ }).click();
  await page.waitForURL(/\/job\/j\d+$/);

  return /j\d+$/.exec(page.url())[0];
}

/** Waits until the server has accepted what is written now. */
const valid = (page) => page.getByText("The file is valid", { exact: true }).waitFor();

const detail = (id) => JSON.parse(trainyard("job", id, "-o", "json"));

/** Drops a file or folder of this machine onto the page, as a person would. */
async function drop(page, path) {
  const session = await page.context().newCDPSession(page);
  const data = { items: [], files: [path], dragOperationsMask: 1 };
  const send = (type) => session.send("Input.dispatchDragEvent", { type, x: 400, y: 400, data });
  await send("dragEnter");
  await send("dragOver");
  await page.locator("[data-dropping=true]").waitFor(); // it listens
  await send("drop");
}

/** Writes files below a new folder; those with #! can be run. */
function folderOf(files) {
  const folder = join(mkdtempSync(join(tmpdir(), "submit-")), "code");
  for (const [name, content] of Object.entries(files)) {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content);
    chmodSync(path, content.startsWith("#!") ? 0o755 : 0o644);
  }

  return folder;
}

test("form and text change each other, and what one did not touch stays as it was written", async () => {
  const { page, text, form } = await begin();
  await page.getByRole("heading", { level: 1, name: "Submit a job" }).waitFor();

  await form.getByLabel("Command").fill("echo hello");
  await form.getByLabel("GPUs", { exact: true }).fill("1");
  await eventually(async () => assert.equal(await text.inputValue(), "run: echo hello\nresources:\n  gpus: 1\n"));

  const written = [
    "# of the paper", "name: first    # a name", "", "# the command", "run: python3 train.py --lr 0.1", "",
    "resources:", "  # as many as are free", "  gpus: 1..4   # at most one node", "  cpus: 2", "params: {lr: 0.1}", "",
  ].join("\n");
  await text.fill(written);
  await eventually(async () => {
    assert.equal(await form.getByLabel("Command").inputValue(), "python3 train.py --lr 0.1");
  });
  await eventually(async () => assert.equal(await form.getByLabel("GPUs", { exact: true }).inputValue(), "1..4"));
  await form.getByText("Only in the text: params").waitFor();

  await form.getByLabel("GPUs", { exact: true }).fill("2");
  await eventually(async () => assert.equal(await text.inputValue(), written.replace("1..4", "2")));
  await form.getByLabel("GPU models").fill("A100:80GB, H100");
  await form.getByLabel("Command").fill("cd src\npython3 train.py");
  await form.getByLabel("CPUs").fill("");
  const changed = written.replace("1..4", "2").replace("python3 train.py --lr 0.1", "|\n  cd src\n  python3 train.py")
    .replace("  cpus: 2\n", "  gpu: [A100:80GB, H100]\n");
  await eventually(async () => assert.equal(await text.inputValue(), changed));

  await text.fill("run: [a\nname: x");
  await page.getByText("The form is back when the text can be read").waitFor();
  await text.fill("run: 'true'\n---\nname: second\nrun: 'false'");
  await page.getByLabel("Job of the file").selectOption({ label: "2 of 2: second" });
  await form.getByLabel("Priority").fill("7");
  await eventually(async () => {
    assert.equal(await text.inputValue(), "run: 'true'\n---\nname: second\nrun: 'false'\npriority: 7\n");
  });

  await page.reload();
  await eventually(async () => assert.match(await text.inputValue(), /priority: 7/, "a reload has lost the draft"));
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("the server's messages are at their line and field as one types, and few questions are asked", async () => {
  const { page, text, form } = await begin();
  let asked = 0;
  let underWay = 0;
  let most = 0;
  const isCheck = (r) => r.method() === "POST" && r.url().endsWith("/api/v1/jobs");
  page.on("request", (r) => { if (isCheck(r)) most = Math.max(most, ++underWay, ++asked && underWay); });
  page.on("requestfinished", (r) => { if (isCheck(r)) underWay--; });
  page.on("requestfailed", (r) => { if (isCheck(r)) underWay--; });

  await text.pressSequentially("run: python3 train.py\nresources:\n  gpus: many\nprioritty: 3\n", { delay: 5 });
  await page.getByRole("heading", { level: 1, name: "2 mistakes in the job file" }).waitFor();
  assert.ok(asked < 20 && most === 1, `${asked} questions for 60 keys, ${most} at the same time`);

  await page.getByRole("button", { name: "line 4" }).waitFor();
  await form.getByText(/got "many"/).waitFor();
  await eventually(async () => assert.ok(await page.getByRole("button", { name: "Submit job" }).isDisabled()));
  await page.getByRole("button", { name: "line 3" }).click();
  await eventually(async () => {
    assert.equal(await text.evaluate((t) => t.value.slice(t.selectionStart)), "many\nprioritty: 3\n");
  });
  await inspect(page, "submit-mistakes");

  await form.getByLabel("GPUs", { exact: true }).fill("1");
  await text.fill((await text.inputValue()).replace("prioritty", "priority"));
  await valid(page);
  await page.getByRole("table", { name: /Options of/ }).getByText("here").first().waitFor();
  await page.getByRole("heading", { level: 1, name: /would start now on/ }).waitFor();

  await form.getByLabel("Expected to take").fill("2h");
  await page.getByRole("heading", { level: 1, name: /would start now on .*, done about/ }).waitFor();
  await page.getByText(/Times based on/).waitFor();
  await page.context().close();
});

test("what the job is planned for is chosen beside the options, and they follow", async () => {
  const { page, text } = await begin();
  await text.fill("run: 'true'\nexpect: 1h\nresources: {gpus: 1}\n");
  const options = page.getByRole("table", { name: /Options of/ });
  await options.waitFor();

  for (const [name, line] of [["Fast", "objective: time\n"], ["Cheap", "objective: cost\n"]]) {
    const answer = page.waitForResponse((r) => r.request().postData()?.includes(line.trim()));
    await page.getByLabel(name).check();
    await eventually(async () => assert.ok((await text.inputValue()).endsWith(line)));
    await answer;
    await valid(page);
    await options.waitFor();
  }

  await page.getByLabel("Balanced").check();
  await page.getByLabel("Done by").fill("2099-01-02T03:04");
  await eventually(async () => assert.match(await text.inputValue(), /deadline: 2099-01-02T03:04:00[+-]\d\d:\d\d\n/));
  await page.getByLabel("At most $").fill("2.50");
  await eventually(async () => assert.match(await text.inputValue(), /budget: \$2\.50\n/));
  await eventually(async () => assert.doesNotMatch(await text.inputValue(), /objective/));
  await valid(page);
  await text.fill("run: a\ndeadline: 2099-01-02 03:04\n"); // without a zone, as a person writes it
  await valid(page);
  await page.getByLabel("Done by").fill("2001-01-01T00:00");
  await page.getByRole("heading", { level: 1, name: "1 mistake in the job file" }).waitFor();
  await page.context().close();
});

test("a job is submitted once, whatever is clicked, and its page is opened", async () => {
  const { page, text } = await begin();
  const keys = [];
  page.on("request", (r) => { if (r.headers()["idempotency-key"]) keys.push(r.headers()["idempotency-key"]); });
  await text.fill("name: once\nrun: echo here\nenv: {LR: null}\n");
  await page.getByRole("button", { name: "line 3" }).waitFor();
  await page.getByLabel("LR", { exact: true }).fill("0.5");
  await valid(page);
  await page.getByRole("button", { name: "Submit job" }).dblclick();
  await page.waitForURL(/\/job\/j\d+$/);
  assert.equal(keys.length, 1);
  assert.equal(trainyard("jobs", "--all", "--name", "once", "-q").trim().split("\n").length, 1);

  await page.goto(address + "submit");
  await eventually(async () => assert.equal(await text.inputValue(), "", "the draft of what is submitted stays"));
  await page.context().close();
});

test("a job starts from a template or from a past job", async () => {
  const { page, text, form } = await begin();
  await page.getByLabel("Start from").selectOption({ label: "All GPUs of one node, with torchrun" });
  await eventually(async () => assert.match(await text.inputValue(), /torchrun --standalone/));
  await page.getByText("the folder of workdir is not uploaded").first().waitFor();
  await page.getByLabel("Start from").selectOption({ label: "A program on one GPU" });
  await page.getByRole("button", { name: "Undo" }).click();
  await eventually(async () => assert.match(await text.inputValue(), /torchrun --standalone/));

  const folder = folderOf({ "job.yaml": "name: past\nworkdir: .\nrun: cat word.txt\nenv: {WORD: hi}\n", "word.txt": "sesame\n" });
  const past = trainyard("submit", "-d", "-q", "--yes", join(folder, "job.yaml")).trim();
  await page.goto(address + "submit?from=" + past);
  await page.getByText(`the files of ${past}`).waitFor();
  await form.getByLabel("Name").fill("again");
  await page.reload();
  await valid(page);
  await eventually(async () => assert.equal(await form.getByLabel("Name").inputValue(), "again"));
  const again = await submitted(page);
  trainyard("wait", again);
  assert.match(trainyard("logs", again), /sesame/);
  assert.equal(detail(again).workdir, detail(past).workdir);
  assert.equal(detail(again).name, "again");

  await page.goto(address + "submit?from=j99999");
  await page.getByText("j99999 not found").waitFor();
  await page.context().close();
});

test("a folder is uploaded as the command line does it, and a job reads its files", async () => {
  const folder = folderOf({
    "job.yaml": "name: folder\nworkdir: .\nrun: ./say.sh && cat data/sub/c.txt\n",
    "say.sh": "#!/bin/sh\ncat data/a.txt\n",
    "data/a.txt": "alpha\n",
    "data/b.log": "left out\n",
    "data/sub/c.txt": "gamma\n",
    "data/sub/keep.log": "kept\n",
    "data/sub/.gitignore": "!keep.log\n",
    ".gitignore": "*.log\n/build/\n[x-z]?.tmp\ndocs/**/draft*\n\\#odd\n",
    ".trainyardignore": "!model.key\nbig.bin\n",
    ".git/config": "x\n",
    "build/out.o": "x\n",
    "src/build/out.o": "x\n",
    "xa.tmp": "x\n", "a.tmp": "x\n",
    "docs/one/two/draft-3.md": "x\n", "docs/final.md": "x\n",
    "#odd": "x\n",
    "big.bin": "x".repeat(5000),
    ".env": "TOKEN=1\n", ".env.example": "TOKEN=\n", "id_rsa": "x\n", "model.key": "x\n", "server.key": "x\n",
    ".aws/credentials": "x\n",
    "näme & <é>😀.txt": "x\n", "zz￿.txt": "x\n",
    "empty": "",
  });

  const { page, text } = await begin();
  await drop(page, folder);
  await page.getByText(/Working directory: code, \d+ files, .* uploaded/).or(page.getByRole("alert")).waitFor();
  await eventually(async () => assert.deepEqual(await page.getByRole("alert").allTextContents(), []));
  await eventually(async () => {
    assert.equal(await text.inputValue(), "name: folder\nworkdir: .\nrun: ./say.sh && cat data/sub/c.txt\n");
  });
  const secrets = await page.getByText("Left out because they may hold secrets").textContent();
  for (const name of [".env", ".aws", "id_rsa", "server.key"]) assert.ok(secrets.includes(name), `${name} in ${secrets}`);
  await valid(page);
  await inspect(page, "submit-folder");

  const dropped = await submitted(page);
  const typed = trainyard("submit", "-d", "-q", "--yes", join(folder, "job.yaml")).trim();
  assert.equal(detail(dropped).workdir, detail(typed).workdir, "the command line takes other files");
  trainyard("wait", dropped);
  assert.match(trainyard("logs", dropped), /alpha\s+gamma/);

  // By the keyboard, into a file that is already written; the large one goes in parts.
  await page.goto(address + "submit");
  await text.fill("name: chosen\nrun: wc -c large.bin\n");
  const large = folderOf({ "large.bin": "abcdefgh".repeat(9 << 20), "job.yaml": "run: 'false'\n" });
  const chooser = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Choose folder…" }).focus();
  await page.keyboard.press("Enter");
  await (await chooser).setFiles(large);
  await page.getByText(/Working directory: code, 2 files, 72 MB, uploaded/).waitFor();
  await page.getByText("The folder has a job.yaml.").waitFor();
  await eventually(async () => {
    assert.equal(await text.inputValue(), "name: chosen\nrun: wc -c large.bin\nworkdir: .\n");
  });
  await page.reload();
  await valid(page);
  const chosen = await submitted(page);
  trainyard("wait", chosen);
  assert.match(trainyard("logs", chosen), /75497472/);
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("a file that is dropped is opened, and a wrong one is refused with its mistakes", async () => {
  const { page, text } = await begin();
  const folder = folderOf({ "bad.yaml": "# dropped\r\nrun: 'true'\r\nretry: often\r\n", "huge.yaml": "#".repeat(2 << 20), "none/.gitignore": "*\n" });
  await drop(page, join(folder, "bad.yaml"));
  await page.getByRole("button", { name: "line 3" }).waitFor();
  await eventually(async () => assert.equal(await text.inputValue(), "# dropped\nrun: 'true'\nretry: often\n"));

  await drop(page, join(folder, "huge.yaml"));
  await page.getByRole("alert").getByText("huge.yaml is larger than a job file may be").waitFor();
  await drop(page, join(folder, "none"));
  await page.getByRole("alert").getByText("none has no files to upload").waitFor();
  await eventually(async () => assert.match(await text.inputValue(), /dropped/));
  await page.context().close();
});

test("the page fits every screen", async () => {
  for (const look of looks) {
    const { page, text } = await begin("submit?view=yaml", look);
    await text.fill([
      "# three jobs", "name: prepare", "run: python3 prepare.py", "---", "name: " + "train-".repeat(10) + "x",
      "run: python3 train.py " + "--a-long-option 12345 ".repeat(8), "needs: [prepare]", "expect: 2h",
      "resources: {gpus: 2}", "---", "name: third", "run: echo مرحبا", "",
    ].join("\n"));
    await valid(page);
    await page.getByRole("heading", { level: 1, name: /3 jobs/ }).waitFor();
    await inspect(page, `submit-yaml-${look.name}`);

    if (look.viewport.width < 900) {
      await page.getByRole("link", { name: "Form" }).click();
      await page.getByLabel("Command").waitFor();
      await inspect(page, `submit-form-${look.name}`);
    }

    await page.context().close();
  }
});

test("who may not submit is told so", async () => {
  const page = await open(browser);
  await page.goto(address + "submit");
  await signIn(page, "read");
  await page.getByText("This session can only read").waitFor();
  await inspect(page, "submit-denied");
  await page.context().close();
});
