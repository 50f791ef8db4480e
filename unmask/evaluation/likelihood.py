"""How likely a model finds held-out text: perplexity, bits by byte; how often it is right."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import torch
from jaxtyping import Int

from unmask.batch import IGNORE, Batch, Example, Memory, Tokens, Visibility
from unmask.generation.reading import at_rest
from unmask.heads.beside import SentencesSaidHead
from unmask.heads.both_sides import BothSidesHead
from unmask.heads.generator import GeneratorHead
from unmask.heads.language import LanguageHead
from unmask.heads.model import Head, Model, asked_by
from unmask.heads.prediction import Term
from unmask.hiding.collate import by_size, pad, size
from unmask.hiding.hide import AnyObjective
from unmask.hiding.objectives import parts_of
from unmask.text.corpus import Document
from unmask.tokens.joined import separator
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special

WINDOW = 256
"""Pieces of text that are hidden together, and sorted by length."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a model scored on held-out text."""

    documents: int
    words: int
    """Runs of characters without white space."""
    bytes: int
    """Of the text in UTF-8."""
    tokens: int
    """Of the text, special ones apart."""
    asked: Mapping[str, int]
    """Places asked, by term: "masked", "next_sentence", "next_token", "denoised"; of a mixture
    whose parts have names, by term and part: "masked_forward"."""
    loss: Mapping[str, float]
    """By term, nats for each place asked."""
    accuracy: Mapping[str, float]
    """By term, the share of places where the best score is the answer's."""
    perplexity: Mapping[str, float]
    """exp of the loss, of terms that name tokens or words."""
    word_perplexity: float | None
    """exp of all nats by words: of a causal model, whose nats are those of the whole text. None
    also where that is beyond any float: in a language that writes few spaces."""
    bits_per_byte: float | None
    """All nats, in bits, by bytes: of a causal model."""


def evaluate(
    model: Model,
    tokenizer: Tokenizer,
    objective: AnyObjective,
    documents: Iterable[Document],
    *,
    length: int,
    batch_tokens: int = 8192,
    seed: int = 0,
    memory: int = 0,
) -> Evaluation:
    """Ask what pretraining asks, of text that the model has not seen; nothing is learned.

    Documents are cut into consecutive pieces that fit `length`, without overlap. Each piece is read
    on its own: a causal model is asked for every token of the text exactly once, for the first of
    each piece after the start token alone, and not for the end of a document. So its figures are
    somewhat worse than with all that stands before (a sliding window would cost a forward for each
    stride).

    With a memory, the documents are one text after the other, and what stood before each piece, as
    the network has read it, is behind it in every layer (Dai et al. 2019, arXiv:1901.02860, section
    3.2): so each token is told from all that was read within it and the memory, at the cost of a
    piece alone. What parts documents is read, and not asked.

    Of a masked model, the same seed hides the same places. What is not the next sentence comes from
    another document among the next 256 pieces. Of a mixture whose parts have names each part is
    asked of all of the text, and told by itself.

    Args:
        model: with a head for what the objective asks; of several questions some suffice.
        tokenizer: the model's own.
        objective: what pretraining asked.
        documents: read one by one; where a token says the language of a text, `source` names it.
        length: tokens of a piece, special ones included, at most.
        batch_tokens: read at once.
        seed: of what is hidden.
        memory: places that each layer remembers; it may be longer than in training.

    Raises:
        ValueError: the model has no head for what the objective asks, there is nothing to ask, or
            there is a memory, and the model cannot read one, or does not read forward.
        FloatingPointError: the loss is not finite.
    """
    tokenizer.check_reads("what pretraining asked")
    terms = {asked_by(name, spec) for name, spec in model.specs.items()}
    if not terms & set(objective.asks):
        raise ValueError(
            f"this model has no head for {' or '.join(objective.asks)}, which would be asked "
            f"(it has {', '.join(sorted(terms)) or 'none'})"
        )
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    read = _Read()
    budget = objective.budget(length, tokenizer.special)
    answering = [
        cast(Head, model.heads[name])
        for name, spec in model.specs.items()
        if asked_by(name, spec) in objective.asks
    ]
    sums: dict[tuple[str, str], _Sum] = {}
    parts: Mapping[str, AnyObjective] = parts_of(objective) or {"": objective}
    if memory:
        if not objective.causal:
            raise ValueError("memory: this model does not read forward only; leave it out, or 0")
        try:
            model.check_recalls()
        except ValueError as error:
            raise ValueError(f"memory: {error}; leave it out, or 0") from None
        stream = _recalling(documents, tokenizer, length, Memory(memory), read)
        batches = (("", batch) for batch in stream)
    else:
        windows = _windows(_pieces(documents, tokenizer, budget, read))
        batches = _apart(windows, parts, tokenizer, batch_tokens, seed)
    with at_rest(model), torch.random.fork_rng():
        torch.manual_seed(seed)  # of a generator's guesses
        for part, batch in batches:
            wanted = {name for head in answering for name in head.count(batch)}
            for name, term in model(batch.to(model.device)).terms.items():
                if name in wanted:
                    sums.setdefault((name, part), _Sum()).add(term)
    sums = {name: s for name, s in sums.items() if s.count}
    if not sums:
        raise ValueError(
            f"nothing to ask: the text has {read.documents} documents and {read.tokens} tokens"
        )
    forward = [part for part, asked in parts.items() if asked.causal]
    whole = next((s for (name, part), s in sums.items() if _whole(name, part, forward)), None)
    return _evaluation(sums, read, _naming(model), None if whole is None else whole.total)


