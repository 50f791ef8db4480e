"""Denoising: encoder inputs and decoder targets of T5's seven objectives, MASS and UL2."""

from collections import Counter
from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import BERT, GPT, T5, long_text, text, texts

from unmask.batch import IGNORE_INDEX, Example, Tokens
from unmask.batching.collate import pack_examples, pad_examples
from unmask.config import from_dict, to_dict
from unmask.objectives.corrupt import CausalLM, MaskedSeq2Seq
from unmask.objectives.denoising.denoise import DenoisingObjective, ModeSwitching
from unmask.objectives.denoising.noise import TokenMaskingNoise, TokenPermutation
from unmask.objectives.denoising.replace_spans import DropTokens, ReplaceSpans
from unmask.objectives.mixtures import ObjectiveMixture
from unmask.objectives.objective import Objective
from unmask.objectives.published import (
    MASS,
    T5_BY_RATE,
    T5_BY_SPAN_LENGTH,
    T5_OBJECTIVES,
    UL2,
    ObjectiveSpec,
)
from unmask.objectives.select import FragmentMasking, RandomSpanMasking, SuffixMasking, TokenMasking
from unmask.tokenizers.spec import SpecialTokenIds

SEEDS = st.integers(0, 2**32 - 1)
SENTENCE = "Thank you for inviting me to your party last week ."
NAMES = ("<pad>", "</s>", "<unk>", *SENTENCE.split(), "apple", "<Z>", "<Y>", "<X>")
"""By id, as T5 has them: the first sentinel is the last token."""
IDS = {name: i for i, name in enumerate(NAMES)} | {"<M>": NAMES.index("<X>")}
WORDS = SpecialTokenIds(
    vocab_size=len(NAMES), pad=0, start=0, end=1, unknown=2, suffix=(1,),
    sentinels=tuple(IDS[x] for x in ("<X>", "<Y>", "<Z>")),
    all_ids=frozenset({0, 1, 2, *(IDS[x] for x in ("<X>", "<Y>", "<Z>"))}),
)  # fmt: skip
MANY = SpecialTokenIds(
    vocab_size=200_000, pad=0, start=0, end=1, unknown=2, suffix=(1,),
    sentinels=tuple(range(199_999, 120_000, -1)), modes=(3, 4, 5),
    all_ids=frozenset({0, 1, 2, 3, 4, 5, *range(120_001, 200_000)}),
)  # fmt: skip
MASKED = replace(MANY, mask=6, sentinels=(), all_ids=frozenset(range(7)))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def ids(spec: str) -> list[int]:
    return [IDS[word] for word in spec.split()]


def distinct(n: int) -> Tokens:
    """A text of which no token comes twice, so that it is seen what became of each."""
    return replace(long_text(n), ids=np.arange(7, n + 7))


@dataclass(frozen=True)
class These(TokenMasking):
    """Hides the words of one text that are named."""

    words: str = ""

    def __call__(self, text, free, rng):
        return np.isin(text.ids, ids(self.words))


class Fixed(np.random.Generator):
    """Draws what is wanted."""

    def __init__(self, dice: str = "", order: str = "") -> None:
        super().__init__(np.random.PCG64(0))
        self.dice, self.order = dice, order

    def random(self, size):
        """Draw that each word of the text is masked, but some that become random."""
        return np.where(np.isin(ids(SENTENCE), ids(self.dice)), 0.95, 0.5)

    def integers(self, low, **more):
        """Draw the last word."""
        return np.full(more["size"], low - 1)

    def permutation(self, x):
        """Draw an order of the words."""
        return np.array([ids(SENTENCE).index(word) for word in ids(self.order)])


# ---- T5: table 3, row by row, and figure 2


