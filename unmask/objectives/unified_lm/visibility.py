"""Texts of which each token sees a part: read one way, or a source and its target (UniLM)."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Int

from unmask.batch import Example, Tokens
from unmask.objectives.corrupt import MaskInPlace, concatenate
from unmask.objectives.objective import Objective, max_fitting_text_length
from unmask.objectives.text_units import draw_split_point
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True)
class _PartialVisibilityObjective:
    """A text hidden in place, of which each token sees a part."""

    objective: Objective

    def __post_init__(self) -> None:
        if not isinstance(self.objective.corrupt, MaskInPlace):
            raise ValueError(
                "a text that is seen in part can only be masked in place: objective.corrupt must "
                f"be MaskInPlace, got {type(self.objective.corrupt).__name__}"
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
    def n_variants(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have: `max_length` without the special ones."""
        return self.objective.max_text_length(max_length, special_ids)


@dataclass(frozen=True)
class UnidirectionalLM(_PartialVisibilityObjective):
    """Masked tokens with causal attention: a token attends to itself and those before it.

    Or, backward, to itself and those after it (Dong et al. 2019, arXiv:1905.03197, section 2.3,
    "Unidirectional LM"). Masked tokens are predicted at their own position.
    """

    direction: Literal["forward", "backward"] = "forward"
    segment_id: int = 0
    """Of all tokens."""

    @property
    def causal(self) -> bool:
        """Read forward, it is."""
        return self.direction == "forward"

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count as the objective does."""
        return self.objective.max_example_length(text_lengths, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide, and say who sees whom."""
        example = self.objective(text, special_ids, rng)
        place = np.arange(len(example.inputs))
        rank = place if self.direction == "forward" else place[::-1].copy()
        return replace(example, rank=rank, segments=np.full(len(place), self.segment_id))


@dataclass(frozen=True)
class Seq2SeqLM(_PartialVisibilityObjective):
    """Two masked parts of a text: a bidirectional source, and a causal target.

    Dong et al. 2019, arXiv:1905.03197, section 2.3, "Sequence-to-Sequence LM": before + source +
    between + target + after; tokens of the source attend to the source only, those of the target
    also to themselves and the target before them. Both parts have masked tokens.

    Deviates: the paper does not say where a text is split; here, at a random sentence boundary, or
    if it is one sentence, anywhere in its middle half.
    """

    segment_ids: tuple[int, int] = (0, 1)
    """Of source and target."""

    @property
    def causal(self) -> bool:
        """The source is not."""
        return False

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the text, and the special ones."""
        return (
            np.asarray(text_lengths)
            + len(special_ids.prefix)
            + len(special_ids.separator)
            + len(special_ids.suffix)
        )

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have: `max_length` without the special ones."""
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Cut a text in two, hide, and say who sees whom; a text of one token is a source alone."""
        cut = draw_split_point(text, 1, rng) if len(text) > 1 else len(text)
        between = special_ids.separator if cut < len(text) else ()
        framed = concatenate(
            special_ids.prefix, text[:cut], between, text[cut:], special_ids.suffix
        )
        example = self.objective.corrupt_framed(framed, special_ids, rng)
        first = len(special_ids.prefix) + cut + len(between) if between else len(framed)
        rank = (np.arange(len(framed)) - first + 1).clip(min=0)
        return replace(example, rank=rank, segments=np.array(self.segment_ids)[(rank > 0) * 1])
