"""Extractive question answering: start and end of the answer among the tokens of a text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.classification.label_losses import kl_divergence
from unmask.heads.classification.sequence_classification import PredictionHeadTransform
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding

START, END = 1, 2
"""Bits of a token's label: the answer starts or ends here. 0: neither; IGNORE: neither is
allowed."""


@dataclass(frozen=True, kw_only=True)
class QuestionAnswering(HeadSpec):
    """The head that finds a span of a text: the answer to a question."""

    term: str = "span"
    transform: PredictionHeadTransform | None = None
    """A transform before the output layer (ModernBERT)."""

    @property
    def labels_tokens(self) -> bool:
        """True: it scores the start and end tokens of an answer."""
        return True

    def output_size(self, architecture: StackArchitecture) -> int:
        """Return 2: start and end."""
        return 2

    def soft_target_loss(
        self, student: Tensor, teachers: Sequence[Tensor], batch: Batch, temperature: float
    ) -> Tensor:
        """Sum the mean divergence of start and end over the texts whose answer is known."""
        assert batch.labels is not None
        forbidden = (batch.labels == IGNORE_INDEX)[..., None]
        lowest = torch.finfo(student.dtype).min
        q, *p = (
            (x.to(student.dtype) / temperature).masked_fill(forbidden, lowest).log_softmax(1)
            for x in (student, *teachers)
        )
        losses = kl_divergence(q, p).masked_fill(forbidden, 0.0).sum((1, 2)) / 2
        return temperature**2 * (losses * _answerable(batch.labels)).sum()

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "QuestionAnsweringHead":
        """Build the head of an architecture."""
        return QuestionAnsweringHead(self, architecture)


class QuestionAnsweringHead(nn.Module):
    """Logits of each token as the start and as the end, and the mean of their cross-entropies.

    Each is predicted by a softmax over the tokens of a text (Devlin et al. 2019, section 4.2).
    There is no dropout before the logits (released code). Tokens labelled IGNORE, where no answer
    may start or end, are excluded.
    """

    def __init__(self, spec: QuestionAnswering, a: StackArchitecture) -> None:
        super().__init__()
        self.spec = spec
        self.map = None if spec.transform is None else spec.transform.build(a)
        self.out = nn.Linear(a.d_model, 2)

    def logits(self, hidden: Float[Tensor, "b t d"], batch: Batch) -> Float[Tensor, "b t 2"]:
        """Score each token as the start and as the end."""
        return self.out(hidden if self.map is None else self.map(hidden))

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the texts whose answer is known."""
        return (
            {} if batch.labels is None else {self.spec.term: int(_answerable(batch.labels).sum())}
        )

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the loss of each text's answer span."""
        logits = self.logits(hidden, batch).float()
        returned_logits = {self.spec.term: logits} if return_logits else {}
        if batch.labels is None:
            return Prediction(returned_logits)
        labels = batch.labels
        is_answerable = _answerable(labels)
        # Not minus infinity, which gives NaN for a text without any allowed token.
        masked = logits.masked_fill(
            (labels == IGNORE_INDEX)[..., None], torch.finfo(logits.dtype).min
        )
        totals: list[Tensor] = []
        correct = is_answerable
        for i, bit in enumerate((START, END)):
            boundary = torch.where(
                is_answerable, _boundary_targets(labels, bit).int().argmax(1), IGNORE_INDEX
            )  # [b]
            totals.append(
                F.cross_entropy(
                    masked[..., i], boundary, reduction="sum", ignore_index=IGNORE_INDEX
                )
            )
            correct = correct & (masked[..., i].argmax(1) == boundary)
        term = Term((totals[0] + totals[1]) / 2, int(is_answerable.sum()), correct.sum())
        return Prediction(returned_logits, {self.spec.term: term})


def _boundary_targets(labels: Int[Tensor, "b t"], bit: int) -> Bool[Tensor, "b t"]:
    return (labels >= 0) & (labels & bit != 0)


def _answerable(labels: Int[Tensor, "b t"]) -> Bool[Tensor, "b"]:
    return _boundary_targets(labels, START).any(1)