THREE, SIX = These(words="for inviting last"), These(words="for inviting me your party last")
TAIL = These(words="me to your party last week .")
ROWS = {
    "prefix_language_model": (
        Objective(TAIL, DropTokens()),
        rng(),
        "Thank you for inviting",
        "me to your party last week .",
    ),
    "bert_style": (
        DenoisingObjective((TokenMaskingNoise(THREE, random_token_probability=0.1),)),
        Fixed(dice="last"),
        "Thank you <M> <M> me to your party apple week .",
        SENTENCE,
    ),
    # The paper's row has a word more, "fun", that its text does not have.
    "deshuffling": (
        DenoisingObjective((TokenPermutation(),)),
        Fixed(order="party me for your to . last you inviting week Thank"),
        "party me for your to . last you inviting week Thank",
        SENTENCE,
    ),
    "mass_style": (
        DenoisingObjective((TokenMaskingNoise(THREE),)),
        rng(),
        "Thank you <M> <M> me to your party <M> week .",
        SENTENCE,
    ),
    "replaced_spans": (
        Objective(THREE, ReplaceSpans()),
        rng(),
        "Thank you <X> me to your party <Y> week .",
        "<X> for inviting <Y> last <Z>",
    ),
    "dropped_tokens": (
        Objective(THREE, DropTokens()),
        rng(),
        "Thank you me to your party week .",
        "for inviting last",
    ),
    "random_spans": (
        Objective(SIX, ReplaceSpans()),
        rng(),
        "Thank you <X> to <Y> week .",
        "<X> for inviting me <Y> your party last <Z>",
    ),
}
"""Which tokens are hidden is set by hand; figure 2 is the row of replaced spans."""


@pytest.mark.parametrize("name", ROWS)
def test_paper_table_is_reproduced_token_for_token(name: str) -> None:
    objective, generator, source, target = ROWS[name]
    e = objective(text(ids(SENTENCE)), WORDS, generator)
    assert e.source.tolist() == [*ids(source), IDS["</s>"]]
    assert e.targets.tolist() == [*ids(target), IDS["</s>"]]
    assert e.inputs.tolist() == [IDS["<pad>"], *ids(target)]
    assert e.rank.tolist() == list(range(len(e.targets)))


def without_choice(objective: ObjectiveSpec) -> ObjectiveSpec:
    """Every part but the choice of tokens."""
    if isinstance(objective, Objective):
        return replace(objective, select=TokenMasking())
    noises = (
        replace(n, select=TokenMasking()) if isinstance(n, TokenMaskingNoise) else n
        for n in objective.noises
    )
    return replace(objective, noises=tuple(noises))


def test_ablation_rows_differ_only_in_selection() -> None:
    assert list(ROWS) == list(T5_OBJECTIVES)
    for name, objective in T5_OBJECTIVES.items():
        assert without_choice(ROWS[name][0]) == without_choice(objective)


# ---- T5: properties


EVERY = [
    *T5_OBJECTIVES.values(),
    *T5_BY_RATE.values(),
    *T5_BY_SPAN_LENGTH.values(),
    Objective(FragmentMasking(), ReplaceSpans()),
    Objective(FragmentMasking(0.3), DropTokens()),
    *(part for _, part in UL2.components),
    UL2,
    MASS,
    Objective(RandomSpanMasking(0.3, 2.0), MaskedSeq2Seq()),
]
each = pytest.mark.parametrize("objective", EVERY, ids=str)


def special_of(objective: ObjectiveSpec) -> SpecialTokenIds:
    if isinstance(objective, Objective) and isinstance(objective.corrupt, MaskedSeq2Seq):
        return replace(BERT, start=3)
    return replace(T5, modes=(5, 6, 7), all_ids=T5.all_ids | {5, 6, 7})


@pytest.mark.sample(6)
@each
@settings(max_examples=15)
@given(tokens=texts(), seed=SEEDS)
def test_same_seed_gives_same_example_and_keeps_the_text(objective, tokens, seed):
    special, before = special_of(objective), tokens.ids.copy()
    a, b = (objective(tokens, special, rng(seed)) for _ in "ab")
    np.testing.assert_equal(asdict(a), asdict(b))
    assert np.array_equal(tokens.ids, before)
    assert from_dict(type(objective), to_dict(objective)) == objective


@pytest.mark.sample(6)
@each
@settings(max_examples=15)
@given(tokens=texts(least=1), seed=SEEDS)
def test_decoder_inputs_are_shifted_targets(objective, tokens, seed):
    e = objective(tokens, special_of(objective), rng(seed))
    assert e.rank.tolist() == list(range(len(e.inputs)))
    if (e.targets == IGNORE_INDEX).all():
        return
    assert len(e.inputs) == len(e.targets)
    if e.position_ids is None:
        assert e.inputs.tolist() == [special_of(objective).start, *e.targets[:-1]]
    else:
        after = np.flatnonzero(np.diff(e.position_ids) == 1) + 1
        assert (e.inputs[after] == e.targets[after - 1]).all()


