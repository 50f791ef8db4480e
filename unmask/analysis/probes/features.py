"""Frozen features of words: hidden states of every layer of a model, or static vectors."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import Batch
from unmask.generation.text_batches import (
    check_vectors,
    evaluation_mode,
    max_read_length,
    text_batches,
)
from unmask.heads.model import Model
from unmask.model.recording import record_layers
from unmask.tokenizers.encode import Tokenizer
from unmask.word_vectors.keyed_vectors import KeyedVectors

BATCH_TOKENS = 4096
"""Tokens that go through the model at once."""


@dataclass(frozen=True)
class WordFeatures:
    """A vector of each layer for each word of sentences, in the order of the sentences."""

    layers: tuple[Float[Tensor, "n _"], ...]
    """Float32 in main memory. Of a network: the input of the first layer, then the output of each.
    Of static vectors: one."""
    sentences: Int[np.ndarray, "n"]
    """Index of the sentence of each row."""
    words: Int[np.ndarray, "n"]
    """Index of the word of each row in its sentence."""
    n_skipped: int = 0
    """Sentences that are longer than the model's positions; none of their words has a row."""

    def __len__(self) -> int:
        return len(self.sentences)

    def stacked(self) -> Float[Tensor, "l n d"]:
        """Return all layers as one tensor, for a scalar mix.

        Raises:
            ValueError: widths of layers differ.
        """
        if len(widths := {layer.shape[1] for layer in self.layers}) > 1:
            raise ValueError(
                f"layers of different widths cannot be mixed, got {sorted(widths)}: probe them one "
                "by one"
            )
        return torch.stack(self.layers)

    def select(self, values: Sequence[Sequence[str]]) -> list[str]:
        """Return what belongs to each row, of values of each word of each sentence."""
        rows = zip(self.sentences.tolist(), self.words.tolist(), strict=True)
        return [values[int(sentence)][int(word)] for sentence, word in rows]


def word_features(
    model: Model, tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]
) -> WordFeatures:
    """Return the hidden states of every layer for the words of sentences.

    A word's vector is the mean of those of its tokens; words are joined by spaces. An
    encoder-decoder gives the layers of its encoder. Layers of Transformer blocks are recorded
    during one forward pass: the last one after the final norm, if any, others before it. Other
    networks run once for each layer.

    Returns:
        No row for words without a token, and for those of sentences that are too long.

    Raises:
        ValueError: there are no words, or the tokenizer reads texts backward.
        FloatingPointError: hidden states are not finite.
    """
    tokenizer.input_tokenizer.check_reads_forward("words of a sentence")
    most = max_read_length(model, model.backbone.encoder_stack)
    clean = [[" ".join(word.split()) for word in words] for words in sentences]
    texts = [" ".join(words) for words in clean]
    found: dict[int, tuple[Int[np.ndarray, "w"], list[Tensor]]] = {}
    n_skipped = 0
    with evaluation_mode(model):
        for rows in text_batches(model, tokenizer, texts, BATCH_TOKENS):
            states = layer_states(model, rows.batch)
            for row, i in enumerate(rows.text_indices):
                owner = _word_of_token(tokenizer.input_tokenizer, clean[i])
                n_special = len(tokenizer.special_ids.prefix) + len(tokenizer.special_ids.suffix)
                if most is not None and len(owner) + n_special > most:
                    n_skipped += 1
                elif len(owner):
                    found[i] = _word_means([x[row] for x in states], owner, tokenizer)
    if not found:
        raise ValueError(f"no words to probe: {len(sentences):,} sentences, {n_skipped:,} too long")
    order = sorted(found)
    layers = tuple(torch.cat(parts) for parts in zip(*(found[i][1] for i in order), strict=True))
    for layer in layers:
        check_vectors(layer)
    return WordFeatures(
        layers,
        np.concatenate([np.full(len(found[i][0]), i) for i in order]),
        np.concatenate([found[i][0] for i in order]),
        n_skipped,
    )


def layer_states(model: Model, batch: Batch) -> list[Float[Tensor, "b t _"]]:
    """Return the input of the first layer and the output of every layer that reads the texts."""
    stack = model.backbone.encoder_stack
    if stack.unsupported_reason("layer_records") is not None:
        states = [model.backbone.layer_states(batch, i) for i in range(stack.n_token_layers + 1)]
    else:
        with record_layers(model.backbone) as records:
            model.backbone(batch)
        states = records[0].hidden_states
    assert len(states) == stack.n_token_layers + 1
    ids = batch.inputs if batch.source is None else batch.source
    return [x[:, -ids.shape[1] :] for x in states]  # without virtual tokens before the text


def random_weights(model: Model, seed: int) -> Model:
    """Return a copy of a network with random weights: what its architecture alone gives a probe."""
    return copy.deepcopy(model).initialize(seed)


def static_features(vectors: KeyedVectors, sentences: Sequence[Sequence[str]]) -> WordFeatures:
    """Return static vectors as one layer; words without a vector have no row.

    Raises:
        ValueError: no word has a vector.
    """
    found = [
        (i, k, vectors.vector(word))
        for i, words in enumerate(sentences)
        for k, word in enumerate(words)
        if vectors.has_vector(word)
    ]
    if not found:
        raise ValueError("no word of the sentences has a vector")
    layer = torch.from_numpy(np.stack([vector for _, _, vector in found]).astype(np.float32))
    return WordFeatures(
        (layer,), np.array([i for i, _, _ in found]), np.array([k for _, k, _ in found])
    )


def _word_of_token(tokenizer: Tokenizer, words: Sequence[str]) -> Int[np.ndarray, "t"]:
    """Return the index of the word of each token; the space before a word belongs to it."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    begins = tokenizer.offset_array(" ".join(words))[:, 0]
    return np.minimum(np.searchsorted(ends, begins, side="right"), len(ends) - 1)


def _word_means(
    states: Sequence[Float[Tensor, "t _"]], owner: Int[np.ndarray, "k"], tokenizer: Tokenizer
) -> tuple[Int[np.ndarray, "w"], list[Tensor]]:
    """Return the words that have tokens, and the mean vector of each, for each layer."""
    words, index, counts = np.unique(owner, return_inverse=True, return_counts=True)
    start = len(tokenizer.special_ids.prefix)
    rows, sizes = torch.from_numpy(index), torch.from_numpy(counts)[:, None]
    means: list[Tensor] = []
    for x in states:
        tokens = x[start : start + len(owner)].float().cpu()
        means.append(torch.zeros(len(words), x.shape[1]).index_add(0, rows, tokens) / sizes)
    return words, means
