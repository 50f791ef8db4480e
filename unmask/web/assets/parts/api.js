// Requests to the server, and its stream of events.

/** An error of the server: one line, and the field that it is about. */
export class ApiError extends Error {
  constructor(status, line, field) {
    super(line);
    this.status = status;
    this.line = line;
    this.field = field;
  }
}

const known = new Map(); // address -> [ETag, value]: what is not changed is not sent again

async function request(method, path, body, options = {}) {
  const headers = { "X-Unmask": "1", ...options.headers };
  if (body !== undefined && !(body instanceof Blob)) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  const before = method === "GET" ? known.get(path) : undefined;
  if (before) headers["If-None-Match"] = before[0];
  let response;
  try {
    response = await fetch(`/api${path}`, { method, headers, body, signal: options.signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the server does not answer; is unmask serve still running?", null);
  }
  if (response.status === 304) return before[1];
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new ApiError(response.status, told.error ?? `the server answered ${response.status}`, told.field ?? null);
  }
  const value = await response.json();
  const tag = response.headers.get("ETag");
  if (method === "GET" && tag) known.set(path, [tag, value]);
  return value;
}

export const get = (path, options) => request("GET", path, undefined, options);
export const post = (path, body = {}, options = {}) => request("POST", path, body, options);
export const del = (path) => request("DELETE", path);

/** The address of something of a run: runPath("a/b", "series") -> "/run/series?run=a%2Fb". */
export const runPath = (id, what = "", more = {}) => `/run${what && `/${what}`}?${new URLSearchParams({ run: id, ...more })}`;

/** Send a file; `progress` is called with the part that was sent, from 0 to 1. */
export function upload(file, progress = () => {}) {
  return new Promise((resolve, reject) => {
    const sender = new XMLHttpRequest();
    sender.open("PUT", `/api/files/${encodeURIComponent(file.name)}`);
    sender.setRequestHeader("X-Unmask", "1");
    sender.responseType = "json";
    sender.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) progress(event.loaded / event.total);
    });
    sender.addEventListener("load", () => {
      if (sender.status < 300) resolve(sender.response);
      else reject(new ApiError(sender.status, sender.response?.error ?? "the file was not taken", null));
    });
    sender.addEventListener("error", () => reject(new ApiError(0, "the file was not taken", null)));
    sender.send(file);
  });
}

/** The values that a POST answers one by one, as lines of JSON; aborting the signal cancels it. */
export async function* postStream(path, body, signal) {
  const response = await fetch(`/api${path}`, {
    method: "POST", signal, body: JSON.stringify(body),
    headers: { "X-Unmask": "1", "Content-Type": "application/json" },
  });
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new ApiError(response.status, told.error ?? `the server answered ${response.status}`, told.field ?? null);
  }
  let rest = "";
  for await (const piece of decoded(response.body)) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line) continue;
      const value = JSON.parse(line);
      if (value && value.error !== undefined) throw new ApiError(400, value.error, value.field ?? null);
      yield value;
    }
  }
}

async function* decoded(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

// One stream for the whole page: every page sees the jobs, and watches some runs.
let source = null;
const listeners = { jobs: new Set(), log: new Set(), state: new Set(), connection: new Set() };
const latest = {};

/** Watch runs: [{id, log, timing}] with the bytes that are known; the stream goes on from there. */
export function watch(runs) {
  source?.close();
  const query = new URLSearchParams(runs.map((one) => ["run", one.id]));
  if (runs.length) query.set("after", runs.flatMap((one) => [one.log ?? 0, one.timing ?? 0]).join("."));
  source = new EventSource(`/api/stream?${query}`);
  for (const name of ["jobs", "log", "state"]) {
    source.addEventListener(name, (event) => {
      latest[name] = JSON.parse(event.data);
      for (const listener of [...listeners[name]]) listener(latest[name]);
    });
  }
  const connected = (is) => () => { for (const one of [...listeners.connection]) one(is); };
  source.addEventListener("open", connected(true));
  source.addEventListener("error", connected(false));
}

/** Listen to "jobs", "log", "state" or "connection"; returns a function that ends it. */
export function listen(name, listener) {
  listeners[name].add(listener);
  if (name === "jobs" && latest.jobs) listener(latest.jobs);
  return () => listeners[name].delete(listener);
}
