import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { address, eventually, inspect, joinNode, launch, looks, open, signedIn, submit, trainyard } from "./kit.mjs";

let browser;
let state;
let many; // a job with 200,000 lines

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
  many = submit("many-lines", "seq 1 200000 | sed 's/^/step /'");
});
after(async () => { await browser.close(); });

/** The row of a line. */
const row = (page, number) => page.locator(`[data-line="${number}"]`);

/** The element that is scrolled. */
const box = (page) => page.getByRole("region", { name: /^Output of j\d+\.\d+, rank/ });

/** Waits until a line is visible, and returns where. */
async function visible(page, number) {
  await page.waitForFunction((n) => {
    const line = document.querySelector(`[data-line="${n}"]:not([aria-busy])`)?.getBoundingClientRect();
    const view = document.querySelector("[data-wrap]")?.getBoundingClientRect();

    return line && view && line.top >= view.top - 1 && line.bottom <= view.bottom + 20;
  }, number);

  return (await row(page, number).boundingBox()).y;
}

test("a log of 200,000 lines opens at its end, and any of its lines is found by number", async () => {
  const page = await open(browser, state);
  const asked = [];
  page.on("request", (r) => { if (r.url().includes("/lines?")) asked.push(r.url()); });
  await page.goto(`${address}logs/${many}`);
  await page.getByRole("heading", { level: 1, name: /many-lines: 200,000 lines, [\d.]+ MB, succeeded/ }).waitFor();
  await visible(page, 200000);
  await eventually(async () => assert.equal(await row(page, 200000).locator("bdi").textContent(), "step 200000"));

  const drawn = await page.locator("[data-line]").count();
  assert.ok(drawn < 150, `${drawn} lines are drawn`);

  // The scroll bar reaches every part of it, and what is shown is what the number says.
  await box(page).evaluate((b) => { b.scrollTop = b.scrollHeight / 2; });
  await visible(page, 100010);
  await eventually(async () => assert.equal(await row(page, 100010).locator("bdi").textContent(), "step 100010"));
  await box(page).evaluate((b) => { b.scrollTop = 0; });
  await visible(page, 1);
  await eventually(async () => assert.equal(await row(page, 1).locator("bdi").textContent(), "step 1"));

  await page.getByLabel("Go to line").fill("123456");
  await page.keyboard.press("Enter");
  await visible(page, 123456);
  await page.waitForURL(/run=1&rank=0&line=123456/);
  assert.ok(asked.length < 60, `${asked.length} questions`);

  // A colleague opens the address and sees that line.
  const other = await open(browser, state);
  await other.goto(page.url());
  await visible(other, 123456);
  await eventually(async () => {
    assert.equal(await row(other, 123456).locator("a").getAttribute("aria-current"), "true");
  });
  await other.context().close();

  const text = await page.request.get(await page.getByRole("link", { name: "Download" }).getAttribute("href"));
  assert.match(text.headers()["content-disposition"], /attachment; filename="j\d+\.1-0\.log"/);
  assert.match(await text.text(), /^step 1\nstep 2\n[^]*\nstep 200000\n/);
  assert.equal(trainyard("logs", many, "--lines", "123456-123457"), "step 123456\nstep 123457\n");
  await page.context().close();
});

