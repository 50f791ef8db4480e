"""The metrics of predictions: of a task, or of each task of a mixture, and their mean."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from unmask.config import from_dict
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.metrics.metric import MEAN_METRIC
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.tasks.text_templates import TextTemplate

_PERCENT_METRICS = ("bleu", "chrf")


def tasks_of_mixture(task: Task) -> dict[str, Task]:
    """Return the tasks of a mixture by their names; of any other task itself, without a name."""
    templates = cast("Mapping[str, Any]", task.options.get("task_templates") or {})
    return {name: task_of_mixture(task, name) for name in templates} or {"": task}


def task_of_mixture(task: Task, name: str) -> Task:
    """Return one task of a mixture, as if it were the only one.

    Raises:
        ValueError: there is none of this name.
    """
    templates = cast("Mapping[str, Any]", task.options.get("task_templates") or {})
    if name not in templates:
        known = (
            f"it has {', '.join(templates)}"
            if templates
            else "it has learned one task, without a name"
        )
        raise ValueError(f"the model has learned no task {name!r}: {known}")
    template = from_dict(TextTemplate, templates[name], f"options.task_templates.{name}")
    alone = dict(task.options) | {"task_templates": {}, "template": templates[name]}
    columns = TaskColumns(texts=template.columns or task.columns.texts, label=template.target or "")
    metric = template.metric or template.metric_names[0]
    return replace(task, columns=columns, options=alone, metric=metric)


def compute_metrics(
    task: Task, items: Sequence[TaskExample], predictions: Sequence[Label]
) -> dict[str, float]:
    """Compute all metrics of predictions for items whose labels are known.

    Those of a mixture's tasks are called "sst2.accuracy"; `mean` is that of each task's own metric,
    of 1 at most.

    Raises:
        FloatingPointError: a predicted number is not finite.
    """
    kind, found, own = TASK_KINDS[task.task_kind], dict[str, float](), list[float]()
    for name, one in tasks_of_mixture(task).items():
        some = [
            (item.label, answer)
            for item, answer in zip(items, predictions, strict=True)
            if item.label is not None and item.component == name
        ]
        metrics = kind.compute_metrics(
            one, [truth for truth, _ in some], [answer for _, answer in some]
        )
        if not name:
            return metrics
        found |= {f"{name}.{metric}": value for metric, value in metrics.items()}
        own.append(metrics[one.metric] / (100 if one.metric in _PERCENT_METRICS else 1))
    return found | {MEAN_METRIC: sum(own) / len(own)}


def majority_predictions(
    task: Task, train: Sequence[TaskExample], dev: Sequence[TaskExample]
) -> list[Label]:
    """Give every item the answer that is most frequent in training, of its task."""
    kind = TASK_KINDS[task.task_kind]
    by_task = {
        name: kind.majority_baseline(one, [item for item in train if item.component == name])
        for name, one in tasks_of_mixture(task).items()
    }
    return [by_task[item.component] for item in dev]
