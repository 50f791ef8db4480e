"""A row of a stream whose second part is read ahead, as two texts (XLNet)."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from unmask.batch import Example, Tokens
from unmask.hiding.choose import check_shares, sentence_starts
from unmask.hiding.conceal import Order, join
from unmask.hiding.cuts import draw_cut
from unmask.hiding.hide import Hide, longest_text
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True)
class TwoSegments:
    """A piece of a stream: its first part goes on; what follows is read ahead, as two texts.

    Yang et al. 2019, arXiv:1906.08237, section 2.5; `_split_a_and_b`, `reuse_len` and `_local_perm`
    in the released code: kept + before + A + between + B + after, where B follows A, or is from
    elsewhere. Each of the two parts is hidden by itself. The first sees nothing of the second, so
    that a memory of it alone holds no answer of the next piece, which begins where it ends; the
    second sees all of the first. Nothing is asked about A and B as such.

    Deviates: where no sentence begins in what follows, it is cut anywhere in its middle half;
    there, A is all but a token of it, and B from elsewhere. B ends where the row does; there, both
    end with a sentence, and the longer one is cut. B from elsewhere is of another document, if
    there is one; there, of any.
    """

    objective: Hide
    random: float = 0.5
    """So often B is from elsewhere."""
    kept: float = 0.5
    """Of a row, the first part. 0: there is none, rows follow each other as a whole."""

    def __post_init__(self) -> None:
        check_shares(random=self.random)
        if not 0 <= self.kept < 1:
            raise ValueError(f"kept must be at least 0 and below 1, got {self.kept}")
        if not isinstance(self.objective.conceal, Order):
            raise ValueError(
                "two parts of which one sees nothing of the other come in an order: "
                f"objective.conceal must be Order, got {type(self.objective.conceal).__name__}"
            )

    @property
    def asks(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.asks

    @property
    def pairs(self) -> bool:
        """Some of the second texts are from elsewhere."""
        return self.random > 0

    @property
    def causal(self) -> bool:
        """Shown tokens see each other."""
        return False

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the text, and the special ones."""
        return np.asarray(n) + len(special.before) + len(special.between) + len(special.after)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return longest_text(self, length, special)

    def step(self, n: int, special: Special) -> int:
        """Count the tokens of the first part of a text of `n`; two are left for A and B."""
        row = int(self.size(np.array([n]), special)[0])
        return max(0, min(int(self.kept * row), n - 2))

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Cut a text in three (or in two, and take the third from `text.other`), and hide."""
        n = self.step(len(text), special)
        a, b = self._split(text[n:], text.other, rng)
        between = special.between if len(b) else ()
        parts = join(text[:n]), join(special.before, a, between, b, special.after)
        first, second = (self.objective.hide(part, special, rng) for part in parts)
        assert first.rank is not None
        assert second.rank is not None
        both = ((first.inputs, second.inputs), (first.targets, second.targets))
        inputs, targets = (np.concatenate(arrays) for arrays in both)
        end = n + len(special.before) + len(a) + len(between) if len(b) else len(inputs)
        return replace(
            second,
            inputs=inputs,
            targets=targets,
            rank=np.concatenate((first.rank, second.rank + first.rank.max(initial=-1) + 1)),
            segments=(np.arange(len(inputs)) >= end).astype(np.int64),
            kept=n or None,
        )

    def _split(
        self, text: Tokens, other: Tokens | None, rng: np.random.Generator
    ) -> tuple[Tokens, Tokens]:
        """Return A and B; a text of one token is A alone."""
        cut = draw_cut(text, 1, rng) if len(text) > 1 else len(text)
        a, b = text[:cut], text[cut:]
        if rng.random() >= self.random or not len(b) or other is None or not len(other):
            return a, b
        starts = sentence_starts(other)
        starts = starts[starts + len(b) <= len(other)]
        begin = int(rng.choice(starts)) if len(starts) else 0
        return a, other[begin : begin + len(b)]
