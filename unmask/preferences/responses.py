"""Responses as a model scores them: the log-probability of each of their tokens."""

from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unmask.batch import Batch, ExampleRows, Feature
from unmask.heads.model import Model

MAX_LOGITS = 2**25
"""Logits that are kept for the gradient, 128 MiB; of more tokens they are computed again."""


@dataclass(frozen=True)
class RowFeature(Feature):
    """A number of each response, in every field; of a batch arrays [b]."""

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature | None:
        """Return the numbers of all rows; None: a row has none.

        Raises:
            ValueError: a row has several responses.
        """
        if rows.is_packed:
            raise ValueError("responses cannot be packed: each needs a row")
        own = [example.feature(cls) for example in rows.examples]
        if any(one is None for one in own):
            return None
        return cls(**{f.name: np.array([getattr(one, f.name) for one in own]) for f in fields(cls)})


@dataclass(frozen=True)
class ReferenceScore(RowFeature):
    """The log-probability of a response under the reference model, in nats."""

    log_probability: Any


@dataclass(frozen=True, kw_only=True)
class ScoredTokens:
    """The target tokens of a batch, row by row, as a model scores them."""

    log_probabilities: Float[Tensor, "n"]
    entropy: Float[Tensor, "n"]
    """Of the distribution of which each is drawn, in nats, without a gradient."""
    rows: Int[Tensor, "n"]
    """The row of each."""
    n_rows: int

    def sum_rows(self, values: Float[Tensor, "n"]) -> Float[Tensor, "b"]:
        """Sum values of tokens over each row."""
        return values.new_zeros(self.n_rows).index_add(0, self.rows, values)

    @property
    def row_log_probabilities(self) -> Float[Tensor, "b"]:
        """The log-probability of each row's targets together."""
        return self.sum_rows(self.log_probabilities)

    @property
    def lengths(self) -> Int[Tensor, "b"]:
        """Number of targets of each row."""
        return torch.bincount(self.rows, minlength=self.n_rows)


def target_positions(batch: Batch) -> Int[Tensor, "n"]:
    """Return where the targets of a batch are, in its flattened columns."""
    if batch.target_positions is not None:
        return batch.target_positions
    return torch.arange(batch.inputs.numel(), device=batch.inputs.device)


def count_target_tokens(batch: Batch) -> int:
    """Count the targets of a batch without reading a tensor."""
    found = batch.inputs if batch.target_positions is None else batch.target_positions
    return found.numel()


def score_tokens(
    model: Model, batch: Batch, hidden: Float[Tensor, "b t d"] | None = None
) -> ScoredTokens:
    """Score the targets of a batch, in float32.

    Args:
        model: a model with a language head.
        batch: responses after their prompts; only tokens of responses are targets.
        hidden: hidden states of the model, if they are known.

    Raises:
        ValueError: the batch has no targets.
    """
    if batch.targets is None:
        raise ValueError("the batch has no targets to score")
    if hidden is None:
        hidden = model.hidden_states(batch)
    at = target_positions(batch)
    flat, targets = hidden.flatten(0, 1)[at], batch.targets.flatten()[at]
    size = max(MAX_LOGITS // model.vocab_size, 1)
    parts = [
        _score_part(model, *part) if len(at) <= size else _score_recomputed(model, *part)
        for part in zip(flat.split(size), targets.split(size), strict=True)
    ]
    return ScoredTokens(
        log_probabilities=torch.cat([found for found, _ in parts]),
        entropy=torch.cat([entropy for _, entropy in parts]),
        rows=at // batch.inputs.shape[1],
        n_rows=len(batch.inputs),
    )


def _score_part(
    model: Model, hidden: Float[Tensor, "n d"], targets: Int[Tensor, "n"]
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Return log-probabilities of targets, and the entropy of the distributions."""
    every = model.language_head.logits(hidden).float().log_softmax(-1)
    with torch.no_grad():
        entropy = -(every.exp() * every).sum(-1)
    return every.gather(-1, targets[:, None])[:, 0], entropy


def _score_recomputed(
    model: Model, hidden: Float[Tensor, "n d"], targets: Int[Tensor, "n"]
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Return the same, with logits that are computed again for the gradient, not kept."""
    return cast("Any", checkpoint(_score_part, model, hidden, targets, use_reentrant=False))
