// Presenting: the slide fills the screen, in big type, and the keys or a presenter's remote step on.
import { button, h } from "../../parts/dom.js";

const OWN_KEYS = "input, select, textarea, [contenteditable]";
const NEARLY = 8; // pixels
const [SMALLEST, LARGEST, BY] = [0.6, 2.5, 1.15];

/**
 * Steps by keys everywhere on the page; all others only while presenting, where nothing is typed.
 * `step(by)`: to another lesson; `forward`, `back`: to what comes next of a lesson, for which a
 * remote has its two keys. `field`: where the text is typed, shown on demand.
 */
export function presentation({ step, forward, back, draw, shows, targets, field }) {
  let stage = null;
  let zoom = 1;
  const isOn = () => stage.classList.contains("present");
  const is = (name) => stage.classList.contains(name);
  const focusSlide = () => stage.querySelector(".slide").focus({ preventScroll: true });

  async function enter() {
    stage.classList.add("present");
    label();
    try { await stage.requestFullscreen(); } catch { /* the window alone is filled */ }
    focusSlide();
    top();
  }

  function leave() {
    stage.classList.remove("present", "writing", "blank");
    if (document.fullscreenElement) document.exitFullscreen();
    label();
    toggle.focus();
  }

  const top = () => { stage.scrollTop = 0; };

  function sight(shown) {
    stage.classList.toggle("sight", shown);
    label();
    top();
  }

  /** Show the field for another sentence; Enter puts it away again. */
  function write() {
    const area = field.querySelector("textarea");
    stage.classList.add("writing");
    top();
    area.focus();
    area.select();
  }

  function typed(event) {
    if (!isOn() || event.isComposing || event.shiftKey || !["Enter", "Escape"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    stage.classList.remove("writing");
    focusSlide();
  }

  function enlarge(by) {
    zoom = by ? Math.min(Math.max(zoom * by, SMALLEST), LARGEST) : 1;
    stage.style.setProperty("--zoom", zoom);
  }

  /** Scroll to what of the slide is outside of the window; whether there was some. */
  function scrolled(by) {
    const { top: above, bottom } = stage.querySelector(".slide").getBoundingClientRect();
    if (by > 0 ? bottom <= innerHeight + NEARLY : stage.scrollTop <= NEARLY || above > 0) return false;
    stage.scrollBy(0, by * 0.8 * innerHeight);
    return true;
  }
  const next = () => { if (!scrolled(1)) forward(); };
  const before = () => { if (!scrolled(-1)) back(); };

  /** Choose another row of the matrix. */
  function row(by) {
    const rows = [...stage.querySelector(".sightmap tbody").rows];
    const at = rows.findIndex((one) => one.classList.contains("chosen"));
    rows[Math.min(Math.max(at + by, 0), rows.length - 1)].cells[0].focus({ preventScroll: true });
  }

  const toggle = button("Present", () => { if (isOn()) leave(); else enter(); }, { class: "primary", title: "Fill the screen (F); Esc leaves" });
  const view = button("", () => sight(!is("sight")), { class: "view", title: "W" });
  const another = button("Another text", write, { class: "view", title: "E; Enter when it is written" });

  function label() {
    toggle.textContent = isOn() ? "Leave" : "Present";
    view.textContent = is("sight") ? "Words" : "Who sees whom";
  }

  function keys(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(OWN_KEYS) || document.querySelector("dialog[open]")) return;
    const always = { ArrowRight: () => step(1), ArrowLeft: () => step(-1) };
    const dark = () => stage.classList.add("blank");
    const presenting = { ...always, PageDown: next, PageUp: before, n: draw, a: shows, t: targets, w: () => view.click(), e: write, b: dark, ".": dark,
      "+": () => enlarge(BY), "=": () => enlarge(BY), "-": () => enlarge(1 / BY), 0: () => enlarge(null), F5: () => {}, f: leave, Escape: leave };
    if (isOn() && event.target.tagName !== "BUTTON") presenting[" "] = next;
    if (isOn() && is("sight")) Object.assign(presenting, { ArrowDown: () => row(1), ArrowUp: () => row(-1) });
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (isOn() && is("blank") && name !== "Escape") { // any key brings the picture back
      stage.classList.remove("blank");
      event.preventDefault();
      return;
    }
    const act = (isOn() ? presenting : always)[name];
    if (!act) return;
    event.preventDefault();
    act();
  }
  const left = () => { if (!document.fullscreenElement && isOn()) { leave(); } };
  addEventListener("keydown", keys);
  document.addEventListener("fullscreenchange", left);
  return {
    buttons: [view, another, toggle],
    isSight: () => is("sight"),
    sight,
    top,
    wrap: (...children) => {
      field.addEventListener("keydown", typed);
      stage = h("div", { class: "stage" }, field, children, h("p", { class: "hint keys" },
        "Page down or space: next · ← → model · T targets · A answers · W who sees whom · N new draw · E text · + − size · B dark · Esc leaves"));
      return stage;
    },
    mount() { label(); },
    leave() { removeEventListener("keydown", keys); document.removeEventListener("fullscreenchange", left); if (document.fullscreenElement) document.exitFullscreen(); },
  };
}
