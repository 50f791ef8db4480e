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
from unmask.heads.language import LanguageHead
from unmask.heads.model import Model
from unmask.model.canine import Canine
from unmask.model.convolutional import Convolutional
from unmask.model.recurrent import Recurrent
from unmask.model.transformer import Transformer


class UsedTokens(nn.Embedding):
    """Some rows of a table, found by the ids of the whole one."""

    places: Int[Tensor, "v"]

    def __init__(self, table: nn.Embedding, ids: Int[Tensor, "n"]) -> None:
        super().__init__(len(ids), table.embedding_dim, _weight=table.weight.detach()[ids])
        places = torch.full((table.num_embeddings,), len(ids), device=ids.device)  # no row's
        places[ids] = torch.arange(len(ids), device=ids.device)
        self.register_buffer("places", places, persistent=False)
        self.ids, self.whole = ids, (table,)  # in a tuple: none of its parameters is a part of this

    def forward(self, input: Int[Tensor, "..."]) -> Float[Tensor, "... d"]:
        """Look up vectors."""
        return F.embedding(self.places[input], self.weight)


def keep_used(model: Model, examples: Iterable[Example], padding: int) -> None:
    """Give a model a table of the tokens in the examples, where the whole table would be learned.

    Rows of other tokens are as they were when `restore` has put the table together: elsewhere
    weight decay alone would move them. Nothing is done to a model that names tokens, which needs
    all of them, or one with adapters.
    """
    stack = model.backbone
    named = any(isinstance(head, LanguageHead) for head in model.heads.values())
    if named or model.adapters or not isinstance(stack, Transformer | Recurrent | Convolutional):
        return
    if not isinstance(stack.tokens, nn.Embedding) or not stack.tokens.weight.requires_grad:
        return
    ids = torch.from_numpy(np.unique(np.concatenate([*(e.inputs for e in examples), [padding]])))
    if len(ids) < stack.tokens.num_embeddings:
        stack.tokens = UsedTokens(stack.tokens, ids.to(stack.tokens.weight.device))


def restore(model: Model) -> None:
    """Give a model its whole table back, with what was learned."""
    backbone = model.backbone
    used = backbone.table
    if not isinstance(used, UsedTokens) or isinstance(backbone, Canine):
        return
    (table,) = used.whole
    table = table.to(used.weight.device)
    with torch.no_grad():
        table.weight[used.ids.to(table.weight.device)] = used.weight.to(table.weight.dtype)
    table.weight.requires_grad_(used.weight.requires_grad)
    backbone.tokens = table
