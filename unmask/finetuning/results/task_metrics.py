"""The metrics of predictions: of a task, or of each task of a mixture, and their mean."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from unmask.config import from_dict
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.metrics.metric import MEAN_METRIC, METRICS
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.tasks.text_templates import TextTemplate


def tasks_of_mixture(task: Task) -> dict[str, Task]:
    """Return the tasks of a mixture by name; any other task is returned itself, under ""."""
    templates = cast("Mapping[str, Any]", task.options.get("task_templates") or {})
    return {name: task_of_mixture(task, name) for name in templates} or {"": task}


def task_of_mixture(task: Task, name: str) -> Task:
    """Return one task of a mixture as a single task.

    Raises:
        ValueError: there is no task of this name.
    """
    templates = cast("Mapping[str, Any]", task.options.get("task_templates") or {})
    if name not in templates:
        task_names = (
            f"it has {', '.join(templates)}"
            if templates
            else "it has learned one task, without a name"
        )
        raise ValueError(f"the model has learned no task {name!r}: {task_names}")
    template = from_dict(TextTemplate, templates[name], f"options.task_templates.{name}")
    alone = dict(task.options) | {"task_templates": {}, "template": templates[name]}
    columns = TaskColumns(texts=template.columns or task.columns.texts, label=template.target or "")
    metric = template.metric or template.metric_names[0]
    return replace(task, columns=columns, options=alone, metric=metric)


def compute_metrics(
    task: Task, items: Sequence[TaskExample], predictions: Sequence[Label]
) -> dict[str, float]:
    """Compute all metrics of predictions for items whose labels are known.

    Those of a mixture's tasks have names like "sst2.accuracy"; `mean` is the mean of the tasks'
    main metrics, on a scale of 0 to 1.

    Raises:
        FloatingPointError: a predicted number is not finite.
    """
    kind, metrics_by_name, own = TASK_KINDS[task.task_kind], dict[str, float](), list[float]()
    for name, member in tasks_of_mixture(task).items():
        pairs = [
            (item.label, answer)
            for item, answer in zip(items, predictions, strict=True)
            if item.label is not None and item.component == name
        ]
        metrics = kind.compute_metrics(
            member, [truth for truth, _ in pairs], [answer for _, answer in pairs]
        )
        if not name:
            return metrics
        metrics_by_name |= {f"{name}.{metric}": value for metric, value in metrics.items()}
        own.append(metrics[member.metric] / (100 if METRICS[member.metric].ranges_to_100 else 1))
    return metrics_by_name | {MEAN_METRIC: sum(own) / len(own)}


def majority_predictions(
    task: Task, train: Sequence[TaskExample], dev: Sequence[TaskExample]
) -> list[Label]:
    """Predict for each item the most frequent training answer of its task."""
    kind = TASK_KINDS[task.task_kind]
    by_task = {
        name: kind.majority_baseline(member, [item for item in train if item.component == name])
        for name, member in tasks_of_mixture(task).items()
    }
    return [by_task[item.component] for item in dev]
