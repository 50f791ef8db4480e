import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import BERT, GPT, LLAMA, T5, long_text, text, texts

from unmask.batch import IGNORE, SENTENCE
from unmask.config import from_dict, to_dict
from unmask.hiding import objectives
from unmask.hiding.choose import Everything, Spans, Tail, Tokenwise
from unmask.hiding.conceal import Future, InPlace, Sentinels
from unmask.hiding.objectives import (
    Apart,
    BesideCrop,
    Hide,
    Mixture,
    Neighbors,
    NextSentence,
    Objective,
    OneWay,
    Pair,
    SentenceOrder,
    Sentences,
    SourceTarget,
    Static,
)

SEEDS = st.integers(0, 2**32 - 1)
HUNDRED = replace(T5, size=1000, sentinels=tuple(range(999, 899, -1)), ids=frozenset({0, 1, 2}))
MIXTURE = Mixture(((1.0, objectives.MASKED), (2.0, objectives.GPT), (1.0, objectives.PREFIX)))
ALL = [
    objectives.MASKED, objectives.BERT, objectives.WHOLE_WORD, objectives.GPT, objectives.PREFIX,
    objectives.T5, MIXTURE, Static(objectives.BERT, 4), Apart(objectives.MASKED), objectives.ALBERT,
    objectives.SPANBERT, objectives.ELECTRA, objectives.COCO_LM, objectives.UNILM,
    OneWay(objectives.MASKED), SourceTarget(objectives.MASKED), objectives.GPT_BERT,
    objectives.BART, Static(objectives.BART, 2), objectives.SKIP_THOUGHTS,
    objectives.QUICK_THOUGHTS,
]  # fmt: skip
EVERY_SENTENCE = NextSentence(random=0.5, short=0.0)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ---- how long a text may be


def test_t5_reads_568_tokens_into_512_and_says_114():
    # random_spans_helper(inputs_length=512, noise_density=0.15, mean_noise_span_length=3.0, 1, 1)
    budget = objectives.T5.budget(512, HUNDRED)
    assert budget == 568
    e = objectives.T5(long_text(budget), HUNDRED, rng())
    assert len(e.source) == 512
    assert len(e.targets) == len(e.inputs) == 114


@pytest.mark.parametrize("rate", [0.1, 0.15, 0.25, 0.5])
@pytest.mark.parametrize("mean", [2.0, 3.0, 5.0, 10.0])
@pytest.mark.parametrize("length", [32, 128, 256])
def test_the_budget_of_spans_is_the_released_codes(rate, mean, length):
    def lengths(n: int) -> tuple[int, int]:
        hidden = round(n * rate)
        spans = max(round(hidden / mean), 1)  # there 0 is possible, though one is hidden always
        return n - hidden + spans + 1, hidden + spans + 1

    expected = length - 1
    while lengths(expected + 1)[0] <= length:
        expected += 1
    if rate == 0.5 and lengths(expected)[1] > lengths(expected)[0]:
        expected -= 1  # there a hack for what is said to be no longer than what is read
    assert Hide(Spans(rate, mean), Sentinels()).budget(length, HUNDRED) == expected


@pytest.mark.parametrize(
    ("objective", "special", "length", "budget"),
    [
        (objectives.MASKED, BERT, 512, 510),
        (objectives.BERT, BERT, 512, 509),
        (objectives.WHOLE_WORD, BERT, 128, 125),
        (objectives.ALBERT, BERT, 512, 509),
        (objectives.COCO_LM, BERT, 128, 65),
        (objectives.GPT, GPT, 1024, 1024),
        (objectives.GPT, LLAMA, 2048, 2048),
        (objectives.GPT, T5, 512, 511),
        (objectives.PREFIX, GPT, 512, 512),
        (MIXTURE, BERT, 512, 510),
        (Static(objectives.BERT), BERT, 512, 509),
        (objectives.UNILM, BERT, 512, 509),
        (OneWay(objectives.MASKED), BERT, 512, 510),
        (objectives.GPT_BERT, BERT, 512, 510),
        (SourceTarget(objectives.MASKED), BERT, 512, 509),
    ],
)
def test_a_text_may_be_as_long_as_its_frame_leaves_room(objective, special, length, budget):
    assert objective.budget(length, special) == budget
    e = objective(long_text(budget), special, rng())
    assert len(e.inputs) <= length


