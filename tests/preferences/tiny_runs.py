"""Tiny random models, rows and rewards for runs of `unmask prefer`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from small_models import make

from unmask.batch import Batch
from unmask.cli import main as cli
from unmask.heads.model import Model
from unmask.jobs.finetune import finetune
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.optimizers.config import SGD
from unmask.training.run import BatchStream, TrainingForward
from unmask.training.schedules import Constant

WORDS = ("cat", "dog", "king", "fox")
PAIRS = [
    {
        "prompt": f"the {WORDS[i % 4]} sees", "chosen": f"the {WORDS[(i + i // 4) % 4]} runs",
        "rejected": f"a {WORDS[(i + 1) % 4]}",
    }
    for i in range(12)
]  # fmt: skip
LABELED = [
    {"prompt": row["prompt"], "completion": row["chosen" if i % 2 else "rejected"],
     "label": bool(i % 2)}
    for i, row in enumerate(PAIRS)
]  # fmt: skip
PROMPTS = [{"prompt": f"the {a} sees a {b}"} for a in WORDS for b in WORDS[:3]]
TEXTS = [{"text": f"the {WORDS[i % 4]} runs", "label": ("bad", "good")[i % 2]} for i in range(12)]
SIZES = {"gpt2": {"n_positions": 128}, "t5": {}, "bert": {"max_position_embeddings": 128}}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_base(family: str, folder: Path) -> Path:
    """Make a model of small random weights."""
    make(family, folder, **SIZES[family])
    return folder


def make_classifier(home: Path, name: str = "classifier", seed: int = 0) -> Path:
    """Fine-tune a classifier of texts with the labels bad and good."""
    base, data = make_base("bert", home / "bert"), write_rows(home / "texts.jsonl", TEXTS)
    finetune(
        str(base), task="classify", train=str(data), dev=str(data), out=str(home / name),
        epochs=1.0, max_length=32, seed=seed, terminal=None,
    )  # fmt: skip
    return home / name


def make_reward_model(home: Path) -> Path:
    """Fine-tune a reward model."""
    base, data = make_base("gpt2", home / "gpt2"), write_rows(home / "pairs.jsonl", PAIRS)
    finetune(
        str(base), task="prefer", train=str(data), dev=str(data), out=str(home / "reward"),
        epochs=1.0, max_length=96, terminal=None,
    )  # fmt: skip
    return home / "reward"


def prefer(*words: object) -> int:
    """Run `unmask prefer` in this process; return its exit status."""
    return cli.run(["prefer", *map(str, words)])


def gradient_step(
    model: Model, batches: BatchStream | Batch, forward: TrainingForward | None = None,
    learning_rate: float = 0.02,
) -> None:  # fmt: skip
    """Take one step of plain gradient descent."""
    recipe = Recipe(
        model="tiny", steps=1, optimizer=SGD(), learning_rate=learning_rate, schedule=Constant(),
        max_grad_norm=0.0, precision="float32",
    )  # fmt: skip
    found = batches if callable(batches) else lambda _: iter([([batches], 1)])
    run = loop.start_run(recipe, model, found, forward=forward)
    assert [report.was_skipped for report in loop.train(run)] == [False]
    loop.finish_run(run)


def weights(folder: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a folder."""
    (path,) = (p for p in folder.glob("*.safetensors") if not p.name.startswith("reference-"))
    return load_file(path)
