// Elements made from names, properties and children. Text is a text node: nothing is parsed as HTML.

/**
 * An element: h("a", { href: "#/", class: "brand" }, "Unmask").
 * Properties that begin with "on" are listeners; `class`, `for`, `role`, `aria-*`, `data-*` and all
 * others are attributes; true is an empty attribute; null, undefined and false are left out.
 * Children are elements, texts, numbers, lists of these; null, undefined and false are left out.
 */
export function h(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) setProperty(element, key, value);
  append(element, children);
  return element;
}

function setProperty(element, key, value) {
  if (value === null || value === undefined || value === false) return;
  if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
  else if (key === "value" || key === "checked" || key === "indeterminate") element[key] = value;
  else if (key === "style") for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
  else element.setAttribute(key, value === true ? "" : String(value));
}

/** Append children, as of `h`. */
export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Replace what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** A button: its label, what it does, and further properties. A promise disables it meanwhile. */
export function button(label, act, properties = {}) {
  const element = h("button", { type: "button", ...properties }, label);
  element.addEventListener("click", async (event) => {
    const result = act(event);
    if (!(result instanceof Promise)) return;
    element.setAttribute("aria-busy", "true");
    element.disabled = true;
    try {
      await result;
    } catch (error) {
      say(error.line ?? error.message ?? String(error), { isError: true });
    } finally {
      element.removeAttribute("aria-busy");
      element.disabled = false;
    }
  });
  return element;
}

/** A table: captions of columns, rows of cells; `numeric` are the columns of numbers. */
export function table(caption, columns, rows, { numeric = [], class: name = "" } = {}) {
  const cell = (tag, value, i) => h(tag, { class: numeric.includes(i) ? "number" : null,
    scope: tag === "th" ? "col" : null }, value);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: name },
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map((one, i) => cell("th", one, i)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((one, i) => cell("td", one, i)))))));
}

/** An empty state: what is not there yet, and what to do. */
export function empty(title, text, ...actions) {
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text),
    actions.length ? h("p", { class: "actions" }, actions) : null);
}

/** A message at the foot of the page; `undo` gives it a button that takes back what was done. */
export function say(text, { isError = false, undo = null, seconds = isError ? 12 : 8 } = {}) {
  const box = h("div", { class: isError ? "message error" : "message", role: isError ? "alert" : null },
    h("span", {}, text));
  const close = () => box.remove();
  if (undo) box.append(button("Undo", async () => { await undo(); close(); }));
  box.append(button("×", close, { class: "quiet", "aria-label": "Dismiss" }));
  document.getElementById("messages").append(box);
  setTimeout(close, seconds * 1000);
  return close;
}

/** A question before what cannot be taken back; gives whether it was agreed to. */
export function ask(title, text, action) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "question" }, h("h2", { id: "question" }, title),
      h("p", {}, text), h("p", { class: "actions" },
        button(action, () => dialog.close("yes"), { class: "primary" }),
        button("Cancel", () => dialog.close(""))));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

const unwritten = new Set();

/**
 * As `slowly`, for what is kept in the browser: where the page is left, reloaded or closed
 * meanwhile, it is kept at once.
 */
export function keeping(act, milliseconds = 250) {
  const now = () => { later.cancel(); unwritten.delete(now); act(); };
  const later = slowly(now, milliseconds);
  const keep = () => { unwritten.add(now); later(); };
  keep.cancel = () => { unwritten.delete(now); later.cancel(); };
  return keep;
}
for (const left of ["pagehide", "hashchange"]) {
  addEventListener(left, () => { while (unwritten.size) for (const now of [...unwritten]) now(); });
}

/** A question with a line of text as its answer; null: cancelled. */
export function askText(title, text, value) {
  return new Promise((resolve) => {
    const input = h("input", { type: "text", id: "answer", value });
    const dialog = h("dialog", { "aria-labelledby": "question" }, h("form", { method: "dialog" }, h("h2", { id: "question" }, title), h("div", { class: "field" }, h("label", { for: "answer" }, text), input),
      h("p", { class: "actions" }, h("button", { class: "primary", value: "yes" }, "Save"), h("button", { value: "", formnovalidate: true }, "Cancel"))));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes" ? input.value.trim() : null); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Call a function so many milliseconds after the last time that it is asked for; `cancel` does not. */
export function slowly(act, milliseconds = 250) {
  let timer = null;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...values), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}
