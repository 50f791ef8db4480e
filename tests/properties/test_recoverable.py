"""The original text can be rebuilt from an example of any objective."""

from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batch import IGNORE_INDEX, Example, Tokens
from unmask.objectives import published
from unmask.objectives.corrupt import CausalLM, MaskedNextToken, MaskInPlace
from unmask.objectives.denoising.denoise import DenoisingObjective
from unmask.objectives.denoising.noise import (
    DocumentRotation,
    SentencePermutation,
    TextInfilling,
    TokenDeletion,
    TokenMaskingNoise,
)
from unmask.objectives.denoising.replace_spans import ReplaceSpans
from unmask.objectives.features import ShiftedTargets
from unmask.objectives.mixtures import ObjectiveMixture, StaticMasking
from unmask.objectives.objective import AnyObjective, Objective
from unmask.objectives.select import (
    RandomSpanMasking,
    SuffixMasking,
    TokenMasking,
    WholeWordMasking,
)
from unmask.objectives.sentence_pairs.pairs import SentencePairObjective
from unmask.objectives.sentence_pairs.tasks import NextSentencePrediction
from unmask.tokenizers.spec import SpecialTokenIds

BERT = SpecialTokenIds(
    vocab_size=60,
    pad=0,
    unknown=1,
    start=2,
    end=3,
    mask=4,
    prefix=(2,),
    separator=(3,),
    suffix=(3,),
    all_ids=frozenset({0, 1, 2, 3, 4}),
)
ROBERTA = replace(BERT, separator=(3, 3))
BART = replace(ROBERTA, start=3)
T5 = SpecialTokenIds(
    vocab_size=60, pad=0, start=0, end=1, unknown=2, separator=(1,), suffix=(1,),
    sentinels=tuple(range(59, 39, -1)), all_ids=frozenset({0, 1, 2, *range(40, 60)}),
)  # fmt: skip
GPT2 = SpecialTokenIds(vocab_size=60, pad=59, start=59, end=59, unknown=59, all_ids=frozenset({59}))
LLAMA = SpecialTokenIds(
    vocab_size=60,
    pad=1,
    start=0,
    end=1,
    unknown=2,
    prefix=(0,),
    separator=(0,),
    all_ids=frozenset({0, 1, 2}),
)
GPT_BERT = SpecialTokenIds(
    vocab_size=60, pad=3, start=1, end=2, mask=4, unknown=0, prefix=(1,), separator=(1,),
    all_ids=frozenset({0, 1, 2, 3, 4}),
)  # fmt: skip
XLNET = replace(BERT, prefix=(), separator=(3,), suffix=(3, 2))
NEXT = Objective(TokenMasking(0.3), MaskedNextToken())
WORDS = st.integers(5, 39)


@dataclass(frozen=True)
class Case:
    name: str
    objective: AnyObjective
    special: SpecialTokenIds
    rate: float | None
    """Share of tokens that are targets in long texts; None: it depends on the text."""


CASES = [
    Case("BERT without pairs", published.MASKED_LM, BERT, 0.15),
    Case("BERT", published.BERT, BERT, 0.15),
    Case("BERT of whole words", published.BERT_WHOLE_WORD, BERT, 0.15),
    Case("RoBERTa, static", StaticMasking(published.MASKED_LM, 10), ROBERTA, 0.15),
    Case("spans in place", Objective(RandomSpanMasking(0.15, 3.8), MaskInPlace()), BERT, 0.15),
    Case(
        "pairs in RoBERTa's frame",
        SentencePairObjective(Objective(WholeWordMasking(0.2), MaskInPlace())),
        ROBERTA,
        0.2,
    ),
    Case("ALBERT", published.ALBERT, BERT, 0.15),
    Case("SpanBERT", published.SPANBERT, BERT, 0.15),
    Case("ELECTRA", published.ELECTRA, BERT, 0.15),
    Case(
        "pairs of single sentences",
        SentencePairObjective(published.MASKED_LM, NextSentencePrediction(single_sentences=True)),
        BERT,
        None,
    ),
    Case("COCO-LM", published.COCO_LM, BERT, None),
    Case("DeBERTa", published.DEBERTA, BERT, 0.15),
    Case("ModernBERT", published.MODERNBERT, BERT, 0.3),
    Case("masked diffusion", published.MASKED_DIFFUSION, BERT, None),
    Case("CANINE-C", published.CANINE_C, BERT, 0.15),
    Case("masked next tokens", dict(published.GPT_BERT.components_by_name)["masked"], BERT, 0.15),
    Case("masked next tokens in a frame of its own", NEXT, GPT_BERT, 0.3),
    Case("GPT-BERT", published.GPT_BERT, GPT_BERT, None),
    Case("GPT-2", published.CAUSAL_LM, GPT2, 1.0),
    Case("Llama", published.CAUSAL_LM, LLAMA, 1.0),
    Case("GPT with an end of text", published.CAUSAL_LM, T5, 1.0),
    Case("prefix language model", published.PREFIX_LM, GPT2, None),
    Case(
        "spans of a prefix language model",
        Objective(RandomSpanMasking(0.5, 3.0), CausalLM()),
        GPT2,
        0.5,
    ),
    Case("T5", published.T5, T5, None),
    Case(
        "T5, half of the tokens", Objective(RandomSpanMasking(0.5, 10.0), ReplaceSpans()), T5, None
    ),
    Case("T5, single tokens", Objective(TokenMasking(0.3), ReplaceSpans()), T5, None),
    Case("T5, prefix", Objective(SuffixMasking(), ReplaceSpans()), T5, None),
    Case("BART", published.BART, BART, 1.0),
    Case("BART, start as in RoBERTa", published.BART, ROBERTA, 1.0),
    Case("masked tokens, restored", DenoisingObjective((TokenMaskingNoise(),)), BART, 1.0),
    Case("deleted tokens, restored", DenoisingObjective((TokenDeletion(),)), BART, 1.0),
    Case("infilling, restored", DenoisingObjective((TextInfilling(),)), BART, 1.0),
    Case("sentences, restored", DenoisingObjective((SentencePermutation(),)), T5, 1.0),
    Case("rotation, restored", DenoisingObjective((DocumentRotation(), TokenDeletion())), T5, 1.0),
    Case(
        "a mixture",
        ObjectiveMixture(((1.0, published.MASKED_LM), (1.0, published.PREFIX_LM))),
        BERT,
        None,
    ),
    Case("UniLM", published.UNILM, BERT, 0.15),
    Case("XLNet, what follows", replace(published.XLNET, random_probability=0.0), XLNET, 1 / 6),
]
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@st.composite
def texts(draw: st.DrawFn) -> Tokens:
    def one() -> Tokens:
        ids = draw(st.lists(WORDS, min_size=1, max_size=60))
        marks = draw(st.lists(st.sampled_from([0, 1, 1, 3]), min_size=len(ids), max_size=len(ids)))
        return Tokens(np.array(ids, np.int64), np.array(marks, np.int64))

    return replace(one(), other_text=one())


