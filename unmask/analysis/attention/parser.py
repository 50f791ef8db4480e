"""A dependency parser that only weighs heads: Clark et al. 2019, arXiv:1906.04341, section 5."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from unmask.analysis.dependencies import DependencyTree
from unmask.batching.collate import group_by_length

PENALTIES = (1e-2, 1e-3, 1e-4)
"""Weights of the L2 penalty, of which held-out sentences choose one."""
_HELD_OUT = 5
"""Every n-th training sentence chooses the penalty; the parser is then fitted to all of them."""
_MAX_STEPS = 60
_MAX_CELLS = 2**22
"""Numbers of attention in a group of sentences, 16 MiB."""
VECTOR_WIDTH = 50
"""Principal components of word vectors that are used."""


@dataclass(frozen=True, kw_only=True)
class ParserScores:
    """Unlabeled attachment scores (UAS) on the test sentences."""

    attention: float
    """p(i | j) ∝ exp(Σ_k w_k a_ij^k + u_k a_ji^k)."""
    attention_and_vectors: float
    """Weights that depend linearly on the static vectors of both words."""
    offset: float
    """The best fixed offset, mostly 1: right-branching."""
    n_words: int


@dataclass(frozen=True)
class ParsedSentence:
    """What the parser reads of a sentence."""

    tree: DependencyTree
    maps: Float[Tensor, "k w w"]
    vectors: Float[Tensor, "w d"]


@dataclass(frozen=True)
class _Group:
    """Sentences of like length, padded."""

    features: Float[Tensor, "b w w f"]
    """Attention from a dependent to a candidate of each head, then that from the candidate."""
    vectors: Float[Tensor, "b w d"]
    heads: Int[Tensor, "b w"]
    is_scored: Bool[Tensor, "b w"]
    is_candidate: Bool[Tensor, "b w w"]


_Parameters = Mapping[str, Tensor]


def score_parsers(
    train: Sequence[ParsedSentence], test: Sequence[ParsedSentence], offset: int
) -> ParserScores:
    """Fit both parsers to training sentences, and score them on others.

    Deviates: roots are not predicted, and each objective is convex with an L2 penalty that a fifth
    of the training sentences choose; the paper trains one epoch of Adam on the Penn Treebank, with
    GloVe vectors, and predicts roots from attention to the special tokens.
    """
    scale = _feature_scale(train)
    train_vectors, test_vectors = _reduce(train), _reduce(test, train)
    fitted = [one for i, one in enumerate(train) if i % _HELD_OUT]
    held_out = [one for i, one in enumerate(train) if not i % _HELD_OUT] or list(train)
    fit_rows = [v for i, v in enumerate(train_vectors) if i % _HELD_OUT]
    held_rows = [v for i, v in enumerate(train_vectors) if not i % _HELD_OUT] or train_vectors
    folds = (
        _groups(fitted or train, fit_rows or train_vectors, scale),
        _groups(held_out, held_rows, scale),
    )
    every = _groups(train, train_vectors, scale)
    tested = _groups(test, test_vectors, scale)
    scores: list[float] = []
    for make in (_attention_parameters, _vector_parameters):
        tried = {p: _accuracy(_fit(folds[0], make, p), folds[1]) for p in PENALTIES}
        penalty = max(PENALTIES, key=lambda p: (tried[p], p))
        scores.append(_accuracy(_fit(every, make, penalty), tested))
    right = [one.tree.heads[i] - i == offset for one in test for i in one.tree.scored]
    return ParserScores(
        attention=scores[0],
        attention_and_vectors=scores[1],
        offset=sum(right) / len(right),
        n_words=len(right),
    )


def _feature_scale(train: Sequence[ParsedSentence]) -> Float[Tensor, "f"]:
    """Return factors by which each head's attention has a standard deviation of 1."""
    pairs = torch.cat([one.maps.flatten(1) for one in train], 1)
    deviation = pairs.std(1)
    factors = torch.where(deviation > 0, 1 / deviation.clamp(min=1e-6), 0)
    return torch.cat((factors, factors))


