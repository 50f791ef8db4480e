"""How likely a text is after another: of decoders, encoder-decoders and masked models."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.adapters.prefix import decoder, reader, room
from unmask.batch import IGNORE, WORD, Batch, Example
from unmask.generation.reading import at_rest
from unmask.heads.model import Model
from unmask.hiding.collate import by_size, pad
from unmask.model.transformer import EncoderDecoder
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special

Hide = Literal["word", "token"]
"""What a masked model does not see while it is asked for a token: the token and those after it in
its word, or the token alone."""

AT_ONCE = 1024
"""Continuations that are laid out at the same time."""
SCORES = 2**25
"""Scores of tokens that are held at the same time: 128 MiB."""


@dataclass(frozen=True, kw_only=True)
class Likelihood:
    """How likely a continuation is after its context."""

    total: float
    """Its log-probability, in nats; of a masked model, the pseudo-log-likelihood."""
    tokens: int
    bytes: int
    """Of the continuation in UTF-8, without white space before it."""
    greedy: bool
    """Whether the likeliest token was the continuation's, each time."""
    cut: int = 0
    """Tokens of the context that did not fit, its first ones."""

    @property
    def per_token(self) -> float:
        """The mean over tokens."""
        return self.total / self.tokens

    @property
    def per_byte(self) -> float:
        """The mean over bytes."""
        return self.total / max(self.bytes, 1)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A context and its continuation, in tokens."""

    context: tuple[int, ...]
    continuation: tuple[int, ...]
    begins: tuple[bool, ...] = ()
    """Which tokens of the continuation begin a word; asked of masked models alone."""


def likelihoods(
    model: Model,
    tokenizer: Tokenizer,
    contexts: Sequence[str],
    continuations: Sequence[str],
    *,
    hide: Hide = "word",
    length: int | None = None,
    stride: int | None = None,
    batch_tokens: int = 8192,
) -> list[Likelihood]:
    """Compute how likely each continuation is after its context, which may be empty.

    A decoder reads both as one text: a space that ends the context counts to the continuation.
    Where a token would cross the border each is read by itself. An empty context is the start
    token. An encoder-decoder reads the context and says the continuation, without an end. A masked
    model reads both and is asked for each token of the continuation by itself: the
    pseudo-log-likelihood of Salazar et al. 2020, arXiv:1910.14659, section 2.3 (`hide` "token"), or
    its form of Kauf and Ivanova 2023, arXiv:2305.10588, section 3, in which later tokens of the
    same word are hidden too ("word").

    What does not fit is cut from the context's beginning. A continuation that
    does not fit itself is asked for in windows, each token once, with all tokens before it that fit
    beside those asked with it. What is said of one does not depend on others, but for rounding.

    Args:
        model: with a head that names tokens.
        tokenizer: the model's own.
        contexts: as many as continuations.
        continuations: with the space before them, if there is one.
        hide: from a masked model.
        length: tokens that are read together at most, special ones included. None: as many as the
            model has positions.
        stride: tokens that are asked of a window after the first. None: as many as fit.
        batch_tokens: read at once.

    Raises:
        ValueError: a continuation has no token, the model names none, or length or stride do not
            fit it.
        FloatingPointError: a score is not a number.
    """
    tokenizer.check_reads("likelihood")
    tokenizer.check_forward("likelihood")
    if hide not in get_args(Hide):
        raise ValueError(f"hide must be one of {list(get_args(Hide))}, got {hide!r}")
    found: list[Likelihood] = []
    for at in range(0, len(continuations), AT_ONCE):
        some = slice(at, at + AT_ONCE)
        texts = continuations[some]
        pairs = _pairs(model, tokenizer, contexts[some], texts, words=hide == "word")
        for i, pair in enumerate(pairs):
            if not pair.continuation:
                raise ValueError(f"continuation {at + i + 1} has no token: {texts[i]!r}")
        said = token_likelihoods(
            model,
            tokenizer.special,
            pairs,
            length=length,
            stride=stride,
            batch_tokens=batch_tokens,
        )
        found += [
            replace(one, bytes=len(text.lstrip().encode()))
            for one, text in zip(said, texts, strict=True)
        ]
    return found


def _pairs(
    model: Model,
    tokenizer: Tokenizer,
    contexts: Sequence[str],
    continuations: Sequence[str],
    *,
    words: bool,
) -> list[Pair]:
    """Write texts in tokens as the kind of model reads them."""
    apart = isinstance(model.backbone, EncoderDecoder)
    cut = [len(c) if apart else len(c.rstrip()) for c in contexts]
    after = [c[n:] + t for c, n, t in zip(contexts, cut, continuations, strict=True)]
    before = [c[:n] for c, n in zip(contexts, cut, strict=True)]
    first, second = tokenizer.ids_batch(before), tokenizer.ids_batch(after)
    if apart:
        return [_pair(a, b) for a, b in zip(first, second, strict=True)]
    wholes = [a + b for a, b in zip(before, after, strict=True)]
    if model.reads_forward or not words:
        whole = tokenizer.ids_batch(wholes)
        begins = [np.ones(len(ids), bool) for ids in whole]
        alone = [np.ones(len(ids), bool) for ids in second]
    else:
        read = tokenizer.encode_batch(wholes)
        whole, begins = [t.ids for t in read], [(t.marks & WORD) > 0 for t in read]
        alone = [(t.marks & WORD) > 0 for t in tokenizer.encode_batch(after)]
    pairs: list[Pair] = []
    for ids, a, b, m, n in zip(whole, first, second, begins, alone, strict=True):
        together = len(ids) > len(a) and bool((ids[: len(a)] == a).all())
        pairs.append(_pair(a, ids[len(a) :], m[len(a) :]) if together else _pair(a, b, n))
    return pairs


def _pair(
    context: Int[np.ndarray, "_"],
    continuation: Int[np.ndarray, "_"],
    begins: "np.ndarray | tuple[bool, ...]" = (),
) -> Pair:
    return Pair(
        context=tuple(context.tolist()),
        continuation=tuple(continuation.tolist()),
        begins=tuple(map(bool, begins)),
    )


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """What the model reads once, and what it is asked then."""

    inputs: tuple[int, ...]
    source: tuple[int, ...] | None = None
    asked: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """Column, token, and of which pair."""


@dataclass(kw_only=True)
class _Sum:
    """What was said of a pair so far."""

    total: float = 0.0
    greedy: bool = True
    cut: int = 0


class _Readings:
    """All that is read for some pairs: what is read for several is read once."""

    def __init__(self, n: int) -> None:
        self.sums = [_Sum() for _ in range(n)]
        self.read: dict[tuple[tuple[int, ...], tuple[int, ...] | None], _Reading] = {}

    def add(
        self, inputs: tuple[int, ...], at: int, token: int, pair: int,
        source: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        """Ask for a token of a pair at a column of what is read."""
        reading = self.read.setdefault((inputs, source), _Reading(inputs=inputs, source=source))
        reading.asked.append((at, token, pair))


def token_likelihoods(
    model: Model,
    special: Special,
    pairs: Sequence[Pair],
    *,
    length: int | None = None,
    stride: int | None = None,
    batch_tokens: int = 8192,
) -> list[Likelihood]:
    """Compute how likely continuations in tokens are; `bytes` is not known, hence 0.

    As `likelihoods`, which says what is raised.
    """
    _ = model.language  # or it is said that there is none
    ask = _Asker(model, special, length, stride)
    readings = _Readings(len(pairs))
    for i, pair in enumerate(pairs):
        ask(readings, i, pair)
    with at_rest(model):
        _read(model, special, readings, batch_tokens)
    return [
        Likelihood(
            total=s.total, tokens=len(pair.continuation), bytes=0, greedy=s.greedy, cut=s.cut
        )
        for s, pair in zip(readings.sums, pairs, strict=True)
    ]


class _Asker:
    """Lays out what a kind of model reads for a pair."""

    def __init__(
        self, model: Model, special: Special, length: int | None, stride: int | None
    ) -> None:
        self.special, self.stride = special, stride
        self.most = at_most(room(model, decoder(model)), length)
        self.source = at_most(room(model, reader(model)), length)
        if isinstance(model.backbone, EncoderDecoder):
            self.ask = self._answered
        elif model.reads_forward:
            self.ask = self._continued
        elif special.mask is None:
            raise ValueError("the tokenizer has no mask token to ask this model with")
        else:
            self.ask = self._hidden

    def __call__(self, readings: _Readings, i: int, pair: Pair) -> None:
        """Add what is read for pair `i`."""
        self.ask(readings, i, pair)

    def _width(self, taken: int) -> int:
        """Count the tokens of text that fit beside special ones.

        Raises:
            ValueError: no two do, or fewer than are asked of a window.
        """
        width = 2**31 if self.most is None else self.most - taken
        if width < 2:
            raise ValueError(f"{self.most} tokens read together leave no room for text")
        if self.stride is not None and not 1 <= self.stride <= width:
            raise ValueError(f"stride must be from 1 to {width}, got {self.stride}")
        return width

    def _continued(self, readings: _Readings, i: int, pair: Pair) -> None:
        before, context = self.special.before, pair.context
        if not before and not context:
            context = (self.special.start,)
        self._in_turn(readings, i, before, context, pair.continuation, None)

    def _answered(self, readings: _Readings, i: int, pair: Pair) -> None:
        special = self.special
        around = len(special.before) + len(special.after)
        n = len(pair.context)
        kept = n if self.source is None else min(n, max(self.source - around, 0))
        source = (*special.before, *pair.context[n - kept :], *special.after)
        source = source or (special.start,)
        before = (special.start, *special.lead)
        self._in_turn(readings, i, before, (), pair.continuation, source)
        readings.sums[i].cut = n - kept

    def _in_turn(
        self, readings: _Readings, i: int, before: tuple[int, ...], context: tuple[int, ...],
        continuation: tuple[int, ...], source: tuple[int, ...] | None,
    ) -> None:  # fmt: skip
        """Ask for each token after those before it; the last need not be read."""
        row, n = (*context, *continuation), len(before)
        width = self._width(n) + 1
        for low, a, b in windows(len(context), len(row), width, self.stride or width - 1):
            if a == len(context):
                readings.sums[i].cut = low
            inputs = (*before, *row[low : b - 1])
            for t in range(a, b):
                readings.add(inputs, n + t - low - 1, row[t], i, source)

    def _hidden(self, readings: _Readings, i: int, pair: Pair) -> None:
        """Ask for each token with it, and what follows it in its word, hidden."""
        special, n = self.special, len(pair.context)
        assert special.mask is not None
        row = (*pair.context, *pair.continuation)
        begins = (*[True] * n, *(pair.begins or [True] * len(pair.continuation)))
        width = self._width(len(special.before) + len(special.after))
        for low, a, b in windows(n, len(row), width, self.stride or width):
            if a == n:
                readings.sums[i].cut = low
            for t in range(a, b):
                end = next((u for u in range(t + 1, b) if begins[u]), b)
                inside = (*row[low:t], *[special.mask] * (end - t), *row[end:b])
                inputs = (*special.before, *inside, *special.after)
                readings.add(inputs, len(special.before) + t - low, row[t], i)


def at_most(positions: int | None, length: int | None) -> int | None:
    """Return how many tokens are read together: what is asked for, as far as there are positions.

    None: there is no end of them.
    """
    known = [n for n in (positions, length) if n is not None]
    return min(known, default=None)


def windows(begin: int, end: int, width: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Cut the places from `begin` to `end` into windows: (where it begins, first asked, end).

    Each place is asked once. The first window holds as many as fit; each next one asks `stride`
    more, and is as wide as can be.
    """
    at = begin
    while at < end:
        stop = min(end, max(width, at + stride))
        yield max(0, stop - width), at, stop
        at = stop


