// Measures the portal in Chromium: how fast it opens, filters and scrolls, and whether it stays smooth while the yard is
// busy. test/bench/portal starts the yard and prints what this writes: figures by name, as JSON.
import { request } from "node:https";
import { chromium } from "playwright-core";

const env = process.env;
const address = env.TRAINYARD_SERVER + "/";
const quick = env.PORTAL_QUICK === "1";
const rounds = quick ? 2 : 9;
const seconds = quick ? 2 : 12; // of what goes on for a while
const frame = 1000 / 60;

const note = (text) => process.stderr.write(`   ${text}\n`);

/** The value below which a share of the values lies. */
function quantile(values, q) {
  const sorted = values.toSorted((a, b) => a - b);

  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

const median = (values) => quantile(values, 0.5);

const browser = await chromium.launch({
  executablePath: env.PORTAL_CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync",
    "--disable-component-update"],
});

/** A page of a browser that has nothing cached. */
async function open(state) {
  const context = await browser.newContext({
    ignoreHTTPSErrors: true, viewport: { width: 1440, height: 900 }, storageState: state,
  });

  return context.newPage();
}

async function signIn() {
  const page = await open();
  await page.goto(address);
  await page.getByLabel("Access token").fill(env.TRAINYARD_TOKEN);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "My jobs" }).waitFor();
  const state = await page.context().storageState();
  await page.context().close();

  return state;
}

/** Bytes of a file as it is sent compressed with gzip. */
function sizeOf(url) {
  return new Promise((resolve, reject) => {
    request(url, { headers: { "accept-encoding": "gzip", accept: "text/html,*/*" } }, (answer) => {
      let bytes = 0;
      answer.on("data", (part) => { bytes += part.length; });
      answer.on("end", () => resolve(bytes));
    }).on("error", reject).end();
  });
}

