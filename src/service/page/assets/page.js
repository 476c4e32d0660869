// Refreshes the page that is open: asks for it again and takes over its main part. Without this script the page is read and
// acted on just as well; one reloads it for news.
"use strict";
(() => {
  const EVERY_MS = 5000;
  const PATIENCE_MS = 20000;
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  const state = document.getElementById("refreshing");
  const digest = document.documentElement.dataset.digest;
  let madeAt = main.dataset.madeAt;
  let stopped = false;
  let answers = true;
  let busy = false;

  // Said once when it changes, not with every refresh: a screen reader reads it out.
  const say = (text, kind) => {
    if (live.textContent === text) return;
    live.textContent = text;
    live.className = "live-line " + kind;
  };

  const isBeingUsed = () => {
    const focused = document.activeElement;
    if (focused && main.contains(focused) && focused.matches("input, select, textarea")) return true;
    const selection = document.getSelection();
    return Boolean(selection && !selection.isCollapsed && main.contains(selection.anchorNode));
  };

  // What is open, focused or typed must be found again in the new main part.
  const keyOf = (element) => {
    const form = element.closest("form");
    const fields = form ? [...form.querySelectorAll("input")].map((input) => input.value).join(" ") : "";
    const place = form ? form.getAttribute("action") : element.getAttribute("href");
    const details = element.matches("summary") ? element.parentElement.id : "";
    return [element.tagName, element.id, details, place, fields].join("|");
  };
  const focusables = (root) => [...root.querySelectorAll("a[href], button, input, summary")];

  const takeOver = (fresh) => {
    const open = new Map([...main.querySelectorAll("details[id]")].map((one) => [one.id, one.open]));
    for (const details of fresh.querySelectorAll("details[id]")) {
      if (open.has(details.id)) details.open = open.get(details.id);
    }
    const focused = main.contains(document.activeElement) && document.activeElement !== main ? keyOf(document.activeElement) : null;
    const said = document.getElementById("sentence");
    const before = said ? said.textContent : "";
    const at = { x: window.scrollX, y: window.scrollY };
    main.replaceChildren(...fresh.childNodes);
    madeAt = fresh.dataset.madeAt;
    main.dataset.madeAt = madeAt;
    const shown = document.getElementById("made-at");
    if (shown) shown.textContent = madeAt;
    window.scrollTo(at.x, at.y);
    if (focused) {
      const again = focusables(main).find((element) => keyOf(element) === focused);
      if (again) again.focus({ preventScroll: true });
    }
    const now = document.getElementById("sentence");
    return now && now.textContent !== before ? now.textContent : null;
  };

  const refresh = async () => {
    if (busy || stopped || document.hidden || isBeingUsed()) return;
    busy = true;
    try {
      const response = await fetch(location.href, {
        headers: { "x-inboxd-refresh": "1" },
        cache: "no-store",
        credentials: "same-origin",
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
      const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = parsed.getElementById("main");
      if (!fresh) throw new Error("not the page");
      // Another version answers, or one that has to sign in first.
      if (parsed.documentElement.dataset.digest !== digest || fresh.dataset.view !== main.dataset.view) {
        if (response.ok) location.reload();
        else say("Last seen " + madeAt + "; the service answers, but not with this page.", "warn");
        return;
      }
      if (isBeingUsed()) return;
      document.title = parsed.title;
      const news = takeOver(fresh);
      if (news) say("News: " + news, "news");
      else if (!answers) say("The service answers again.", "news");
      answers = true;
      document.body.classList.remove("stale");
    } catch {
      answers = false;
      document.body.classList.add("stale");
      say("Last seen " + madeAt + "; the service does not answer.", "fail");
    } finally {
      busy = false;
    }
  };

  const button = document.createElement("button");
  button.className = "quiet";
  button.type = "button";
  const label = () => {
    button.textContent = stopped ? "Refresh again" : "Stop refreshing";
    state.firstChild.textContent = stopped ? "; not refreshed " : "; refreshed every 5 s ";
  };
  button.addEventListener("click", () => {
    stopped = !stopped;
    label();
    refresh();
  });
  state.textContent = " ";
  state.append(button);
  label();
  document.addEventListener("visibilitychange", refresh);
  setInterval(refresh, EVERY_MS);
})();
