"""Text, token by token: greedy or sampled, with a cache of what was read."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.adapters.prefix import decoder, room
from unmask.batch import Batch, Visibility
from unmask.generation.reading import at_rest, padded
from unmask.heads.model import Model
from unmask.hiding.collate import by_size
from unmask.model.transformer import EncoderDecoder
from unmask.tokens.vocabulary import Special

AT_ONCE = 8192
"""Tokens, read and new ones, whose keys and values are held at the same time."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How the next token is picked."""

    new_tokens: int = 50
    """At most so many; fewer where the model ends its text, or its positions end."""
    temperature: float = 0.0
    """0: always the likeliest token. Otherwise the scores are divided by it and a token is
    drawn."""
    top_k: int | None = None
    """Draw among the k likeliest only (Fan et al. 2018, arXiv:1805.04833, section 5.4)."""
    top_p: float | None = None
    """Draw among the fewest that have this probability together (Holtzman et al. 2020,
    arXiv:1904.09751, section 3.1), after `temperature` and `top_k`."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.new_tokens < 1:
            raise ValueError(f"new_tokens must be at least 1, got {self.new_tokens}")
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be at least 0, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")
        if self.temperature == 0 and (self.top_k is not None or self.top_p is not None):
            raise ValueError(
                "top_k and top_p say among which tokens one is drawn, but at temperature 0 none "
                "is: give a temperature above 0"
            )


def generate(
    model: Model,
    prompts: Sequence[Sequence[int]],
    special: Special,
    how: Decoding = Decoding(),
) -> list[list[int]]:
    """Continue each prompt (a decoder) or answer it (an encoder-decoder); return the new tokens.

    A text ends before the model's end token, which is left out, with the last of `how.new_tokens`,
    or where the positions end: n positions are read, so prompt and new tokens are at most n + 1;
    learned tokens before the prompt (`unmask.adapters.prefix`) have theirs, too.
    What a prompt becomes does not depend on the others, unless rounding, which differs with the
    shape of a batch, decides between two tokens; one that is given several times is drawn several
    times. An empty prompt is the start token. Ids beyond the vocabulary, which a table of round
    size has, are never said.

    Raises:
        ValueError: the model does not generate, or a prompt is longer than its positions.
    """
    if not model.stack.causal:
        raise ValueError("this model reads in both directions and does not generate; use `fill`")
    asked = [list(prompt) or [special.start] for prompt in prompts]
    limits = _limits(model, asked, how.new_tokens)
    dice = _dice(asked, how.seed)
    said: list[list[int]] = [[] for _ in asked]
    with at_rest(model):
        sizes = [len(a) + n for a, n in zip(asked, limits, strict=True)]
        for rows in by_size(sizes, AT_ONCE):
            some = [asked[i] for i in rows]
            encoder = isinstance(model.backbone, EncoderDecoder)
            batch = _sources(some, special) if encoder else _prompts(some, special)
            texts = [_Text(said=said[i], most=limits[i], dice=dice[i]) for i in rows]
            _decode(model, batch.to(model.device), special, how, texts)
    return said


@dataclass(frozen=True, kw_only=True)
class _Text:
    """What becomes of a prompt."""

    said: list[int]
    most: int
    dice: np.random.Generator

    def take(self, token: int, end: int | None) -> bool:
        """Add a token and say whether more may follow."""
        if token == end:
            return False
        self.said.append(token)
        return len(self.said) < self.most


def _limits(model: Model, prompts: Sequence[Sequence[int]], most: int) -> list[int]:
    """Say how many tokens may follow each prompt: the last one need not be read."""
    length = room(model, decoder(model))
    if length is None:
        return [most] * len(prompts)
    encoder = isinstance(model.backbone, EncoderDecoder)
    read = [1 if encoder else len(prompt) for prompt in prompts]
    for i, n in enumerate(read, 1):
        if n > length:
            raise ValueError(
                f"prompt {i} has {n} tokens, but the model only {length} positions for it"
            )
    return [min(most, length - n + 1) for n in read]


def _dice(prompts: Sequence[Sequence[int]], seed: int) -> list[np.random.Generator]:
    """Give each prompt a generator of its own, whatever stands beside it."""
    seen: Counter[tuple[int, ...]] = Counter()
    found: list[np.random.Generator] = []
    for prompt in map(tuple, prompts):
        found.append(np.random.default_rng([seed, seen[prompt], *prompt]))
        seen[prompt] += 1
    return found


def _prompts(prompts: Sequence[Sequence[int]], special: Special) -> Batch:
    """Put prompts side by side, aligned at their ends, each counting its own places."""
    width = max(map(len, prompts))
    ids = np.full((len(prompts), width), special.pad, np.int64)
    document = np.full((len(prompts), width), -1, np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = prompt
        document[row, width - len(prompt) :] = 0
    place = np.maximum(np.cumsum(document == 0, 1) - 1, 0)
    equal = bool((document == 0).all())
    return Batch(
        inputs=torch.from_numpy(ids),
        place=torch.from_numpy(place),
        visibility=Visibility(causal=True, document=None if equal else torch.from_numpy(document)),
    )


def _sources(prompts: Sequence[Sequence[int]], special: Special) -> Batch:
    """Put sources side by side; the decoder has read its start token only."""
    source = padded([np.array(prompt, np.int64) for prompt in prompts], special)
    return Batch(
        inputs=torch.full((len(prompts), 1), special.start),
        visibility=Visibility(causal=True),
        source=source.inputs,
        source_visibility=source.visibility,
    )


def _decode(
    model: Model, batch: Batch, special: Special, how: Decoding, texts: Sequence[_Text]
) -> None:
    """Read the batch, then token by token what is said; rows whose text has ended are dropped."""
    cache = model.backbone.new_cache()
    while texts:
        hidden = model.backbone(batch, cache)
        scores = model.language.scores(hidden[:, -1]).float()[:, : special.size]
        picked = pick(scores, how, [text.dice for text in texts])
        going = [
            text.take(token, special.end)
            for text, token in zip(texts, picked.tolist(), strict=True)
        ]
        if not all(going):
            kept = torch.tensor(going).nonzero()[:, 0].to(picked.device)
            cache.keep(kept)
            batch, picked = _kept(batch, kept), picked[kept]
            texts = [text for text, on in zip(texts, going, strict=True) if on]
        batch = _next(batch, picked)


def _kept(batch: Batch, rows: Int[Tensor, "k"]) -> Batch:
    """Keep only these rows."""

    def keep(x: Tensor | None) -> Tensor | None:
        return None if x is None else x[rows]

    def seen(v: Visibility) -> Visibility:
        return replace(v, document=keep(v.document))

    return replace(
        batch,
        inputs=batch.inputs[rows],
        place=keep(batch.place),
        visibility=seen(batch.visibility),
        source=keep(batch.source),
        source_visibility=seen(batch.source_visibility),
    )


def _next(batch: Batch, picked: Int[Tensor, "b"]) -> Batch:
    """Return the batch of one new token a row."""
    visibility = batch.visibility
    if visibility.document is not None:
        new = torch.zeros_like(visibility.document[:, :1])
        visibility = replace(visibility, document=torch.cat((visibility.document, new), 1))
    place = None if batch.place is None else batch.place[:, -1:] + 1
    return replace(batch, inputs=picked[:, None], place=place, visibility=visibility)


def pick(
    scores: Float[Tensor, "b v"], how: Decoding, dice: Sequence[np.random.Generator]
) -> Int[Tensor, "b"]:
    """Pick one token a row: the likeliest, or one drawn with the row's own generator.

    Raises:
        FloatingPointError: a score is not finite.
    """
    if not bool(scores.isfinite().all()):
        raise FloatingPointError("the model's scores are not finite: its weights are damaged")
    if how.temperature == 0:
        return scores.argmax(-1)
    cooled = (scores - scores.amax(-1, keepdim=True)) / how.temperature  # 0 at most: no overflow
    sums = kept_shares(cooled, how.top_k, how.top_p).double().cumsum(-1)
    drawn = torch.tensor([1 - d.random() for d in dice], dtype=torch.float64, device=scores.device)
    # Above 0 and at most the sum of all, so that a token without probability is never picked.
    return torch.searchsorted(sums, drawn[:, None] * sums[:, -1:])[:, 0]


def kept_shares(
    scores: Float[Tensor, "b v"], top_k: int | None, top_p: float | None
) -> Float[Tensor, "b v"]:
    """Return the probabilities of the tokens that top-k, then top-p leave; of others, 0.

    Tokens as likely as the k-th stay, too. What top-p leaves is not normalized again.
    """
    if top_k is not None and top_k < scores.shape[-1]:
        least = scores.topk(top_k).values[:, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    share = scores.softmax(-1)
    if top_p is not None and top_p < 1:
        ordered, order = share.sort(descending=True, stable=True)
        before = ordered.double().cumsum(-1) - ordered
        gone = torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, before >= top_p)
        share = share.masked_fill(gone, 0)
    return share
