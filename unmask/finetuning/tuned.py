"""Tuned: a fine-tuned model, and how good it is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmask.checkpoints.huggingface import Opened
from unmask.config import to_dict
from unmask.files import whole
from unmask.finetuning.ask import Answer
from unmask.finetuning.export import write_model, write_record
from unmask.finetuning.plan import Tuning
from unmask.finetuning.predict import BATCH_TOKENS, predict
from unmask.finetuning.results import Scored
from unmask.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A fine-tuned model, and how good it is."""

    opened: Opened = field(repr=False)
    task: Task
    tuning: Tuning = field(repr=False)
    """As it was asked for, and what was decided where nothing was."""
    scored: tuple[Scored, ...]
    """Every run."""
    best: Scored
    """The run whose model this is: the best on the dev file of those under study."""
    notes: tuple[str, ...]
    """What a user should be told."""
    folder: Path | None = None

    def predict(self, texts: Sequence[Any], *, batch_tokens: int = BATCH_TOKENS) -> list[Answer]:
        """Label texts, pairs of texts or the words of sentences; see `predict.predict`."""
        return predict(self.opened, texts, task=self.task, batch_tokens=batch_tokens)

    def save(self, folder: str | Path, *, format: Literal["huggingface"] = "huggingface") -> Path:
        """Write the model into a new folder, which transformers opens, whole or not at all.

        Beside it stands what it was fine-tuned for, which `unmask.load` reads.

        Raises:
            ValueError: there is no such format, or the folder exists and holds something.
        """
        if format != "huggingface":
            raise ValueError(f"format must be 'huggingface', got {format!r}")
        path = Path(folder)
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise ValueError(f"{path}: is there already; name a new folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as beside:
            write_model(beside, self.opened, self.task, self.summary())
            write_record(beside, self.opened, {"task": to_dict(self.task)})
        return path

    def summary(self) -> list[str]:
        """Say for each arm how good it is: the mean over seeds, and their standard deviation."""
        return [
            _summary(arm, [s for s in self.scored if s.arm == arm], self.task.metric)
            for arm in dict.fromkeys(s.arm for s in self.scored)
        ]


def _summary(arm: str, scored: Sequence[Scored], metric: str) -> str:
    def over(values: Sequence[float]) -> str:
        spread = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
        return f"{np.mean(values):.4f}{spread}"

    parts = [f"dev {over([s.dev[metric] for s in scored])}"]
    if all(s.test for s in scored):
        parts.append(f"test {over([s.test[metric] for s in scored])}")
    seeds = f" ({len(scored)} seeds)" if len(scored) > 1 else ""
    return f"{arm}: {metric} {', '.join(parts)}{seeds}"
