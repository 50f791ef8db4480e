"""Frozen features of words: hidden states of every layer of a model, or static vectors."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.analysis.words import SPECIAL, WordPieces, read_words, word_batches
from unmask.batch import Batch
from unmask.generation.text_batches import check_vectors, evaluation_mode
from unmask.heads.model import Model
from unmask.model.recording import record_layers
from unmask.tokenizers.encode import Tokenizer
from unmask.word_vectors.keyed_vectors import KeyedVectors

BATCH_TOKENS = 4096
"""Tokens that go through the model at once."""


@dataclass(frozen=True)
class WordFeatures:
    """A vector of each layer for each word, or token, of sentences, in their order."""

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
        A row for each word but those of sentences that are too long; a word without a token is
        read as an unknown one.

    Raises:
        ValueError: there are no words, or the tokenizer reads texts backward.
        FloatingPointError: hidden states are not finite.
    """
    return _features(model, tokenizer, sentences, _word_means)


def token_features(
    model: Model, tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]
) -> WordFeatures:
    """Return the hidden states of every layer for the tokens of the words of sentences.

    As `word_features`, with a row for each token, special tokens excepted.

    Raises:
        ValueError: there are no words, or the tokenizer reads texts backward.
        FloatingPointError: hidden states are not finite.
    """
    return _features(model, tokenizer, sentences, _word_tokens)


def _features(
    model: Model,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    rows_of: Callable[[Tensor, WordPieces], tuple[Tensor, Tensor]],
) -> WordFeatures:
    """Return rows of each sentence; `rows_of` gives, of a layer's states, rows and their words."""
    read = read_words(model, tokenizer, sentences)
    kept = [(i, pieces) for i, pieces in enumerate(read) if pieces is not None and pieces.words]
    n_skipped = sum(pieces is None for pieces in read)
    if not kept:
        raise ValueError(f"no words to probe: {len(sentences):,} sentences, {n_skipped:,} too long")
    found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in kept]
    with evaluation_mode(model):
        batches = word_batches(model, tokenizer, [pieces for _, pieces in kept], BATCH_TOKENS)
        for rows, batch in batches:
            states = layer_states(model, batch)
            for row, k in enumerate(rows):
                found[k] = [rows_of(x[row], kept[k][1]) for x in states]
    layers = tuple(torch.cat([x for x, _ in parts]) for parts in zip(*found, strict=True))
    for layer in layers:
        check_vectors(layer)
    words = [of_layers[0][1].numpy() for of_layers in found]
    return WordFeatures(
        layers,
        np.concatenate([np.full(len(w), i) for (i, _), w in zip(kept, words, strict=True)]),
        np.concatenate(words),
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
        # a decoder that shares the layers of the encoder is recorded after it
        states = records[0].hidden_states[: stack.n_token_layers + 1]
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


def _word_means(
    states: Float[Tensor, "t d"], pieces: WordPieces
) -> tuple[Float[Tensor, "w d"], Int[Tensor, "w"]]:
    """Return the mean over the tokens of each word, and the words."""
    tokens, owner = _word_tokens(states, pieces)
    n = len(pieces.words)
    sums = torch.zeros(n, states.shape[1]).index_add(0, owner, tokens)
    return sums / owner.bincount(minlength=n)[:, None], torch.arange(n)


def _word_tokens(
    states: Float[Tensor, "s d"], pieces: WordPieces
) -> tuple[Float[Tensor, "t d"], Int[Tensor, "t"]]:
    """Return the tokens of words, of a row that may be padded at its end, and their words."""
    owner = torch.from_numpy(pieces.word_of_token)
    of_words = owner != SPECIAL
    return states[: len(owner)].float().cpu()[of_words], owner[of_words]
