// How the score grows with the number of examples: runs of the same settings with fewer rows.
import { get, listen, post, runPath } from "../../parts/api.js";
import { button, fill, h, say, table } from "../../parts/dom.js";
import { measured, whole, words } from "../../parts/format.js";
import { deviation, growth, mean } from "./figures.js";

const SHARES = [8, 4, 2];
const LEAST_ROWS = 40;

/**
 * The part about a run with {id, record, job}: its scores, and those of runs `ID-rows-N`, which it starts.
 * Returns {element, leave()}; the element stays empty where there is nothing to say.
 */
export function learningCurve(results, { id, record, job }) {
  const rows = record?.data?.train?.rows;
  const element = h("div", {});
  if (!Number.isFinite(rows) || rows < LEAST_ROWS || !Number.isFinite(results.arms[0]?.dev?.[0]) || /-rows-\d+$/.test(id)) return { element, leave() {} };
  let turn = 0;

  async function start() {
    const { command, values } = await get(`/jobs/${job.id}/values`);
    for (const share of SHARES) {
      const n = Math.round(rows / share);
      await post("/jobs", { command, values: { ...values, rows: n, baseline: false, out: `${id}-rows-${n}` } });
    }
    say(`${SHARES.length} trainings are in the queue.`);
    await look();
  }

  async function look() {
    const mine = ++turn;
    const { runs } = await get("/runs");
    const some = runs.filter((one) => one.id.startsWith(`${id}-rows-`));
    const told = await Promise.all(some.filter((one) => one.state === "finished").map((one) => get(runPath(one.id)).catch(() => null)));
    const { jobs } = await get("/jobs");
    if (mine !== turn) return;
    const isSame = (one) => one?.results && one.record?.data?.dev?.sha256 === record.data.dev.sha256;
    const points = told.filter(isSame).map((one) => ({ x: one.record.data.train.rows, values: one.results.arms[0].dev.filter(Number.isFinite) }));
    points.push({ x: rows, values: results.arms[0].dev.filter(Number.isFinite) });
    points.sort((a, b) => a.x - b.x);
    const left = jobs.filter((one) => one.run?.startsWith(`${id}-rows-`) && !["done", "stopped", "failed"].includes(one.state)).length;
    draw(points, left);
  }

  function draw(points, left) {
    const title = `${words(results.metric)}, held out`;
    const isStarted = points.length > 1 || left > 0;
    fill(element, isStarted || job ? h("h3", {}, "Learning curve") : null,
      points.length > 1 ? [h("p", { class: "hint" }, "The score on the same held-out examples after learning from fewer. If it still rises at the right, more examples would help."),
        growth(title, points, "examples learned from"),
        h("details", {}, h("summary", {}, "As table"), table("Learning curve", ["examples", title], points.map((one) => [whole(one.x), one.values.length > 1 ? `${measured(mean(one.values))} ± ${measured(deviation(one.values))}` : measured(mean(one.values))]), { numeric: [0, 1] }))] : null,
      left ? h("p", { class: "hint", role: "status" }, `${left} ${left === 1 ? "training" : "trainings"} with fewer examples ${left === 1 ? "is" : "are"} in the queue.`) : null,
      isStarted || !job ? null : [h("p", { class: "hint" }, "Would more examples help? Train with an eighth, a quarter and a half of them, and see how the score grows."), h("p", { class: "actions" }, button("Train with fewer examples", start))]);
  }
  const end = listen("jobs", () => look().catch(() => {}));
  look().catch(() => {});
  return { element, leave: end };
}
