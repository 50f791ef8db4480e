"""Likelihoods of continuations equal sums over the reference's scores, read one by one."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make, texts, tokenizer

from unmask.batch import WORD_START
from unmask.batching.windows import strided_windows
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.evaluation.likelihood import (
    ContextContinuation,
    ContinuationLikelihood,
    LikelihoodWindows,
    continuation_likelihoods,
    token_likelihoods,
)

CONTEXTS = ["The old king", "", "Her brother saw ", *texts(3, most=6), "A stranger"]
AFTER = [
    " saw the gate.",
    "The sea once again.",
    "the gatehouse",
    " at night",
    " a",
    " ring.",
    " x",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, LoadedModel]]:
    return {f: make(f, tmp_path_factory.mktemp(f)) for f in ("bert", "gpt2", "t5")}


def cut(family: str, context: str, after: str) -> tuple[list[int], list[int]]:
    """Write both in tokens, as one text where a token ends between them."""
    known = tokenizer(family)
    spaces = len(context) - len(context.rstrip())
    if spaces:
        context, after = context[:-spaces], context[-spaces:] + after
    first = known.encode(context).ids.tolist()
    whole = known.encode(context + after).ids.tolist()
    if whole[: len(first)] == first and family != "t5":
        return first, whole[len(first) :]
    return first, known.encode(after).ids.tolist()


def nats(logits: torch.Tensor, at: int, token: int) -> tuple[float, bool]:
    scores = logits[at].double()
    return float(scores.log_softmax(-1)[token]), int(scores.argmax()) == token


@torch.no_grad()
def reference_log_likelihood(
    family: str, reference: Any, context: str, after: str, hide: str
) -> tuple[float, bool]:
    first, then = cut(family, context, after)
    special = tokenizer(family).special_ids
    if family == "gpt2":
        row = [*(first or [special.start]), *then]
        logits = reference(input_ids=torch.tensor([row])).logits[0]
        each = [nats(logits, len(row) - len(then) + i - 1, t) for i, t in enumerate(then)]
    elif family == "t5":
        logits = reference(
            input_ids=torch.tensor([[*first, special.end]]),
            decoder_input_ids=torch.tensor([[special.start, *then[:-1]]]),
        ).logits[0]
        each = [nats(logits, i, t) for i, t in enumerate(then)]
    else:
        tokens = tokenizer(family).encode(context.rstrip() + after if first else after)
        starts = (tokens.boundaries & WORD_START > 0).tolist()[-len(then) :]
        each = []
        for i, token in enumerate(then):
            end = i + 1
            while hide == "word" and end < len(then) and not starts[end]:
                end += 1
            hidden = [*then[:i], *[special.mask] * (end - i), *then[end:]]
            row = [*special.prefix, *first, *hidden, *special.suffix]
            logits = reference(input_ids=torch.tensor([row])).prediction_logits[0]
            each.append(nats(logits, len(special.prefix) + len(first) + i, token))
    return sum(n for n, _ in each), all(right for _, right in each)


@pytest.mark.parametrize(
    ("family", "hide"), [("gpt2", "word"), ("t5", "word"), ("bert", "word"), ("bert", "token")]
)
def test_likelihoods_equal_reference(family: str, hide: Any, models: dict) -> None:
    reference, loaded = models[family]
    known = tokenizer(family)
    found = continuation_likelihoods(loaded.model, known, CONTEXTS, AFTER, pll_masking=hide)
    for context, after, one in zip(CONTEXTS, AFTER, found, strict=True):
        total, greedy = reference_log_likelihood(family, reference, context, after, hide)
        assert one.log_likelihood == pytest.approx(total, rel=1e-5, abs=1e-5)
        assert one.is_greedy is greedy
        assert one.n_tokens == len(cut(family, context, after)[1])
        assert one.n_bytes == len(after.lstrip())
        assert one.n_truncated_tokens == 0
        assert one.per_token == one.log_likelihood / one.n_tokens
        assert one.per_byte == one.log_likelihood / one.n_bytes


def test_whole_word_masking_differs_for_multi_token_words(models: dict) -> None:
    known, model = tokenizer("bert"), models["bert"][1].model
    sentence = "the gatehouse"
    assert len(known.encode(sentence)) > 2
    by_word = continuation_likelihoods(model, known, [""], [sentence], pll_masking="word")[0]
    by_token = continuation_likelihoods(model, known, [""], [sentence], pll_masking="token")[0]
    assert by_word.log_likelihood != pytest.approx(by_token.log_likelihood, abs=1e-3)


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_batch_size_does_not_change_likelihoods(family: str, models: dict) -> None:
    known, model = tokenizer(family), models[family][1].model
    together = continuation_likelihoods(model, known, CONTEXTS, AFTER)
    for context, after, one in zip(CONTEXTS, AFTER, together, strict=True):
        alone = continuation_likelihoods(
            model, known, [context], [after], windows=LikelihoodWindows(batch_tokens=1)
        )[0]
        assert alone.log_likelihood == pytest.approx(one.log_likelihood, rel=1e-5)
        assert (alone.n_tokens, alone.is_greedy) == (one.n_tokens, one.is_greedy)


def test_greedy_continuation_is_recognized(models: dict) -> None:
    from unmask.generation.decode import generate
    from unmask.generation.settings import GenerationConfig

    known, model = tokenizer("gpt2"), models["gpt2"][1].model
    context = tuple(known.encode("The old king").ids.tolist())
    generated = tuple(
        generate(model, [context], known.special_ids, GenerationConfig(max_new_tokens=3))[0]
    )
    other = (generated[0], generated[1], (generated[2] + 1) % known.vocab_size)
    pairs = [ContextContinuation(context=context, continuation=c) for c in (generated, other)]
    assert [one.is_greedy for one in token_likelihoods(model, known.special_ids, pairs)] == [
        True,
        False,
    ]


@torch.no_grad()
def test_long_context_is_truncated_from_the_left_and_counted(models: dict) -> None:
    known = tokenizer("gpt2")
    reference, loaded = models["gpt2"]  # 40 positions
    context = "the old king saw the gate " * 12
    first, then = cut("gpt2", context.rstrip(), " at night")
    one = continuation_likelihoods(loaded.model, known, [context.rstrip()], [" at night"])[0]
    row = [*first, *then][-41:]
    logits = reference(input_ids=torch.tensor([row[:-1]])).logits[0]
    expected = sum(nats(logits, 40 - len(then) + i, t)[0] for i, t in enumerate(then))
    assert one.log_likelihood == pytest.approx(expected, rel=1e-5)
    assert one.n_truncated_tokens == len(first) + len(then) - 41 > 0
    bert = continuation_likelihoods(
        models["bert"][1].model, tokenizer("bert"), [context], ["the sea"]
    )[0]
    known = tokenizer("bert")
    assert (
        bert.n_truncated_tokens
        == len(known.encode(context)) + len(known.encode("the sea")) + 2 - 40
    )


@pytest.mark.sample(1)
@torch.no_grad()
@pytest.mark.parametrize("stride", [None, 40, 7, 1])
def test_long_text_is_scored_in_windows_each_token_once(stride: int | None, models: dict) -> None:
    known = tokenizer("gpt2")
    reference, loaded = models["gpt2"]
    ids = known.encode(" ".join(texts(20, most=9))).ids.tolist()
    row, width, total, at = [known.special_ids.start, *ids], 41, 0.0, 1
    assert len(row) > 3 * width
    while at < len(row):
        stop = min(len(row), width if at == 1 else at + (stride or 40))
        low = max(0, stop - width)
        logits = reference(input_ids=torch.tensor([row[low : stop - 1]])).logits[0]
        total += sum(nats(logits, t - low - 1, row[t])[0] for t in range(at, stop))
        at = stop
    pair = ContextContinuation(context=(), continuation=tuple(ids))
    one = token_likelihoods(
        loaded.model, known.special_ids, [pair], windows=LikelihoodWindows(stride=stride)
    )[0]
    assert one.log_likelihood == pytest.approx(total, rel=1e-5)
    assert (one.n_tokens, one.n_truncated_tokens) == (len(ids), 0)


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_long_text_is_scored_by_other_models_too(family: str, models: dict) -> None:
    text = " ".join(texts(12, most=9))
    one = continuation_likelihoods(models[family][1].model, tokenizer(family), [""], [text])[0]
    assert one.n_tokens == len(tokenizer(family).encode(text)) > 40
    assert np.isfinite(one.log_likelihood)


@pytest.mark.parametrize("start", [0, 1, 5, 30])
@pytest.mark.parametrize(("width", "stride"), [(8, 8), (8, 3), (8, 1), (100, 2)])
def test_windows_score_each_position_once_with_longest_context(
    start: int, width: int, stride: int
) -> None:
    found = list(strided_windows(start, 40, width, stride))
    assert [t for _, a, b in found for t in range(a, b)] == list(range(start, 40))
    for low, a, b in found:
        assert b - low == min(width, b)
        assert low <= a
        assert b - a <= stride or low == 0


def test_invalid_pairs_are_refused(models: dict, tmp_path: Path) -> None:
    known, model = tokenizer("gpt2"), models["gpt2"][1].model
    with pytest.raises(ValueError, match="continuation 2 has no token: ''"):
        continuation_likelihoods(model, known, ["a", "b"], [" c", ""])
    with pytest.raises(ValueError, match="stride must be from 1 to 40, got 41"):
        continuation_likelihoods(model, known, ["a"], [" c"], windows=LikelihoodWindows(stride=41))
    unchecked = getattr(continuation_likelihoods, "__wrapped__", continuation_likelihoods)
    with pytest.raises(ValueError, match="pll_masking must be one of"):
        unchecked(model, known, ["a"], [" c"], pll_masking="all")
    _, headless = make("bert", tmp_path, "BertModel")
    with pytest.raises(ValueError, match="no language-model head"):
        continuation_likelihoods(headless.model, tokenizer("bert"), ["a"], [" c"])


def test_non_finite_weights_are_an_error(tmp_path: Path) -> None:
    _, loaded = make("gpt2", tmp_path)
    with torch.no_grad():
        loaded.model.backbone.embedding_table.weight[5] = float("nan")
    with pytest.raises(FloatingPointError, match="not finite"):
        continuation_likelihoods(loaded.model, tokenizer("gpt2"), ["a"], [" c"])


def test_means_are_per_token_and_per_byte() -> None:
    one = ContinuationLikelihood(log_likelihood=-6.0, n_tokens=3, n_bytes=12, is_greedy=False)
    assert (one.per_token, one.per_byte) == (-2.0, -0.5)


def test_of_equally_likely_tokens_the_first_is_greedy(models: dict) -> None:
    _, loaded = models["gpt2"]
    model = copy.deepcopy(loaded.model)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    (found,) = continuation_likelihoods(model, loaded.tokenizer, ["the sea"], [" saw the gate"])
    assert not found.is_greedy
