"""Weights of labels in the training loss."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from unmask.finetuning.options.values import ClassWeights
from unmask.heads.spec import HeadSpec
from unmask.tasks.readers import columns
from unmask.tasks.task import Task, TaskExample
from unmask.text.formats.records import format_names
from unmask.zoo.preset import Published


def resolve_class_weights(
    class_weights: ClassWeights, labels: Sequence[str], items: Sequence[TaskExample]
) -> tuple[float, ...]:
    """Return the weight of each label, with a mean of 1 over all training labels.

    The loss is then the weighted sum divided by the number of labels. torch divides by the sum of
    the weights of each batch instead, which is equal on average, but is not known in advance for a
    step that is split into micro-batches.

    Raises:
        ValueError: a label is unknown, or a weight is no positive number.
    """
    counts = Counter(label for item in items for label in columns.example_labels(item))
    n = counts.total()
    if isinstance(class_weights, str):
        if class_weights != "balanced":
            raise ValueError(f"class_weights must be 'balanced' or a table, got {class_weights!r}")
        # A label that does not occur is not learned, so it does not count in the mean.
        return tuple(n / (len(counts) * (counts[label] or n)) for label in labels)
    for label, weight in class_weights.items():
        if label not in labels:
            raise ValueError(f"class_weights: no label {label!r} (labels: {format_names(labels)})")
        if not 0 < weight < math.inf:
            raise ValueError(f"class_weights: {label!r} must have a weight above 0, got {weight}")
    total = sum(class_weights.get(label, 1.0) * n_label for label, n_label in counts.items())
    return tuple(class_weights.get(label, 1.0) * n / total for label in labels)


def with_class_weights(
    preset: Published, class_weights: ClassWeights, task: Task, items: Sequence[TaskExample]
) -> Published:
    """Return the preset with label weights in its classification head.

    Raises:
        ValueError: it has no head for single-label classification.
    """
    weights = resolve_class_weights(class_weights, task.labels, items)
    heads: dict[str, HeadSpec] = {
        name: spec.with_label_weights(weights) for name, spec in preset.heads.items()
    }
    if heads == dict(preset.heads):
        raise ValueError(
            "class_weights are of labels of which a head says one (classify, pairs, tag but for "
            f"its recurrent head), not of {task.task_kind} with {preset.name}"
        )
    return replace(preset, heads=heads)
