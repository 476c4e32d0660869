// A real browser on the page. `node browser.mjs SCENARIO` opens what BASE names, does what a person would do, and fails with the
// first thing that is not as it must be. In every scenario there may be no error on the console and no request to
// another host.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as scenarios from "./scenarios.mjs";

const tools = join(process.env.INBOXD_BROWSER_DIR ?? "/var/tmp/inboxd-browser", "node_modules");
const { chromium } = await import(join(tools, "playwright-core/index.mjs"));
const axe = readFileSync(join(tools, "axe-core/axe.min.js"), "utf8");
const base = process.env.BASE;
// A loaded machine is slow; only what fails waits for it.
const PATIENCE_MS = 45000;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
  ],
});

const troubles = [];
const opened = [];

/** A page in a window of its own. `allow` holds texts of console errors that the scenario provokes. */
async function open({ width = 1280, dark = false, script = true, allow = [] } = {}) {
  const context = await browser.newContext({
    baseURL: base,
    viewport: { width, height: 900 },
    colorScheme: dark ? "dark" : "light",
    javaScriptEnabled: script,
  });
  context.setDefaultTimeout(PATIENCE_MS);
  context.setDefaultNavigationTimeout(PATIENCE_MS);
  const page = await context.newPage();
  page.on("pageerror", (error) => troubles.push(`an error in the script: ${error}`));
  page.on("console", (message) => {
    if (!["error", "warning"].includes(message.type())) return;
    if (!allow.some((text) => message.text().includes(text))) troubles.push(`the console: ${message.text()}`);
  });
  context.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(base).origin) troubles.push(`asked another host: ${request.url()}`);
  });
  opened.push(page);
  return page;
}

/** Nothing that axe can tell is in the way of anybody, and nothing is wider than the window. */
async function usable(page) {
  // Through the debugger, which the page's own policy does not bind.
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
  assert.ok(found.passes.length > 10, "axe has looked");
  const told = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
  assert.deepEqual(told, []);
  const [wanted, there] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
  assert.ok(wanted <= there, `${wanted} px wide in a window of ${there}`);
}

/** For whoever wants to see it. */
async function shoot(page, name) {
  if (process.env.INBOXD_TEST_SHOTS) {
    await page.screenshot({ path: join(process.env.INBOXD_TEST_SHOTS, `${name}.png`), fullPage: true });
  }
}

try {
  await scenarios[process.argv[2]]({ open, usable, shoot, patience: PATIENCE_MS });
  assert.deepEqual(troubles, []);
} catch (error) {
  console.error(error);
  for (const page of opened) console.error(page.url(), await page.locator("body").innerText({ timeout: 2000 }).catch(() => ""));
  console.error(troubles);
  process.exitCode = 1;
} finally {
  await browser.close();
}
