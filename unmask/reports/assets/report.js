(() => {
  "use strict";
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const recall = () => { try { return localStorage.getItem("unmask-theme"); } catch { return null; } };
  const keep = (v) => { try { localStorage.setItem("unmask-theme", v); } catch { /* no storage for files here */ } };
  const now = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const label = () => { button.textContent = now() === "dark" ? "Light" : "Dark"; };
  if (["light", "dark"].includes(recall())) root.dataset.theme = recall();
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    keep(root.dataset.theme);
    label();
  });
  dark.addEventListener("change", label);
  label();

  // Numbers under the pointer; arrow keys do the same. One hairline runs through all figures.
  const say = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
  const whole = new Intl.NumberFormat("en-US");
  const frames = [...document.querySelectorAll(".frame")].map((frame) => {
    const data = JSON.parse(frame.dataset.plot), plot = frame.firstElementChild;
    const hair = document.createElement("div"), out = document.createElement("output");
    hair.className = "hair";
    out.className = "readout";
    plot.append(hair);
    frame.append(out);
    frame.tabIndex = 0;
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", "Figure; arrow keys read out its numbers");
    return { frame, data, plot, hair, out };
  });
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) { const mid = (low + high) >> 1; if (xs[mid] < x) low = mid; else high = mid; }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  };
  const hide = () => frames.forEach((f) => f.frame.classList.remove("live", "read"));
  const show = (active, x) => {
    for (const f of frames) {
      const [low, high] = f.data.x, share = high > low ? (x - low) / (high - low) : 0;
      f.frame.classList.toggle("live", share >= 0 && share <= 1);
      f.frame.classList.toggle("read", f === active);
      f.hair.style.left = `${100 * share}%`;
    }
    const head = document.createElement("b");
    head.textContent = `${active.data.k} ${whole.format(x)}`;
    active.out.replaceChildren(head, ...active.data.s.flatMap((s) => {
      const i = nearest(s.x, x), row = document.createElement("span");
      if (s.y[i] === null) return [];
      row.className = `c${s.c}`;
      row.textContent = `${s.n} ${say.format(s.y[i])} ${active.data.u}`;
      return [row];
    }));
    const room = active.frame.clientWidth, width = active.out.offsetWidth;
    const at = active.plot.offsetLeft + parseFloat(active.hair.style.left) / 100 * active.plot.clientWidth;
    active.out.style.left = `${at + 12 + width > room ? Math.max(at - 12 - width, 0) : at + 12}px`;
    active.at = x;
  };
  for (const f of frames) {
    const steps = f.data.s.reduce((a, s) => (s.x.length > a.length ? s.x : a), []);
    f.frame.addEventListener("pointermove", (event) => {
      const box = f.plot.getBoundingClientRect(), [low, high] = f.data.x;
      const x = low + Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * (high - low);
      show(f, steps[nearest(steps, x)]);
    });
    f.frame.addEventListener("pointerleave", hide);
    f.frame.addEventListener("blur", hide);
    f.frame.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") hide();
      if (!by) return;
      event.preventDefault();
      const i = f.at === undefined ? steps.length - 1 - by : nearest(steps, f.at);
      show(f, steps[Math.min(Math.max(i + by, 0), steps.length - 1)]);
    });
  }
})();