def test_a_length_for_special_tokens_only_is_refused():
    for objective, length in ((objectives.MASKED, 2), (objectives.BERT, 4), (objectives.MASKED, 0)):
        with pytest.raises(ValueError, match=f"a length of {length} leaves no room for text"):
            objective.budget(length, BERT)
    assert objectives.BERT.budget(5, BERT) == 2


# ---- what an objective says of itself


def test_objectives_say_what_they_ask():
    assert objectives.BERT.asks == objectives.WHOLE_WORD.asks == ("masked", "next_sentence")
    assert objectives.MASKED.asks == ("masked",)
    assert objectives.GPT.asks == objectives.PREFIX.asks == ("next_token",)
    assert objectives.T5.asks == ("denoised",)
    assert MIXTURE.asks == ("masked", "next_token")
    assert Static(objectives.BERT, 4).asks == ("masked", "next_sentence")
    assert Apart(objectives.MASKED).asks == ("masked", "neighbor")


def test_objectives_say_whether_they_are_causal_need_two_texts_and_repeat_themselves():
    causal = {objectives.GPT, objectives.T5, OneWay(objectives.MASKED), objectives.BART}
    causal.add(Static(objectives.BART, 2))
    pairs = {objectives.BERT, objectives.WHOLE_WORD, objectives.UNILM, Static(objectives.BERT, 4)}
    assert [o.causal for o in ALL] == [o in causal for o in ALL]
    assert [o.pairs for o in ALL] == [o in pairs for o in ALL]
    assert [o.times for o in ALL] == [None] * 7 + [4] + [None] * 10 + [2] + [1] * 2


@dataclass(frozen=True)
class Holder:
    objective: Objective


@pytest.mark.parametrize("objective", ALL)
def test_objectives_are_plain_data_and_back(objective):
    data = to_dict(Holder(objective))
    assert json.loads(json.dumps(data)) == data
    assert from_dict(Holder, data) == Holder(objective)
    assert data["objective"]["kind"] == type(objective).__name__


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("choose", "rate"), 2.0, "rate must be above 0 and at most 1, got 2.0"),
        (("choose", "kind"), "Span", "must be one of"),
        (("conceal", "masks"), 0.8, "unknown key 'objective.conceal.masks'"),
    ],
)
def test_a_wrong_objective_is_refused_in_one_line(path, value, message):
    data = to_dict(Holder(objectives.MASKED))
    data["objective"][path[0]][path[1]] = value
    with pytest.raises(ValueError, match=message) as error:
        from_dict(Holder, data)
    assert "\n" not in str(error.value)


def test_only_what_is_hidden_in_place_can_be_a_pair():
    for kind in (Pair, Apart, OneWay, SourceTarget):
        with pytest.raises(ValueError, match="conceal must be InPlace, got Sentinels"):
            kind(objectives.T5)


def test_mixtures_and_static_masking_need_sensible_numbers():
    for weights in ([], [0.0], [1.0, -1.0], [float("nan")]):
        with pytest.raises(ValueError, match="weights are above 0"):
            Mixture(tuple((w, objectives.MASKED) for w in weights))
    with pytest.raises(ValueError, match="for an encoder-decoder"):
        Mixture(((1.0, objectives.MASKED), (1.0, objectives.T5)))
    with pytest.raises(ValueError, match="times must be at least 1, got 0"):
        Static(objectives.MASKED, 0)
    with pytest.raises(ValueError, match="shortest must be at least 1, got 0"):
        Neighbors(0)
    for field in ("random", "short"):
        with pytest.raises(ValueError, match=f"{field} must be between 0 and 1, got 1.5"):
            NextSentence(**{field: 1.5})


# ---- frames and little text


def test_bert_stands_between_cls_and_sep():
    e = objectives.MASKED(text([20, 21, 22]), BERT, rng())
    assert len(e.inputs) == 5
    assert e.inputs[[0, -1]].tolist() == [2, 3]
    assert e.targets[[0, -1]].tolist() == [IGNORE, IGNORE]
    assert e.rank is None


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize(
    ("objective", "special"),
    [(o, s) for o in ALL for s in (BERT,) if o is not objectives.T5]
    + [(objectives.T5, T5), (objectives.GPT, GPT), (Hide(Tail(), Sentinels()), T5)],
)
@given(seed=SEEDS)
def test_little_text_gives_an_example_that_asks_little_or_nothing(objective, special, n, seed):
    e = objective(text(range(10, 10 + n)), special, rng(seed))
    assert len(e.inputs) == len(e.targets) >= 1
    asked = (e.targets != IGNORE).sum()
    assert asked <= objective.size(np.array([n]), special)[0]
    if n == 0:
        assert not asked
        assert e.label in (None, IGNORE)


