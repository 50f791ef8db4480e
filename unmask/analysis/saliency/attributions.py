"""Attributions of a decision to words: gradients, removal, attention, and chance beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unmask.analysis.attention.record import attention_maps
from unmask.analysis.saliency.decisions import EmbeddedDecision
from unmask.heads.model import Model

Method = Literal[
    "integrated_gradients", "gradient_x_input", "occlusion", "attention_rollout", "random"
]
"""Methods of attribution; the last is the control of the others."""


@dataclass(frozen=True)
class IntegratedGradients:
    """Attributions that add up to the difference of the score from the baseline's."""

    words: Float[np.ndarray, "w"]
    difference: float
    """F(x) - F(x')."""

    @property
    def gap(self) -> float:
        """How far the attributions are from adding up: what the integral's sum leaves out."""
        return abs(float(self.words.sum()) - self.difference)


def integrated_gradients(embedded: EmbeddedDecision, steps: int) -> IntegratedGradients:
    """Attribute the log-odds of a decision to words by integrated gradients.

    (x - x') ∫ ∂F(x' + a (x - x'))/∂x da, summed over the tokens of a word and the components of
    their embeddings (Sundararajan et al. 2017, arXiv:1703.01365, equation 1). The paper's sum of
    equal steps is a Gauss-Legendre quadrature here, which is closer for as many gradients.
    Attributions add up to F(x) - F(x') (completeness, proposition 1) but for its error.

    Args:
        embedded: the decision.
        steps: gradients that are computed.
    """
    points, weights = np.polynomial.legendre.leggauss(steps)
    at = torch.from_numpy((points + 1) / 2).to(embedded.embeddings[0])  # from [-1, 1] to [0, 1]
    share = torch.from_numpy(weights / 2).to(at)
    moves = [x - b for x, b in zip(embedded.embeddings, embedded.baseline, strict=True)]
    sums = [torch.zeros_like(move[0]) for move in moves]
    for some, their_share in zip(
        at.split(embedded.max_rows), share.split(embedded.max_rows), strict=True
    ):
        between = [
            b + some[:, None, None] * move for b, move in zip(embedded.baseline, moves, strict=True)
        ]
        for total, gradient in zip(sums, _gradients(embedded, between), strict=True):
            total += torch.einsum("k,ktd->td", their_share, gradient)
    by_column = [(total * move[0]).sum(-1) for total, move in zip(sums, moves, strict=True)]
    baseline = embedded.score_kept(torch.zeros(1, embedded.n_words, dtype=torch.bool))
    return IntegratedGradients(
        embedded.sum_by_word(by_column), embedded.log_odds - float(baseline.log_odds)
    )


def gradient_x_input(embedded: EmbeddedDecision) -> Float[np.ndarray, "w"]:
    """Attribute the log-odds to words by x ∂F(x)/∂x, summed over tokens and components.

    Shrikumar et al. 2016, arXiv:1605.01713.
    """
    gradients = _gradients(embedded, embedded.embeddings)
    return embedded.sum_by_word(
        [(g * x).sum((0, -1)) for g, x in zip(gradients, embedded.embeddings, strict=True)]
    )


def occlusion(embedded: EmbeddedDecision) -> Float[np.ndarray, "w"]:
    """Attribute to each word by how much the log-odds fall where it alone is removed.

    Zeiler and Fergus 2014, arXiv:1311.2901, section 4.2, for words; Li et al. 2016,
    arXiv:1612.08220.
    """
    without = embedded.score_kept(~torch.eye(embedded.n_words, dtype=torch.bool))
    return embedded.log_odds - without.log_odds.double().numpy()


def attention_rollout(embedded: EmbeddedDecision) -> Float[np.ndarray, "w"]:
    """Attribute to words the share of the output's hidden states that attention brings from them.

    Abnar and Zuidema 2020, arXiv:2005.00928, section 3: the product over layers of 0.5 W + 0.5 I,
    with the mean W over heads; rows of the tokens that the output reads are averaged, columns of
    the tokens of a word are added.

    Raises:
        ValueError: attention cannot be recorded; see `attention_maps`.
    """
    model, decision = embedded.model, embedded.decision
    batch = decision.make_batch(1).to(model.device)
    (maps,) = attention_maps(model, batch)
    n = len(decision.pieces.token_ids)
    rolled = roll_out([one[0, :, -n:, -n:] for one in maps.self_attention])
    return embedded.sum_by_word([rolled[torch.from_numpy(decision.pooled)].mean(0)])


def roll_out(maps: Sequence[Float[Tensor, "h t t"]]) -> Float[Tensor, "t t"]:
    """Return the product of 0.5 W + 0.5 I over layers, the last one at the left."""
    mixed = [one.float().mean(0).cpu() for one in maps]
    eye = torch.eye(len(mixed[0]))
    rolled = eye
    for one in mixed:
        rolled = (0.5 * one + 0.5 * eye) @ rolled
    return rolled


def random_attribution(n_words: int, rng: np.random.Generator) -> Float[np.ndarray, "w"]:
    """Attribute to words by chance: the control of all methods."""
    return rng.random(n_words)


def unsupported_rollout(model: Model) -> str | None:
    """Return why attention rollout is not of a model; None: it is."""
    if len(model.backbone.stacks) > 1:
        return "attention rollout is of one stack, and this model has several"
    return model.backbone.unsupported_reason("layer_records")


def _gradients(
    embedded: EmbeddedDecision, embeddings: Sequence[Float[Tensor, "k t d"]]
) -> tuple[Float[Tensor, "k t d"], ...]:
    """Return the gradient of the log-odds of each row at its embeddings."""
    training = embedded.model.training
    embedded.model.eval()
    try:
        with torch.enable_grad():
            leaves = [x.detach().clone().requires_grad_() for x in embeddings]
            total = embedded.score(leaves).log_odds.sum()
            return torch.autograd.grad(total, leaves)
    finally:
        embedded.model.train(training)
