"""While a model is fine-tuned its table has the tokens of the given texts alone.

Of 30,000 vectors a task meets a few thousand. The others would have gradients of zero, and yet be
cleared, measured and moved in every step: of a model like BERT-mini a sixth of the time, of
XLM-R two thirds of the parameters.
"""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Example
from unmask.heads.model import Model


class UsedTokenEmbedding(nn.Embedding):
    """Some rows of a table, found by the ids of the whole one."""

    row_of_token: Int[Tensor, "v"]

    def __init__(self, embedding_table: nn.Embedding, token_ids: Int[Tensor, "n"]) -> None:
        super().__init__(
            len(token_ids),
            embedding_table.embedding_dim,
            _weight=embedding_table.weight.detach()[token_ids],
        )
        places = torch.full(
            (embedding_table.num_embeddings,), len(token_ids), device=token_ids.device
        )  # no row's
        places[token_ids] = torch.arange(len(token_ids), device=token_ids.device)
        self.register_buffer("row_of_token", places, persistent=False)
        self.token_ids, self.full_table = (
            token_ids,
            (embedding_table,),
        )  # in a tuple: none of its parameters is a part of this

    def forward(self, input: Int[Tensor, "..."]) -> Float[Tensor, "... d"]:
        """Look up vectors."""
        return F.embedding(self.row_of_token[input], self.weight)


def shrink_embeddings(model: Model, examples: Iterable[Example], padding_id: int) -> None:
    """Give a model a table of the tokens in the examples, where the whole table would be learned.

    Rows of other tokens are as they were when `restore_embeddings` has put the table together:
    elsewhere weight decay alone would move them. Nothing is done to a model that names tokens,
    which needs all of them, or one with adapters.
    """
    table = model.backbone.embedding_table
    named = model.has_language_head
    if named or model.adapters or model.architecture.is_encoder_decoder:
        return
    if not isinstance(table, nn.Embedding) or not table.weight.requires_grad:
        return
    ids = torch.from_numpy(np.unique(np.concatenate([*(e.inputs for e in examples), [padding_id]])))
    if len(ids) < table.num_embeddings:
        _set_embedding_table(model, UsedTokenEmbedding(table, ids.to(table.weight.device)))


def restore_embeddings(model: Model) -> None:
    """Give a model its whole table back, with what was learned."""
    used = model.backbone.embedding_table
    if not isinstance(used, UsedTokenEmbedding):
        return
    (table,) = used.full_table
    table = table.to(used.weight.device)
    with torch.no_grad():
        table.weight[used.token_ids.to(table.weight.device)] = used.weight.to(table.weight.dtype)
    table.weight.requires_grad_(used.weight.requires_grad)
    _set_embedding_table(model, table)


def _set_embedding_table(model: Model, table: nn.Embedding) -> None:
    model.get_submodule("backbone").register_module("tokens", table)
