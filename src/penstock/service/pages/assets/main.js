// The frame of the page: which view is shown, how it stays fresh, and the keys.

import { get, post, Refused } from "./api.js";
import { clock, h, setText } from "./dom.js";

// By path: what service/pages/page_list.py declares of a page, and the view of its script.
const PAGES = new Map();
const REFRESH_MS = 2000;
const HEALTH_MS = 5000;

const element = (id) => document.getElementById(id);
const page = { start: null, view: null, timer: 0, refreshing: false, again: false };

function toast(text, bad = false) {
  const box = element("toast");
  box.className = bad ? "toast shown bad" : "toast shown";
  setText(box, text);
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { box.className = "toast"; }, 6000);
}

function go(address) {
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
  show();
}

function show() {
  page.view?.close?.();
  const shown = PAGES.get(location.pathname) || PAGES.get("/");
  for (const link of document.querySelectorAll("nav a")) {
    if (link.pathname === (shown.menu || shown.path)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const view = shown.view(page.start, { go, toast, refresh });
  page.view = view;
  document.title = `${view.title} – Penstock`;
  element("view").replaceChildren(view.root);
  scrollTo(0, 0);
  refresh();
}

async function refresh() {
  if (page.refreshing) {
    page.again = true;
    return;
  }
  page.refreshing = true;
  clearTimeout(page.timer);
  const view = page.view;
  try {
    const at = await view.refresh();
    said(true, at);
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    said(false, problem.message);
    view.refused?.(problem.message);
  } finally {
    page.refreshing = false;
    const soon = page.again;
    page.again = false;
    if (!document.hidden) page.timer = setTimeout(refresh, soon ? 250 : REFRESH_MS);
  }
}

function said(alive, what) {
  const live = element("live");
  live.className = alive ? "live on" : "live off";
  if (alive) setText(live, what ? `live · ${clock(what)}` : "live");
  else setText(live, what);
}

// The same on every page: what is not decided upon, and who was set aside so that everybody else is.
async function showHealth() {
  clearTimeout(showHealth.timer);
  try {
    const health = await get("/v1/views/health");
    const lines = health.quarantined.map((entry) => `Set aside: ${entry.subject}: ${entry.why}`);
    if (health.trouble) lines.unshift(`The controller is in trouble: ${health.trouble}. Pipelines flow on; nothing new is decided.`);
    const box = element("trouble");
    box.hidden = !lines.length;
    if (box.textContent !== lines.join("")) box.replaceChildren(...lines.map((line) => h("p", {}, line)));
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
  } finally {
    showHealth.timer = setTimeout(showHealth, document.hidden ? 10 * HEALTH_MS : HEALTH_MS);
  }
}

function watch() {
  const source = new EventSource("/v1/watch");
  source.addEventListener("step", () => refresh());
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) setTimeout(watch, 5000);
  });
}

function switchTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("penstock-theme", dark ? "light" : "dark");
  page.view?.themed?.();
}

const KEYS = [
  ["/", "filter"], ["j, k", "next, previous row"], ["Enter", "open the row"], ["t", "light or dark"], ["Esc", "close"], ["?", "this list"],
];

function showKeys() {
  const dialog = element("dialog");
  dialog.replaceChildren(
    h("h2", {}, "Keys"),
    h("dl", { class: "keys" }, [...[...PAGES.values()].filter((known) => known.key).map((known) => [`g ${known.key}`, known.title.toLowerCase()]), ...KEYS].map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("div", { class: "dialog-buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")),
  );
  dialog.showModal();
}

let went = 0;
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (element("dialog").open) return;
  const afterG = performance.now() - went < 1200;
  went = 0;
  const wanted = afterG && [...PAGES.values()].find((known) => known.key === event.key);
  if (wanted) go(wanted.path);
  else if (event.key === "g") went = performance.now();
  else if (event.key === "t") switchTheme();
  else if (event.key === "?") showKeys();
  else if (event.key === "/") {
    const filter = document.querySelector("[data-filter]");
    if (filter) {
      event.preventDefault();
      filter.focus();
    }
  } else if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll("#view .pipeline-link")].filter((link) => link.offsetParent !== null);
    const here = links.indexOf(document.activeElement);
    links[Math.min(links.length - 1, Math.max(0, here + (event.key === "j" ? 1 : -1)))]?.focus();
  }
}

function clicked(event) {
  const link = event.target.closest("a");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (link.origin !== location.origin || !PAGES.has(link.pathname) || link.classList.contains("skip")) return;
  event.preventDefault();
  go(link.pathname + link.search);
}

async function begin() {
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  page.start = await get("/v1/views/start");
  const scripts = await Promise.all(page.start.pages.map((known) => import(`./${known.script}`)));
  page.start.pages.forEach((known, number) => PAGES.set(known.path, { ...known, view: scripts[number].view }));
  setText(element("who"), page.start.may_act ? page.start.who : `${page.start.who} (may only look)`);
  document.addEventListener("click", clicked);
  document.addEventListener("keydown", pressed);
  addEventListener("popstate", show);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  element("theme").addEventListener("click", switchTheme);
  element("help").addEventListener("click", showKeys);
  element("logout").addEventListener("click", async () => { await post("/logout"); location.reload(); });
  show();
  showHealth();
  watch();
}

begin().catch((problem) => said(false, problem.message));
