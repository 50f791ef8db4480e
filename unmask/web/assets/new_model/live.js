// Questions to the worker while a user types: one a moment after the last key, late answers dropped.
import { post } from "../parts/api.js";

/**
 * `ask(question, signal)` gives an answer; `show(answer, question)`, `fail(error)` and `busy(is)`
 * are told of the last question only. The same question is not asked twice in a row.
 */
export function live(ask, { show, fail, busy = () => {}, wait = 400 }) {
  let turn = 0;
  let timer = null;
  let control = null;
  let before = null;
  async function go(question, mine) {
    control = new AbortController();
    try {
      const answer = await ask(question, control.signal);
      if (mine === turn) show(answer, question);
    } catch (error) {
      if (mine !== turn || error.name === "AbortError") return;
      before = null;
      fail(error);
    } finally {
      if (mine === turn) busy(false);
    }
  }
  function stop() {
    turn += 1;
    clearTimeout(timer);
    control?.abort();
  }
  return {
    change(question) {
      const text = JSON.stringify(question);
      if (text === before) return;
      stop();
      before = text;
      busy(true);
      const mine = turn;
      timer = setTimeout(() => go(question, mine), wait);
    },
    forget() { stop(); before = null; busy(false); },
    stop,
  };
}

/**
 * Whether a run would take its options: `told(problem)`, null where it would, a moment after the
 * last `change(values)`. `now(values)` gives the problem at once.
 */
export function optionCheck(command, told) {
  const ask = async (values, signal) => (await post("/call/check_options", { command, values }, { signal })).problem;
  const soon = live(ask, { show: told, fail: () => {}, wait: 500 }); // where it is not known, the run tells
  return { change: soon.change, stop: soon.stop, now: (values) => ask(values).catch(() => null) };
}

/** An answer that stays the same while the page is open. */
export function once(ask) {
  const kept = new Map();
  return (...values) => {
    const key = JSON.stringify(values);
    if (!kept.has(key)) {
      const promise = ask(...values);
      promise.catch(() => kept.delete(key));
      kept.set(key, promise);
    }
    return kept.get(key);
  };
}
