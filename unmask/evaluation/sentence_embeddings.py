"""Vectors of texts: the hidden states of any layer, pooled or one for each token."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float
from torch import Tensor

from unmask.batch import Batch
from unmask.generation.text_batches import check_vectors, evaluation_mode, text_batches
from unmask.heads.classification.sequence_classification import (
    check_bidirectional,
    pool_hidden_states,
)
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer

EmbeddingPooling = Literal["mean", "first", "last", "ends", "none"]


def embed(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    pooling: EmbeddingPooling = "mean",
    layer: int = -1,
    batch_tokens: int = 8192,
) -> "Float[np.ndarray, 'n d'] | list[Float[np.ndarray, '_ d']]":
    """Return a vector for each text [n d]; with pooling "none" those of its tokens [t d].

    Special tokens have vectors too, and are in the mean. Of an encoder-decoder, the encoder's
    vectors. The end of a text that has more tokens than the model has positions is cut. A text
    without a token is the special ones, or the start token. A text's vector depends on no other
    text; rounding differs with the shape of a batch, by about 1e-6 of the largest number.

    Args:
        model: in float32 or bfloat16; the vectors are float32.
        tokenizer: the model's own.
        texts: in any order; those of like length are read together.
        pooling: the mean over tokens, the first or the last token's vector; of a bidirectional
            recurrent network the last state of each direction, "ends"; or "none".
        layer: 0 is what enters the first block, 1 what leaves it, ...; the last one, -1, is after
            the final norm, if there is one. Of CANINE, which has a vector for each character
            before and after its deep stack only: 0 enters the first block, 1 the last, 2 leaves it.
        batch_tokens: tokens that go through the model at once.

    Raises:
        ValueError: there is no such layer or pooling, or none of this network.
        FloatingPointError: a number is not finite.
    """
    if pooling not in get_args(EmbeddingPooling):
        raise ValueError(
            f"pooling must be one of {list(get_args(EmbeddingPooling))}, got {pooling!r}"
        )
    if pooling == "ends":
        check_bidirectional(model.architecture.encoder_stack)
    layer = _layer_index(layer, model.backbone.n_token_layers)
    found: dict[int, Float[np.ndarray, "..."]] = {}
    with evaluation_mode(model):
        for group in text_batches(model, tokenizer, texts, batch_tokens):
            hidden = hidden_states(model, group.batch, layer).float()
            check_vectors(hidden)
            if pooling == "none":
                rows = hidden.cpu().numpy()
                vectors = [row[:n].copy() for row, n in zip(rows, group.lengths, strict=True)]
            else:
                vectors = list(pool_hidden_states(hidden, group.batch, pooling).cpu().numpy())
            found.update(zip(group.text_indices, vectors, strict=True))
    in_order = [found[i] for i in range(len(texts))]
    if pooling == "none":
        return in_order
    return (
        np.stack(in_order)
        if in_order
        else np.zeros((0, model.backbone.encoder_stack.width), np.float32)
    )


def _layer_index(layer: int, n_layers: int) -> int:
    if not -n_layers - 1 <= layer <= n_layers:
        raise ValueError(f"layer must be from {-n_layers - 1} to {n_layers}, got {layer}")
    return layer % (n_layers + 1)


def hidden_states(model: Model, batch: Batch, layer: int) -> Float[Tensor, "b t d"]:
    """Return what enters a block of the stack that reads texts, or, after the last, leaves it.

    By recording it: no forward has an extra return value for this. A learned prompt precedes the
    text and is left out; what is returned is of the text's own tokens, where heads may read the
    prompt's first (see `unmask.adapters.prefix.PromptTuningModule`).
    """
    ids = batch.inputs if batch.source is None else batch.source
    return model.backbone.layer_states(batch, layer)[:, -ids.shape[1] :]
