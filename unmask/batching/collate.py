"""Examples -> Batch: padded to the longest, or several in a row.

All is counted and laid out in NumPy, as `BatchArrays`, so that worker processes need nothing else
and no tensor is ever read back to decide who sees whom; torch comes in at the very end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from unmask.batch import IGNORE_INDEX, Batch, Example, Visibility
from unmask.tokenizers.spec import SUMMARY_SEGMENT_ID, SpecialTokenIds

EFFICIENT_GROUP_TOKENS = 512
"""Tokens with which a group is as fast as a larger one."""
MAX_OPEN_ROWS = 1024
"""Rows before these are nearly full; to look at all would take quadratic time."""


@dataclass(frozen=True, kw_only=True)
class BatchArrays:
    """What a Batch holds, before torch sees it."""

    inputs: Int[np.ndarray, "b t"]
    targets: Int[np.ndarray, "b t"]
    target_positions: Int[np.ndarray, "n"] | None
    causal: bool
    rank: Int[np.ndarray, "b t"] | None
    document: Int[np.ndarray, "b t"] | None
    prediction_order: Int[np.ndarray, "b t"] | None
    position_ids: Int[np.ndarray, "b t"] | None
    source: Int[np.ndarray, "b s"] | None
    source_document: Int[np.ndarray, "b s"] | None
    segments: Int[np.ndarray, "b t"] | None
    part_ids: Int[np.ndarray, "b t"] | None
    last_token_positions: Int[np.ndarray, "b"] | None
    labels: Int[np.ndarray, "b ..."] | Float[np.ndarray, "b ..."] | None
    choice_groups: Int[np.ndarray, "b"] | None
    candidate_ids: Int[np.ndarray, "k"] | None
    global_positions: Int[np.ndarray, "b g"] | None
    two_stream: bool
    shifted_targets: Bool[np.ndarray, "b t"] | None
    reuse_len: int | None
    continues: bool | None = None
    reversed_rows: Bool[np.ndarray, "b"] | None = None

    def to_batch(self) -> Batch:
        """Make tensors of the arrays, without copying them."""
        import torch

        def tensor(array: np.ndarray | None) -> torch.Tensor | None:
            return None if array is None else torch.from_numpy(array)

        return Batch(
            inputs=torch.from_numpy(self.inputs),
            visibility=Visibility(tensor(self.rank), tensor(self.document), self.causal),
            targets=tensor(self.targets),
            target_positions=tensor(self.target_positions),
            prediction_order=tensor(self.prediction_order),
            position_ids=tensor(self.position_ids),
            source=tensor(self.source),
            source_visibility=Visibility(document=tensor(self.source_document)),
            segments=tensor(self.segments),
            part_ids=tensor(self.part_ids),
            last_token_positions=tensor(self.last_token_positions),
            labels=tensor(self.labels),
            choice_groups=tensor(self.choice_groups),
            candidate_ids=tensor(self.candidate_ids),
            global_positions=tensor(self.global_positions),
            two_stream=self.two_stream,
            reuse_len=self.reuse_len,
            continues=self.continues,
            reversed_rows=tensor(self.reversed_rows),
            shifted_targets=tensor(self.shifted_targets),
        )


def pad_examples(
    examples: Sequence[Example], special_ids: SpecialTokenIds, *, length_multiple: int = 1
) -> Batch:
    """Lay each example in a row of its own, padded on the right to the longest.

    Padding is document -1 and the text is document 0, wherever this is needed: not where rows are
    equally long, and not where each token sees those before it only, since padding comes after
    them.

    Args:
        examples: at least one; all with a source or none.
        special_ids: whose `pad` fills the rows.
        length_multiple: rows are made as long as a multiple of this.
    """
    return collate([[e] for e in examples], special_ids, length_multiple=length_multiple).to_batch()


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
    """Put each item into the first row of `row_length` with room for it; give each row's items.

    Of many rows only the last `MAX_OPEN_ROWS` are looked at.

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
    length_multiple: int = 1,
) -> BatchArrays:
    """Lay each group of examples in a row.

    Args:
        groups: the examples of each row, at least one.
        special_ids: whose `pad` fills the rows.
        min_width: how long the rows are at least (those of the source, where there is one).
        length_multiple: rows are made as long as a multiple of this.
    """
    examples = [e for group in groups for e in group]
    _check_same_kind(groups, examples)
    packed = any(len(group) > 1 for group in groups)
    paired = examples[0].source is not None
    lengths = [[len(e.inputs) for e in group] for group in groups]
    t = _row_width(lengths, None if paired else min_width, length_multiple)
    causal = all(e.rank is not None and _is_causal(e.rank) for e in examples)
    ranked = not causal and any(e.rank is not None for e in examples)
    padded = any(sum(row) < t for row in lengths)
    targets = _fill_rows(groups, lambda e: e.targets, t, IGNORE_INDEX)
    asked = np.flatnonzero(targets != IGNORE_INDEX)
    source = source_document = None
    if paired:
        source, source_document = _collate_source(
            groups, special_ids, packed, min_width, length_multiple
        )
    document = _document_ids(lengths, t) if packed or (padded and not causal) else None
    place = _position_ids(lengths, t) if packed else None
    if any(e.position_ids is not None for e in examples):
        place = _fill_rows(groups, _position_ids_of, t, 0)
    parts = None
    if any(e.part_ids is not None for e in examples):
        halves = [_part_lengths(group) for group in groups]
        document, place = _document_ids(halves, t), _position_ids(halves, t)
        parts = document
    turn = None
    if any(e.prediction_order is not None for e in examples):
        turn = _fill_rows(groups, _prediction_order_of, t, 0)
    inputs = _fill_rows(groups, lambda e: e.inputs, t, special_ids.pad)
    segments = None
    if special_ids.summary is not None or any(e.segments is not None for e in examples):
        segments = _fill_rows(groups, _segments_of, t, 0)
        segments[inputs == special_ids.summary] = SUMMARY_SEGMENT_ID
    ahead = None
    if any(e.shifted_targets for e in examples):
        ahead = _fill_rows(groups, _shifted_targets_of, t, 0).astype(bool)
    return BatchArrays(
        inputs=inputs,
        targets=targets,
        target_positions=None if len(asked) == targets.size else asked,
        causal=causal,
        rank=_fill_rows(groups, _rank_of, t, 0) if ranked else None,
        document=document,
        prediction_order=turn,
        position_ids=place,
        source=source,
        source_document=source_document,
        segments=segments,
        part_ids=parts,
        last_token_positions=np.array([max(sum(row), 1) - 1 for row in lengths], np.int64)
        if padded
        else None,
        labels=_collate_labels(groups, t),
        choice_groups=_number_choice_groups(examples, packed),
        candidate_ids=examples[0].candidate_ids,
        global_positions=_global_columns(groups),
        two_stream=examples[0].two_stream,
        shifted_targets=ahead,
        reuse_len=examples[0].reuse_len if len({e.reuse_len for e in examples}) == 1 else None,
    )


