"""An encoder that knows more words: vectors of another space, mapped into its own table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from unmask.checkpoints.huggingface import Opened
from unmask.heads.labels import Labels, TokenLabels
from unmask.heads.recurrent import RecurrentTags
from unmask.heads.spans import Spans
from unmask.model.architecture import Architecture
from unmask.published.card import resized
from unmask.serving.pipeline import Pipeline, load
from unmask.serving.spaces import open_space
from unmask.vectors.align import LeastSquares
from unmask.vectors.space import Space

OF_TEXTS = Labels | TokenLabels | Spans | RecurrentTags
"""Heads that name no tokens: these stay."""


@dataclass(frozen=True, kw_only=True)
class Expanded:
    """A model that knows more words."""

    pipeline: Pipeline
    shared: int
    """Words that both knew: the map was fitted on these."""
    added: int
    """Words that are new."""


def expand(
    model: str | Path | Pipeline, vectors: str | Path | Space, *, limit: int | None = None
) -> Expanded:
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
    space, opened = open_space(vectors, limit=limit), pipeline.opened
    tokenizer, architecture = pipeline.tokenizer, opened.model.architecture
    if not isinstance(architecture, Architecture) or len(opened.model.adapters):
        raise ValueError(
            f"{pipeline.card.name}: words are added to models of one stack, without adapters"
        )
    table = opened.model.backbone.table
    if not isinstance(table, torch.nn.Embedding):
        raise ValueError(f"{pipeline.card.name}: has no table of tokens, to which words are added")
    known = tokenizer.words()
    shared = [word for word in known if word in space]
    if len(shared) < space.width:
        raise ValueError(
            f"{len(shared)} words are known to both, and a map of vectors of {space.width} numbers "
            "needs as many at least"
        )
    wider = tokenizer.with_words(space.words)
    new = [word for word, i in wider.words().items() if i >= tokenizer.size]
    own = table.weight.detach().float().cpu().numpy()[: tokenizer.size]
    rows = [space.index[word] for word in shared]
    weights = LeastSquares().fit(space.vectors[rows], own[[known[word] for word in shared]])
    added = space.vectors[[space.index[word] for word in new]] @ weights.astype(np.float32)
    heads = {n: s for n, s in opened.model.specs.items() if isinstance(s, OF_TEXTS)}
    card = replace(opened.card, architecture=resized(architecture, wider.size), heads=heads)
    made = _filled(opened, replace(opened, card=card, model=card.build(), tokenizer=wider))
    with torch.no_grad():
        made.model.backbone.table.weight.copy_(torch.from_numpy(np.concatenate((own, added))))
    return Expanded(pipeline=Pipeline(made, pipeline.task), shared=len(shared), added=len(new))


def with_words(opened: Opened, words: Sequence[str]) -> Opened:
    """Give a model of words more of them; whatever is of one word begins as the mean of all others.

    As the released code of ULMFiT does it (Howard and Ruder 2018, arXiv:1801.06146).

    Args:
        opened: a model with a tokenizer of words.
        words: none of them is known to it.

    Raises:
        ValueError: a head groups its words by how frequent they are: none can be added.
    """
    assert opened.tokenizer is not None
    wider = opened.tokenizer.with_words(words)
    card = replace(opened.card, heads=opened.model.specs).with_vocabulary(wider.special)
    return _filled(opened, replace(opened, card=card, model=card.build(), tokenizer=wider))


def _filled(old: Opened, new: Opened) -> Opened:
    """Give a new model the weights of an old one, and its new words the mean of the old ones'."""
    assert old.tokenizer is not None
    theirs, n = old.model.weights(), old.tokenizer.size
    with torch.no_grad():
        for name, x in new.model.weights().items():
            was = theirs.get(name)
            if was is not None and x.shape == was.shape:
                x.copy_(was)
            elif was is not None and x.shape[1:] == was.shape[1:] and len(x) > len(was) >= n:
                x[:n], x[n:] = was[:n], was[:n].mean(0)
            else:
                raise ValueError(f"{old.card.name}: no words can be added to its {name}")
    return new
