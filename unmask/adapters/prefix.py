"""Prefix tuning and prompt tuning: learned vectors that stand before the text.

A model to which they are attached does not behave as before, not even before they have learned:
its texts have something before them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from unmask.adapters.attach import Attachment
from unmask.batch import Batch, Visibility
from unmask.heads.labels import LabelsHead
from unmask.heads.model import Model, Stack
from unmask.model.architecture import Architecture
from unmask.model.attention import Attention, in_heads
from unmask.model.cache import Cache
from unmask.model.canine import Canine
from unmask.model.convolutional import Convolutional
from unmask.model.recurrent import Recurrent
from unmask.model.transformer import EncoderDecoder, Transformer, Translated
from unmask.published.card import longest

STD = 0.02
"""Of the numbers that vectors begin with where nothing better is known."""


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """Keys and values of learned tokens before the text, in every self-attention of the stack.

    Li and Liang 2021, arXiv:2101.00190, section 4.2. Of an encoder-decoder in the decoder.
    """

    length: int = 20
    """Tokens of the prefix; they use up as many of the model's positions."""
    hidden: int | None = None
    """Learn the prefix through two linear maps with a tanh between them, of this inner width
    (section 4.3); what is kept in the end is the prefix alone."""

    def __post_init__(self) -> None:
        _check(length=self.length, hidden=self.hidden)

    def build(self, model: Model) -> "PrefixModule":
        """Build the prefix of a model."""
        return PrefixModule(self, model)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """Learned token vectors before the text: Lester et al. 2021, arXiv:2104.08691, section 2.

    Of an encoder-decoder before the encoder's text.
    """

    length: int = 20
    """Tokens of the prompt; they use up as many of the model's positions."""
    words: str | None = None
    """A text whose tokens' vectors the prompt begins with, repeated to its length (section 3.2);
    None: vectors of tokens drawn from the vocabulary."""

    def __post_init__(self) -> None:
        _check(length=self.length)

    def build(self, model: Model) -> "PromptModule":
        """Build the prompt of a model."""
        return PromptModule(self, model)


