"""Likelihoods of answers in blanks equal the reference's scores, one answer at a time."""

from typing import Any

import pytest
import torch
from small_models import make, texts, tokenizer
from toy_text import corpus

from unmask.analysis.behavior.blanks import ClozeItem, choice_likelihoods, encode_answers, fits
from unmask.analysis.behavior.sentences import sentence_likelihoods
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import T5_WITHOUT_SENTINELS, TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram

ITEMS = [
    ClozeItem("the old king saw ", " once again .", ("her", "the", "gatehouse"), 0, "a"),
    ClozeItem("", " stranger saw the sea", ("A", "the"), 1, "a"),
    ClozeItem("Her brother saw the ", "", ("sea", "gate at night", "ring"), 2, "b"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, LoadedModel]]:
    families = ("bert", "gpt2", "t5", "bart")
    return {f: make(f, tmp_path_factory.mktemp(f)) for f in families}


def scores(logits: torch.Tensor, start: int, ids: list[int]) -> tuple[float, bool]:
    logs = logits[start : start + len(ids)].double().log_softmax(-1)
    greedy = logs.argmax(-1).tolist() == ids
    return sum(float(logs[i, t]) for i, t in enumerate(ids)), greedy


@torch.no_grad()
def expected(family: str, reference: Any, item: ClozeItem, choice: str) -> tuple[float, bool]:
    known = tokenizer(family)
    special = known.special_ids
    mark = "<extra_id_0>" if family == "t5" else known.special_tokens.mask
    blank = special.sentinels[0] if family == "t5" else special.mask
    ids = known.encode(item.before + mark + item.after, allow_special=True).ids.tolist()
    at = ids.index(blank)
    left, right = ids[:at], ids[at + 1 :]
    answer = encode_answers(known, [item.before], [choice])[0].tolist()
    if family == "bert":
        total, greedy = 0.0, True
        for i in range(len(answer)):
            hidden = [*answer[:i], *[special.mask] * (len(answer) - i)]
            row = [*special.prefix, *left, *hidden, *right, *special.suffix]
            logits = reference(input_ids=torch.tensor([row])).prediction_logits[0]
            one, first = scores(logits, len(special.prefix) + at + i, answer[i : i + 1])
            total, greedy = total + one, greedy and first
        return total, greedy
    before = [special.start] + ([blank] if family == "t5" else [*special.prefix, *left])
    logits = reference(
        input_ids=torch.tensor([[*special.prefix, *ids, *special.suffix]]),
        decoder_input_ids=torch.tensor([[*before, *answer]]),
    ).logits[0]
    return scores(logits, len(before) - 1, answer)


@pytest.mark.parametrize("family", ["bert", "t5", "bart"])
def test_answers_equal_a_loop_over_the_reference(family: str, models: dict) -> None:
    reference, loaded = models[family]
    found = choice_likelihoods(loaded.model, tokenizer(family), ITEMS)
    for item, some in zip(ITEMS, found, strict=True):
        for choice, one in zip(item.choices, some, strict=True):
            total, greedy = expected(family, reference, item, choice)
            assert one.log_likelihood == pytest.approx(total, rel=1e-5, abs=1e-5)
            assert one.is_greedy is greedy


@torch.no_grad()
@pytest.mark.parametrize("reads_on", [True, False])
def test_decoder_reads_on_after_the_answer_if_asked(reads_on: bool, models: dict) -> None:
    reference, loaded = models["gpt2"]
    known = tokenizer("gpt2")
    item = ITEMS[0]
    found = choice_likelihoods(loaded.model, known, [item], reads_on=reads_on)[0]
    for choice, one in zip(item.choices, found, strict=True):
        before = known.encode(item.before.rstrip()).ids.tolist()
        row = known.encode(item.before + choice + (item.after if reads_on else "")).ids.tolist()
        logits = reference(input_ids=torch.tensor([row])).logits[0]
        total = scores(logits, len(before) - 1, row[len(before) :])[0]
        assert one.log_likelihood == pytest.approx(total, rel=1e-5)


def test_texts_that_do_not_fit_are_found_and_refused(models: dict) -> None:
    long = " ".join(texts(30, most=9))
    item = ClozeItem(f"{long} ", " at night", ("sea", "gate"), 0, "a")
    for family in ("bert", "bart"):
        model, known = models[family][1].model, tokenizer(family)
        assert fits(model, known, [*ITEMS, item]) == [True, True, True, False]
    with pytest.raises(ValueError, match="a text around a continuation must have at most"):
        choice_likelihoods(models["bert"][1].model, tokenizer("bert"), [item])


@pytest.mark.parametrize("family", ["bert", "bart"])
def test_texts_that_fit_are_scored(family: str, models: dict) -> None:
    model, known = models[family][1].model, tokenizer(family)
    items = [ClozeItem("the " * n, " sea", ("sea", "gate"), 0, "a") for n in range(28, 44)]
    fitting = fits(model, known, items)
    n_fitting = sum(fitting)
    assert fitting == [True] * n_fitting + [False] * (len(items) - n_fitting)
    assert 0 < n_fitting < len(items)
    assert len(choice_likelihoods(model, known, items[:n_fitting])) == n_fitting
    if family == "bert":  # to the last position
        with pytest.raises(ValueError, match="must have at most"):
            choice_likelihoods(model, known, items[n_fitting : n_fitting + 1])


def test_two_blanks_are_refused(models: dict) -> None:
    item = ClozeItem("the [MASK] saw ", "", ("sea", "gate"), 0, "a")
    with pytest.raises(ValueError, match="must have one blank, got 2"):
        choice_likelihoods(models["bert"][1].model, tokenizer("bert"), [item])


def test_answers_continue_the_text_before_them() -> None:
    known = tokenizer("gpt2")
    ids = encode_answers(known, ["the ", ""], ["sea", "sea"])
    assert ids[0].tolist() == known.encode(" sea").ids.tolist()
    assert ids[1].tolist() == known.encode("sea").ids.tolist()


def test_models_without_blanks_are_refused(models: dict) -> None:
    plain = train_tokenizer(
        TokenizerSpec(Unigram(70), T5_WITHOUT_SENTINELS), corpus(20).splitlines()
    )
    for family, message in (
        ("t5", "no blanks: its tokenizer has no mask token and no sentinels"),
        ("bert", "no blanks: its tokenizer has no mask token$"),
    ):
        with pytest.raises(ValueError, match=message):
            choice_likelihoods(models[family][1].model, plain, ITEMS)
    with pytest.raises(ValueError, match="this encoder-decoder has no blanks"):
        sentence_likelihoods(models["t5"][1].model, plain, ["the sea"])
