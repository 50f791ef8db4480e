"""SUITES: the suites of published benchmarks that ship with Unmask, each a TOML file."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from unmask.config import unknown
from unmask.tasks.benchmark import Found, Suite, in_folder, on_hub, read_suite

FOLDER = Path(__file__).parent / "suites"


class BundledSuites(Mapping[str, Suite]):
    """The suites of a folder by name: the names of its files, each read when it is first used."""

    def __getitem__(self, name: str) -> Suite:
        """Return a suite.

        Raises:
            KeyError: there is none of this name.
        """
        if name not in _names():
            raise KeyError(name)
        return _read(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of the alphabet."""
        return iter(_names())

    def __len__(self) -> int:
        """Count the suites."""
        return len(_names())


SUITES: Mapping[str, Suite] = BundledSuites()


def find_suite(suite_name: str, folder: Path | None = None, *, tested: bool = True) -> Found:
    """Find the files of a suite: its entries, and what a user should be told is missing.

    Args:
        suite_name: a name of `SUITES`, or a TOML file with a suite of one's own (see `Suite`),
            whose paths begin at its own folder if none is given.
        folder: where the files are. None: on the Hub, from where `benchmark.fetched` gets them.
        tested: test files are looked for, too.

    Raises:
        FileNotFoundError: there is no such file or folder, or nothing of the suite in it.
        ValueError: there is no such suite, or its file is not what it should be.
    """
    path = Path(suite_name)
    own = suite_name not in SUITES and path.suffix.lower() == ".toml"
    if not own and suite_name not in SUITES:
        raise ValueError(f"{_no_suite(suite_name)}; or name a TOML file")
    suite = read_suite(path) if own else SUITES[suite_name]
    suite = suite if tested else suite.untested
    if folder is None and not own:
        return on_hub(suite)
    return in_folder(suite, folder or path.parent, hub=own)


def _no_suite(name: str) -> str:
    return unknown(name, SUITES).replace("unknown key", "unknown suite", 1)


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def _read(name: str) -> Suite:
    return read_suite(FOLDER / f"{name}.toml")
