"""Texts side by side, read once and then token by token, with a cache of what was read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import Batch, Visibility
from unmask.generation.text_batches import pad_texts
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What is read before a text is said."""

    input_ids: Sequence[int]
    """By the decoder, or by the only stack there is: at least one token."""
    source_ids: Sequence[int] | None = None
    """By the encoder, where there is one."""
    n_source_tokens: int = 0
    """So many of `input_ids`, the first, are a source; some models see it as a whole (`Model.whole`)."""


class DecodingBatch:
    """Texts that a model, which is at rest, reads side by side: prompts and what follows them."""

    def __init__(
        self, model: Model, prompts: Sequence[Prompt], special_ids: SpecialTokenIds, *, max_rollback: int = 0
    ) -> None:
        """Lay prompts side by side, aligned at their ends, each counting its own places.

        Of tokens that were read, the last `max_rollback` may be taken back (`crop`).
        """
        self._model, self._vocab_size = model, special_ids.vocab_size
        self._mask_id, self._appended_mask = special_ids.mask, model.appended_mask_generation
        max_rollback += self._appended_mask is not None  # the mask that asked
        self._cache = model.backbone.new_cache(max_rollback)
        width = max(len(prompt.input_ids) for prompt in prompts)
        ids = np.full((len(prompts), width), special_ids.pad, np.int64)
        document = np.full((len(prompts), width), -1, np.int64)
        rank = np.zeros((len(prompts), width), np.int64)
        for row, prompt in enumerate(prompts):
            first = width - len(prompt.input_ids)
            ids[row, first:] = prompt.input_ids
            document[row, first:] = 0
            rank[row] = (np.arange(width) - first - prompt.n_source_tokens + 1).clip(min=0)
        equal = bool((document == 0).all())
        causal = not model.bidirectional_prompt
        sources = [np.array(p.source_ids, np.int64) for p in prompts if p.source_ids is not None]
        source = pad_texts(sources, special_ids) if sources else None
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
        self._next_positions = torch.from_numpy((document == 0).sum(1)).to(model.device)
        """The place of the token that follows each text [b]."""

    def next_token_logits(self, n_last: int = 1) -> Float[Tensor, "b last v"]:
        """Read what was not read yet, and score what may follow each of the last tokens.

        Raises:
            FloatingPointError: a score is not finite.
            ValueError: the model says text by masks, and there is none.
        """
        if self._appended_mask is None:
            return self._forward(n_last)
        if self._mask_id is None:
            raise ValueError("a model that says text by masks needs one")
        mask = torch.full_like(self._next_positions, self._mask_id)[:, None]
        after = self._batch.inputs[:, self._batch.inputs.shape[1] - n_last + 1 :]
        self.crop(n_last - 1)
        found: list[Tensor] = []
        for i in range(n_last):  # a mask where the token stands that is asked for, then the token
            self.append_tokens(after[:, i - 1 : i] if i else after[:, :0])
            self.append_tokens(mask)
            found.append(self._forward(1))
            self.crop(1)
        return torch.cat(found, 1)

    def _forward(self, n_last: int) -> Float[Tensor, "b last v"]:
        batch = self._batch
        n = batch.inputs.shape[1]
        back = torch.arange(-n, 0, device=self._next_positions.device)
        place = (self._next_positions[:, None] + back).clamp(min=0)  # of padding, 0
        segments = None
        if self._appended_mask is not None:
            segments = torch.full_like(batch.inputs, self._appended_mask.target_segment)
            rank = batch.visibility.rank
            if rank is not None and self._appended_mask.source_segment is not None:
                segments[rank[:, -n:] == 0] = self._appended_mask.source_segment
        read = replace(batch, position_ids=place, segments=segments)
        hidden = self._model.backbone(read, self._cache)
        self._batch = replace(batch, inputs=batch.inputs[:, n:])
        scores = self._model.language_head.logits(hidden[:, -n_last:]).float()[..., : self._vocab_size]
        if not bool(scores.sum().isfinite()):  # a tenth of the time of looking at each
            raise FloatingPointError("the model's scores are not finite: its weights are damaged")
        return scores

    def append_tokens(self, tokens: Int[Tensor, "b t"]) -> None:
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
        self._next_positions = self._next_positions + tokens.shape[1]

    def crop(self, n: int) -> None:
        """Forget the last n tokens of each text, whether they were read or not.

        Raises:
            ValueError: layers with a window have forgotten what stood before them.
        """
        batch = self._batch
        unread = max(batch.inputs.shape[1] - n, 0)
        self._cache.crop(self._cache.length - max(n - batch.inputs.shape[1], 0))
        visibility = batch.visibility
        if visibility.rank is not None:
            end = visibility.rank.shape[1] - n
            visibility = replace(visibility, rank=visibility.rank[:, :end])
        if visibility.document is not None:
            end = visibility.document.shape[1] - n
            visibility = replace(visibility, document=visibility.document[:, :end])
        self._batch = replace(batch, inputs=batch.inputs[:, :unread], visibility=visibility)
        self._next_positions = self._next_positions - n

    def select_rows(self, rows: Int[Tensor, "k"]) -> None:
        """Keep only these rows, in this order; one may come several times."""

        def kept(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[rows]

        def seen(v: Visibility) -> Visibility:
            return replace(v, rank=kept(v.rank), document=kept(v.document))

        batch = self._batch
        self._cache.select_rows(rows)
        self._next_positions = self._next_positions[rows]
        self._batch = replace(
            batch,
            inputs=batch.inputs[rows],
            visibility=seen(batch.visibility),
            source=kept(batch.source),
            source_visibility=seen(batch.source_visibility),
        )
