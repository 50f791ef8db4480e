"""Denoising: reconstruct a text from a corrupted source; and sources with a task prefix."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Int

from unmask.batch import RANDOM_TOKEN, Example, Tokens
from unmask.objectives.corrupt import MaskedSeq2Seq, concatenate, empty_example, seq2seq_example
from unmask.objectives.denoising.noise import NoiseSpec
from unmask.objectives.denoising.replace_spans import DropTokens, ReplaceSpans
from unmask.objectives.features import RandomTokens
from unmask.objectives.objective import AnyObjective, Objective, max_fitting_text_length
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True)
class DenoisingObjective:
    """An encoder reads a text through noise, and the decoder says the text as it was.

    Lewis et al. 2020, arXiv:1910.13461, section 2: one noise follows the other. Both sides have the
    special tokens around a text, which no noise reaches (released code, `DenoisingDataset`); the
    decoder reads what it is to say one place late, from `start` on.
    """

    noises: tuple[NoiseSpec, ...]

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """The text, token by token."""
        return ("denoised",)

    @property
    def needs_second_text(self) -> bool:
        """False: an example has one text."""
        return False

    @property
    def causal(self) -> bool:
        """True: the decoder is causal."""
        return True

    @property
    def n_variants(self) -> int | None:
        """A text is changed anew in every epoch."""
        return None

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of what the decoder says: no noise makes a text longer."""
        return np.maximum(
            np.asarray(text_lengths) + len(special_ids.prefix) + len(special_ids.suffix), 1
        )

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have: `max_length` without the special ones."""
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Corrupt a text, with the text as target; an empty text has no targets.

        Raises:
            ValueError: a noise needs a mask, and the vocabulary has none.
        """
        noisy = text = concatenate(text)
        for noise in self.noises:
            noisy = noise(noisy, special_ids, rng)
        framed = concatenate(special_ids.prefix, noisy, special_ids.suffix)
        source = framed.ids if len(framed) else np.array([special_ids.start])
        if not len(text):
            return empty_example(special_ids, source)
        example = seq2seq_example(
            concatenate(special_ids.decoder_prefix, text, special_ids.suffix).ids,
            source,
            special_ids,
        )
        random = np.flatnonzero(framed.boundaries & RANDOM_TOKEN)
        return example.with_feature(RandomTokens(random)) if len(random) else example


SEQ2SEQ_OBJECTIVES = "ReplaceSpans, DropTokens, MaskedSeq2Seq, DenoisingObjective, ModeSwitching"


def is_seq2seq(objective: AnyObjective) -> bool:
    """Return whether an objective has a source for an encoder."""
    if isinstance(objective, Objective):
        return isinstance(objective.corrupt, ReplaceSpans | DropTokens | MaskedSeq2Seq)
    return isinstance(objective, DenoisingObjective | ModeSwitching)


@dataclass(frozen=True)
class ModeSwitching:
    """A source that begins with a token which says how it was made, before all others.

    Tay et al. 2022, arXiv:2205.05131, section 3.1.3, mode switching: regular (R), sequential (S)
    and extreme (X) denoising; their tokens are `SpecialTokenIds.modes`.
    """

    objective: Objective | DenoisingObjective
    mode: Literal["R", "S", "X"] = "R"

    def __post_init__(self) -> None:
        if not is_seq2seq(self.objective):
            raise ValueError(
                f"a mode token is read by an encoder: objective must be {SEQ2SEQ_OBJECTIVES}, got "
                "one without a source"
            )

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.loss_terms

    @property
    def needs_second_text(self) -> bool:
        """False: an example has one text."""
        return False

    @property
    def causal(self) -> bool:
        """True: the decoder is causal."""
        return True

    @property
    def n_variants(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count a token more than the objective does, on either side."""
        return self.objective.max_example_length(text_lengths, special_ids) + 1

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have beside the mode."""
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide, and put the mode before the source.

        Raises:
            ValueError: the vocabulary has no tokens for modes.
        """
        number = ("R", "S", "X").index(self.mode)
        if len(special_ids.modes) <= number:
            raise ValueError(
                f"mode {self.mode} needs a token of its own, and this vocabulary has none; let the "
                "preset that needs it learn one (without --tokenizer, or by "
                "`unmask prepare --model`)"
            )
        example = self.objective(text, special_ids, rng)
        assert example.source is not None
        mode = special_ids.modes[number : number + 1]
        return replace(example, source=np.concatenate((mode, example.source)))