def _whole(name: str, part: str, forward: Sequence[str]) -> bool:
    """Say whether a term's nats are those of the whole text."""
    return name in ("next_token", "permuted") and part in forward


def _apart(
    windows: Iterable[list["_Piece"]],
    parts: Mapping[str, AnyObjective],
    tokenizer: Tokenizer,
    batch_tokens: int,
    seed: int,
) -> Iterator[tuple[str, Batch]]:
    """Make batches of pieces that are read each on its own, as each part of an objective asks."""
    for pieces in windows:
        for part, asked in parts.items():
            examples = [_hidden(pieces, i, asked, tokenizer, seed) for i in range(len(pieces))]
            for batch in _batches(examples, tokenizer, batch_tokens):
                yield part, batch


def _recalling(
    documents: Iterable[Document], tokenizer: Tokenizer, length: int, memory: Memory, read: "_Read"
) -> Iterator[Batch]:
    """Make a batch of each piece of a text, each of which goes on with the memory."""
    special = tokenizer.special
    between = np.array(separator(special), np.int64)
    before, ids, asked = special.start, [between[:0]], [between[:0]]

    for document in documents:
        found = tokenizer.encode(document.text).ids.astype(np.int64)
        read.documents += 1
        read.words += len(document.text.split())
        read.bytes += len(document.text.encode())
        read.tokens += len(found)
        text = np.concatenate((*ids, found, between))
        answers = np.concatenate((*asked, found, np.full(len(between), IGNORE)))
        whole = len(text) // length * length
        for start in range(0, whole, length):
            piece = slice(start, start + length)
            yield going_on(before, text[piece], answers[piece], memory)
            before = int(text[start + length - 1])
        ids, asked = [text[whole:]], [answers[whole:]]
    if len(ids[0]):
        yield going_on(before, ids[0], asked[0], memory)


def going_on(
    before: int, text: Int[np.ndarray, "t"], answers: Int[np.ndarray, "t"], memory: Memory
) -> Batch:
    """Ask for a piece of a text that goes on with a memory, after the token before it."""
    return Batch(
        inputs=torch.from_numpy(np.concatenate(([before], text[:-1])))[None],
        visibility=Visibility(causal=True),
        targets=torch.from_numpy(answers)[None],
        asked=torch.from_numpy(np.flatnonzero(answers != IGNORE)),
        memory=memory,
    )


@dataclass
class _Read:
    """How much text there was."""

    documents: int = 0
    words: int = 0
    bytes: int = 0
    tokens: int = 0


