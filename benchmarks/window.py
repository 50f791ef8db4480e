"""Attention within a window: a mask of all pairs against blocks that see their neighbors.

    python benchmarks/window.py [--rounds 5] [--lengths 256,512] [--sizes modernbert-base]

Both are `unmask.model.layers.attention.attention.attend` on the same random numbers, in float32 and
without dropout: once with a mask of all pairs, once with a band. Who sees whom is worked out in
each call, as it is once a forward. In each round both take a turn, the first of them alternately;
printed are medians of seconds, and the median of the ratios within rounds. Below which length
blocks do not pay is what `BLOCK_LOCAL_MIN_KEYS` says.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.batch import Visibility
from unmask.model.layers.attention.attention import AttentionMask, Scoring, attend
from unmask.model.layers.attention.block_local_mask import BlockLocalMask, Window

LENGTHS = (256, 384, 448, 512, 1024, 2048, 4096, 8192)
ENOUGH = 20.0
"""Seconds after which a length has no more rounds, but for the first."""


@dataclass(frozen=True)
class Size:
    """What a layer's attention is like."""

    heads: int
    width: int
    window: int


SIZES = {
    "modernbert-base": Size(12, 64, 64),
    "longformer-base": Size(12, 64, 256),
    "longformer-mini": Size(4, 64, 16),
}


def dense(size: Size, t: int) -> AttentionMask:
    return AttentionMask(Visibility().to_mask(t, t, near=Window(size.window).to_mask(t, t)))


def banded(size: Size, t: int) -> AttentionMask:
    return AttentionMask(block_local_mask=BlockLocalMask(Visibility(), size.window))


def seconds(
    make: Callable[[Size, int], AttentionMask], size: Size, x: Sequence[Tensor], *, learn: bool
) -> float:
    """Run attention once, with gradients if it learns."""
    start = time.perf_counter()
    with torch.set_grad_enabled(learn):
        y = attend(*x, make(size, x[0].shape[2]), Scoring(size.width**-0.5))
    if learn:
        torch.autograd.grad(y.sum(), x)
    return time.perf_counter() - start


def compare(size: Size, t: int, rounds: int, *, learn: bool) -> tuple[float, float, float, int]:
    """Return the medians of both, of the ratio within rounds, and the number of rounds."""
    torch.manual_seed(t)
    shape = (1, t, size.heads, size.width)
    x = [torch.randn(shape).transpose(1, 2).requires_grad_(learn) for _ in "qkv"]
    for make in (dense, banded):
        seconds(make, size, x, learn=learn)
    start, taken = time.perf_counter(), []
    while len(taken) < rounds and (not taken or time.perf_counter() - start < ENOUGH):
        order = (dense, banded) if len(taken) % 2 else (banded, dense)
        one = {make: seconds(make, size, x, learn=learn) for make in order}
        taken.append((one[dense], one[banded]))
    a, b = (statistics.median(side) for side in zip(*taken, strict=True))
    return a, b, statistics.median(a / b for a, b in taken), len(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {args.threads} threads")
    print("| attention of | length | windows | | dense s | banded s | banded is | rounds |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    for name in args.sizes.split(","):
        for t in map(int, args.lengths.split(",")):
            for learn in (False, True):
                size = SIZES[name]
                a, b, ratio, n = compare(size, t, args.rounds, learn=learn)
                kind = "forward and backward" if learn else "forward"
                row = f"{t:,} | {t / size.window:g} | {kind} | {a:.4f} | {b:.4f}"
                print(f"| {name} | {row} | {ratio:.2f}x | {n} |", flush=True)


if __name__ == "__main__":
    main()
