// up: --mix-users yes
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { address, eventually, inspect, launch, looks, open, signedIn, submit, trainyard } from "./kit.mjs";

let browser;
let state;

before(async () => {
  browser = await launch();
  state = await signedIn(browser);
});
after(async () => { await browser.close(); });

test("users are added, get another role and are disabled", async () => {
  const page = await open(browser, state);
  page.on("dialog", (d) => void d.accept());
  await page.goto(address + "admin");
  await page.getByRole("heading", { level: 1, name: /The server has been up for/ }).waitFor();

  await page.getByText("Add a user").click();
  await page.getByLabel("Name", { exact: true }).fill("Not A Name");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByRole("alert").first().waitFor();
  await page.getByLabel("Name", { exact: true }).fill("ada");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  const ada = page.getByRole("row", { name: /^ada/ });
  await ada.waitFor();

  await ada.getByLabel("Role of ada").selectOption("operator");
  await page.waitForFunction(() => document.querySelector("[aria-label='Role of ada']").value === "operator");
  assert.match(trainyard("users", "-o", "json"), /"id": "ada"[^}]*"role": "operator"/);
  await ada.getByRole("button", { name: "Disable" }).click();
  await ada.getByText("disabled").waitFor();
  await ada.getByRole("button", { name: "Enable" }).click();
  await ada.getByText("active").waitFor();
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("a token is shown once, works, and is revoked", async () => {
  const page = await open(browser, state);
  page.on("dialog", (d) => void d.accept());
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.goto(address + "admin?tab=tokens&owner=ada");
  await page.getByText("Create a token").click();
  await page.getByLabel("Scope").selectOption("read");
  await page.getByLabel("Note").fill("for a test");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  const text = await page.getByLabel("The token").inputValue();
  assert.match(text, /^ty/);
  await page.getByRole("button", { name: "Copy", exact: true }).click();
  await page.getByRole("button", { name: "Copied" }).waitFor();
  await eventually(async () => assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text));
  await inspect(page, "admin-new-token");

  const row = page.getByRole("row", { name: /for a test/ });
  await row.waitFor();
  await page.getByRole("button", { name: "Done" }).click();
  await page.reload();
  await row.waitFor();
  assert.equal(await page.getByText(text).count(), 0);

  const other = await open(browser);
  await other.goto(address + "admin?tab=users");
  await other.getByLabel("Access token").fill(text);
  await other.getByRole("button", { name: "Sign in" }).click();
  await other.getByText("Users are managed by admins").waitFor();
  await other.getByRole("link", { name: "Tokens" }).click();
  await other.getByText("This session cannot show tokens").waitFor();
  await other.getByRole("link", { name: "Quotas and budgets" }).click();
  await other.getByText("Admins change them").waitFor();

  await row.getByRole("button", { name: /^Revoke/ }).click();
  await row.waitFor({ state: "detached" });
  await other.getByLabel("Access token").waitFor();
  await other.context().close();

  await page.getByLabel("also revoked and expired ones").check();
  await row.getByText("revoked").waitFor();
  await page.context().close();
});

test("quotas are set, changed and removed, and a refusal says why", async () => {
  const page = await open(browser, state);
  page.on("dialog", (d) => void d.accept());
  await page.goto(address + "admin?tab=limits");
  await page.getByText("No quota is set").waitFor();
  await page.getByText("Set a quota").click();
  await page.getByLabel("Name", { exact: true }).fill("ada");
  await page.getByLabel("GPUs at once").fill("2");
  await page.getByLabel("Budget a period").fill("many");
  await page.getByRole("button", { name: "Set", exact: true }).click();
  await page.getByRole("alert").waitFor();
  await page.getByLabel("Budget a period").fill("$200");
  await page.getByRole("button", { name: "Set", exact: true }).click();
  const row = page.getByRole("table", { name: "Quotas", exact: true }).getByRole("row", { name: /user ada/ });
  await row.waitFor();
  await eventually(async () => assert.match(await row.textContent(), /200/));

  await row.getByRole("button", { name: "Change the quota of user/ada" }).click();
  await eventually(async () => assert.equal(await page.getByLabel("GPUs at once").inputValue(), "2"));
  await page.getByLabel("GPUs at once").fill("3");
  await page.getByRole("button", { name: "Set", exact: true }).click();
  await row.getByText("3", { exact: true }).waitFor();
  await row.getByRole("button", { name: "Remove the quota of user/ada" }).click();
  await page.getByText("No quota is set").waitFor();
  await page.context().close();
});

test("providers, policy and server are shown as they are", async () => {
  submit("kept", "echo kept");
  const page = await open(browser, state);
  await page.goto(address + "admin?tab=providers");
  await page.getByText("No cloud provider is configured").waitFor();
  await page.getByRole("link", { name: "Policy" }).click();
  await page.getByText("is in force:").waitFor();
  await page.getByRole("link", { name: "Try srtf in What-if" }).waitFor();
  await page.getByRole("link", { name: "Server and storage" }).click();
  await page.getByText("SQLite").waitFor();
  await page.getByText(/free of/).first().waitFor();

  for (const look of looks) {
    const other = await open(browser, state, look);
    for (const [tab, text] of [["users", "ada"], ["tokens", "this session"], ["policy", "is in force:"], ["server", "SQLite"]]) {
      await other.goto(address + `admin?tab=${tab}`);
      await other.getByText(text).first().waitFor();
      await inspect(other, `admin-${tab}-${look.name}`);
    }

    await other.context().close();
  }

  assert.deepEqual(page.errors, []);
  await page.context().close();
});
