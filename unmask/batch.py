"""The types that travel through everything: Tokens, Example, Batch, Visibility and Feature.

Tokens is a text, Example a text after an objective was applied, Batch many of these, Visibility who
sees whom, Feature what one mechanism needs beside that.

Shapes are written with one letter each, here and everywhere: `b` batch, `t` queries or decoder
tokens, `s` keys or encoder tokens, `h` heads, `g` key/value heads, `e` head width, `d` model width,
`f` feed-forward width, `v` vocabulary, `n` target positions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, Shaped

if TYPE_CHECKING:
    import torch

IGNORE_INDEX = -100
"""Target of positions without a loss; torch's convention."""

WORD_START, SENTENCE_START, PARAGRAPH_START = 1, 2, 4
"""Bits of `Tokens.boundaries`: the token begins a word, a sentence, a paragraph."""
RANDOM_TOKEN = 8
"""A further bit: a noise has put the token in the place of others."""


@dataclass(frozen=True)
class Tokens:
    """A text as the tokenizer sees it, without special tokens."""

    ids: Int[np.ndarray, "t"]
    boundaries: Integer[np.ndarray, "t"]
    """What begins at each token: WORD | SENTENCE | PARAGRAPH (uint8)."""
    other_text: "Tokens | None" = None
    """A text from elsewhere in the corpus, for objectives that ask about two texts."""
    previous_token: int | None = None
    """The token before a piece of a stream. None: the text starts here, or the token is unknown."""

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, span: slice) -> "Tokens":
        return Tokens(self.ids[span], self.boundaries[span])

    def reversed(self) -> "Tokens":
        """Read the text from its end: a token then begins what it ended."""
        first = np.full(
            min(len(self), 1), WORD_START | SENTENCE_START | PARAGRAPH_START, self.boundaries.dtype
        )
        other = None if self.other_text is None else self.other_text.reversed()
        return Tokens(self.ids[::-1].copy(), np.concatenate((first, self.boundaries[:0:-1])), other)


FeatureT = TypeVar("FeatureT", bound="Feature")
FeaturedT = TypeVar("FeaturedT", bound="Featured")


@dataclass(frozen=True)
class Feature:
    """What one mechanism needs of a text beside what most models read.

    A feature is defined beside the code of its mechanism, and travels in `Example.features` (arrays
    of one text) and `Batch.features` (tensors of all rows). What collates, pads, moves and checks
    batches knows this protocol and no feature by name.
    """

    column_fields: ClassVar[Mapping[str, float]] = {}
    """Fields with a number for each column [*b t], and the number that fills padding."""
    is_for_losses: ClassVar[bool] = False
    """Whether losses alone read it, so that hidden states and logits are the same without it."""

    @classmethod
    def collate(cls, rows: "ExampleRows") -> "Feature | None":
        """Return the feature of a batch, in arrays; None: models do not read it.

        Unless overridden, fields are padded; texts without the feature have what fills padding.
        """

        def values_of(example: Example, name: str, padding: int | float) -> Shaped[np.ndarray, "t"]:
            own = example.feature(cls)
            return np.full(len(example.inputs), padding) if own is None else getattr(own, name)

        return cls(
            **{
                name: rows.fill(lambda e, name=name, pad=pad: values_of(e, name, pad), pad)
                for name, pad in cls.column_fields.items()
            }
        )

    def check(self, batch: "Batch") -> None:
        """Check that the feature fits the batch.

        Raises:
            ValueError: it does not.
        """
        for name in self.column_fields:
            _check_columns(name, getattr(self, name), batch.inputs)

    def map(self: FeatureT, change: Callable[[Any], Any]) -> FeatureT:
        """Return the same with another value of each field."""
        return replace(self, **{f.name: change(getattr(self, f.name)) for f in fields(self)})

    def pad_columns(self: FeatureT, n: int) -> FeatureT:
        """Return the same for `n` more columns of padding."""
        from torch.nn import functional

        known = {name: getattr(self, name) for name in self.column_fields}
        return replace(
            self,
            **{
                name: functional.pad(x, (0, n), value=self.column_fields[name])
                for name, x in known.items()
                if x is not None
            },
        )


@dataclass(frozen=True, kw_only=True)
class Featured:
    """An example or a batch with features, at most one of each kind."""

    features: tuple[Feature, ...] = ()

    def feature(self, kind: type[FeatureT]) -> FeatureT | None:
        """Return the feature of a kind. None: there is none."""
        for feature in self.features:
            if isinstance(feature, kind):
                return feature
        return None

    def has(self, kind: type[Feature]) -> bool:
        """Whether there is a feature of a kind."""
        return self.feature(kind) is not None

    def with_feature(self: FeaturedT, feature: Feature) -> FeaturedT:
        """Return the same with a feature, in place of the one of its kind."""
        return replace(self, features=(*self.without(type(feature)).features, feature))

    def without(self: FeaturedT, kind: type[Feature]) -> FeaturedT:
        """Return the same without the feature of a kind."""
        return replace(self, features=tuple(f for f in self.features if not isinstance(f, kind)))


