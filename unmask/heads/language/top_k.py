"""TopKDistribution: the most probable tokens of a distribution, and one bucket for all others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class TopKDistribution:
    """The k most probable tokens at each target, with their probabilities, and that of the rest.

    The rest is one bucket, whose probability is kept: p restricted to k tokens and renormalized
    overestimates them, and a student that learns it is too confident (Anshumann et al. 2025,
    arXiv:2503.16870, section 3). By the data-processing inequality the divergence of the k + 1
    probabilities is at most that of the whole distributions.
    """

    ids: Int[Tensor, "n k"]
    log_probabilities: Float[Tensor, "n k"]
    """In float16, so that what is stored is what was computed with."""
    log_rest: Float[Tensor, "n"]
    """Log-probability of all other tokens; -inf: there are none."""

    @classmethod
    def of(
        cls, logits: Sequence[Float[Tensor, "n v"]], k: int, temperature: float
    ) -> "TopKDistribution":
        """Return the mean of the softmaxes of some logits at a temperature, of at most k tokens."""
        logs = torch.stack([(x.float() / temperature).log_softmax(-1) for x in logits])
        mean = logs[0] if len(logits) == 1 else logs.logsumexp(0) - math.log(len(logits))
        best = mean.topk(min(k, mean.shape[-1]))
        rest = mean.scatter(-1, best.indices, -torch.inf).logsumexp(-1)
        return cls(ids=best.indices, log_probabilities=best.values.half(), log_rest=rest.half())

    def divergence(self, logits: Float[Tensor, "n v"], temperature: float) -> Float[Tensor, "n"]:
        """Return the Kullback-Leibler divergence of another softmax at this temperature from it."""
        logs = (logits.float() / temperature).log_softmax(-1)
        p = self.log_probabilities.float()
        losses = (p.exp() * (p - logs.gather(-1, self.ids))).sum(-1)
        if self.ids.shape[-1] == logits.shape[-1]:
            return losses
        p = self.log_rest.float().clamp_min(torch.finfo(torch.float16).min)
        q = logs.scatter(-1, self.ids, -torch.inf).logsumexp(-1)
        return losses + p.exp() * (p - q)
