// Presenting: the slide fills the screen, in big type, and the keys step on.
import { button, h } from "../../parts/dom.js";

const OWN_KEYS = "input, select, textarea, [contenteditable], .sightmap th";

/** Steps by keys everywhere on the page; letters only while presenting, where nothing is typed. */
export function presentation({ step, draw, shows, targets }) {
  let stage = null;
  const isOn = () => stage.classList.contains("present");

  async function enter() {
    stage.classList.add("present");
    label();
    try { await stage.requestFullscreen(); } catch { /* the window alone is filled */ }
    stage.querySelector(".slide").focus({ preventScroll: true });
    top();
  }

  function leave() {
    stage.classList.remove("present");
    if (document.fullscreenElement) document.exitFullscreen();
    label();
    toggle.focus();
  }

  const top = () => { stage.scrollTop = 0; };

  const toggle = button("Present", () => { if (isOn()) leave(); else enter(); }, { class: "primary", title: "Fill the screen (F); Esc leaves" });
  const view = button("", () => { stage.classList.toggle("sight"); label(); top(); }, { class: "view", title: "W" });

  function label() {
    toggle.textContent = isOn() ? "Leave" : "Present";
    view.textContent = stage.classList.contains("sight") ? "Words" : "Who sees whom";
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(OWN_KEYS) || document.querySelector("dialog[open]")) return;
    const always = { ArrowRight: () => step(1), ArrowLeft: () => step(-1) };
    const presenting = { ...always, PageDown: () => step(1), PageUp: () => step(-1), n: draw, a: shows, t: targets, w: () => view.click(), f: leave, Escape: leave };
    const act = (isOn() ? presenting : always)[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
  const left = () => { if (!document.fullscreenElement && isOn()) { leave(); } };
  addEventListener("keydown", keys);
  document.addEventListener("fullscreenchange", left);
  return {
    button: toggle,
    viewButton: view,
    top,
    wrap: (...children) => { stage = h("div", { class: "stage" }, children, h("p", { class: "hint keys" }, "Keys: ← → to step, W who sees whom, N new draw, T targets, A answers, Esc leaves")); return stage; },
    mount() { label(); },
    leave() { removeEventListener("keydown", keys); document.removeEventListener("fullscreenchange", left); if (document.fullscreenElement) document.exitFullscreen(); },
  };
}
