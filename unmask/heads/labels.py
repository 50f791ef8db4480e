"""Hidden states -> scores of labels: of a whole text, or of each token; with their losses."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import IGNORE, Batch
from unmask.heads.prediction import Prediction, Term
from unmask.model.architecture import Architecture
from unmask.model.parts import Dropout


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The head that labels a whole text: its next sentence, its class, its score."""

    term: str = "label"
    n_labels: int = 2
    """1: a number, learned by squared error."""
    pool: Literal["first", "last", "mean"] = "first"
    """The token whose hidden state stands for the text: BERT's [CLS], GPT's last; or their mean."""
    dense: bool = True
    """A linear map and a tanh before the scores: BERT's pooler."""
    bias: bool = True
    dropout: float = 0.1

    def build(self, architecture: Architecture, table: nn.Embedding) -> "LabelsHead":
        """Build the head of a stack."""
        return LabelsHead(self, architecture)


class LabelsHead(nn.Module):
    """Scores of a text's labels, and their cross-entropy (or squared error, for one label)."""

    def __init__(self, spec: Labels, a: Architecture) -> None:
        super().__init__()
        self.spec = spec
        self.dense = nn.Linear(a.d_model, a.d_model) if spec.dense else None
        self.dropout = Dropout(spec.dropout)
        self.out = nn.Linear(a.d_model, spec.n_labels, bias=spec.bias)

    def scores(self, hidden: Float[Tensor, "b t d"], batch: Batch) -> Float[Tensor, "b labels"]:
        """Score the labels of each text."""
        x = pool(hidden, batch, self.spec.pool)
        if self.dense is not None:
            x = torch.tanh(self.dense(x))
        return self.out(self.dropout(x))

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the texts that are asked: those whose label is not IGNORE."""
        return {} if batch.labels is None else {self.spec.term: _asked(batch.labels)}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Ask for the label of each text."""
        said = self.scores(hidden, batch).float()
        kept = {self.spec.term: said} if scores else {}
        if batch.labels is None:
            return Prediction(kept)
        n = _asked(batch.labels)
        if self.spec.n_labels == 1:
            total = F.mse_loss(said[:, 0], batch.labels.float(), reduction="sum")
            return Prediction(kept, {self.spec.term: Term(total, n)})
        total = F.cross_entropy(said, batch.labels, reduction="sum", ignore_index=IGNORE)
        right = (said.argmax(-1) == batch.labels).sum()
        return Prediction(kept, {self.spec.term: Term(total, n, right)})


@dataclass(frozen=True, kw_only=True)
class TokenLabels:
    """The head that labels each token: parts of speech, names."""

    term: str = "token_label"
    n_labels: int = 2
    dropout: float = 0.1

    def build(self, architecture: Architecture, table: nn.Embedding) -> "TokenLabelsHead":
        """Build the head of a stack."""
        return TokenLabelsHead(self, architecture)


class TokenLabelsHead(nn.Module):
    """Scores of each token's labels, and their cross-entropy where a label is given.

    Devlin et al. 2019, section 4.3.
    """

    def __init__(self, spec: TokenLabels, a: Architecture) -> None:
        super().__init__()
        self.spec = spec
        self.dropout = Dropout(spec.dropout)
        self.out = nn.Linear(a.d_model, spec.n_labels)

    def scores(self, hidden: Float[Tensor, "b t d"], batch: Batch) -> Float[Tensor, "b t labels"]:
        """Score the labels of each token."""
        return self.out(self.dropout(hidden))

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the tokens that are asked: those whose label is not IGNORE."""
        return {} if batch.labels is None else {self.spec.term: _asked(batch.labels)}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Ask for the label of each token that has one."""
        said = self.scores(hidden, batch).float()
        kept = {self.spec.term: said} if scores else {}
        if batch.labels is None:
            return Prediction(kept)
        total = F.cross_entropy(said.mT, batch.labels, reduction="sum", ignore_index=IGNORE)
        right = (said.argmax(-1) == batch.labels).sum()
        return Prediction(kept, {self.spec.term: Term(total, _asked(batch.labels), right)})


def _asked(labels: Shaped[Tensor, "b ..."]) -> int:
    return int((labels != IGNORE).sum())


def pool(
    hidden: Float[Tensor, "b t d"], batch: Batch, how: Literal["first", "last", "mean"]
) -> Float[Tensor, "b d"]:
    """Let one vector stand for each text.

    Its first token's, its last token's, or the mean over all but padding.
    """
    if how == "first":
        return hidden[:, 0]
    if how == "last":
        if batch.last is None:
            return hidden[:, -1]
        return hidden[torch.arange(len(hidden), device=hidden.device), batch.last]
    if batch.last is None:
        return hidden.mean(1)
    real = torch.arange(hidden.shape[1], device=hidden.device)[None] <= batch.last[:, None]
    return (hidden * real[..., None]).sum(1) / real.sum(1, keepdim=True)
