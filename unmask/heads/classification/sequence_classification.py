"""Classification of whole texts, and of each token, with the losses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.heads.classification.label_losses import CrossEntropy, LabelLoss
from unmask.heads.prediction import Prediction
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.model.layers.feed_forward import ACTIVATIONS, Activation, Dropout
from unmask.objectives.described import DescribedLoss

TokenPooling = Literal["first", "last", "ends", "mean", "max", "concat", "summary"]
"""Pooling of the hidden states of a text to one vector; see `SequenceClassification`."""
Pooling = TokenPooling | Literal["attention", "compare", "both"]
"""The same, or a pooling with learned weights, of two texts, or of two orders of texts."""
PAIR_POOLINGS = ("compare", "both")
"""Poolings of two texts in a row that do not attend to each other."""
POOLING_WIDTH_FACTORS = {"concat": 3, "compare": 4}
ONE_TEXT_MESSAGE = "this head compares two texts, and one is read: give pairs to `predict`"

PooledLayers = Literal["last", "all"]
"""The layers whose hidden states a classification head uses."""


@dataclass(frozen=True, kw_only=True)
class SequenceClassification(HeadSpec):
    """The head that classifies a whole text, or scores it."""

    term: str = "label"
    n_labels: int = 2
    """Number of labels. 1: regression by squared error, or the logit of a choice."""
    loss: LabelLoss = CrossEntropy()
    """Loss: single-label, multi-label or multiple-choice."""
    pooling: Pooling = "first"
    """Pooling of a text's hidden states to one vector. "first" or "last": the state of one token,
    e.g. BERT's [CLS] or GPT's last; "mean" or "max": over all tokens. "ends": in a bidirectional
    recurrent network, the last output of each direction (Kiros et al. 2015, arXiv:1506.06726,
    section 3.1: bi-skip). "concat": the last token's, the maximum and the mean, concatenated
    (Howard and Ruder 2018, arXiv:1801.06146, section 3.3). "attention": a weighted mean, by a
    learned vector (Yang et al. 2016, doi:10.18653/v1/N16-1174, equations 5 to 7). "compare": in a
    row with two texts, each encoded by itself, the means u and v of both, as [u, v, |u - v|, u * v]
    (Conneau et al. 2017, arXiv:1705.02364, section 3.2). "both": in a row with two texts in both
    orders, each order encoded by itself, the sum of the last tokens' hidden states (Radford et al.
    2018, section 3.3, similarity). "summary": the network's own vector of a text (CANINE: the deep
    stack's first)."""
    pooled_layers: PooledLayers = "last"
    """The hidden states that are pooled. "all": those of every layer, and the input of the first,
    concatenated (Devlin et al. 2019, section 5.3, with some layers)."""
    dense_layer: bool = True
    """Whether a linear map and an activation come before the output layer: BERT's pooler."""
    activation: Activation = "tanh"
    norm: bool = False
    """Whether the architecture's norm follows the activation (ModernBERT)."""
    bias: bool = True
    dropout: float = 0.1

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """The label of the text, if it has one."""
        n = int(isinstance(example.label, int) and example.label != IGNORE_INDEX)
        return (DescribedLoss(term=self.term, n=n, loss="cross-entropy of the label of the text"),)

    @property
    def labels_texts(self) -> bool:
        """True: it scores labels of whole texts."""
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
    def uses_all_layers(self) -> bool:
        """Whether it pools the hidden states of all layers."""
        return self.pooled_layers == "all"

    @property
    def uses_summary(self) -> bool:
        """Whether it reads the network's own vector of the whole text."""
        return self.pooling == "summary"

    def with_dropout(self, rate: float) -> "SequenceClassification":
        """Return the head with another dropout."""
        return replace(self, dropout=rate)

    def output_size(self, architecture: StackArchitecture) -> int:
        """Return the number of labels."""
        return self.n_labels

    def soft_target_loss(
        self, student: Tensor, teachers: Sequence[Tensor], batch: Batch, temperature: float
    ) -> Tensor:
        """Sum the divergence from the teachers, as its loss defines it."""
        return self.loss.soft_target_loss(student, teachers, batch, temperature)

    def with_label_weights(self, weights: tuple[float, ...]) -> "SequenceClassification":
        """Return the head with weights of its labels in training, if it has as many labels."""
        if len(weights) != self.n_labels:
            return self
        return replace(self, loss=self.loss.with_label_weights(weights))

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "SequenceClassificationHead":
        """Build the head of an architecture.

        Raises:
            ValueError: the network does not support the pooling.
        """
        hashes = architecture.has_summary
        if self.pooling == "ends":
            check_bidirectional(architecture)
            if self.pooled_layers == "all":
                raise ValueError("pooling 'ends' needs pooled_layers 'last'")
        if self.pooling == "summary" and not hashes:
            raise ValueError(
                "pooling 'summary' needs a network with a vector of a whole text, as CANINE"
            )
        if hashes and (self.pooling in ("compare", "both") or self.pooled_layers == "all"):
            raise ValueError(
                "CANINE supports one text per row, and its layers have different positions: "
                "pooling 'compare' and 'both' and pooled_layers 'all' are not possible"
            )
        return SequenceClassificationHead(self, architecture)


