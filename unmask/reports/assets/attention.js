(() => {
  "use strict";
  const source = document.getElementById("attention-data");
  if (!source) return;
  const networks = JSON.parse(source.textContent), view = document.querySelector(".attention-view");
  const part = (name) => view.querySelector(`.${name}`);
  const state = { network: 0, text: 0, head: 0, word: 0, to: false };
  const percent = new Intl.NumberFormat("en-US", { style: "percent", maximumFractionDigits: 1 });
  const decoded = new Map();

  // Bytes of all heads; decoded when a text is shown, and kept.
  const bytesOf = (text) => {
    if (!decoded.has(text)) {
      const raw = atob(text.maps), bytes = new Uint8Array(raw.length);
      for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
      decoded.set(text, bytes);
    }
    return decoded.get(text);
  };
  // Calls f(row, column, byte) for the weights of a head that are on the page.
  const eachWeight = (text, head, f) => {
    const bytes = bytesOf(text), n = text.labels.length, kept = text.kept || n;
    const start = head * n * kept, columns = text.kept ? bytes.length / 3 : 0;
    for (let row = 0; row < n; row++) for (let at = 0; at < kept; at++) {
      const i = start + row * kept + at;
      if (bytes[i]) f(row, text.kept ? bytes[columns + 2 * i] + 256 * bytes[columns + 2 * i + 1] : at, bytes[i]);
    }
  };
  const current = () => networks[state.network].texts[state.text];
  const color = (name) => {
    const probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    probe.fillRect(0, 0, 1, 1);
    return probe.getImageData(0, 0, 1, 1).data;
  };
  // A map as an image of at most `most` pixels a side; a pixel is its darkest word.
  let paper = [], ink = [];
  const paint = (canvas, text, head, most) => {
    const n = text.labels.length, side = Math.min(n, most), scale = side / n;
    canvas.width = canvas.height = side;
    const darkest = new Uint8Array(side * side);
    eachWeight(text, head, (row, column, byte) => {
      const i = Math.floor(row * scale) * side + Math.floor(column * scale);
      if (byte > darkest[i]) darkest[i] = byte;
    });
    const context = canvas.getContext("2d"), image = context.createImageData(side, side);
    for (let i = 0; i < darkest.length; i++) {
      const share = Math.sqrt(darkest[i] / 255);
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = paper[c] + share * (ink[c] - paper[c]);
      image.data[4 * i + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  };

  const select = (name, options, key) => {
    const label = document.createElement("label"), box = document.createElement("select");
    label.append(name, box);
    options.forEach((text, i) => box.append(new Option(text, i)));
    box.value = Number(state[key]);
    box.addEventListener("change", () => {
      state[key] = key === "to" ? box.value === "1" : Number(box.value);
      if (key === "text") state.word = firstWord();
      redraw(key !== "to");
    });
    part("choices").append(label);
    return box;
  };
  const firstWord = () => Math.max(current().special.indexOf(0), 0);
  const short = (text) => {
    const words = text.labels.filter((_, i) => !text.special[i]).join(" ");
    return words.length > 60 ? `${words.slice(0, 59)}…` : words;
  };

  let buttons = [], spans = [], waiting = [];
  // A few small maps a frame, so that the page answers at once.
  const paintWaiting = () => {
    waiting.splice(0, 16).forEach((draw) => draw());
    if (waiting.length) requestAnimationFrame(paintWaiting);
  };
  const drawHeads = () => {
    const { heads } = networks[state.network], box = part("heads");
    const layers = [...new Set(heads.map((name) => name.split("-")[0]))];
    const widest = Math.max(...layers.map((l) => heads.filter((name) => name.split("-")[0] === l).length));
    box.style.gridTemplateColumns = `repeat(${widest}, minmax(2.75rem, 5rem))`;
    const text = current();
    waiting = [];
    buttons = heads.map((name, i) => {
      const button = document.createElement("button"), canvas = document.createElement("canvas");
      const [layer, head] = name.split("-").map(Number);
      button.type = "button";
      button.style.gridArea = `${layers.indexOf(String(layer)) + 1} / ${head}`;
      button.setAttribute("aria-label", `Layer ${layer}, head ${head}`);
      button.append(canvas, name);
      button.addEventListener("click", () => { state.head = i; redraw(false); });
      waiting.push(() => paint(canvas, text, i, 48));
      return button;
    });
    box.replaceChildren(...buttons);
    requestAnimationFrame(paintWaiting);
  };
  const drawWords = () => {
    const text = current();
    spans = text.labels.map((label, i) => {
      const span = document.createElement("span");
      span.textContent = label;
      if (text.special[i]) span.className = "special";
      span.dataset.i = i;
      return span;
    });
    part("words").replaceChildren(...spans.flatMap((span) => [span, " "]));
  };
  const shade = () => {
    const text = current(), shares = new Float32Array(text.labels.length);
    eachWeight(text, state.head, (row, column, byte) => {
      if ((state.to ? column : row) === state.word) shares[state.to ? row : column] = byte / 255;
    });
    const top = [...shares.keys()].filter((i) => shares[i] > 0).sort((a, b) => shares[b] - shares[a]).slice(0, 3);
    const largest = top.length ? shares[top[0]] : 1;
    spans.forEach((span, i) => {
      span.style.setProperty("--share", (shares[i] / Math.max(largest, 0.25)).toFixed(3));
      span.classList.toggle("from", i === state.word);
    });
    const name = `“${text.labels[state.word]}”`, found = top.map((i) => `“${text.labels[i]}” ${percent.format(shares[i])}`);
    part("says").textContent = `Head ${networks[state.network].heads[state.head]}: `
      + (state.to ? `most attention to ${name} is from ` : `${name} attends to `) + (found.join(", ") || "no word on this page");
  };
  const redraw = (everything) => {
    if (everything) [paper, ink] = [color("--wash"), color("--c1")];
    if (everything) { drawHeads(); drawWords(); }
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === state.head)));
    paint(part("map"), current(), state.head, 1024);
    part("corner").textContent = "Rows attend to columns, from the first word at the top left"
      + (current().kept ? `; the ${current().kept} largest weights of each row.` : ".");
    shade();
  };
  const point = (i) => { state.word = Math.min(Math.max(i, 0), spans.length - 1); shade(); };

  view.hidden = false;
  if (networks.length > 1) select("Weights", networks.map((one) => one.network), "network");
  select("Text", networks[0].texts.map(short), "text");
  select("Direction", ["what a word attends to", "what attends to a word"], "to");
  part("words").addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse" && event.target.dataset.i) point(Number(event.target.dataset.i));
  });
  part("words").addEventListener("click", (event) => {
    if (event.target.dataset.i) point(Number(event.target.dataset.i));
  });
  part("words").addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) { event.preventDefault(); point(state.word + by); }
  });
  part("map").addEventListener("pointermove", (event) => {
    const box = part("map").getBoundingClientRect();
    point(Math.floor((event.clientY - box.top) / box.height * spans.length));
  });
  new MutationObserver(() => redraw(true)).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(true));
  state.word = firstWord();
  redraw(true);
})();