SEEDS = st.integers(0, 2**32 - 1)


def example(case: Case, text: Tokens, seed: int) -> Example:
    return case.objective(text, case.special, np.random.default_rng(seed))


def shifted(e: Example) -> bool:
    """Each position reads the token before its target."""
    return e.source is None and e.has(ShiftedTargets)


def reveal(e: Example, special: SpecialTokenIds) -> np.ndarray:
    """The text: targets where there are any, inputs elsewhere, spans back in their holes."""
    if e.source is None:
        read = np.append(e.inputs[1:], IGNORE_INDEX) if shifted(e) else e.inputs
        return np.where(e.targets != IGNORE_INDEX, e.targets, read)
    if not np.isin(e.targets, special.sentinels).any() and (e.targets != IGNORE_INDEX).all():
        return e.targets  # the whole text is said
    spans: dict[int, list[int]] = {}
    now: list[int] = []
    for token in e.targets[: len(e.targets) - len(special.suffix)].tolist():
        if token in special.sentinels:
            now = spans.setdefault(token, [])
        else:
            now.append(token)
    whole = [spans[t] if t in special.sentinels else [t] for t in e.source.tolist()]
    return np.array([t for part in whole for t in part])


def special_around(special: SpecialTokenIds) -> tuple[int, ...]:
    return (*special.prefix, *special.suffix)


def contains(text: np.ndarray, part: np.ndarray) -> bool:
    n = len(part)
    return any((text[i : i + n] == part).all() for i in range(len(text) - n + 1))


