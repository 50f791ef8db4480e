"""How much each label counts while it is learned, where some are rare."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from unmask.heads.labels import Labels, OneOf, TokenLabels
from unmask.heads.model import HeadSpec
from unmask.published.card import Published
from unmask.tasks.readers import column_values
from unmask.tasks.task import Item, Task
from unmask.text.records import listed

ClassWeights = Literal["balanced"] | Mapping[str, float]
"""Each label's weight, 1 where none is given; or "balanced": n / (k n_label) of n places that have
one of k labels, n_label of them this one (the formula of scikit-learn)."""


def weights_of(
    given: ClassWeights, labels: Sequence[str], items: Sequence[Item]
) -> tuple[float, ...]:
    """Return the weight of each label, with a mean of 1 over all places that are learned.

    The loss is then a weighted sum over the number of places. torch divides by the sum of weights
    of each batch instead, which is the same on average, but which no one knows before a step that
    is cut into parts.

    Raises:
        ValueError: a label is unknown, or a weight is no positive number.
    """
    counts = Counter(label for item in items for label in column_values.labels_in(item))
    n = counts.total()
    if isinstance(given, str):
        if given != "balanced":
            raise ValueError(f"class_weights must be 'balanced' or a table, got {given!r}")
        # A label that does not occur is not learned, and has no part in the mean.
        return tuple(n / (len(counts) * (counts[label] or n)) for label in labels)
    for label, weight in given.items():
        if label not in labels:
            raise ValueError(f"class_weights: no label {label!r} (labels: {listed(labels)})")
        if not 0 < weight < math.inf:
            raise ValueError(f"class_weights: {label!r} must have a weight above 0, got {weight}")
    total = sum(given.get(label, 1.0) * n_label for label, n_label in counts.items())
    return tuple(given.get(label, 1.0) * n / total for label in labels)


def weighted(card: Published, given: ClassWeights, task: Task, items: Sequence[Item]) -> Published:
    """Return the card with weights in its head of labels.

    Raises:
        ValueError: it has no head that says one of some labels.
    """
    weights = weights_of(given, task.labels, items)
    heads: dict[str, HeadSpec] = {name: _with(spec, weights) for name, spec in card.heads.items()}
    if heads == dict(card.heads):
        raise ValueError(
            "class_weights are of labels of which a head says one (classify, pairs, tag but for "
            f"its recurrent head), not of {task.does} with {card.name}"
        )
    return replace(card, heads=heads)


def _with(spec: HeadSpec, weights: tuple[float, ...]) -> HeadSpec:
    if not isinstance(spec, Labels | TokenLabels) or not isinstance(spec.loss, OneOf):
        return spec
    return replace(spec, loss=OneOf(weights=weights)) if len(weights) == spec.n_labels else spec
