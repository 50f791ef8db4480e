"""A fine-tuned model as a folder that other libraries open."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from unmask.checkpoints.huggingface import Opened, config_of, write_folder
from unmask.finetuning.ask import LANGUAGE
from unmask.finetuning.kinds.catalogue import TASK_KINDS
from unmask.finetuning.tasks import Task

_PIPELINES = {"label": "text-classification", "token_label": "token-classification"}


def put(folder: Path, opened: Opened, task: Task, figures: Sequence[str]) -> None:
    """Write a model into a folder that holds other files: each file whole, config.json last."""
    beside = folder / ".final"
    if beside.exists():
        shutil.rmtree(beside)
    write_model(beside, opened, task, figures)
    for path in sorted(beside.iterdir(), key=lambda p: (p.name == "config.json", p.name)):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.replace(folder / path.name)
    beside.rmdir()


def write_model(folder: Path, opened: Opened, task: Task, figures: Sequence[str]) -> None:
    """Write the model in the Hugging Face layout, and a card; the caller makes the folder whole.

    Args:
        folder: made if it is not there.
        opened: the model.
        task: what it does.
        figures: lines for the card: how it was made, how good it is.
    """
    problem = TASK_KINDS[task.does].problem
    write_folder(
        folder,
        opened.model,
        opened.card,
        opened.tokenizer,
        opened.labels,
        problem=problem if opened.labels else None,
    )
    (folder / "README.md").write_text(_card(opened, task, figures), encoding="utf-8")


def _card(opened: Opened, task: Task, figures: Sequence[str]) -> str:
    """Write what a stranger must know before using these weights."""
    kind = config_of(opened.model, opened.card)["architectures"][0]
    head = next(iter(opened.model.specs))
    lines = [
        "---",
        "library_name: transformers",
        "tags: [unmask]",
        f"pipeline_tag: {_PIPELINES.get(head, 'text2text-generation')}",
        "---",
        f"# {opened.card.name}, fine-tuned to {task.does}",
        "",
        f"A {kind} with {opened.model.parameter_count():,} parameters, made with Unmask.",
        "",
        *(f"- {line}" for line in figures),
    ]
    if task.labels:
        lines.append(f"- labels: {', '.join(task.labels)}")
    if head == LANGUAGE:
        lead = " ".join(f"{name}: ..." for name in task.columns.texts)
        lines.append(f"- it reads `{task.name} {lead}` and says a label")
    return "\n".join(lines) + "\n"
