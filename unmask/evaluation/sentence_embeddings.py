"""Embeddings of texts: hidden states of any layer, pooled or per token."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor, from_numpy, stack, zeros

from unmask.batch import Batch
from unmask.checkpoints.huggingface.sentence_vectors import SentenceVectors
from unmask.config import check_word
from unmask.generation.text_batches import check_vectors, evaluation_mode, text_batches
from unmask.heads.classification.sequence_classification import (
    check_bidirectional,
    pool_hidden_states,
)
from unmask.heads.model import Model
from unmask.model.backbones.captioning.two_towers import check_joint_space
from unmask.tokenizers.encode import Tokenizer

EmbeddingPooling = Literal["mean", "first", "last", "ends", "projection", "none"]


def embed(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    pooling: EmbeddingPooling = "mean",
    layer: int = -1,
    batch_tokens: int = 8192,
    max_length: int | None = None,
) -> "Float[np.ndarray, 'n d'] | list[Float[np.ndarray, '_ d']]":
    """Return a vector for each text [n d]; with pooling "none" those of its tokens [t d].

    Special tokens are included, also in the mean. Encoder-decoders give the encoder's vectors. Long
    texts are truncated to the model's positions. An empty text is the special tokens, or the start
    token. Vectors do not depend on other texts, up to rounding, which varies with the batch shape
    by about 1e-6 of the largest number.

    Args:
        model: a model in float32 or bfloat16; the vectors are float32.
        tokenizer: the tokenizer of the model.
        texts: texts in any order; those of similar length are batched.
        pooling: the mean over tokens, the first or the last token; "ends", the last state of each
            direction of a recurrent network; "projection", a vector in the space of pictures
            (CLIP); or "none".
        layer: 0 is the input of the first block, 1 its output, ...; the last one, -1, is after the
            final norm, if any. For CANINE, which has vectors of characters before and after its
            deep stack only: 0 is the input of the first block, 1 that of the last, 2 its output.
        batch_tokens: tokens per forward pass.
        max_length: tokens of a text that are read. None: as many as have positions.

    Raises:
        ValueError: the layer or pooling does not exist, or not for this network.
        FloatingPointError: a value is not finite.
    """
    check_word("pooling", pooling, EmbeddingPooling)
    if pooling == "ends":
        check_bidirectional(model.architecture.encoder_stack)
    if pooling == "projection":
        check_joint_space(model.architecture)
        if layer != -1:
            raise ValueError(f"layer must be -1 with pooling projection, got {layer}")
    layer = _layer_index(layer, model.backbone.n_token_layers)
    vector_of_text: dict[int, Float[np.ndarray, "..."]] = {}
    with evaluation_mode(model):
        for group in text_batches(model, tokenizer, texts, batch_tokens, max_length=max_length):
            if pooling == "projection":
                hidden = model.hidden_states(group.batch).float()
            else:
                hidden = hidden_states(model, group.batch, layer).float()
            check_vectors(hidden)
            if pooling == "projection":
                vectors = list(hidden[:, 0].cpu().numpy())
            elif pooling == "none":
                rows = hidden.cpu().numpy()
                vectors = [row[:n].copy() for row, n in zip(rows, group.lengths, strict=True)]
            else:
                vectors = list(pool_hidden_states(hidden, group.batch, pooling).cpu().numpy())
            vector_of_text.update(zip(group.text_indices, vectors, strict=True))
    in_order = [vector_of_text[i] for i in range(len(texts))]
    if pooling == "none":
        return in_order
    return np.stack(in_order) if in_order else np.zeros((0, _width(model, pooling)), np.float32)


_TEXTS_AT_ONCE = 512
"""Texts whose token states are held together."""


def embed_sentences(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], sentence_vectors: SentenceVectors
) -> Float[np.ndarray, "n d"]:
    """Return a vector for each text as sentence-transformers makes it.

    Raises:
        FloatingPointError: a value is not finite.
    """
    prepared = [sentence_vectors.prepare(text) for text in texts]
    vectors: list[Tensor] = []
    for i in range(0, len(prepared), _TEXTS_AT_ONCE):
        part = prepared[i : i + _TEXTS_AT_ONCE]
        length = sentence_vectors.max_length
        states = embed(model, tokenizer, part, pooling="none", max_length=length)
        vectors += [sentence_vectors.pool(from_numpy(rows)) for rows in states]
    if not vectors:
        vectors = [sentence_vectors.pool(zeros(1, _width(model, "mean")))[None][:0]]
        return vectors[0].numpy()
    return stack(vectors).numpy()


def _width(model: Model, pooling: EmbeddingPooling) -> int:
    projected = pooling == "projection"
    return model.backbone.width if projected else model.backbone.encoder_stack.width


def _layer_index(layer: int, n_layers: int) -> int:
    if not -n_layers - 1 <= layer <= n_layers:
        raise ValueError(f"layer must be from {-n_layers - 1} to {n_layers}, got {layer}")
    return layer % (n_layers + 1)


def hidden_states(model: Model, batch: Batch, layer: int) -> Float[Tensor, "b t d"]:
    """Return the input of a block of the text encoder, or the output of the last.

    Hooks record it: no forward has an extra return value for this. The positions of a learned
    prompt are dropped, although heads may read its first (see
    `unmask.adapters.prefix.PromptTuningModule`).
    """
    ids = batch.inputs if batch.source is None else batch.source
    return model.backbone.layer_states(batch, layer)[:, -ids.shape[1] :]
