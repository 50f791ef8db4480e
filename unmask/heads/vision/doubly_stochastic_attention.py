"""Doubly stochastic attention: a caption as a whole looks at every part of its picture."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.objectives.described import DescribedLoss


@dataclass(frozen=True, kw_only=True)
class DoublyStochasticAttention(HeadSpec):
    """The penalty lambda sum_i (1 - sum_t alpha_ti)^2 on the attention of each caption.

    Xu et al. 2015, arXiv:1502.03044, equation 14. As the captions' log-likelihood it is summed over
    captions and divided by the number of their tokens.
    """

    term: str = "attention"
    required_term: str = "next_token"
    weight: float = 1.0
    """lambda (released code: 1)."""

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """No prediction: all patches are to be attended to alike over a caption."""
        loss = "squared differences from 1 of each patch's attention, over the caption"
        return (DescribedLoss(term=self.term, n=None, loss=loss),)

    @property
    def is_kept_after_pretraining(self) -> bool:
        """False: it has no weights."""
        return False

    @property
    def objective_term(self) -> str:
        """The term of the objective with which this one is computed."""
        return self.required_term

    @property
    def uses_all_layers(self) -> bool:
        """True: the attention to each patch comes before the network's output."""
        return True

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "DoublyStochasticAttentionHead":
        """Build the head of an architecture.

        Raises:
            ValueError: the network has no such attention.
        """
        if not architecture.returns_attention:
            raise ValueError("DoublyStochasticAttention is for an LSTM that attends to patches")
        return DoublyStochasticAttentionHead(self, architecture.d_model)


class DoublyStochasticAttentionHead(nn.Module):
    """The penalty on attention; there are no weights."""

    def __init__(self, spec: DoublyStochasticAttention, d_model: int) -> None:
        super().__init__()
        self.spec, self.d_model = spec, d_model

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the tokens that are predicted; outside of training there is no term."""
        if batch.targets is None or not self.training:
            return {}
        at = batch.target_positions
        return {self.spec.term: batch.targets.numel() if at is None else at.numel()}

    def forward(
        self, hidden: Float[Tensor, "b t _"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the penalty of the captions of a batch."""
        counts = self.count_targets(batch)
        if batch.targets is None or not counts:
            return Prediction()
        is_target = (batch.targets != IGNORE_INDEX)[..., None]
        weights = hidden[..., : -self.d_model].float() * is_target
        penalty = (1 - weights.sum(1)).square().sum()
        term = Term(self.spec.weight * penalty, counts[self.spec.term])
        return Prediction(terms={self.spec.term: term})
