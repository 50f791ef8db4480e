"""FinetunedModel: a fine-tuned model and its scores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import to_dict
from unmask.files import atomic_path
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.formulations.formulation import PredictionRecord
from unmask.finetuning.results.predict import DEFAULT_BATCH_TOKENS, predict
from unmask.finetuning.results.predict_pictures import predict_pictures
from unmask.finetuning.results.report import RunResult
from unmask.finetuning.results.save_model import write_model, write_model_record
from unmask.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class FinetunedModel:
    """A fine-tuned model and its scores."""

    loaded_model: LoadedModel = field(repr=False)
    task: Task
    config: FinetuneConfig = field(repr=False)
    """The resolved configuration."""
    run_results: tuple[RunResult, ...]
    """Results of all runs."""
    best_run: RunResult
    """The run of this model: the best on the dev file, not counting the baseline."""
    notes: tuple[str, ...]
    """Notes and warnings for the user."""
    folder: Path | None = None

    def predict(
        self, texts: str | Iterable[Any], *, batch_tokens: int = DEFAULT_BATCH_TOKENS
    ) -> list[PredictionRecord]:
        """Label one text or several, pairs of texts, or lists of words; see `Pipeline.predict`."""
        items = [texts] if isinstance(texts, str) else list(texts)
        if not self.loaded_model.preset.reads_texts:
            return predict_pictures(self.loaded_model, items, self.task, batch_tokens)
        return predict(self.loaded_model, items, task=self.task, batch_tokens=batch_tokens)

    def save(self, folder: str | Path, *, format: Literal["huggingface"] = "huggingface") -> Path:
        """Write the model into a new folder, which transformers opens, whole or not at all.

        The folder also has the record of the task, which `unmask.load` reads.

        Raises:
            ValueError: there is no such format, or the folder exists and holds something.
        """
        if format != "huggingface":
            raise ValueError(f"format must be 'huggingface', got {format!r}")
        path = Path(folder)
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise ValueError(f"{path}: is there already; name a new folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as beside:
            write_model(beside, self.loaded_model, self.task, self.summary())
            write_model_record(beside, self.loaded_model, {"task": to_dict(self.task)})
        return path

    def summary(self) -> list[str]:
        """Return a line for each arm: the mean over seeds, and the standard deviation."""
        return [
            _summarize_arm(arm, [s for s in self.run_results if s.arm == arm], self.task.metric)
            for arm in dict.fromkeys(s.arm for s in self.run_results)
        ]


def _summarize_arm(arm: str, run_results: Sequence[RunResult], metric: str) -> str:
    def over(values: Sequence[float]) -> str:
        spread = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
        return f"{np.mean(values):.4f}{spread}"

    parts = [f"held out {over([s.dev[metric] for s in run_results])}"]
    if all(s.test for s in run_results):
        parts.append(f"test {over([s.test[metric] for s in run_results])}")
    seeds = f" ({len(run_results)} seeds)" if len(run_results) > 1 else ""
    return f"{arm}: {metric} {', '.join(parts)}{seeds}"
