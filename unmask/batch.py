"""The types that travel through everything: Tokens, Example, Batch, Visibility and Memory.

Tokens is a text, Example a text after hiding, Batch many of these, Visibility who sees whom, Memory
what was said of the texts before.

Shapes are written with one letter each, here and everywhere: `b` batch, `t` queries or decoder
tokens, `s` keys or encoder tokens, `h` heads, `g` key/value heads, `e` head width, `d` model width,
`f` feed-forward width, `v` vocabulary, `n` places asked.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, Shaped

if TYPE_CHECKING:
    import torch

IGNORE_INDEX = -100
"""The target at a place where nothing is asked; torch's own convention."""

WORD_START, SENTENCE_START, PARAGRAPH_START = 1, 2, 4
"""Bits of `Tokens.marks`: the token begins a word, a sentence, a paragraph."""


@dataclass(frozen=True)
class Tokens:
    """A text as the tokenizer sees it, without special tokens."""

    ids: Int[np.ndarray, "t"]
    boundaries: Integer[np.ndarray, "t"]
    """What begins at each token: WORD | SENTENCE | PARAGRAPH (uint8)."""
    other_text: "Tokens | None" = None
    """A text from elsewhere in the corpus, for objectives that ask about two texts."""
    previous_token: int | None = None
    """Of a piece of a stream: the token before it. None: the text begins here, or nothing is said
    of what stands before."""

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


@dataclass(frozen=True, kw_only=True)
class Example:
    """One text after hiding, unpadded, NumPy.

    What the model reads, who sees whom, what it is asked.
    """

    inputs: Int[np.ndarray, "t"]
    """Read by the decoder, or by the only stack there is."""
    targets: Int[np.ndarray, "t"]
    """The answer at each place; IGNORE where nothing is asked."""
    target_position_of: Int[np.ndarray, "t"] | None = None
    """Of answers that stand for several tokens (CANINE-S's subwords): where each of these is asked
    for; IGNORE of those that are shown. Models do not read it. None: each in its own place."""
    rank: Int[np.ndarray, "t"] | None = None
    """None: everyone sees everyone. Otherwise j is visible to i iff rank[j] <= rank[i]."""
    source: Int[np.ndarray, "s"] | None = None
    """Read by the encoder, when there is one."""
    position_ids: Int[np.ndarray, "t"] | None = None
    """Where in its text stands what is read or said at each place, if it is not the place itself: a
    decoder that says a part of what an encoder reads (MASS). None: places are counted from 0."""
    segments: Int[np.ndarray, "t"] | None = None
    """Which of two texts a token belongs to, 0 or 1; models without segments do not read it. That a
    token is of neither (`SpecialTokenIds.summary`) is told where examples are laid out."""
    part_ids: Int[np.ndarray, "t"] | None = None
    """0, then 1, and so on: parts of a text that do not see each other; places are counted from the
    start of each. None: the text is one."""
    label: "int | float | Int[np.ndarray, 't'] | Float[np.ndarray, 'labels'] | None" = None
    """Of the whole text: next sentence, class, score; or one label a token; or of each of some
    labels whether it holds, 1 or 0 (floats, also where there are as many as tokens)."""
    choice_group: int | None = None
    """Texts with the same number are asked together: options of which one is to be chosen."""
    prediction_order: Int[np.ndarray, "t"] | None = None
    """In which order the places asked are answered, from 0: those before are known to those after
    (CANINE-C). Elsewhere it says nothing. None: all are asked at once."""
    candidate_ids: Int[np.ndarray, "k"] | None = None
    """The tokens of which each target is one, and which alone are scored; None: all."""
    global_positions: Int[np.ndarray, "g"] | None = None
    """The places of tokens that see all of their text and are seen by all of it, whatever a layer's
    window, each once; models without `global_attention` do not read it. None: there are none."""
    two_stream: bool = False
    """Asked of a stream that may not see its own token (XLNet), or of two readers of whom one has
    read what stands before it and one what follows (ELMo)."""
    shifted_targets: bool = False
    """Each place is asked for the token after its own: what is asked at i is read, if at all, at
    i + 1. Models do not read it. False: it is asked where it stands."""
    reuse_len: int | None = None
    """Of a piece of a stream: so many of its first tokens see nothing of the others, and are what a
    memory holds of it; the next piece goes on behind them. None: all are."""


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


