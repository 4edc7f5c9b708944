// What the tests of the portal share: a browser, a person who is signed in, and the command line of the same yard.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const env = process.env;

export const link = env.PORTAL_LINK;
export const address = link.replace(/#.*/, "");

const everyLook = [
  { name: "light-1440", colorScheme: "light", viewport: { width: 1440, height: 900 } },
  { name: "dark-1440", colorScheme: "dark", viewport: { width: 1440, height: 900 } },
  { name: "light-375", colorScheme: "light", viewport: { width: 375, height: 812 } },
  { name: "dark-375", colorScheme: "dark", viewport: { width: 375, height: 812 } },
];

/** How long anything may take, in milliseconds: it bounds a hang, also on a machine that has much else to do. */
const patience = 120_000;

/** Everything that is looked at is looked at in these: make test takes two that have both themes and both widths. */
export const looks = env.PORTAL_LOOKS === "all" ? everyLook : [everyLook[0], everyLook[3]];

export function launch() {
  return chromium.launch({
    executablePath: env.PORTAL_CHROMIUM,
    env: { ...env, LC_ALL: "C.UTF-8" }, // without it names of files that are not ASCII cannot be read
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
  });
}

/** Types a command. */
export function trainyard(...args) {
  return execFileSync(env.PORTAL_BINARY, args, { encoding: "utf8", env });
}

/** Submits a shell script and returns the id of the job. */
export function submit(name, script, ...flags) {
  const id = trainyard("run", "-d", "-q", "--name", name, ...flags, "--", "sh", "-c", script).trim();

  assert.match(id, /^j\d+$/);

  return id;
}

/** Submits job files as one. */
export function submitAll(files) {
  const path = join(env.HOME, "jobs.yaml");
  writeFileSync(path, files.join("---\n"));
  trainyard("submit", "-d", "-q", "--yes", path);
}

/** Lets another node join the yard, and waits until it is there. It ends with the yard. */
export async function joinNode(name, gpus) {
  const [, server] = /(https:\/\/\S+)/.exec(trainyard("whoami"));
  const token = trainyard("tokens", "create", "--join", "-q").trim();
  const args = ["agent", "join", server, "--token", token, "--name", name, "--fake-gpus", gpus,
    "--data", join(env.HOME, name)];
  spawn(env.PORTAL_BINARY, args, { env, stdio: "ignore" }).unref();

  const isThere = (n) => n.id === name && n.state === "idle";
  await eventually(() => {
    assert.ok(JSON.parse(trainyard("nodes", "-o", "json")).nodes.some(isThere), `${name} has not joined`);
  });
}

/** Asks again until a claim about a page holds: pages change when the server has answered, not when somebody clicks. */
export async function eventually(claim) {
  for (const end = Date.now() + patience; ;) {
    try {
      return await claim();
    } catch (wrong) {
      if (Date.now() > end) throw wrong;
    }

    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}

/** A page in which nothing may go wrong that nobody sees: errors and refused contents of the page fail the test. */
export async function open(browser, state, look = looks[0]) {
  const context = await browser.newContext({
    colorScheme: look.colorScheme, viewport: look.viewport, storageState: state, reducedMotion: "reduce",
  });
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (e) => errors.push(String(e)));
  page.on("console", (m) => {
    if (m.type() === "error" && !/Failed to load resource/.test(m.text())) errors.push(m.text());
  });
  page.errors = errors;
  page.setDefaultTimeout(patience);

  return page;
}

/** Looks at a page as axe does, and at whether it is wider than the screen. */
export async function inspect(page, name) {
  if (env.PORTAL_SHOTS) {
    mkdirSync(env.PORTAL_SHOTS, { recursive: true });
    await page.screenshot({ path: join(env.PORTAL_SHOTS, name + ".png") });
  }

  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: axe }); // the policy of the page allows no script of ours in it
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  const serious = found.violations.filter((v) => ["serious", "critical"].includes(v.impact));
  assert.deepEqual(serious.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" | ")}`), [], `axe on ${name}`);

  const { wide, room } = await page.evaluate(() => ({ wide: document.documentElement.scrollWidth, room: innerWidth }));
  assert.ok(wide <= room, `${name} is ${wide} px wide on a screen of ${room}`);
  assert.deepEqual(page.errors, [], `errors on ${name}`);
}

/** The state of a browser that is signed in by the link. The link works once: one of the tests of a file calls this. */
export async function signedIn(browser) {
  const page = await open(browser);
  await page.goto(link);
  await page.locator("header summary").last().waitFor();
  const state = await page.context().storageState();
  await page.context().close();

  return state;
}

/** Signs in with a new token, on a page that asks for one, and returns the token. */
export async function signIn(page, scope) {
  const token = trainyard("tokens", "create", "--scope", scope, "-q").trim();
  await page.getByLabel("Access token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();

  return token;
}

/** A proxy that serves the yard below a path, which it takes away as most do, and that can go away. */
export async function startProxy(path) {
  const to = new URL(address);
  const make = () => createServer((req, res) => {
    if (!req.url.startsWith(path)) return res.writeHead(404).end();

    const options = { host: to.hostname, port: to.port, method: req.method, path: req.url.slice(path.length - 1),
      headers: { ...req.headers, host: to.host } };
    const up = request(options, (answer) => {
      res.writeHead(answer.statusCode, answer.headers);
      answer.pipe(res);
    });
    up.on("error", () => res.destroy());
    res.on("close", () => up.destroy());
    req.pipe(up);
  });
  const listen = (port) => {
    server = make();

    return new Promise((resolve) => { server.listen(port, "127.0.0.1", resolve); });
  };

  let server;
  await listen(0);
  const { port } = server.address();

  return {
    address: `http://127.0.0.1:${port}${path}`,
    away: () => { server.close(); server.closeAllConnections(); },
    back: () => listen(port),
  };
}