def _reduce(
    sentences: Sequence[ParsedSentence], train: Sequence[ParsedSentence] | None = None
) -> list[Float[Tensor, "w d"]]:
    """Project word vectors to the principal components of the training words, with variance 1."""
    known = torch.cat([one.vectors for one in (sentences if train is None else train)])
    mean = known.mean(0)
    _, values, directions = torch.linalg.svd(known - mean, full_matrices=False)
    n = min(VECTOR_WIDTH, int((values > 1e-6 * values[0]).sum())) if len(values) else 0
    projection = directions[:n].T / values[:n] * len(known) ** 0.5
    return [(one.vectors - mean) @ projection for one in sentences]


def _groups(
    sentences: Sequence[ParsedSentence], vectors: Sequence[Tensor], scale: Float[Tensor, "f"]
) -> list[_Group]:
    lengths = [len(one.tree.words) for one in sentences]
    longest = max(lengths)
    most = max(_MAX_CELLS // (len(scale) * longest), longest)
    return [
        _group([sentences[i] for i in rows], [vectors[i] for i in rows], scale)
        for rows in group_by_length(lengths, most)
    ]


def _group(
    sentences: Sequence[ParsedSentence], vectors: Sequence[Tensor], scale: Float[Tensor, "f"]
) -> _Group:
    b, w = len(sentences), max(len(one.tree.words) for one in sentences)
    features = torch.zeros(b, w, w, len(scale))
    heads = torch.zeros(b, w, dtype=torch.long)
    is_scored = torch.zeros(b, w, dtype=torch.bool)
    is_candidate = torch.zeros(b, w, w, dtype=torch.bool)
    for row, one in enumerate(sentences):
        n, scored = len(one.tree.words), one.tree.scored
        features[row, :n, :n] = torch.cat((one.maps, one.maps.mT)).permute(1, 2, 0) * scale
        heads[row, scored] = torch.tensor([one.tree.heads[i] for i in scored], dtype=torch.long)
        is_scored[row, scored] = True
        is_candidate[row, :, :n] = ~torch.eye(w, n, dtype=torch.bool)
    padded = pad_sequence(list(vectors), batch_first=True)
    return _Group(features, padded, heads, is_scored, is_candidate)


def _attention_parameters(n_features: int, width: int) -> dict[str, Tensor]:
    return {"heads": torch.zeros(n_features)}


def _vector_parameters(n_features: int, width: int) -> dict[str, Tensor]:
    return _attention_parameters(n_features, width) | {
        "dependents": torch.zeros(n_features, width),
        "candidates": torch.zeros(n_features, width),
    }


def _logits(parameters: _Parameters, group: _Group) -> Float[Tensor, "b w w"]:
    """Return the scores of candidates (last) for each dependent."""
    scores = group.features @ parameters["heads"]
    if "dependents" in parameters:
        of_dependents = group.vectors @ parameters["dependents"].T  # [b w f]
        of_candidates = group.vectors @ parameters["candidates"].T
        scores = scores + torch.einsum("bijf,bif->bij", group.features, of_dependents)
        scores = scores + torch.einsum("bijf,bjf->bij", group.features, of_candidates)
    return scores.masked_fill(~group.is_candidate, torch.finfo(scores.dtype).min)


def _fit(
    groups: Sequence[_Group], make: Callable[[int, int], dict[str, Tensor]], penalty: float
) -> _Parameters:
    """Minimize the mean cross-entropy and an L2 penalty by L-BFGS, from zeros."""
    parameters = make(groups[0].features.shape[-1], groups[0].vectors.shape[-1])
    weights = list(parameters.values())
    for one in weights:
        one.requires_grad_()
    n_words = sum(int(group.is_scored.sum()) for group in groups)
    optimizer = torch.optim.LBFGS(weights, max_iter=_MAX_STEPS, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        total = 0.0
        for group in groups:
            logs = _logits(parameters, group)[group.is_scored].log_softmax(-1)
            term = -logs.gather(1, group.heads[group.is_scored][:, None]).sum() / n_words
            term.backward()
            total += term.item()
        regularizer = penalty * torch.stack([one.square().sum() for one in weights]).sum()
        regularizer.backward()
        return total + regularizer.item()

    with torch.enable_grad():
        optimizer.step(loss)
    return {name: one.detach() for name, one in parameters.items()}


def _accuracy(parameters: _Parameters, groups: Sequence[_Group]) -> float:
    right = [
        (_logits(parameters, one).argmax(-1) == one.heads)[one.is_scored].numpy() for one in groups
    ]
    return float(np.concatenate(right).mean())