@pytest.mark.sample(4)
@each
@settings(max_examples=40)
@given(text=texts(), seed=SEEDS)
def test_masked_text_is_recoverable_from_the_example(case, text, seed):
    e, special = example(case, text, seed), case.special
    whole = reveal(e, special)
    if e.part_ids is not None:
        first = whole[e.part_ids == 0]
        assert first.tolist() == [*special.prefix, *text.ids, *special.suffix]
        crop = e.inputs[e.part_ids == 1][len(special.prefix) : -len(special.suffix)]
        assert contains(text.ids, crop)
        assert len(crop) == -(-9 * len(text) // 10)
    elif shifted(e) and e.rank is None:
        assert whole[:-1].tolist() == [*text.ids, *special.suffix]
        assert e.inputs[0] == (special.prefix or (special.start,))[0]
    elif shifted(e):
        asked_nothing_at_the_end = e.targets[-1] == IGNORE_INDEX
        n = len(text) if not asked_nothing_at_the_end else len(whole) - 1
        assert (whole[:n] == text.ids[:n]).all()
        assert asked_nothing_at_the_end or whole[n:].tolist() == list(special.suffix)
    elif isinstance(case.objective, DenoisingObjective):
        assert whole.tolist() == [*special.decoder_prefix, *text.ids, *special.suffix]
    elif e.source is not None:
        assert whole.tolist() == [*text.ids, *special.suffix]
    elif (e.segments is None or (e.segments == e.segments[0]).all()) and e.label in (
        None,
        IGNORE_INDEX,
    ):
        assert whole.tolist() == [*special.prefix, *text.ids, *special.suffix]
    else:
        second = int(np.argmax(e.segments))
        assert (np.diff(e.segments) >= 0).all()
        a = whole[len(special.prefix) : second - len(special.separator)]
        b = whole[second : len(whole) - len(special.suffix)]
        frame = (whole[: len(special.prefix)], whole[second - len(special.separator) : second])
        assert [part.tolist() for part in frame] == [list(special.prefix), list(special.separator)]
        assert whole[len(whole) - len(special.suffix) :].tolist() == list(special.suffix)
        assert e.label in (0, 1, None)
        if e.label and not case.objective.needs_second_text:  # swapped
            assert (np.concatenate((b, a)) == text.ids[: len(a) + len(b)]).all()
        elif e.label:
            assert contains(text.ids, a)
            assert contains(text.other_text.ids, b)
        elif getattr(getattr(case.objective, "sentence_task", None), "single_sentences", False):
            assert contains(text.ids, np.concatenate((a, b)))
        else:
            assert (np.concatenate((a, b)) == text.ids[: len(a) + len(b)]).all()


@pytest.mark.sample(4)
@each
@settings(max_examples=40)
@given(text=texts(), seed=SEEDS)
def test_same_seed_gives_same_example(case, text, seed):
    a, b = (example(case, text, seed) for _ in "ab")
    np.testing.assert_equal(asdict(a), asdict(b))


@pytest.mark.sample(9)
@each
@settings(max_examples=40)
@given(text=texts(), seed=SEEDS)
def test_targets_are_never_visible(case, text, seed):
    e = example(case, text, seed)
    if e.source is not None:
        assert e.rank.tolist() == list(range(len(e.inputs)))
        assert e.inputs[1:].tolist() == e.targets[:-1].tolist()
        assert e.inputs[0] == case.special.start
        if isinstance(case.objective, DenoisingObjective):
            assert len(e.source) <= len(special_around(case.special)) + len(text)
            return
        n_hidden = sum(t not in case.special.sentinels for t in e.targets) - len(
            case.special.suffix
        )
        n_runs = sum(t in case.special.sentinels for t in e.source)
        nothing = bool((e.targets == IGNORE_INDEX).all())
        assert len(e.source) == len(text) + len(case.special.suffix) - (
            0 if nothing else n_hidden - n_runs
        )
    elif shifted(e) and e.rank is None:
        masked = np.flatnonzero(e.inputs == case.special.mask)
        assert (e.targets[masked - 1] != IGNORE_INDEX).all()
    elif shifted(e):
        for i in np.flatnonzero(e.targets != IGNORE_INDEX):
            # input j holds token j - 1, so place i, asked for token i, may not see beyond itself
            assert (e.rank[i + 1 :] > e.rank[i]).all()
    else:
        masked = e.inputs == case.special.mask
        assert (e.targets[masked] != IGNORE_INDEX).all()


@pytest.mark.sample(9)
@each
@settings(max_examples=40)
@given(text=texts(), seed=SEEDS)
def test_special_tokens_stay_in_place(case, text, seed):
    e, special = example(case, text, seed), case.special
    if e.source is None and not shifted(e):
        frame = set(special.prefix + special.separator + special.suffix)
        there = np.isin(e.inputs, list(frame))
        assert (e.targets[there] == IGNORE_INDEX).all()
        assert not np.isin(e.inputs, [special.pad, special.unknown]).any()


@pytest.mark.sample(9)
@each
@settings(max_examples=40)
@given(text=texts(), seed=SEEDS)
def test_example_has_predicted_length(case, text, seed):
    e = example(case, text, seed)
    longest = max(len(e.inputs), 0 if e.source is None else len(e.source))
    assert longest <= case.objective.max_example_length(np.array([len(text)]), case.special)[0]


@pytest.mark.parametrize("case", [c for c in CASES if c.rate is not None], ids=lambda c: c.name)
def test_long_texts_are_masked_at_published_rate(case):
    rng = np.random.default_rng(0)
    n_targets = read = 0
    for seed in range(40):
        marks = np.where(rng.random(500) < 0.1, 3, rng.random(500) < 0.7)
        text = Tokens(rng.integers(5, 40, 500), marks.astype(np.int64))
        text = replace(text, other_text=Tokens(rng.integers(5, 40, 500), text.boundaries))
        e = example(case, text, seed)
        n_targets += int((e.targets != IGNORE_INDEX).sum())
        read += len(e.targets)
    assert abs(n_targets / read - case.rate) < 0.01


def test_t5_masks_85_of_568_tokens_in_28_spans():
    special = replace(
        T5, vocab_size=200, sentinels=tuple(range(199, 99, -1)), all_ids=frozenset({0, 1, 2})
    )
    text = Tokens(np.random.default_rng(0).integers(5, 40, 568), np.ones(568, np.int64))
    e = published.T5(text, special, np.random.default_rng(0))
    sentinels = np.isin(e.targets, special.sentinels)
    assert (len(e.source), len(e.targets), sentinels.sum()) == (512, 114, 28)
    assert e.targets[sentinels].tolist() == list(special.sentinels[:28])
    assert e.source[np.isin(e.source, special.sentinels)].tolist() == list(special.sentinels[:28])
