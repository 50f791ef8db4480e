"""Prefix tuning and prompt tuning: learned virtual tokens before the text.

They change a model's outputs even before training, since virtual tokens precede its texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from unmask.adapters.attach import Attachment
from unmask.adapters.tuning_method import TuningMethod
from unmask.batch import Batch, Feature, Visibility
from unmask.config import check_number_fields
from unmask.heads.classification.sequence_classification import SequenceClassificationHead
from unmask.heads.model import Model
from unmask.model.architecture import Backbone, require_support
from unmask.model.backbones.transformer import Architecture, SourceEncodedTransformer, Transformer
from unmask.model.cache import Cache
from unmask.model.layers.attention.attention import Attention, split_heads
from unmask.model.layers.attention.block_local_mask import GlobalTokens, VirtualTokens
from unmask.model.requested_states import RequestedStates, requested_states

INIT_STD = 0.02
"""Default standard deviation of initialization."""


@dataclass(frozen=True, kw_only=True)
class PrefixTuning(TuningMethod):
    """Keys and values of virtual tokens before the text, in every self-attention of the stack.

    Li and Liang 2021, arXiv:2101.00190, section 4.2. In an encoder-decoder, of the decoder.
    """

    keeps_first_token: ClassVar[bool] = True
    n_virtual_tokens: int = 20
    """Number of virtual tokens, which take up positions of the model."""
    projection_size: int | None = None
    """Hidden size of the reparametrization of the prefix, two linear maps with a tanh between them
    (section 4.3); only the prefix is saved."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        _check(n_virtual_tokens=self.n_virtual_tokens, projection_size=self.projection_size)

    def build(self, model: Model) -> "PrefixTuningModule":
        """Build the prefix of a model."""
        return PrefixTuningModule(self, model)


@dataclass(frozen=True, kw_only=True)
class PromptTuning(TuningMethod):
    """Embeddings of virtual tokens before the text.

    Lester et al. 2021, arXiv:2104.08691, section 2. In an encoder-decoder, before the
    encoder's text.
    """

    n_virtual_tokens: int = 20
    """Number of virtual tokens, which take up positions of the model."""
    init_text: str | None = None
    """A text whose token embeddings initialize the prompt, repeated to its length (section 3.2);
    None: those of tokens drawn from the vocabulary."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        _check(n_virtual_tokens=self.n_virtual_tokens)

    def build(self, model: Model) -> "PromptTuningModule":
        """Build the prompt of a model."""
        return PromptTuningModule(self, model)


def _check(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


class PrefixTuningModule(nn.Module):
    """The keys and values of all layers, as one matrix."""

    supports_row_selection = False

    def __init__(self, spec: PrefixTuning, model: Model) -> None:
        super().__init__()
        self.spec, self.attachment = spec, Attachment()
        self.a = require_attention(model.backbone.decoder_stack).a
        if self.a.layers.widths is not None:
            raise ValueError("prefix tuning needs layers of one width, but heads were removed here")
        width = 2 * self.a.n_layers * self.a.n_key_value_heads * self.a.d_head
        self.vectors = self.table = self.into = self.out = None
        if spec.projection_size is None:
            self.vectors = nn.Parameter(torch.empty(spec.n_virtual_tokens, width))
        else:
            self.table = nn.Parameter(torch.empty(spec.n_virtual_tokens, self.a.d_model))
            self.into = nn.Linear(self.a.d_model, spec.projection_size)
            self.out = nn.Linear(spec.projection_size, width)
        self.initialize()

    def initialize(self) -> None:
        """Initialize all weights from torch's default generator; the paper does not specify it."""
        for weight in self.parameters():
            nn.init.normal_(weight, std=INIT_STD) if weight.dim() == 2 else nn.init.zeros_(weight)

    def keys_values(self) -> Float[Tensor, "p lke"]:
        """Return the prefix: layer by layer a key and a value for each virtual token."""
        if self.table is None or self.into is None or self.out is None:
            assert self.vectors is not None
            return self.vectors
        return self.out(torch.tanh(self.into(self.table)))

    def register_hooks(self, model: Model) -> list[RemovableHandle]:
        """Prepend the prefix to every text of the model's only stack, or of its decoder."""
        stack = require_attention(model.backbone.decoder_stack)
        return [stack.register_forward_pre_hook(self._prepend, with_kwargs=True)]

    def _prepend(
        self, stack: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[()], dict[str, Any]] | None:
        assert isinstance(stack, Transformer)
        arguments = _named_arguments(args, kwargs)
        batch: Batch = arguments["batch"]
        cache: Cache = stack.new_cache() if arguments.get("cache") is None else arguments["cache"]
        if not cache.length:
            cache.set_prefix_length(self.spec.n_virtual_tokens)
            self._fill_cache(stack, cache, len(batch.inputs))
        _check_cache(cache, self.spec.n_virtual_tokens)
        _check_positions_left(self.a, batch, cache.length, self.spec.n_virtual_tokens)
        if batch.position_ids is not None:
            batch = replace(batch, position_ids=batch.position_ids + self.spec.n_virtual_tokens)
        return (), arguments | {"batch": batch, "cache": cache}

    def _fill_cache(self, stack: Transformer, cache: Cache, rows: int) -> None:
        both = self.keys_values().unflatten(-1, (self.a.n_layers, 2, -1)).permute(1, 2, 0, 3)
        for layer, block, each in zip(cache.layers, stack.layers, both, strict=True):
            attention = block.get_submodule("attention")
            assert isinstance(attention, Attention)
            k, v = split_heads(each, attention.d_head)
            layer.extend(k.expand(rows, -1, -1, -1), v.expand(rows, -1, -1, -1))


