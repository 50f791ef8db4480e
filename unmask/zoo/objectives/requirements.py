"""Requirements of an objective on a network and a vocabulary, inferred from examples."""

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
"""Lengths of the probe text, its words and sentences; and the number of examples."""
OUTPUT_VOCABULARY_TERMS = ("subwords", "both_sides")
"""Loss terms over an output vocabulary besides the characters of the input."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveRequirements:
    """Properties of an objective's examples."""

    seq2seq: bool = False
    """Whether there are sources and targets, for an encoder and a decoder."""
    mask: bool = False
    """Whether inputs have masks, or targets without input tokens, where `fill` needs masks."""
    sentinels: bool = False
    mode_tokens: bool = False
    separator: bool = False
    """Whether rows have two texts with a separator."""
    n_segments: int = 0
    """Number of segment ids."""
    attention_patterns: frozenset[str] = frozenset({"bidirectional"})
    """Attention patterns of the predicting side."""
    forward_mask_segment: int | None = None
    """Segment of texts with causal attention and masked targets, if any."""


def requirements_of(objective: AnyObjective) -> ObjectiveRequirements:
    """Infer the requirements from several corruptions of a probe text."""
    if set(OUTPUT_VOCABULARY_TERMS) & set(objective.loss_terms):
        return ObjectiveRequirements(mask="subwords" in objective.loss_terms)
    examples = list(_probe_examples(objective))
    all_ids = [
        np.concatenate([e.inputs, *([] if e.source is None else [e.source])]) for e in examples
    ]
    tokens = set(np.concatenate(all_ids).tolist())
    with_segments = [e for e in examples if e.segments is not None]
    forward = [
        e
        for e in with_segments
        if not e.has(ShiftedTargets) and _attention_pattern_of(e) == "forward"
    ]
    return ObjectiveRequirements(
        seq2seq=any(e.source is not None for e in examples),
        mask=_SPECIAL_IDS.mask in tokens or any(e.has(TwoStream) for e in examples),
        sentinels=bool(tokens & set(_SPECIAL_IDS.sentinels)),
        mode_tokens=bool(tokens & set(_MODE_IDS)),
        separator=4 in tokens,
        n_segments=max((1 + int(_segments_of(e).max()) for e in with_segments), default=0),
        attention_patterns=frozenset(map(_attention_pattern_of, examples)),
        forward_mask_segment=int(_segments_of(forward[0]).max()) if forward else None,
    )


def check_special_tokens(
    objective: AnyObjective, special_ids: SpecialTokenIds, location: str
) -> None:
    """Check that a vocabulary has the special tokens of an objective.

    Args:
        objective: the objective.
        special_ids: special ids of the tokenizer.
        location: source of the tokenizer, for messages.

    Raises:
        ValueError: one is missing.
    """
    required = requirements_of(objective)
    is_available = {
        "mask": not required.mask
        or special_ids.mask_or_sentinel is not None
        or "permuted" in objective.loss_terms,
        "sentinel": not required.sentinels or bool(special_ids.sentinels),
        "mode": not required.mode_tokens or bool(special_ids.modes),
    }
    missing = next((name for name, has in is_available.items() if not has), None)
    if missing is not None:
        raise ValueError(
            f"{location}: the tokenizer has no {missing} token, which this objective needs; train "
            "one for it: pretrain without --tokenizer and --from, or prepare with --objective"
        )


def _probe_examples(objective: AnyObjective) -> Iterator[Example]:
    positions = np.arange(_TEXT_TOKENS)
    marks = WORD_START * (positions % _WORD_TOKENS == 0) + SENTENCE_START * (
        positions % _SENTENCE_TOKENS == 0
    )
    other_text = Tokens(ids=200 + positions, boundaries=marks)
    text = Tokens(ids=100 + positions, boundaries=marks, other_text=other_text)
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
