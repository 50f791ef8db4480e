"""Fill blanks: [MASK] with an encoder's masked LM, spans with an encoder-decoder."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from unmask.batching.collate import group_by_length
from unmask.generation.decode import generate
from unmask.generation.settings import GenerationConfig
from unmask.generation.text_batches import (
    check_logits,
    evaluation_mode,
    max_read_length,
    pad_texts,
)
from unmask.heads.model import Model
from unmask.heads.pretraining.autoregressive_characters import AutoregressiveCharacters
from unmask.heads.pretraining.corrective_lm import CorrectiveLM
from unmask.heads.pretraining.replaced_token_detection import ReplacedTokenDetection
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import sentinel_names
from unmask.tokenizers.splitting.long_texts import LONG_TEXT_CHARACTERS

MASK_PLACEHOLDER = "[MASK]"
"""Marks a blank in a text, for every model; a tokenizer's own mask and sentinels do too."""
TOKENS_PER_BLANK = 12
"""Tokens that an encoder-decoder generates at most, times the number of blanks."""
_CONTEXT_TOKENS = 16
"""Tokens before another that decide whether a space is between."""


@dataclass(frozen=True)
class BlankCandidate:
    """One way to fill a blank."""

    text: str
    """A WordPiece that continues a word has its ## prefix; where pieces mark the ends of words, a
    piece before a continuation has a ## suffix."""
    probability: float | None
    """None where a whole span is generated, token by token."""


@dataclass(frozen=True)
class FilledText:
    """A text whose blanks are filled."""

    text: str
    """With the likeliest candidate in each blank; all else is as it was written."""
    blanks: tuple[tuple[BlankCandidate, ...], ...]
    """For each blank its candidates, the likeliest first."""


def fill(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    top_k: int = 5,
    batch_tokens: int = 4096,
) -> list[FilledText]:
    """Predict the tokens at each blank of each text.

    Blanks are written [MASK], as the tokenizer's own mask, or, for T5, as <extra_id_0> and so on.
    An encoder predicts one token for each blank, with its probability; several blanks are filled
    each on its own, as if the others stayed masked. Special tokens are no candidates, though they
    have a share of the probability. An encoder-decoder generates one candidate for each blank, of
    any number of tokens. One that generates whole texts (BART, or T5 where it has learned that: its
    output begins with no sentinel) continues the visible text, one blank after the other.

    Args:
        model: an encoder with a language-model head, or an encoder-decoder.
        tokenizer: the model's own.
        texts: in any order; the result for one does not depend on the others.
        top_k: candidates for each blank of an encoder.
        batch_tokens: tokens that go through the model at once.

    Raises:
        ValueError: a text has no blank, or more tokens than the model has positions, or the model
            fills none.
    """
    tokenizer.check_single_vocabulary("fill")
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    if (reason := unsupported_reason(model, tokenizer)) is not None:
        raise ValueError(reason)
    text_pieces = [_split_at_blanks(text, tokenizer) for text in texts]
    for i, pieces in enumerate(text_pieces, 1):
        if len(pieces) < 2:
            shown = pieces[0] if len(pieces[0]) <= 80 else f"{pieces[0][:80]}..."
            raise ValueError(
                f"text {i} has no blank: {shown!r}; write {MASK_PLACEHOLDER} where one is"
            )
    if model.architecture.is_encoder_decoder:
        special = tokenizer.special_tokens
        found: list[FilledText | None] = [None] * len(text_pieces)
        if special.n_sentinels or special.mask is None:
            found = _fill_spans(model, tokenizer, text_pieces)
        rest = [text_pieces[i] for i, f in enumerate(found) if not f]
        reconstructed = iter(_fill_by_reconstruction(model, tokenizer, rest))
        return [one or next(reconstructed) for one in found]
    return _fill_masks(model, tokenizer, text_pieces, top_k, batch_tokens)


