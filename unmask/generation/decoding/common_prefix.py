"""The common prefix of prompts, such as instructions or examples, which is read once."""

from collections.abc import Sequence
from itertools import takewhile
from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor

from unmask.adapters.prefix import n_positions_taken
from unmask.heads.model import Model
from unmask.model.backbones.transformer import Transformer
from unmask.model.cache import Cache, DecodingCache

MIN_SAVED_TOKENS = 256
"""Tokens below which a forward pass of their own costs more than reading them in each prompt."""


def common_prefix_length(
    model: Model, prompts: Sequence[Sequence[int]], cache: DecodingCache
) -> int:
    """Return the length of the common prefix of prompts, as far as it is worth reading once.

    It never includes the last token of a prompt. 0: it is too short, or the model reads prompts in
    both directions, or has virtual tokens before them, or its cache cannot be shifted and the
    prompts differ in length.
    """
    differ = len({len(prompt) for prompt in prompts}) > 1
    if (
        model.bidirectional_prompt
        or model.appended_mask_generation is not None
        or n_positions_taken(model, model.backbone.decoder_stack)
        or (differ and not cache.can_shift)
    ):
        return 0
    shortest = min(map(len, prompts))
    columns = zip(*(prompt[: shortest - 1] for prompt in prompts), strict=True)
    n = sum(1 for _ in takewhile(lambda tokens: len({*tokens}) == 1, columns))
    return n if n * (len(prompts) - 1) >= MIN_SAVED_TOKENS else 0


def copy_prefix(model: Model, cache: DecodingCache, padding: Int[Tensor, "b"]) -> None:
    """Copy the prefix in a cache of one row to several rows.

    Args:
        model: whose cache it is.
        cache: one with some columns, n.
        padding: columns before the text of each row, by which its prefix is shifted. The first n
            columns of each row are kept.
    """
    if not padding.any():
        cache.select_rows(torch.zeros_like(padding))
        return
    position = cast(Transformer, model.backbone.decoder_stack).position
    columns = torch.arange(cache.length, device=padding.device) - padding[:, None]
    columns = columns.clamp(min=0)  # of padding, any
    for i, layer in enumerate(cast(Cache, cache).layers):
        layer.spread_columns(columns, lambda k, i=i: position.shift_keys(i, k, padding))
