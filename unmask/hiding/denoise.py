"""A text read through noise and said as it was; and sources that say how they were made."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Int

from unmask.batch import Example, Tokens
from unmask.hiding.conceal import Dropped, InSource, Sentinels, asking_nothing, join, saying
from unmask.hiding.hide import AnyObjective, Hide, longest_text
from unmask.hiding.noise import AnyNoise
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True)
class Denoise:
    """An encoder reads a text through noise, and the decoder says the text as it was.

    Lewis et al. 2020, arXiv:1910.13461, section 2: one noise follows the other. Both sides have the
    special tokens around a text, which no noise reaches (released code, `DenoisingDataset`); the
    decoder reads what it is to say one place late, from `start` on.
    """

    noises: tuple[AnyNoise, ...]

    @property
    def asks(self) -> tuple[str, ...]:
        """The text, token by token."""
        return ("denoised",)

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def causal(self) -> bool:
        """The decoder sees what it has said."""
        return True

    @property
    def times(self) -> int | None:
        """A text is changed anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens of what the decoder says: no noise makes a text longer."""
        return np.maximum(np.asarray(n) + len(special.before) + len(special.after), 1)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return longest_text(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Change a text, and ask for it; of an empty one nothing is asked.

        Raises:
            ValueError: a noise needs a mask, and the vocabulary has none.
        """
        noisy = text = join(text)
        for noise in self.noises:
            noisy = noise(noisy, special, rng)
        source = join(special.before, noisy, special.after).ids
        source = source if len(source) else np.array([special.start])
        if not len(text):
            return asking_nothing(special, source)
        return saying(join(special.lead, text, special.after).ids, source, special)


WITH_SOURCE = "Sentinels, Dropped, InSource, Denoise, InMode"


def has_source(objective: AnyObjective) -> bool:
    """Say whether an encoder reads a source, and a decoder answers."""
    if isinstance(objective, Hide):
        return isinstance(objective.conceal, Sentinels | Dropped | InSource)
    return isinstance(objective, Denoise | InMode)


@dataclass(frozen=True)
class InMode:
    """A source that begins with a token which says how it was made, before all others.

    Tay et al. 2022, arXiv:2205.05131, section 3.1.3, mode switching: regular (R), sequential (S)
    and extreme (X) denoising; their tokens are `Special.modes`.
    """

    objective: Hide | Denoise
    mode: Literal["R", "S", "X"] = "R"

    def __post_init__(self) -> None:
        if not has_source(self.objective):
            raise ValueError(
                f"a mode is told to an encoder: objective must be {WITH_SOURCE}, got one without "
                "a source"
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
    def causal(self) -> bool:
        """The decoder sees what it has said."""
        return True

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count a token more than the objective does, on either side."""
        return self.objective.size(n, special) + 1

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have beside the mode."""
        return longest_text(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide, and put the mode before the source.

        Raises:
            ValueError: the vocabulary has no tokens for modes.
        """
        number = ("R", "S", "X").index(self.mode)
        if len(special.modes) <= number:
            raise ValueError(
                f"mode {self.mode} needs a token of its own, and this vocabulary has none; let the "
                "card that asks so learn one (without --tokenizer, or by `unmask prepare --model`)"
            )
        example = self.objective(text, special, rng)
        assert example.source is not None
        mode = special.modes[number : number + 1]
        return replace(example, source=np.concatenate((mode, example.source)))
