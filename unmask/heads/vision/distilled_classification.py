"""Classification by two special tokens, one of which learns from a teacher (DeiT)."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.classification.label_losses import CrossEntropy, LabelLoss
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding


@dataclass(frozen=True, kw_only=True)
class DistilledClassification(HeadSpec):
    """A linear classifier on the class token, and another one on the distillation token.

    Touvron et al. 2021, arXiv:2012.12877, section 4. The logits are the mean of both; in training
    each has its own loss, and the total is the mean of the two. Deviates: there the second one
    learns the labels of a teacher, here both learn those of the batch.
    """

    term: str = "label"
    n_labels: int = 2
    loss: CrossEntropy = CrossEntropy()

    @property
    def labels_texts(self) -> bool:
        """True: it scores labels of whole pictures."""
        return True

    @property
    def label_loss(self) -> LabelLoss:
        """The loss of the labels."""
        return self.loss

    @property
    def has_label_names(self) -> bool:
        """True: its labels have names."""
        return True

    def with_n_labels(self, n: int) -> "DistilledClassification":
        """Return the head for another number of labels."""
        return replace(self, n_labels=n)

    def with_label_weights(self, weights: tuple[float, ...]) -> "DistilledClassification":
        """Return the head with weights of its labels in training, if it has as many labels."""
        if len(weights) != self.n_labels:
            return self
        return replace(self, loss=self.loss.with_label_weights(weights))

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "DistilledClassificationHead":
        """Build the head of a network with both tokens.

        Raises:
            ValueError: the network has no distillation token.
        """
        if not architecture.has_distillation_token:
            raise ValueError("DistilledClassification needs a distillation token, as DeiT has")
        return DistilledClassificationHead(self, architecture.d_model)


class DistilledClassificationHead(nn.Module):
    """Logits of a picture's labels by two tokens, and their losses."""

    def __init__(self, spec: DistilledClassification, d: int) -> None:
        super().__init__()
        self.spec = spec
        self.out = nn.Linear(d, spec.n_labels)
        self.distillation = nn.Linear(d, spec.n_labels)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the labels."""
        return {} if batch.labels is None else {self.spec.term: self.spec.loss.count_targets(batch)}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the mean of both losses of each picture."""
        both = self.out(hidden[:, 0]).float(), self.distillation(hidden[:, 1]).float()
        logits = (both[0] + both[1]) / 2
        returned_logits = {self.spec.term: logits} if return_logits else {}
        if batch.labels is None:
            return Prediction(returned_logits)
        if not self.training:
            term = self.spec.loss.term(logits, batch, training=False)
            return Prediction(returned_logits, {self.spec.term: term})
        terms = [self.spec.loss.term(x, batch, training=True) for x in both]
        right = self.spec.loss.term(logits, batch, training=True).n_correct
        total = torch.stack([term.total for term in terms]).mean()
        return Prediction(
            returned_logits,
            {self.spec.term: Term(total, terms[0].count, right, terms[0].weight)},
        )
