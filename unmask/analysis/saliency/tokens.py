"""Decisions of a language model: the token at a mask, or after a text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int

from unmask.analysis.saliency.decisions import Decision, OutputScore
from unmask.analysis.words import SPECIAL, WordPieces, read_words
from unmask.batch import Batch, Visibility
from unmask.finetuning.formulations.formulation import log_odds
from unmask.generation.fill_mask import MASK_PLACEHOLDER
from unmask.generation.text_batches import batch_of_texts, evaluation_mode, pad_texts
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer

_LEAST_CONTEXT = 3
"""Words of a text before a next token that is drawn."""


@dataclass(frozen=True)
class TokenQuestion:
    """A text of words, and the word of which a token is predicted."""

    words: tuple[str, ...]
    hidden: int
    """Index of the word that is hidden; as many as there are words: the one after them."""
    is_known: bool
    """Whether it is known what was there."""


def given_question(model: Model, text: str) -> TokenQuestion:
    """Return what is asked about a text: what is at its mask, or after it.

    What stands beside a mask without a space, such as a full stop, is a word of its own.

    Raises:
        ValueError: it has no mask, or several, and the model predicts masked tokens.
    """
    words = tuple(text.replace(MASK_PLACEHOLDER, f" {MASK_PLACEHOLDER} ").split())
    masks = [i for i, word in enumerate(words) if word == MASK_PLACEHOLDER]
    if predicts_after_text(model):
        if masks or not words:
            raise ValueError(
                f"text (--text) must have words and no {MASK_PLACEHOLDER}: this model predicts "
                f"what comes next, got {text[:60]!r}"
            )
        return TokenQuestion(words, len(words), is_known=False)
    if len(masks) != 1 or len(words) < 2:
        raise ValueError(
            f"text (--text) must have one {MASK_PLACEHOLDER} and another word: the token at the "
            f"mask is explained, got {text[:60]!r}"
        )
    return TokenQuestion(words, masks[0], is_known=False)


def drawn_question(
    model: Model, words: Sequence[str], rng: np.random.Generator
) -> TokenQuestion | None:
    """Draw the word of a text that is predicted; None: the text is too short."""
    first = _LEAST_CONTEXT if predicts_after_text(model) else 0
    if len(words) <= max(first, 1):
        return None
    hidden = int(rng.integers(first, len(words)))
    if predicts_after_text(model):
        return TokenQuestion(tuple(words[: hidden + 1]), hidden, is_known=True)
    return TokenQuestion(tuple(words), hidden, is_known=True)


def check_predicts_tokens(model: Model, tokenizer: Tokenizer) -> None:
    """Check that a model predicts tokens of a vocabulary, after texts or at masks.

    Raises:
        ValueError: the model has no language head, or no mask.
    """
    tokenizer.check_single_vocabulary("predictions of tokens")
    _ = model.language_head  # raises if there is none
    if not predicts_after_text(model) and tokenizer.special_ids.mask_or_sentinel is None:
        raise ValueError("the tokenizer has no mask token, and this model predicts masked tokens")


def token_decisions(
    model: Model, tokenizer: Tokenizer, questions: Sequence[TokenQuestion]
) -> list[Decision | None]:
    """Return the decision of a language model for each text; None: the text is too long.

    A masked language model and an encoder-decoder predict the first token of a hidden word, in
    whose place is one mask; a decoder the token after the words before it. An encoder-decoder with
    sentinels has read the sentinel; another one, the words before the mask.

    Raises:
        ValueError: the model has no language head, or no mask.
    """
    check_predicts_tokens(model, tokenizer)
    known = [one.words for one in questions]
    read = read_words(model, tokenizer, known)
    return [
        None if pieces is None else _token_decision(model, tokenizer, question, pieces)
        for question, pieces in zip(questions, read, strict=True)
    ]


def predicts_after_text(model: Model) -> bool:
    """Return whether a model predicts the token after a text."""
    return model.decoder_architecture.causal and not model.architecture.is_encoder_decoder


@dataclass(frozen=True)
class Reading:
    """What a model reads of a text in which a word is hidden."""

    pieces: WordPieces
    decoder: Int[np.ndarray, "t"] | None
    """Tokens of the decoder, of an encoder-decoder."""
    decoder_columns: Int[np.ndarray, "t"] | None
    """Which of `pieces` they are."""
    column: int
    """Column of the hidden state that predicts."""


def _token_decision(
    model: Model, tokenizer: Tokenizer, question: TokenQuestion, pieces: WordPieces
) -> Decision | None:
    hidden = np.flatnonzero(pieces.word_of_token == question.hidden)
    target = int(pieces.token_ids[hidden[0]]) if question.is_known else None
    reading = read_question(model, tokenizer, question.hidden, pieces)
    if not reading.pieces.words:
        return None
    make_batch = batches_of(model, tokenizer, reading)
    predicted = _predict(model, tokenizer, make_batch, reading.column)

    def score(model: Model, batch: Batch) -> OutputScore:
        logits = model.logits_at(batch, _at(batch, reading.column)).float()
        found = log_odds(logits, predicted)
        return OutputScore(found, found.sigmoid())

    columns = np.arange(len(reading.pieces.token_ids))
    return Decision(
        pieces=reading.pieces,
        columns=(columns,)
        if reading.decoder_columns is None
        else (columns, reading.decoder_columns),
        make_batch=make_batch,
        score=score,
        pooled=columns[-1:] if reading.decoder is not None else columns[[reading.column]],
        predicted=token_text(tokenizer, predicted),
        target=None if target is None else token_text(tokenizer, target),
    )


def read_question(model: Model, tokenizer: Tokenizer, hidden: int, pieces: WordPieces) -> Reading:
    """Return what a model reads of a text in which a word is hidden; see `token_decisions`.

    Args:
        model: a language model.
        tokenizer: its tokenizer.
        hidden: index of the word; as many as there are words: the one after them.
        pieces: the text, with the word if it is known.
    """
    special, words = tokenizer.special_ids, pieces.words
    ids, owners = pieces.token_ids, pieces.word_of_token
    if predicts_after_text(model):
        end = len(ids) - len(special.suffix)
        if hidden < len(words):
            end = int(np.flatnonzero(owners == hidden)[0])
        read = WordPieces(words[:hidden], ids[:end], owners[:end])
        return Reading(read, None, None, end - 1)
    before, after = (np.flatnonzero(owners == hidden)[i] for i in (0, -1))
    at, mask = int(before), special.mask_or_sentinel
    assert mask is not None, "`token_decisions` has checked"
    new_ids = np.concatenate((ids[:at], [mask], ids[after + 1 :]))
    moved = np.where(owners > hidden, owners - 1, owners)
    new_owners = np.concatenate((moved[:at], [SPECIAL], moved[after + 1 :]))
    read = WordPieces((*words[:hidden], *words[hidden + 1 :]), new_ids, new_owners)
    if not model.architecture.is_encoder_decoder:
        return Reading(read, None, None, at - int(model.shifted_targets))
    if special.mask is None:  # after the sentinel comes what it stands for
        decoder, columns = np.array([special.start, mask]), np.full(2, SPECIAL)
    else:
        n_prefix = len(special.prefix)
        lead = [special.start, *special.decoder_prefix]
        decoder = np.concatenate((lead, ids[n_prefix:at]))
        columns = np.concatenate((np.full(len(lead), SPECIAL), np.arange(n_prefix, at)))
    return Reading(read, decoder, columns, len(decoder) - 1)


def batches_of(model: Model, tokenizer: Tokenizer, reading: Reading) -> Callable[[int], Batch]:
    """Return what makes a batch of so many equal rows of a text."""
    special, ids = tokenizer.special_ids, reading.pieces.token_ids

    def make_batch(n_rows: int) -> Batch:
        if reading.decoder is not None:
            batch = batch_of_texts(model, special, [ids] * n_rows)
            inputs = torch.from_numpy(reading.decoder).expand(n_rows, -1)
            return replace(batch, inputs=inputs, last_token_positions=None)
        if predicts_after_text(model):
            batch = batch_of_texts(model, special, [ids] * n_rows)
            return replace(batch, visibility=Visibility(causal=True))
        batch = pad_texts([ids] * n_rows, special)
        mask = special.mask
        assert mask is not None, "`token_decisions` has checked"
        return model.pad_for_network(model.mask_two_stream(batch, mask))

    return make_batch


def _at(batch: Batch, column: int) -> torch.Tensor:
    selected = torch.zeros_like(batch.inputs, dtype=torch.bool)
    selected[:, column] = True
    return selected


def _predict(
    model: Model, tokenizer: Tokenizer, make_batch: Callable[[int], Batch], column: int
) -> int:
    """Return the most probable token that is not a special one."""
    with evaluation_mode(model):
        batch = make_batch(1).to(model.device)
        logits = model.logits_at(batch, _at(batch, column)).float()[0, : tokenizer.vocab_size]
    reserved = torch.tensor(sorted(tokenizer.special_ids.all_ids), device=logits.device)
    return int(logits.index_fill(0, reserved, -torch.inf).argmax())


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """Return how a token is shown."""
    piece = tokenizer.pieces([token])[0]
    return piece.strip() or piece
