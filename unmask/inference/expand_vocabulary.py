"""An encoder that knows more words: vectors of another space, mapped into its own table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.question_answering import QuestionAnswering
from unmask.heads.tagging.bilstm_crf import BiLSTMCRF
from unmask.inference.load_word_vectors import load_word_vectors
from unmask.inference.pipeline import Pipeline, load
from unmask.model.architecture import Architecture
from unmask.word_vectors.alignment.align import LeastSquaresMap
from unmask.word_vectors.keyed_vectors import KeyedVectors
from unmask.zoo.preset import with_vocab_size

HEADS_WITHOUT_VOCABULARY = SequenceClassification | TokenClassification | QuestionAnswering | BiLSTMCRF
"""Heads that name no tokens: these stay."""


@dataclass(frozen=True, kw_only=True)
class ExpandedVocabulary:
    """A model that knows more words."""

    pipeline: Pipeline
    n_shared: int
    """Words that both knew: the map was fitted on these."""
    n_added: int
    """Words that are new."""


def expand_vocabulary(
    model: str | Path | Pipeline, vectors: str | Path | KeyedVectors, *, limit: int | None = None
) -> ExpandedVocabulary:
    """Give a model the words of a space, their vectors mapped into those of its own words.

    Kiros et al. 2015, arXiv:1506.06726, section 2.2: the map is linear and has the least squared
    distance to the model's vectors, over all words that both know. Words that the model knows keep
    their vectors. What names tokens is left out of the new model: it cannot name the new ones.

    Deviates from the released code: there, the map has a constant term.

    Args:
        model: a model of one stack whose tokens are words, or word pieces.
        vectors: word vectors, or their file.
        limit: only the first `limit` words of these.

    Raises:
        FileNotFoundError: there is no such model or file.
        ValueError: the model has another vocabulary or network, or both have too few words in
            common.
    """
    pipeline = model if isinstance(model, Pipeline) else load(model)
    space, opened = load_word_vectors(vectors, limit=limit), pipeline.loaded_model
    tokenizer, architecture = pipeline.tokenizer, opened.model.architecture
    if not isinstance(architecture, Architecture) or len(opened.model.adapters):
        raise ValueError(
            f"{pipeline.preset.name}: words are added to models of one stack, without adapters"
        )
    table = opened.model.backbone.embedding_table
    if not isinstance(table, torch.nn.Embedding):
        raise ValueError(f"{pipeline.preset.name}: has no table of tokens, to which words are added")
    known = tokenizer.word_vocabulary()
    shared = [word for word in known if word in space]
    if len(shared) < space.vector_size:
        raise ValueError(
            f"{len(shared)} words are known to both, and a map of vectors of {space.vector_size} numbers "
            "needs as many at least"
        )
    wider = tokenizer.with_words(space.words)
    new = [word for word, i in wider.word_vocabulary().items() if i >= tokenizer.vocab_size]
    own = table.weight.detach().float().cpu().numpy()[: tokenizer.vocab_size]
    rows = [space.index[word] for word in shared]
    weights = LeastSquaresMap().fit(space.vectors[rows], own[[known[word] for word in shared]])
    added = space.vectors[[space.index[word] for word in new]] @ weights.astype(np.float32)
    heads = {n: s for n, s in opened.model.head_specs.items() if isinstance(s, HEADS_WITHOUT_VOCABULARY)}
    card = replace(opened.preset, architecture=with_vocab_size(architecture, wider.vocab_size), heads=heads)
    made = _copy_weights(opened, replace(opened, preset=card, model=card.build(), tokenizer=wider))
    with torch.no_grad():
        made.model.backbone.embedding_table.weight.copy_(torch.from_numpy(np.concatenate((own, added))))
    return ExpandedVocabulary(pipeline=Pipeline(made, pipeline.task), n_shared=len(shared), n_added=len(new))


def add_words(loaded_model: LoadedModel, words: Sequence[str]) -> LoadedModel:
    """Give a model of words more of them; whatever is of one word begins as the mean of all others.

    As the released code of ULMFiT does it (Howard and Ruder 2018, arXiv:1801.06146).

    Args:
        loaded_model: a model with a tokenizer of words.
        words: none of them is known to it.

    Raises:
        ValueError: a head groups its words by how frequent they are: none can be added.
    """
    assert loaded_model.tokenizer is not None
    wider = loaded_model.tokenizer.with_words(words)
    card = replace(loaded_model.preset, heads=loaded_model.model.head_specs).with_vocabulary(wider.special_ids)
    return _copy_weights(loaded_model, replace(loaded_model, preset=card, model=card.build(), tokenizer=wider))


def _copy_weights(old: LoadedModel, new: LoadedModel) -> LoadedModel:
    """Give a new model the weights of an old one, and its new words the mean of the old ones'."""
    assert old.tokenizer is not None
    theirs, n = old.model.own_weights(), old.tokenizer.vocab_size
    with torch.no_grad():
        for name, x in new.model.own_weights().items():
            was = theirs.get(name)
            if was is not None and x.shape == was.shape:
                x.copy_(was)
            elif was is not None and x.shape[1:] == was.shape[1:] and len(x) > len(was) >= n:
                x[:n], x[n:] = was[:n], was[:n].mean(0)
            else:
                raise ValueError(f"{old.preset.name}: no words can be added to its {name}")
    return new
