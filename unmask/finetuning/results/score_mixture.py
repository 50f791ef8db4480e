"""Scores of a model that answers instructions on the tasks of a mixture, each by its own metric.

The tasks need not be those that were learned: on held-out ones, what instructions taught of
following instructions is measured (Wei et al. 2021, arXiv:2109.01652, section 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.finetuning.data.instruction_mixture import read_instruction_mixture
from unmask.finetuning.results.predict import inputs_with_warnings
from unmask.finetuning.results.report import majority_baseline
from unmask.finetuning.results.score import formulate_items, score, without_left_out
from unmask.finetuning.results.score_groups import align_columns
from unmask.tasks.task import Task
from unmask.text.lines import EncodingErrors


@dataclass(frozen=True, kw_only=True)
class MixtureTaskScore:
    """The scores of a task of a mixture."""

    name: str
    n_rows: int
    metric: str
    score: float
    """Value of the metric."""
    most_frequent: float | None
    """Value of the metric of the response that most of the rows have, given to all."""
    loss: float
    """Loss of the responses in nats a token."""


def score_mixture(
    loaded_model: LoadedModel, path: str, task: Task, encoding_errors: EncodingErrors = "strict"
) -> list[MixtureTaskScore]:
    """Score a model on the test rows of each task of a mixture, or on its dev rows without any.

    Rows that do not fit, and tasks of such rows alone, are left out with a warning.

    Args:
        loaded_model: a model that was fine-tuned on instructions.
        path: the mixture.
        task: the model's task.
        encoding_errors: handling of bytes that are not valid UTF-8.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the mixture is invalid, no row fits, or the model answers no instructions.
    """
    if task.task_kind != "instruct":
        raise ValueError(
            f"{path}: a mixture is scored of models that answer instructions (task = instruct), "
            f"got {task.task_kind}; --mixture-task NAME scores a file of rows"
        )
    mixture = read_instruction_mixture(path, encoding_errors)
    options = dict(task.options) | {"task_metrics": {}}
    scores: list[MixtureTaskScore] = []
    for name, metric in mixture.metrics.items():
        items = [replace(item, component="") for item in mixture.scored_rows(name)]
        if not items:
            continue
        single = replace(task, metric=metric, options=options)
        formulation = formulate_items(loaded_model, items, single)
        kept = without_left_out(formulation, items, name)
        if not kept:
            continue
        inputs = inputs_with_warnings(formulation, kept, loaded_model.tokenizer)
        found = score(formulation, loaded_model.model, kept, inputs)
        scores.append(
            MixtureTaskScore(
                name=name, n_rows=len(kept), metric=metric, score=found[metric],
                most_frequent=majority_baseline(single, kept, kept), loss=found["loss"],
            )
        )  # fmt: skip
    if not scores:
        raise ValueError(f"{path}: no row of any task is left to score")
    return scores


def format_mixture_scores(scores: Sequence[MixtureTaskScore]) -> list[str]:
    """Format scores as the lines of a table."""
    rows = [["task", "rows", "metric", "score", "most frequent", "loss"]]
    for one in scores:
        floor = "" if one.most_frequent is None else f"{one.most_frequent:.4f}"
        rows.append(
            [one.name, f"{one.n_rows:,}", one.metric, f"{one.score:.4f}", floor, f"{one.loss:.4f}"]
        )
    return align_columns(rows)
