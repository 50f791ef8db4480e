"""A batch of texts that is decoded token by token, with a cache."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import Batch, Example, ExampleRows, Feature, Visibility
from unmask.generation.text_batches import pad_texts
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True, kw_only=True, eq=False)
class FeaturedPrompt(Sequence[int]):
    """Token ids of a prompt, and what is read beside them: of a picture, its patches and pixels."""

    ids: tuple[int, ...]
    features: tuple[Feature, ...]
    fingerprint: int
    """Number that differs between prompts of the same ids, for their random generators."""

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return self.ids[index]


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """The input before generation."""

    input_ids: Sequence[int]
    """By the decoder, or by the only stack there is: at least one token."""
    source_ids: Sequence[int] | None = None
    """By the encoder, where there is one."""
    n_source_tokens: int = 0
    """Number of leading `input_ids` that are a source; some models attend to it in both directions
    (`Model.bidirectional_prompt`)."""
    features: tuple[Feature, ...] = ()
    """What the encoder reads beside `source_ids`, such as a picture; of one text."""


class DecodingBatch:
    """Prompts and what follows them, side by side, read by a model in evaluation mode."""

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Prompt],
        special_ids: SpecialTokenIds,
        *,
        max_rollback: int = 0,
    ) -> None:
        """Lay prompts side by side, aligned at their ends, each with its own position ids.

        Of tokens that were read, the last `max_rollback` may be removed (`crop`).
        """
        self._model, self._vocab_size = model, special_ids.vocab_size
        self._mask_id, self._appended_mask = special_ids.mask, model.appended_mask_generation
        max_rollback += self._appended_mask is not None  # the mask itself
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
            features=_collate_features(prompts),
        ).to(model.device)
        """Its inputs are only the tokens that were not read yet, and it has no position ids."""
        self._next_positions = torch.from_numpy((document == 0).sum(1)).to(model.device)
        """Position id of the token that follows each text [b]."""

    def next_token_logits(self, n_last: int = 1) -> Float[Tensor, "b last v"]:
        """Read what was not read yet; return the logits after each of the last tokens.

        Raises:
            FloatingPointError: a logit is not finite.
            ValueError: the model generates by appended masks, and there is no mask token.
        """
        if self._appended_mask is None:
            return self._forward(n_last)
        if self._mask_id is None:
            raise ValueError("a model that generates by appended masks needs a mask token")
        mask = torch.full_like(self._next_positions, self._mask_id)[:, None]
        after = self._batch.inputs[:, self._batch.inputs.shape[1] - n_last + 1 :]
        self.crop(n_last - 1)
        found: list[Tensor] = []
        for i in range(n_last):  # a mask in place of the token to be predicted, then the token
            self.append_tokens(after[:, i - 1 : i] if i else after[:, :0])
            self.append_tokens(mask)
            found.append(self._forward(1))
            self.crop(1)
        return torch.cat(found, 1)

    def _forward(self, n_last: int) -> Float[Tensor, "b last v"]:
        batch = self._batch
        n = batch.inputs.shape[1]
        back = torch.arange(-n, 0, device=self._next_positions.device)
        position_ids = (self._next_positions[:, None] + back).clamp(min=0)  # of padding, 0
        segments = None
        if self._appended_mask is not None:
            segments = torch.full_like(batch.inputs, self._appended_mask.target_segment)
            rank = batch.visibility.rank
            if rank is not None and self._appended_mask.source_segment is not None:
                segments[rank[:, -n:] == 0] = self._appended_mask.source_segment
        positioned = replace(batch, position_ids=position_ids, segments=segments)
        logits = self._model.next_token_logits(positioned, self._cache, n_last).float()
        self._batch = replace(batch, inputs=batch.inputs[:, n:])
        logits = logits[..., : self._vocab_size]
        if not bool(logits.sum().isfinite()):  # a tenth of the time of looking at each
            raise FloatingPointError("the model's logits are not finite: its weights are damaged")
        return logits

    def append_tokens(self, tokens: Int[Tensor, "b t"]) -> None:
        """Append tokens; they are read by the next `next_token_logits`."""
        batch = self._batch
        rank, document = batch.visibility.rank, batch.visibility.document
        if rank is not None:
            steps = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
            rank = torch.cat((rank, rank[:, -1:] + steps), 1)
        if document is not None:
            document = torch.cat((document, torch.zeros_like(tokens)), 1)
        visibility = replace(batch.visibility, rank=rank, document=document)
        inputs = torch.cat((batch.inputs, tokens), 1)
        self._batch = replace(batch, inputs=inputs, visibility=visibility)
        self._next_positions = self._next_positions + tokens.shape[1]

    def crop(self, n: int) -> None:
        """Remove the last n tokens of each text, whether they were read or not.

        Raises:
            ValueError: layers with a window have forgotten what stood before them.
        """
        batch = self._batch
        unread = max(batch.inputs.shape[1] - n, 0)
        self._cache.crop(self._cache.length - max(n - batch.inputs.shape[1], 0))
        rank, document = batch.visibility.rank, batch.visibility.document
        if rank is not None:
            rank = rank[:, : rank.shape[1] - n]
        if document is not None:
            document = document[:, : document.shape[1] - n]
        visibility = replace(batch.visibility, rank=rank, document=document)
        self._batch = replace(batch, inputs=batch.inputs[:, :unread], visibility=visibility)
        self._next_positions = self._next_positions - n

    def select_rows(self, rows: Int[Tensor, "k"]) -> None:
        """Keep only these rows, in this order; one may come several times."""

        def select(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[rows]

        def select_visibility(v: Visibility) -> Visibility:
            return replace(v, rank=select(v.rank), document=select(v.document))

        batch = self._batch
        self._cache.select_rows(rows)
        self._next_positions = self._next_positions[rows]
        self._batch = replace(
            batch,
            inputs=batch.inputs[rows],
            visibility=select_visibility(batch.visibility),
            source=select(batch.source),
            source_visibility=select_visibility(batch.source_visibility),
            features=tuple(feature.map(select) for feature in batch.features),
        )


def _collate_features(prompts: Sequence[Prompt]) -> tuple[Feature, ...]:
    """Return the features of all prompts, which have the same kinds."""
    groups = [[Example(inputs=_NO_IDS, targets=_NO_IDS, features=p.features)] for p in prompts]
    rows = ExampleRows(groups, 0)
    found = (type(feature).collate(rows) for feature in prompts[0].features)
    return tuple(f.map(torch.from_numpy) for f in found if f is not None)


_NO_IDS = np.zeros(0, np.int64)
