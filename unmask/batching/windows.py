"""Windows of texts that are longer than a model reads at once."""

from collections.abc import Iterator


def limit_length(positions: int | None, sequence_length: int | None) -> int | None:
    """Return the maximum input length: the requested one, up to the number of positions.

    None: unlimited.
    """
    limits = [n for n in (positions, sequence_length) if n is not None]
    return min(limits, default=None)


def strided_windows(
    begin: int, end: int, width: int, stride: int
) -> Iterator[tuple[int, int, int]]:
    """Split positions `begin` to `end` into windows: (begin, first target, end).

    Each position is a target once. The first window has as many as fit; each following one has
    `stride` new targets and the maximum length.
    """
    target = begin
    while target < end:
        stop = min(end, max(width, target + stride))
        yield max(0, stop - width), target, stop
        target = stop
