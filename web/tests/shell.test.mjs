// up: --tariff TESTS/prices.yaml
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import {
  address, eventually, inspect, launch, link, looks, open, signedIn, signIn, startProxy, submit, trainyard,
} from "./kit.mjs";

let browser;
let state; // of a browser that is signed in

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => { await browser.close(); });

test("the link works once, and a token signs in", async () => {
  const page = await open(browser);
  await page.goto(link); // it was used to sign in above
  await page.getByText("this link is not valid").waitFor();
  await inspect(page, "sign-in");

  await page.getByLabel("Access token").fill("ty_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").waitFor();

  await signIn(page, "submit");
  await page.getByRole("heading", { name: "My jobs" }).waitFor();

  await page.locator("header summary").last().click();
  await page.getByRole("button", { name: "Sign out", exact: true }).click();
  await page.getByLabel("Access token").waitFor();
  await page.reload();
  await page.getByLabel("Access token").waitFor();
  await page.context().close();
});

test("everything can be reached with the keyboard", async () => {
  for (let i = 0; i < 3; i++) submit(`sweep-${i}`, "exit 3");
  const page = await open(browser, state);
  await page.goto(address);
  await page.getByRole("heading", { name: "My jobs" }).waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });

  await page.keyboard.press("g");
  await page.keyboard.press("j");
  await page.getByRole("row", { name: /sweep-2/ }).waitFor();
  await page.getByRole("row", { name: /sweep-2/ }).focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /sweep-1/ }).waitFor();
  await eventually(() => assert.match(page.url(), /job=j\d+/));
  await page.keyboard.press("Escape");
  await page.getByRole("heading", { name: /sweep-1/ }).waitFor({ state: "detached" });

  await page.keyboard.press("/");
  await page.keyboard.type("vit");
  await page.keyboard.press("Enter");
  await page.waitForURL(/name=vit/);
  await page.context().close();
});

test("a server that goes away is said, and what happened meanwhile is shown", async () => {
  const proxy = await startProxy("/");
  const page = await open(browser);
  await page.goto(proxy.address);
  await signIn(page, "read");
  await page.getByRole("heading", { name: "My jobs" }).waitFor();

  proxy.away();
  const note = page.getByText("Server not responding");
  await note.waitFor();
  const late = submit("late", "sleep 600");
  await inspect(page, "away");

  await proxy.back();
  await note.waitFor({ state: "detached" });
  await page.getByRole("link", { name: `${late} late` }).waitFor();
  trainyard("kill", late);
  await page.context().close();
  proxy.away();
});

test("a session that ends elsewhere ends on the screen", async () => {
  const page = await open(browser);
  await page.goto(address);
  const token = await signIn(page, "read");
  await page.getByRole("heading", { name: "My jobs" }).waitFor();
  trainyard("tokens", "revoke", token.split("_")[1]);
  await page.getByLabel("Access token").waitFor();
  await page.context().close();
});

test("the portal works below a path", async () => {
  const proxy = await startProxy("/yard/");
  const page = await open(browser);
  await page.goto(proxy.address + "jobs?name=sweep-1");
  await signIn(page, "read");
  await page.getByRole("row", { name: /sweep-1/ }).waitFor();
  await page.getByRole("link", { name: "Home", exact: true }).click();
  await page.getByRole("heading", { name: "My jobs" }).waitFor();
  await eventually(() => assert.equal(page.url(), proxy.address));
  await page.reload();
  await page.getByRole("heading", { name: "My jobs" }).waitFor();
  assert.deepEqual(page.errors, []);
  await page.context().close();
  proxy.away();
});
test("a slow link shows where things will be", async () => {
  const page = await open(browser, state);
  let deliver;
  const gate = new Promise((resolve) => { deliver = resolve; });
  await page.route(/api\/v1\/(jobs|summary)/, async (route) => {
    await gate;
    await route.continue();
  });
  await page.goto(address);
  await page.getByRole("heading", { name: "My jobs" }).waitFor();
  await page.locator("[aria-busy=true] [role=status]", { hasText: "Loading" }).first().waitFor({ state: "attached" });
  const before = await page.getByRole("heading", { name: "My jobs" }).boundingBox();
  await inspect(page, "slow");
  deliver();
  await page.getByText("None of your jobs is running or queued").waitFor();
  const after = await page.getByRole("heading", { name: "My jobs" }).boundingBox();
  assert.equal(after.y, before.y, "the page has jumped");
  await page.context().close();
});

test("a server that is not there yet is waited for", async () => {
  const page = await open(browser, state);
  await page.route("**/api/v1/whoami", (route) => route.abort());
  await page.goto(address);
  await page.getByRole("alert").getByText("server not responding").waitFor();
  await inspect(page, "no-server");
  await page.unroute("**/api/v1/whoami");
  await page.getByRole("heading", { name: "My jobs" }).waitFor();
  await page.context().close();
});

test("a server that is busy is asked again", async () => {
  const page = await open(browser, state);
  const busy = { status: 503, contentType: "application/problem+json",
    body: JSON.stringify({ status: 503, code: "busy", detail: "server busy; try again" }) };
  const alert = page.getByRole("alert").getByText("server busy");

  for (const what of ["**/api/v1/whoami", "**/api/v1/inbox?*"]) {
    await page.route(what, (route) => route.fulfill(busy));
    await page.goto(address);
    await alert.waitFor();
    await page.unroute(what);
    await page.getByRole("heading", { name: "My jobs" }).waitFor();
    await alert.waitFor({ state: "detached" });
  }

  await page.context().close();
});

test("a page whose code is gone offers to reload", async () => {
  const page = await open(browser, state);
  await page.route("**/assets/jobs-*.js", (route) => route.fulfill({ status: 404 }));
  await page.goto(address);
  await page.getByRole("heading", { name: "My jobs" }).waitFor();
  await page.getByRole("link", { name: "Jobs", exact: true }).click();
  await page.getByText("This page could not be loaded").waitFor();
  page.errors.length = 0; // the browser says so too

  for (const look of looks) {
    await page.setViewportSize(look.viewport);
    await page.emulateMedia({ colorScheme: look.colorScheme });
    await inspect(page, `gone-${look.name}`);
  }

  await page.unroute("**/assets/jobs-*.js");
  await page.getByRole("button", { name: "Reload" }).click();
  await page.getByRole("row", { name: /sweep-1/ }).waitFor();
  await eventually(() => assert.match(page.url(), /jobs$/));
  await page.context().close();
});

test("a page with a fault leaves the others alone", async () => {
  const page = await open(browser, state);
  const bad = /api\/v1\/jobs\?.*limit=100/;
  await page.route(bad, (route) => route.fulfill({ json: { jobs: [{ id: "j1" }] } }));
  await page.goto(address + "jobs");
  await page.getByText("This page has a fault").waitFor();
  page.errors.length = 0; // the browser says so too
  await inspect(page, "fault");
  await page.getByRole("link", { name: "Go to Home" }).click();
  await page.getByRole("heading", { name: "My jobs" }).waitFor();
  await page.unroute(bad);
  await page.getByRole("link", { name: "Jobs", exact: true }).click();
  await page.getByRole("row", { name: /sweep-1/ }).waitFor();
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("an address that is no page says so", async () => {
  const page = await open(browser, state);
  await page.goto(address + "nowhere/at-all");
  await page.getByText("Page nowhere/at-all not found").waitFor();
  await inspect(page, "not-found");
  await page.getByRole("link", { name: "Go to Home" }).click();
  await page.getByRole("heading", { name: "My jobs" }).waitFor();
  await page.context().close();
});
