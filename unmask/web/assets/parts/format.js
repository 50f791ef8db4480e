// Numbers, times and sizes for people.

const numbers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 12,345 */
export const whole = (n) => (Number.isFinite(n) ? numbers.format(Math.round(n)) : "–");

/** 3.4 M parameters, 12 k steps */
export function short(n) {
  if (!Number.isFinite(n)) return "–";
  for (const [size, unit] of [[1e12, " T"], [1e9, " B"], [1e6, " M"], [1e3, " k"]]) {
    if (Math.abs(n) >= size) return `${Number((n / size).toPrecision(3))}${unit}`;
  }
  return String(Number(n.toPrecision(3)));
}

/** A measured number: four digits that count. */
export function measured(n) {
  if (!Number.isFinite(n)) return "–";
  if (n !== 0 && Math.abs(n) < 1e-3) return n.toExponential(2);
  return Math.abs(n) >= 1e5 ? short(n) : String(Number(n.toPrecision(4)));
}

export const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : "–");

/** 1:05, 3:25:00 */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const all = Math.max(Math.round(seconds), 0);
  const [hours, minutes, rest] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  const two = (n) => String(n).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** 12 kB, 3.4 MB */
export function bytes(n) {
  if (!Number.isFinite(n)) return "–";
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (n >= size) return `${Number((n / size).toPrecision(3))} ${unit}`;
  }
  return `${n} bytes`;
}

/** "just now", "5 minutes ago", "Nov 27, 14:05" */
export function when(timestamp, now = Date.now() / 1000) {
  if (!Number.isFinite(timestamp)) return "–";
  const age = now - timestamp;
  if (age < 45) return "just now";
  if (age < 3600) return `${Math.max(Math.round(age / 60), 1)} min ago`;
  if (age < 86400) return `${Math.round(age / 3600)} h ago`;
  return new Date(1000 * timestamp).toLocaleString("en", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });
}

/** Words of a name: "gradient_norm" -> "gradient norm" */
export const words = (name) => name.replaceAll("_", " ").replaceAll(".", " ");

/** The number of what was typed: 1,500 and 1_500 are 1500, and 2,5 is 2.5; null: it is none. */
export function numberOf(text) {
  let plain = text.trim().replaceAll("_", "").replace(/[\s\u00a0\u202f](?=\d{3}\b)/g, "");
  plain = /^-?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$/.test(plain) ? plain.replaceAll(",", "") : plain.replace(/^(-?\d*),(\d+)$/, "$1.$2");
  return plain && Number.isFinite(Number(plain)) ? Number(plain) : null;
}