@dataclass(frozen=True, kw_only=True)
class Example(Featured):
    """One text after an objective was applied, unpadded, NumPy."""

    inputs: Int[np.ndarray, "t"]
    """Token ids of the decoder, or of the only stack there is."""
    targets: Int[np.ndarray, "t"]
    """The token to be predicted at each position; IGNORE_INDEX where there is none."""
    rank: Int[np.ndarray, "t"] | None = None
    """j is visible to i iff rank[j] <= rank[i]. None: everything is visible."""
    source: Int[np.ndarray, "s"] | None = None
    """Token ids of the encoder, where there are two stacks."""
    position_ids: Int[np.ndarray, "t"] | None = None
    """The position of each token, where it is not its index: a decoder that predicts a part of what
    an encoder reads (MASS). None: 0, 1, ..."""
    segments: Int[np.ndarray, "t"] | None = None
    """Which of two texts a token belongs to, 0 or 1; models without segments do not read it. A
    `SpecialTokenIds.summary` gets a segment of its own in collation."""
    part_ids: Int[np.ndarray, "t"] | None = None
    """0, then 1, and so on: parts of a text that do not see each other; positions start anew in
    each. None: the text is one."""
    label: "int | float | Int[np.ndarray, 't'] | Float[np.ndarray, 'labels'] | None" = None
    """Of the whole text: next sentence, class, score; or one label a token; or for each of several
    labels whether it holds, 1 or 0 (floats, also where there are as many as tokens)."""

    def visible(self, *, excluding_self: bool = False) -> Bool[np.ndarray, "t t"]:
        """Return which tokens (columns) each token (row) sees.

        `excluding_self`: rank[j] < rank[i], as for a stream that may not see its own token.
        """
        n = len(self.inputs)
        rank = np.zeros(n, np.int64) if self.rank is None else self.rank
        part = np.zeros(n, np.int64) if self.part_ids is None else self.part_ids
        before = rank[None] < rank[:, None] if excluding_self else rank[None] <= rank[:, None]
        return before & (part[None] == part[:, None])


@dataclass(frozen=True)
class ExampleRows:
    """Examples laid out in rows, each of one or several."""

    groups: Sequence[Sequence[Example]]
    """The examples of each row."""
    width: int
    """Columns of a row, padding included."""

    @property
    def examples(self) -> list[Example]:
        """All examples."""
        return [example for group in self.groups for example in group]

    @property
    def is_packed(self) -> bool:
        """Whether a row has several examples."""
        return any(len(group) > 1 for group in self.groups)

    def fill(
        self, values_of: Callable[[Example], Shaped[np.ndarray, "t"]], padding: int | float
    ) -> Shaped[np.ndarray, "b t"]:
        """Lay out numbers of each example from the left; in float32 where `padding` is a float."""
        kind = np.float32 if isinstance(padding, float) else np.int64
        out = np.full((len(self.groups), self.width), padding, kind)
        for row, group in zip(out, self.groups, strict=True):
            end = 0
            for example in group:
                values = values_of(example)
                row[end : end + len(values)] = values
                end += len(values)
        return out