class SequenceClassificationHead(nn.Module):
    """Logits of a text's labels, and their loss."""

    def __init__(self, spec: SequenceClassification, a: StackArchitecture) -> None:
        super().__init__()
        self.spec = spec
        width = a.d_model * POOLING_WIDTH_FACTORS.get(spec.pooling, 1)
        width *= a.n_layers + 1 if spec.pooled_layers == "all" else 1
        biased = "feed_forward" in a.biases
        self.dense = nn.Linear(width, a.d_model, bias=biased) if spec.dense_layer else None
        self.norm = a.norm.build(a.d_model) if spec.norm else nn.Identity()
        self.attend = AttentionPooling(width, a.d_model) if spec.pooling == "attention" else None
        self.dropout = Dropout(spec.dropout)
        self.out = nn.Linear(
            a.d_model if spec.dense_layer else width, spec.n_labels, bias=spec.bias
        )

    def logits(self, hidden: Float[Tensor, "b t _"], batch: Batch) -> Float[Tensor, "b labels"]:
        """Compute the logits of each text."""
        x = self._pooled(hidden, batch)
        if self.dense is not None:
            x = self.norm(ACTIVATIONS[self.spec.activation](self.dense(x)))
        return self.out(self.dropout(x))

    def _pooled(self, hidden: Float[Tensor, "b t _"], batch: Batch) -> Float[Tensor, "b _"]:
        how = self.spec.pooling
        if self.attend is not None:
            return self.attend(hidden, _is_token(hidden, batch))
        if how == "compare":
            return compare_pair(hidden, batch)
        return (
            sum_parts(hidden, batch)
            if how == "both"
            else pool_hidden_states(hidden, batch, cast(TokenPooling, how))
        )

    def pooled_column(self, batch: Batch) -> Int[Tensor, "b"] | None:
        """Return the column of each row that the head uses; None: all."""
        uses_one_column = self.spec.pooling in ("first", "last", "summary")
        if not uses_one_column or self.spec.pooled_layers == "all":
            return None
        if self.spec.pooling == "last" and batch.last_token_positions is not None:
            return batch.last_token_positions
        column = 0 if self.spec.pooling in ("first", "summary") else batch.inputs.shape[1] - 1
        return torch.full((len(batch.inputs),), column, device=batch.inputs.device)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the targets: texts, labels of texts, or groups of texts."""
        return {} if batch.labels is None else {self.spec.term: self.spec.loss.count_targets(batch)}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the loss of each text."""
        logits = self.logits(hidden, batch).float()
        returned_logits = {self.spec.term: logits} if return_logits else {}
        if batch.labels is None:
            return Prediction(returned_logits)
        term = self.spec.loss.term(logits, batch, training=self.training)
        return Prediction(returned_logits, {self.spec.term: term})


