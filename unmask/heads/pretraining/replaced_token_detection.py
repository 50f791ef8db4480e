"""Replaced token detection: predict for each token whether it was replaced (ELECTRA)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch, Example
from unmask.heads.prediction import Prediction, Term
from unmask.heads.pretraining.generator_inputs import GeneratorInputs
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.model.layers.feed_forward import ACTIVATIONS, Activation
from unmask.objectives.described import DescribedInputs, DescribedLoss, original_tokens


@dataclass(frozen=True, kw_only=True)
class ReplacedTokenDetection(HeadSpec):
    """Binary classification of each token except padding: was it replaced by another?

    Clark et al. 2020, arXiv:2003.10555, section 2, equation of the discriminator's loss. Tokens
    are replaced by a `Generator`.
    """

    required_term: ClassVar[str] = "masked"
    """The term that an objective must have for this one to be computed, too."""
    term: str = "replaced"
    activation: Activation = "gelu"
    weight: float = 50.0
    """Weight of the loss (section 3.2 and appendix A: 50, since a binary loss is much smaller than
    a language model's)."""

    @property
    def objective_term(self) -> str:
        """The term that an objective must have for this one to be computed, too."""
        return self.required_term

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """All tokens, special ones too: was each replaced?"""
        return (
            DescribedLoss(
                term=self.term,
                n=len(example.inputs),
                loss="binary cross-entropy: was the token replaced?",
                weight=self.weight,
            ),
        )

    def describe_inputs(
        self, example: Example, drawn: Int[np.ndarray, "t"], source: str
    ) -> tuple[DescribedInputs, ...]:
        """Return what the model reads; a token that was drawn as it was counts as original."""
        replaced = drawn != original_tokens(example)
        return (
            DescribedInputs(
                title=f"inputs of the discriminator, tokens at targets {source}",
                ids=drawn,
                answers=["replaced" if x else "original" for x in replaced.tolist()],
                replaced=replaced,
            ),
        )

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "ReplacedTokenDetectionHead":
        """Build the head of an architecture."""
        return ReplacedTokenDetectionHead(self, architecture)


class ReplacedTokenDetectionHead(nn.Module):
    """A logit per token; above 0, the token is predicted to be replaced."""

    def __init__(self, spec: ReplacedTokenDetection, a: StackArchitecture) -> None:
        super().__init__()
        self.spec = spec
        self.dense = nn.Linear(a.d_model, a.d_model)
        self.out = nn.Linear(a.d_model, 1)

    def logits(self, hidden: Float[Tensor, "b t d"], batch: Batch) -> Float[Tensor, "b t"]:
        """Compute the logit of each token."""
        return self.out(ACTIVATIONS[self.spec.activation](self.dense(hidden)))[..., 0]

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the targets: all tokens but padding, in batches with masked tokens."""
        return {} if batch.targets is None else {self.spec.term: int(batch.is_token().sum())}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the loss of all tokens."""
        logits = self.logits(hidden, batch).float()
        returned_logits = {self.spec.term: logits} if return_logits else {}
        if (generated := batch.feature(GeneratorInputs)) is None:
            return Prediction(returned_logits)
        is_token, replaced = batch.is_token(), batch.inputs != generated.original_ids
        losses = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
        correct = ((logits > 0) == replaced) & is_token
        term = Term((losses * is_token).sum(), int(is_token.sum()), correct.sum(), self.spec.weight)
        return Prediction(returned_logits, {self.spec.term: term})
