"""Preference optimization by a reward, judged by another one: reward against divergence.

    python benchmarks/preferences.py --model LM --reward A:positive --judge B:positive
        --train prompts.jsonl --dev held-out-prompts.jsonl --text held-out.txt --out runs/frontier
        [--seeds 3] [--arms "dpo=dpo:beta=0.1" "ppo=ppo:kl_weight=0.1" ...] [--epochs 1]
        [--rate 5e-5] [--length 48] [--candidates 4]

The controlled sentiment of Rafailov et al. 2023, arXiv:2305.18290, section 6.1, with models of your
own: the model continues each prompt several times, reward A orders the continuations, and the best
and the worst, then the second best and the second worst, form pairs. Methods of pairs learn from
these; ppo, rloo and best_of_n learn from A itself. `sft` learns the better ones as targets (ORPO
with a weight of 0). Best-of-n of the unchanged model is measured beside them; its divergence is at
most log n - (n - 1) / n nats (Beirami et al. 2024, arXiv:2401.01879).

For each run: the share of continuations of the held-out prompts that judge B finds positive, B's
mean log-odds, the divergence from the unchanged model, length, distinct-2, and the loss on held-out
text in nats a token. Finished runs are not repeated. Writes measures.json, table.md, frontier.svg.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unmask
from unmask.adapters.folder import open_model_or_adapter
from unmask.batch import Example
from unmask.batching.collate import pad_examples
from unmask.preferences.config import PreferConfig
from unmask.preferences.job.prepare import PreferJob, prepare_prefer_job
from unmask.preferences.methods import RejectionSampling
from unmask.preferences.online.rollouts import Rollout, rewards_of, write_responses
from unmask.preferences.responses import score_tokens
from unmask.reports.charts.scatter import ScatterPoint, draw_scatter
from unmask.tasks.metrics.responses.diversity import distinct_n
from unmask.training.device import distributed

ARMS = (
    "sft=orpo:beta=1e-9", "dpo=dpo:beta=0.1", "dpo-0.03=dpo:beta=0.03",
    "ipo=ipo:beta=5", "kto=kto:beta=0.1", "orpo=orpo:beta=1", "ppo=ppo:kl_weight=0.1",
    "rloo=rloo:kl_weight=0.1", "best-of-8-learned=best_of_n:responses=8",
)  # fmt: skip
BEST_OF = (1, 2, 4, 8, 16)
SHOWN = ("positive", "judge", "kl", "length", "distinct_2", "text_loss")


def write_json(path: Path, value: Any) -> None:
    """Write plain data whole."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(value, indent=1) + "\n", "utf-8")
    beside.rename(path)


def open_job(options: argparse.Namespace, world: distributed.World) -> PreferJob:
    """Open model, prompts, reward and judge."""
    config = PreferConfig(
        base=options.model, train=str(options.train), dev=str(options.dev), reads="all",
        method=RejectionSampling(), reward=options.reward, judge=options.judge,
        chat_template="none", max_response_length=options.length,
    )  # fmt: skip
    return prepare_prefer_job(config, options.out, world, 1, None)


