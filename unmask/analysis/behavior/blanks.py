"""Likelihood of answers in the blank of a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Int
from numpy import ndarray

from unmask.adapters.prefix import max_text_length
from unmask.evaluation.likelihood import (
    ContextContinuation,
    ContinuationLikelihood,
    continuation_likelihoods,
    token_likelihoods,
)
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import sentinel_names

TEXTS_PER_CHUNK = 256
"""Texts whose answers are scored at once."""
AnswerMasking = Literal["answer", "token"]
"""Tokens masked when a masked model scores a token of an answer: it and the later ones, or it."""


@dataclass(frozen=True)
class ClozeItem:
    """A text with a blank, and answers of which one is right."""

    before: str
    after: str
    choices: tuple[str, ...]
    target: int
    """Index of the right answer."""
    group: str
    """Task or relation."""


def choice_likelihoods(
    model: Model,
    tokenizer: Tokenizer,
    items: Sequence[ClozeItem],
    *,
    reads_on: bool = True,
    ending_masks: int = 0,
    answer_masking: AnswerMasking = "answer",
) -> list[list[ContinuationLikelihood]]:
    """Compute the likelihood of each answer of each item: log p of its tokens in the blank.

    A masked model predicts each token of an answer with it and the later ones of the answer masked:
    of one token, that is the distribution at the mask (Talmor et al. 2020, arXiv:1912.13283,
    section 3.1); or with it alone masked (`answer_masking` "token", as BabyLM's evaluation). An
    encoder-decoder predicts the answer after a sentinel (T5), or after the text before the blank
    (BART), and reads the text around it. A decoder predicts the answer and the text after it.

    Args:
        model: a model with a language head.
        tokenizer: the tokenizer of the model.
        items: texts that fit the model; see `fits`.
        reads_on: whether a decoder predicts the text after the answer, too. Without, its
            likelihood is that of the answer after the text before it.
        ending_masks: mask tokens that follow the text of a masked model.
        answer_masking: tokens masked when a masked model scores a token of an answer.

    Raises:
        ValueError: an answer has no token, or the model has no language head, or no blank, or a
            text is too long.
        FloatingPointError: a logit is not a number.
    """
    results: list[list[ContinuationLikelihood]] = []
    for start in range(0, len(items), TEXTS_PER_CHUNK):
        some = items[start : start + TEXTS_PER_CHUNK]
        if model.predicts_next_token and not model.architecture.is_encoder_decoder:
            found = continuation_likelihoods(
                model,
                tokenizer,
                [one.before for one in some for _ in one.choices],
                [
                    choice + one.after if reads_on else choice
                    for one in some
                    for choice in one.choices
                ],
            )
        else:
            found = _blank_likelihoods(model, tokenizer, some, ending_masks, answer_masking)
        each = iter(found)
        results += [[next(each) for _ in one.choices] for one in some]
    return results


def encode_answers(
    tokenizer: Tokenizer, befores: Sequence[str], answers: Sequence[str]
) -> list[Int[ndarray, "_"]]:
    """Encode answers as they continue the text before them, or alone where a token would cross."""
    first = tokenizer.encode_ids_batch([before.rstrip() for before in befores])
    joint = tokenizer.encode_ids_batch([b + a for b, a in zip(befores, answers, strict=True)])
    alone = tokenizer.encode_ids_batch(answers)
    return [
        whole[len(a) :] if len(whole) > len(a) and bool((whole[: len(a)] == a).all()) else answer
        for a, whole, answer in zip(first, joint, alone, strict=True)
    ]


def fits(
    model: Model, tokenizer: Tokenizer, items: Sequence[ClozeItem], ending_masks: int = 0
) -> list[bool]:
    """Return whether each text, with its longest answer, fits the positions of a model."""
    has_encoder = model.architecture.is_encoder_decoder
    backbone, special = model.backbone, tokenizer.special_ids
    limits = [max_text_length(model, backbone.decoder_stack)]
    limits += [max_text_length(model, backbone.encoder_stack)] if has_encoder else []
    limit = min((one for one in limits if one is not None), default=None)
    if limit is None:
        return [True] * len(items)
    n_special = len(special.prefix) + len(special.suffix) + ending_masks
    if has_encoder:  # the start token of a decoder and the blank of a source
        n_special += len(special.decoder_prefix) + 2
    texts = [one.before + max(one.choices, key=len) + one.after for one in items]
    return [len(ids) + n_special <= limit for ids in tokenizer.encode_ids_batch(texts)]


def _blank_likelihoods(
    model: Model,
    tokenizer: Tokenizer,
    items: Sequence[ClozeItem],
    ending_masks: int,
    answer_masking: AnswerMasking,
) -> list[ContinuationLikelihood]:
    """Score all answers of masked models and encoder-decoders."""
    tokenizer.check_single_vocabulary("likelihood")
    tokenizer.check_reads_forward("likelihood")
    special, names = tokenizer.special_ids, sentinel_names(tokenizer.special_tokens)
    has_encoder = model.architecture.is_encoder_decoder
    after_sentinel = has_encoder and bool(names)
    mark = names[0] if after_sentinel else tokenizer.special_tokens.mask
    blank = special.sentinels[0] if after_sentinel else special.mask
    if mark is None or blank is None:
        raise ValueError(
            "this model has no blanks: its tokenizer has no mask token"
            + (" and no sentinels" if has_encoder else "")
        )
    sides = _encode_sides(tokenizer, items, mark, blank)
    befores = [one.before for one in items for _ in one.choices]
    answers = iter(encode_answers(tokenizer, befores, [c for one in items for c in one.choices]))
    pairs: list[ContextContinuation] = []
    for one, (left, right) in zip(items, sides, strict=True):
        for choice in one.choices:
            answer = tuple(next(answers).tolist())
            if not answer:
                raise ValueError(f"an answer has no token: {choice!r}")
            pairs.append(
                ContextContinuation(
                    context=(*left, blank, *right),
                    continuation=answer,
                    decoder_context=(blank,) if after_sentinel else left,
                )
                if has_encoder
                else ContextContinuation(
                    context=left,
                    continuation=answer,
                    word_starts=(True, *[answer_masking == "token"] * (len(answer) - 1)),
                    following=(*right, *[blank] * ending_masks),
                )
            )
    return token_likelihoods(model, special, pairs)


def _encode_sides(
    tokenizer: Tokenizer, items: Sequence[ClozeItem], mark: str, blank: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Encode the texts before and after each blank.

    Raises:
        ValueError: a text has another blank.
    """
    texts = [one.before + mark + one.after for one in items]
    sides: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for text, found in zip(
        texts, tokenizer.encode_ids_batch(texts, allow_special=True), strict=True
    ):
        ids = tuple(found.tolist())
        if ids.count(blank) != 1:
            raise ValueError(f"a text must have one blank, got {ids.count(blank)}: {text!r}")
        at = ids.index(blank)
        sides.append((ids[:at], ids[at + 1 :]))
    return sides
