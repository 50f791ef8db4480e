"""What stands for a text, or for two: an option of every kind that a head of labels answers."""

from dataclasses import dataclass, replace
from typing import Any

from unmask.finetuning.ask import Around
from unmask.finetuning.kinds.kind import one_stack
from unmask.finetuning.tasks import Task
from unmask.heads.labels import Labels, Layers, Pool
from unmask.published.card import Published
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True, kw_only=True)
class PoolOptions:
    """What a head of labels reads of a text."""

    pool: Pool | None = None
    """The token whose vector stands for a text, the mean over all, or of two texts, each read by
    itself, their means, compared (see `Labels.pool`). None: the model's own, the first of an
    encoder (Devlin et al. 2019, section 4.1) and the last of a decoder (Radford et al. 2018,
    section 3.2); but of a model without a trained pooler the mean, or "compare" (see
    `without_pooler`)."""
    layers: Layers | None = None
    """Whose vectors are read: those of the last layer, or of all, side by side (see
    `Labels.layers`). None: the last one's, but all to compare two texts, and of a model without a
    trained pooler."""


def head_of_labels(task: Task, card: Published, options: PoolOptions) -> Labels:
    """Return the card's head of labels; asked to read something else it is one linear map.

    Raises:
        ValueError: the model has no such head, its first token reads no other, or there are no two
            texts to compare.
    """
    if card.labels is None:
        raise ValueError(f"{card.name} has no head for labels")
    pool = options.pool or card.labels.pool
    layers = options.layers or ("all" if pool == "compare" else card.labels.layers)
    if (pool, layers) == (card.labels.pool, card.labels.layers):
        return card.labels
    if pool == "first" and one_stack(card.architecture).causal:
        fits = "'last', 'mean' or 'compare'" if reads_two(task) else "'last' or 'mean'"
        raise ValueError(
            f"options.pool must be {fits} for {card.name}, which only reads forward, got {pool!r}"
        )
    if pool == "compare" and not reads_two(task):
        raise ValueError("options.pool 'compare' is for two texts, and one is read")
    return replace(card.labels, pool=pool, layers=layers, dense=False)


def refuse_pool(card: Published, options: PoolOptions) -> None:
    """Refuse the options for a card whose model says its answers in words.

    Raises:
        ValueError: one is given.
    """
    for name in ("pool", "layers"):
        if (given := getattr(options, name)) is not None:
            raise ValueError(
                f"options.{name} is for a head of labels, and {card.name} says its answers in "
                f"words: leave it out, or take an encoder or a decoder; got {given!r}"
            )


def without_pooler(task: Task) -> Task:
    """Return the task as a model does it best whose head for labels has no trained map.

    BERT's first token and the map above it are learned from the next sentence. A model that was not
    asked for it says more by the means of all layers, of one text or of two (docs/log.md,
    2026-11-21, has the figures of unmask-mini-en).
    """
    options: dict[str, Any] = dict(task.options)
    given = options.get("pool") or options.get("layers")
    if task.does not in ("classify", "pairs", "multilabel", "regress") or given:
        return task
    pool = "compare" if reads_two(task) else "mean"
    return replace(task, options={**options, "pool": pool, "layers": "all"})


def around(task: Task, card: Published, special: Special) -> Around:
    """Say what stands around a text that a head of labels reads."""
    apart = task.options.get("pool") == "compare"
    return Around.of(special, one_stack(card.architecture), task.length, apart=apart, wide=True)


def reads_two(task: Task) -> bool:
    """Say whether the model reads two texts at once; an option is read beside its text."""
    return len(task.columns.texts) == 2 or task.does == "choose"
