"""A batch of texts that is decoded token by token, with a cache."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.batch import Batch, Example, ExampleRows, Feature, Visibility
from unmask.generation.decoding.common_prefix import common_prefix_length, copy_prefix
from unmask.generation.decoding.fused_step import FusedStep
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
        step: FusedStep | None = None,
    ) -> None:
        """Lay prompts side by side, aligned at their ends, each with its own position ids.

        Of tokens that were read, the last `max_rollback` may be removed (`crop`). `step`, of the
        same model, reads single tokens after the prompts. None: the model's modules do. Of equal
        prompts one is read, and copied when it was; their common prefix is read here.

        Raises:
            FloatingPointError: a logit after the common prefix is not finite.
        """
        prompts, self._copies = _without_copies(prompts)
        self._model, self._vocab_size, self._step = model, special_ids.vocab_size, step
        self._mask_id, self._appended_mask = special_ids.mask, model.appended_mask_generation
        max_rollback += self._appended_mask is not None  # the mask itself
        self.cache = model.backbone.new_cache(max_rollback)
        """Keys and values of what was read."""
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
        """What all steps read, but for their tokens and position ids."""
        self._unread = self._batch.inputs
        """Tokens that were not read yet [b t]."""
        self.next_positions = torch.from_numpy((document == 0).sum(1)).to(model.device)
        """Position id of the token that follows each text [b]."""
        if self._batch.source is None and not self._batch.features:
            self._read_common_prefix([prompt.input_ids for prompt in prompts])

    def _read_common_prefix(self, prompts: Sequence[Sequence[int]]) -> None:
        """Read the common prefix of all prompts once, if that pays."""
        n = common_prefix_length(self._model, prompts, self.cache)
        if not n:
            return
        ids = torch.tensor([[*prompts[0][:n]]], device=self.device)
        prefix = Batch(inputs=ids, visibility=Visibility(causal=True))
        self.check_logits(self._model.next_token_logits(prefix, self.cache, 1).float())
        copy_prefix(self._model, self.cache, self._unread.shape[1] - self.next_positions)
        self._unread = self._unread[:, n:]

    def _copy_rows(self) -> None:
        """Copy the rows of prompts that were given several times."""
        copies, self._copies = self._copies, None
        if copies is not None:
            self.select_rows(torch.tensor(copies, device=self.device))

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        return self.next_positions.device

    @property
    def visible_columns(self) -> Bool[Tensor, "b s"]:
        """Which columns of the prompts, not read yet, the token after them sees."""
        self._copy_rows()
        document = self._batch.visibility.document
        if document is None:
            n_rows, n_unread = self._unread.shape
            shape = (n_rows, self.cache.length + n_unread)
            return torch.ones(shape, dtype=torch.bool, device=self.device)
        return document == 0

    @property
    def visible_source_columns(self) -> Bool[Tensor, "b s"] | None:
        """Which columns of the sources are read. None: all, or there is no source."""
        document = self._batch.source_visibility.document
        return None if document is None else document == 0

    def next_token_logits(self, n_last: int = 1) -> Float[Tensor, "b last v"]:
        """Read what was not read yet; return the logits after each of the last tokens.

        Raises:
            FloatingPointError: a logit is not finite.
            ValueError: the model generates by appended masks, and there is no mask token.
        """
        if self._appended_mask is None:
            copies, logits = self._copies, self._forward(n_last)
            self._copy_rows()
            return logits if copies is None else logits[copies]
        self._copy_rows()
        if self._mask_id is None:
            raise ValueError("a model that generates by appended masks needs a mask token")
        mask = torch.full_like(self.next_positions, self._mask_id)[:, None]
        after = self._unread[:, self._unread.shape[1] - n_last + 1 :]
        self.crop(n_last - 1)
        found: list[Tensor] = []
        for i in range(n_last):  # a mask in place of the token to be predicted, then the token
            self.append_tokens(after[:, i - 1 : i] if i else after[:, :0])
            self.append_tokens(mask)
            found.append(self._forward(1))
            self.crop(1)
        return torch.cat(found, 1)

    def _forward(self, n_last: int) -> Float[Tensor, "b last v"]:
        batch, unread = self._batch, self._unread
        n = unread.shape[1]
        back = torch.arange(-n, 0, device=self.next_positions.device)
        position_ids = (self.next_positions[:, None] + back).clamp(min=0)  # of padding, 0
        segments = None
        if self._appended_mask is not None:
            segments = torch.full_like(unread, self._appended_mask.target_segment)
            rank = batch.visibility.rank
            if rank is not None and self._appended_mask.source_segment is not None:
                segments[rank[:, -n:] == 0] = self._appended_mask.source_segment
        positioned = replace(batch, inputs=unread, position_ids=position_ids, segments=segments)
        if self._step is not None and n == 1 and self.cache.length:
            logits = self._step.next_token_logits(positioned, self.cache)
        else:
            logits = self._model.next_token_logits(positioned, self.cache, n_last).float()
        self._unread = unread[:, n:]
        return self.check_logits(logits)

    def check_logits(self, logits: Float[Tensor, "b t _"]) -> Float[Tensor, "b t v"]:
        """Return the logits of tokens, without those that only fill the table.

        Raises:
            FloatingPointError: one is not finite.
        """
        logits = logits[..., : self._vocab_size]
        if not bool(logits.sum().isfinite()):  # a tenth of the time of looking at each
            raise FloatingPointError("the model's logits are not finite: its weights are damaged")
        return logits

    def append_tokens(self, tokens: Int[Tensor, "b t"]) -> None:
        """Append tokens; they are read by the next `next_token_logits`."""
        self._copy_rows()
        self._unread = torch.cat((self._unread, tokens), 1) if self._unread.numel() else tokens
        self.next_positions = self.next_positions + tokens.shape[1]
        rank, document = self._batch.visibility.rank, self._batch.visibility.document
        if rank is not None:
            steps = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
            rank = torch.cat((rank, rank[:, -1:] + steps), 1)
        if document is not None:
            document = torch.cat((document, torch.zeros_like(tokens)), 1)
        self._set_visibility(rank, document)

    def _set_visibility(self, rank: Tensor | None, document: Tensor | None) -> None:
        if rank is not None or document is not None:
            visibility = replace(self._batch.visibility, rank=rank, document=document)
            self._batch = replace(self._batch, visibility=visibility)

    def count_token(self) -> None:
        """Count a token that was appended to each text elsewhere."""
        self.next_positions = self.next_positions + 1

    def crop(self, n: int) -> None:
        """Remove the last n tokens of each text, whether they were read or not.

        Raises:
            ValueError: layers with a window have forgotten what stood before them.
        """
        self._copy_rows()
        n_unread = self._unread.shape[1]
        self.cache.crop(self.cache.length - max(n - n_unread, 0))
        self._unread = self._unread[:, : max(n_unread - n, 0)]
        self.next_positions = self.next_positions - n
        rank, document = self._batch.visibility.rank, self._batch.visibility.document
        if rank is not None:
            rank = rank[:, : rank.shape[1] - n]
        if document is not None:
            document = document[:, : document.shape[1] - n]
        self._set_visibility(rank, document)

    def select_rows(self, rows: Int[Tensor, "k"]) -> None:
        """Keep only these rows, in this order; one may come several times."""

        def select(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[rows]

        def select_visibility(v: Visibility) -> Visibility:
            return replace(v, rank=select(v.rank), document=select(v.document))

        self._copy_rows()
        batch = self._batch
        self.cache.select_rows(rows)
        self.next_positions, self._unread = self.next_positions[rows], self._unread[rows]
        self._batch = replace(
            batch,
            inputs=self._unread,
            visibility=select_visibility(batch.visibility),
            source=select(batch.source),
            source_visibility=select_visibility(batch.source_visibility),
            features=tuple(feature.map(select) for feature in batch.features),
        )


def _without_copies(prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[int] | None]:
    """Return prompts that differ, and for each that was given which it is; None: all differ."""
    different: dict[tuple[object, ...], int] = {}
    found: list[Prompt] = []
    index: list[int] = []
    for prompt in prompts:
        source = None if prompt.source_ids is None else tuple(prompt.source_ids)
        features = tuple(map(id, prompt.features))
        key = (tuple(prompt.input_ids), source, prompt.n_source_tokens, features)
        if key not in different:
            different[key] = len(found)
            found.append(prompt)
        index.append(different[key])
    return found, index if len(found) < len(prompts) else None


def _collate_features(prompts: Sequence[Prompt]) -> tuple[Feature, ...]:
    """Return the features of all prompts, which have the same kinds."""
    groups = [[Example(inputs=_NO_IDS, targets=_NO_IDS, features=p.features)] for p in prompts]
    rows = ExampleRows(groups, 0)
    found = (type(feature).collate(rows) for feature in prompts[0].features)
    return tuple(f.map(torch.from_numpy) for f in found if f is not None)


_NO_IDS = np.zeros(0, np.int64)
