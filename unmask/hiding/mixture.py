"""One of several objectives for each text; and texts hidden once, in a few ways."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from unmask.batch import Example, Tokens
from unmask.hiding.beside import Apart, BesideCrop, Pair
from unmask.hiding.denoise import WITH_SOURCE, Denoise, InMode, has_source
from unmask.hiding.hide import Hide
from unmask.hiding.in_part import OneWay, SourceTarget
from unmask.tokens.vocabulary import Special

Part = Hide | Pair | OneWay | SourceTarget | Denoise | InMode
"""The kinds of objective that a mixture can hold."""


@dataclass(frozen=True)
class Mixture:
    """One of several objectives for each text, drawn by weight (UniLM, GPT-BERT, UL2)."""

    parts: tuple[tuple[float, Part], ...]
    names: tuple[str, ...] = ()
    """Of the parts: what each asks of held-out text is told apart, under its name. None: it is
    not."""

    def __post_init__(self) -> None:
        if self.names and len(set(self.names)) != len(self.parts):
            raise ValueError(
                f"names must be one for each of the {len(self.parts)} parts, all different, got "
                f"{list(self.names)}"
            )
        weights = [weight for weight, _ in self.parts]
        if not weights or not all(0 < w < np.inf for w in weights):
            raise ValueError(
                f"a mixture needs parts whose weights are above 0, got weights {weights}"
            )
        two = [has_source(part) for _, part in self.parts]
        if any(two) and not all(two):
            raise ValueError(
                f"a mixture cannot have parts for an encoder-decoder ({WITH_SOURCE}) and parts "
                "without"
            )

    @property
    def named(self) -> Mapping[str, Part]:
        """The parts by name, where they have any."""
        return dict(zip(self.names, (part for _, part in self.parts), strict=False))

    @property
    def asks(self) -> tuple[str, ...]:
        """What any of the parts asks."""
        return tuple(dict.fromkeys(name for _, part in self.parts for name in part.asks))

    @property
    def pairs(self) -> bool:
        """Some part asks about two texts."""
        return any(part.pairs for _, part in self.parts)

    @property
    def causal(self) -> bool:
        """Every part is causal."""
        return all(part.causal for _, part in self.parts)

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens of whichever part makes the most of them."""
        return np.max([part.size(n, special) for _, part in self.parts], axis=0)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have for every part."""
        return min(part.budget(length, special) for _, part in self.parts)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Draw a part and let it hide the text."""
        sums = np.cumsum([weight for weight, _ in self.parts])
        drawn = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
        return self.parts[min(drawn, len(self.parts) - 1)][1](text, special, rng)


@dataclass(frozen=True)
class Static:
    """Static masking: hide a text in `times` ways, and use these in turn epoch by epoch.

    Liu et al. 2019, section 4.1. There the text was copied ten times before it was masked once.
    Here nothing is stored: the loader seeds the generator by epoch % times in place of the epoch.
    """

    objective: Hide | Pair | Apart | BesideCrop | OneWay | SourceTarget | Denoise | InMode | Mixture
    times: int = 10

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"times must be at least 1, got {self.times}")

    @property
    def asks(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.asks

    @property
    def pairs(self) -> bool:
        """As the objective."""
        return self.objective.pairs

    @property
    def causal(self) -> bool:
        """As the objective."""
        return self.objective.causal

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count as the objective does."""
        return self.objective.size(n, special)

    def budget(self, length: int, special: Special) -> int:
        """Count as the objective does."""
        return self.objective.budget(length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide as the objective does."""
        return self.objective(text, special, rng)
