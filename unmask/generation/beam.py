"""Beam search: several texts are followed side by side, and the best are kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from unmask.generation.rows import Rows
from unmask.generation.settings import Beam, Decoding
from unmask.generation.texts import Text, restrained
from unmask.heads.model import Model
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True)
class Said:
    """A text, and how likely it is."""

    ids: tuple[int, ...]
    """Without the end token."""
    score: float
    """See `Beam` and `Ranked`."""


@dataclass(frozen=True)
class _Followed:
    """A text that may go on."""

    said: tuple[int, ...]
    total: float
    """Its log-probability."""


@dataclass(kw_only=True)
class _Search:
    """What is known of one prompt."""

    text: Text
    by: Beam
    followed: list[_Followed] = field(default_factory=lambda: [_Followed((), 0.0)])
    """The best first."""
    ended: list[Said] = field(default_factory=list[Said])
    """The best first, at most as many as beams."""
    over: bool = False

    def score(self, total: float, length: int) -> float:
        return total / (length + self.text.led) ** self.by.length_penalty

    def step(self, found: Sequence[tuple[float, int, int]], end: int | None) -> list[int]:
        """Take the best continuations: log-probability, which text, token; the best first.

        Returns which texts the ones followed now go on from.
        """
        before, on, origins = self.followed, list[_Followed](), list[int]()
        length = len(before[0].said) + 1
        for rank, (total, origin, token) in enumerate(found[: 2 * self.by.beams]):
            said = (*before[origin].said, *(() if token == end else (token,)))
            if token == end or length == self.text.most or self.text.ends(said):
                if rank < self.by.beams:
                    self.ended.append(Said(said, self.score(total, length)))
            elif len(on) < self.by.beams:
                on.append(_Followed(said, total))
                origins.append(origin)
        if not found:  # nothing may follow
            self.ended += [Said(f.said, self.score(f.total, max(length - 1, 1))) for f in before]
        self.ended = sorted(self.ended, key=lambda one: -one.score)[: self.by.beams]
        self.followed, self.over = on, not on or self._settled(on[0], length)
        return [] if self.over else origins

    def _settled(self, best: _Followed, length: int) -> bool:
        """Say whether no text that goes on could be among the best."""
        if len(self.ended) < self.by.beams:
            return False
        if self.by.early_stopping is True:
            return True
        never = self.by.early_stopping == "never" and self.by.length_penalty > 0
        return self.score(best.total, self.text.most if never else length) <= self.ended[-1].score


def search(
    model: Model,
    texts: Sequence[Text],
    how: Decoding,
    by: Beam,
    special: Special,
) -> list[list[Said]]:
    """Search for the best texts after each prompt, all at once."""
    searches = [_Search(text=text, by=by) for text in texts]
    going, rows = list(searches), Rows(model, [text.prompt() for text in texts], special)
    while True:
        logs = rows.scores()[:, 0].log_softmax(-1)
        followed = [(one.text, f.said) for one in going for f in one.followed]
        logs = restrained(logs, followed, how, special)
        totals = [f.total for one in going for f in one.followed]
        logs = logs + torch.tensor(totals, device=logs.device)[:, None]
        best = logs.topk(min(2 * by.beams, special.size))
        values, tokens = best.values.tolist(), best.indices.tolist()
        kept, said, first = list[int](), list[int](), 0
        for one in going:
            n = len(one.followed)
            found = [
                (total, i, token)
                for i in range(n)
                for total, token in zip(values[first + i], tokens[first + i], strict=True)
                if total > -torch.inf
            ]
            found.sort(key=lambda x: -x[0])
            kept += [first + origin for origin in one.step(found, special.end)]
            said += [f.said[-1] for f in one.followed if not one.over]
            first += n
        going = [one for one in going if not one.over]
        if not going:
            break
        if kept != list(range(first)):
            rows.keep(torch.tensor(kept, dtype=torch.long, device=logs.device))
        rows.say(torch.tensor(said, dtype=torch.long, device=logs.device)[:, None])
    return [one.ended[: by.best] for one in searches]
