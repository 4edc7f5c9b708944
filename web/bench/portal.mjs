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
const patience = 30_000; // milliseconds, for one thing to happen
const longest = quick ? 120_000 : 300_000; // for one part

const note = (text) => process.stderr.write(`   ${text}\n`);

/** The value below which a share of the values lies. */
function quantile(values, q) {
  const sorted = values.toSorted((a, b) => a - b);

  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

const median = (values) => quantile(values, 0.5);

/** What a promise becomes, unless that takes too long. */
async function within(ms, what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => { reject(new Error(`${what} took more than ${ms / 1000} s`)); }, ms);
  });

  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

const browser = await chromium.launch({
  executablePath: env.PORTAL_CHROMIUM,
  timeout: patience,
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync",
    "--disable-component-update"],
});

/** A page of a browser that has nothing cached. */
async function open(state) {
  const context = await browser.newContext({
    ignoreHTTPSErrors: true, viewport: { width: 1440, height: 900 }, storageState: state,
  });

  context.setDefaultTimeout(patience);
  await context.addInitScript(() => {
    // Looks at every frame until something is so, and returns when that was.
    window.until = async (what, isSo, ms) => {
      for (const began = performance.now(); !isSo();) {
        if (performance.now() - began > ms) throw new Error(`${what}: not within ${ms / 1000} s`);

        await new Promise((resolve) => { requestAnimationFrame(resolve); });
      }

      return performance.now();
    };
  });

  return context.newPage();
}

/** The list of all jobs, with its rows. */
async function openJobs(page) {
  await page.goto(address + "jobs");
  await page.locator("[role=grid] [aria-rowindex='20']").waitFor();
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

/** Asks the server as somebody without a browser would; what it sends is not unpacked. */
function ask(url, { method = "GET", headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(patience);
    const to = request(url, { method, headers, signal }, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("error", reject);
      answer.on("end", () => {
        const bytes = Buffer.concat(parts);
        if (answer.statusCode < 300) resolve(bytes);
        else reject(new Error(`${method} ${url}: HTTP ${answer.statusCode}: ${bytes}`));
      });
    });
    to.on("error", (cause) => { reject(new Error(`${method} ${url}: no answer`, { cause })); });
    to.end(body);
  });
}

/** Calls the API and returns its answer. */
async function call(method, path, value) {
  const headers = { authorization: `Bearer ${env.TRAINYARD_TOKEN}`, "content-type": "application/json" };
  const body = value === undefined ? undefined : JSON.stringify(value);

  return JSON.parse(await ask(`${address}api/v1/${path}`, { method, headers, body }));
}

/** Bytes of a file as it is sent compressed with gzip. */
async function sizeOf(url) {
  return (await ask(url, { headers: { "accept-encoding": "gzip", accept: "text/html,*/*" } })).length;
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

/** A file of jobs that all wait for the first of them. */
function fileOf(jobs, round) {
  const first = `name: gate-${round}\nrun: "true"\n`;
  const others = Array.from({ length: jobs - 1 }, (_, i) =>
    `name: update-${i}\nrun: "true"\nneeds: [gate-${round}]\n`);

  return [first, ...others].join("---\n");
}

/**
 * Frames of the list of jobs while it changes a thousand times a second. Ten times a second jobs are submitted, and
 * those before them cancelled: with one job end all that need it. No job starts, because the node is cordoned; the
 * queue stays short, as a user may have so many jobs at most.
 */
async function updates(state) {
  const page = await open(state);
  await openJobs(page);
  await call("POST", `nodes/${env.PORTAL_NODE}/cordon`);

  const perFile = 53; // each is submitted and cancelled: two updates, except those of the last file
  const every = 100; // milliseconds
  const before = (await call("GET", "events?tail=1&limit=1")).events[0].seq;
  let took = 0;
  const frames = await framesWhile(page, async () => {
    const began = Date.now();
    let gate;

    for (let i = 0; Date.now() - began < seconds * 1000; i++) {
      const { jobs } = await call("POST", "jobs", { file: fileOf(perFile, i) });
      if (gate) await call("POST", `jobs/${gate}/cancel`);
      gate = jobs[0].id;
      const wait = began + (i + 1) * every - Date.now();
      if (wait > 0) await new Promise((resolve) => { setTimeout(resolve, wait); });
    }

    took = Date.now() - began;
  });
  const after = (await call("GET", "events?tail=1&limit=1")).events[0].seq;
  const rate = (1000 * (after - before)) / took;
  note(`${Math.round(rate)} updates a second, ${frames.length} frames`);
  if (rate < 950 && !quick) throw new Error(`the list changed ${Math.round(rate)} times a second, not 1,000`);

  await page.getByRole("row", { name: /update-/ }).first().waitFor();
  await page.context().close();

  return { frame_ms_p95_1k_updates: quantile(frames, 0.95), frame_ms_p99_1k_updates: quantile(frames, 0.99) };
}

/** How long it takes until what somebody chose on the list of all jobs is shown. */
async function choosing(state) {
  const page = await open(state);
  await openJobs(page);
  const names = await page.locator("[role=rowgroup] [role=row] [role=gridcell]:nth-child(3)").allTextContents();
  const parts = [...new Set(names)].slice(0, rounds);
  const figures = { filter_ms_100k: [], filter_state_ms_100k: [], sort_ms_100k: [] };

  for (let i = 0; i < rounds; i++) {
    figures.filter_ms_100k.push(await page.evaluate(typeName, [parts[i % parts.length], patience]));
    await page.evaluate(typeName, ["", patience]);
    figures.filter_state_ms_100k.push(await page.evaluate(chooseState, ["failed", patience]));
    await page.evaluate(chooseState, ["", patience]);
    figures.sort_ms_100k.push(await page.evaluate(sortByName, patience));
    await openJobs(page); // the newest first again
  }

  await page.context().close();

  return Object.fromEntries(Object.entries(figures).map(([name, values]) => [name, median(values)]));
}

// These run in the page. Each returns how long it took until the rows on the screen were those that were asked for.

async function typeName([part, ms]) {
  const field = document.querySelector("input[aria-label='Name contains']");
  const rows = () => [...document.querySelectorAll("[role=rowgroup] [role=row]")];
  const named = (r) => r.querySelector("[role=gridcell]:nth-child(3)").textContent.includes(part);
  const before = new Set(rows().map((r) => r.id));
  const changed = () => rows().length !== before.size || rows().some((r) => !before.has(r.id));
  const began = performance.now();

  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, part);
  field.dispatchEvent(new Event("input", { bubbles: true }));

  return (await until(`jobs named ${part}`, () => rows().length > 0 && changed() && rows().every(named), ms)) - began;
}