def unsupported_reason(model: Model, tokenizer: Tokenizer) -> str | None:
    """Return why a model cannot fill blanks; None: it can."""
    special = tokenizer.special_tokens
    if model.architecture.is_encoder_decoder:
        if not model.has_language_head:
            return _missing_language_head(model)
        if special.mask is None and not special.n_sentinels:
            return (
                "this model's texts have no blanks: its tokenizer has neither a mask nor "
                "sentinels; use `generate`"
            )
        return None
    if model.decoder_architecture.causal:
        return "this model only reads forward and does not fill blanks; use `generate`"
    if not model.has_language_head:
        return _missing_language_head(model)
    if special.mask is None or tokenizer.special_ids.mask is None:
        return "the tokenizer has no mask token, so this model fills no blanks"
    return None


def _missing_language_head(model: Model) -> str:
    """Explain what else there is, where a model has no head that predicts tokens."""
    heads = ", ".join(model.head_specs) or "none"
    if any(
        isinstance(spec, ReplacedTokenDetection | CorrectiveLM)
        for spec in model.head_specs.values()
    ):
        other = "the generator that it was trained with does: the folder generator inside its own"
    elif any(isinstance(spec, AutoregressiveCharacters) for spec in model.head_specs.values()):
        other = "it reads characters and fills no blanks; `embed` or `finetune` it"
    else:
        other = "`embed` or `finetune` it, or name a model with one"
    return f"this model has no language-model head (heads: {heads}): {other}"


def _split_at_blanks(text: str, tokenizer: Tokenizer) -> list[str]:
    """Cut a text at its blanks."""
    special = tokenizer.special_tokens
    marks = {MASK_PLACEHOLDER, *sentinel_names(special)}
    if special.mask is not None:
        marks.add(special.mask)
    return re.split("|".join(re.escape(mark) for mark in sorted(marks)), text)


@dataclass(frozen=True)
class _MaskPrediction:
    """An encoder's prediction at one blank, the likeliest first."""

    token_ids: Int[np.ndarray, "k"]
    probabilities: Float[np.ndarray, "k"]


def _fill_masks(
    model: Model,
    tokenizer: Tokenizer,
    text_pieces: Sequence[Sequence[str]],
    top_k: int,
    batch_tokens: int,
) -> list[FilledText]:
    special, mask = tokenizer.special_ids, tokenizer.special_tokens.mask
    shift = int(model.shifted_targets)
    assert mask is not None, "`unsupported_reason` has checked"
    assert special.mask is not None, "`unsupported_reason` has checked"
    prefix = special.prefix or (special.start,) * shift
    texts = [mask.join(pieces) for pieces in text_pieces]
    max_length = max_read_length(model, model.backbone.decoder_stack)
    limit = None if max_length is None else max_length + 1
    encoded = tokenizer.encode_prefix_batch(texts, limit, special=True)
    inputs = [np.array([*prefix, *ids, *special.suffix], np.int64) for ids in encoded]
    _check_lengths(inputs, max_length, texts)
    reserved = torch.tensor(sorted(special.all_ids), device=model.device)
    top_k = min(top_k, tokenizer.vocab_size - len(reserved))
    predictions: list[list[_MaskPrediction]] = [[] for _ in text_pieces]
    with evaluation_mode(model):
        for rows in group_by_length([len(ids) for ids in inputs], batch_tokens):
            batch = pad_texts([inputs[i] for i in rows], special).to(model.device)
            is_blank = (batch.inputs == special.mask).roll(-shift, 1)
            batch = model.mask_two_stream(batch, special.mask)
            logits = model.logits_at(batch, is_blank).float()[:, : tokenizer.vocab_size]
            check_logits(logits)
            probabilities, best = logits.softmax(-1).index_fill(-1, reserved, -1).topk(top_k)
            blank_rows = is_blank.nonzero()[:, 0].tolist()
            for row, ids, some in zip(
                blank_rows, best.cpu().numpy(), probabilities.cpu().numpy(), strict=True
            ):
                predictions[rows[row]].append(_MaskPrediction(ids, some))
    return [
        FilledText(
            _fill_text(tokenizer, pieces, ids, some),
            tuple(_candidates(tokenizer, one) for one in some),
        )
        for pieces, ids, some in zip(text_pieces, inputs, predictions, strict=True)
    ]


