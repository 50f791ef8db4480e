"""Tiny jobs, and what each learns when nothing happens to it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults import without_folder
from kills import Tree, learned
from tiny_jobs import ready, texts


@pytest.fixture(scope="package")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder of all that the jobs read."""
    home = tmp_path_factory.mktemp("home")
    texts(home)
    yield home
    shutil.rmtree(home)


@pytest.fixture(scope="package")
def undisturbed(home: Path) -> Callable[[str], Tree]:
    """Give a function of a job's name that returns what it learns, undisturbed."""
    known: dict[str, Tree] = {}

    def of(name: str) -> Tree:
        if name not in known:
            job, out = ready(name, home), home / "undisturbed" / name.replace(" ", "-")
            job(home, out, False)
            known[name] = without_folder(learned(out), out)
        return known[name]

    return of
