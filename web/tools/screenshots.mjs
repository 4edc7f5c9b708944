// Renews the pictures of the documentation: starts the demo yard, opens the pages of the table below in Chromium and
// writes each as a WebP file. Usage: node tools/screenshots.mjs BINARY FOLDER [NAME…]
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { chromium } from "playwright-core";

const wide = { viewport: { width: 1440, height: 900 }, colorScheme: "light" };
const dark = { ...wide, colorScheme: "dark" };
const narrow = { viewport: { width: 375, height: 812 }, colorScheme: "light" };

// One line for each picture: its name, the page, how it is looked at, and what is on it when it is complete, if that is
// not known by its heading alone. JOB(name) in a page stands for the id of the newest job of that name.
const shots = [
  { name: "home", page: "", look: wide, shows: "text=/Needs you/i" },
  { name: "home-narrow", page: "", look: narrow, shows: "text=/Needs you/i" },
  { name: "jobs", page: "jobs", look: wide, shows: "[role=row] >> nth=10" },
  { name: "job", page: "job/JOB(gpt-small-base)", look: wide, shows: "canvas" },
  { name: "queue", page: "queue", look: wide },
  { name: "nodes", page: "nodes", look: wide, shows: "[role=row] >> nth=3" },
  { name: "node", page: "node/lab-3", look: wide },
  { name: "cost", page: "cost?period=month", look: wide, shows: "canvas" },
  { name: "forecasts", page: "forecasts", look: wide },
  { name: "whatif", page: "whatif", look: dark },
];

const quality = 82;
const patience = 120_000;

/** Starts the demo yard in a folder and returns the process and the link that signs in. */
async function startYard(binary, folder) {
  const yard = spawn(binary, ["up", "--demo", "--data", join(folder, "demo"), "--listen", "127.0.0.1:0"], {
    env: { ...process.env, HOME: folder, XDG_CONFIG_HOME: join(folder, "config"), XDG_DATA_HOME: join(folder, "data") },
    stdio: ["ignore", "inherit", "pipe"],
  });
  let said = "";

  const link = await new Promise((found, failed) => {
    yard.stderr.on("data", (text) => {
      said += text;
      const match = /http:\/\/127\.0\.0\.1:\d+\/#code=\w+/.exec(said);
      if (match && said.includes("Ctrl-C stops")) found(match[0]);
    });
    yard.on("exit", (code) => { failed(new Error(`the yard ended with code ${code}:\n${said}`)); });
  });

  return { yard, link };
}

/** Replaces JOB(name) by the id of the newest job of that name. */
async function addressOf(page, base, path) {
  for (const [call, name] of [...path.matchAll(/JOB\(([^)]+)\)/g)].map((m) => [m[0], m[1]])) {
    const answer = await page.request.get(`${base}api/v1/jobs?limit=1&name=${encodeURIComponent(name)}`);
    const [job] = (await answer.json()).jobs;
    if (!job) throw new Error(`the demo has no job called ${name}`);

    path = path.replace(call, job.id);
  }

  return base + path;
}

/** Takes a picture of a page. */
async function shoot(browser, state, base, shot, folder) {
  const context = await browser.newContext({ ...shot.look, storageState: state, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  await page.goto(await addressOf(page, base, shot.page));
  await page.locator("h1").first().waitFor();
  if (shot.shows) await page.locator(shot.shows).first().waitFor();
  await page.waitForFunction(() => document.querySelector("[aria-busy=true]") === null);
  await page.evaluate(() => document.fonts.ready);

  const session = await context.newCDPSession(page);
  const { data } = await session.send("Page.captureScreenshot", { format: "webp", quality });
  const file = join(folder, `${shot.name}.webp`);
  writeFileSync(file, Buffer.from(data, "base64"));
  console.log(`${file}  ${Math.ceil(data.length * 3 / 4 / 1024)} kB`);
  await context.close();
}

const [binary, folder, ...names] = process.argv.slice(2);
if (!folder) throw new Error("usage: node tools/screenshots.mjs BINARY FOLDER [NAME…]");

mkdirSync(folder, { recursive: true });
const home = mkdtempSync(join(tmpdir(), "screenshots-"));
const { yard, link } = await startYard(resolve(binary), home);
const browser = await chromium.launch({
  executablePath: process.env.PORTAL_CHROMIUM ?? "/usr/bin/chromium-headless-shell",
  args: ["--no-sandbox", "--disable-gpu"],
});

try {
  const first = await browser.newPage();
  await first.goto(link);
  await first.locator("h1").waitFor({ timeout: patience });
  const state = await first.context().storageState();
  const chosen = shots.filter((s) => names.length === 0 || names.includes(s.name));
  for (const shot of chosen) await shoot(browser, state, link.replace(/#.*/, ""), shot, folder);
} finally {
  await browser.close();
  yard.kill("SIGINT");
  await new Promise((over) => { yard.once("exit", over); });
  rmSync(home, { recursive: true, force: true });
}
