"""What an objective needs of a network and a vocabulary, found by looking at what it makes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unmask.batch import SENTENCE, WORD, Example, Tokens
from unmask.hiding.hide import AnyObjective
from unmask.tokens.vocabulary import Special

_SIZE, _SENTINELS, _MODES = 400, 100, (5, 6, 7)
_SPECIAL = Special(
    size=_SIZE,
    pad=0,
    start=1,
    end=2,
    mask=3,
    before=(1,),
    between=(4,),
    after=(2,),
    sentinels=tuple(range(_SIZE - _SENTINELS, _SIZE)),
    modes=_MODES,
    ids=frozenset({0, 1, 2, 3, 4, *_MODES, *range(_SIZE - _SENTINELS, _SIZE)}),
)
_TOKENS, _WORD, _SENTENCE, _TIMES = 60, 2, 12, 24
"""Of a text, a word and a sentence; and how often it is hidden."""
SPELLED = ("subwords", "both_sides")
"""What is asked of a vocabulary that stands beside the characters of a text."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What examples of an objective have."""

    source: bool = False
    """An encoder reads one, and a decoder answers."""
    mask: bool = False
    """It stands in texts, or where something is asked that is not seen: `fill` writes it there."""
    sentinels: bool = False
    modes: bool = False
    separator: bool = False
    """Two texts stand in a row, with a token between."""
    segments: int = 0
    """Numbers that tell the parts of a text, or how it is read."""
    sees: frozenset[str] = frozenset({"both_ways"})
    """What the tokens of the side that is asked see: see `unmask.model.architecture.Sees`."""
    in_own_place: int | None = None
    """Texts are read forward and asked in the places of their masks; their segment."""


def needs(objective: AnyObjective) -> Needs:
    """Hide a text of some sentences in several ways, and see what comes of it."""
    if set(SPELLED) & set(objective.asks):
        return Needs(mask="subwords" in objective.asks)
    made = list(_examples(objective))
    read = [np.concatenate([e.inputs, *([] if e.source is None else [e.source])]) for e in made]
    tokens = set(np.concatenate(read).tolist())
    two = [e for e in made if e.segments is not None]
    forward = [e for e in two if not e.ahead and _sees(e) == "forward"]
    return Needs(
        source=any(e.source is not None for e in made),
        mask=_SPECIAL.mask in tokens or any(e.blind for e in made),
        sentinels=bool(tokens & set(_SPECIAL.sentinels)),
        modes=bool(tokens & set(_MODES)),
        separator=4 in tokens,
        segments=max((1 + int(_of(e).max()) for e in two), default=0),
        sees=frozenset(map(_sees, made)),
        in_own_place=int(_of(forward[0]).max()) if forward else None,
    )


def check_special(objective: AnyObjective, special: Special, where: str) -> None:
    """Check that a vocabulary has the special tokens that an objective puts into texts.

    Args:
        objective: see `needs`.
        special: what the tokenizer knows.
        where: it is from.

    Raises:
        ValueError: it has not.
    """
    wanted = needs(objective)
    there = {
        "mask": not wanted.mask or special.blank is not None or "permuted" in objective.asks,
        "sentinel": not wanted.sentinels or bool(special.sentinels),
        "mode": not wanted.modes or bool(special.modes),
    }
    lacking = next((name for name, has in there.items() if not has), None)
    if lacking is not None:
        raise ValueError(
            f"{where}: the tokenizer has no {lacking} token, which this objective needs; learn one "
            "for it: pretrain without --tokenizer and --from, or prepare with --objective"
        )


def _examples(objective: AnyObjective) -> Iterator[Example]:
    places = np.arange(_TOKENS)
    marks = WORD * (places % _WORD == 0) + SENTENCE * (places % _SENTENCE == 0)
    other = Tokens(ids=200 + places, marks=marks)
    text = Tokens(ids=100 + places, marks=marks, other=other)
    for seed in range(_TIMES):
        yield objective(text, _SPECIAL, np.random.default_rng(seed))


def _of(example: Example) -> np.ndarray:
    assert example.segments is not None
    return example.segments


def _sees(example: Example) -> str:
    rank = example.rank
    if rank is None or (rank == rank[0]).all():
        return "both_ways"
    return "forward" if (rank == np.arange(len(rank))).all() else "in_part"