@dataclass
class _Sum:
    """One term so far."""

    total: float = 0.0
    count: int = 0
    right: int = 0

    def add(self, term: Term) -> None:
        """Add what was said of a batch."""
        self.total += float(term.total)
        self.count += term.count
        self.right += 0 if term.right is None else int(term.right)


def _evaluation(
    by_part: Mapping[tuple[str, str], _Sum], read: _Read, naming: set[str], whole: float | None
) -> Evaluation:
    told = {f"{name}_{part}" if part else name: name for name, part in by_part}
    sums = dict(zip(told, by_part.values(), strict=True))
    loss = {name: s.total / s.count for name, s in sums.items()}
    for name, value in loss.items():
        if not math.isfinite(value):
            raise FloatingPointError(f"the loss of {name!r} is not finite: the weights are damaged")
    by_token = {name: _exp(nats) for name, nats in loss.items() if told[name] in naming}
    return Evaluation(
        documents=read.documents,
        words=read.words,
        bytes=read.bytes,
        tokens=read.tokens,
        asked={name: s.count for name, s in sums.items()},
        loss=loss,
        accuracy={name: s.right / s.count for name, s in sums.items()},
        perplexity={name: value for name, value in by_token.items() if value is not None},
        word_perplexity=None if whole is None else _exp(whole / max(read.words, 1)),
        bits_per_byte=None if whole is None else whole / math.log(2) / max(read.bytes, 1),
    )


def _naming(model: Model) -> set[str]:
    """Return the terms of heads that name tokens."""
    naming = (LanguageHead, GeneratorHead, BothSidesHead)
    heads = list(model.heads.values())
    said = {name for h in heads if isinstance(h, SentencesSaidHead) for name in h.spec.terms}
    return said | {h.spec.term for h in heads if isinstance(h, naming)}


def _exp(nats: float) -> float | None:
    try:
        return math.exp(nats)
    except OverflowError:
        return None


@dataclass(frozen=True)
class _Piece:
    """A piece of a document, and its number among all pieces."""

    number: int
    document: int
    text: Tokens = field(repr=False)
    source: str | None = None
    """What its document is of, which may be a language."""


def _pieces(
    documents: Iterable[Document], tokenizer: Tokenizer, budget: int, read: _Read
) -> Iterator[_Piece]:
    number = 0
    for document in documents:
        tokens = tokenizer.encode(document.text)
        for start in range(0, len(tokens), budget):
            text = tokens[start : start + budget]
            yield _Piece(number, read.documents, text, document.source)
            number += 1
        read.documents += 1
        read.words += len(document.text.split())
        read.bytes += len(document.text.encode())
        read.tokens += len(tokens)


def _windows(pieces: Iterator[_Piece]) -> Iterator[list[_Piece]]:
    window: list[_Piece] = []
    for piece in pieces:
        window.append(piece)
        if len(window) == WINDOW:
            yield window
            window = []
    if window:
        yield window


def _hidden(
    pieces: Sequence[_Piece], i: int, objective: AnyObjective, tokenizer: Tokenizer, seed: int
) -> Example:
    """Hide a piece with a generator of its own."""
    piece, text = pieces[i], pieces[i].text
    rng = np.random.default_rng([seed, piece.number])
    if objective.pairs:
        others = [p.text for p in pieces if p.document != piece.document]
        other = others[int(rng.integers(len(others)))] if others else None
        text = replace(text, other=other)
    return objective(text, _special(tokenizer, piece.source), rng)


def _special(tokenizer: Tokenizer, source: str | None) -> Special:
    """Return the special tokens around a text, its language among them where one is told."""
    special = tokenizer.special
    return special.told(source) if special.untold and source is not None else special


def _batches(
    examples: Sequence[Example], tokenizer: Tokenizer, batch_tokens: int
) -> Iterator[Batch]:
    for rows in by_size([size(e) for e in examples], batch_tokens):
        yield pad([examples[i] for i in rows], tokenizer.special)
