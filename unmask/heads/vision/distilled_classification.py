"""Classification by two special tokens, one of which learns from a teacher (DeiT)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.classification.label_losses import CrossEntropy, LabelLoss
from unmask.heads.prediction import Prediction
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding

DISTILLATION_TERM = "distillation"
"""Name of the logits and the loss of the distillation token, in training."""


@dataclass(frozen=True, kw_only=True)
class DistilledClassification(HeadSpec):
    """A linear classifier on the class token, and another one on the distillation token.

    Touvron et al. 2021, arXiv:2012.12877, section 4. The logits are the mean of both; in training
    each has its own loss, and the total is the mean of the two. With a teacher
    (`unmask.compression.distillation`) the second one learns what the teacher predicts. Deviates:
    without one, both learn the labels of the batch.
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

    @property
    def taught_term(self) -> str:
        """The logits of the distillation token."""
        return DISTILLATION_TERM

    def output_size(self, architecture: StackArchitecture) -> int:
        """Return the number of labels."""
        return self.n_labels

    def soft_target_loss(
        self, student: Tensor, teachers: Sequence[Tensor], batch: Batch, temperature: float
    ) -> Tensor:
        """Sum the divergence of the distillation token's logits from the teachers'."""
        return self.loss.soft_target_loss(student, teachers, batch, temperature)

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
        """Count the labels; in training, those of each token."""
        if batch.labels is None:
            return {}
        terms = (self.spec.term, DISTILLATION_TERM) if self.training else (self.spec.term,)
        return dict.fromkeys(terms, self.spec.loss.count_targets(batch))

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the loss of each picture; in training, one by each token, which count half."""
        both = self.out(hidden[:, 0]).float(), self.distillation(hidden[:, 1]).float()
        logits = {self.spec.term: (both[0] + both[1]) / 2}
        if self.training:
            logits[DISTILLATION_TERM] = both[1]
        returned_logits = logits if return_logits else {}
        if batch.labels is None:
            return Prediction(returned_logits)
        term = self.spec.loss.term(logits[self.spec.term], batch, training=self.training)
        if not self.training:
            return Prediction(returned_logits, {self.spec.term: term})
        own, taught = (self.spec.loss.term(x, batch, training=True) for x in both)
        terms = {
            self.spec.term: replace(own, n_correct=term.n_correct, weight=0.5),
            DISTILLATION_TERM: replace(taught, n_correct=None, weight=0.5),
        }
        return Prediction(returned_logits, terms)
