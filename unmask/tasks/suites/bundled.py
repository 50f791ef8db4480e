"""SUITES: the suites of published benchmarks that ship with Unmask, each a TOML file."""

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
    """Suites by the names of their files, each read when it is first used."""

    def __getitem__(self, name: str) -> Suite:
        """Return a suite.

        Raises:
            KeyError: there is none of this name.
        """
        if name not in _suite_names():
            raise KeyError(name)
        return _read_bundled(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of the alphabet."""
        return iter(_suite_names())

    def __len__(self) -> int:
        """Count the suites."""
        return len(_suite_names())


SUITES: Mapping[str, Suite] = BundledSuites()


def find_suite(
    suite_name: str, folder: Path | None = None, *, include_test: bool = True
) -> LocatedSuite:
    """Find the files of a suite: its entries, and warnings and notes for the user is missing.

    Args:
        suite_name: a name of `SUITES`, or a TOML file with a suite of one's own (see `Suite`),
            whose paths begin at its own folder if none is given.
        folder: where the files are. None: on the Hub, from where `benchmark.fetch_files` gets them.
        include_test: test files are looked for, too.

    Raises:
        FileNotFoundError: there is no such file or folder, or nothing of the suite in it.
        ValueError: there is no such suite, or its file is not what it should be.
    """
    path = Path(suite_name)
    own = suite_name not in SUITES and path.suffix.lower() == ".toml"
    if not own and suite_name not in SUITES:
        raise ValueError(f"{_unknown_suite(suite_name)}; or name a TOML file")
    suite = read_suite(path) if own else SUITES[suite_name]
    suite = suite if include_test else suite.without_test
    if folder is None and not own:
        return locate_on_hub(suite)
    return locate_in_folder(suite, folder or path.parent, fall_back_to_hub=own)


def _unknown_suite(name: str) -> str:
    return unknown_key_message(name, SUITES).replace("unknown key", "unknown suite", 1)


@cache
def _suite_names() -> tuple[str, ...]:
    return tuple(sorted(_suite_paths()))


@cache
def _suite_paths() -> Mapping[str, Path]:
    """Return the file of each suite, whatever its subfolder."""
    return {path.stem: path for path in SUITES_FOLDER.glob("*/*.toml")}


@cache
def _read_bundled(name: str) -> Suite:
    return read_suite(_suite_paths()[name])
