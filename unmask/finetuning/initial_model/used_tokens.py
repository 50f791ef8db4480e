"""Reduction of the embedding table to the tokens of the training and dev texts.

A task uses a few thousand of 30,000 embeddings. The others would have zero gradients, but still
take part in zeroing, norm and update of each step: a sixth of the time for a model like BERT-mini,
and two thirds of the parameters of XLM-R.
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
    """Some rows of an embedding table, indexed by the ids of the whole table."""

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
    """Reduce a trained embedding table to the tokens in the examples.

    `restore_embeddings` restores the table, with the other rows unchanged; without the reduction,
    only weight decay would change them. Models with a language head, which needs all tokens, a
    table in two factors, and models with adapters are left alone.
    """
    table = model.backbone.embedding_table
    predicts_tokens = model.has_language_head
    if predicts_tokens or model.adapters or model.architecture.is_encoder_decoder:
        return
    if type(table) is not nn.Embedding or not table.weight.requires_grad:
        return
    ids = torch.from_numpy(np.unique(np.concatenate([*(e.inputs for e in examples), [padding_id]])))
    if len(ids) < table.num_embeddings:
        _set_embedding_table(model, UsedTokenEmbedding(table, ids.to(table.weight.device)))


def restore_embeddings(model: Model) -> None:
    """Restore the whole embedding table, with the trained rows."""
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