def test_the_unknown_is_text_but_is_never_drawn():
    e = Hide(Everything(), InPlace(mask=0.0, random=1.0))(text([1] * 500), BERT, rng())
    assert (e.targets[1:-1] == 1).all()
    assert not (e.inputs == 1).any()


# ---- next sentence


def pair_of(tokens, special, seed, question=EVERY_SENTENCE):
    """Make a pair; give A, B, the label and the segments."""
    show_all = Hide(Tokenwise(1e-9), InPlace(mask=0.0, random=0.0))
    e = Pair(show_all, question)(tokens, special, rng(seed))
    inside = e.inputs[len(special.before) : len(e.inputs) - len(special.after)]
    cut = len(special.before) + int(np.argmax(e.segments)) if e.segments.any() else None
    if cut is None:
        return inside.tolist(), [], e
    end_of_a = int(np.argmax(e.segments)) - len(special.between)
    return (
        e.inputs[len(special.before) : end_of_a].tolist(),
        e.inputs[int(np.argmax(e.segments)) : len(e.inputs) - len(special.after)].tolist(),
        e,
    )


THREE = text(range(10, 22), sentences=[0, 3, 8])
OTHER = text(range(30, 50), sentences=[0, 5, 9, 16])


def test_half_of_the_pairs_follow_each_other_and_half_do_not():
    tokens, labels = replace(THREE, other=OTHER), []
    for seed in range(1000):
        a, b, e = pair_of(tokens, BERT, seed)
        labels.append(e.label)
        if e.label == 0:
            assert len(a) in (3, 8)
            assert a + b == list(range(10, 22))
        else:
            assert len(a) + len(b) <= 12
            assert a == list(range(a[0], a[0] + len(a)))
            assert b == list(range(b[0], b[0] + len(b)))
            assert a[-1] < 18
            assert b[0] >= 30
    assert abs(np.mean(labels) - 0.5) < 5 * np.sqrt(0.25 / 1000)


def test_segments_are_of_a_and_its_sep_and_of_b_and_its_sep():
    a, b, e = pair_of(THREE, BERT, 1)
    assert e.segments.tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert e.inputs[len(a) + 1] == e.inputs[-1] == 3


def test_b_from_elsewhere_begins_with_any_sentence_there():
    tokens = replace(text(range(10, 50), sentences=[0, 2]), other=OTHER)
    starts = {b[0] for seed in range(300) for a, b, e in [pair_of(tokens, BERT, seed)] if e.label}
    assert starts == {30, 35, 39, 46}


def test_neither_lengths_nor_ends_tell_whether_a_text_follows():
    draw, n, rows = rng(5), 80, []
    for _ in range(300):  # pieces of documents, cut in the middle of sentences
        starts = np.flatnonzero(draw.random(n) < 0.15)
        rows.append(text(draw.integers(10, 59, n).tolist(), sentences=starts.tolist()))
    found = {0: [], 1: []}
    for seed in range(3000):
        one, other = (rows[i] for i in rng(seed).choice(300, 2, replace=False))
        a, b, label = EVERY_SENTENCE(replace(one, other=other), rng(seed))
        if label != IGNORE:
            found[label].append((len(a), len(a) + len(b) == n, b.marks[0] & SENTENCE > 0))
    followed, elsewhere = (np.array(found[label], float) for label in (0, 1))
    assert abs(len(followed) / (len(followed) + len(elsewhere)) - 0.5) < 0.05
    assert followed[:, 1].all()
    assert elsewhere[:, 1].mean() > 0.95  # but of rows whose sentences are all too long or short
    assert followed[:, 2].all()
    assert elsewhere[:, 2].mean() > 0.99  # but of rows in which no sentence begins
    assert abs(followed[:, 0].mean() - elsewhere[:, 0].mean()) < 0.05 * n


