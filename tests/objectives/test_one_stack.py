"""Source and target in one stack: nothing is lost, and only the target is predicted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batch import IGNORE_INDEX, WORD_START, Tokens
from unmask.config import from_dict, to_dict
from unmask.objectives import published
from unmask.objectives.denoising.replace_spans import DropTokens
from unmask.objectives.denoising.single_stack import SingleStackSeq2Seq
from unmask.objectives.features import ShiftedTargets
from unmask.objectives.objective import Objective
from unmask.objectives.select import AllTokens
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.training.config import Recipe

T5 = SpecialTokenIds(
    vocab_size=60, pad=0, start=0, end=1, unknown=2, separator=(1,), suffix=(1,),
    sentinels=tuple(range(59, 56, -1)), all_ids=frozenset({0, 1, 2, 57, 58, 59}),
)  # fmt: skip
BART = SpecialTokenIds(
    vocab_size=60,
    pad=1,
    start=2,
    end=2,
    mask=4,
    unknown=3,
    prefix=(0,),
    separator=(2, 2),
    suffix=(2,),
    all_ids=frozenset(range(5)),
)
CASES = {
    "T5": (published.T5, T5),
    "BART": (published.BART, BART),
    "rest": (published.T5_OBJECTIVES["prefix_language_model"], T5),
    "all": (Objective(AllTokens(), DropTokens()), T5),
}
TEXTS = st.lists(st.integers(5, 39), max_size=60).map(
    lambda ids: Tokens(np.array(ids, np.int64), np.full(len(ids), WORD_START))
)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("whole", [False, True])
@settings(max_examples=60)
@given(text=TEXTS, seed=st.integers(0, 99))
def test_row_is_source_followed_by_target(case, whole, text, seed) -> None:
    objective, special = CASES[case]
    two = objective(text, special, np.random.default_rng(seed))
    one = SingleStackSeq2Seq(objective, whole)(text, special, np.random.default_rng(seed))
    n = len(two.source)
    assert one.source is None
    assert one.has(ShiftedTargets)
    assert one.inputs.tolist() == [*two.source, *two.inputs[1:]]
    assert one.targets.tolist() == [*[IGNORE_INDEX] * (n - 1), *two.targets]
    for i in np.flatnonzero(one.targets != IGNORE_INDEX).tolist():
        assert i + 1 == len(one.inputs) or one.inputs[i + 1] == one.targets[i]
        assert (one.rank[i + 1 :] > one.rank[i]).all()  # what is asked is not seen
        assert (one.rank[: i + 1] <= one.rank[i]).all()  # all that stands before it is
    assert (one.rank[:n] == (0 if whole else np.arange(n))).all()
    size = SingleStackSeq2Seq(objective, whole).max_example_length(np.array([len(text)]), special)[
        0
    ]
    assert len(one.inputs) <= size
    if len(text) > 1 and case in ("rest", "all"):
        assert len(one.inputs) == size - 1  # the last token is asked, and not read


def test_length_covers_source_and_target() -> None:
    special = SpecialTokenIds(
        vocab_size=1000, pad=0, start=0, end=1, suffix=(1,), sentinels=tuple(range(900, 1000))
    )
    both = SingleStackSeq2Seq(published.T5)
    assert published.T5.max_text_length(512, special) == both.max_text_length(626, special) == 568


def test_round_trips_and_refuses_objectives_without_source() -> None:
    objective = SingleStackSeq2Seq(published.T5, bidirectional_source=True)
    recipe = Recipe(model="t5-prefix-lm-mini", objective=objective)
    assert from_dict(Recipe, to_dict(recipe)) == recipe
    assert SingleStackSeq2Seq(published.T5).causal
    assert not objective.causal
    with pytest.raises(ValueError, match=r"objective.corrupt must be ReplaceSpans, got CausalLM"):
        SingleStackSeq2Seq(Objective(published.CAUSAL_LM.select, published.CAUSAL_LM.corrupt))