def _check_lengths(
    token_ids: Sequence[Int[np.ndarray, "_"]], max_length: int | None, texts: Sequence[str]
) -> None:
    for i, (ids, text) in enumerate(zip(token_ids, texts, strict=True), 1):
        more = " or more" if len(text) > LONG_TEXT_CHARACTERS else ""
        if max_length is not None and len(ids) > max_length:
            raise ValueError(
                f"text {i} has {len(ids):,} tokens{more}, special ones included, but the model "
                f"only {max_length:,} positions: give the sentences around the blank"
            )


def _candidates(tokenizer: Tokenizer, prediction: _MaskPrediction) -> tuple[BlankCandidate, ...]:
    pieces = tokenizer.pieces(prediction.token_ids)
    if (end := tokenizer.end_of_word_suffix) is not None:
        pieces = [_mark_unfinished_word(piece, end) for piece in pieces]
    return tuple(
        BlankCandidate(piece.strip() or piece, float(probability))
        for piece, probability in zip(pieces, prediction.probabilities, strict=True)
    )


def _mark_unfinished_word(piece: str, end: str) -> str:
    """Write what ends a word plainly, and what does not with ## behind it."""
    return piece.removesuffix(end) if piece.endswith(end) else f"{piece}##"


def _fill_text(
    tokenizer: Tokenizer,
    pieces: Sequence[str],
    token_ids: Int[np.ndarray, "t"],
    predictions: Sequence[_MaskPrediction],
) -> str:
    """Put the likeliest token into each blank."""
    ids, text = token_ids.copy(), pieces[0]
    blanks = np.flatnonzero(token_ids == tokenizer.special_ids.mask)
    for at, one, piece in zip(blanks, predictions, pieces[1:], strict=True):
        ids[at] = one.token_ids[0]
        text = _append_token(tokenizer, text, ids[:at], int(ids[at])) + piece
    return text


def _append_token(tokenizer: Tokenizer, text: str, before: Int[np.ndarray, "t"], token: int) -> str:
    """Add a token to a text, with a space or without as the tokenizer reads it.

    Args:
        tokenizer: which knows what begins a word.
        text: so far, as it was written.
        before: its tokens.
        token: the one to append.
    """
    near = before[-_CONTEXT_TOKENS:]
    old, new = tokenizer.decode(near), tokenizer.decode([*near, token])
    added = new[len(old) :] if new.startswith(old) else f" {tokenizer.decode([token])}"
    if added[:1].isspace():  # it begins a word
        separated = text[-1:].isalnum() and added.lstrip()[:1].isalnum()
        return text + " " * separated + added.lstrip()
    if not old or old[-1].isspace():
        return text + added
    return text.rstrip() + added


def _fill_spans(
    model: Model, tokenizer: Tokenizer, text_pieces: Sequence[Sequence[str]]
) -> list[FilledText | None]:
    """Generate each span after its sentinel with an encoder-decoder, as in pretraining (T5).

    None if the output starts with a word instead, as of models trained to generate whole texts.
    """
    special, names = tokenizer.special_ids, sentinel_names(tokenizer.special_tokens)
    for i, pieces in enumerate(text_pieces, 1):
        if len(pieces) - 1 > len(names):
            raise ValueError(
                f"text {i} has {len(pieces) - 1} blanks, but the tokenizer only {len(names)} "
                "sentinels to tell them apart"
            )
    marked = [
        "".join(f"{name}{piece}" for name, piece in zip(("", *names), pieces, strict=False))
        for pieces in text_pieces
    ]
    sources = _encode_sources(model, tokenizer, marked)
    limits = [TOKENS_PER_BLANK * (len(pieces) - 1) for pieces in text_pieces]
    outputs = generate(
        model,
        [[*source.tolist(), *special.suffix] for source in sources],
        special,
        GenerationConfig(max_new_tokens=max(limits, default=1)),
    )
    return [
        _insert_spans(tokenizer, pieces, ids[:n])
        if not ids or ids[0] in special.sentinels
        else None
        for pieces, ids, n in zip(text_pieces, outputs, limits, strict=True)
    ]


