"""Masked rows that are bidirectional, causal, or both by parts (UniLM)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import BERT, long_text, text, texts

from unmask.batch import IGNORE_INDEX
from unmask.objectives import published
from unmask.objectives.features import ShiftedTargets
from unmask.objectives.unified_lm.visibility import Seq2SeqLM, UnidirectionalLM

SEEDS = st.integers(0, 2**32 - 1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(texts(least=1), SEEDS)
def test_causal_text_is_masked_as_any_other(tokens, seed):
    plain = published.MASKED_LM(tokens, BERT, rng(seed))
    t = len(plain.inputs)
    for direction, rank in (("forward", range(t)), ("backward", range(t - 1, -1, -1))):
        e = UnidirectionalLM(published.MASKED_LM, direction, segment_id=3)(tokens, BERT, rng(seed))
        assert e.inputs.tolist() == plain.inputs.tolist()
        assert e.targets.tolist() == plain.targets.tolist()
        assert e.rank.tolist() == list(rank)
        assert e.segments.tolist() == [3] * t
        assert not e.has(ShiftedTargets)


def test_source_is_bidirectional_and_target_causal():
    tokens = text(range(10, 22), sentences=[0, 5])
    e = Seq2SeqLM(published.MASKED_LM, (4, 5))(tokens, BERT, rng())
    whole = np.where(e.targets == IGNORE_INDEX, e.inputs, e.targets)
    assert whole.tolist() == [2, *range(10, 15), 3, *range(15, 22), 3]
    assert e.rank.tolist() == [0] * 7 + list(range(1, 9))
    assert e.segments.tolist() == [4] * 7 + [5] * 8
    alone = Seq2SeqLM(published.MASKED_LM, (4, 5))(text([10]), BERT, rng())
    assert (alone.rank.tolist(), alone.segments.tolist()) == ([0] * 3, [4] * 3)


def test_source_and_target_both_have_masks():
    tokens, hidden = long_text(200), []
    for seed in range(40):
        e = Seq2SeqLM(published.MASKED_LM)(tokens, BERT, rng(seed))
        hidden += [
            (e.targets != IGNORE_INDEX)[e.rank == 0].mean(),
            (e.targets != IGNORE_INDEX)[e.rank > 0].mean(),
        ]
    assert abs(np.mean(hidden[::2]) - 0.15) < 0.03
    assert abs(np.mean(hidden[1::2]) - 0.15) < 0.03
