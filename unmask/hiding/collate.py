"""Examples -> Batch: padded to the longest, or several in a row.

All is counted and laid out in NumPy, as `Arrays`, so that worker processes need nothing else and no
tensor is ever read back to decide who sees whom; torch comes in at the very end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from unmask.batch import IGNORE, Batch, Example, Visibility
from unmask.tokens.vocabulary import SUMMARY, Special

ENOUGH = 512
"""Tokens with which a group is as fast as a larger one."""
OPEN_ROWS = 1024
"""Rows before these are nearly full; to look at all would take quadratic time."""


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """What a Batch holds, before torch sees it."""

    inputs: Int[np.ndarray, "b t"]
    targets: Int[np.ndarray, "b t"]
    asked: Int[np.ndarray, "n"] | None
    causal: bool
    rank: Int[np.ndarray, "b t"] | None
    document: Int[np.ndarray, "b t"] | None
    turn: Int[np.ndarray, "b t"] | None
    place: Int[np.ndarray, "b t"] | None
    source: Int[np.ndarray, "b s"] | None
    source_document: Int[np.ndarray, "b s"] | None
    segments: Int[np.ndarray, "b t"] | None
    parts: Int[np.ndarray, "b t"] | None
    last: Int[np.ndarray, "b"] | None
    labels: Int[np.ndarray, "b ..."] | Float[np.ndarray, "b ..."] | None
    group: Int[np.ndarray, "b"] | None
    among: Int[np.ndarray, "k"] | None
    wide: Int[np.ndarray, "b g"] | None
    blind: bool
    ahead: Bool[np.ndarray, "b t"] | None
    kept: int | None
    goes_on: bool | None = None
    backward: Bool[np.ndarray, "b"] | None = None

    def batch(self) -> Batch:
        """Make tensors of the arrays, without copying them."""
        import torch

        def tensor(array: np.ndarray | None) -> torch.Tensor | None:
            return None if array is None else torch.from_numpy(array)

        return Batch(
            inputs=torch.from_numpy(self.inputs),
            visibility=Visibility(tensor(self.rank), tensor(self.document), self.causal),
            targets=tensor(self.targets),
            asked=tensor(self.asked),
            turn=tensor(self.turn),
            place=tensor(self.place),
            source=tensor(self.source),
            source_visibility=Visibility(document=tensor(self.source_document)),
            segments=tensor(self.segments),
            parts=tensor(self.parts),
            last=tensor(self.last),
            labels=tensor(self.labels),
            group=tensor(self.group),
            among=tensor(self.among),
            wide=tensor(self.wide),
            blind=self.blind,
            kept=self.kept,
            goes_on=self.goes_on,
            backward=tensor(self.backward),
            ahead=tensor(self.ahead),
        )


def pad(examples: Sequence[Example], special: Special, *, multiple: int = 1) -> Batch:
    """Lay each example in a row of its own, padded on the right to the longest.

    Padding is document -1 and the text is document 0, wherever this is needed: not where rows are
    equally long, and not where each token sees those before it only, since padding comes after
    them.

    Args:
        examples: at least one; all with a source or none.
        special: whose `pad` fills the rows.
        multiple: rows are made as long as a multiple of this.
    """
    return arrange([[e] for e in examples], special, multiple=multiple).batch()


def pack(examples: Sequence[Example], special: Special, length: int) -> Batch:
    """Lay several examples in each row of `length` tokens.

    Each, in their order, goes into the first row that has room for it. They do not see each other,
    and places are counted from the start of each. In an encoder-decoder, row r of the decoder reads
    row r of the source, and the texts of a row have the same numbers on both sides.

    Raises:
        ValueError: an example is longer than a row, or has a label (a row has but one).
    """
    sizes = [size(e) for e in examples]
    groups = first_fit(np.array(sizes, np.int64), length)
    return arrange([[examples[i] for i in g] for g in groups], special, width=length).batch()


def size(example: Example) -> int:
    """Count the tokens of an example; of an encoder-decoder, those of the side that has more."""
    n_source = 0 if example.source is None else len(example.source)
    return max(len(example.inputs), n_source)


def by_size(
    sizes: Sequence[int],
    tokens: int,
    rows: int | None = None,
    counts: Sequence[int] | None = None,
) -> list[list[int]]:
    """Group items of like size, the largest first.

    Padded to its largest item, a group has at most `tokens` tokens and at most `rows` rows, unless
    it is one item. A group with ENOUGH tokens takes no item that would be padded by a quarter.

    Args:
        sizes: tokens of a row of each item.
        tokens: of a group.
        rows: of a group. None: any number.
        counts: rows of each item. None: one each.
    """
    groups: list[list[int]] = []
    held = 0
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        last = groups[-1] if groups else []
        n = 1 if counts is None else counts[i]
        wanted, width = held + n, sizes[last[0]] if last else 0
        alike = held * width < ENOUGH or 4 * sizes[i] > 3 * width
        if last and alike and wanted * width <= tokens and (rows is None or wanted <= rows):
            last.append(i)
            held = wanted
        else:
            groups.append([i])
            held = n
    return groups


def first_fit(sizes: Int[np.ndarray, "n"], length: int) -> list[list[int]]:
    """Put each item into the first row of `length` with room for it; give the items of each row.

    Of many rows only the last `OPEN_ROWS` are looked at.

    Raises:
        ValueError: an item is longer than a row.
    """
    rows: list[list[int]] = []
    room = np.zeros(len(sizes), np.int64)
    for i, n in enumerate(sizes.tolist()):
        if n > length:
            raise ValueError(f"example {i} has {n} tokens, which do not fit a row of {length}")
        first = max(0, len(rows) - OPEN_ROWS)
        fits = np.flatnonzero(room[first : len(rows)] >= n)
        row = first + int(fits[0]) if len(fits) else len(rows)
        if row == len(rows):
            rows.append([])
            room[row] = length
        rows[row].append(i)
        room[row] -= n
    return rows


def arrange(
    groups: Sequence[Sequence[Example]],
    special: Special,
    *,
    width: int | None = None,
    multiple: int = 1,
) -> Arrays:
    """Lay each group of examples in a row.

    Args:
        groups: the examples of each row, at least one.
        special: whose `pad` fills the rows.
        width: how long the rows are at least (those of the source, where there is one).
        multiple: rows are made as long as a multiple of this.
    """
    examples = [e for group in groups for e in group]
    _check(groups, examples)
    packed = any(len(group) > 1 for group in groups)
    paired = examples[0].source is not None
    lengths = [[len(e.inputs) for e in group] for group in groups]
    t = _width(lengths, None if paired else width, multiple)
    causal = all(e.rank is not None and _is_order(e.rank) for e in examples)
    ranked = not causal and any(e.rank is not None for e in examples)
    padded = any(sum(row) < t for row in lengths)
    targets = _fill(groups, lambda e: e.targets, t, IGNORE)
    asked = np.flatnonzero(targets != IGNORE)
    source = source_document = None
    if paired:
        source, source_document = _source(groups, special, packed, width, multiple)
    document = _documents(lengths, t) if packed or (padded and not causal) else None
    place = _places(lengths, t) if packed else None
    if any(e.place is not None for e in examples):
        place = _fill(groups, _place, t, 0)
    parts = None
    if any(e.part is not None for e in examples):
        halves = [_part_lengths(group) for group in groups]
        document, place = _documents(halves, t), _places(halves, t)
        parts = document
    turn = None
    if any(e.turn is not None for e in examples):
        turn = _fill(groups, _turn, t, 0)
    inputs = _fill(groups, lambda e: e.inputs, t, special.pad)
    segments = None
    if special.summary is not None or any(e.segments is not None for e in examples):
        segments = _fill(groups, _segments, t, 0)
        segments[inputs == special.summary] = SUMMARY
    ahead = None
    if any(e.ahead for e in examples):
        ahead = _fill(groups, _ahead, t, 0).astype(bool)
    return Arrays(
        inputs=inputs,
        targets=targets,
        asked=None if len(asked) == targets.size else asked,
        causal=causal,
        rank=_fill(groups, _rank, t, 0) if ranked else None,
        document=document,
        turn=turn,
        place=place,
        source=source,
        source_document=source_document,
        segments=segments,
        parts=parts,
        last=np.array([max(sum(row), 1) - 1 for row in lengths], np.int64) if padded else None,
        labels=_labels(groups, t),
        group=_groups(examples, packed),
        among=examples[0].among,
        wide=_wide(groups),
        blind=examples[0].blind,
        ahead=ahead,
        kept=examples[0].kept if len({e.kept for e in examples}) == 1 else None,
    )


def _source(
    groups: Sequence[Sequence[Example]],
    special: Special,
    packed: bool,
    width: int | None,
    multiple: int,
) -> tuple[Int[np.ndarray, "b s"], Int[np.ndarray, "b s"] | None]:
    lengths = [[len(_source_of(e)) for e in group] for group in groups]
    s = _width(lengths, width, multiple)
    needed = packed or any(sum(row) < s for row in lengths)
    return _fill(groups, _source_of, s, special.pad), _documents(lengths, s) if needed else None


def _check(groups: Sequence[Sequence[Example]], examples: Sequence[Example]) -> None:
    if not examples or not all(groups):
        raise ValueError("a batch needs at least one example in each row, got none")
    if len({e.source is None for e in examples}) > 1:
        raise ValueError("examples with a source and examples without one do not fit one batch")
    if len({e.blind for e in examples}) > 1:
        raise ValueError("examples that see their own token and blind ones do not fit one batch")
    if len({None if e.among is None else e.among.tobytes() for e in examples}) > 1:
        raise ValueError("examples whose answers are among different tokens do not fit one batch")


def _width(lengths: Sequence[Sequence[int]], width: int | None, multiple: int) -> int:
    longest = max(max(sum(row) for row in lengths), width or 0, 1)
    return -(-longest // multiple) * multiple


def _fill(
    groups: Sequence[Sequence[Example]],
    part: Callable[[Example], Int[np.ndarray, "t"]],
    width: int,
    padding: int,
) -> Int[np.ndarray, "b t"]:
    out = np.full((len(groups), width), padding, np.int64)
    for row, group in zip(out, groups, strict=True):
        end = 0
        for example in group:
            values = part(example)
            row[end : end + len(values)] = values
            end += len(values)
    return out


def _documents(lengths: Sequence[Sequence[int]], width: int) -> Int[np.ndarray, "b t"]:
    out = np.full((len(lengths), width), -1, np.int64)
    for row, ns in zip(out, lengths, strict=True):
        row[: sum(ns)] = np.repeat(np.arange(len(ns)), ns)
    return out


def _places(lengths: Sequence[Sequence[int]], width: int) -> Int[np.ndarray, "b t"]:
    out = np.zeros((len(lengths), width), np.int64)
    for row, ns in zip(out, lengths, strict=True):
        row[: sum(ns)] = np.concatenate([np.arange(n) for n in ns])
    return out


def _place(e: Example) -> Int[np.ndarray, "t"]:
    return np.arange(len(e.inputs)) if e.place is None else e.place


def _part_lengths(group: Sequence[Example]) -> list[int]:
    """Count the tokens of each part of a row; none between two texts, whose parts are no pair."""
    lengths = [[len(e.inputs)] if e.part is None else np.bincount(e.part).tolist() for e in group]
    return [n for parts in lengths for n in (*parts, 0)]


def _is_order(rank: Int[np.ndarray, "t"]) -> bool:
    return bool((rank == np.arange(len(rank))).all())


def _rank(e: Example) -> Int[np.ndarray, "t"]:
    return np.zeros(len(e.inputs), np.int64) if e.rank is None else e.rank


def _turn(e: Example) -> Int[np.ndarray, "t"]:
    return np.zeros(len(e.inputs), np.int64) if e.turn is None else e.turn


def _segments(e: Example) -> Int[np.ndarray, "t"]:
    return np.zeros(len(e.inputs), np.int64) if e.segments is None else e.segments


def _ahead(e: Example) -> Int[np.ndarray, "t"]:
    return np.full(len(e.inputs), int(e.ahead), np.int64)


def _source_of(e: Example) -> Int[np.ndarray, "s"]:
    if e.source is None:
        raise ValueError("an example without a source")
    return e.source


def _labels(groups: Sequence[Sequence[Example]], width: int) -> Shaped[np.ndarray, "b ..."] | None:
    """Stack the labels of texts, or of their tokens; IGNORE where one has none and others have."""
    labels = [e.label for group in groups for e in group]
    kinds = {type(label) for label in labels} - {type(None)}
    if not kinds:
        return None
    several = any(_is_several(label) for label in labels)
    if np.ndarray in kinds and not several:
        if len(kinds) > 1:
            raise ValueError("some texts have one label and others one for each of their tokens")
        return _fill(groups, _token_labels, width, IGNORE)
    if len(labels) > len(groups):
        raise ValueError("texts with labels cannot be packed: a row has one label")
    if several:
        return _several(labels)
    if all(issubclass(kind, int | np.integer) for kind in kinds):
        return np.array([IGNORE if label is None else label for label in labels], np.int64)
    if None in labels:
        raise ValueError("some texts have a score as their label and others have none")
    return np.array(labels, np.float32)


def _is_several(label: object) -> bool:
    return isinstance(label, np.ndarray) and label.dtype.kind == "f"


def _several(labels: Sequence[object]) -> Float[np.ndarray, "b labels"]:
    """Stack the labels that may hold together; IGNORE in the row of a text whose are not known."""
    known = [label for label in labels if isinstance(label, np.ndarray)]
    widths = {len(label) for label in known if _is_several(label)}
    strange = [label for label in labels if label is not None and not _is_several(label)]
    if strange or len(widths) > 1:
        raise ValueError("texts of a batch must all have one label, or as many that may hold")
    none = np.full(widths.pop(), IGNORE, np.float32)
    rows = [label if isinstance(label, np.ndarray) else none for label in labels]
    return np.stack(rows).astype(np.float32)


def _wide(groups: Sequence[Sequence[Example]]) -> Int[np.ndarray, "b g"] | None:
    """Find the columns of each row's wide tokens, filled up with -1."""
    rows: list[list[int]] = []
    for group in groups:
        begins = accumulate((len(e.inputs) for e in group), initial=0)
        places = [() if e.wide is None else e.wide.tolist() for e in group]
        rows.append([b + i for b, each in zip(begins, places, strict=False) for i in each])
    most = max(map(len, rows))
    if not most:
        return None
    return np.array([row + [-1] * (most - len(row)) for row in rows], np.int64)


def _groups(examples: Sequence[Example], packed: bool) -> Int[np.ndarray, "b"] | None:
    """Number the groups of a batch's rows from 0; a row without one is a group of its own."""
    if all(e.group is None for e in examples):
        return None
    if packed:
        raise ValueError("texts that are asked together cannot be packed: each needs a row")
    keys = [(e.group is None, i if e.group is None else e.group) for i, e in enumerate(examples)]
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys], np.int64)


def _token_labels(e: Example) -> Int[np.ndarray, "t"]:
    return e.label if isinstance(e.label, np.ndarray) else np.full(len(e.inputs), IGNORE)