def _encode_sources(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str]
) -> list[Int[np.ndarray, "_"]]:
    max_length = max_read_length(model, model.backbone.encoder_stack)
    limit = None if max_length is None else max_length + 1
    found = tokenizer.encode_prefix_batch(texts, limit, special=True)
    _check_lengths(found, max_length, texts)
    return found


def _insert_spans(
    tokenizer: Tokenizer, pieces: Sequence[str], generated_ids: Sequence[int]
) -> FilledText:
    """Cut the output at its sentinels, and put each span into its blank."""
    number = {sentinel: i for i, sentinel in enumerate(tokenizer.special_ids.sentinels)}
    spans: list[list[int]] = [[] for _ in pieces[1:]]
    blank = len(spans)  # tokens before the first sentinel belong to no blank
    for token in generated_ids:
        blank = number.get(token, blank)
        if token not in number and blank < len(spans):
            spans[blank].append(token)
    words = [tokenizer.decode(span).strip() for span in spans]
    text = pieces[0] + "".join(w + p for w, p in zip(words, pieces[1:], strict=True))
    return FilledText(text, tuple((BlankCandidate(word, None),) for word in words))


def _fill_by_reconstruction(
    model: Model, tokenizer: Tokenizer, text_pieces: Sequence[Sequence[str]]
) -> list[FilledText]:
    """Continue the text before each blank with an encoder-decoder of whole texts (BART).

    The source is the visible text with masks. The text of a blank ends before the first visible
    word after it, or after `TOKENS_PER_BLANK` tokens.
    """
    special = tokenizer.special_ids
    mask = tokenizer.special_tokens.mask or sentinel_names(tokenizer.special_tokens)[0]
    encoded = _encode_sources(model, tokenizer, [mask.join(pieces) for pieces in text_pieces])
    sources = [[*special.prefix, *ids.tolist(), *special.suffix] for ids in encoded]
    texts = [pieces[0] for pieces in text_pieces]
    words: list[list[str]] = [[] for _ in text_pieces]
    for blank in range(1, max(map(len, text_pieces), default=1)):
        rows = [i for i, pieces in enumerate(text_pieces) if blank < len(pieces)]
        prefixes = [
            ids.tolist() for ids in tokenizer.encode_ids_batch([texts[i].rstrip() for i in rows])
        ]
        config = GenerationConfig(max_new_tokens=TOKENS_PER_BLANK)
        outputs = generate(
            model, [sources[i] for i in rows], special, config, output_prefixes=prefixes
        )
        for i, prefix, ids in zip(rows, prefixes, outputs, strict=True):
            generated = tokenizer.decode([*prefix, *ids])[len(tokenizer.decode(prefix)) :]
            last = blank == len(text_pieces[i]) - 1
            words[i].append(_truncate_at_visible_text(generated, text_pieces[i][blank], last=last))
            texts[i] += words[i][-1] + text_pieces[i][blank]
    return [
        FilledText(text, tuple((BlankCandidate(word, None),) for word in some))
        for text, some in zip(texts, words, strict=True)
    ]


def _truncate_at_visible_text(generated_text: str, visible_text: str, *, last: bool) -> str:
    """Cut the text of a blank before the first visible word behind the blank.

    Where nothing but another blank follows, keep its first word.
    """
    first = re.match(r"\w+|\S", visible_text.strip())
    if first is None:
        return generated_text.strip() if last else " ".join(generated_text.split()[:1])
    word = re.escape(first[0])
    found = re.search(rf"\b{word}\b" if first[0][0].isalnum() else word, generated_text)
    return (generated_text if found is None else generated_text[: found.start()]).strip()
