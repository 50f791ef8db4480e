"""What an objective needs of a network and a vocabulary, found by looking at what it makes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unmask.batch import SENTENCE_START, WORD_START, Example, Tokens
from unmask.objectives.features import ShiftedTargets, TwoStream
from unmask.objectives.objective import AnyObjective
from unmask.tokenizers.spec import SpecialTokenIds

_VOCAB_SIZE, _N_SENTINELS, _MODE_IDS = 400, 100, (5, 6, 7)
_SPECIAL_IDS = SpecialTokenIds(
    vocab_size=_VOCAB_SIZE,
    pad=0,
    start=1,
    end=2,
    mask=3,
    prefix=(1,),
    separator=(4,),
    suffix=(2,),
    sentinels=tuple(range(_VOCAB_SIZE - _N_SENTINELS, _VOCAB_SIZE)),
    modes=_MODE_IDS,
    all_ids=frozenset({0, 1, 2, 3, 4, *_MODE_IDS, *range(_VOCAB_SIZE - _N_SENTINELS, _VOCAB_SIZE)}),
)
_TEXT_TOKENS, _WORD_TOKENS, _SENTENCE_TOKENS, _N_EXAMPLES = 60, 2, 12, 24
"""Of a text, a word and a sentence; and how often it is hidden."""
OUTPUT_VOCABULARY_TERMS = ("subwords", "both_sides")
"""What is asked of a vocabulary that is beside the characters of a text."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveRequirements:
    """What examples of an objective have."""

    seq2seq: bool = False
    """An encoder reads one, and a decoder answers."""
    mask: bool = False
    """It is in texts, or where something is asked that is not seen: `fill` writes it there."""
    sentinels: bool = False
    mode_tokens: bool = False
    separator: bool = False
    """Two texts are in a row, with a token between."""
    n_segments: int = 0
    """Numbers that tell the parts of a text, or how it is read."""
    attention_patterns: frozenset[str] = frozenset({"bidirectional"})
    """What the tokens of the predicting side attend to."""
    forward_mask_segment: int | None = None
    """Texts are read forward and asked in the places of their masks; their segment."""


def requirements_of(objective: AnyObjective) -> ObjectiveRequirements:
    """Hide a text of some sentences in several ways, and see what comes of it."""
    if set(OUTPUT_VOCABULARY_TERMS) & set(objective.loss_terms):
        return ObjectiveRequirements(mask="subwords" in objective.loss_terms)
    made = list(_probe_examples(objective))
    read = [np.concatenate([e.inputs, *([] if e.source is None else [e.source])]) for e in made]
    tokens = set(np.concatenate(read).tolist())
    two = [e for e in made if e.segments is not None]
    forward = [
        e for e in two if not e.has(ShiftedTargets) and _attention_pattern_of(e) == "forward"
    ]
    return ObjectiveRequirements(
        seq2seq=any(e.source is not None for e in made),
        mask=_SPECIAL_IDS.mask in tokens or any(e.has(TwoStream) for e in made),
        sentinels=bool(tokens & set(_SPECIAL_IDS.sentinels)),
        mode_tokens=bool(tokens & set(_MODE_IDS)),
        separator=4 in tokens,
        n_segments=max((1 + int(_segments_of(e).max()) for e in two), default=0),
        attention_patterns=frozenset(map(_attention_pattern_of, made)),
        forward_mask_segment=int(_segments_of(forward[0]).max()) if forward else None,
    )


def check_special_tokens(
    objective: AnyObjective, special_ids: SpecialTokenIds, location: str
) -> None:
    """Check that a vocabulary has the special tokens that an objective puts into texts.

    Args:
        objective: see `needs`.
        special_ids: what the tokenizer knows.
        location: it is from.

    Raises:
        ValueError: it has not.
    """
    wanted = requirements_of(objective)
    there = {
        "mask": not wanted.mask
        or special_ids.mask_or_sentinel is not None
        or "permuted" in objective.loss_terms,
        "sentinel": not wanted.sentinels or bool(special_ids.sentinels),
        "mode": not wanted.mode_tokens or bool(special_ids.modes),
    }
    lacking = next((name for name, has in there.items() if not has), None)
    if lacking is not None:
        raise ValueError(
            f"{location}: the tokenizer has no {lacking} token, which this objective needs; train "
            "one for it: pretrain without --tokenizer and --from, or prepare with --objective"
        )


def _probe_examples(objective: AnyObjective) -> Iterator[Example]:
    places = np.arange(_TEXT_TOKENS)
    marks = WORD_START * (places % _WORD_TOKENS == 0) + SENTENCE_START * (
        places % _SENTENCE_TOKENS == 0
    )
    other = Tokens(ids=200 + places, boundaries=marks)
    text = Tokens(ids=100 + places, boundaries=marks, other_text=other)
    for seed in range(_N_EXAMPLES):
        yield objective(text, _SPECIAL_IDS, np.random.default_rng(seed))


def _segments_of(example: Example) -> np.ndarray:
    assert example.segments is not None
    return example.segments


def _attention_pattern_of(example: Example) -> str:
    rank = example.rank
    if rank is None or (rank == rank[0]).all():
        return "bidirectional"
    return "forward" if (rank == np.arange(len(rank))).all() else "prefix"