class PromptTuningModule(nn.Module):
    """The embeddings of the prompt's virtual tokens.

    A head that uses the first column, such as BERT's pooler, uses the prompt's first token. In a
    text of two parts, each is preceded by the prompt.
    """

    supports_row_selection = False

    def __init__(self, spec: PromptTuning, model: Model) -> None:
        super().__init__()
        self.spec, self.attachment = spec, Attachment()
        self.a = require_attention(model.backbone.encoder_stack).a
        self.vectors = nn.Parameter(torch.empty(spec.n_virtual_tokens, self.a.d_embed))
        self._first = any(
            isinstance(head, SequenceClassificationHead) and head.spec.pooling == "first"
            for head in model.heads.values()
        )
        self._awaited = False
        self._two_part_layout: _TwoPartLayout | None = None
        if spec.init_text is None:
            self.initialize_from(
                model, torch.randint(model.vocab_size, (spec.n_virtual_tokens,)).tolist()
            )
        else:  # missing until `initialize_from`
            nn.init.constant_(self.vectors, torch.nan)

    @torch.no_grad()
    def initialize_from(self, model: Model, ids: Sequence[int]) -> None:
        """Initialize with the embeddings of these tokens, repeated to the prompt's length.

        A prompt with `init_text` needs this before its first use, with the text's tokens.

        Raises:
            ValueError: there are none.
        """
        if not ids:
            raise ValueError(f"init_text {self.spec.init_text!r} has no tokens")
        rows = torch.tensor([ids[i % len(ids)] for i in range(self.spec.n_virtual_tokens)])
        table = model.backbone.embedding_table.weight
        self.vectors.copy_(table[rows.to(table.device)])

    def register_hooks(self, model: Model) -> list[RemovableHandle]:
        """Prepend the prompt to every text of the model's only stack, or of its encoder."""
        stack = require_attention(model.backbone.encoder_stack)
        if isinstance(stack, SourceEncodedTransformer):
            raise ValueError("PromptTuning does not support a model with a source encoder")
        hooks = [
            stack.register_forward_pre_hook(self._prepend, with_kwargs=True),
            stack.tokens.register_forward_hook(self._insert_embeddings),
        ]
        if model.architecture.is_encoder_decoder:
            other = require_attention(model.backbone.decoder_stack)
            return [
                *hooks,
                other.register_forward_pre_hook(self._extend_source_visibility, with_kwargs=True),
            ]
        return [*hooks, stack.register_forward_hook(self._drop_prompt_columns, with_kwargs=True)]

    def _prepend(
        self, stack: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[()], dict[str, Any]]:
        if self.spec.init_text is not None and bool(self.vectors.isnan().any()):
            raise ValueError(
                f"init_text is set: give the tokens of {self.spec.init_text!r} to `initialize_from`"
            )
        arguments = _named_arguments(args, kwargs)
        batch: Batch = arguments["batch"]
        cache: Cache | None = arguments.get("cache")
        past = 0 if cache is None else cache.length
        _check_positions_left(
            self.a, batch, past or self.spec.n_virtual_tokens, self.spec.n_virtual_tokens
        )
        if past:
            assert cache is not None
            _check_cache(cache, self.spec.n_virtual_tokens)
            if batch.position_ids is not None:
                batch = replace(batch, position_ids=batch.position_ids + self.spec.n_virtual_tokens)
        else:
            if cache is not None:
                cache.set_prefix_length(self.spec.n_virtual_tokens)
            batch = self._add_prompt_columns(batch)
            self._awaited = True
        return (), arguments | {"batch": batch}

    def _add_prompt_columns(self, batch: Batch) -> Batch:
        """Return the batch with columns for the prompt before each row."""
        n = self.spec.n_virtual_tokens
        self._two_part_layout = (
            None if batch.part_ids is None else _TwoPartLayout.from_parts(batch.part_ids, n)
        )
        if self._two_part_layout is not None:
            return self._two_part_layout.add_prompt_columns(batch)
        place = batch.position_ids
        if place is not None:
            before = torch.arange(n, device=place.device).expand(len(batch.inputs), -1)
            place = torch.cat((before, place + n), 1)
        return Batch(
            inputs=F.pad(batch.inputs, (n, 0)),
            visibility=_extend_visibility(batch.visibility, n),
            position_ids=place,
            segments=None if batch.segments is None else F.pad(batch.segments, (n, 0)),
            features=_prompt_features(
                batch,
                torch.arange(n, device=batch.inputs.device).expand(len(batch.inputs), -1),
                lambda columns: _with_prompt_columns(columns, columns + n, n),
            ),
        )

    def _insert_embeddings(
        self, table: nn.Module, args: tuple[Tensor, ...], out: Float[Tensor, "b t d"]
    ) -> Tensor | None:
        """Insert the prompt's embeddings where `_prepend` made room for them."""
        if not self._awaited:
            return None
        self._awaited = False
        n = self.spec.n_virtual_tokens
        vectors = self.vectors.to(out.dtype).expand(len(out), -1, -1)
        out = torch.cat((vectors, out[:, n:]), 1)
        return (
            out
            if self._two_part_layout is None
            else _scatter_columns(out, self._two_part_layout.second_part_columns, vectors)
        )

    def _drop_prompt_columns(
        self,
        stack: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Float[Tensor, "b t d"],
    ) -> Tensor | None:
        """Return the columns of the text, the first one from the prompt if heads use it."""
        cache: Cache | None = kwargs.get("cache")
        n = self.spec.n_virtual_tokens
        if cache is not None and cache.length > out.shape[1]:  # the continuation of the text
            return None
        if self._two_part_layout is not None:
            return out.gather(
                1, self._two_part_layout.text_columns[..., None].expand(-1, -1, out.shape[-1])
            )
        if self._first:
            return torch.cat((out[:, :1], out[:, n + 1 :]), 1)
        return out[:, n:]

    def _extend_source_visibility(
        self, stack: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[()], dict[str, Any]]:
        """Extend the encoder visibility of the decoder by the prompt."""
        arguments = _named_arguments(args, kwargs)
        visibility: Visibility | None = arguments.get("encoder_visibility")
        wider = (
            None
            if visibility is None
            else _extend_visibility(visibility, self.spec.n_virtual_tokens)
        )
        return (), arguments | {"encoder_visibility": wider}


