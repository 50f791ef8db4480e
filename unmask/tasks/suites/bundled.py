"""SUITES: the bundled suites of published benchmarks, each a TOML file."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from unmask.config import unknown_key_message
from unmask.tasks.suites.benchmark import (
    LocatedSuite,
    Suite,
    locate_in_folder,
    locate_on_hub,
    read_suite,
)

SUITES_FOLDER = Path(__file__).parent


class BundledSuites(Mapping[str, Suite]):
    """Suites by the names of their files, read at first use."""

    def __getitem__(self, name: str) -> Suite:
        """Return a suite.

        Raises:
            KeyError: there is none of this name.
        """
        if name not in _suite_names():
            raise KeyError(name)
        return _read_bundled(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in alphabetical order."""
        return iter(_suite_names())

    def __len__(self) -> int:
        """Count the suites."""
        return len(_suite_names())


SUITES: Mapping[str, Suite] = BundledSuites()


def find_suite(
    suite_name: str, folder: Path | None = None, *, include_test: bool = True
) -> LocatedSuite:
    """Find the files of a suite: its entries, and notes on what is missing.

    Args:
        suite_name: a name of `SUITES`, or a TOML file with a suite (see `Suite`); its paths are
            relative to its folder if `folder` is None.
        folder: folder of the files. None: the Hub, from which `benchmark.fetch_files` fetches.
        include_test: whether to find test files, too.

    Raises:
        FileNotFoundError: there is no such file or folder, or nothing of the suite in it.
        ValueError: there is no such suite, or its file is invalid.
    """
    path = Path(suite_name)
    from_file = suite_name not in SUITES and path.suffix.lower() == ".toml"
    if not from_file and suite_name not in SUITES:
        raise ValueError(f"{_unknown_suite(suite_name)}; or name a TOML file")
    suite = read_suite(path) if from_file else SUITES[suite_name]
    suite = suite if include_test else suite.without_test
    if folder is None and not from_file:
        return locate_on_hub(suite)
    return locate_in_folder(suite, folder or path.parent, fall_back_to_hub=from_file)


def _unknown_suite(name: str) -> str:
    return unknown_key_message(name, SUITES).replace("unknown key", "unknown suite", 1)


@cache
def _suite_names() -> tuple[str, ...]:
    return tuple(sorted(_suite_paths()))


@cache
def _suite_paths() -> Mapping[str, Path]:
    """Return the file of each suite, in any subfolder."""
    return {path.stem: path for path in SUITES_FOLDER.glob("*/*.toml")}


@cache
def _read_bundled(name: str) -> Suite:
    return read_suite(_suite_paths()[name])
