"""XLNet's selection and order: spans within contexts, predicted in an order."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from in_memory import InMemory
from vocabularies import BERT

from unmask.batch import IGNORE_INDEX, WORD_START
from unmask.objectives.corrupt import PermutationLM
from unmask.objectives.explain import explain_example
from unmask.objectives.features import TwoStream
from unmask.objectives.objective import Objective
from unmask.objectives.select import AllTokens, ContextSpanMasking
from unmask.objectives.text_units import maskable_tokens

TEXTS = InMemory(60_000)
XLNET = Objective(ContextSpanMasking(), PermutationLM())


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("context", [3, 6])
def test_one_token_in_n_is_masked_in_whole_word_runs(context: int) -> None:
    chooser = ContextSpanMasking(context)
    for i in range(100):
        text = TEXTS.read_tokens(512 * i, 512 * (i + 1))
        free = maskable_tokens(text.ids, BERT)
        hidden = chooser(text, free, rng(i))
        assert not hidden[~free].any()
        assert hidden.sum() == round(512 / context)
        starts = hidden & ~np.concatenate(([False], hidden[:-1]))
        words = (text.boundaries & WORD_START) > 0
        assert words[starts].mean() > 0.5, "most runs begin with a word; the rest is single tokens"


def test_run_lengths_follow_their_distribution() -> None:
    """One word a token, and far more room than is filled: what is hidden are the drawn runs."""
    text = replace(TEXTS.read_tokens(0, 50_000), boundaries=np.full(50_000, WORD_START))
    counts = np.zeros(6)
    for seed in range(10):
        hidden = ContextSpanMasking(6)(text, np.ones(50_000, bool), rng(seed))
        edges = np.flatnonzero(np.diff(np.concatenate(([0], hidden, [0]))))
        for n in (edges[1::2] - edges[::2]).tolist():
            counts[min(n, 5)] += n <= 5
    law = 1 / np.arange(1, 6)
    # runs that touch count as one, and single tokens fill what is left: both are few
    assert counts[1:5] / counts[1:6].sum() == pytest.approx((law / law.sum())[:4], abs=0.05)


def test_masked_tokens_are_predicted_last_in_place() -> None:
    text = TEXTS.read_tokens(0, 200)
    first, second = (XLNET(text, BERT, rng(seed)) for seed in (1, 2))
    for example in (first, second):
        assert example.has(TwoStream)
        hidden = example.targets != IGNORE_INDEX
        assert example.inputs[1:-1].tolist() == text.ids.tolist()
        assert (example.targets[hidden] == example.inputs[hidden]).all()
        assert example.rank is not None
        assert sorted(example.rank[hidden].tolist()) == list(range(1, int(hidden.sum()) + 1))
        assert (example.rank[~hidden] == 0).all()
        assert example.rank[hidden].tolist() != sorted(example.rank[hidden].tolist())
    assert not np.array_equal(first.targets, second.targets)


def test_zero_probability_gives_left_to_right_order() -> None:
    objective = Objective(AllTokens(), PermutationLM(random_order=False))
    assert objective.causal
    assert not XLNET.causal
    example = objective(TEXTS.read_tokens(0, 9), BERT, rng())
    assert example.rank is not None
    assert example.rank.tolist() == [0, *range(1, 10), 0]


def test_unmaskable_text_has_no_targets() -> None:
    example = XLNET(TEXTS.read_tokens(0, 0), BERT, rng())
    assert (example.targets == IGNORE_INDEX).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"context_factor": 1}, "context_factor must be"),
        ({"max_span_length": 0}, "max_span_length must be"),
    ],
)
def test_invalid_options_are_refused(changes: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ContextSpanMasking(**changes)


def test_display_says_the_target_is_not_visible() -> None:
    class Names:
        special_ids = BERT

        def pieces(self, ids: Iterable[int]) -> list[str]:
            return [f"t{i}" for i in ids]

    example = XLNET(TEXTS.read_tokens(0, 30), BERT, rng())
    shown = explain_example(example, Names(), XLNET)
    roles = {cell.role for cell in shown.inputs if cell.target is not None}
    assert roles == {"unseen"}
    assert all(cell.target in (None, cell.piece) for cell in shown.inputs)
    assert "before it in a drawn order" in shown.visibility