test("the server searches, and what was searched for is in the address", async () => {
  const page = await open(browser, state);
  await page.goto(`${address}logs/${many}`);
  await visible(page, 200000);
  await page.getByLabel("Find lines that match").fill("^step 1?99999$");
  await page.getByRole("button", { name: "Find", exact: true }).click();
  await page.getByText("2 lines found").waitFor();
  await page.getByRole("button", { name: "Next ›" }).click();
  await visible(page, 99999);
  await page.keyboard.press("n");
  await visible(page, 199999);
  await page.waitForURL(/line=199999/);
  await eventually(() => assert.match(page.url(), /find=/));
  await page.getByRole("list", { name: "Lines found" }).getByRole("link", { name: /step 99999/ }).click();
  await visible(page, 99999);

  // What matches is marked within the line, here and in the list.
  await page.getByLabel("Find lines that match").fill("(?i)P 9999");
  await page.keyboard.press("Enter");
  await page.getByText("11 lines found").waitFor();
  await row(page, 99999).locator("mark").getByText("p 9999", { exact: true }).waitFor();
  await eventually(async () => {
    assert.equal(await page.getByRole("list", { name: "Lines found" }).locator("mark").count(), 11);
  });

  await page.getByLabel("Find lines that match").fill("step (");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").getByText("invalid regular expression").waitFor();

  // One that finds too much pauses, goes on, and ends.
  await page.getByLabel("Find lines that match").fill("00$");
  await page.keyboard.press("Enter");
  await page.getByText(/1,000 lines found up to line 100,0/).waitFor();
  await inspect(page, "logs-search");
  await page.getByRole("button", { name: "Search on" }).click();
  await page.getByText("2,000 lines found", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Close search" }).click();
  await page.getByText("2,000 lines found").waitFor({ state: "detached" });
  await page.context().close();
});

test("a log that grows is followed, unless one scrolls up", async () => {
  const id = submit("ticking", "i=0; while sleep 0.02; do i=$((i+1)); echo tick $i; done");
  const page = await open(browser, state);
  await page.goto(`${address}logs/${id}`);
  await page.getByRole("heading", { level: 1, name: /ticking: \d+ lines, [\d.]+ K?B, live/ }).waitFor();
  await visible(page, 100);
  await visible(page, 150); // it follows

  await box(page).hover();
  await page.mouse.wheel(0, -600);
  await page.getByRole("button", { name: /new lines? ↓/ }).waitFor();
  const first = await page.locator("[data-line]").evaluateAll((rows) => {
    const top = document.querySelector("[data-wrap]").getBoundingClientRect().top;

    return Number(rows.find((r) => r.getBoundingClientRect().top >= top).dataset.line);
  });
  const before = await visible(page, first);
  await page.getByRole("button", { name: /\d\d new lines ↓/ }).waitFor();
  assert.equal((await row(page, first).boundingBox()).y, before, "the line has moved");

  await page.getByRole("button", { name: /new lines ↓/ }).click();
  const last = async () => Math.max(...await page.locator("[data-line]").evaluateAll((r) => r.map((x) => +x.dataset.line)));
  await visible(page, await last());
  trainyard("kill", id);
  await page.getByRole("heading", { level: 1, name: /lines, [\d.]+ K?B, cancelled/ }).waitFor();
  await page.context().close();
});

test("a failed job leads to its error", async () => {
  const id = submit("broken", `exec 2>&1; i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo "step $i error: 0.12"; done
    echo 'Traceback (most recent call last):'; echo '  File "train.py", line 7, in <module>'
    echo 'ValueError: shapes do not match'; i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo "cleaning up $i"; done; exit 3`);
  const page = await open(browser, state);
  await page.goto(`${address}logs/${id}`);
  await page.getByRole("heading", { level: 1, name: /broken: \d+ lines, [\d.]+ KB, failed/ }).waitFor();
  await page.getByRole("button", { name: "‹ Error" }).click();
  await page.waitForURL(/line=303/);
  await visible(page, 303);
  await eventually(async () => assert.match(await row(page, 303).textContent(), /ValueError/));
  await page.keyboard.press("E");
  await page.waitForURL(/line=301/);
  await eventually(async () => assert.match(await row(page, 301).textContent(), /Traceback/));
  await page.getByRole("button", { name: "‹ Error" }).click();
  await page.getByText("No line before line 301 looks like an error").waitFor();
  await page.keyboard.press("e");
  await page.waitForURL(/line=303/);
  await page.getByText("No line before").waitFor({ state: "detached" });
  assert.match(trainyard("logs", id, "--errors"), /^Traceback[^\n]*\nValueError: shapes do not match\n/);
  await page.context().close();
});

test("colours, right-to-left text and lines of any length look intended", async () => {
  const id = submit("odd", `printf '\\033[31mred\\033[0m \\033[1;38;5;46mgreen\\033[0m <b>not bold</b> bell\\a\\n'
    echo 'שגיאה: הקובץ לא נמצא'; printf '10 %%\\r50 %%\\rdone\\n'
    head -c 100000 /dev/zero | tr '\\0' x; echo; printf '\\377 not utf-8\\n'; echo 'no end' | tr -d '\\n'`);

  for (const look of looks) {
    const page = await open(browser, state, look);
    await page.goto(`${address}logs/${id}${look.name === "dark-1440" ? "?times=1" : ""}`);
    await page.getByRole("heading", { level: 1, name: /odd: 7 lines, .*succeeded/ }).waitFor();
    await visible(page, 1);
    await inspect(page, `logs-${look.name}`);

    if (look !== looks[0]) {
      await page.getByLabel("Wrap").check();
      await visible(page, 7);
      await inspect(page, `logs-wrap-${look.name}`);
      await page.context().close();
      continue;
    }

    await eventually(async () => {
      assert.equal(await row(page, 1).locator("bdi").textContent(), "red green <b>not bold</b> bell^G");
    });
    assert.equal(await row(page, 1).locator("b").count(), 0, "the output of a job is read as HTML");
    const colour = await row(page, 1).getByText("red", { exact: true }).evaluate((e) => getComputedStyle(e).color);
    assert.equal(colour, "rgb(179, 38, 30)");
    await eventually(async () => assert.equal(await row(page, 3).locator("bdi").textContent(), "done"));
    await eventually(async () => assert.match(await row(page, 6).textContent(), /\uFFFD not utf-8/));

    await eventually(async () => assert.equal((await row(page, 4).locator("bdi").textContent()).length, 4096));
    await row(page, 4).getByRole("button", { name: "show all 64 KB" }).click();
    await page.waitForFunction(() => document.querySelector('[data-line="4"] bdi').textContent.length === 65536);

    await page.getByLabel("Times").check();
    await page.getByText(/^\d\d:\d\d:\d\d\.\d\d\d$/).first().waitFor();
    await page.waitForURL(/times=1/);
    await page.context().close();
  }
});

test("the output of each rank and run is chosen, and what is missing is said", async () => {
  await joinNode("there", "4xA100:80GB");
  const id = submit("ranks", "echo rank $NODE_RANK says hello", "--nodes", "2", "--gpus", "1");
  const page = await open(browser, state);
  await page.goto(`${address}logs/${id}`);
  await page.getByText("rank 0 says hello").waitFor();
  await page.getByLabel("Rank", { exact: true }).selectOption("1");
  await page.getByText("rank 1 says hello").waitFor();
  await page.waitForURL(/rank=1/);

  // All ranks are shown as one, in the order in which they printed; a line leads to its place among those of its rank.
  const turns = submit("turns", "for i in 1 2 3 4 5 6 7 8; do echo rank $NODE_RANK says $i; sleep 0.2; done",
    "--nodes", "2", "--gpus", "1");
  await page.goto(`${address}logs/${turns}?rank=1`);
  await page.getByText("rank 1 says 8").waitFor();
  await page.getByLabel("Rank", { exact: true }).selectOption("all");
  await page.waitForURL(/rank=all/);
  await page.getByLabel("Times").check();
  await page.getByRole("heading", { level: 1, name: /turns: 16 lines, .*succeeded/ }).waitFor();
  await page.getByText("rank 0 says 8").waitFor();
  const lines = await page.locator("[data-line]").evaluateAll((rows) => rows.map((r) => ({
    time: r.querySelector("span[class*=time]").textContent, text: r.querySelector("bdi").textContent,
  })));
  assert.deepEqual(lines.map((l) => l.time), lines.map((l) => l.time).toSorted(), JSON.stringify(lines));
  for (const rank of [0, 1]) {
    const own = lines.filter((l) => l.text.startsWith(`rank ${rank}`)).map((l) => l.text.at(-1));
    assert.equal(own.join(""), "12345678");
  }

  await inspect(page, "logs-ranks");
  await page.getByLabel("Find lines that match").fill("1 says [78]");
  await page.keyboard.press("Enter");
  await page.getByText("2 lines found").waitFor();
  assert.deepEqual(await page.locator("[data-line] mark").allTextContents(), ["1 says 7", "1 says 8"]);
  await page.getByRole("link", { name: "Rank and line 1:3", exact: true }).click();
  await page.waitForURL((u) => u.searchParams.get("rank") === "1" && u.searchParams.get("line") === "3");
  await page.getByText("rank 0 says 1").waitFor({ state: "detached" });
  await row(page, 3).and(page.locator("[data-marked]")).getByText("rank 1 says 3").waitFor();

  const twice = submit("twice", "echo run $TRAINYARD_EPOCH; exit $((2 - TRAINYARD_EPOCH))", "--retry", "1");
  await page.goto(`${address}logs/${twice}`);
  await page.getByText("run 2", { exact: true }).waitFor(); // the newest
  await page.getByLabel("Run", { exact: true }).selectOption("1");
  await page.getByText("run 1", { exact: true }).waitFor();
  await page.waitForURL(/run=1/);

  await page.goto(`${address}logs/${id}?rank=7`);
  await page.getByText(`Rank 7 of run 1 of ${id} not found`).waitFor();
  await page.goto(`${address}logs/${id}?run=9`);
  await page.getByText(`Run 9 of ${id} not found`).waitFor();
  await page.goto(`${address}logs/j999999`);
  await page.getByText("j999999 not found").waitFor();

  const silent = submit("silent", "true");
  await page.goto(`${address}logs/${silent}`);
  await page.getByText("It has printed nothing").waitFor();
  await inspect(page, "logs-empty");

  const holders = ["here", "there"].map((node) => submit(`holder-${node}`, "sleep 600", "--gpus", "4"));
  const waiting = submit("waiting", "echo never", "--gpus", "1");
  await page.goto(`${address}logs/${waiting}`);
  await page.getByRole("heading", { level: 1, name: /waiting has printed nothing: it has not run yet/ }).waitFor();
  trainyard("cancel", waiting);
  await page.getByRole("heading", { level: 1, name: /it has not run$/ }).waitFor();
  holders.forEach((id) => trainyard("kill", id));
  await page.context().close();
});
