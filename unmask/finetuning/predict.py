"""What a fine-tuned model says of new texts."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask.adapters.prefix import reader, taken
from unmask.checkpoints.huggingface import Opened
from unmask.config import from_dict
from unmask.files import read_json
from unmask.finetuning.ask import (
    CHOICE,
    LABEL,
    SPANS,
    TOKEN_LABEL,
    Answer,
    Ask,
    Question,
    Scores,
    check_length,
)
from unmask.finetuning.kinds.catalogue import TASK_KINDS, ask
from unmask.heads.labels import AnyOf, Labels
from unmask.heads.model import Model
from unmask.hiding.collate import by_size, pad, size
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_files import find_text_or_pair
from unmask.tasks.task import Columns, Item, Task
from unmask.text.records import listed

_log = logging.getLogger(__name__)

FACTS = "unmask.json"
BATCH_TOKENS = 8192
"""Tokens, padding included, that go through the model at once."""
ROWS = 256
"""Texts that go through the model at once, at most."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a model says of some items."""

    scores: Sequence[Scores]
    """Of each item; what they mean the task knows."""
    n_cut: int = 0
    """Items that were too long: texts are cut, sentences to be tagged read in parts."""


def read_task(folder: Path) -> Task | None:
    """Read what the model of a folder was fine-tuned for; None where the folder does not say.

    Raises:
        ValueError: `unmask.json` is damaged, or says something else than a task.
    """
    path = folder / FACTS
    if not path.is_file():
        return None
    try:
        facts = read_json(path)
        task = facts.get("task") if isinstance(facts, dict) else None
        return None if task is None else from_dict(Task, task, "task")
    except ValueError as error:  # not JSON, or not UTF-8, or no task
        raise ValueError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def task_of(opened: Opened) -> Task:
    """Say what a model with a head of labels does, which another library fine-tuned.

    Raises:
        ValueError: it has no such head.
    """
    specs = opened.model.specs
    spec = specs.get(LABEL)
    length = check_length(opened.card, None, taken(opened.model, reader(opened.model)))
    if TOKEN_LABEL in specs:
        return Task(
            does="tag", columns=Columns(texts=("words",), label="tags"), labels=opened.labels,
            length=length, metric="token_accuracy",
        )  # fmt: skip
    if SPANS in specs:
        return Task(
            does="answer", columns=Columns(texts=("question", "context"), label="answers"),
            length=length, metric="answer_f1",
        )  # fmt: skip
    if CHOICE in specs:
        return Task(
            does="choose", length=length,
            columns=Columns(texts=("context", "question"), label="label", choices=("choices",)),
        )  # fmt: skip
    if not isinstance(spec, Labels):
        raise ValueError(
            f"{opened.card.name} has no head that labels texts; fine-tune it first "
            f"(heads: {', '.join(specs) or 'none'})"
        )
    columns = Columns(texts=(), label="label")
    reads = {"pool": spec.pool, "layers": spec.layers}
    if spec.n_labels == 1:
        return Task(
            does="regress", columns=columns, length=length, metric="pearson", options=reads
        )  # fmt: skip
    if isinstance(spec.loss, AnyOf):
        return Task(
            does="multilabel", columns=columns, labels=opened.labels, length=length,
            metric="micro_f1", options=reads,
        )  # fmt: skip
    return Task(
        does="classify", columns=columns, labels=opened.labels, length=length, options=reads
    )  # fmt: skip