def make_pairs(options: argparse.Namespace, job: PreferJob, split: str) -> Path:
    """Write pairs of continuations of the prompts of a split, ordered by the reward."""
    path = options.out / f"pairs-{split}.jsonl"
    if path.is_file():
        return path
    assert job.reward is not None
    model, n = job.build_model(), options.candidates
    lines: list[str] = []
    own = job.train if split == "train" else job.dev
    for start in range(0, len(own.rows), 64):
        part = slice(start, start + 64)
        rows = [row for row in own.rows[part] for _ in range(n)]
        prompts = [one for one in own.prompts[part] for _ in range(n)]
        rollouts = write_responses(model, job.formulation, rows, prompts, start)
        rewards = rewards_of(rollouts, job.reward).reshape(-1, n)
        for i, order in enumerate(np.argsort(-rewards, axis=1, kind="stable")):
            texts = [rollouts[i * n + int(k)].text for k in order]
            prompt = rows[i * n].prompt[0].content
            for better, worse in zip(texts[: n // 2], texts[::-1], strict=False):
                row = {"prompt": prompt, "chosen": better, "rejected": worse}
                lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    path.write_text("".join(lines), "utf-8")
    return path


def text_rows(job: PreferJob, path: Path, n_texts: int = 200, length: int = 128) -> list[Example]:
    """Return rows of held-out text."""
    tokenizer, found = job.formulation.tokenizer, list[Example]()
    for line in path.read_text("utf-8").splitlines()[:n_texts]:
        (ids,) = tokenizer.encode_ids_batch([line])
        ids = ids[: length + 1]
        if len(ids) > 1:
            found.append(Example(inputs=ids[:-1], targets=ids[1:], rank=np.arange(len(ids) - 1)))
    return found


@torch.no_grad()
def text_loss(folder: str | Path, rows: Sequence[Example], job: PreferJob) -> float:
    """Compute the loss of a model on held-out text, in nats a token."""
    model = open_model_or_adapter(Path(folder)).model.eval()
    total, n = 0.0, 0
    for start in range(0, len(rows), 32):
        batch = pad_examples(rows[start : start + 32], job.formulation.special_ids)
        scored = score_tokens(model, batch).log_probabilities
        total, n = total - float(scored.sum()), n + len(scored)
    return total / n


def best_of_n(job: PreferJob) -> dict[str, dict[str, float]]:
    """Measure best-of-n of the unchanged model on the held-out prompts."""
    assert job.reward is not None
    assert job.judge is not None
    model, most = job.build_model(), max(BEST_OF)
    rows = [row for row in job.dev.rows for _ in range(most)]
    prompts = [one for one in job.dev.prompts for _ in range(most)]
    rollouts = write_responses(model, job.formulation, rows, prompts, 7)
    rewards = rewards_of(rollouts, job.reward)
    verdicts = job.judge([one.prompt for one in rollouts], [one.text for one in rollouts])
    found: dict[str, dict[str, float]] = {}
    for n in BEST_OF:
        best = rewards.reshape(-1, most)[:, :n].argmax(1) + most * np.arange(len(job.dev.rows))
        found[f"best of {n}"] = {
            **of_responses([rollouts[i] for i in best.tolist()], verdicts[best]),
            "kl": float(np.log(n) - (n - 1) / n),
        }
    return found


def of_responses(rollouts: Sequence[Rollout], verdicts: np.ndarray) -> dict[str, float]:
    """Return what is measured of continuations."""
    return {
        "positive": 100 * float((verdicts > 0).mean()),
        "judge": float(verdicts.mean()),
        "length": float(np.mean([one.length for one in rollouts])),
        "distinct_2": distinct_n([one.text for one in rollouts], 2),
    }


def train_arm(
    options: argparse.Namespace, name: str, method: str, seed: int, pairs: tuple[Path, Path]
) -> dict[str, float]:
    """Train one arm with one seed, unless it has been; return its measures."""
    folder = options.out / f"{name}-{seed}"
    is_online = method.startswith(("ppo", "rloo", "best_of_n"))
    if not (folder / "measures.json").is_file():
        unmask.prefer(
            options.model, train=options.train if is_online else pairs[0],
            dev=options.dev if is_online else pairs[1], out=folder, method=method, reads="all",
            reward=options.reward, judge=options.judge, chat_template="none", seed=seed,
            epochs=options.online_epochs if is_online else options.epochs,
            learning_rate=options.rate, batch_size=options.batch, dev_prompts=options.dev_prompts,
            max_response_length=options.length, evaluate_every=10**6,
            resume=(folder / "unmask.json").is_file(),
        )  # fmt: skip
    after = json.loads((folder / "measures.json").read_text("utf-8"))["after"]
    lines = (folder / "responses.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    positive = 100 * float(np.mean([row["judge_after"] > 0 for row in rows]))
    lengths = after.get("written_length", after["length"])
    return {
        "positive": positive, "judge": after["judge"], "kl": after["kl"], "length": lengths,
        "distinct_2": after["distinct_2"],
    }  # fmt: skip


def table(found: dict[str, list[dict[str, float]]]) -> str:
    """Return the measures as a Markdown table: means, and standard deviations over seeds."""
    lines = [
        "| method | " + " | ".join(SHOWN) + " |",
        "| --- |" + " ---: |" * len(SHOWN),
    ]
    for name, runs in found.items():
        cells: list[str] = []
        for key in SHOWN:
            values = [run[key] for run in runs if key in run]
            text = f"{statistics.mean(values):.2f}" if values else ""
            if len(values) > 1:
                text += f" ± {statistics.stdev(values):.2f}"
            cells.append(text)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(found: dict[str, list[dict[str, float]]]) -> str:
    """Draw the judge's share against the divergence; best-of-n is a line."""
    points = [
        ScatterPoint(
            name=name,
            x=statistics.mean(run["kl"] for run in runs),
            y=statistics.mean(run["positive"] for run in runs),
            is_joined=name.startswith("best of "),
        )
        for name, runs in found.items()
    ]
    return draw_scatter(
        "Reward against divergence", "divergence from the unchanged model, nats",
        "positive by the judge, %", points,
    )  # fmt: skip


def main() -> None:
    """Sample pairs, train each arm, and write the table and the picture as runs end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--reward", required=True)
    parser.add_argument("--judge", required=True)
    for name in ("--train", "--dev", "--text", "--out"):
        parser.add_argument(name, required=True, type=Path)
    parser.add_argument("--arms", nargs="*", default=ARMS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--online-epochs", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--dev-prompts", type=int, default=200)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, float]]] = {}
    with distributed.process_group("auto") as world:
        job = open_job(options, world)
    pairs = make_pairs(options, job, "train"), make_pairs(options, job, "dev")
    held_out = text_rows(job, options.text)
    path = options.out / "best-of-n.json"
    if not path.is_file():
        write_json(path, best_of_n(job))
    for name, one in json.loads(path.read_text("utf-8")).items():
        found[name] = [one]
    found["best of 1"][0]["text_loss"] = text_loss(options.model, held_out, job)
    for seed in options.seeds:
        for arm in options.arms:
            name, _, method = arm.partition("=")
            measures = train_arm(options, name, method, seed, pairs)
            measures["text_loss"] = text_loss(options.out / f"{name}-{seed}", held_out, job)
            found.setdefault(name, []).append(measures)
            write_json(options.out / "measures-of-arms.json", found)
            (options.out / "table.md").write_text(table(found), "utf-8")
            (options.out / "frontier.svg").write_text(draw(found), "utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
