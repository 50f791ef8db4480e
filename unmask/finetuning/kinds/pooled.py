"""Which token stands for a text: an option of every kind whose answer a head of labels gives."""

from dataclasses import dataclass, replace
from typing import Literal

from unmask.finetuning.kinds.kind import one_stack
from unmask.heads.labels import Labels
from unmask.published.card import Published

Pool = Literal["first", "last", "mean"]


@dataclass(frozen=True, kw_only=True)
class PoolOptions:
    """What a head of labels reads of a text."""

    pool: Pool | None = None
    """The token whose vector stands for a text, or the mean over all. None: the model's own, the
    first of an encoder (Devlin et al. 2019, section 4.1) and the last of a decoder (Radford et al.
    2018, section 3.2)."""


def head_of_labels(card: Published, pool: Pool | None) -> Labels:
    """Return the card's head of labels; asked at another token than its own it is one linear map.

    Raises:
        ValueError: the model has no such head, or its first token reads no other.
    """
    if card.labels is None:
        raise ValueError(f"{card.name} has no head for labels")
    if pool is None or pool == card.labels.pool:
        return card.labels
    if pool == "first" and one_stack(card.architecture).causal:
        raise ValueError(
            f"options.pool must be 'last' or 'mean' for {card.name}, which only reads forward, "
            f"got {pool!r}"
        )
    return replace(card.labels, pool=pool, dense=False)


def refuse_pool(card: Published, pool: Pool | None) -> None:
    """Refuse the option for a card whose model says its answers in words.

    Raises:
        ValueError: it is given.
    """
    if pool is not None:
        raise ValueError(
            f"options.pool is for a head of labels, and {card.name} says its answers in words: "
            "leave it out, or take an encoder ('first', 'last' or 'mean') or a decoder ('last' or "
            f"'mean'); got {pool!r}"
        )