def predict(
    opened: Opened,
    texts: Sequence[Any],
    *,
    task: Task | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> list[Answer]:
    """Label texts, pairs of texts, or the words of sentences.

    What the model says of a text depends on no other text. (Padding is not seen; rounding differs
    with the shape of a batch, by less than 1e-5 in the logarithm of a probability.) Too long texts
    are cut, as in training.

    Args:
        opened: a model with a head of labels, or an encoder-decoder that was fine-tuned.
        texts: texts; or pairs of texts; or lists of words for a model that tags; see the kinds of
            tasks for others.
        task: what `read_task` found in its folder. None: what the head says.
        batch_tokens: tokens that go through the model at once.

    Raises:
        ValueError: the model has no tokenizer or labels nothing, or a text is not what its task
            takes.
    """
    if opened.tokenizer is None:
        raise ValueError(f"{opened.card.name} has no tokenizer, which reading text needs")
    if len(texts) == 0:
        return []
    task = task_of(opened) if task is None else task
    items = given(task, texts)
    asked = ask(counted(task, items), opened.card, opened.tokenizer)
    said = say(asked, opened.model, asked.questions(items), batch_tokens)
    return [asked.answer(item, scores) for item, scores in zip(items, said.scores, strict=True)]


def given(task: Task, texts: Sequence[Any]) -> list[Item]:
    """Make items of what a task takes.

    Raises:
        ValueError: one is something else.
    """
    made = TASK_KINDS[task.does].files.given
    items = [made(task, text, f"text {i}") for i, text in enumerate(texts, 1)]
    if any(not any(map(str.strip, (*item.texts, *item.options))) for item in items):
        _log.warning("an empty text is answered too; what is said of it rests on no word")
    return items


def counted(task: Task, items: Sequence[Item]) -> Task:
    """Return a task with as many columns of text as items have texts, where it does not say them.

    Raises:
        ValueError: some have one text and some two.
    """
    if task.columns.texts or not items:
        return task
    n = len(items[0].texts)
    odd = next((item for item in items if len(item.texts) != n), None)
    if odd is not None:
        what, first = ("a text", "pairs") if n == 2 else ("a pair of texts", "texts")
        raise ValueError(
            f"{odd.where} is {what} (in a line, a tab stands between two), and those before it are "
            f"{first}: the model's folder does not say which it reads, so all must be alike"
        )
    return of_texts(task, ("text",) if n == 1 else ("text1", "text2"))


def of_texts(task: Task, texts: tuple[str, ...]) -> Task:
    """Return a task whose texts are in these columns."""
    does = "pairs" if task.does == "classify" and len(texts) == 2 else task.does
    return replace(task, does=does, columns=replace(task.columns, texts=texts))


def named(task: Task, table: Table, text: Sequence[str] = (), choices: Sequence[str] = ()) -> Task:
    """Return a task whose texts and options are in the columns that are named.

    Where none are named and the task does not say them, they are found by customary names, and that
    is said of two.

    Raises:
        ValueError: there is no such column, or there are fewer or more than the task reads.
    """
    for name in (*text, *choices):
        table.check(name)
    if choices and task.does != "choose":
        raise ValueError(
            f"choices are of a model that chooses, and it was fine-tuned to {task.does}"
        )
    own = task.columns
    counts = (len(own.texts),) if own.texts else (1, 2)
    if text and task.does != "choose" and len(text) not in counts:
        raise ValueError(
            f"{table.path}: the model reads {' or '.join(map(str, counts))} columns of text, got "
            f"{len(text)}: {listed(text)}"
        )
    found = tuple(text) or own.texts
    if not found:
        found = find_text_or_pair(table)
        if len(found) == 2:
            _log.warning(
                "%s: pairs are read, of %r and %r; --text names other columns", table.path, *found
            )
    task = of_texts(task, found)
    return replace(task, columns=replace(task.columns, choices=tuple(choices) or own.choices))


@torch.no_grad()
def say(
    asked: Ask, model: Model, questions: Sequence[Question], batch_tokens: int = BATCH_TOKENS
) -> Said:
    """Ask a model questions: similar lengths together, the answers in the order of the items.

    The model is left in the mode in which it was.
    """
    parts: list[Any] = [None] * len(questions)
    training = model.training
    model.eval()
    try:
        for group in by_size([size(q.example) for q in questions], batch_tokens, ROWS):
            some = [questions[i] for i in group]
            batch = model.roomy(pad([q.example for q in some], asked.special))
            batch = batch.to(model.device)
            for i, scores in zip(group, asked.scores(model, batch, some), strict=True):
                _check(scores)
                parts[i] = scores
    finally:
        model.train(training)
    places: dict[int, list[int]] = {}
    for i, question in enumerate(questions):
        places.setdefault(question.item, []).append(i)
    return Said(
        scores=[
            asked.joined([questions[i] for i in some], [parts[i] for i in some])
            for _, some in sorted(places.items())
        ],
        n_cut=len({q.item for q in questions if q.cut}),
    )


def _check(scores: Any) -> None:
    """Check what was said of an item, where it is numbers.

    Raises:
        FloatingPointError: one is none.
    """
    numbers = np.asarray(scores) if isinstance(scores, np.ndarray | float) else np.zeros(0)
    odd = numbers.dtype.kind == "f" and (np.isnan(numbers) | np.isposinf(numbers)).any()
    if odd:
        raise FloatingPointError(
            "what the model says is not finite: it has diverged, and a lower rate may help, or its "
            "weights or configuration are damaged"
        )


def loss(asked: Ask, items: Sequence[Item], scores: Sequence[Scores]) -> float:
    """Compute the mean loss of answers: in nats, or the squared error of numbers; 0 of nothing."""
    total, n = 0.0, 0
    for item, said in zip(items, scores, strict=True):
        one, places = asked.loss(item, said)
        total += one
        n += places
    return total / n if n else 0.0
