"""Factorized embeddings: the table of tokens becomes the product of two matrices, by its SVD."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.structure.low_rank import decompose
from unmask.compression.structure.rebuild import check_no_adapters, rebuild
from unmask.compression.structure.widths import require_transformer_stacks
from unmask.config import check_number_fields
from unmask.model.layers.per_layer import TOKEN_TABLE, FactorizedMap


@dataclass(frozen=True, kw_only=True)
class EmbeddingLowRank:
    """The table of tokens becomes a product [v r] [r d], the best one of rank r.

    Its r largest singular values (Eckart and Young 1936, doi:10.1007/BF02288367), in float64.
    ALBERT is pretrained with such a table (Lan et al. 2020, arXiv:1909.11942, section 3.1). An
    output layer that is tied to the table has the same product.
    """

    rank: int
    """Size between the factors, at most the size of the embeddings and the number of tokens; at
    that size nothing is lost."""

    makes_smaller: ClassVar[bool] = True
    makes_zeros: ClassVar[bool] = False
    uses_texts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number_fields(self)
        if self.rank < 1:
            raise ValueError(f"rank must be at least 1, got {self.rank}")

    def restructure(self, loaded_model: LoadedModel, batches: Sequence[Batch] = ()) -> LoadedModel:
        """Return a model with a table in two factors.

        Raises:
            ValueError: its tokens have no plain table, or one that two stacks share.
        """
        check_no_adapters(loaded_model, "embeddings")
        model = loaded_model.model
        (side, a), *others = require_transformer_stacks(model.architecture, "embeddings").items()
        table = model.backbone.embedding_table
        if others or type(table) is not nn.Embedding:
            raise ValueError(
                "embeddings: only one stack of Transformer blocks with a plain table of tokens can "
                f"have it in two factors, got {1 + len(others)} with {type(table).__name__}"
            )
        if len(model.networks) > 1:
            raise ValueError("embeddings: a generator beside the model may share its table")
        if self.rank > (most := min(table.weight.shape)):
            raise ValueError(f"embeddings: rank must be at most {most}, got {self.rank}")
        weights = model.own_weights()
        name = f"backbone.{TOKEN_TABLE}"
        whole = weights.pop(f"{name}.weight")
        widen, narrow = decompose(whole).of_rank(self.rank)
        weights[f"{name}.narrow.weight"] = narrow.to(whole.dtype)
        weights[f"{name}.widen.weight"] = widen.mT.contiguous().to(whole.dtype)
        factors = (*a.layers.factorized, FactorizedMap(name=TOKEN_TABLE, rank=self.rank))
        divided = {side: replace(a, layers=replace(a.layers, factorized=factors))}
        return rebuild(loaded_model, model.architecture.with_stacks(divided), weights)
