// What a person does on the page, a function a scenario. The tests beside it bring about what is to be seen.
import assert from "node:assert/strict";

const { INBOX, DAY, ADMIN, READER } = process.env;
const sentence = (page) => page.locator("#sentence").innerText();
const notice = (page) => page.locator(".notice").innerText();
const press = (page, name) => page.getByRole("button", { name, exact: false }).first().click();
const cells = (page, kind) => page.locator(`.day.${kind}`);

/**
 * Asks for a run, and waits for its end. The page itself waits a few seconds and then tells that the run is going; on a loaded
 * machine that is what a person gets to see.
 */
async function ran(page, told, ask = () => press(page, "Run now")) {
  const newest = async () => (await (await page.request.get("/v1/runs?limit=1")).json()).runs[0];
  const before = await newest();
  await ask();
  const said = await notice(page);
  if (!said.startsWith("The run is going")) {
    assert.match(said, told);
    return;
  }
  for (let tries = 0; tries < 200; tries += 1) {
    const run = await newest();
    if (run.id !== before?.id && run.finished_at) {
      assert.equal(run.outcome, "done");
      // What was read before the end is shown for a while.
      await page.waitForTimeout(2000);
      await page.reload();
      return;
    }
    await page.waitForTimeout(300);
  }
  assert.fail("the run does not end");
}

/** In both themes, wide and narrow, and with nothing in anybody's way. */
async function seen({ open, usable, shoot }, path, name, check) {
  for (const [width, dark] of [[1280, false], [1280, true], [360, false], [360, true]]) {
    const page = await open({ width, dark });
    await page.goto(path);
    await check(page);
    await usable(page);
    await shoot(page, `${name}-${width}${dark ? "-dark" : ""}`);
    const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = background.match(/\d+/g).map(Number)[0] > 128;
    assert.equal(light, !dark, `the theme: ${background}`);
    await page.context().close();
  }
}

export async function healthy(tools) {
  await seen(tools, "/", "healthy", async (page) => {
    assert.match(await sentence(page), /^All is well: 1 inbox, with partitions for \d d/);
    assert.equal(await cells(page, "today").count(), 1);
    assert.equal(await cells(page, "ahead").count(), 7);
    assert.equal(await cells(page, "gap").count(), 0);
    assert.match(await page.title(), /^All is well/);
    assert.match(await page.locator("[aria-labelledby=plan]").innerText(), /Nothing: everything is as it should be/);
    assert.match(await page.locator("[aria-labelledby=runs]").innerText(), /done.* at the start: 8 done/);
    assert.match(await page.locator("main").innerText(), /Next run\s+in \d+ (d|h)/);
  });
  await seen(tools, `/inboxes/${INBOX}`, "healthy-inbox", async (page) => {
    assert.equal(await page.getByRole("heading", { level: 1 }).innerText(), INBOX);
    assert.equal(await page.getByRole("row").count(), 9);
    await page.locator("#passes summary").click();
    assert.match(await page.locator(".passes").innerText(), /runway/);
  });
}

/** The picture of the documentation: docs/page.png. */
export async function week({ open, usable, shoot }) {
  const page = await open({ width: 1200 });
  await page.goto("/");
  assert.match(await sentence(page), /^All is well: 1 inbox/);
  assert.equal(await cells(page, "live").count(), 6);
  assert.equal(await cells(page, "ahead").count(), 7);
  assert.equal(await page.locator(".day.held").count(), 1);
  await usable(page);
  await shoot(page, "week");
}

export async function warning(tools) {
  await seen(tools, "/", "warning", async (page) => {
    assert.match(await sentence(page), /^Claims go on, but .* should be looked at/);
    assert.match(await page.locator(".problem").first().innerText(), /warning/);
    assert.equal(await cells(page, "expired").count(), 3);
    assert.match(await page.locator("[aria-labelledby=plan]").innerText(), /detach/);
  });
  await seen(tools, `/inboxes/${INBOX}`, "warning-inbox", async (page) => {
    assert.match(await page.locator("[aria-labelledby=plan]").innerText(), /older than the retention/);
  });
}