def test_of_one_sentence_nothing_is_asked():
    tokens = replace(text(range(10, 20)), other=OTHER)
    for seed in range(50):
        a, b, e = pair_of(tokens, BERT, seed)
        assert (a, b, e.label) == (list(range(10, 20)), [], IGNORE)


def test_half_of_the_pairs_are_in_their_order_and_half_are_swapped():
    tokens, question = long_text(60), SentenceOrder(short=0.0)
    tokens.marks[:] = 0
    tokens.marks[::10] = SENTENCE
    swapped, cuts = 0, set()
    for seed in range(400):
        a, b, label = question(tokens, rng(seed))
        first, second = (b, a) if label else (a, b)
        assert np.array_equal(np.concatenate((first.ids, second.ids)), tokens.ids)
        swapped += label
        cuts.add(len(first))
    assert 160 < swapped < 240
    assert cuts == {10, 20, 30, 40, 50}
    assert not Pair(objectives.MASKED, question).pairs  # nothing comes from elsewhere


def test_a_pair_of_sentences_is_one_each_from_here_or_from_elsewhere():
    tokens, other = long_text(60), long_text(60, seed=9)
    for one in (tokens, other):
        one.marks[:] = 0
        one.marks[::10] = SENTENCE
    question, followed = NextSentence(single=True), 0
    for seed in range(300):
        a, b, label = question(replace(tokens, other=other), rng(seed))
        assert len(a) <= 10
        assert len(b) <= 10
        if label == 0:
            together = np.concatenate((a.ids, b.ids))
            where = [
                i for i in range(61) if np.array_equal(tokens.ids[i : i + len(together)], together)
            ]
            assert where
            assert where[0] % 10 == 0
            followed += 1
        else:
            assert any(np.array_equal(other.ids[i : i + len(b)], b.ids) for i in range(0, 60, 10))
    assert 110 < followed < 190


@given(texts(least=0), SEEDS, st.floats(0.05, 1.0))
def test_beside_a_hidden_text_stands_a_crop_of_it_as_it_was(tokens, seed, keep):
    objective = BesideCrop(objectives.MASKED, keep)
    e = objective(tokens, BERT, rng(seed))
    assert len(e.inputs) == objective.size(np.array([len(tokens)]), BERT)[0]
    crop = e.inputs[e.part == 1]
    assert (e.targets[e.part == 1] == IGNORE).all()
    assert (crop[0], crop[-1]) == (BERT.before[0], BERT.after[0])
    n = len(crop) - 2
    assert n == int(np.ceil(keep * len(tokens)))
    assert any((tokens.ids[i : i + n] == crop[1:-1]).all() for i in range(len(tokens) - n + 1))
    whole = np.where(e.targets == IGNORE, e.inputs, e.targets)[e.part == 0]
    assert (whole[1:-1] == tokens.ids).all()


@pytest.mark.parametrize("n", [0, 1])
def test_a_text_of_one_token_has_no_order(n):
    assert Pair(objectives.MASKED, SentenceOrder())(long_text(n), BERT, rng()).label == IGNORE


def test_a_tenth_of_the_rows_is_shorter():
    tokens = replace(text(range(10, 90), sentences=range(0, 80, 4)), other=OTHER)
    always = [
        len(pair_of(tokens, BERT, s, NextSentence(0.0, 1.0))[2].inputs) - 3 for s in range(400)
    ]
    # the first sentences that have a length from 2 to 80 together, of four tokens each; where that
    # is one sentence, the row
    assert min(always) == 8
    assert abs(np.mean(always) - (3 * 80 + 16 * sum(range(2, 21))) / 79) < 6
    default = [len(pair_of(tokens, BERT, s, NextSentence(0.0))[2].inputs) - 3 for s in range(2000)]
    share = np.mean(np.array(default) < 80)
    assert abs(share - 0.1 * 72 / 79) < 5 * np.sqrt(0.1 / 2000)


def test_without_another_text_b_is_what_follows_and_one_sentence_is_asked_nothing():
    labels = {pair_of(THREE, BERT, seed)[2].label for seed in range(20)}
    assert labels == {0}
    a, b, e = pair_of(text(range(10, 20)), BERT, 0)
    assert (a, b, e.label) == (list(range(10, 20)), [], IGNORE)
    assert not e.segments.any()
    assert e.inputs.tolist() == [2, *range(10, 20), 3]


