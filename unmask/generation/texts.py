"""A text while it is said: what was read before, what may follow, and when it is over."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.generation.rows import Prompt
from unmask.generation.settings import Decoding, Greedy, Sample
from unmask.tokens.vocabulary import Special

NOTHING = -1
"""In place of a token where none may follow."""


@runtime_checkable
class Guide(Protocol):
    """What follows a text while it is said."""

    def over(self, said: Sequence[int]) -> bool:
        """Say whether the text ends here, whatever the model would say next."""
        ...

    def allowed(self, said: Sequence[int]) -> Sequence[int] | None:
        """List the tokens that may follow; None: any."""
        ...


@dataclass(kw_only=True)
class Text:
    """What becomes of a prompt."""

    read: list[int]
    """Before anything is said, by the decoder or the only stack there is: at least one token."""
    source: list[int] | None = None
    """What the encoder reads, where there is one."""
    whole: int = 0
    """So many of `read`, the first, are a source that is seen as a whole."""
    most: int
    """Tokens that are said at most."""
    room: int | None = None
    """Tokens that are read at a time at most; None: any number."""
    led: int = 0
    """So many of `read`, the last, count where lengths are compared: in transformers they are said,
    by force."""
    head: int = 0
    """Tokens at the beginning that are read again wherever the text is cut."""
    dice: np.random.Generator
    """Its own, so that what is drawn does not depend on the texts beside it."""
    guide: Guide | None = None
    said: list[int] = field(default_factory=list[int])
    total: float = 0.0
    """The log-probability of what was said, the end token included, where that is counted."""
    over: bool = False
    fits: int | None = None
    """Tokens that may be said before the positions end; None: they do not."""

    def prompt(self) -> Prompt:
        """Return what is to be read before more is said: all, or the last of it."""
        ids = [*self.read, *self.said]
        if self.room is not None:
            if len(ids) > self.room:
                left = self.most - len(self.said)
                n = max(self.room // 2, self.room + 1 - left) - self.head
                ids = [*ids[: self.head], *ids[len(ids) - max(n, 1) :]]
            self.fits = len(self.said) + self.room + 1 - len(ids)
        return Prompt(read=ids, source=self.source, whole=self.whole)

    @property
    def halts(self) -> bool:
        """Whether it is over, or must be read anew."""
        return self.over or len(self.said) == self.fits

    def take(self, token: int, end: int | None) -> bool:
        """Add a token, unless it is the end or NOTHING; say whether it was added."""
        if token in (end, NOTHING):
            self.over = True
            return False
        self.said.append(token)
        self.over = len(self.said) == self.most or self.ends(self.said)
        return True

    def ends(self, said: Sequence[int]) -> bool:
        """Say whether the guide ends a text here."""
        return self.guide is not None and self.guide.over(said)


def restrained(
    scores: Float[Tensor, "b v"],
    texts: Sequence[tuple[Text, Sequence[int]]],
    how: Decoding,
    special: Special,
) -> Float[Tensor, "b v"]:
    """Change the scores of tokens that were said before, and forbid others: these have -inf.

    In the order of transformers: repetition penalty, n-grams, the end token, the guide.

    Args:
        scores: of the next token; of beams, log-probabilities.
        texts: of each row the text and what is said of it.
        how: which tokens it may not have.
        special: whose end token is forbidden at first.
    """
    if all(text.guide is None for text, _ in texts) and not (
        how.repetition_penalty != 1 or how.no_repeat or how.min_new_tokens
    ):
        return scores
    scores = scores.clone()
    for row, (text, said) in zip(scores, texts, strict=True):
        known = [*text.read, *said]
        if how.repetition_penalty != 1:
            seen = torch.tensor(sorted({t for t in known if t < special.size}), device=row.device)
            old, factor = row[seen], how.repetition_penalty
            row[seen] = torch.where(old < 0, old * factor, old / factor)
        if how.no_repeat is not None:
            _forbid(row, (t for t in _repeats(known, how.no_repeat) if t < special.size))
        if len(said) < how.min_new_tokens and special.end is not None:
            row[special.end] = -torch.inf
        allowed = None if text.guide is None else text.guide.allowed(said)
        if allowed is not None:
            some = torch.tensor(list(allowed), dtype=torch.long, device=row.device)
            kept = row[some]
            row.fill_(-torch.inf)
            row[some] = kept
    return scores


def _forbid(row: Float[Tensor, "v"], tokens: Iterator[int]) -> None:
    gone = torch.tensor(list(tokens), dtype=torch.long, device=row.device)
    row[gone] = -torch.inf


def _repeats(known: Sequence[int], n: int) -> Iterator[int]:
    """List the tokens with which the last n - 1 were followed before."""
    last = known[len(known) - n + 1 :] if n > 1 else []
    for i in range(len(known) - n + 1):
        if known[i : i + n - 1] == last:
            yield known[i + n - 1]


def pick(
    scores: Float[Tensor, "b v"], by: Greedy | Sample, dice: Sequence[np.random.Generator]
) -> Int[Tensor, "b"]:
    """Pick one token a row: the likeliest, or one drawn with the row's own generator.

    Where all scores are -inf it is NOTHING.
    """
    highest, best = scores.max(-1)
    if isinstance(by, Greedy):
        picked = best
    else:
        share = by.shares(scores.masked_fill(highest[:, None] == -torch.inf, 0.0))
        sums = share.double().cumsum(-1)
        drawn = torch.tensor([1 - d.random() for d in dice], dtype=torch.float64)
        # Above 0 and at most the sum of all, so that a token without probability is never picked.
        chosen = drawn.to(scores.device)[:, None] * sums[:, -1:]
        picked = torch.searchsorted(sums, chosen)[:, 0]
    return torch.where(highest == -torch.inf, NOTHING, picked)