class RecurrenceMemory:
    """Hidden states of what stood before each row, which every layer reads beside the row itself.

    Dai et al. 2019, arXiv:1901.02860, section 3.2: no gradient passes into them. A network that
    reads a batch with a memory leaves there what the next batch, whose rows go on where these end,
    has behind it.
    """

    def __init__(self, max_length: int) -> None:
        if max_length < 1:
            raise ValueError(f"a memory must have at least 1 place, got {max_length}")
        self.max_length = max_length
        """Places that are remembered, at most: the last."""
        self.hidden_states: "list[Float[torch.Tensor, 'b m d']]" = []
        """What entered each layer."""

    def __len__(self) -> int:
        return self.hidden_states[0].shape[1] if self.hidden_states else 0

    def update(
        self, layer_index: int, x: "Float[torch.Tensor, 'b t d']", reuse_len: int | None = None
    ) -> "Float[torch.Tensor, 'b m d'] | None":
        """Give what stood behind x in a layer, and remember x, or its first `reuse_len` columns.

        Raises:
            ValueError: what is remembered is of another number of rows.
        """
        import torch

        behind = self.hidden_states[layer_index] if layer_index < len(self.hidden_states) else None
        if behind is not None and len(behind) != len(x):
            raise ValueError(
                f"the memory is of {len(behind)} rows, but {len(x)} are to go on with it"
            )
        new = x.detach()[:, :reuse_len]
        new = new if behind is None else torch.cat((behind.to(new.dtype), new), 1)
        new = new[:, -self.max_length :]
        self.hidden_states[layer_index : layer_index + 1] = [new]
        return behind


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Examples padded or packed together, on a device. Every model takes exactly this."""

    inputs: "Int[torch.Tensor, 'b t']"
    visibility: Visibility = Visibility()
    targets: "Int[torch.Tensor, 'b t'] | None" = None
    """None: nothing is asked of tokens."""
    target_positions: "Int[torch.Tensor, 'n'] | None" = None
    """Where targets are not IGNORE, as places in the flattened [b t], counted before the device
    sees them. None with targets: everywhere."""
    prediction_order: "Int[torch.Tensor, 'b t'] | None" = None
    """In which order the places asked of a text are answered, from 0; None: all at once."""
    position_ids: "Int[torch.Tensor, 'b t'] | None" = None
    """Where a token stands in its own text; None: its column."""
    source: "Int[torch.Tensor, 'b s'] | None" = None
    source_visibility: Visibility = Visibility()
    segments: "Int[torch.Tensor, 'b t'] | None" = None
    part_ids: "Int[torch.Tensor, 'b t'] | None" = None
    """Of texts in parts: the number of each part in its row, -1 in padding. Those that follow each
    other in a text have numbers that do, and between the texts of a row one number is left out.
    These are the documents of the visibility, too. None: texts are whole."""
    last_token_positions: "Int[torch.Tensor, 'b'] | None" = None
    """The column of each row's last token that is not padding; None: the last column."""
    selected_column: "Int[torch.Tensor, 'b'] | None" = None
    """The one column of each row whose hidden state is wanted: the last layer makes no other, and
    hidden states are [b 1 d]. None: all."""
    all_layers: bool = False
    """Hidden states are those of all layers side by side, [b t (1 + layers)*d]: what enters the
    first layer and what each returns, past the norm after the last one where there is one."""
    summary: bool = False
    """One more column comes first: the vector that the network itself makes of the whole text,
    where it does (CANINE). With `selected_column` it is all that is wanted."""
    labels: "Shaped[torch.Tensor, 'b ...'] | None" = None
    choice_groups: "Int[torch.Tensor, 'b'] | None" = None
    """Which rows are asked together, numbered from 0; None: each alone."""
    candidate_ids: "Int[torch.Tensor, 'k'] | None" = None
    """The tokens of which each target is one, and which alone are scored; None: all."""
    global_positions: "Int[torch.Tensor, 'b g'] | None" = None
    """The columns of tokens that see all of their text and are seen by all of it, whatever a
    layer's window (see `Example.wide`); -1 where a row has fewer than another."""
    virtual_token_positions: "Int[torch.Tensor, 'b p'] | None" = None
    """The columns of learned tokens before texts, which no window keeps from being seen; None:
    there are none."""
    two_stream: bool = False
    reuse_len: int | None = None
    """So many of the first columns are what a memory holds of the rows (see `Example.kept`). None:
    all are."""
    continues: bool | None = None
    """Rows are pieces of streams: whether each goes on where that of the batch before ended, or
    begins. None: they are texts of their own."""
    reversed_rows: "Bool[torch.Tensor, 'b'] | None" = None
    """Rows whose columns stand in the reverse order of their tokens: what a memory holds of them
    stands behind. None: there are none."""
    memory: RecurrenceMemory | None = None
    """What stood before the rows, as the network has read it; it is changed in reading. None:
    nothing did."""
    shifted_targets: "Bool[torch.Tensor, 'b t'] | None" = None
    """Which places are asked for the token after their own (see `Example.ahead`); None: none."""
    original_ids: "Int[torch.Tensor, 'b t'] | None" = None
    """The tokens of the text, where inputs may be a generator's guesses; None: nothing is
    guessed."""

    def __post_init__(self) -> None:
        """Refuse tensors that do not fit each other.

        Checked always, not by annotations in tests alone: without torch being imported these cannot
        be resolved.
        """
        if self.reversed_rows is not None and len(self.reversed_rows) != len(self.inputs):
            raise ValueError(
                f"reversed_rows has {len(self.reversed_rows)} rows, inputs {len(self.inputs)}"
            )
        for name in (
            "targets",
            "prediction_order",
            "position_ids",
            "segments",
            "part_ids",
            "shifted_targets",
            "original_ids",
        ):
            tensor = getattr(self, name)
            if tensor is not None and tensor.shape[-1] != self.inputs.shape[-1]:
                raise ValueError(
                    f"{name} has shape {list(tensor.shape)}, inputs {list(self.inputs.shape)}"
                )

    def is_token(self) -> "Bool[torch.Tensor, 'b t']":
        """Say which tokens are not padding."""
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

        return replace(self, **{k: move(v) for k, v in vars(self).items()})