@given(texts(least=1), texts(), SEEDS, st.floats(0, 1), st.floats(0, 1))
def test_a_pair_is_never_longer_than_its_row(tokens, other, seed, random, short):
    objective = Pair(objectives.MASKED, NextSentence(random, short))
    e = objective(replace(tokens, other=other), BERT, rng(seed))
    assert len(e.inputs) <= objective.size(np.array([len(tokens)]), BERT)[0]
    assert e.label in (0, 1, IGNORE)
    assert (e.label == IGNORE) == (not e.segments.any())
    assert (e.inputs[1:-1] != 2).all()


# ---- two parts of one text

APART = Apart(Hide(Tokenwise(1e-9), InPlace(mask=0.0, random=0.0)))


def parts_of(tokens, seed=0, objective=APART):
    """Cut a text; give what is read of each part."""
    e = objective(tokens, BERT, rng(seed))
    return e.inputs[e.part == 0].tolist(), e.inputs[e.part == 1].tolist()


def test_each_part_has_a_frame_of_its_own_and_nothing_is_lost():
    tokens = text(range(10, 30), sentences=[0, 2, 7, 12, 18])
    cuts = []
    for seed in range(600):
        a, b = parts_of(tokens, seed)
        assert (a[0], a[-1], b[0], b[-1]) == (2, 3, 2, 3)
        assert a[1:-1] + b[1:-1] == list(range(10, 30))
        cuts.append(len(a) - 2)
    # at the beginning of a sentence that leaves four tokens on both sides, each as often
    assert set(cuts) == {7, 12}
    assert abs(cuts.count(7) - 300) < 5 * np.sqrt(150)


def test_without_a_sentence_to_cut_at_it_is_cut_in_its_middle_half():
    cuts = [len(parts_of(text(range(10, 50)), seed)[0]) - 2 for seed in range(500)]
    assert set(cuts) == set(range(10, 31))
    assert abs(np.mean(cuts) - 20) < 5 * np.sqrt(21**2 / 12 / 500)


@pytest.mark.parametrize("n", range(1, 12))
def test_a_text_too_short_for_two_parts_is_one(n):
    a, b = parts_of(text(range(10, 10 + n)))
    assert bool(b) == (n >= 8)
    assert a[0] == 2
    assert (len(a) - 2 >= 4 and len(b) - 2 >= 4) or not b


@given(texts(), SEEDS, st.integers(1, 9))
def test_parts_are_never_longer_than_their_row(tokens, seed, shortest):
    objective = Apart(objectives.MASKED, Neighbors(shortest))
    e = objective(tokens, BERT, rng(seed))
    assert len(e.part) == len(e.inputs) <= objective.size(np.array([len(tokens)]), BERT)[0]
    assert e.segments is None
    assert e.label is None
    assert (np.diff(e.part) >= 0).all()
    special = e.inputs[e.targets == IGNORE]
    assert ((special == 2).sum(), (special == 3).sum()) == (e.part.max() + 1,) * 2


# ---- sentences beside each other