def _check(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


class PrefixModule(nn.Module):
    """The keys and values of all layers, as one matrix."""

    mixes = False

    def __init__(self, spec: Prefix, model: Model) -> None:
        super().__init__()
        _attending(decoder(model))
        self.spec, self.attachment = spec, Attachment()
        self.a = model.stack
        width = 2 * self.a.n_layers * self.a.groups * self.a.d_head
        self.vectors = self.table = self.into = self.out = None
        if spec.hidden is None:
            self.vectors = nn.Parameter(torch.empty(spec.length, width))
        else:
            self.table = nn.Parameter(torch.empty(spec.length, self.a.d_model))
            self.into = nn.Linear(self.a.d_model, spec.hidden)
            self.out = nn.Linear(spec.hidden, width)
        self.initialize()

    def initialize(self) -> None:
        """Fill all weights from torch's default generator; the paper does not say how."""
        for weight in self.parameters():
            nn.init.normal_(weight, std=STD) if weight.dim() == 2 else nn.init.zeros_(weight)

    def prefix(self) -> Float[Tensor, "p lke"]:
        """Return what stands before the text: layer by layer a key and a value for each token."""
        if self.table is None or self.into is None or self.out is None:
            assert self.vectors is not None
            return self.vectors
        return self.out(torch.tanh(self.into(self.table)))

    def hook(self, model: Model) -> list[RemovableHandle]:
        """Stand before every text that the model's only stack, or its decoder, reads."""
        stack = _attending(decoder(model))
        return [stack.register_forward_pre_hook(self._before, with_kwargs=True)]

    def _before(
        self, stack: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[()], dict[str, Any]] | None:
        assert isinstance(stack, Transformer)
        given = _named(args, kwargs)
        batch: Batch = given["batch"]
        cache: Cache = stack.new_cache() if given.get("cache") is None else given["cache"]
        if not cache.length:
            cache.begin_with(self.spec.length)
            self._fill(stack, cache, len(batch.inputs))
        _check_cache(cache, self.spec.length)
        _check_length(self.a, batch, cache.length, self.spec.length)
        if batch.place is not None:
            batch = replace(batch, place=batch.place + self.spec.length)
        return (), given | {"batch": batch, "cache": cache}

    def _fill(self, stack: Transformer, cache: Cache, rows: int) -> None:
        both = self.prefix().unflatten(-1, (self.a.n_layers, 2, -1)).permute(1, 2, 0, 3)
        for layer, block, each in zip(cache.layers, stack.layers, both, strict=True):
            attention = block.get_submodule("attention")
            assert isinstance(attention, Attention)
            k, v = in_heads(each, attention.d_head)
            layer.extend(k.expand(rows, -1, -1, -1), v.expand(rows, -1, -1, -1))


class PromptModule(nn.Module):
    """The vectors of the prompt's tokens.

    Where a head reads a text's first column, that is the prompt's first token: BERT's pooler sees
    what stands first. Of a text in two parts, each has the prompt before it.
    """

    mixes = False

    def __init__(self, spec: Prompt, model: Model) -> None:
        super().__init__()
        self.spec, self.attachment = spec, Attachment()
        self.a = _attending(reader(model)).a
        self.vectors = nn.Parameter(torch.empty(spec.length, self.a.d_embed))
        self._first = any(
            isinstance(head, LabelsHead) and head.spec.pool == "first"
            for head in model.heads.values()
        )
        self._awaited = False
        self._apart: _Apart | None = None
        if spec.words is None:
            self.begin(model, torch.randint(model.vocab_size, (spec.length,)).tolist())
        else:  # no vector is one, until `begin`
            nn.init.constant_(self.vectors, torch.nan)

    @torch.no_grad()
    def begin(self, model: Model, ids: Sequence[int]) -> None:
        """Begin with the vectors of these tokens, repeated to the prompt's length.

        A prompt that is to begin with `words` needs this before its first use: their tokens are
        the tokenizer's business.

        Raises:
            ValueError: there are none.
        """
        if not ids:
            raise ValueError(
                f"the words {self.spec.words!r} that a prompt begins with have no token"
            )
        rows = torch.tensor([ids[i % len(ids)] for i in range(self.spec.length)])
        table = model.backbone.table.weight
        self.vectors.copy_(table[rows.to(table.device)])

    def hook(self, model: Model) -> list[RemovableHandle]:
        """Stand before every text that the model's only stack, or its encoder, reads."""
        stack = _attending(reader(model))
        if isinstance(stack, Translated):
            raise ValueError(
                "a prompt stands before texts of the model's own vocabulary, and this model's "
                "sources have another, with an encoder of its own"
            )
        hooks = [
            stack.register_forward_pre_hook(self._before, with_kwargs=True),
            stack.tokens.register_forward_hook(self._vectors),
        ]
        if isinstance(model.backbone, EncoderDecoder):
            other = model.backbone.decoder
            return [*hooks, other.register_forward_pre_hook(self._remember, with_kwargs=True)]
        return [*hooks, stack.register_forward_hook(self._after, with_kwargs=True)]

    def _before(
        self, stack: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[()], dict[str, Any]]:
        if self.spec.words is not None and bool(self.vectors.isnan().any()):
            raise ValueError(
                f"the prompt shall begin with the words {self.spec.words!r}: give it their tokens "
                "(`begin`)"
            )
        given = _named(args, kwargs)
        batch: Batch = given["batch"]
        cache: Cache | None = given.get("cache")
        past = 0 if cache is None else cache.length
        _check_length(self.a, batch, past or self.spec.length, self.spec.length)
        if past:
            assert cache is not None
            _check_cache(cache, self.spec.length)
            if batch.place is not None:
                batch = replace(batch, place=batch.place + self.spec.length)
        else:
            if cache is not None:
                cache.begin_with(self.spec.length)
            batch = self._wider(batch)
            self._awaited = True
        return (), given | {"batch": batch}

    def _wider(self, batch: Batch) -> Batch:
        """Return the batch with columns for the prompt before each row."""
        n = self.spec.length
        self._apart = None if batch.parts is None else _Apart.of(batch.parts, n)
        if self._apart is not None:
            return self._apart.wider(batch)
        place = batch.place
        if place is not None:
            before = torch.arange(n, device=place.device).expand(len(batch.inputs), -1)
            place = torch.cat((before, place + n), 1)
        return Batch(
            inputs=F.pad(batch.inputs, (n, 0)),
            visibility=_wider(batch.visibility, n),
            place=place,
            segments=None if batch.segments is None else F.pad(batch.segments, (n, 0)),
            wide=None if batch.wide is None else _first_too(batch.wide, batch.wide + n, n),
            before=torch.arange(n, device=batch.inputs.device).expand(len(batch.inputs), -1),
            all_layers=batch.all_layers,
        )

    def _vectors(
        self, table: nn.Module, args: tuple[Tensor, ...], out: Float[Tensor, "b t d"]
    ) -> Tensor | None:
        """Put the prompt's vectors where `_before` made room for them."""
        if not self._awaited:
            return None
        self._awaited = False
        n = self.spec.length
        vectors = self.vectors.to(out.dtype).expand(len(out), -1, -1)
        out = torch.cat((vectors, out[:, n:]), 1)
        return out if self._apart is None else _put(out, self._apart.second, vectors)

    def _after(
        self,
        stack: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Float[Tensor, "b t d"],
    ) -> Tensor | None:
        """Return the columns of the text, the first of them the prompt's where heads read it."""
        cache: Cache | None = kwargs.get("cache")
        n = self.spec.length
        if cache is not None and cache.length > out.shape[1]:  # what followed the text
            return None
        if self._apart is not None:
            return out.gather(1, self._apart.text[..., None].expand(-1, -1, out.shape[-1]))
        if self._first:
            return torch.cat((out[:, :1], out[:, n + 1 :]), 1)
        return out[:, n:]

    def _remember(
        self, stack: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[()], dict[str, Any]]:
        """Tell the decoder that what the encoder read is longer."""
        given = _named(args, kwargs)
        seen: Visibility | None = given.get("memory_visibility")
        wider = None if seen is None else _wider(seen, self.spec.length)
        return (), given | {"memory_visibility": wider}


@dataclass(frozen=True)
class _Apart:
    """Rows of texts in two parts, with room for a prompt before each part."""

    length: int
    """Tokens of the prompt."""
    text: Int[Tensor, "b t"]
    """The column of each token of the text."""
    second: Int[Tensor, "b n"]
    """The columns of the prompt before the second part."""

    @staticmethod
    def of(parts: Int[Tensor, "b t"], n: int) -> "_Apart":
        """Make room for `n` tokens; padding stays behind all.

        Raises:
            ValueError: a row holds several texts.
        """
        if parts.device.type == "cpu" and int(parts.max()) > 1:
            raise ValueError("a prompt stands before one text a row; this batch packs several")
        column = torch.arange(parts.shape[1], device=parts.device)
        first = (parts == 0).sum(1, keepdim=True)
        before = torch.arange(n, device=parts.device)
        return _Apart(n, column + n * (1 + (parts != 0).long()), n + first + before)

    def wider(self, batch: Batch) -> Batch:
        """Return the batch with columns for the prompts."""
        assert batch.parts is not None
        assert batch.place is not None
        n, before = self.length, torch.arange(self.length, device=self.text.device)
        rows, width = self.text.shape
        empty = batch.inputs.new_zeros((rows, width + 2 * n))
        document = _put(empty + 1, self.text, batch.parts)
        document[:, :n] = 0
        place = _put(empty, self.text, batch.place + n)
        place[:, :n] = before
        return Batch(
            inputs=_put(empty, self.text, batch.inputs),
            visibility=replace(batch.visibility, document=document),
            place=_put(place, self.second, before.expand(rows, -1)),
            segments=None if batch.segments is None else _put(empty, self.text, batch.segments),
            wide=None if batch.wide is None else self._wide(batch.wide),
            before=torch.cat((before.expand(rows, -1), self.second), 1),
            all_layers=batch.all_layers,
        )

    def _wide(self, columns: Int[Tensor, "b g"]) -> Int[Tensor, "b _"]:
        """Return where wide tokens stand now; those of both prompts are wide, too."""
        moved = self.text.gather(1, columns.clamp(min=0))
        return torch.cat((_first_too(columns, moved, self.length), self.second), 1)


def _first_too(
    columns: Int[Tensor, "b g"], moved: Int[Tensor, "b g"], n: int
) -> Int[Tensor, "b _"]:
    """Let the first `n` columns be wide, and those that tokens have moved to; -1 stays -1.

    Of a prompt's tokens the first is what a head may read, and all stand for the task.
    """
    before = torch.arange(n, device=columns.device).expand(len(columns), -1)
    return torch.cat((before, moved.masked_fill(columns < 0, -1)), 1)


def _put(
    into: Shaped[Tensor, "b w ..."], columns: Int[Tensor, "b n"], what: Shaped[Tensor, "b n ..."]
) -> Shaped[Tensor, "b w ..."]:
    """Put something into columns of each row."""
    index = columns if into.ndim == 2 else columns[..., None].expand(-1, -1, into.shape[-1])
    return into.scatter(1, index, what)


def places_before(spec: object) -> int:
    """Return how many places before a text an adapter's learned tokens take."""
    return spec.length if isinstance(spec, Prefix | Prompt) else 0


def taken(model: Model, stack: Stack) -> int:
    """Return how many places learned tokens take before the texts of a model's stack.

    Those of adapters that act.
    """
    here = {PrefixModule: decoder(model), PromptModule: reader(model)}
    return sum(
        places_before(module.spec)
        for module in model.adapters.values()
        if isinstance(module, PrefixModule | PromptModule)
        and module.attachment.hooks
        and here[type(module)] is stack
    )


def room(model: Model, stack: Stack) -> int | None:
    """Return how many tokens a text of a model's stack may have; None: its places do not end."""
    most = longest(stack.a)
    return None if most is None else max(most - taken(model, stack), 0)


def decoder(model: Model) -> Stack:
    """Return the only stack, or the decoder of an encoder-decoder."""
    backbone = model.backbone
    return backbone.decoder if isinstance(backbone, EncoderDecoder) else backbone


def reader(model: Model) -> Stack:
    """Return the stack that reads texts: the only one, or the encoder of an encoder-decoder."""
    backbone = model.backbone
    return backbone.encoder if isinstance(backbone, EncoderDecoder) else backbone


def _attending(stack: Stack) -> Transformer:
    """Return a stack whose attention reads what stands before a text.

    Raises:
        ValueError: it has none.
    """
    if isinstance(stack, Canine):
        raise ValueError(
            "learned tokens cannot stand before CANINE's texts, whose characters are read in "
            "blocks; LoRA and bottlenecks can be attached"
        )
    if isinstance(stack, Recurrent | Convolutional):
        raise ValueError(
            "learned tokens cannot stand before the texts of a network that has no attention"
        )
    return stack


def _named(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Name the arguments of a stack's forward."""
    names = ("batch", "cache", "memory", "memory_visibility")
    return dict(zip(names, args, strict=False)) | dict(kwargs)


def _wider(visibility: Visibility, n: int) -> Visibility:
    """Let all see `n` columns more, which stand first.

    Raises:
        ValueError: a row holds several texts: one prompt cannot read them apart.
    """
    rank, document = visibility.rank, visibility.document
    if rank is not None:
        rank = torch.cat((rank.amin(1, keepdim=True).expand(-1, n), rank), 1)
    if document is not None:
        # not on an accelerator, which would have to wait for the answer
        if document.device.type == "cpu" and int(document.max()) > 0:
            raise ValueError("a prompt stands before one text a row; this batch packs several")
        document = F.pad(document, (n, 0))
    return replace(visibility, rank=rank, document=document)


def _check_cache(cache: Cache, length: int) -> None:
    if cache.prefix != length:
        raise ValueError(
            f"this cache was filled behind {cache.prefix} learned tokens, now there are {length}"
        )


def _check_length(a: Architecture, batch: Batch, past: int, length: int) -> None:
    """Refuse a text that, with what stands before it, has no places left."""
    most = longest(a)
    if most is None:
        return
    end = past + batch.inputs.shape[1]
    if batch.place is not None:
        end = int(batch.place.max()) + 1 + length
    if end > most:
        raise ValueError(
            f"{length} learned tokens and a text of {end - length} tokens need {end} positions, "
            f"but the model has only {most}"
        )
