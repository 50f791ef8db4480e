"""CANINE-S's objective: subwords are masked as BERT masks tokens, inputs are characters."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_text import corpus

from unmask.batch import IGNORE_INDEX, Example, Tokens
from unmask.batching.collate import pad_examples
from unmask.objectives.corrupt import AutoregressiveMasking, MaskInPlace
from unmask.objectives.explain import explain_example
from unmask.objectives.features import SubwordTargets
from unmask.objectives.inputs.characters import SubwordMasking
from unmask.objectives.objective import Objective
from unmask.objectives.published import CANINE_S
from unmask.objectives.select import TokenMasking, WholeWordMasking
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import CANINE, TokenizerSpec
from unmask.tokenizers.vocabulary import CodePoints, CodePointsWithSubwords

TOKENIZER = train_tokenizer(TokenizerSpec(CodePointsWithSubwords(110), CANINE), [corpus()])
"""So few that many words have several."""
SPECIAL = TOKENIZER.special_ids
KNOWN = SPECIAL.output_vocabulary
assert KNOWN is not None
SEEDS = st.integers(0, 2**32 - 1)
LETTERS = st.sampled_from([*"the kingsawTH.,!\n  中\u200b\ufffd", " the ", "king", " [MASK]"])
TEXTS = st.lists(LETTERS, max_size=60).map("".join)


def example(text: str, seed: int = 0, objective: SubwordMasking = CANINE_S) -> Example:
    return objective(TOKENIZER.encode(text), SPECIAL, np.random.default_rng(seed))


def spans(e: Example) -> dict[int, np.ndarray]:
    """Return the target characters of each position."""
    return {position: np.flatnonzero(position_of(e) == position) for position in target_indices(e)}


def position_of(e: Example) -> np.ndarray:
    """Return for each character the position of its subword's target."""
    subwords = e.feature(SubwordTargets)
    assert subwords is not None
    return subwords.position_of


def target_indices(e: Example) -> list[int]:
    return np.flatnonzero(e.targets != IGNORE_INDEX).tolist()


def reveal(e: Example) -> np.ndarray:
    whole = e.inputs.copy()
    for position, where in spans(e).items():
        whole[where] = KNOWN.spell(int(e.targets[position]))
    return whole


@given(text=TEXTS, seed=SEEDS)
def test_masked_text_is_recoverable_from_the_example(text: str, seed: int) -> None:
    e = example(text, seed)
    ids = TOKENIZER.encode(text).ids.tolist()
    assert reveal(e).tolist() == [*SPECIAL.prefix, *ids, *SPECIAL.suffix]


@given(text=TEXTS, seed=SEEDS)
def test_each_masked_subword_has_one_target_at_its_own_character(text, seed) -> None:
    e = example(text, seed)
    cut = KNOWN.tokenize(TOKENIZER.encode(text).ids)
    there = dict(zip((cut.starts + 1).tolist(), cut.tokens.ids.tolist(), strict=True))
    for position, where in spans(e).items():
        assert position in where
        assert where.tolist() == list(range(where[0], where[-1] + 1))
        assert there[int(where[0])] == e.targets[position]
        assert len(where) == len(KNOWN.spell(int(e.targets[position])))
    assert set(np.unique(position_of(e)).tolist()) == {IGNORE_INDEX, *target_indices(e)}
    n = len(there)
    assert len(target_indices(e)) == (0 if n == 0 else max(1, round(0.15 * n)))


@given(text=TEXTS, seed=SEEDS)
def test_masked_subwords_are_hidden_completely(text: str, seed: int) -> None:
    e = example(text, seed)
    masked = e.inputs == SPECIAL.mask
    for where in spans(e).values():
        assert masked[where].all() or not masked[where].any()
    shown = position_of(e) == IGNORE_INDEX
    assert not masked[shown].any()
    assert (e.inputs[shown] == reveal(e)[shown]).all()


@given(text=TEXTS, seed=SEEDS)
def test_random_replacement_has_equal_length(text: str, seed: int) -> None:
    always = SubwordMasking(
        Objective(
            TokenMasking(0.5), MaskInPlace(mask_probability=0.0, random_token_probability=1.0)
        )
    )
    e = example(text, seed, always)
    for position, where in spans(e).items():
        spelled = [
            KNOWN.spell(i).tolist() for i in KNOWN.same_length(int(e.targets[position])).tolist()
        ]
        assert e.inputs[where].tolist() in spelled


@given(text=TEXTS, seed=SEEDS)
def test_same_seed_gives_same_example_of_predicted_length(text: str, seed: int) -> None:
    a, b = example(text, seed), example(text, seed)
    np.testing.assert_equal(asdict(a), asdict(b))
    assert (
        len(a.inputs)
        == CANINE_S.max_example_length(np.array([len(TOKENIZER.encode(text))]), SPECIAL)[0]
    )
    assert a.inputs.dtype == a.targets.dtype == np.int64


