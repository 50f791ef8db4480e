"""What stands for a text, or for two: an option of every kind that a head of labels answers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from unmask.finetuning.ask import Around, asked_stack, has_encoder
from unmask.heads.labels import Labels, Layers, Pool
from unmask.published.card import Published
from unmask.tasks.task import Task
from unmask.tokens.vocabulary import Special

Frame = Literal["own", "added"]


@dataclass(frozen=True, kw_only=True)
class PoolOptions:
    """What a head of labels reads of a text."""

    pool: Pool | None = None
    """The token whose vector stands for a text, the mean over all, their largest numbers, all three
    side by side, a mean with learned weights, or of two texts, each read by itself, their means,
    compared, or of both their orders the last tokens (see `Labels.pool`). None: the model's own,
    the first of an encoder (Devlin et al. 2019, section 4.1) and the last of a decoder (Radford et
    al. 2018, section 3.2); but of a model without a trained pooler the mean, or "compare" (see
    `without_pooler`)."""
    layers: Layers | None = None
    """Whose vectors are read: those of the last layer, or of all, side by side (see
    `Labels.layers`). None: the last one's, but all to compare two texts, and of a model without a
    trained pooler."""
    frame: Frame | None = None
    """What stands around texts: what the tokenizer puts there ("own"), or tokens that are added to
    a decoder's vocabulary (see `unmask.finetuning.framing`). None: what the model's paper does."""
    symmetric: bool | None = None
    """The answer is the same in whichever order two texts are given: of a decoder with added tokens
    both orders are read (Radford et al. 2018, section 3.3, similarity), other models do not ask.
    None: that of a number is, and that of labels is not."""


OF_DECODERS = ("last", "mean", "max", "concat", "attention")
"""What may stand for a text whose first token has read no other."""


def _any(words: Sequence[str]) -> str:
    *some, last = map(repr, words)
    return f"{', '.join(some)} or {last}"


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
    causal, orders = asked_stack(card.architecture).causal, has_two(task)
    if has_encoder(card) and pool not in OF_DECODERS:
        raise ValueError(
            f"options.pool must be {_any(OF_DECODERS)} for {card.name}, whose decoder reads "
            f"forward and all of its source at once, got {pool!r}"
        )
    if pool == "first" and causal:
        fits = (*OF_DECODERS, *["compare"] * reads_two(task), *["both"] * orders)
        raise ValueError(
            f"options.pool must be {_any(fits)} for {card.name}, which only reads forward, "
            f"got {pool!r}"
        )
    if pool == "compare" and not reads_two(task):
        raise ValueError("options.pool 'compare' is for two texts, and one is read")
    if pool == "both" and not (causal and orders):
        why = f"{card.name} is none" if orders else f"{task.does} here reads none"
        raise ValueError(f"options.pool 'both' is for two texts that a decoder reads, and {why}")
    # Where two orders are read no other library has the head, and so nothing forbids the bias that
    # the first GPT's has (released code, `clf`).
    bias = card.labels.bias or pool == "both"
    return replace(card.labels, pool=pool, layers=layers, dense=False, bias=bias)


def refuse_pool(card: Published, options: PoolOptions) -> None:
    """Refuse the options for a card whose model says its answers in words.

    Raises:
        ValueError: one is given.
    """
    for name in ("pool", "layers", "frame"):
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
    pool = task.options.get("pool")
    return Around.of(
        special, card.architecture, task.length,
        apart=pool == "compare", both=pool == "both", wide=True,
    )  # fmt: skip


def has_two(task: Task) -> bool:
    """Say whether two texts are given that could be read in either order."""
    return len(task.columns.texts) == 2 and task.does != "choose"


def reads_two(task: Task) -> bool:
    """Say whether the model reads two texts at once; an option is read beside its text."""
    return len(task.columns.texts) == 2 or task.does == "choose"
