"""Hypotheses of beam search: read as rows that are copied, or as branches that share a prompt."""

from collections.abc import Sequence
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.batch import Batch
from unmask.generation.decoding.batch import DecodingBatch, Prompt
from unmask.generation.decoding.fused_step import FusedStep
from unmask.heads.model import Model
from unmask.model.cache import Cache
from unmask.model.layers.attention.attention import AttentionMask
from unmask.model.layers.layer_pass import LayerInputs
from unmask.tokenizers.spec import SpecialTokenIds


@runtime_checkable
class Hypotheses(Protocol):
    """The unfinished texts of each prompt; one each to begin with, of no new token."""

    def next_token_logits(self) -> Float[Tensor, "k v"]:
        """Read what was not read yet; return the logits of each text, those of a prompt together.

        Raises:
            FloatingPointError: a logit is not finite.
        """
        ...

    def extend(self, origins: Sequence[Sequence[int]], tokens: Sequence[Sequence[int]]) -> None:
        """Continue texts, and drop the others.

        Args:
            origins: for each prompt which of its texts is continued, once for each continuation.
                Empty: the prompt is dropped.
            tokens: the tokens they are continued with.
        """
        ...


def read_hypotheses(
    model: Model, prompts: Sequence[Prompt], special_ids: SpecialTokenIds, step: FusedStep | None
) -> Hypotheses:
    """Lay prompts side by side, each as its only hypothesis."""
    batch = DecodingBatch(model, prompts, special_ids, step=step)
    if step is None or not step.supports_branches:
        return _Rows(batch, len(prompts))
    return _Branches(batch, step)


class _Rows:
    """Each hypothesis is a row of the batch, whose cache is copied."""

    def __init__(self, batch: DecodingBatch, n_prompts: int) -> None:
        self._batch, self._counts = batch, [1] * n_prompts

    def next_token_logits(self) -> Float[Tensor, "k v"]:
        return self._batch.next_token_logits()[:, 0]

    def extend(self, origins: Sequence[Sequence[int]], tokens: Sequence[Sequence[int]]) -> None:
        rows, first = list[int](), 0
        for own, n in zip(origins, self._counts, strict=True):
            rows += [first + origin for origin in own]
            first += n
        device = self._batch.device
        if rows != list(range(first)):
            self._batch.select_rows(torch.tensor(rows, device=device))
        flat = [token for own in tokens for token in own]
        self._batch.append_tokens(torch.tensor(flat, device=device)[:, None])
        self._counts = [len(own) for own in origins if own]


class _Branches:
    """Each prompt is a row, and the new tokens of its hypotheses are columns of a tree.

    A hypothesis sees the columns of its prompt and of its own tokens, so that its past is a row of
    a mask: continuing another one moves no keys, and prompts and sources are stored once for all
    hypotheses. What is read of memory is at most what separate rows would need: n hypotheses have
    written n columns at each step, whoever sees them.
    """

    def __init__(self, batch: DecodingBatch, step: FusedStep) -> None:
        self._batch, self._step = batch, step
        self._visible = batch.visible_columns[:, None]
        """Columns that each hypothesis sees [b n s]."""
        self._depths = torch.arange(self._visible.shape[2])
        """For each column, its distance from the first of its text [s]."""
        self._tokens = torch.zeros(0, 0, dtype=torch.long)
        """Tokens to be read, one of each hypothesis, padded to the most of a prompt [b n]."""
        self._counts = [1] * len(self._visible)

    def next_token_logits(self) -> Float[Tensor, "k v"]:
        if not self._tokens.numel():
            return self._batch.next_token_logits()[:, 0]
        (b, n), depth = self._tokens.shape, int(self._depths[-1])
        positions = (self._batch.next_positions - 1)[:, None].expand(b, n)
        x = self._step.embed(Batch(inputs=self._tokens, position_ids=positions), depth)
        state = self._position_state(x[:, :1], depth + 1)
        mask = AttentionMask(self._visible[:, None])
        sources, cache = self._batch.visible_source_columns, cast(Cache, self._batch.cache)
        source_mask = AttentionMask(None if sources is None else sources[:, None, None])
        logits = self._step.logits(
            x,
            lambda i: LayerInputs(
                attention_mask=mask,
                position_state=state,
                encoder_attention_mask=source_mask,
                cache=cache,
                layer_index=i,
            ),
        )
        logits = self._batch.check_logits(logits).flatten(0, 1)
        if min(self._counts) == n:
            return logits
        return logits[[i * n + j for i, k in enumerate(self._counts) for j in range(k)]]

    def _position_state(self, x: Float[Tensor, "b 1 d"], n_keys: int) -> Any:
        """Return the position state of one column, with biases of all columns by their depths."""
        state = self._step.stack.position.position_state(x, n_keys)
        return state[..., self._depths] if isinstance(state, Tensor) else state

    def extend(self, origins: Sequence[Sequence[int]], tokens: Sequence[Sequence[int]]) -> None:
        kept = [i for i, own in enumerate(origins) if own]
        if len(kept) < len(origins):
            rows = torch.tensor(kept)
            self._batch.select_rows(rows)
            self._visible = self._visible[rows]
        counts = [len(origins[i]) for i in kept]
        n = max(counts)
        padded = torch.tensor([[*origins[i], *[0] * (n - len(origins[i]))] for i in kept])
        self._tokens = torch.tensor([[*tokens[i], *[0] * (n - len(tokens[i]))] for i in kept])
        self._visible = _continued(self._visible, padded)
        self._depths = torch.cat((self._depths, (self._depths[-1:] + 1).expand(n)))
        self._batch.count_token()
        self._counts = counts


def _continued(
    visible: Bool[Tensor, "b m s"], origins: Int[Tensor, "b n"]
) -> Bool[Tensor, "b n _"]:
    """Return what continuations see: what their origins do, and a new column each."""
    b, n = origins.shape
    before = visible.gather(1, origins[:, :, None].expand(-1, -1, visible.shape[2]))
    own = torch.eye(n, dtype=torch.bool).expand(b, n, n)
    return torch.cat((before, own), 2)