@pytest.mark.sample(27)
@each
@pytest.mark.parametrize("length", [16, 64])
def test_examples_fit_the_maximum_length(objective, length):
    special = special_of(objective)
    budget = objective.max_text_length(length, special)
    for n in (1, 2, budget // 2, budget - 1, budget):
        bound = int(objective.max_example_length(np.array([n]), special)[0])
        assert bound <= length
        for seed in range(5):
            e = objective(long_text(n, seed), special, rng(seed))
            assert max(len(e.source), len(e.inputs)) <= bound


@pytest.mark.sample(6)
@each
@settings(max_examples=15)
@given(tokens=texts(least=2), seed=SEEDS)
def test_special_tokens_in_text_are_kept(objective, tokens, seed):
    special = special_of(objective)
    where = rng(seed).integers(0, len(tokens) + 1, 3)
    tokens = Tokens(
        np.insert(tokens.ids, where, special.end), np.insert(tokens.boundaries, where, 0)
    )
    e = objective(tokens, special, rng(seed))
    if isinstance(objective, Objective) and isinstance(objective.corrupt, MaskedSeq2Seq):
        ends = np.flatnonzero(tokens.ids == special.end) + len(special.prefix)
        assert (e.source[ends] == special.end).all()
    elif isinstance(objective, DenoisingObjective):
        assert (e.source == special.end).sum() == 4
        assert (e.targets == special.end).sum() == 4
    elif (e.targets != IGNORE_INDEX).all():
        assert (e.source == special.end).sum() + (e.targets == special.end).sum() == 5


@given(tokens=texts(least=1), seed=SEEDS)
def test_dropped_and_visible_tokens_make_the_text(tokens, seed):
    hidden = rng(seed).random(len(tokens)) < 0.3
    e = DropTokens()(tokens, hidden, T5, rng(seed))
    assert e.source.tolist() == [*tokens.ids[~hidden], 1]
    if hidden.any():
        assert e.targets.tolist() == [*tokens.ids[hidden], 1]
    else:
        assert e.targets.tolist() == [IGNORE_INDEX]


def rebuilt(e: Example, special: SpecialTokenIds) -> list[int]:
    """Put the tokens after each sentinel in its place."""
    spans, marks = dict[int, list[int]](), set(special.sentinels)
    for token in e.targets.tolist():
        if token in marks:
            now, spans[token] = token, []
        elif token != special.end:
            spans[now].append(token)
    return [x for t in e.source.tolist() for x in spans.get(t, [t]) if x != special.end]


N = 100_000


@pytest.mark.parametrize("rate", T5_BY_RATE)
def test_expected_number_of_single_tokens_is_masked(rate: float) -> None:
    special = replace(MANY, vocab_size=400_000, sentinels=tuple(range(399_999, 300_000, -1)))
    special = replace(special, all_ids=frozenset({0, 1, 2, *special.sentinels}))
    e = T5_BY_RATE[rate](distinct(N), special, rng())
    output = ~np.isin(e.targets, special.sentinels)
    assert output.sum() - 1 == round(rate * N)
    # A run begins where a hidden token stands behind a shown one.
    assert abs((~output).sum() / N - rate * (1 - rate)) < 0.005
    assert rebuilt(e, special) == distinct(N).ids.tolist()


@pytest.mark.parametrize("mean", T5_BY_SPAN_LENGTH)
def test_expected_number_of_tokens_and_spans_is_masked(mean: float) -> None:
    e = T5_BY_SPAN_LENGTH[mean](distinct(N), MANY, rng())
    marks = np.flatnonzero(np.isin(e.targets, MANY.sentinels))
    assert len(marks) == round(0.15 * N / mean)  # a span ends the text: no sentinel closes it
    lengths = np.diff(np.append(marks, len(e.targets) - 1)) - 1
    assert lengths.sum() == 0.15 * N
    assert lengths.min() == 1
    # All cuts are equally likely: about geometric, whose variance is mean (mean - 1).
    assert abs(lengths.var() / (mean * (mean - 1)) - 1) < 0.1
    assert rebuilt(e, MANY) == distinct(N).ids.tolist()


@pytest.mark.parametrize("random", [0.0, 0.1])
def test_t5_uses_its_first_sentinel_as_mask(random: float) -> None:
    tokens = distinct(N)
    e = T5_OBJECTIVES["bert_style" if random else "mass_style"](tokens, MANY, rng())
    source = e.source[:-1]
    masked, other = source == MANY.sentinels[0], source != tokens.ids
    assert other.sum() in range(14_990, 15_001)  # a random token may be the same
    assert abs(masked.mean() - 0.15 * (1 - random)) < 0.002
    assert not np.isin(source[~masked], sorted(MANY.all_ids)).any()
    assert e.targets[:-1].tolist() == tokens.ids.tolist()


@given(tokens=texts(), seed=SEEDS)
def test_permutation_moves_tokens_with_their_boundaries(tokens, seed):
    moved = TokenPermutation()(tokens, T5, rng(seed))
    pairs = [
        sorted(zip(t.ids.tolist(), t.boundaries.tolist(), strict=True)) for t in (tokens, moved)
    ]
    assert pairs[0] == pairs[1]


def test_token_permutations_are_uniform() -> None:
    tokens = text([10, 11, 12])
    orders = Counter(tuple(TokenPermutation()(tokens, T5, rng(s)).ids) for s in range(1200))
    assert len(orders) == 6
    assert all(150 < n < 250 for n in orders.values())


@pytest.mark.parametrize(("n", "hidden"), [(2, 1), (3, 1), (8, 2), (10, 2), (100, 25)])
def test_suffix_of_the_given_share_is_masked(n: int, hidden: int) -> None:
    e = Objective(SuffixMasking(rate=0.25), DropTokens())(distinct(n), MANY, rng())
    assert e.targets.tolist() == [*distinct(n).ids[n - hidden :], 1]


# ---- MASS


@given(n=st.integers(1, 60), rate=st.sampled_from([0.1, 0.5, 1.0]), seed=SEEDS)
def test_fragment_is_contiguous(n, rate, seed):
    hidden = np.flatnonzero(FragmentMasking(rate)(distinct(n), np.ones(n, bool), rng(seed)))
    assert len(hidden) == max(1, round(rate * n))
    assert (np.diff(hidden) == 1).all()


def test_fragment_start_is_uniform() -> None:
    starts = Counter(
        int(np.argmax(FragmentMasking()(distinct(8), np.ones(8, bool), rng(s))))
        for s in range(1000)
    )
    assert sorted(starts) == [0, 1, 2, 3, 4]
    assert all(150 < n < 250 for n in starts.values())


@given(tokens=texts(least=1), seed=SEEDS)
def test_decoder_predicts_the_fragment_at_its_positions(tokens, seed):
    special = replace(BERT, start=3)
    e = MASS(tokens, special, rng(seed))
    framed = np.array([2, *tokens.ids, 3])
    assert len(e.targets) == max(1, round(0.5 * len(tokens)))
    assert (np.diff(e.position_ids) == 1).all()
    assert e.targets.tolist() == framed[e.position_ids].tolist()
    assert e.inputs.tolist() == framed[e.position_ids - 1].tolist()
    whole = e.source.copy()
    whole[e.position_ids] = e.targets
    assert whole.tolist() == framed.tolist()


def test_fragment_is_corrupted_80_10_10() -> None:
    tokens = distinct(N)
    e = MASS(tokens, MASKED, rng())
    inside = e.source[e.position_ids]
    assert len(inside) == N // 2
    assert abs((inside == MASKED.mask).mean() - 0.8) < 0.01
    assert abs((inside == e.targets).mean() - 0.1) < 0.01
    assert not np.isin(inside, sorted(MASKED.all_ids - {MASKED.mask})).any()


def test_first_token_follows_the_start_and_empty_text_has_no_targets() -> None:
    e = Objective(
        FragmentMasking(1.0), MaskedSeq2Seq(mask_probability=1.0, random_token_probability=0.0)
    )(distinct(3), MASKED, rng())
    assert e.inputs.tolist() == [MASKED.start, 7, 8]
    assert e.source.tolist() == [6, 6, 6, 1]
    e = MASS(text([]), replace(MASKED, suffix=()), rng())
    assert (e.source.tolist(), e.targets.tolist()) == ([MASKED.start], [IGNORE_INDEX])


def test_position_ids_are_kept_in_a_batch() -> None:
    short, long = (MASS(distinct(n), MASKED, rng(n)) for n in (6, 10))
    batch = pad_examples([short, long], MASKED)
    assert batch.visibility.causal
    assert batch.position_ids[0].tolist() == [*short.position_ids, 0, 0]
    assert batch.position_ids[1].tolist() == long.position_ids.tolist()
    both = pack_examples([short, long], MASKED, 20)
    assert both.position_ids[0, :8].tolist() == [*short.position_ids, *long.position_ids]
    without = DenoisingObjective(())(distinct(4), MASKED, rng())
    assert pad_examples([short, without], MASKED).position_ids[1].tolist() == [0, 1, 2, 3, 4]
    assert pad_examples([without], MASKED).position_ids is None


# ---- UL2


TABLE = {
    ("R", 3.0, 0.15), ("R", 8.0, 0.15), ("X", 3.0, 0.5), ("X", 8.0, 0.5), ("X", 64.0, 0.15),
    ("X", 64.0, 0.5),
}  # fmt: skip
"""Table 1 of the paper, without the S-denoiser."""


def test_ul2_has_the_seven_denoisers_equally_often() -> None:
    parts = [part for weight, part in UL2.components if weight == UL2.components[0][0]]
    assert len(parts) == 7
    spans = [p for p in parts if isinstance(p.objective.select, RandomSpanMasking)]
    known = {(p.mode, p.objective.select.mean_span_length, p.objective.select.rate) for p in spans}
    assert known == TABLE
    (tail,) = (p for p in parts if p not in spans)
    assert tail == ModeSwitching(Objective(SuffixMasking(rate=0.25), DropTokens()), "S")
    few = replace(
        MANY, vocab_size=200, sentinels=tuple(range(199, 100, -1)), all_ids=frozenset({0, 1, 2})
    )
    firsts = Counter(int(UL2(distinct(40), few, rng(s)).source[0]) for s in range(700))
    assert [abs(firsts[mode] - 700 * n / 7) < 60 for mode, n in ((3, 2), (4, 1), (5, 4))] == [
        True
    ] * 3


@pytest.mark.parametrize("number", range(7))
def test_denoiser_is_its_objective_with_mode_token(number: int) -> None:
    part = UL2.components[number][1]
    e, plain = (o(distinct(512), MANY, rng(1)) for o in (part, part.objective))
    assert e.source.tolist() == [{"R": 3, "S": 4, "X": 5}[part.mode], *plain.source]
    assert e.targets.tolist() == plain.targets.tolist()
    output = ~np.isin(e.targets, [*MANY.sentinels, MANY.end])
    assert output.sum() == round(512 * getattr(part.objective.select, "rate", 0.25))


def test_mode_needs_its_token_and_an_encoder() -> None:
    with pytest.raises(ValueError, match="mode X needs a token of its own"):
        ModeSwitching(T5_OBJECTIVES["random_spans"], "X")(text([10, 11]), T5, rng())
    with pytest.raises(ValueError, match="objective must be ReplaceSpans, DropTokens"):
        ModeSwitching(Objective(SuffixMasking(), CausalLM()))
    with pytest.raises(ValueError, match="rate must be above 0"):
        SuffixMasking(rate=0.0)
    with pytest.raises(ValueError, match="rate must be above 0"):
        FragmentMasking(1.1)
    with pytest.raises(ValueError, match="mask_probability must be between 0 and 1"):
        MaskedSeq2Seq(mask_probability=2.0)
    with pytest.raises(ValueError, match="needs a mask token"):
        MASS(text([10, 11]), GPT, rng())


def test_only_decoder_objectives_can_be_mixed() -> None:
    mixed = ObjectiveMixture(
        tuple((1.0, part) for part in (*T5_OBJECTIVES.values(), MASS, UL2.components[0][1]))
    )
    assert mixed.loss_terms == ("denoised",)
    assert mixed.causal
    with pytest.raises(
        ValueError,
        match=r"\(ReplaceSpans, DropTokens, MaskedSeq2Seq, DenoisingObjective, ModeSwitching\)",
    ):
        ObjectiveMixture(((1.0, MASS), (1.0, Objective(SuffixMasking(), CausalLM()))))
