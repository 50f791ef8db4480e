"""Vocabulary expansion: word vectors, mapped linearly into a model's embedding table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.inference.vectors.load_word_vectors import load_word_vectors
from unmask.word_vectors.alignment.align import LeastSquaresMap
from unmask.word_vectors.keyed_vectors import KeyedVectors


@dataclass(frozen=True, kw_only=True)
class ExpandedVocabulary:
    """A model with an expanded vocabulary."""

    pipeline: Pipeline
    n_shared: int
    """Number of words in both vocabularies, on which the map was fitted."""
    n_added: int
    """Number of new words."""


def expand_vocabulary(
    model: str | Path | Pipeline, vectors: str | Path | KeyedVectors, *, limit: int | None = None
) -> ExpandedVocabulary:
    """Add the words of word vectors to a model, mapped to its embedding space.

    Kiros et al. 2015, arXiv:1506.06726, section 2.2: a linear least-squares map to the model's
    vectors, fitted on all shared words. Words of the model keep their vectors. Language heads are
    dropped from the new model: they cannot predict the new words.

    Deviates from the released code: there, the map has a constant term.

    Args:
        model: a model of one stack with a word-level or WordPiece vocabulary.
        vectors: word vectors, or their file.
        limit: number of word vectors to read, the first ones.

    Raises:
        FileNotFoundError: there is no such model or file.
        ValueError: the model has another vocabulary or network, or both have too few words in
            common.
    """
    pipeline = model if isinstance(model, Pipeline) else load(model)
    word_vectors, old = load_word_vectors(vectors, limit=limit), pipeline.loaded_model
    tokenizer, architecture = pipeline.tokenizer, old.model.architecture
    if architecture.is_encoder_decoder or len(old.model.adapters):
        raise ValueError(
            f"{pipeline.preset.name}: words can be added to models of one stack without adapters"
        )
    table = old.model.backbone.embedding_table
    if not isinstance(table, torch.nn.Embedding):
        raise ValueError(f"{pipeline.preset.name}: has no embedding table to add words to")
    vocabulary = tokenizer.word_vocabulary()
    shared = [word for word in vocabulary if word in word_vectors]
    if len(shared) < word_vectors.vector_size:
        raise ValueError(
            f"{len(shared)} words are in both vocabularies, but a map of vectors of "
            f"{word_vectors.vector_size} dimensions needs at least as many"
        )
    expanded = tokenizer.with_words(word_vectors.words)
    new_words = [w for w, i in expanded.word_vocabulary().items() if i >= tokenizer.vocab_size]
    embeddings = table.weight.detach().float().cpu().numpy()[: tokenizer.vocab_size]
    rows = word_vectors.vectors[[word_vectors.index[word] for word in shared]]
    weights = LeastSquaresMap().fit(rows, embeddings[[vocabulary[word] for word in shared]])
    new_rows = word_vectors.vectors[[word_vectors.index[word] for word in new_words]]
    added = new_rows @ weights.astype(np.float32)
    heads = {n: s for n, s in old.model.head_specs.items() if s.labels_texts or s.labels_tokens}
    preset = replace(
        old.preset, architecture=architecture.with_vocab_size(expanded.vocab_size), heads=heads
    )
    new = _copy_weights(old, replace(old, preset=preset, model=preset.build(), tokenizer=expanded))
    with torch.no_grad():
        new.model.backbone.embedding_table.weight.copy_(
            torch.from_numpy(np.concatenate((embeddings, added)))
        )
    return ExpandedVocabulary(
        pipeline=Pipeline(new, pipeline.task), n_shared=len(shared), n_added=len(new_words)
    )


def add_words(loaded_model: LoadedModel, words: Sequence[str]) -> LoadedModel:
    """Add words to a word-level model, initialized with the mean of all others.

    As in the released code of ULMFiT (Howard and Ruder 2018, arXiv:1801.06146).

    Args:
        loaded_model: a model with a word-level tokenizer.
        words: new words.

    Raises:
        ValueError: a head has an adaptive softmax, whose frequency bands cannot be extended.
    """
    assert loaded_model.tokenizer is not None
    tokenizer = loaded_model.tokenizer.with_words(words)
    preset = replace(loaded_model.preset, heads=loaded_model.model.head_specs).with_vocabulary(
        tokenizer.special_ids
    )
    return _copy_weights(
        loaded_model,
        replace(
            loaded_model, preset=preset, model=preset.build(), tokenizer=tokenizer, source=None
        ),
    )


def _copy_weights(old: LoadedModel, new: LoadedModel) -> LoadedModel:
    """Copy the weights of an old model, and set new words to the mean of the old ones."""
    assert old.tokenizer is not None
    old_weights, n = old.model.own_weights(), old.tokenizer.vocab_size
    with torch.no_grad():
        for name, x in new.model.own_weights().items():
            y = old_weights.get(name)
            if y is not None and x.shape == y.shape:
                x.copy_(y)
            elif y is not None and x.shape[1:] == y.shape[1:] and len(x) > len(y) >= n:
                x[:n], x[n:] = y[:n], y[:n].mean(0)
            else:
                raise ValueError(f"{old.preset.name}: no words can be added to its {name}")
    return new