def _read(model: Model, special: Special, readings: _Readings, batch_tokens: int) -> None:
    """Run the model over all readings and add up what it says."""
    read = list(readings.read.values())
    sizes = [max(len(r.inputs), len(r.source or ())) for r in read]
    n_scores = max(SCORES // model.vocab_size, 1)
    for rows in by_size(sizes, batch_tokens):
        some = [read[i] for i in rows]
        batch = model.roomy(pad([_example(r, model) for r in some], special)).to(model.device)
        if special.mask is not None:
            batch = model.unseen(batch, special.mask)
        asked = [(row, *one) for row, r in enumerate(some) for one in r.asked]
        row, at, token, pair = torch.tensor(asked).T
        hidden = _at(model, batch, row.to(model.device), at.to(model.device))
        for k in range(0, len(asked), n_scores):
            part = slice(k, k + n_scores)
            logs, hit = _said(model, hidden[part], token[part].to(model.device))
            for i, log, right in zip(pair[part].tolist(), logs, hit, strict=True):
                readings.sums[i].total += log
                readings.sums[i].greedy &= right


def _example(reading: _Reading, model: Model) -> Example:
    ids = np.array(reading.inputs, np.int64)
    return Example(
        inputs=ids,
        targets=np.full(len(ids), IGNORE, np.int64),
        rank=np.arange(len(ids)) if model.reads_forward else None,
        source=None if reading.source is None else np.array(reading.source, np.int64),
    )


def _at(
    model: Model, batch: Batch, row: Int[Tensor, "n"], at: Int[Tensor, "n"]
) -> Float[Tensor, "n d"]:
    """Return hidden states at places; where each text has one, the last layer makes no other."""
    batch = replace(batch, targets=None, asked=None)
    if model.narrows and len(row) == len(batch.inputs) and bool((row.diff() == 1).all()):
        return model.hidden(replace(batch, only=at))[:, 0]
    return model.hidden(batch)[row, at]


def _said(
    model: Model, hidden: Float[Tensor, "n d"], token: Int[Tensor, "n"]
) -> tuple[list[float], list[bool]]:
    """Return the log-probability of each token, and whether it is the likeliest."""
    logs = model.language.scores(hidden).float().log_softmax(-1)
    said = logs.gather(-1, token[:, None])[:, 0].tolist()
    if any(map(math.isnan, said)):
        raise FloatingPointError("the model's scores are not numbers: its weights are damaged")
    return said, (logs.argmax(-1) == token).tolist()
