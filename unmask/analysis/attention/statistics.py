"""What each head attends to on average: Clark et al. 2019, arXiv:1906.04341, section 3."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unmask.analysis.attention.sentences import HeadName, SentenceMaps
from unmask.analysis.words import SPECIAL


@dataclass(frozen=True, kw_only=True)
class HeadStatistics:
    """Means over the words of some sentences, of the attention from a word."""

    head: HeadName
    entropy: float
    """Entropy of the attention from a token, in nats."""
    special: float
    """Share of the attention on special tokens."""
    separator: float
    """Share on those after a text, as [SEP]."""
    first: float
    """Share on the first token, special or not."""
    itself: float
    previous: float
    """Share on the word before."""
    following: float
    """Share on the word after."""


STATISTICS = ("entropy", "special", "separator", "first", "itself", "previous", "following")
"""The fields of `HeadStatistics` that are numbers."""


def measure_heads(
    heads: Sequence[HeadName], sentences: Iterable[SentenceMaps]
) -> list[HeadStatistics]:
    """Return the statistics of each head.

    Raises:
        ValueError: there is no sentence.
    """
    sums, n_tokens, n_words = torch.zeros(len(STATISTICS), len(heads), dtype=torch.float64), 0, 0
    for one in sentences:
        is_word_token = torch.from_numpy(one.pieces.word_of_token != SPECIAL)
        is_word = torch.from_numpy(one.pieces.word_of_group != SPECIAL)
        sums[0] += entropy(one.tokens[:, is_word_token]).sum(1)
        n_tokens += int(is_word_token.sum())
        n_words += int(is_word.sum())
        sums[1:] += _shares(one.groups, is_word)
    if not n_words:
        raise ValueError("no sentence, so that no head attends to anything")
    sums[0] /= n_tokens
    sums[1:] /= n_words
    columns = sums.T.tolist()
    return [
        HeadStatistics(head=head, **dict(zip(STATISTICS, column, strict=True)))
        for head, column in zip(heads, columns, strict=True)
    ]


def _shares(maps: Float[Tensor, "k g g"], is_word: Bool[Tensor, "g"]) -> Float[Tensor, "n k"]:
    """Sum the attention from words on special tokens, separators, the first, itself, neighbors."""
    from_words = maps[:, is_word]  # [k w g]
    words = is_word.nonzero()[:, 0]
    is_separator = ~is_word & (torch.arange(len(is_word)) > words[-1])
    near = [maps.diagonal(offset, 1, 2) for offset in (0, -1, 1)]
    both = is_word[1:] & is_word[:-1]
    return torch.stack(
        [
            from_words[:, :, ~is_word].sum((1, 2)),
            from_words[:, :, is_separator].sum((1, 2)),
            from_words[:, :, 0].sum(1),
            near[0][:, is_word].sum(1),
            near[1][:, both].sum(1),
            near[2][:, both].sum(1),
        ]
    )


def entropy(weights: Float[Tensor, "*n s"]) -> Float[Tensor, "*n"]:
    """Return the entropy of distributions, in nats.

    ```python
    >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor([0.6931, 0.0000])

    ```
    """
    return torch.special.entr(weights).sum(-1)


def mean_by_layer(statistics: Sequence[HeadStatistics], name: str) -> dict[int, float]:
    """Return the mean of one of `STATISTICS` over the heads of each layer."""
    layers: dict[int, list[float]] = {}
    for one in statistics:
        layers.setdefault(one.head.layer, []).append(float(vars(one)[name]))
    return {layer: sum(values) / len(values) for layer, values in layers.items()}