@dataclass(frozen=True)
class Visibility:
    """Key j is visible to query i iff they share a document and rank[j] <= rank[i].

    Both relations are preorders, hence transitive: no depth of stacking shows a token what one
    layer may not.
    """

    rank: "Int[torch.Tensor, 'b s'] | None" = None
    """None with causal=False: everyone sees everyone."""
    document: "Int[torch.Tensor, 'b s'] | None" = None
    """Packed texts do not see each other; padding is a document of its own. None: one document a
    row, no padding."""
    causal: bool = False
    """The rank is the place itself, known without reading a tensor, so kernels need no mask."""

    def with_prefix(self, n: int) -> "Visibility":
        """Return the same of tokens behind `n` others, which all of them see, padding apart."""
        import torch

        if not n:
            return self
        pad, rank, document = torch.nn.functional.pad, self.rank, self.document
        return Visibility(
            rank=None if rank is None else pad(rank, (n, 0), value=-1),
            document=None if document is None else pad(document, (n, 0), value=0),
            causal=self.causal,
        )

    def of_last(self, n: int) -> "Visibility":
        """Return the same of the last n tokens."""
        rank, document = self.rank, self.document
        return Visibility(
            rank=None if rank is None else rank[:, rank.shape[1] - n :],
            document=None if document is None else document[:, document.shape[1] - n :],
            causal=self.causal,
        )

    def to_mask(
        self,
        n_queries: int,
        n_keys: int,
        *,
        excluding_self: bool = False,
        near: "Bool[torch.Tensor, '#b queries keys'] | None" = None,
        device: "torch.device | None" = None,
    ) -> "Bool[torch.Tensor, 'b 1 queries keys'] | None":
        """Return which of `n_keys` tokens the last `n_queries` of them see.

        Args:
            n_queries: rows of the mask.
            n_keys: columns of the mask.
            excluding_self: rank[j] < rank[i]: a stream that may not see its own token.
            near: a further restriction, as that of a layer's window.
            device: of a mask that depends on neither ranks nor documents.

        Returns:
            None where a kernel needs no mask. Causal visibility alone is not written out (`causal`
            tells the kernel), unless `excluding_self`, `near` or a document needs it.
        """
        import torch

        visible = None
        if self.rank is not None:
            q, k = self.rank[:, n_keys - n_queries :, None], self.rank[:, None, :]
            visible = k < q if excluding_self else k <= q
        if self.document is not None:
            same = self.document[:, n_keys - n_queries :, None] == self.document[:, None, :]
            visible = same if visible is None else visible & same
        if near is not None:
            visible = near if visible is None else visible & near
        if self.causal and (visible is not None or excluding_self):
            column = torch.arange(n_keys, device=device if visible is None else visible.device)
            q, k = column[n_keys - n_queries :, None], column[None, :]
            order = (k < q if excluding_self else k <= q)[None]
            visible = order if visible is None else visible & order
        return None if visible is None else visible[:, None]


@dataclass(frozen=True, kw_only=True)
class Batch(Featured):
    """Examples padded or packed together, on a device. Every model takes exactly this."""

    inputs: "Int[torch.Tensor, 'b t']"
    visibility: Visibility = Visibility()
    targets: "Int[torch.Tensor, 'b t'] | None" = None
    """None: no tokens are predicted."""
    target_positions: "Int[torch.Tensor, 'n'] | None" = None
    """Where targets are not IGNORE_INDEX, in the flattened [b t], counted before the device sees
    them. None with targets: everywhere."""
    position_ids: "Int[torch.Tensor, 'b t'] | None" = None
    """The position of a token in its own text; None: its column."""
    source: "Int[torch.Tensor, 'b s'] | None" = None
    source_visibility: Visibility = Visibility()
    segments: "Int[torch.Tensor, 'b t'] | None" = None
    part_ids: "Int[torch.Tensor, 'b t'] | None" = None
    """Of texts in parts: the number of each part in its row, -1 in padding. Those that follow each
    other in a text have numbers that do, and between the texts of a row one number is left out.
    These are the documents of the visibility, too. None: texts are whole."""
    last_token_positions: "Int[torch.Tensor, 'b'] | None" = None
    """The column of each row's last token that is not padding; None: the last column."""
    labels: "Shaped[torch.Tensor, 'b ...'] | None" = None

    def __post_init__(self) -> None:
        """Check that tensors fit each other.

        Checked always, not by annotations in tests alone: without torch being imported these cannot
        be resolved.
        """
        for name in ("targets", "position_ids", "segments", "part_ids"):
            _check_columns(name, getattr(self, name), self.inputs)
        for feature in self.features:
            feature.check(self)

    def is_token(self) -> "Bool[torch.Tensor, 'b t']":
        """Return which tokens are not padding."""
        import torch

        if self.visibility.document is not None:
            return self.visibility.document >= 0
        if (
            self.last_token_positions is not None
        ):  # padding comes after texts whose tokens see those before only
            return (
                torch.arange(self.inputs.shape[1], device=self.last_token_positions.device)
                <= self.last_token_positions[:, None]
            )
        return torch.ones_like(self.inputs, dtype=torch.bool)

    def to(self, device: "torch.device | str") -> "Batch":
        """Move every tensor to `device`."""
        import torch

        def move(x: object) -> object:
            if isinstance(x, torch.Tensor):
                return x.to(device, non_blocking=True)
            if isinstance(x, Visibility):
                return replace(x, **{k: move(v) for k, v in vars(x).items()})
            return x

        moved = {k: move(v) for k, v in vars(self).items()}
        return replace(self, **moved | {"features": tuple(f.map(move) for f in self.features)})


def _check_columns(name: str, tensor: Any, inputs: Any) -> None:
    if tensor is not None and tensor.shape[-1] != inputs.shape[-1]:
        raise ValueError(f"{name} has shape {list(tensor.shape)}, inputs {list(inputs.shape)}")
