"""What an encoder would read and a decoder say, one after the other in a single stack."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, Example, Tokens
from unmask.objectives.corrupt import (
    AutoregressiveMasking,
    CausalLM,
    DiffusionMasking,
    MaskedNextToken,
    MaskInPlace,
    PermutationLM,
)
from unmask.objectives.denoising.denoise import (
    SEQ2SEQ_OBJECTIVES,
    DenoisingObjective,
    ModeSwitching,
    is_seq2seq,
)
from unmask.objectives.denoising.replace_spans import DropTokens
from unmask.objectives.features import ShiftedTargets
from unmask.objectives.mixtures import ObjectiveMixture
from unmask.objectives.objective import Objective, max_fitting_text_length
from unmask.tokenizers.spec import SpecialTokenIds


def to_single_stack(example: Example, *, bidirectional_source: bool) -> Example:
    """Concatenate source and target in one sequence, with a loss on the target only.

    Raffel et al. 2020, arXiv:1910.10683, section 3.2.1: inputs and targets are concatenated. The
    last token of the source predicts the first of the target; there is no separator.

    Args:
        example: an example with a source, and with a start token and the target as inputs.
        bidirectional_source: whether the source is bidirectional (a prefix language model), not
            causal.

    Raises:
        ValueError: there is no source.
    """
    if example.source is None:
        raise ValueError("only an objective that gives an encoder a source can be in one stack")
    n = len(example.source)
    inputs = np.concatenate((example.source, example.inputs[1:]))
    rank = np.arange(len(inputs))
    return Example(
        inputs=inputs,
        targets=np.concatenate((np.full(n - 1, IGNORE_INDEX), example.targets)),
        rank=(rank - n + 1).clip(min=0) if bidirectional_source else rank,
        features=(ShiftedTargets(),),
    )


@dataclass(frozen=True)
class SingleStackSeq2Seq:
    """A denoising objective for a single stack, which continues the source with the target.

    Raffel et al. 2020, arXiv:1910.10683, section 3.2.1: a language model, or with
    `bidirectional_source` a prefix language model, under a denoising objective; see `joined`.
    """

    objective: Objective | DenoisingObjective | ModeSwitching | ObjectiveMixture
    bidirectional_source: bool = False
    """The source is seen as a whole."""

    def __post_init__(self) -> None:
        of_one = (
            MaskInPlace | DiffusionMasking | MaskedNextToken | AutoregressiveMasking
            | PermutationLM | CausalLM
        )  # fmt: skip
        if isinstance(self.objective, ObjectiveMixture) and not is_seq2seq(
            self.objective.components[0][1]
        ):
            raise ValueError(
                "only what is read in two stacks can be in one: the components of objective must "
                f"be {SEQ2SEQ_OBJECTIVES}, got {type(self.objective.components[0][1]).__name__}"
            )
        if isinstance(self.objective, Objective) and isinstance(self.objective.corrupt, of_one):
            raise ValueError(
                "only what is read in two stacks can be in one: objective.corrupt must be "
                f"ReplaceSpans, got {type(self.objective.corrupt).__name__}"
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
        """Unless the source is seen as a whole."""
        return not self.bidirectional_source

    @property
    def n_variants(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of both sides, at most: twice the longer one, or what spans take.

        Where hidden tokens are gone, each token is on one side.
        """
        text_lengths = np.asarray(text_lengths)
        longer = self.objective.max_example_length(text_lengths, special_ids)
        if not isinstance(self.objective, Objective):
            return 2 * longer
        if isinstance(self.objective.corrupt, DropTokens):
            return longer + len(special_ids.suffix)
        folded = self.objective.select.folded_lengths(text_lengths)
        short = len(special_ids.suffix) + np.where(
            text_lengths >= self.objective.select.min_tokens, folded.target_length, 0
        )
        return longer + np.minimum(short, longer)

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have: both sides share the length."""
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide as the objective does, and lay both sides in one text.

        Raises:
            ValueError: the objective makes no source.
        """
        return to_single_stack(
            self.objective(text, special_ids, rng), bidirectional_source=self.bidirectional_source
        )
