"""Hidden states -> which of many texts follows which; without a weight of its own."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch
from unmask.heads.prediction import Prediction, Term
from unmask.model.architecture import Architecture
from unmask.model.canine import Table


@dataclass(frozen=True, kw_only=True)
class Neighbors:
    """Each part of a text finds the other one among those of all texts of the batch.

    By the cosine of the parts' mean hidden states over a temperature, and a softmax over the batch;
    the first parts ask for the second ones and the second ones for the first: Logeswaran and Lee
    2018, arXiv:1803.02893, section 3, equations 1 to 3, with the mean, the cosine and the
    temperature of Giorgi et al. 2021, arXiv:2006.03659, sections 3.1 and 3.2.

    The batch is what goes through the model at once: of fewer texts the question is easier.
    """

    term: str = "neighbor"
    temperature: float = 0.05

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")

    def build(self, architecture: Architecture, table: Table) -> "NeighborsHead":
        """Build the head, which has no weights."""
        return NeighborsHead(self)


class NeighborsHead(nn.Module):
    """Similarities of the parts of texts, and their cross-entropy."""

    def __init__(self, spec: Neighbors) -> None:
        super().__init__()
        self.spec = spec

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the texts that have two parts."""
        if batch.parts is None:
            return {}
        return {self.spec.term: int(_in(batch.parts)[..., 1::2].any(1).sum())}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Ask each part for the other one of its text.

        Scores are [n n], of each first part for each second one.
        """
        if batch.parts is None:
            return Prediction()
        first, second = (F.normalize(x.float(), dim=-1) for x in _means(hidden, batch.parts))
        said = first @ second.T / self.spec.temperature
        kept = {self.spec.term: said} if scores else {}
        own = torch.arange(len(said), device=said.device)
        lost = F.cross_entropy(said, own, reduction="sum")
        lost = lost + F.cross_entropy(said.T, own, reduction="sum")
        right = (said.argmax(-1) == own).sum() if len(said) else own.sum()
        return Prediction(kept, {self.spec.term: Term(lost / 2, len(said), right)})


def _in(parts: Int[Tensor, "b t"]) -> Bool[Tensor, "b t k"]:
    """Say which part each token is in; no token of a text that is one is in the second of it."""
    texts = int(parts.max()) // 2 + 1
    return parts[..., None] == torch.arange(2 * texts, device=parts.device)


def _means(
    hidden: Float[Tensor, "b t d"], parts: Int[Tensor, "b t"]
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    """Return the means of the first and of the second part of each text that has two."""
    of = _in(parts).to(hidden.dtype)
    n = of.sum(1)[..., None]
    mean = torch.einsum("btd,btk->bkd", hidden, of) / n.clamp(min=1)
    two = n[:, 1::2, 0] > 0
    return mean[:, ::2][two], mean[:, 1::2][two]
