"""Masks of whole parts: attention heads and feed-forward sublayers whose weights become zero."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.config import check_fraction
from unmask.compression.structure.cut import zero_heads
from unmask.compression.structure.rebuild import check_no_adapters
from unmask.compression.structure.widths import feed_forward_scores, head_scores
from unmask.config import check_number_fields


@dataclass(frozen=True, kw_only=True)
class BlockPruning:
    """The weights of the least important heads and feed-forward sublayers become zero.

    Structured masks as in Prasanna et al. 2020, arXiv:2005.00561, section 3.2: importance is the
    expected absolute gradient of the loss with respect to a mask of the part on texts (Michel et
    al. 2019, arXiv:1905.10650, equation 2), or without texts that of the weights' norms. Nothing is
    removed, so that the result is a mask for the whole model. Deviates: biases stay.
    """

    heads: float = 0.0
    """Fraction of the heads of all layers whose weights are zero, from 0 to below 1."""
    feed_forward: float = 0.0
    """Fraction of the feed-forward sublayers whose matrices are zero, from 0 to below 1."""
    random: int | None = None
    """Random seed by which parts are drawn, for a control. None: the least important ones."""

    makes_smaller: ClassVar[bool] = False
    makes_zeros: ClassVar[bool] = True
    uses_texts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number_fields(self)
        check_fraction("heads", self.heads)
        check_fraction("feed_forward", self.feed_forward)
        if not self.heads and not self.feed_forward:
            raise ValueError("blocks: heads or feed_forward must be above 0")

    def restructure(self, loaded_model: LoadedModel, batches: Sequence[Batch] = ()) -> LoadedModel:
        """Return the model itself, with weights that are zero now.

        Raises:
            ValueError: the network has no heads that can be masked, or it has adapters.
        """
        check_no_adapters(loaded_model, "blocks")
        model = loaded_model.model
        heads = self._chosen(head_scores(model, batches, "blocks"), self.heads)
        sublayers = self._chosen(feed_forward_scores(model, batches, "blocks"), self.feed_forward)
        weights = model.own_weights()
        for name, (groups, n) in heads.items():
            if groups:
                zero_heads(weights, f"{name}.", groups, n)
        for name, (chosen, _) in sublayers.items():
            for key, weight in weights.items():
                if chosen and key.startswith(f"{name}.") and weight.ndim == 2:
                    weight.zero_()
        return loaded_model

    def _chosen(
        self, scores: Mapping[str, Float[Tensor, "n"]], fraction: float
    ) -> dict[str, tuple[list[int], int]]:
        """Return the parts of each sublayer that become zero, and how many it has."""
        values = torch.cat([x.double().flatten() for x in scores.values()])
        if self.random is not None:
            generator = torch.Generator().manual_seed(self.random)
            values = torch.rand(len(values), generator=generator, dtype=torch.float64)
        order = values.argsort(stable=True)[: round(fraction * len(values))]
        is_zero = torch.zeros(len(values), dtype=torch.bool)
        is_zero[order] = True
        parts = is_zero.split([len(x) for x in scores.values()])
        return {
            name: (part.nonzero().flatten().tolist(), len(part))
            for name, part in zip(scores, parts, strict=True)
        }
