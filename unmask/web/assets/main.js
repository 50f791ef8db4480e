// The frame of the page: navigation, theme, jobs, and the page that the address names.
import { listen, watch } from "./parts/api.js";
import { button, empty, fill, h, say, slowly } from "./parts/dom.js";

const PAGES = {
  "": { title: "Runs", load: () => import("./pages/home.js") },
  new: { title: "New model", load: () => import("./pages/new_model.js") },
  finetune: { title: "Fine-tune", load: () => import("./pages/finetune.js") },
  try: { title: "Try", load: () => import("./pages/try.js") },
  compare: { title: "Compare", load: () => import("./pages/comparing/compare.js") },
  teach: { title: "Teach", load: () => import("./pages/teaching/teach.js") },
  jobs: { title: "Jobs", load: () => import("./pages/jobs.js") },
  run: { load: () => import("./pages/run.js") },
  export: { load: () => import("./pages/export.js") },
  command: { load: () => import("./pages/command.js") },
};
const content = document.getElementById("content");
let leave = () => {};
let turn = 0;

/** What the address names: "#/run/a/b?tab=log" -> { name: "run", rest: "a/b", query } */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  try {
    return { name: name in PAGES ? name : null, rest: rest.map(decodeURIComponent).join("/"), query: new URLSearchParams(query ?? "") };
  } catch { // "%E0%A4%A" is no text
    return { name: null };
  }
}

/** A function that writes another query into this address, as a new entry or not, unless the reader has left it meanwhile. */
function queryKeeper() {
  let mine = location.hash;
  return (query, isNew = false) => {
    if (location.hash !== mine) return;
    const text = String(query ?? "");
    history[isNew ? "pushState" : "replaceState"](history.state, "", mine.split("?")[0] + (text && `?${text}`));
    mine = location.hash;
  };
}

/** Keep in this entry of the history how far the page is scrolled. */
const keepScroll = slowly(() => history.replaceState({ top: scrollY }, ""), 150);

/** Reload a page that could not be read once the server answers again, unless the reader has left it. */
async function reloadWhenBack(mine) {
  while (mine === turn) {
    await new Promise((resolve) => { setTimeout(resolve, 2000); });
    if (await fetch("/api/jobs").then((answer) => answer.ok, () => false)) {
      if (mine === turn) location.reload();
      return;
    }
  }
}

async function show() {
  keepScroll.cancel(); // what was scrolled is of the page before
  removeEventListener("scroll", keepScroll);
  const { name, rest, query } = place();
  const keepQuery = queryKeeper();
  const mine = ++turn;
  leave();
  leave = () => {};
  for (const link of document.querySelectorAll("#pages a")) {
    const is = link.getAttribute("href") === `#/${name ?? ""}`;
    if (is) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (name === null) {
    fill(content, empty("There is no such page", "The address names no page of the workbench.", h("a", { href: "#/" }, "All runs")));
    return;
  }
  content.setAttribute("aria-busy", "true");
  try {
    const module = await PAGES[name].load();
    const page = await module.page({ rest, query, keepQuery });
    if (mine !== turn) { page.leave?.(); return; } // another page was asked for meanwhile
    leave = page.leave ?? (() => {});
    document.title = `${page.title ?? PAGES[name].title ?? name} · Unmask`;
    fill(content, page.element ?? page);
    if (mine > 1 && document.activeElement === document.body) content.focus({ preventScroll: true });
    scrollTo(0, history.state?.top ?? 0);
    addEventListener("scroll", keepScroll);
  } catch (error) {
    if (mine !== turn) return;
    const isAway = error.status === 0 || /module/i.test(error.message);
    if (isAway) reloadWhenBack(mine);
    fill(content, empty("This page cannot be shown", error.line ?? error.message ?? String(error),
      button("Try again", show), h("a", { href: "#/" }, "All runs")));
    if (!error.line && !isAway) throw error;
  } finally {
    if (mine === turn) content.removeAttribute("aria-busy");
  }
}

function showJobs({ jobs }) {
  const running = jobs.filter((one) => ["running", "starting", "stopping"].includes(one.state)).length;
  const waiting = jobs.filter((one) => one.state === "waiting").length;
  const parts = [running ? `${running} running` : null, waiting ? `${waiting} waiting` : null].filter(Boolean);
  fill(document.getElementById("jobs"), h("a", { href: "#/jobs", class: running ? "live" : null }, `Jobs: ${parts.join(", ") || jobs.length}`));
}

const ENDS = { done: " is finished.", failed: " ended with an error.", stopped: " is stopped." };
const jobStates = new Map();

/** Say that a run has ended, on whichever page that is read; not on its own. */
function tellEnds({ jobs }) {
  for (const { id, run, state } of jobs) {
    const before = jobStates.get(id);
    jobStates.set(id, state);
    const address = `#/run/${(run ?? "").split("/").map(encodeURIComponent).join("/")}`;
    if (!run || !ENDS[state] || !["running", "stopping"].includes(before) || location.hash.split("?")[0] === address) continue;
    say([h("a", { href: address }, run), ENDS[state]], { isError: state === "failed", seconds: 20 });
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  document.getElementById("theme").textContent = theme === "dark" ? "Light" : "Dark";
  dispatchEvent(new Event("themechange"));
}

function setLarge(is) {
  document.documentElement.classList.toggle("large", is);
  localStorage.setItem("large", is ? "1" : "");
  document.getElementById("large").setAttribute("aria-pressed", String(is));
  dispatchEvent(new Event("themechange")); // charts have letters of their own
}

function begin() {
  const pages = document.getElementById("pages");
  for (const [name, page] of Object.entries(PAGES)) {
    if (page.title && name !== "jobs") pages.append(h("a", { href: `#/${name}` }, page.title));
  }
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); content.focus(); });
  history.scrollRestoration = "manual";
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(localStorage.getItem("theme") ?? (isDark ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () =>
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  setLarge(localStorage.getItem("large") === "1");
  document.getElementById("large").addEventListener("click", () => setLarge(!document.documentElement.classList.contains("large")));
  let wasLost = false;
  listen("connection", (is) => {
    if (!is && !wasLost) say("The connection to the server is lost; jobs go on. Trying again.", { isError: true });
    if (is && wasLost) say("Connected again.");
    wasLost = !is;
    document.body.classList.toggle("lost", wasLost);
  });
  listen("jobs", showJobs);
  listen("jobs", tellEnds);
  watch([]);
  addEventListener("hashchange", show);
  addEventListener("unhandledrejection", (event) => say(event.reason?.line ?? String(event.reason), { isError: true }));
  show();
}

begin();
