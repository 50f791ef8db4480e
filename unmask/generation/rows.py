"""Texts side by side, read once and then token by token, with a cache of what was read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import Batch, Visibility
from unmask.generation.reading import padded
from unmask.heads.model import Model
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What is read before a text is said."""

    read: Sequence[int]
    """By the decoder, or by the only stack there is: at least one token."""
    source: Sequence[int] | None = None
    """By the encoder, where there is one."""
    whole: int = 0
    """So many of `read`, the first, are a source; some models see it as a whole (`Model.whole`)."""


class Rows:
    """Texts that a model, which is at rest, reads side by side: prompts and what follows them."""

    def __init__(
        self, model: Model, prompts: Sequence[Prompt], special: Special, *, back: int = 0
    ) -> None:
        """Lay prompts side by side, aligned at their ends, each counting its own places.

        Of tokens that were read, the last `back` may be taken back (`cut`).
        """
        self._model, self._size = model, special.size
        self._mask, self._by_mask = special.mask, model.by_mask
        back += self._by_mask is not None  # the mask that asked
        self._cache = model.backbone.new_cache(back)
        width = max(len(prompt.read) for prompt in prompts)
        ids = np.full((len(prompts), width), special.pad, np.int64)
        document = np.full((len(prompts), width), -1, np.int64)
        rank = np.zeros((len(prompts), width), np.int64)
        for row, prompt in enumerate(prompts):
            first = width - len(prompt.read)
            ids[row, first:] = prompt.read
            document[row, first:] = 0
            rank[row] = (np.arange(width) - first - prompt.whole + 1).clip(min=0)
        equal = bool((document == 0).all())
        causal = not model.whole
        sources = [np.array(p.source, np.int64) for p in prompts if p.source is not None]
        source = padded(sources, special) if sources else None
        self._batch = Batch(
            inputs=torch.from_numpy(ids),
            visibility=Visibility(
                rank=None if causal else torch.from_numpy(rank),
                document=None if equal else torch.from_numpy(document),
                causal=causal,
            ),
            source=None if source is None else source.inputs,
            source_visibility=Visibility() if source is None else source.visibility,
        ).to(model.device)
        """Its inputs are those tokens alone that were not read yet, and it has no places."""
        self._next = torch.from_numpy((document == 0).sum(1)).to(model.device)
        """The place of the token that follows each text [b]."""

    def scores(self, last: int = 1) -> Float[Tensor, "b last v"]:
        """Read what was not read yet, and score what may follow each of the last tokens.

        Raises:
            FloatingPointError: a score is not finite.
            ValueError: the model says text by masks, and there is none.
        """
        if self._by_mask is None:
            return self._read(last)
        if self._mask is None:
            raise ValueError("a model that says text by masks needs one")
        mask = torch.full_like(self._next, self._mask)[:, None]
        after = self._batch.inputs[:, self._batch.inputs.shape[1] - last + 1 :]
        self.cut(last - 1)
        found: list[Tensor] = []
        for i in range(last):  # a mask where the token stands that is asked for, then the token
            self.say(after[:, i - 1 : i] if i else after[:, :0])
            self.say(mask)
            found.append(self._read(1))
            self.cut(1)
        return torch.cat(found, 1)

    def _read(self, last: int) -> Float[Tensor, "b last v"]:
        batch = self._batch
        n = batch.inputs.shape[1]
        back = torch.arange(-n, 0, device=self._next.device)
        place = (self._next[:, None] + back).clamp(min=0)  # of padding, 0
        segments = None
        if self._by_mask is not None:
            segments = torch.full_like(batch.inputs, self._by_mask.segment)
            rank = batch.visibility.rank
            if rank is not None and self._by_mask.source is not None:
                segments[rank[:, -n:] == 0] = self._by_mask.source
        read = replace(batch, place=place, segments=segments)
        hidden = self._model.backbone(read, self._cache)
        self._batch = replace(batch, inputs=batch.inputs[:, n:])
        scores = self._model.language.scores(hidden[:, -last:]).float()[..., : self._size]
        if not bool(scores.sum().isfinite()):  # a tenth of the time of looking at each
            raise FloatingPointError("the model's scores are not finite: its weights are damaged")
        return scores

    def say(self, tokens: Int[Tensor, "b t"]) -> None:
        """Let tokens follow; they are read when scores are asked for."""
        batch = self._batch
        visibility = batch.visibility
        if visibility.rank is not None:
            on = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
            rank = torch.cat((visibility.rank, visibility.rank[:, -1:] + on), 1)
            visibility = replace(visibility, rank=rank)
        if visibility.document is not None:
            document = torch.cat((visibility.document, torch.zeros_like(tokens)), 1)
            visibility = replace(visibility, document=document)
        inputs = torch.cat((batch.inputs, tokens), 1)
        self._batch = replace(batch, inputs=inputs, visibility=visibility)
        self._next = self._next + tokens.shape[1]

    def cut(self, n: int) -> None:
        """Forget the last n tokens of each text, whether they were read or not.

        Raises:
            ValueError: layers with a window have forgotten what stood before them.
        """
        batch = self._batch
        unread = max(batch.inputs.shape[1] - n, 0)
        self._cache.cut(self._cache.length - max(n - batch.inputs.shape[1], 0))
        visibility = batch.visibility
        if visibility.rank is not None:
            end = visibility.rank.shape[1] - n
            visibility = replace(visibility, rank=visibility.rank[:, :end])
        if visibility.document is not None:
            end = visibility.document.shape[1] - n
            visibility = replace(visibility, document=visibility.document[:, :end])
        self._batch = replace(batch, inputs=batch.inputs[:, :unread], visibility=visibility)
        self._next = self._next - n

    def keep(self, rows: Int[Tensor, "k"]) -> None:
        """Keep only these rows, in this order; one may come several times."""

        def kept(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[rows]

        def seen(v: Visibility) -> Visibility:
            return replace(v, rank=kept(v.rank), document=kept(v.document))

        batch = self._batch
        self._cache.keep(rows)
        self._next = self._next[rows]
        self._batch = replace(
            batch,
            inputs=batch.inputs[rows],
            visibility=seen(batch.visibility),
            source=kept(batch.source),
            source_visibility=seen(batch.source_visibility),
        )
