"""Texts of which each token sees a part: read one way, or a source and its target (UniLM)."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Int

from unmask.batch import Example, Tokens
from unmask.hiding.conceal import InPlace, join
from unmask.hiding.cuts import draw_cut
from unmask.hiding.hide import Hide, longest_text
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True)
class _InPart:
    """A text hidden in place, of which each token sees a part."""

    objective: Hide

    def __post_init__(self) -> None:
        if not isinstance(self.objective.conceal, InPlace):
            raise ValueError(
                "a text that is seen in part can only be hidden in place: objective.conceal must "
                f"be InPlace, got {type(self.objective.conceal).__name__}"
            )

    @property
    def asks(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.asks

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return self.objective.budget(length, special)


@dataclass(frozen=True)
class OneWay(_InPart):
    """A text hidden in place and read in one direction: a token sees itself and those before it.

    Or, read backward, itself and those after it (Dong et al. 2019, arXiv:1905.03197, section 2.3,
    "Unidirectional LM"). Hidden tokens are asked in their own place, knowing what was read.
    """

    direction: Literal["forward", "backward"] = "forward"
    segment: int = 0
    """Of all tokens."""

    @property
    def causal(self) -> bool:
        """Read forward, it is."""
        return self.direction == "forward"

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count as the objective does."""
        return self.objective.size(n, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide, and say who sees whom."""
        example = self.objective(text, special, rng)
        place = np.arange(len(example.inputs))
        rank = place if self.direction == "forward" else place[::-1].copy()
        return replace(example, rank=rank, segments=np.full(len(place), self.segment))


@dataclass(frozen=True)
class SourceTarget(_InPart):
    """A text in two parts hidden in place: the first is seen as a whole, the second read forward.

    Dong et al. 2019, arXiv:1905.03197, section 2.3, "Sequence-to-Sequence LM": before + source +
    between + target + after; tokens of the source see it alone, those of the target the source, and
    themselves and the target before them. Both have hidden tokens.

    Deviates: where a text is cut is not said; here, at a random beginning of a sentence, or where
    it is but one sentence, anywhere in its middle half.
    """

    segments: tuple[int, int] = (0, 1)
    """Of source and target."""

    @property
    def causal(self) -> bool:
        """The source is not."""
        return False

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the text, and the special ones."""
        return np.asarray(n) + len(special.before) + len(special.between) + len(special.after)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return longest_text(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Cut a text in two, hide, and say who sees whom; a text of one token is a source alone."""
        cut = draw_cut(text, 1, rng) if len(text) > 1 else len(text)
        between = special.between if cut < len(text) else ()
        framed = join(special.before, text[:cut], between, text[cut:], special.after)
        example = self.objective.hide(framed, special, rng)
        first = len(special.before) + cut + len(between) if between else len(framed)
        rank = (np.arange(len(framed)) - first + 1).clip(min=0)
        return replace(example, rank=rank, segments=np.array(self.segments)[(rank > 0) * 1])