@pytest.mark.thorough
def test_subwords_are_masked_at_published_rates() -> None:
    text = TOKENIZER.encode(corpus(40))
    n = len(KNOWN.tokenize(text.ids).tokens)
    counts = dict.fromkeys(("masked", "kept", "replaced"), 0)
    first = 0
    for seed in range(6):
        e = CANINE_S(text, SPECIAL, np.random.default_rng(seed))
        assert len(target_indices(e)) == round(0.15 * n)
        whole = reveal(e)
        for position, where in spans(e).items():
            read = e.inputs[where]
            role = "kept" if (read == whole[where]).all() else "replaced"
            counts["masked" if (read == SPECIAL.mask).all() else role] += 1
            first += len(where) > 1 and position == where[0]
    total = sum(counts.values())
    assert total > 5_000
    shares = {role: count / total for role, count in counts.items()}
    # A subword that few are as long as is now and then drawn in its own place.
    assert shares == pytest.approx({"masked": 0.8, "kept": 0.1, "replaced": 0.1}, abs=0.02)
    assert 0 < first < 0.6 * total


def test_target_position_is_uniform_over_characters() -> None:
    always = SubwordMasking(
        Objective(
            TokenMasking(1.0), MaskInPlace(mask_probability=1.0, random_token_probability=0.0)
        )
    )
    one = "." * 3_000  # each is a subword of one character
    assert target_indices(example(one, 0, always)) == list(range(1, 3_001))
    positions = np.zeros(3, int)
    for seed in range(600):
        positions[target_indices(example("the", seed, always))[0] - 1] += 1
    assert positions.sum() == 600
    assert (abs(positions - 200) < 60).all()


def test_replacement_is_uniform_over_equal_lengths() -> None:
    always = SubwordMasking(
        Objective(
            TokenMasking(1.0), MaskInPlace(mask_probability=0.0, random_token_probability=1.0)
        )
    )
    e = example(" ".join(["k"] * 4_000), 0, always)
    drawn, counts = np.unique(e.inputs[target_indices(e)], return_counts=True)
    single = {int(KNOWN.spell(i)[0]) for i in KNOWN.same_length(int(e.targets[1])).tolist()}
    assert set(drawn.tolist()) == single
    assert counts.max() < 4 * counts.min()  # some letters begin words and continue them


def test_other_selectors_select_subwords() -> None:
    words = SubwordMasking(Objective(WholeWordMasking(0.3), MaskInPlace()))
    text = corpus(3)
    cut = KNOWN.tokenize(TOKENIZER.encode(text).ids)
    word = np.cumsum(cut.tokens.boundaries != 0)
    where = {int(start) + 1: i for i, start in enumerate(cut.starts)}
    e = example(text, 0, words)
    hidden = {where[int(span[0])] for span in spans(e).values()}
    assert hidden == {i for i in range(len(word)) if word[i] in {int(word[j]) for j in hidden}}
    assert len(hidden) > 10


def test_batch_lists_only_target_positions() -> None:
    texts = ["The old king saw the gate.", "A fox."]
    examples = [example(text, 1) for text in texts]
    batch = pad_examples(examples, SPECIAL)
    assert batch.target_positions is not None
    flat = [
        i + row * batch.inputs.shape[1] for row, e in enumerate(examples) for i in target_indices(e)
    ]
    assert batch.target_positions.tolist() == flat


def test_display_shows_each_subword() -> None:
    always = {"masked": (1.0, 0.0), "replaced": (0.0, 1.0), "kept": (0.0, 0.0)}
    for role, (mask, random) in always.items():
        objective = SubwordMasking(Objective(TokenMasking(0.5), MaskInPlace(mask, random)))
        e = example("the sea saw", 2, objective)
        shown = explain_example(e, TOKENIZER, objective)
        assert shown.loss_terms == ("subwords",)
        roles = {shown.inputs[i].role for where in spans(e).values() for i in where}
        assert roles <= {role, "kept"}
        assert role in roles
        for position in target_indices(e):
            assert shown.inputs[position].target == KNOWN.pieces([int(e.targets[position])])[0]
        assert sum(cell.target is not None for cell in shown.inputs) == len(target_indices(e))
        assert shown.inputs[0].role == "special"


def test_missing_subwords_or_mask_are_refused() -> None:
    plain = train_tokenizer(TokenizerSpec(CodePoints(), CANINE), []).special_ids
    text = Tokens(np.array([97]), np.array([1]))
    for special, message in (
        (plain, "this tokenizer knows none beside its characters"),
        (replace(SPECIAL, mask=None), "needs a mask token"),
    ):
        with pytest.raises(ValueError, match=message):
            CANINE_S(text, special, np.random.default_rng(0))
        with pytest.raises(ValueError, match=message):
            CANINE_S.max_text_length(100, special)
    with pytest.raises(
        ValueError, match=r"objective\.corrupt must be MaskInPlace, got AutoregressiveMasking"
    ):
        SubwordMasking(Objective(WholeWordMasking(), AutoregressiveMasking()))
