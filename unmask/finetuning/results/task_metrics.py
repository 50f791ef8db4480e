"""The metrics of predictions: of a task, or of each task of a mixture, and their mean."""

from collections.abc import Sequence

from unmask.tasks.all_kinds import MIXTURE_KINDS, TASK_KINDS
from unmask.tasks.metrics.metric import MEAN_METRIC, METRICS
from unmask.tasks.task import Label, Task, TaskExample


def tasks_of_mixture(task: Task) -> dict[str, Task]:
    """Return the tasks of a mixture by name; any other task is returned itself, under ""."""
    return {name: task_of_mixture(task, name) for name in _names(task)} or {"": task}


def task_of_mixture(task: Task, name: str) -> Task:
    """Return one task of a mixture as a single task.

    Raises:
        ValueError: there is no task of this name.
    """
    names = _names(task)
    if name not in names:
        task_names = (
            f"it has {', '.join(names)}" if names else "it has learned one task, without a name"
        )
        raise ValueError(f"the model has learned no task {name!r}: {task_names}")
    return MIXTURE_KINDS[task.task_kind].mixture_member(task, name)


def _names(task: Task) -> tuple[str, ...]:
    kind = MIXTURE_KINDS.get(task.task_kind)
    return () if kind is None else kind.mixture_names(task.options)


def compute_metrics(
    task: Task, items: Sequence[TaskExample], predictions: Sequence[Label]
) -> dict[str, float]:
    """Compute all metrics of predictions for items whose labels are known.

    Those of a mixture's tasks have names like "sst2.accuracy"; `mean` is the mean of the tasks'
    main metrics, on a scale of 0 to 1. Tasks without such items are left out.

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
        if not pairs or not metrics:
            continue
        shown = MIXTURE_KINDS[task.task_kind].mixture_metrics(member, metrics)
        metrics_by_name |= {f"{name}.{metric}": value for metric, value in shown.items()}
        own.append(metrics[member.metric] / (100 if METRICS[member.metric].ranges_to_100 else 1))
    return metrics_by_name | ({MEAN_METRIC: sum(own) / len(own)} if own else {})


def majority_predictions(
    task: Task, train: Sequence[TaskExample], dev: Sequence[TaskExample]
) -> list[Label]:
    """Predict for each item the most frequent training answer of its task.

    Of a task of a mixture that is not trained on it is the most frequent one of the items.
    """
    kind = TASK_KINDS[task.task_kind]
    by_task: dict[str, Label] = {}
    for name, member in tasks_of_mixture(task).items():
        own = [item for item in train if item.component == name]
        own = own or [item for item in dev if item.component == name]
        if own:
            by_task[name] = kind.majority_baseline(member, own)
    return [by_task[item.component] for item in dev]
