"""Activation regularization (AR) and temporal activation regularization (TAR)."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch, Example
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.objectives.described import DescribedLoss


@dataclass(frozen=True, kw_only=True)
class ActivationRegularization(HeadSpec):
    """L2 penalties on hidden states (AR) and on their differences from token to token (TAR).

    Merity et al. 2018, arXiv:1708.02182, section 4.6.
    Deviates: both use states after dropout, where TAR in the paper uses states before it. Dropout
    scales up the remaining numbers; `temporal_weight` is reduced by the factor by which this
    increases the squares.
    """

    term: str = "steady"
    required_term: str = "next_token"
    activation_weight: float = 2.0
    """Weight of the mean square of hidden states."""
    temporal_weight: float = 1.0
    """Weight of the mean square of differences between adjacent hidden states."""

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """No prediction: hidden states are to be small, and to change slowly."""
        loss = "squares of hidden states, and of their changes from token to token"
        return (DescribedLoss(term=self.term, n=None, loss=loss),)

    @property
    def is_kept_after_pretraining(self) -> bool:
        """False: it has no weights."""
        return False

    @property
    def objective_term(self) -> str:
        """The term of the objective with which this one is computed."""
        return self.required_term

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "ActivationRegularizationHead":
        """Build the head of an architecture."""
        return ActivationRegularizationHead(self, architecture)


class ActivationRegularizationHead(nn.Module):
    """Two mean squares; there are no weights."""

    def __init__(self, spec: ActivationRegularization, a: StackArchitecture) -> None:
        super().__init__()
        self.spec = spec
        self.temporal_weight = spec.temporal_weight * (1 - a.final_dropout)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the tokens; outside of training there is no term."""
        return {self.spec.term: batch.inputs.numel()} if self.training else {}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the regularizers of a batch."""
        if not self.training:
            return Prediction()
        x = hidden.float()
        n, total = batch.inputs.numel(), self.spec.activation_weight * x.square().mean()
        if x.shape[1] > 1:
            total = total + self.temporal_weight * (x[:, 1:] - x[:, :-1]).square().mean()
        return Prediction(terms={self.spec.term: Term(total * n, n)})