@given(texts(least=1), SEEDS, st.integers(1, 9), st.booleans())
def test_sentences_are_read_apart_and_each_word_is_asked_for_by_the_one_before(
    tokens, seed, shortest, said
):
    objective = Sentences(said=said, shortest=shortest)
    e = objective(tokens, BERT, rng(seed))
    n = e.part.max() + 1
    starts = [0, *(i for i in np.flatnonzero(tokens.marks & SENTENCE) if i), len(tokens)]
    assert n == min(len(starts) - 1, -(-len(tokens) // shortest))
    for i in range(n):
        read, asked = e.inputs[e.part == i].tolist(), e.targets[e.part == i].tolist()
        assert read == [2, *tokens.ids[starts[i] : starts[i + 1]], 3]
        assert asked == ([*read[1:], IGNORE] if said and n > 1 else [IGNORE] * len(read))
    assert len(e.inputs) <= objective.size(np.array([len(tokens)]), BERT)[0]
    assert (e.rank, e.label, e.segments) == (None, None, None)


def test_sentences_have_a_token_at_least():
    with pytest.raises(ValueError, match="shortest must be at least 1, got 0"):
        Sentences(shortest=0)


# ---- mixtures


def test_a_mixture_asks_each_part_as_often_as_its_weight_says():
    tokens = long_text(40)
    kinds = [MIXTURE(tokens, GPT_WITH_MASK, rng(seed)) for seed in range(2000)]
    masked = np.mean([e.rank is None for e in kinds])
    everything = np.mean([bool((e.targets != IGNORE).all()) for e in kinds])
    assert abs(masked - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 2000)
    assert abs(everything - 0.5) < 5 * np.sqrt(0.25 / 2000)


GPT_WITH_MASK = replace(GPT, mask=4, ids=GPT.ids | {4})


def test_parts_of_a_mixture_have_all_a_name_of_their_own_or_none():
    parts = ((1.0, objectives.MASKED), (3.0, objectives.PREFIX))
    named = Mixture(parts, names=("masked", "prefix"))
    assert dict(named.named) == {"masked": objectives.MASKED, "prefix": objectives.PREFIX}
    assert objectives.parts_of(Static(named)) == named.named
    assert objectives.parts_of(Mixture(parts)) == objectives.parts_of(objectives.BERT) == {}
    for names in (("masked",), ("masked", "masked"), ("a", "b", "c")):
        with pytest.raises(ValueError, match="one for each of the 2 parts, all different"):
            Mixture(parts, names=names)


# ---- texts that are seen in part


@given(texts(least=1), SEEDS)
def test_a_text_read_in_one_direction_is_hidden_as_any_other(tokens, seed):
    plain = objectives.MASKED(tokens, BERT, rng(seed))
    t = len(plain.inputs)
    for direction, rank in (("forward", range(t)), ("backward", range(t - 1, -1, -1))):
        e = OneWay(objectives.MASKED, direction, segment=3)(tokens, BERT, rng(seed))
        assert e.inputs.tolist() == plain.inputs.tolist()
        assert e.targets.tolist() == plain.targets.tolist()
        assert e.rank.tolist() == list(rank)
        assert e.segments.tolist() == [3] * t
        assert not e.ahead


def test_a_source_is_seen_as_a_whole_and_its_target_read_forward():
    tokens = text(range(10, 22), sentences=[0, 5])
    e = SourceTarget(objectives.MASKED, (4, 5))(tokens, BERT, rng())
    whole = np.where(e.targets == IGNORE, e.inputs, e.targets)
    assert whole.tolist() == [2, *range(10, 15), 3, *range(15, 22), 3]
    assert e.rank.tolist() == [0] * 7 + list(range(1, 9))
    assert e.segments.tolist() == [4] * 7 + [5] * 8
    alone = SourceTarget(objectives.MASKED, (4, 5))(text([10]), BERT, rng())
    assert (alone.rank.tolist(), alone.segments.tolist()) == ([0] * 3, [4] * 3)


def test_source_and_target_both_have_hidden_tokens():
    tokens, asked = long_text(200), []
    for seed in range(40):
        e = SourceTarget(objectives.MASKED)(tokens, BERT, rng(seed))
        asked += [
            (e.targets != IGNORE)[e.rank == 0].mean(),
            (e.targets != IGNORE)[e.rank > 0].mean(),
        ]
    assert abs(np.mean(asked[::2]) - 0.15) < 0.03
    assert abs(np.mean(asked[1::2]) - 0.15) < 0.03


def test_unilm_reads_each_way_as_often_as_published():
    tokens, seen = replace(long_text(60), other=long_text(60, 1)), {"pair": 0, 2: 0, 3: 0, 4: 0}
    for seed in range(1200):
        e = objectives.UNILM(tokens, BERT, rng(seed))
        seen["pair" if e.rank is None else int(e.segments[0])] += 1
        assert (e.label is None) == (e.rank is not None)
    for key, share in (("pair", 1 / 3), (4, 1 / 3), (2, 1 / 6), (3, 1 / 6)):
        assert abs(seen[key] - 1200 * share) < 4 * np.sqrt(1200 * share)


def test_a_mixture_has_room_for_its_longest_part():
    part = Hide(Everything(), Future())
    mixture = Mixture(((1.0, objectives.MASKED), (1.0, part)))
    assert mixture.size(np.array([10, 20]), BERT).tolist() == [12, 22]


def test_sentence_marks_are_what_cuts_a_pair():
    tokens = long_text(200)
    starts = set(np.flatnonzero(tokens.marks & SENTENCE).tolist())
    for seed in range(30):
        a, _, e = pair_of(tokens, BERT, seed)
        assert e.label == 0
        assert len(a) in starts