def _collate_source(
    groups: Sequence[Sequence[Example]],
    special_ids: SpecialTokenIds,
    packed: bool,
    min_width: int | None,
    length_multiple: int,
) -> tuple[Int[np.ndarray, "b s"], Int[np.ndarray, "b s"] | None]:
    lengths = [[len(_require_source(e)) for e in group] for group in groups]
    s = _row_width(lengths, min_width, length_multiple)
    needed = packed or any(sum(row) < s for row in lengths)
    return _fill_rows(groups, _require_source, s, special_ids.pad), _document_ids(
        lengths, s
    ) if needed else None


def _check_same_kind(groups: Sequence[Sequence[Example]], examples: Sequence[Example]) -> None:
    if not examples or not all(groups):
        raise ValueError("a batch needs at least one example in each row, got none")
    if len({e.source is None for e in examples}) > 1:
        raise ValueError("examples with a source and examples without one do not fit one batch")
    if len({e.two_stream for e in examples}) > 1:
        raise ValueError(
            "examples that see their own token and two-stream ones do not fit one batch"
        )
    if len({None if e.candidate_ids is None else e.candidate_ids.tobytes() for e in examples}) > 1:
        raise ValueError("examples with different candidate_ids do not fit one batch")


def _row_width(
    lengths: Sequence[Sequence[int]], min_width: int | None, length_multiple: int
) -> int:
    longest = max(max(sum(row) for row in lengths), min_width or 0, 1)
    return -(-longest // length_multiple) * length_multiple


def _fill_rows(
    groups: Sequence[Sequence[Example]],
    values_of: Callable[[Example], Int[np.ndarray, "t"]],
    row_width: int,
    padding: int,
) -> Int[np.ndarray, "b t"]:
    out = np.full((len(groups), row_width), padding, np.int64)
    for row, group in zip(out, groups, strict=True):
        end = 0
        for example in group:
            values = values_of(example)
            row[end : end + len(values)] = values
            end += len(values)
    return out


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


def _prediction_order_of(example: Example) -> Int[np.ndarray, "t"]:
    return (
        np.zeros(len(example.inputs), np.int64)
        if example.prediction_order is None
        else example.prediction_order
    )


def _segments_of(example: Example) -> Int[np.ndarray, "t"]:
    return np.zeros(len(example.inputs), np.int64) if example.segments is None else example.segments


def _shifted_targets_of(example: Example) -> Int[np.ndarray, "t"]:
    return np.full(len(example.inputs), int(example.shifted_targets), np.int64)


def _require_source(example: Example) -> Int[np.ndarray, "s"]:
    if example.source is None:
        raise ValueError("an example without a source")
    return example.source


def _collate_labels(
    groups: Sequence[Sequence[Example]], row_width: int
) -> Shaped[np.ndarray, "b ..."] | None:
    """Stack the labels of texts, or of their tokens; IGNORE where one has none and others have."""
    labels = [e.label for group in groups for e in group]
    kinds = {type(label) for label in labels} - {type(None)}
    if not kinds:
        return None
    several = any(_is_multi_label(label) for label in labels)
    if np.ndarray in kinds and not several:
        if len(kinds) > 1:
            raise ValueError("some texts have one label and others one for each of their tokens")
        return _fill_rows(groups, _token_labels_of, row_width, IGNORE_INDEX)
    if len(labels) > len(groups):
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


def _global_columns(groups: Sequence[Sequence[Example]]) -> Int[np.ndarray, "b g"] | None:
    """Find the columns of each row's wide tokens, filled up with -1."""
    rows: list[list[int]] = []
    for group in groups:
        begins = accumulate((len(e.inputs) for e in group), initial=0)
        places = [() if e.global_positions is None else e.global_positions.tolist() for e in group]
        rows.append([b + i for b, each in zip(begins, places, strict=False) for i in each])
    most = max(map(len, rows))
    if not most:
        return None
    return np.array([row + [-1] * (most - len(row)) for row in rows], np.int64)


def _number_choice_groups(examples: Sequence[Example], packed: bool) -> Int[np.ndarray, "b"] | None:
    """Number the groups of a batch's rows from 0; a row without one is a group of its own."""
    if all(e.choice_group is None for e in examples):
        return None
    if packed:
        raise ValueError("texts of a choice_group cannot be packed: each needs a row")
    keys = [
        (e.choice_group is None, i if e.choice_group is None else e.choice_group)
        for i, e in enumerate(examples)
    ]
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys], np.int64)


def _token_labels_of(example: Example) -> Int[np.ndarray, "t"]:
    return (
        example.label
        if isinstance(example.label, np.ndarray)
        else np.full(len(example.inputs), IGNORE_INDEX)
    )
