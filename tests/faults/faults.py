"""What happens to a job: a call at the n-th change of its folder, and what its error says."""

import os
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from kills import Tree, learned, watched

from unmask.cli.errors import error_line

QUICK = ("prepare cleaned", "align", "compress")
"""Jobs of a twentieth of a second."""
FEW = (
    "pretrain bert", "pretrain gpt2", "pretrain t5", "pretrain lstm", "pretrain pictures", "glove",
    "tune lora", "prefer", "study",
)  # fmt: skip
"""One of each kind of network, data and result."""


def kinds(jobs: Iterable[str], quick: Collection[str] = QUICK) -> list[ParameterSet]:
    """Give the names of jobs as cases: quick, thorough and slow."""
    marks = {
        name: () if name in quick else pytest.mark.thorough if name in (*QUICK, *FEW)
        else pytest.mark.slow for name in jobs
    }  # fmt: skip
    return [pytest.param(name, marks=mark, id=name) for name, mark in marks.items()]


def spread(n: int, most: int) -> list[int]:
    """Give at most so many of n numbers at equal distances, the last among them."""
    return sorted({n - 1 - i * n // most for i in range(most) if i * n // most < n})


def makes(event: str, path: str, out: Path) -> bool:
    """Whether a change of the disk is a new file or folder within a job's own."""
    here = Path(path)
    return (
        event in ("open", "os.mkdir")
        and (here == out or here.is_relative_to(out))
        and not os.path.lexists(here)
    )


def changes(out: Path, job: Callable[[], object]) -> int:
    """Run a job; count the changes of its folder."""
    n = 0

    def tell(event: str, path: str) -> None:
        nonlocal n
        n += Path(path).is_relative_to(out)

    with watched(tell):
        job()
    return n


@contextmanager
def at_change(n: int, out: Path, act: Callable[[], object]) -> Generator[None]:
    """Do something at the n-th change of a folder, from 0."""
    left = n

    def tell(event: str, path: str) -> None:
        nonlocal left
        if Path(path).is_relative_to(out):
            left -= 1
            if left == -1:
                act()

    with watched(tell):
        yield


def line_of(error: BaseException) -> tuple[str, int]:
    """Give the line that the command would end with, and its status."""
    found = error_line(error, is_training=True)
    if found is None:
        raise error  # a bug
    line, status = found
    assert line.count("\n") == 0, line
    assert len(line) < 900, line
    return line, status


def without_folder(there: Tree, out: Path) -> Tree:
    """Leave out the name of the job's folder, which records of jobs within it hold."""
    own = str(out).encode()
    return {n: None if data is None else data.replace(own, b"OUT") for n, data in there.items()}


def assert_as_undisturbed(out: Path, whole: Tree, what: str) -> None:
    again = without_folder(learned(out), out)
    differ = [n for n in {**whole, **again} if whole.get(n, b"?") != again.get(n, b"?")]
    assert not differ, f"{what}: {sorted(differ)}"