async function chooseState([state, ms]) {
  const field = document.querySelector("select[aria-label='State']");
  const rows = () => [...document.querySelectorAll("[role=rowgroup] [role=row]")];
  const before = new Set(rows().map((r) => r.id));
  const changed = () => rows().length !== before.size || rows().some((r) => !before.has(r.id));
  const began = performance.now();

  field.value = state;
  field.dispatchEvent(new Event("change", { bubbles: true }));

  const shown = () => rows().length > 0 && changed() && rows().every((r) => r.textContent.includes(state));

  return (await until(`jobs in state ${state}`, shown, ms)) - began;
}

async function sortByName(ms) {
  const button = [...document.querySelectorAll("[role=columnheader] button")].find((b) => b.textContent === "Name");
  const names = () => [...document.querySelectorAll("[role=rowgroup] [role=row] [role=gridcell]:nth-child(3)")]
    .map((c) => c.textContent);
  const sorted = () => names().every((n, i, all) => i === 0 || all[i - 1] <= n);
  const began = performance.now();

  button.click();

  return (await until("jobs in order of their names", () => names().length > 0 && sorted(), ms)) - began;
}

/** The log of a job with a million lines: how fast its end is there, and how many frames are dropped on the way up. */
async function scrolling(state) {
  const page = await open(state);
  await page.goto(`${address}logs/${env.PORTAL_LOG}`);
  await page.getByText(/step 0*(\d+) of \1:/).first().waitFor();
  const opened = await page.evaluate(() => performance.now());
  const { frames, empty, moved } = await page.evaluate(async (span) => {
    const tall = document.querySelector("[data-wrap]");
    const number = (which) => tall.querySelectorAll(which).length;
    const isEmpty = () => number("[data-line][aria-busy]") > number("[data-line]") / 2;
    const first = () => Number(tall.querySelector("[data-line]").dataset.line);
    const nextFrame = () => new Promise((resolve) => { requestAnimationFrame(resolve); });
    const frames = [];
    const from = first();
    const began = await nextFrame();
    let empty = 0;

    for (let last = began; last - began < span;) {
      tall.scrollTop -= 400;
      const now = await nextFrame();
      frames.push(now - last);
      if (isEmpty()) empty++;
      last = now;
    }

    return { frames, empty, moved: from - first() };
  }, seconds * 1000);
  await page.context().close();
  note(`scrolled over ${moved} lines in ${frames.length} frames`);

  const due = frames.map((ms) => Math.max(1, Math.round(ms / frame)));
  const all = due.reduce((sum, n) => sum + n, 0);

  return {
    log_open_ms_1m: opened,
    log_dropped_pct_1m: (100 * (all - frames.length)) / all,
    log_empty_pct_1m: (100 * empty) / frames.length,
  };
}

/** Runs a part, and says which one it was if it fails. */
async function measure(part, state) {
  note(part.name);

  try {
    return await within(longest, "all of it", part(state));
  } catch (cause) {
    throw new Error(`${part.name}: ${cause.message}`, { cause });
  }
}

const figures = {};

try {
  const state = await within(longest, "to sign in", signIn());
  // Updates come last: they make the list longer, and take the node out of service.
  for (const part of [opening, choosing, scrolling, updates]) Object.assign(figures, await measure(part, state));
} finally {
  await within(patience, "to close the browser", browser.close());
}

process.stdout.write(JSON.stringify(figures));
