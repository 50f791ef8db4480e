"""Ensembles: the mean prediction of several fine-tuned models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.formulation import PredictionRecord, TaskFormulation
from unmask.finetuning.results.predict import (
    infer_task,
    infer_text_columns,
    inputs_with_warnings,
    make_items,
    mean_loss,
    predict_scores,
)
from unmask.finetuning.results.score import FileOptions, read_items
from unmask.finetuning.results.task_metrics import compute_metrics
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import Task, TaskExample
from unmask.text.formats.records import format_names

ENSEMBLE_TASKS = tuple(
    name for name, kind in TASK_KINDS.items() if kind.formulation == "text_classification"
)


class Ensemble:
    """The mean of several models' label probabilities, or of their numbers.

    ULMFiT combines a forward and a backward model (Howard and Ruder 2018, arXiv:1801.06146, section
    3.3). Each model has its own tokenizer.
    """

    def __init__(self, models: Sequence[str | Path | Pipeline]) -> None:
        """Load the models, unless they are loaded.

        Raises:
            FileNotFoundError: a model is missing.
            ValueError: there are no models, one does not label texts, or its labels differ from the
                first's.
        """
        self._pipelines = [m if isinstance(m, Pipeline) else load(m) for m in models]
        if not self._pipelines:
            raise ValueError("there are no models in the ensemble")
        self._tasks = [
            pipeline.task or infer_task(pipeline.loaded_model) for pipeline in self._pipelines
        ]
        for pipeline, task in zip(self._pipelines, self._tasks, strict=True):
            if task.task_kind not in ENSEMBLE_TASKS:
                raise ValueError(
                    f"{pipeline.preset.name}: ensembles need {', '.join(ENSEMBLE_TASKS)}; "
                    f"it was fine-tuned to {task.task_kind}"
                )
            if (_comparable_kind(task), sorted(task.labels)) != (
                _comparable_kind(self.task),
                sorted(self.task.labels),
            ):
                raise ValueError(
                    f"{pipeline.preset.name}: {_describe_task(task)}, but the first "
                    f"{_describe_task(self.task)}"
                )

    @property
    def loaded_model(self) -> LoadedModel:
        """The first of the models."""
        return self._pipelines[0].loaded_model

    @property
    def task(self) -> Task:
        """The task of the models, with the columns and labels of the first."""
        return self._tasks[0]

    @property
    def can_predict(self) -> bool:
        """Always true: ensembles label texts."""
        return True

    def predict(self, texts: str | Sequence[Any]) -> list[PredictionRecord]:
        """Label texts, or pairs of texts; see `Pipeline.predict`."""
        some = [texts] if isinstance(texts, str) else list(texts)
        items = make_items(self.task, some)
        first = self._formulation_of(0, items)
        scores = self._mean_scores(items)
        return [first.prediction_record(item, s) for item, s in zip(items, scores, strict=True)]

    def read_inputs(self, path: str | Path, **options: Any) -> list[Any]:
        """Read inputs of `predict` from a file of rows; see `Pipeline.read_inputs`."""
        return self._pipelines[0].read_inputs(path, **options)

    def score(self, path: str | Path, **options: Any) -> dict[str, float]:
        """Compute all metrics of the ensemble on a file; see `Pipeline.score`."""
        items = read_items(self.task, path, FileOptions(**options))
        first, scores = self._formulation_of(0, items), self._mean_scores(items)
        predictions = [first.prediction(item, s) for item, s in zip(items, scores, strict=True)]
        return compute_metrics(self.task, items, predictions) | {
            "loss": mean_loss(first, items, scores)
        }

    def _formulation_of(self, model_index: int, items: Sequence[TaskExample]) -> TaskFormulation:
        pipeline = self._pipelines[model_index]
        return formulate(
            infer_text_columns(self._tasks[model_index], items), pipeline.preset, pipeline.tokenizer
        )

    def _mean_scores(self, items: Sequence[TaskExample]) -> list[np.ndarray]:
        """Return for each item the mean number [1 1], or the logarithms of mean probabilities."""
        if not items:
            return []
        all_scores: list[np.ndarray] = []
        for i, pipeline in enumerate(self._pipelines):
            formulation = self._formulation_of(i, items)
            inputs = inputs_with_warnings(formulation, items, pipeline.tokenizer)
            scores = np.stack(predict_scores(formulation, pipeline.model, inputs).scores)
            all_scores.append(scores[..., self._label_order(i)] if self.task.labels else scores)
        if not self.task.labels:
            return list(np.mean(all_scores, 0))
        return list(np.logaddexp.reduce(all_scores) - np.log(len(all_scores)))

    def _label_order(self, model_index: int) -> list[int]:
        """Return the indices of the first model's labels in another model."""
        return [self._tasks[model_index].labels.index(label) for label in self.task.labels]


def _comparable_kind(task: Task) -> str:
    """Return the kind of task for comparison; folders may not distinguish pairs from texts."""
    return "classify" if task.task_kind == "pairs" else task.task_kind


def _describe_task(task: Task) -> str:
    labels = format_names(task.labels) if task.labels else "numbers"
    return f"it was fine-tuned to {task.task_kind} ({labels})"
