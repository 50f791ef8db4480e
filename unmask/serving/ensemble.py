"""Several fine-tuned models that answer together: the mean of what they say."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.checkpoints.huggingface import Opened
from unmask.finetuning.ask import Answer
from unmask.finetuning.kinds.catalogue import ask
from unmask.finetuning.predict import counted, given, loss, say, task_of
from unmask.finetuning.score import read_items
from unmask.finetuning.task_metrics import compute_metrics
from unmask.serving.pipeline import Pipeline, load
from unmask.tasks.task import Item, Task
from unmask.text.records import listed

KINDS = ("classify", "pairs", "regress")


class Ensemble:
    """The mean of some models' probabilities of labels, or of their numbers.

    Of ULMFiT one reads forward and one backward (Howard and Ruder 2018, arXiv:1801.06146, section
    3.3). Each model reads a text with its own tokenizer.
    """

    def __init__(self, models: Sequence[str | Path | Pipeline]) -> None:
        """Open the models, or take those that are open.

        Raises:
            FileNotFoundError: one is not there.
            ValueError: there are none, one labels no texts, or they label otherwise than the first.
        """
        self._all = [m if isinstance(m, Pipeline) else load(m) for m in models]
        if not self._all:
            raise ValueError("there are no models to ask together")
        self._tasks = [one.task or task_of(one.opened) for one in self._all]
        for one, task in zip(self._all, self._tasks, strict=True):
            if task.does not in KINDS:
                raise ValueError(
                    f"{one.card.name}: models answer together in {', '.join(KINDS)}; it was "
                    f"fine-tuned to {task.does}"
                )
            if (_does(task), sorted(task.labels)) != (_does(self.task), sorted(self.task.labels)):
                raise ValueError(
                    f"{one.card.name}: {_said(task)}, but the first {_said(self.task)}"
                )

    @property
    def opened(self) -> Opened:
        """The first of the models."""
        return self._all[0].opened

    @property
    def task(self) -> Task:
        """What the models were fine-tuned for, with the columns and labels of the first."""
        return self._tasks[0]

    @property
    def labelled(self) -> bool:
        """Whether texts are labelled: always."""
        return True

    def predict(self, texts: str | Sequence[Any]) -> list[Answer]:
        """Label texts, or pairs of texts; see `Pipeline.predict`."""
        some = [texts] if isinstance(texts, str) else list(texts)
        items = given(self.task, some)
        first = self._ask(0, items)
        return [first.answer(item, s) for item, s in zip(items, self._mean(items), strict=True)]

    def rows(self, path: str | Path, **named: Any) -> list[Any]:
        """Read what `predict` takes from a file of rows; see `Pipeline.rows`."""
        return self._all[0].rows(path, **named)

    def score(self, path: str | Path, **named: Any) -> dict[str, float]:
        """Compute all figures of what they say together, on a file; see `Pipeline.score`."""
        items = read_items(self.task, path, **named)
        first, scores = self._ask(0, items), self._mean(items)
        said = [first.truth(item, s) for item, s in zip(items, scores, strict=True)]
        return compute_metrics(self.task, items, said) | {"loss": loss(first, items, scores)}

    def _ask(self, i: int, items: Sequence[Item]) -> Any:
        one = self._all[i]
        return ask(counted(self._tasks[i], items), one.card, one.tokenizer)

    def _mean(self, items: Sequence[Item]) -> list[np.ndarray]:
        """Return for each item the mean number [1 1], or the logarithms of mean probabilities."""
        if not items:
            return []
        said: list[np.ndarray] = []
        for i, one in enumerate(self._all):
            asked = self._ask(i, items)
            scores = np.stack(say(asked, one.model, asked.questions(items)).scores)
            said.append(scores[..., self._order(i)] if self.task.labels else scores)
        if not self.task.labels:
            return list(np.mean(said, 0))
        return list(np.logaddexp.reduce(said) - np.log(len(said)))

    def _order(self, i: int) -> list[int]:
        """Say where a model has the labels of the first."""
        return [self._tasks[i].labels.index(label) for label in self.task.labels]


def _does(task: Task) -> str:
    """Name a kind of task; that of pairs may be one that its folder does not tell from texts'."""
    return "classify" if task.does == "pairs" else task.does


def _said(task: Task) -> str:
    return f"it was fine-tuned to {task.does} ({listed(task.labels) if task.labels else 'numbers'})"
