// up: --tariff TESTS/prices.yaml
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { address, inspect, launch, link, looks, open, signIn, submit, submitAll, trainyard } from "./kit.mjs";

let browser;
let state; // of a browser that is signed in

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });

test("a yard without jobs says what to do", async () => {
  const page = await open(browser);
  await page.goto(link);
  await page.getByText("None of your jobs is running or queued").waitFor();
  assert.equal(new URL(page.url()).hash, "", "the code stays in the address");
  await page.getByText("0/4 GPUs busy").waitFor();
  state = await page.context().storageState();

  const cookie = state.cookies.find((c) => c.name.startsWith("trainyard-"));
  assert.ok(cookie.httpOnly && cookie.sameSite === "Strict", "the cookie is readable, or sent along by other sites");

  await inspect(page, "home-empty");
  await page.context().close();
});

test("jobs appear with their curve, run and end without a reload", async () => {
  const page = await open(browser, state);
  await page.goto(address);
  await page.getByText("None of your jobs is running or queued").waitFor();

  const metrics = 'for i in $(seq 1 60); do echo "{\\"step\\": $i, \\"loss\\": 0.$((99 - i))}"; done; sleep 600';
  const running = submit("vit-large", metrics, "--gpus", "2");
  const queued = submit("a-name" + "-that-is-long".repeat(4), "true", "--gpus", "4");
  await page.getByRole("link", { name: `${running} vit-large` }).waitFor();
  await page.getByRole("heading", { level: 1, name: /1 running.*1 queued.*\$\d.* so far today/ }).waitFor();
  await page.getByText("2/4 GPUs busy, 2 idle").waitFor();
  await page.getByRole("row", { name: /vit-large/ }).getByRole("img", { name: "loss 0.39" }).waitFor();
  await page.getByText(/Spend today \$\d/).waitFor();

  for (const look of looks) {
    const other = await open(browser, state, look);
    await other.goto(address);
    await other.getByRole("link", { name: `${running} vit-large` }).waitFor();
    await other.getByText("2/4 GPUs busy").waitFor();
    await other.getByRole("img", { name: "loss 0.39" }).waitFor();
    await other.getByRole("img", { name: /GPUs used in the last 24 hours: \d+ %/ }).waitFor();
    await inspect(other, `home-${look.name}`);
    await other.context().close();
  }

  trainyard("cancel", queued);
  await page.getByRole("heading", { level: 1, name: /^1 running\. \$/ }).waitFor();
  await page.getByRole("row", { name: /that-is-long.*cancelled/ }).waitFor();
  assert.deepEqual(page.errors, []);
  trainyard("kill", running);
  await page.context().close();
});

/** A job that runs out of memory in its first run, and says so in a language that is written from right to left. */
const hungry = `[ "$TRAINYARD_EPOCH" -gt 1 ] && exec sleep 600
echo "CUDA out of memory: אין מספיק זיכרון" >&2
exit 1`;

test("a question is answered with one of its options", async () => {
  const page = await open(browser, state);
  await page.goto(address);
  const id = submit("hungry", hungry, "--gpus", "1");
  const asked = page.getByRole("group", { name: `Question about ${id}` });
  await asked.getByText(/out of GPU memory/).waitFor();
  await asked.getByText(/without an answer the job fails in/).waitFor();
  await page.getByRole("heading", { level: 1, name: /1 needs you/ }).waitFor();

  for (const look of looks) {
    const other = await open(browser, state, look);
    await other.goto(address);
    await other.getByRole("button", { name: /^cancel job j\d+ \$0\.00/ }).waitFor();
    await inspect(other, `needs-${look.name}`);
    await other.context().close();
  }

  // An answer that does not arrive gives the options back.
  await page.route("**/accept", (route) => route.abort());
  await asked.getByRole("button", { name: "run it again with as much memory as before" }).click();
  await asked.getByRole("alert").getByText("server not responding").waitFor();
  await page.unroute("**/accept");
  await asked.getByRole("button", { name: "run it again with as much memory as before" }).click();
  await asked.waitFor({ state: "detached" });
  await page.getByRole("heading", { level: 1, name: /1 running/ }).waitFor();
  trainyard("kill", id);

  // Another one is stopped.
  const second = submit("hungry-too", hungry, "--gpus", "1");
  page.on("dialog", (d) => void d.accept());
  const stopped = page.getByRole("group", { name: `Question about ${second}` });
  await stopped.getByRole("button", { name: /^cancel job/ }).click();
  await page.getByRole("row", { name: /hungry-too.*cancelled/ }).waitFor();

  // Of a third none of the options is wanted.
  const third = submit("hungry-three", hungry, "--gpus", "1");
  await page.getByRole("group", { name: `Question about ${third}` }).getByRole("button", { name: "Dismiss" }).click();
  await page.getByRole("row", { name: /hungry-three.*memory/ }).waitFor();
  await page.getByRole("heading", { level: 1, name: /^Nothing runs/ }).waitFor();
  await page.context().close();
});

test("a job whose budget is used up goes on when somebody lets it", async () => {
  const page = await open(browser, state);
  await page.goto(address);
  const loss = String.raw`BEGIN { for (i = 1; ; i++) { printf("{\"step\": %d, \"loss\": %f}\n", i, 2 / sqrt(i)); fflush();
    system("sleep 0.1") } }`;
  submitAll([`name: thrifty
run: |
  awk '${loss.replace("\n    ", " ")}'
resources: {gpus: 1}
target: {metric: loss, at_most: 0.02}
budget: $0.30
`]);
  const asked = page.getByRole("group", { name: /Question about/ });
  await asked.getByText("the budget of $0.30 is used up").waitFor();
  const first = asked.getByRole("button").first();
  const option = await first.innerText();

  // With a forecast the first option is the whole price; there may have been too little time for one.
  if (option.startsWith("raise")) assert.match(option, /\$\d.*, done about/);
  else assert.match(option, /^let it spend \$0\.30 more/);

  await first.click();
  await asked.waitFor({ state: "detached" });
  await page.getByRole("heading", { level: 1, name: /^1 running/ }).waitFor();
  trainyard("kill", "--name", "thrifty", "--yes");
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("who may only look is offered nothing else", async () => {
  const id = submit("hungry-four", hungry, "--gpus", "1");
  const page = await open(browser);
  await page.goto(address);
  await signIn(page, "read");
  const asked = page.getByRole("group", { name: `Question about ${id}` });
  await asked.getByText("sign in with a token of scope submit").waitFor();
  assert.equal(await asked.getByRole("button").count(), 0);
  trainyard("cancel", id);
  await page.context().close();
});