export async function broken(tools) {
  await seen(tools, "/", "broken", async (page) => {
    assert.match(await sentence(page), /^Act now: /);
    assert.equal(await cells(page, "gap").count(), 8);
    const first = page.locator(".problem").first();
    assert.match(await first.innerText(), /fails\s+runway[\s\S]*What to do:/);
    assert.match(await page.locator(".card").innerText(), /none: claims fail/);
    assert.match(await page.locator(".day.gap .what").first().innerText(), /missing/);
  });
  await seen(tools, `/inboxes/${INBOX}`, "broken-inbox", async (page) => {
    assert.match(await sentence(page), /^Act now: /);
  });
  // And mended by a run.
  const page = await tools.open();
  await page.goto("/");
  await ran(page, /Database main: the run is done, 8 steps\./);
  // Once the canary has flown, which it does after the run.
  await page.locator("#sentence", { hasText: /^All is well/ }).waitFor();
}

export async function run_now({ open, usable }) {
  const page = await open();
  await page.goto(`/inboxes/${INBOX}`);
  await ran(page, /Database main: the run found nothing to do\./);
  assert.equal(new URL(page.url()).pathname, `/inboxes/${INBOX}`);
  assert.equal(new URL(page.url()).search, "");
  await usable(page);
  // It is told once.
  await page.reload();
  assert.equal(await page.locator(".notice").count(), 0);
}

export async function hold_and_release({ open, usable, shoot }) {
  const page = await open();
  await page.goto(`/inboxes/${INBOX}`);
  await press(page, `Hold ${DAY}`);
  assert.match(await page.locator("h1").innerText(), new RegExp(`Put ${DAY} of ${INBOX} on hold\\?`));
  await usable(page);
  await shoot(page, "ask");
  // Not without a reason.
  await press(page, "Put it on hold");
  assert.match(page.url(), /\/ask\/hold/);
  await page.getByLabel("Why?").fill("an audit & <b>more</b>");
  await press(page, "Put it on hold");
  assert.equal(await notice(page), `${DAY} of ${INBOX} is on hold.`);
  assert.equal(await page.locator(".day.held").count(), 1);
  await press(page, `Release ${DAY}`);
  assert.match(await page.locator("h1").innerText(), /^Release/);
  await usable(page);
  // One can think better of it.
  await page.getByRole("link", { name: "Leave it" }).click();
  assert.equal(await page.locator(".day.held").count(), 1);
  await press(page, `Release ${DAY}`);
  await press(page, "Release it");
  assert.match(await notice(page), new RegExp(`${DAY} of ${INBOX} is released`));
  assert.equal(await page.locator(".day.held").count(), 0);
}

export async function confirm_and_restore({ open, usable, shoot }) {
  const page = await open();
  await page.goto("/");
  await press(page, "Confirm");
  assert.match(await page.locator("h1").innerText(), /remove 3 days\?/);
  assert.match(await page.locator(".days-asked").innerText(), new RegExp(`${DAY} leaves the inbox`));
  await usable(page);
  await shoot(page, "ask-drops");
  await press(page, "Let it remove them");
  assert.match(await notice(page), /The next run may remove 3 days/);
  await ran(page, /the run is done/);
  assert.equal(await cells(page, "detached").count(), 3);
  assert.match(await page.locator(".day.detached").first().innerText(), /dropped in \d+ h/);
  await usable(page);
  await press(page, `Restore ${DAY}`);
  await usable(page);
  await press(page, "Restore it");
  assert.match(await notice(page), new RegExp(`${DAY} of ${INBOX} is part of the inbox again, and on hold`));
  assert.equal(await cells(page, "detached").count(), 2);
  await usable(page);
  await shoot(page, "restored");
  // It cannot be restored twice, and the page says so.
  const other = await open({ allow: ["409"] });
  await other.goto(`/ask/restore?inbox=${INBOX}&day=${DAY}`);
  await press(other, "Restore it");
  assert.match(await other.getByRole("alert").innerText(), /not done[\s\S]*is part of the inbox; nothing is to be done/);
  await other.getByRole("link", { name: "Back" }).click();
  assert.equal(new URL(other.url()).pathname, `/inboxes/${INBOX}`);
}