@dataclass(frozen=True)
class _TwoPartLayout:
    """Rows of texts in two parts, with room for a prompt before each part."""

    n_virtual_tokens: int
    """Number of virtual tokens."""
    text_columns: Int[Tensor, "b t"]
    """Column of each token of the text."""
    second_part_columns: Int[Tensor, "b n"]
    """Columns of the prompt before the second part."""

    @staticmethod
    def from_parts(parts: Int[Tensor, "b t"], n: int) -> "_TwoPartLayout":
        """Make room for `n` virtual tokens before each part; padding stays last.

        Raises:
            ValueError: a row holds several texts.
        """
        if parts.device.type == "cpu" and int(parts.max()) > 1:
            raise ValueError("virtual tokens need one text per row; this batch packs several")
        column = torch.arange(parts.shape[1], device=parts.device)
        first = (parts == 0).sum(1, keepdim=True)
        before = torch.arange(n, device=parts.device)
        return _TwoPartLayout(n, column + n * (1 + (parts != 0).long()), n + first + before)

    def add_prompt_columns(self, batch: Batch) -> Batch:
        """Return the batch with columns for the prompts."""
        assert batch.part_ids is not None
        assert batch.position_ids is not None
        n, before = (
            self.n_virtual_tokens,
            torch.arange(self.n_virtual_tokens, device=self.text_columns.device),
        )
        rows, width = self.text_columns.shape
        empty = batch.inputs.new_zeros((rows, width + 2 * n))
        document = _scatter_columns(empty + 1, self.text_columns, batch.part_ids)
        document[:, :n] = 0
        place = _scatter_columns(empty, self.text_columns, batch.position_ids + n)
        place[:, :n] = before
        return Batch(
            inputs=_scatter_columns(empty, self.text_columns, batch.inputs),
            visibility=replace(batch.visibility, document=document),
            position_ids=_scatter_columns(place, self.second_part_columns, before.expand(rows, -1)),
            segments=None
            if batch.segments is None
            else _scatter_columns(empty, self.text_columns, batch.segments),
            features=_prompt_features(
                batch,
                torch.cat((before.expand(rows, -1), self.second_part_columns), 1),
                self._global_positions,
            ),
        )

    def _global_positions(self, columns: Int[Tensor, "b g"]) -> Int[Tensor, "b _"]:
        """Return the new global positions; those of both prompts are global, too."""
        moved = self.text_columns.gather(1, columns.clamp(min=0))
        return torch.cat(
            (_with_prompt_columns(columns, moved, self.n_virtual_tokens), self.second_part_columns),
            1,
        )


