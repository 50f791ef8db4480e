"""One of several objectives for each text; and texts hidden once, in a few ways."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from unmask.batch import Example, Tokens
from unmask.objectives.denoising.denoise import (
    SEQ2SEQ_OBJECTIVES,
    DenoisingObjective,
    ModeSwitching,
    is_seq2seq,
)
from unmask.objectives.objective import Objective
from unmask.objectives.sentence_pairs.pairs import (
    CropContrastiveObjective,
    SentencePairObjective,
    SplitTextObjective,
)
from unmask.objectives.sentence_pairs.translation import TranslationLM
from unmask.objectives.unified_lm.visibility import Seq2SeqLM, UnidirectionalLM
from unmask.tokenizers.spec import SpecialTokenIds

MixtureComponent = (
    Objective
    | SentencePairObjective
    | UnidirectionalLM
    | Seq2SeqLM
    | DenoisingObjective
    | ModeSwitching
)
"""The kinds of objective that a mixture can hold."""


@dataclass(frozen=True)
class ObjectiveMixture:
    """One of several objectives for each text, sampled by weight (UniLM, GPT-BERT, UL2)."""

    components: tuple[tuple[float, MixtureComponent], ...]
    component_names: tuple[str, ...] = ()
    """Names of the objectives, under which held-out results are reported separately. None: they are
    not."""

    def __post_init__(self) -> None:
        if self.component_names and len(set(self.component_names)) != len(self.components):
            raise ValueError(
                f"component_names must be one for each of the {len(self.components)} components, "
                f"all different, got {list(self.component_names)}"
            )
        weights = [weight for weight, _ in self.components]
        if not weights or not all(0 < w < np.inf for w in weights):
            raise ValueError(
                f"a mixture needs components whose weights are above 0, got weights {weights}"
            )
        two = [is_seq2seq(part) for _, part in self.components]
        if any(two) and not all(two):
            raise ValueError(
                "a mixture cannot have components for an encoder-decoder "
                f"({SEQ2SEQ_OBJECTIVES}) and components without"
            )

    @property
    def components_by_name(self) -> Mapping[str, MixtureComponent]:
        """The parts by name, where they have any."""
        return dict(zip(self.component_names, (part for _, part in self.components), strict=False))

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """The loss terms of all objectives."""
        return tuple(dict.fromkeys(name for _, part in self.components for name in part.loss_terms))

    @property
    def needs_second_text(self) -> bool:
        """Whether an objective needs a second text."""
        return any(part.needs_second_text for _, part in self.components)

    @property
    def causal(self) -> bool:
        """Every part is causal."""
        return all(part.causal for _, part in self.components)

    @property
    def n_variants(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of whichever part makes the most of them."""
        return np.max(
            [part.max_example_length(text_lengths, special_ids) for _, part in self.components],
            axis=0,
        )

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have for every part."""
        return min(part.max_text_length(max_length, special_ids) for _, part in self.components)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Sample a part and let it hide the text."""
        return self.components[self.draw_component(rng)][1](text, special_ids, rng)

    def draw_component(self, rng: np.random.Generator) -> int:
        """Sample the index of a part; the generator's first number decides."""
        sums = np.cumsum([weight for weight, _ in self.components])
        drawn = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
        return min(drawn, len(self.components) - 1)


@dataclass(frozen=True)
class StaticMasking:
    """Static masking: a text has `n_variants` corruptions, which epochs cycle through.

    Liu et al. 2019, section 4.1. The paper duplicates the text ten times and masks it once. Here
    nothing is stored: the loader seeds the generator with epoch % n_variants instead of the epoch.
    """

    objective: (
        Objective
        | SentencePairObjective
        | SplitTextObjective
        | CropContrastiveObjective
        | TranslationLM
        | UnidirectionalLM
        | Seq2SeqLM
        | DenoisingObjective
        | ModeSwitching
        | ObjectiveMixture
    )
    n_variants: int = 10

    def __post_init__(self) -> None:
        if self.n_variants < 1:
            raise ValueError(f"n_variants must be at least 1, got {self.n_variants}")

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.loss_terms

    @property
    def needs_second_text(self) -> bool:
        """As the objective."""
        return self.objective.needs_second_text

    @property
    def causal(self) -> bool:
        """As the objective."""
        return self.objective.causal

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count as the objective does."""
        return self.objective.max_example_length(text_lengths, special_ids)

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count as the objective does."""
        return self.objective.max_text_length(max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide as the objective does."""
        return self.objective(text, special_ids, rng)