export async function pause_and_resume({ open, usable }) {
  const page = await open();
  await page.goto("/");
  await press(page, "Pause the schedule");
  await page.getByLabel("Why?").fill("the disk is being changed");
  await usable(page);
  await press(page, "Pause it");
  assert.equal(await notice(page), "The schedule is paused in database main.");
  assert.match(await page.locator(".verdict").innerText(), /paused now by \S+: the disk is being changed/);
  assert.match(await sentence(page), /^Claims go on, but one thing/);
  await usable(page);
  await press(page, "Resume the schedule");
  assert.equal(await notice(page), "The schedule goes on in database main.");
  assert.match(await sentence(page), /^All is well/);
}

export async function signing_in({ open, usable, shoot }) {
  const page = await open({ allow: ["401"] });
  await page.goto(`/inboxes/${INBOX}`);
  assert.equal(await page.locator("h1").innerText(), "Sign in");
  assert.ok(!(await page.content()).includes("public.inbox</"), "nothing is told yet");
  await usable(page);
  await shoot(page, "sign-in");
  await page.getByLabel("Access token").fill("wrong-0123456789abcdef");
  const [answer] = await Promise.all([page.waitForResponse("**/session"), press(page, "Sign in")]);
  assert.equal(answer.status(), 401);
  assert.match(await page.getByRole("alert").innerText(), /That token is not known/);
  await usable(page);
  // One that may only read sees all, and no button that acts.
  await page.getByLabel("Access token").fill(READER);
  await press(page, "Sign in");
  assert.equal(await page.locator("h1").innerText(), INBOX);
  assert.match(await page.locator("header").innerText(), /signed in as grafana, to look only/);
  const buttons = await page.getByRole("button").allInnerTexts();
  assert.deepEqual(buttons.sort(), ["Sign out", "Stop refreshing"]);
  assert.match(await page.locator("main").innerText(), /sign in with an admin token/);
  await usable(page);
  const cookies = await page.context().cookies();
  const kept = cookies.find((cookie) => cookie.name === "inboxd_token");
  assert.deepEqual([kept.httpOnly, kept.sameSite, kept.path, kept.expires], [true, "Strict", "/", -1]);
  assert.ok(!page.url().includes(READER));
  await press(page, "Sign out");
  assert.equal(await page.locator("h1").innerText(), "Sign in");
  await page.getByLabel("Access token").fill(ADMIN);
  await press(page, "Sign in");
  await press(page, "Run now");
  assert.match(await notice(page), /Database main:|The run is going/);
}

export async function two_hundred(tools) {
  await seen(tools, "/", "many", async (page) => {
    assert.match(await page.locator("#inboxes").innerText(), /^200 inboxes/);
    assert.equal(await page.locator("tbody tr").count(), 200);
    assert.equal(await page.locator("svg.strip").count(), 200);
    // The worst comes first.
    assert.match(await page.locator("tbody tr").first().innerText(), /fails[\s\S]*inbox_123/);
    assert.match(await sentence(page), /^Act now: inbox_123: /);
    assert.equal(await page.locator(".problem").count() < 8, true);
  });
  const page = await tools.open();
  await page.goto("/");
  await page.getByLabel("Part of an inbox's name").fill("inbox_19");
  await press(page, "Find");
  assert.equal(await page.locator("tbody tr").count(), 10);
  await page.getByRole("link", { name: "inbox_195" }).click();
  assert.equal(await page.locator("h1").innerText(), "inbox_195");
}

