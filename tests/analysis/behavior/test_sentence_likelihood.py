"""Likelihoods of sentences equal sums over the reference's scores, one blank at a time."""

from typing import Any

import pytest
import torch
from small_models import make, texts, tokenizer

from unmask.analysis.behavior.sentences import likelihood_name, sentence_likelihoods
from unmask.batch import WORD_START
from unmask.checkpoints.huggingface.read import LoadedModel

SENTENCES = ["the gatehouse", "A stranger saw the sea.", "Her brother", *texts(3, most=5)]
MASKINGS: tuple[Any, ...] = ("word", "token")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, LoadedModel]]:
    families = ("bert", "gpt2", "t5", "bart")
    return {f: make(f, tmp_path_factory.mktemp(f)) for f in families}


def words(family: str, sentence: str, masking: str) -> list[tuple[int, int]]:
    """Return the bounds of words, or of tokens."""
    tokens = tokenizer(family).encode(sentence)
    bounds: list[tuple[int, int]] = []
    for i in range(len(tokens)):
        if masking == "token" or not bounds or tokens.boundaries[i] & WORD_START:
            bounds.append((i, i + 1))
        else:
            bounds[-1] = (bounds[-1][0], i + 1)
    return bounds


def logs(logits: torch.Tensor, start: int, ids: list[int]) -> float:
    return sum(float(logits[start + i].double().log_softmax(-1)[t]) for i, t in enumerate(ids))


@torch.no_grad()
def expected(family: str, reference: Any, sentence: str, masking: str, n_read: int = 0) -> float:
    """Add up the words after the first `n_read` tokens."""
    known = tokenizer(family)
    special, ids = known.special_ids, known.encode(sentence).ids.tolist()
    total = 0.0
    for a, b in words(family, sentence, masking):
        if a < n_read:
            continue
        if family == "bert":
            for t in range(a, b):
                row = [*special.prefix, *ids[:t], *[special.mask] * (b - t), *ids[b:]]
                found = reference(input_ids=torch.tensor([[*row, *special.suffix]]))
                total += logs(found.prediction_logits[0], len(special.prefix) + t, ids[t : t + 1])
            continue
        blank = special.sentinels[0] if family == "t5" else special.mask
        source = [*special.prefix, *ids[:a], blank, *ids[b:], *special.suffix]
        before = [special.start] + ([blank] if family == "t5" else [*special.prefix, *ids[:a]])
        logits = reference(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[*before, *ids[a:b]]])
        ).logits[0]
        total += logs(logits, len(before) - 1, ids[a:b])
    return total


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize("family", ["bert", "t5", "bart"])
def test_likelihoods_equal_a_loop_over_blanks(family: str, masking: Any, models: dict) -> None:
    reference, loaded = models[family]
    found = sentence_likelihoods(loaded.model, tokenizer(family), SENTENCES, pll_masking=masking)
    for sentence, one in zip(SENTENCES, found, strict=True):
        total = expected(family, reference, sentence, masking)
        assert one.log_likelihood == pytest.approx(total, rel=1e-5, abs=1e-5)
        assert one.n_tokens == len(tokenizer(family).encode(sentence))


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize("family", ["bert", "t5", "bart"])
def test_a_context_is_read_but_not_scored(family: str, masking: Any, models: dict) -> None:
    reference, loaded = models[family]
    known, contexts = tokenizer(family), ["A stranger saw it.", "", "Her"]
    found = sentence_likelihoods(
        loaded.model, known, SENTENCES[:3], contexts=contexts, pll_masking=masking
    )
    for context, sentence, one in zip(contexts, SENTENCES, found, strict=False):
        text, n = f"{context} {sentence}".strip(), len(known.encode(context))
        assert one.n_tokens == len(known.encode(text)) - n
        total = expected(family, reference, text, masking, n)
        assert one.log_likelihood == pytest.approx(total, rel=1e-5, abs=1e-5)


@torch.no_grad()
def test_after_a_context_a_decoder_reads_no_start_token(models: dict) -> None:
    """As lm-evaluation-harness, and BabyLM's evaluation by tokenizers that add none."""
    reference, loaded = models["gpt2"]
    known = tokenizer("gpt2")
    found = sentence_likelihoods(loaded.model, known, ["her"], contexts=["the sea"])[0]
    n, ids = len(known.encode("the sea")), known.encode("the sea her").ids.tolist()
    logits = reference(input_ids=torch.tensor([ids])).logits[0]
    assert found.log_likelihood == pytest.approx(logs(logits, n - 1, ids[n:]), rel=1e-5)
    assert found.n_tokens == len(ids) - n


@torch.no_grad()
def test_likelihood_of_a_decoder_is_the_chain_rule(models: dict) -> None:
    reference, loaded = models["gpt2"]
    known = tokenizer("gpt2")
    found = sentence_likelihoods(loaded.model, known, SENTENCES)
    for sentence, one in zip(SENTENCES, found, strict=True):
        ids = known.encode(sentence).ids.tolist()
        logits = reference(input_ids=torch.tensor([[known.special_ids.start, *ids]])).logits[0]
        assert one.log_likelihood == pytest.approx(logs(logits, 0, ids), rel=1e-5)


def test_maskings_differ_where_words_have_several_tokens(models: dict) -> None:
    for family in ("bert", "t5", "bart"):
        n_words, n_tokens = ([len(words(family, s, m)) for s in SENTENCES] for m in MASKINGS)
        several = [s for s, n, m in zip(SENTENCES, n_words, n_tokens, strict=True) if n < m]
        assert several
        by = [
            sentence_likelihoods(models[family][1].model, tokenizer(family), several, pll_masking=m)
            for m in MASKINGS
        ]
        for a, b in zip(*by, strict=True):
            assert a.log_likelihood != pytest.approx(b.log_likelihood, abs=1e-4)


def test_names_differ_by_kind_of_model(models: dict) -> None:
    names = {likelihood_name(loaded.model, "word") for _, loaded in models.values()}
    assert len(names) == 3
    assert likelihood_name(models["gpt2"][1].model, "word") == "log-likelihood"


def test_what_cannot_be_scored_is_refused(models: dict) -> None:
    for family in ("bert", "t5"):
        with pytest.raises(ValueError, match="has no token"):
            sentence_likelihoods(models[family][1].model, tokenizer(family), ["the", " "])
    long = " ".join(texts(30, most=9))
    with pytest.raises(ValueError, match="sentence 1 is longer than the model's positions"):
        sentence_likelihoods(models["bart"][1].model, tokenizer("bart"), [long])
