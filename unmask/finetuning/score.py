"""How good a model's answers are on labelled items, or on a labelled file."""

import math
from collections.abc import Sequence
from pathlib import Path

from unmask.checkpoints.huggingface import Opened
from unmask.finetuning.ask import Ask, Question, Settling
from unmask.finetuning.kinds.catalogue import TASK_KINDS, ask
from unmask.finetuning.predict import BATCH_TOKENS, counted, loss, named, say, task_of
from unmask.finetuning.task_metrics import compute_metrics
from unmask.heads.model import Model
from unmask.tasks.readers import tables
from unmask.tasks.task import Item, Task
from unmask.text.lines import EncodingErrors


def score(
    asked: Ask,
    model: Model,
    items: Sequence[Item],
    questions: Sequence[Question],
    batch_tokens: int = BATCH_TOKENS,
) -> dict[str, float]:
    """Compute all figures of a model's answers about items, and its loss.

    Raises:
        FloatingPointError: the model says numbers that are none.
    """
    said = say(asked, model, questions, batch_tokens)
    how_far = loss(asked, items, said.scores)
    if not math.isfinite(how_far):
        raise FloatingPointError(
            "what the model says is not finite: it has diverged; a lower rate may help"
        )
    answers = [asked.truth(item, s) for item, s in zip(items, said.scores, strict=True)]
    return compute_metrics(asked.task, items, answers) | {"loss": how_far}


def settled(asked: Ask, model: Model, items: Sequence[Item], questions: Sequence[Question]) -> Ask:
    """Settle what a finished model's answers to the dev file decide; of most tasks nothing."""
    if not isinstance(asked, Settling):
        return asked
    return asked.settled(items, say(asked, model, questions).scores)


def score_file(
    opened: Opened,
    path: str | Path,
    *,
    task: Task | None = None,
    text: Sequence[str] = (),
    label: str | None = None,
    choices: Sequence[str] = (),
    columns: Sequence[str] = (),
    encoding_errors: EncodingErrors = "strict",
    batch_tokens: int = BATCH_TOKENS,
) -> dict[str, float]:
    """Score a fine-tuned model on a labelled file.

    Args:
        opened: a model with a head of labels, or an encoder-decoder that was fine-tuned.
        path: of the file.
        task: what `read_task` found in the model's folder. None: what its head says.
        text: columns of text. None named: those of the task, or customary ones.
        label: the column of labels. None: that of the task, or a customary one.
        choices: columns of options. None named: likewise.
        columns: names of all columns, for a file without a header.
        encoding_errors: what becomes of bytes that are no UTF-8.
        batch_tokens: tokens that go through the model at once.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file or a label in it is not what the model takes, with file and line.
    """
    if opened.tokenizer is None:
        raise ValueError(f"{opened.card.name} has no tokenizer, which reading text needs")
    task = task_of(opened) if task is None else task
    items = read_items(
        task,
        path,
        text=text,
        label=label,
        choices=choices,
        columns=columns,
        encoding_errors=encoding_errors,
    )
    asked = ask(counted(task, items), opened.card, opened.tokenizer)
    return score(asked, opened.model, items, asked.questions(items), batch_tokens)


def read_items(
    task: Task,
    path: str | Path,
    *,
    text: Sequence[str] = (),
    label: str | None = None,
    choices: Sequence[str] = (),
    columns: Sequence[str] = (),
    encoding_errors: EncodingErrors = "strict",
) -> list[Item]:
    """Read a labelled file for a task; the arguments are those of `score_file`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file or a label in it is not what the task takes, with file and line.
    """
    tagged = TASK_KINDS[task.does].files.tagged
    table = tables.read(path, header=tuple(columns), tagged=tagged, errors=encoding_errors)
    task = named(task, table, text, choices)
    kind, own = TASK_KINDS[task.does], task.columns
    files = kind.files
    texts = own.texts if text or all(map(table.has, own.texts)) else ()
    if label is None and own.label in table.columns:
        label = own.label
    found = files.columns(table, texts, label, own.choices)
    items = files.items(table, found, encoding_errors, known=True, options=task.options)
    kind.check(items, task.labels, found.label)
    if not items:
        raise ValueError(f"{path}: no sentence has a word")
    return items