class AttentionPooling(nn.Module):
    """A mean of hidden states, weighted by their similarity to a learned vector."""

    def __init__(self, width: int, d: int) -> None:
        super().__init__()
        self.map, self.context = nn.Linear(width, d), nn.Linear(d, 1, bias=False)

    def forward(
        self, hidden: Float[Tensor, "b t _"], is_token: Bool[Tensor, "b t"]
    ) -> Float[Tensor, "b _"]:
        """Pool the hidden states of each text."""
        scores = self.context(torch.tanh(self.map(hidden)))[..., 0].float()
        weights = scores.masked_fill(~is_token, -torch.inf).softmax(-1)
        return (hidden * weights[..., None].to(hidden.dtype)).sum(1)


@dataclass(frozen=True)
class PredictionHeadTransform:
    """A linear map of each hidden state, an activation, and the architecture's norm.

    Warner et al. 2024, arXiv:2412.13663, released code: ModernBERT's prediction head.
    """

    activation: Activation = "gelu"

    def build(self, a: StackArchitecture) -> "PredictionHeadTransformModule":
        """Build the map of an architecture."""
        return PredictionHeadTransformModule(self, a)


class PredictionHeadTransformModule(nn.Module):
    """norm(activation(dense(x)))."""

    def __init__(self, spec: PredictionHeadTransform, a: StackArchitecture) -> None:
        super().__init__()
        self.spec = spec
        self.dense = nn.Linear(a.d_model, a.d_model, bias="feed_forward" in a.biases)
        self.norm = a.norm.build(a.d_model)

    def forward(self, hidden: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """Transform each hidden state."""
        return self.norm(ACTIVATIONS[self.spec.activation](self.dense(hidden)))


@dataclass(frozen=True, kw_only=True)
class TokenClassification(HeadSpec):
    """The head that classifies each token: parts of speech, named entities."""

    term: str = "token_label"
    n_labels: int = 2
    loss: CrossEntropy = CrossEntropy()
    transform: PredictionHeadTransform | None = None
    """A transform before the output layer (ModernBERT)."""
    dropout: float = 0.1

    @property
    def labels_tokens(self) -> bool:
        """True: it scores labels of tokens."""
        return True

    @property
    def label_loss(self) -> LabelLoss:
        """The loss of the labels."""
        return self.loss

    @property
    def has_label_names(self) -> bool:
        """True: its labels have names."""
        return True

    def output_size(self, architecture: StackArchitecture) -> int:
        """Return the number of labels."""
        return self.n_labels

    def soft_target_loss(
        self, student: Tensor, teachers: Sequence[Tensor], batch: Batch, temperature: float
    ) -> Tensor:
        """Sum the divergence from the teachers, as its loss defines it."""
        return self.loss.soft_target_loss(student, teachers, batch, temperature)

    def with_label_weights(self, weights: tuple[float, ...]) -> "TokenClassification":
        """Return the head with weights of its labels in training, if it has as many labels."""
        if len(weights) != self.n_labels:
            return self
        return replace(self, loss=self.loss.with_label_weights(weights))

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "TokenClassificationHead":
        """Build the head of an architecture."""
        return TokenClassificationHead(self, architecture)


class TokenClassificationHead(nn.Module):
    """Logits of each token's labels, and their cross-entropy where a label is given.

    Devlin et al. 2019, section 4.3.
    """

    def __init__(self, spec: TokenClassification, a: StackArchitecture) -> None:
        super().__init__()
        self.spec = spec
        self.map = None if spec.transform is None else spec.transform.build(a)
        self.dropout = Dropout(spec.dropout)
        self.out = nn.Linear(a.d_model, spec.n_labels)

    def logits(self, hidden: Float[Tensor, "b t d"], batch: Batch) -> Float[Tensor, "b t labels"]:
        """Compute the logits of each token."""
        hidden = hidden if self.map is None else self.map(hidden)
        return self.out(self.dropout(hidden))

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the tokens whose label is not IGNORE."""
        return {} if batch.labels is None else {self.spec.term: self.spec.loss.count_targets(batch)}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the loss of each token that has a label."""
        logits = self.logits(hidden, batch).float()
        returned_logits = {self.spec.term: logits} if return_logits else {}
        if batch.labels is None:
            return Prediction(returned_logits)
        term = self.spec.loss.term(logits, batch, training=self.training)
        return Prediction(returned_logits, {self.spec.term: term})


def check_bidirectional(architecture: StackArchitecture) -> None:
    """Check that a network has two directions, each with half of the hidden states.

    Raises:
        ValueError: it is not.
    """
    if not architecture.has_direction_ends:
        raise ValueError("pooling 'ends' needs a bidirectional recurrent network")


def pool_hidden_states(
    hidden: Float[Tensor, "b t d"],
    batch: Batch,
    pooling: TokenPooling,
) -> Float[Tensor, "b _"]:
    """Pool the hidden states of each text to one vector.

    It is the state of the first or the last token; half of each (the first half of the last state
    and the second half of the first, where the two directions end); the mean or the maximum without
    padding; three of these, concatenated; or the network's own vector.
    """
    if pooling in ("first", "summary"):
        return hidden[:, 0]
    if pooling == "last":
        if batch.last_token_positions is None:
            return hidden[:, -1]
        return hidden[
            torch.arange(hidden.shape[0], device=hidden.device), batch.last_token_positions
        ]
    if pooling == "ends":
        forward, backward = pool_hidden_states(hidden, batch, "last"), hidden[:, 0]
        return torch.cat((forward.chunk(2, -1)[0], backward.chunk(2, -1)[1]), -1)
    if pooling == "concat":
        return torch.cat(
            [pool_hidden_states(hidden, batch, part) for part in ("last", "max", "mean")], -1
        )
    real = _is_token(hidden, batch)
    if pooling == "max":
        return hidden.masked_fill(~real[..., None], -torch.inf).amax(1)
    return _masked_mean(hidden, real)


def compare_pair(hidden: Float[Tensor, "b t d"], batch: Batch) -> Float[Tensor, "b 4*d"]:
    """Concatenate the means u and v of each row's two texts with |u - v| and u * v.

    The mean over no tokens is 0 (GPT-2 has no token for an empty text).

    Raises:
        ValueError: no row has a second text.
    """
    parts = _part_masks(batch)
    u, v = (_masked_mean(hidden, parts == part) for part in (0, 1))
    return torch.cat((u, v, (u - v).abs(), u * v), -1)


def sum_parts(hidden: Float[Tensor, "b t d"], batch: Batch) -> Float[Tensor, "b d"]:
    """Add the hidden states of the last tokens of each row's two parts.

    Raises:
        ValueError: no row has a second part.
    """
    parts, row = _part_masks(batch), torch.arange(hidden.shape[0], device=hidden.device)
    first, second = ((parts == part).sum(1) for part in (0, 1))
    return hidden[row, first - 1] + hidden[row, first + second - 1]


def _part_masks(batch: Batch) -> Int[Tensor, "b t"]:
    if batch.part_ids is None:
        raise ValueError(ONE_TEXT_MESSAGE)
    return batch.part_ids


def _is_token(hidden: Float[Tensor, "b t d"], batch: Batch) -> Bool[Tensor, "b t"]:
    """Return a mask of the tokens that are not padding."""
    column = torch.arange(hidden.shape[1], device=hidden.device).expand(hidden.shape[:2])
    return (
        column >= 0
        if batch.last_token_positions is None
        else column <= batch.last_token_positions[:, None]
    )


def _masked_mean(hidden: Float[Tensor, "b t d"], of: Bool[Tensor, "b t"]) -> Float[Tensor, "b d"]:
    return (hidden * of[..., None]).sum(1) / of.sum(1, keepdim=True).clamp(min=1)