export async function without_script({ open, shoot }) {
  const page = await open({ script: false });
  await page.goto("/");
  assert.match(await sentence(page), /^All is well/);
  assert.match(await page.locator("footer").innerText(), /reload for news/);
  await page.locator("[aria-labelledby=runs] summary").first().click();
  assert.match(await page.locator("[aria-labelledby=runs]").innerText(), /create/);
  await page.getByRole("link", { name: "Partitions" }).click();
  await press(page, `Hold ${DAY}`);
  await page.getByLabel("Why?").fill("no script here");
  await press(page, "Put it on hold");
  assert.equal(await notice(page), `${DAY} of ${INBOX} is on hold.`);
  await ran(page, /nothing to do/);
  await shoot(page, "no-script");
}

export async function keyboard({ open }) {
  const page = await open();
  await page.goto("/");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  const reach = async (name) => {
    for (let step = 0; step < 60; step += 1) {
      const [text, ring] = await page.evaluate(() => {
        const focused = document.activeElement;
        return [focused.textContent.trim(), getComputedStyle(focused).outlineStyle];
      });
      if (text.startsWith(name)) {
        assert.equal(ring, "solid", `the focus on ${name} is seen`);
        return;
      }
      await page.keyboard.press("Tab");
    }
    assert.fail(`${name} cannot be reached`);
  };
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.id), "run-now", "the skip link leads past the header");
  await ran(page, /nothing to do/, () => page.keyboard.press("Enter"));
  await reach("Partitions");
  await page.keyboard.press("Enter");
  await page.waitForURL(`**/inboxes/${INBOX}`);
  await reach(`Hold ${DAY}`);
  await page.keyboard.press("Space");
  await page.waitForURL("**/ask/hold*");
  // The question stands in focus.
  await page.keyboard.type("by keys alone");
  await page.keyboard.press("Enter");
  await page.waitForURL(`**/inboxes/${INBOX}`);
  assert.equal(await notice(page), `${DAY} of ${INBOX} is on hold.`);
}

export async function refreshing({ open, patience }) {
  const page = await open();
  await page.goto(`/inboxes/${INBOX}`);
  const madeAt = () => page.locator("#main").getAttribute("data-made-at");
  const refreshed = async () => {
    const before = await madeAt();
    const main = page.locator("#main");
    await page.waitForFunction((old) => document.getElementById("main").dataset.madeAt !== old, before, { timeout: patience });
    return main;
  };
  // What is open and focused stays so.
  const summary = page.locator("#passes summary");
  await summary.click();
  await summary.focus();
  await refreshed();
  assert.equal(await page.locator("#passes").getAttribute("open"), "");
  assert.equal(await page.evaluate(() => document.activeElement.parentElement.id), "passes");
  // The news is said, where a screen reader hears it, and without a word while there is none.
  assert.equal(await page.locator("#live").innerText(), "");
  process.stdout.write("change\n");
  await page.waitForFunction(() => /^News: Act now/.test(document.getElementById("live").textContent), null, { timeout: patience });
  assert.match(await sentence(page), /^Act now/);
  // One can stop it.
  await press(page, "Stop refreshing");
  assert.match(await page.locator("footer").innerText(), /not refreshed/);
}

export async function stopped({ open, patience, shoot }) {
  const page = await open({ allow: ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_SOCKET_NOT_CONNECTED"] });
  await page.goto("/");
  assert.match(await sentence(page), /^All is well/);
  process.stdout.write("stop\n");
  const said = /^Last seen \d\d:\d\d:\d\d UTC; the service does not answer\.$/;
  await page.waitForFunction((text) => new RegExp(text).test(document.getElementById("live").textContent), said.source, { timeout: patience });
  assert.equal(await page.locator("#live").getAttribute("aria-live"), "polite");
  // What was known is still there to be read.
  assert.match(await sentence(page), /^All is well/);
  await shoot(page, "stopped");
}

export async function database_away({ open, usable, shoot }) {
  const page = await open();
  await page.goto("/");
  assert.match(await sentence(page), /^Act now: main: /);
  assert.match(await page.locator(".verdict").innerText(), /Unreadable/);
  await usable(page);
  await shoot(page, "away");
}
