"""XLNet's rows: a continued part, then two segments of which the second may be another's."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import BERT, XLNET, long_text, texts

from unmask.batch import IGNORE_INDEX, PARAGRAPH_START, SENTENCE_START, WORD_START, Example, Tokens
from unmask.batching.collate import pad_examples
from unmask.objectives import published
from unmask.objectives.corrupt import MaskInPlace, PermutationLM
from unmask.objectives.features import Recurrence
from unmask.objectives.objective import Objective
from unmask.objectives.select import ContextSpanMasking
from unmask.objectives.sentence_pairs.two_segments import TwoSegments

(SEP, CLS), INNER = XLNET.suffix, Objective(ContextSpanMasking(), PermutationLM())
SEEDS = st.integers(0, 2**32)


def reuse_len(e: Example) -> int:
    recurrence = e.feature(Recurrence)
    return 0 if recurrence is None else recurrence.reuse_len


def parts(ids: np.ndarray, kept: int) -> tuple[list[int], list[int], list[int]]:
    """What is kept, A and B; B is empty where it and the mark before it are not there."""
    row = ids.tolist()
    assert row[-2:] == [SEP, CLS]
    marks = [i for i, token in enumerate(row) if token == SEP]
    assert len(marks) <= 2
    assert CLS not in row[:-1]
    return row[:kept], row[kept : marks[0]], row[marks[0] + 1 : -2]


@settings(max_examples=150)
@given(texts(1), texts(), SEEDS, st.sampled_from([0.0, 0.3, 0.5, 0.9]))
def test_row_is_kept_part_then_two_segments(text, other, seed, share):
    objective = TwoSegments(INNER, reuse_fraction=share)
    e = objective(replace(text, other_text=other), XLNET, np.random.default_rng(seed))
    n = reuse_len(e)
    assert n == min(int(share * (len(text) + 3)), max(len(text) - 2, 0))
    kept, a, b = parts(e.inputs, n)
    assert [*kept, *a] == text.ids[: n + len(a)].tolist()
    if len(text) == 1:
        assert not b
    else:
        assert b
        assert a
        follows = b == text.ids[n + len(a) :].tolist()
        runs = [other.ids[i : i + len(b)].tolist() for i in range(len(other))]
        assert follows or b in runs
        assert (
            len(e.inputs) == objective.max_example_length(np.array([len(text)]), XLNET)[0]
            or not follows
        )


@settings(max_examples=150)
@given(texts(2), SEEDS)
def test_segments_and_prediction_order_are_set(text, seed):
    e = published.XLNET(replace(text, other_text=long_text(80)), XLNET, np.random.default_rng(seed))
    n = reuse_len(e)
    _, a, b = parts(e.inputs, n)
    batch = pad_examples([e], XLNET)
    output = [0] * (n + len(a) + 1) + [1] * (len(b) + 1) + [2]
    assert batch.segments is not None
    assert batch.segments[0].tolist() == output
    assert batch.feature(Recurrence) == e.feature(Recurrence)
    hidden = e.targets != IGNORE_INDEX
    assert not np.isin(e.inputs[hidden], [SEP, CLS]).any()
    assert (e.targets[hidden] == e.inputs[hidden]).all()
    assert e.rank.max(initial=-1, where=np.arange(len(e.rank)) < n) < e.rank[n:].min()
    for part in (slice(0, n), slice(n, None)):
        rank, targeted = e.rank[part], hidden[part]
        shown = rank[~targeted]
        assert len(set(shown.tolist())) <= 1
        assert len(set(rank[targeted].tolist())) == targeted.sum()
        assert not len(shown) or (rank[targeted] > shown[0]).all()


@pytest.mark.thorough
def test_half_of_the_second_segments_are_consecutive():
    text, other = long_text(300, 1), long_text(300, 2)
    follow, begins = 0, []
    for seed in range(400):
        e = published.XLNET(replace(text, other_text=other), XLNET, np.random.default_rng(seed))
        _, a, b = parts(e.inputs, reuse_len(e))
        position = reuse_len(e) + len(a)
        assert text.boundaries[position] & SENTENCE_START, "a text is cut between sentences"
        if b == text.ids[position:].tolist():
            follow += 1
        else:
            starts = [i for i in range(300) if other.ids[i : i + len(b)].tolist() == b]
            begins.append(any(i == 0 or other.boundaries[i] & SENTENCE_START for i in starts))
    assert 160 < follow < 240
    assert all(begins)


def test_each_part_is_masked_at_its_rate():
    counts = np.zeros((2, 2))
    for seed in range(60):
        e = published.XLNET(long_text(509, seed), XLNET, np.random.default_rng(seed))
        assert reuse_len(e) == 256
        for i, part in enumerate((e.targets[:256], e.targets[256:])):
            counts[i] += (part != IGNORE_INDEX).sum(), len(part)
    assert np.abs(counts[:, 0] / counts[:, 1] - 1 / 6) == pytest.approx([0, 0], abs=0.003)


def test_without_other_text_second_segment_is_consecutive():
    for seed in range(20):
        e = published.XLNET(long_text(60), XLNET, np.random.default_rng(seed))
        kept, a, b = parts(e.inputs, reuse_len(e))
        assert [*kept, *a, *b] == long_text(60).ids.tolist()


def test_reversed_text_has_reversed_word_starts():
    marks = np.array(
        [WORD_START | SENTENCE_START, 0, WORD_START, 0, 0, WORD_START | SENTENCE_START]
    )
    text = Tokens(np.arange(6), marks, other_text=Tokens(np.arange(2), marks[:2])).reversed()
    assert text.ids.tolist() == [5, 4, 3, 2, 1, 0]
    first = WORD_START | SENTENCE_START | PARAGRAPH_START
    assert text.boundaries.tolist() == [first, WORD_START | SENTENCE_START, 0, 0, WORD_START, 0]
    assert text.other_text is not None
    assert text.other_text.ids.tolist() == [1, 0]
    assert len(Tokens(np.arange(0), marks[:0]).reversed()) == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"random_probability": 1.1}, "random_probability must be"),
        ({"reuse_fraction": 1.0}, "reuse_fraction must be at least 0 and below 1"),
        (
            {"objective": Objective(ContextSpanMasking(), MaskInPlace())},
            "objective.corrupt must be PermutationLM",
        ),
    ],
)
def test_invalid_options_are_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        replace(published.XLNET, **changes)


def test_only_a_trailing_summary_token_belongs_to_no_segment():
    assert XLNET.summary == CLS
    assert BERT.summary is None
    assert replace(XLNET, suffix=(SEP,)).summary is None
    assert replace(BERT, suffix=(9, 8)).summary is None
