"""Examples -> Batch: padded to the longest, or several in a row.

All is counted and laid out in NumPy, as `BatchArrays`, so that worker processes need nothing else
and no tensor is ever read back to decide who sees whom; torch comes in at the very end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from unmask.batch import IGNORE_INDEX, Batch, Example, ExampleRows, Featured, Visibility
from unmask.tokenizers.spec import SUMMARY_SEGMENT_ID, SpecialTokenIds

EFFICIENT_GROUP_TOKENS = 512
"""Tokens with which a group is as fast as a larger one."""
MAX_OPEN_ROWS = 1024
"""Rows before these are nearly full; to look at all would take quadratic time."""


class RowLimits(NamedTuple):
    """Tokens up to which a row may be lengthened, so that batches share their shapes.

    On a CPU products of a new shape are compiled first, and freed memory of one shape does not fit
    another (docs/log.md, 2026-11-28). The padding is at most a sixteenth of a row.
    """

    inputs: int
    source: int

    @classmethod
    def of(cls, examples: Sequence[Example]) -> "RowLimits":
        """Return the lengths of the longest examples: what a model reads anyway."""
        sources = (0 if e.source is None else len(e.source) for e in examples)
        return cls(max(len(e.inputs) for e in examples), max(sources))


def _shared_length(length: int) -> int:
    """Return a length that is at most a sixteenth more: of 17 to 32 one of 16, and so on."""
    step = 1 << max(0, (length - 1).bit_length() - 5)
    return -(-length // step) * step


@dataclass(frozen=True, kw_only=True)
class BatchArrays(Featured):
    """What a Batch holds, before torch sees it."""

    inputs: Int[np.ndarray, "b t"]
    targets: Int[np.ndarray, "b t"]
    target_positions: Int[np.ndarray, "n"] | None
    causal: bool
    rank: Int[np.ndarray, "b t"] | None
    document: Int[np.ndarray, "b t"] | None
    position_ids: Int[np.ndarray, "b t"] | None
    source: Int[np.ndarray, "b s"] | None
    source_document: Int[np.ndarray, "b s"] | None
    segments: Int[np.ndarray, "b t"] | None
    part_ids: Int[np.ndarray, "b t"] | None
    last_token_positions: Int[np.ndarray, "b"] | None
    labels: Int[np.ndarray, "b ..."] | Float[np.ndarray, "b ..."] | None

    def to_batch(self) -> Batch:
        """Make tensors of the arrays, without copying them."""
        import torch

        def tensor(array: np.ndarray | None) -> torch.Tensor | None:
            return None if array is None else torch.from_numpy(array)

        def tensor_if_array(value: object) -> object:
            return torch.from_numpy(value) if isinstance(value, np.ndarray) else value

        return Batch(
            inputs=torch.from_numpy(self.inputs),
            visibility=Visibility(tensor(self.rank), tensor(self.document), self.causal),
            targets=tensor(self.targets),
            target_positions=tensor(self.target_positions),
            position_ids=tensor(self.position_ids),
            source=tensor(self.source),
            source_visibility=Visibility(document=tensor(self.source_document)),
            segments=tensor(self.segments),
            part_ids=tensor(self.part_ids),
            last_token_positions=tensor(self.last_token_positions),
            labels=tensor(self.labels),
            features=tuple(f.map(tensor_if_array) for f in self.features),
        )


def pad_examples(
    examples: Sequence[Example],
    special_ids: SpecialTokenIds,
    *,
    row_limits: RowLimits | None = None,
) -> Batch:
    """Lay each example in a row of its own, padded on the right to the longest.

    Padding is document -1 and the text is document 0, wherever this is needed: not where rows are
    equally long, and not where each token sees those before it only, since padding comes after
    them.

    Args:
        examples: at least one; all with a source or none.
        special_ids: whose `pad` fills the rows.
        row_limits: up to which rows are lengthened for the sake of shared shapes. None: not at all.
    """
    return collate([[e] for e in examples], special_ids, row_limits=row_limits).to_batch()


def pack_examples(
    examples: Sequence[Example], special_ids: SpecialTokenIds, row_length: int
) -> Batch:
    """Lay several examples in each row of `row_length` tokens.

    Each, in their order, goes into the first row that has room for it. They do not see each other,
    and places are counted from the start of each. In an encoder-decoder, row r of the decoder reads
    row r of the source, and the texts of a row have the same numbers on both sides.

    Raises:
        ValueError: an example is longer than a row, or has a label (a row has but one).
    """
    sizes = [example_length(e) for e in examples]
    groups = first_fit(np.array(sizes, np.int64), row_length)
    return collate(
        [[examples[i] for i in g] for g in groups], special_ids, min_width=row_length
    ).to_batch()


def example_length(example: Example) -> int:
    """Count the tokens of an example; of an encoder-decoder, those of the side that has more."""
    n_source = 0 if example.source is None else len(example.source)
    return max(len(example.inputs), n_source)


def group_by_length(
    lengths: Sequence[int],
    max_tokens: int,
    max_rows: int | None = None,
    row_counts: Sequence[int] | None = None,
) -> list[list[int]]:
    """Group items of like size, the largest first.

    Padded to its largest item, a group has at most `max_tokens` tokens and at most `max_rows`
    rows, unless it is one item. A group with ENOUGH tokens takes no item that would be padded by a
    quarter.

    Args:
        lengths: tokens of a row of each item.
        max_tokens: of a group.
        max_rows: of a group. None: any number.
        row_counts: rows of each item. None: one each.
    """
    groups: list[list[int]] = []
    held = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        last = groups[-1] if groups else []
        n = 1 if row_counts is None else row_counts[i]
        wanted, width = held + n, lengths[last[0]] if last else 0
        alike = held * width < EFFICIENT_GROUP_TOKENS or 4 * lengths[i] > 3 * width
        if (
            last
            and alike
            and wanted * width <= max_tokens
            and (max_rows is None or wanted <= max_rows)
        ):
            last.append(i)
            held = wanted
        else:
            groups.append([i])
            held = n
    return groups


def first_fit(sizes: Int[np.ndarray, "n"], row_length: int) -> list[list[int]]:
    """Pack each item into the first row of `row_length` with room for it; return each row's items.

    Only the last `MAX_OPEN_ROWS` rows are considered (first fit with bounded space).

    Raises:
        ValueError: an item is longer than a row.
    """
    rows: list[list[int]] = []
    room = np.zeros(len(sizes), np.int64)
    for i, n in enumerate(sizes.tolist()):
        if n > row_length:
            raise ValueError(f"example {i} has {n} tokens, which do not fit a row of {row_length}")
        first = max(0, len(rows) - MAX_OPEN_ROWS)
        fits = np.flatnonzero(room[first : len(rows)] >= n)
        row = first + int(fits[0]) if len(fits) else len(rows)
        if row == len(rows):
            rows.append([])
            room[row] = row_length
        rows[row].append(i)
        room[row] -= n
    return rows


def collate(
    groups: Sequence[Sequence[Example]],
    special_ids: SpecialTokenIds,
    *,
    min_width: int | None = None,
    row_limits: RowLimits | None = None,
) -> BatchArrays:
    """Lay each group of examples in a row.

    Args:
        groups: the examples of each row, at least one.
        special_ids: whose `pad` fills the rows.
        min_width: how long the rows are at least (those of the source, where there is one).
        row_limits: up to which rows are lengthened for the sake of shared shapes. None: not at all.
    """
    _check_same_kind(groups)
    groups = [[special_ids.with_text_languages(e) for e in group] for group in groups]
    lengths = [[len(e.inputs) for e in group] for group in groups]
    paired = groups[0][0].source is not None
    t = _row_width(lengths, None if paired else min_width, row_limits and row_limits.inputs)
    rows = ExampleRows(groups, t)
    examples, padded = rows.examples, any(sum(row) < t for row in lengths)
    causal = all(e.rank is not None and _is_causal(e.rank) for e in examples)
    ranked = not causal and any(e.rank is not None for e in examples)
    targets = rows.fill(lambda e: e.targets, IGNORE_INDEX)
    asked = np.flatnonzero(targets != IGNORE_INDEX)
    source = source_document = None
    if paired:
        sources = [[len(_require_source(e)) for e in g] for g in groups]
        s = _row_width(sources, min_width, row_limits and row_limits.source)
        source, source_document = _collate_source(ExampleRows(groups, s), special_ids)
    document, position_ids, part_ids = _layout(rows, hide_padding=padded and not causal)
    inputs = rows.fill(lambda e: e.inputs, special_ids.pad)
    kinds = dict.fromkeys(type(feature) for e in examples for feature in e.features)
    features = [kind.collate(rows) for kind in kinds]
    return BatchArrays(
        inputs=inputs,
        targets=targets,
        target_positions=None if len(asked) == targets.size else asked,
        causal=causal,
        rank=rows.fill(_rank_of, 0) if ranked else None,
        document=document,
        position_ids=position_ids,
        source=source,
        source_document=source_document,
        segments=_collate_segments(rows, inputs, special_ids),
        part_ids=part_ids,
        last_token_positions=np.array([max(sum(row), 1) - 1 for row in lengths], np.int64)
        if padded
        else None,
        labels=_collate_labels(rows),
        features=tuple(feature for feature in features if feature is not None),
    )


def _layout(
    rows: ExampleRows, *, hide_padding: bool
) -> tuple[
    Int[np.ndarray, "b t"] | None, Int[np.ndarray, "b t"] | None, Int[np.ndarray, "b t"] | None
]:
    """Return the documents, position ids and part ids; None where a model needs none."""
    t, packed, examples = rows.width, rows.is_packed, rows.examples
    if any(e.part_ids is not None for e in examples):
        parts = [_part_lengths(group) for group in rows.groups]
        document = _document_ids(parts, t)
        return document, _position_ids(parts, t), document
    lengths = [[len(e.inputs) for e in group] for group in rows.groups]
    position_ids = _position_ids(lengths, t) if packed else None
    if any(e.position_ids is not None for e in examples):
        position_ids = rows.fill(_position_ids_of, 0)
    return _document_ids(lengths, t) if packed or hide_padding else None, position_ids, None


def _collate_source(
    rows: ExampleRows, special_ids: SpecialTokenIds
) -> tuple[Int[np.ndarray, "b s"], Int[np.ndarray, "b s"] | None]:
    lengths = [[len(_require_source(e)) for e in group] for group in rows.groups]
    needed = rows.is_packed or any(sum(row) < rows.width for row in lengths)
    document = _document_ids(lengths, rows.width) if needed else None
    return rows.fill(_require_source, special_ids.pad), document


def _collate_segments(
    rows: ExampleRows, inputs: Int[np.ndarray, "b t"], special_ids: SpecialTokenIds
) -> Int[np.ndarray, "b t"] | None:
    if special_ids.summary is None and all(e.segments is None for e in rows.examples):
        return None
    segments = rows.fill(_segments_of, 0)
    segments[inputs == special_ids.summary] = SUMMARY_SEGMENT_ID
    return segments


def _check_same_kind(groups: Sequence[Sequence[Example]]) -> None:
    if not groups or not all(groups):
        raise ValueError("a batch needs at least one example in each row, got none")
    if len({e.source is None for group in groups for e in group}) > 1:
        raise ValueError("examples with a source and examples without one do not fit one batch")


def _row_width(lengths: Sequence[Sequence[int]], min_width: int | None, limit: int | None) -> int:
    longest = max(max(sum(row) for row in lengths), min_width or 0, 1)
    return longest if limit is None else max(longest, min(_shared_length(longest), limit))


def _document_ids(lengths: Sequence[Sequence[int]], row_width: int) -> Int[np.ndarray, "b t"]:
    out = np.full((len(lengths), row_width), -1, np.int64)
    for row, ns in zip(out, lengths, strict=True):
        row[: sum(ns)] = np.repeat(np.arange(len(ns)), ns)
    return out


def _position_ids(lengths: Sequence[Sequence[int]], row_width: int) -> Int[np.ndarray, "b t"]:
    out = np.zeros((len(lengths), row_width), np.int64)
    for row, ns in zip(out, lengths, strict=True):
        row[: sum(ns)] = np.concatenate([np.arange(n) for n in ns])
    return out


def _position_ids_of(example: Example) -> Int[np.ndarray, "t"]:
    return np.arange(len(example.inputs)) if example.position_ids is None else example.position_ids


def _part_lengths(group: Sequence[Example]) -> list[int]:
    """Count the tokens of each part of a row; none between two texts, whose parts are no pair."""
    lengths = [
        [len(e.inputs)] if e.part_ids is None else np.bincount(e.part_ids).tolist() for e in group
    ]
    return [n for parts in lengths for n in (*parts, 0)]


def _is_causal(rank: Int[np.ndarray, "t"]) -> bool:
    return bool((rank == np.arange(len(rank))).all())


def _rank_of(example: Example) -> Int[np.ndarray, "t"]:
    return np.zeros(len(example.inputs), np.int64) if example.rank is None else example.rank


def _segments_of(example: Example) -> Int[np.ndarray, "t"]:
    return np.zeros(len(example.inputs), np.int64) if example.segments is None else example.segments


def _require_source(example: Example) -> Int[np.ndarray, "s"]:
    if example.source is None:
        raise ValueError("an example without a source")
    return example.source


def _collate_labels(rows: ExampleRows) -> Shaped[np.ndarray, "b ..."] | None:
    """Stack the labels of texts, or of their tokens; IGNORE where one has none and others have."""
    labels = [e.label for e in rows.examples]
    kinds = {type(label) for label in labels} - {type(None)}
    if not kinds:
        return None
    several = any(_is_multi_label(label) for label in labels)
    if np.ndarray in kinds and not several:
        if len(kinds) > 1:
            raise ValueError("some texts have one label and others one for each of their tokens")
        return rows.fill(_token_labels_of, IGNORE_INDEX)
    if rows.is_packed:
        raise ValueError("texts with labels cannot be packed: a row has one label")
    if several:
        return _stack_multi_labels(labels)
    if all(issubclass(kind, int | np.integer) for kind in kinds):
        return np.array([IGNORE_INDEX if label is None else label for label in labels], np.int64)
    if None in labels:
        raise ValueError("some texts have a score as their label and others have none")
    return np.array(labels, np.float32)


def _is_multi_label(label: object) -> bool:
    return isinstance(label, np.ndarray) and label.dtype.kind == "f"


def _stack_multi_labels(labels: Sequence[object]) -> Float[np.ndarray, "b labels"]:
    """Stack the labels that may hold together; IGNORE in the row of a text whose are not known."""
    known = [label for label in labels if isinstance(label, np.ndarray)]
    widths = {len(label) for label in known if _is_multi_label(label)}
    strange = [label for label in labels if label is not None and not _is_multi_label(label)]
    if strange or len(widths) > 1:
        raise ValueError("texts of a batch must all have one label, or as many that may hold")
    none = np.full(widths.pop(), IGNORE_INDEX, np.float32)
    rows = [label if isinstance(label, np.ndarray) else none for label in labels]
    return np.stack(rows).astype(np.float32)


def _token_labels_of(example: Example) -> Int[np.ndarray, "t"]:
    return (
        example.label
        if isinstance(example.label, np.ndarray)
        else np.full(len(example.inputs), IGNORE_INDEX)
    )