def _prompt_features(
    batch: Batch,
    virtual_positions: Int[Tensor, "b p"],
    moved: Callable[[Int[Tensor, "b g"]], Int[Tensor, "b _"]],
) -> tuple[Feature, ...]:
    """Return the features of a batch with a prompt, with moved global positions."""
    features: list[Feature] = [VirtualTokens(virtual_positions)]
    if (global_tokens := batch.feature(GlobalTokens)) is not None:
        features.append(GlobalTokens(moved(global_tokens.positions)))
    return (*features, RequestedStates(all_layers=requested_states(batch).all_layers))


def _with_prompt_columns(
    columns: Int[Tensor, "b g"], moved: Int[Tensor, "b g"], n: int
) -> Int[Tensor, "b _"]:
    """Return the first `n` columns, and the new columns of global positions; -1 stays -1.

    The first virtual token of a prompt may be a head's input, and all describe the task.
    """
    before = torch.arange(n, device=columns.device).expand(len(columns), -1)
    return torch.cat((before, moved.masked_fill(columns < 0, -1)), 1)


def _scatter_columns(
    target: Shaped[Tensor, "b w ..."],
    columns: Int[Tensor, "b n"],
    values: Shaped[Tensor, "b n ..."],
) -> Shaped[Tensor, "b w ..."]:
    """Write values into columns of each row."""
    index = columns if target.ndim == 2 else columns[..., None].expand(-1, -1, target.shape[-1])
    return target.scatter(1, index, values)


def n_virtual_tokens_of(spec: object) -> int:
    """Return the number of positions of an adapter's virtual tokens."""
    return spec.n_virtual_tokens if isinstance(spec, PrefixTuning | PromptTuning) else 0


def n_positions_taken(model: Model, stack: Backbone) -> int:
    """Return the number of positions of virtual tokens before the texts of a model's stack.

    Only active adapters count.
    """
    active = {
        PrefixTuningModule: model.backbone.decoder_stack,
        PromptTuningModule: model.backbone.encoder_stack,
    }
    return sum(
        n_virtual_tokens_of(module.spec)
        for module in model.adapters.values()
        if isinstance(module, PrefixTuningModule | PromptTuningModule)
        and module.attachment.hooks
        and active[type(module)] is stack
    )


def max_text_length(model: Model, stack: Backbone) -> int | None:
    """Return the maximum text length of a model's stack in tokens; None: unlimited."""
    most = stack.a.max_positions
    return None if most is None else max(most - n_positions_taken(model, stack), 0)


def require_attention(stack: Backbone) -> Transformer:
    """Return a stack that supports virtual tokens before a text.

    Raises:
        ValueError: it does not.
    """
    require_support(stack, "virtual_tokens")
    return cast(Transformer, stack)


def _named_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Name the arguments of a stack's forward."""
    names = ("batch", "cache", "encoder_hidden_states", "encoder_visibility")
    return dict(zip(names, args, strict=False)) | dict(kwargs)


def _extend_visibility(visibility: Visibility, n: int) -> Visibility:
    """Return a visibility with `n` more first columns, visible to all.

    Raises:
        ValueError: a row holds several texts, which would share one prompt.
    """
    rank, document = visibility.rank, visibility.document
    if rank is not None:
        rank = torch.cat((rank.amin(1, keepdim=True).expand(-1, n), rank), 1)
    if document is not None:
        # not on an accelerator, which would have to synchronize
        if document.device.type == "cpu" and int(document.max()) > 0:
            raise ValueError("virtual tokens need one text per row; this batch packs several")
        document = F.pad(document, (n, 0))
    return replace(visibility, rank=rank, document=document)


def _check_cache(cache: Cache, length: int) -> None:
    if cache.prefix_length != length:
        raise ValueError(
            f"this cache was filled after {cache.prefix_length} virtual tokens, now there are "
            f"{length}"
        )


def _check_positions_left(a: Architecture, batch: Batch, past: int, length: int) -> None:
    """Check that a text and the virtual tokens before it fit the model's positions."""
    most = a.max_positions
    if most is None:
        return
    end = past + batch.inputs.shape[1]
    if batch.position_ids is not None:
        end = int(batch.position_ids.max()) + 1 + length
    if end > most:
        raise ValueError(
            f"{length} virtual tokens and a text of {end - length} tokens need {end} positions, "
            f"but the model has only {most}"
        )
