"""Likelihood of whole sentences by decoders, masked models and encoder-decoders."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from unmask.batch import WORD_START, Tokens
from unmask.evaluation.likelihood import (
    CONTINUATIONS_PER_CHUNK,
    ContextContinuation,
    PseudoLikelihoodMasking,
    continuation_likelihoods,
    token_likelihoods,
)
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True)
class SentenceLikelihood:
    """Likelihood of a sentence."""

    log_likelihood: float
    """Log-probability in nats, or pseudo-log-likelihood."""
    n_tokens: int


def likelihood_name(model: Model, pll_masking: PseudoLikelihoodMasking) -> str:
    """Say what the likelihood of a sentence is for a kind of model."""
    part = "word" if pll_masking == "word" else "token"
    if model.architecture.is_encoder_decoder:
        return f"log-probability of each {part} in its blank"
    if model.predicts_next_token:
        return "log-likelihood"
    masked = "each token, later ones of its word masked too" if part == "word" else "each token"
    return f"pseudo-log-likelihood, {masked}"


def sentence_likelihoods(
    model: Model,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    contexts: Sequence[str] | None = None,
    pll_masking: PseudoLikelihoodMasking = "word",
) -> list[SentenceLikelihood]:
    """Compute the likelihood of sentences, without special tokens; the sum over tokens.

    With contexts, each sentence follows its context after a space: the model reads both, and only
    tokens of the sentence count. An empty context is none. The beginning of a context is left out
    where a decoder or a masked model has no positions for it.

    A decoder predicts each token from those before it. A masked model predicts each token with it
    masked (Salazar et al. 2020, arXiv:1910.14659, section 2.3; `pll_masking` "token"), or with the
    later tokens of its word masked, too (Kauf and Ivanova 2023, arXiv:2305.10588, section 3;
    "word"). An encoder-decoder fills one blank for each word, or for each token, as in its
    pretraining: after a sentinel (T5), or within the whole sentence (BART).

    Deviates: the papers do not score encoder-decoders.

    Raises:
        ValueError: a sentence has no token, or the model has no language head, or is an
            encoder-decoder without blanks.
        FloatingPointError: a logit is not a number.
    """
    before = [""] * len(sentences) if contexts is None else contexts
    after = [f" {text}" if one else text for one, text in zip(before, sentences, strict=True)]
    if model.architecture.is_encoder_decoder:
        return _blank_likelihoods(model, tokenizer, before, after, pll_masking)
    found = continuation_likelihoods(model, tokenizer, before, after, pll_masking=pll_masking)
    return [SentenceLikelihood(one.log_likelihood, one.n_tokens) for one in found]


def _blank_likelihoods(
    model: Model,
    tokenizer: Tokenizer,
    contexts: Sequence[str],
    sentences: Sequence[str],
    pll_masking: PseudoLikelihoodMasking,
) -> list[SentenceLikelihood]:
    """Sum over the blanks of each sentence after its context."""
    tokenizer.check_single_vocabulary("likelihood")
    tokenizer.check_reads_forward("likelihood")
    special = tokenizer.special_ids
    if not special.sentinels and special.mask is None:
        raise ValueError(
            "this encoder-decoder has no blanks: its tokenizer has neither sentinels nor a mask "
            "token, so no sentence can be scored"
        )
    results: list[SentenceLikelihood] = []
    for start in range(0, len(sentences), CONTINUATIONS_PER_CHUNK):
        some = slice(start, start + CONTINUATIONS_PER_CHUNK)
        texts = sentences[some]
        blanks: list[ContextContinuation] = []
        owners: list[int] = []
        for i, (tokens, n) in enumerate(_encode(tokenizer, contexts[some], texts)):
            if len(tokens) == n:
                raise ValueError(f"sentence {start + i + 1} has no token: {texts[i]!r}")
            made = _make_blanks(tokens, n, special, pll_masking)
            blanks += made
            owners += [i] * len(made)
        likelihoods = token_likelihoods(model, special, blanks)
        sums, counts = [0.0] * len(texts), [0] * len(texts)
        for i, one in zip(owners, likelihoods, strict=True):
            if one.n_truncated_tokens:
                raise ValueError(f"sentence {start + i + 1} is longer than the model's positions")
            sums[i] += one.log_likelihood
            counts[i] += one.n_tokens
        results += map(SentenceLikelihood, sums, counts)
    return results


def _encode(
    tokenizer: Tokenizer, contexts: Sequence[str], sentences: Sequence[str]
) -> Iterator[tuple[Tokens, int]]:
    """Yield each context with its sentence, and how many tokens the context has.

    They are encoded as one text, or each alone where a token would cross.
    """
    joint = tokenizer.encode_batch([a + b for a, b in zip(contexts, sentences, strict=True)])
    before, after = tokenizer.encode_batch(contexts), tokenizer.encode_batch(sentences)
    for both, first, second in zip(joint, before, after, strict=True):
        n = len(first)
        if np.array_equal(both.ids[:n], first.ids):
            yield both, n
            continue
        ids = np.concatenate((first.ids, second.ids))
        yield Tokens(ids, np.concatenate((first.boundaries, second.boundaries))), n


def _make_blanks(
    tokens: Tokens,
    n_context: int,
    special: SpecialTokenIds,
    pll_masking: PseudoLikelihoodMasking,
) -> list[ContextContinuation]:
    """Hide each word, or each token, behind a sentinel, or else behind the mask token."""
    ids = tuple(tokens.ids.tolist())
    n = n_context
    starts = [i for i in range(n + 1, len(ids)) if tokens.boundaries[i] & WORD_START]
    bounds = [n, *starts, len(ids)] if pll_masking == "word" else list(range(n, len(ids) + 1))
    blank = special.sentinels[0] if special.sentinels else special.mask
    assert blank is not None
    return [
        ContextContinuation(
            context=(*ids[:a], blank, *ids[b:]),
            continuation=ids[a:b],
            decoder_context=(blank,) if special.sentinels else ids[:a],
        )
        for a, b in pairwise(bounds)
    ]