/** How fast Home is there in a browser that has nothing of it, and how much it has to load for that. */
async function opening(state) {
  const paints = [];
  const readies = [];
  let files = [];

  for (let i = 0; i < rounds; i++) {
    const page = await open(state);
    // Home is ready when its sentence and the yard have their figures: then all of it can be used.
    await page.addInitScript(() => {
      const look = () => {
        const headline = document.querySelector("#main h1:not([aria-busy])");
        const yard = document.querySelector("#the-yard ~ ul li");
        if (headline && yard) window.readyAt = performance.now();
        else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    });
    await page.goto(address);
    await page.waitForFunction(() => window.readyAt !== undefined);
    const seen = await page.evaluate(() => ({
      ready: window.readyAt,
      paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
      files: performance.getEntriesByType("resource").map((r) => r.name).filter((n) => n.includes("/assets/")),
    }));
    paints.push(seen.paint);
    readies.push(seen.ready);
    files = seen.files;
    await page.context().close();
  }

  const sizes = await Promise.all([address, ...files].map(sizeOf));

  return {
    first_paint_ms: median(paints),
    interactive_ms: median(readies),
    first_screen_kb: sizes.reduce((sum, bytes) => sum + bytes, 0) / 1000,
  };
}

/** Lets a page note the time of every frame, and returns how far apart they were while something went on. */
async function framesWhile(page, work) {
  await page.evaluate(() => {
    window.frames60 = [];
    const tick = (at) => {
      window.frames60.push(at);
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
  await work();

  return page.evaluate(() => {
    const at = window.frames60;

    return at.slice(1).map((t, i) => t - at[i]);
  });
}

/** Posts a job file as somebody with a command line would. */
function post(file) {
  return new Promise((resolve, reject) => {
    const to = request(`${address}api/v1/jobs`, {
      method: "POST",
      headers: { authorization: `Bearer ${env.TRAINYARD_TOKEN}`, "content-type": "application/json" },
    }, (answer) => {
      let text = "";
      answer.on("data", (part) => { text += part; });
      answer.on("end", () => {
        if (answer.statusCode === 201) resolve();
        else reject(new Error(`a job file was refused: ${text}`));
      });
    });
    to.on("error", reject);
    to.end(JSON.stringify({ file }));
  });
}

/** A file of jobs of which none can start: the first needs a GPU, which no node has, and the others wait for it. */
function fileOf(jobs, round) {
  const first = `name: gate-${round}\nrun: "true"\nresources: {gpus: 1}\n`;
  const others = Array.from({ length: jobs - 1 }, (_, i) =>
    `name: update-${i}\nrun: "true"\nneeds: [gate-${round}]\n`);

  return [first, ...others].join("---\n");
}

/** Frames of the list of jobs while a thousand jobs a second are submitted. */
async function updates(state) {
  const page = await open(state);
  await page.goto(address + "jobs");
  await page.locator("[role=grid] [aria-rowindex='20']").waitFor();

  const perFile = 100;
  const every = 100; // milliseconds
  const frames = await framesWhile(page, async () => {
    const began = Date.now();

    for (let i = 0; Date.now() - began < seconds * 1000; i++) {
      await post(fileOf(perFile, i));
      const wait = began + (i + 1) * every - Date.now();
      if (wait > 0) await new Promise((resolve) => { setTimeout(resolve, wait); });
      else if (wait < -5000) throw new Error("the server does not take 1,000 jobs a second");
    }
  });
  await page.getByRole("row", { name: /update-/ }).first().waitFor();
  await page.context().close();

  return { frame_ms_p95_1k_updates: quantile(frames, 0.95), frame_ms_p99_1k_updates: quantile(frames, 0.99) };
}

/** How long it takes until what somebody chose on the list of all jobs is shown. */
async function choosing(state) {
  const page = await open(state);
  await page.goto(address + "jobs");
  await page.locator("[role=grid] [aria-rowindex='20']").waitFor();
  const names = await page.locator("[role=rowgroup] [role=row] [role=gridcell]:nth-child(3)").allTextContents();
  const parts = [...new Set(names)].slice(0, rounds);
  const figures = { filter_ms_100k: [], filter_state_ms_100k: [], sort_ms_100k: [] };

  for (let i = 0; i < rounds; i++) {
    figures.filter_ms_100k.push(await page.evaluate(typeName, parts[i % parts.length]));
    await page.evaluate(typeName, "");
    figures.filter_state_ms_100k.push(await page.evaluate(chooseState, "failed"));
    await page.evaluate(chooseState, "");
    figures.sort_ms_100k.push(await page.evaluate(sortByName));
    await page.goto(address + "jobs"); // the newest first again
    await page.locator("[role=grid] [aria-rowindex='20']").waitFor();
  }

  await page.context().close();

  return Object.fromEntries(Object.entries(figures).map(([name, values]) => [name, median(values)]));
}

// These run in the page. Each returns how long it took until the rows on the screen were those that were asked for.

async function typeName(part) {
  const field = document.querySelector("input[aria-label='Name contains']");
  const rows = () => [...document.querySelectorAll("[role=rowgroup] [role=row]")];
  const named = (r) => r.querySelector("[role=gridcell]:nth-child(3)").textContent.includes(part);
  const before = new Set(rows().map((r) => r.id));
  const changed = () => rows().length !== before.size || rows().some((r) => !before.has(r.id));
  const began = performance.now();

  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, part);
  field.dispatchEvent(new Event("input", { bubbles: true }));
  while (!(rows().length > 0 && changed() && rows().every(named))) {
    await new Promise((resolve) => { requestAnimationFrame(resolve); });
  }

  return performance.now() - began;
}

async function chooseState(state) {
  const field = document.querySelector("select[aria-label='State']");
  const rows = () => [...document.querySelectorAll("[role=rowgroup] [role=row]")];
  const before = new Set(rows().map((r) => r.id));
  const changed = () => rows().length !== before.size || rows().some((r) => !before.has(r.id));
  const began = performance.now();

  field.value = state;
  field.dispatchEvent(new Event("change", { bubbles: true }));
  while (!(rows().length > 0 && changed() && rows().every((r) => r.textContent.includes(state)))) {
    await new Promise((resolve) => { requestAnimationFrame(resolve); });
  }

  return performance.now() - began;
}

async function sortByName() {
  const button = [...document.querySelectorAll("[role=columnheader] button")].find((b) => b.textContent === "Name");
  const names = () => [...document.querySelectorAll("[role=rowgroup] [role=row] [role=gridcell]:nth-child(3)")]
    .map((c) => c.textContent);
  const sorted = () => names().every((n, i, all) => i === 0 || all[i - 1] <= n);
  const began = performance.now();

  button.click();
  while (!(names().length > 0 && sorted())) await new Promise((resolve) => { requestAnimationFrame(resolve); });

  return performance.now() - began;
}

/** The log of a job with a million lines: how fast its end is there, and how many frames are dropped on the way up. */
async function scrolling(state) {
  const page = await open(state);
  await page.goto(`${address}logs/${env.PORTAL_LOG}`);
  await page.getByText(/step 0*(\d+) of \1:/).first().waitFor();
  const opened = await page.evaluate(() => performance.now());
  const frames = await page.evaluate(async (span) => {
    const tall = [...document.querySelectorAll("#main *")]
      .filter((e) => /auto|scroll/.test(getComputedStyle(e).overflowY))
      .sort((a, b) => b.scrollHeight - a.scrollHeight)[0];
    const nextFrame = () => new Promise((resolve) => { requestAnimationFrame(resolve); });
    const distances = [];
    const began = await nextFrame();

    for (let last = began; last - began < span;) {
      tall.scrollTop -= 400;
      const now = await nextFrame();
      distances.push(now - last);
      last = now;
    }

    return distances;
  }, seconds * 1000);
  await page.context().close();

  const due = frames.map((ms) => Math.max(1, Math.round(ms / frame)));
  const all = due.reduce((sum, n) => sum + n, 0);

  return { log_open_ms_1m: opened, log_dropped_pct_1m: (100 * (all - frames.length)) / all };
}

const state = await signIn();
const figures = {};

for (const part of [opening, choosing, scrolling, updates]) { // updates come last: they make the list longer
  note(part.name);
  Object.assign(figures, await part(state));
}

await browser.close();
process.stdout.write(JSON.stringify(figures));
