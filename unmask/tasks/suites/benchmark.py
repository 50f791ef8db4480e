"""Benchmarks: published tasks, where their files are found, and how they are read.

A `Suite` is a table of them. The files are looked for in a folder, under the names that others hand
them out by, or fetched from the Hub; no row is read here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unmask.config import read_dataclass
from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.readers.tables import read_header
from unmask.text.decompress import COMPRESSIONS
from unmask.text.hub import split_hub_name
from unmask.text.records import format_names

HUB_PREFIX = "hf:"

_PARQUET_REVISION = "refs/convert/parquet"
"""The branch in which the Hub keeps every data set as CONFIG/SPLIT/0000.parquet and so on
(huggingface.co/docs/dataset-viewer/parquet): no code of a data set is run."""
_DEFAULT_CONFIG = "default"  # what the Hub calls the config of a data set that has but one


@dataclass(frozen=True, kw_only=True)
class BenchmarkFiles:
    """One way in which the files of a benchmark are handed out.

    A file is a path within a folder, where .gz, .xz or .zst may follow, or `hf:owner/name:split` of
    the Hub, with a config as `hf:owner/name:config:split`.
    """

    train: str
    dev: str | None = None
    """None: some of the training file is set aside."""
    test: str | None = None
    text: tuple[str, ...] = ()
    """Columns. None named: found by their customary names."""
    label: str | None = None
    choices: tuple[str, ...] = ()
    column_names: tuple[str, ...] = ()
    """Names of all columns, of files that do not say them."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A published task."""

    name: str
    task: TaskKindName
    files: tuple[BenchmarkFiles, ...]
    """The first that is there is taken."""
    labels: tuple[str, ...] = ()
    """Where files have the numbers 0, 1 and so on, what these mean; where they have words, all of
    them, if the training file lacks some. Empty: those of the training file."""
    metric: str | None = None
    """The customary one. None: that of the kind of task."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else the kind of task lets one choose; see `unmask.tasks.kinds`."""
    rows: int | None = None
    """So many of the training file are learned from, whatever a run says. None: what a run says."""
    needs_test: bool = False
    """It learns from another's files and has only a test file of its own."""
    paper: str = ""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if not self.files:
            raise ValueError(f"benchmark {self.name!r} names no files")
        if self.rows is not None and self.rows < 1:
            raise ValueError(f"benchmark {self.name!r}: rows must be at least 1, got {self.rows}")
        for one in self.files:
            if one.label in one.text:
                raise ValueError(
                    f"benchmark {self.name!r}: column {one.label!r} is both text and label"
                )


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Benchmarks that are run together."""

    name: str
    benchmarks: tuple[Benchmark, ...]
    subfolders: tuple[str, ...] = ("",)
    """Folders within the one that is given in which the files may be."""
    note: str = ""
    """What a user should be told of its scores."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        names = [one.name for one in self.benchmarks]
        if not names:
            raise ValueError(f"suite {self.name!r} has no benchmarks")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"suite {self.name!r} has two benchmarks {twice[0]!r}")

    @property
    def without_test(self) -> "Suite":
        """The same without test files, and without what has only such a file of its own."""
        kept = (
            replace(one, files=tuple(replace(files, test=None) for files in one.files))
            for one in self.benchmarks
            if not one.needs_test
        )
        return replace(self, benchmarks=tuple(kept))


@dataclass(frozen=True, kw_only=True)
class LocatedBenchmark:
    """A benchmark whose files were found: what a run of fine-tuning is told."""

    name: str
    task: TaskKindName
    train: str
    """A path, or a split of the Hub, see `fetch_files`."""
    dev: str | None
    test: str | None
    text: tuple[str, ...]
    label: str | None
    choices: tuple[str, ...]
    column_names: tuple[str, ...]
    labels: tuple[str, ...]
    """See `Benchmark`."""
    metric: str | None
    options: Mapping[str, Any]
    rows: int | None
    paper: str


LocatedSuite = tuple[list[LocatedBenchmark], list[str]]
"""What is there, and warnings and notes for the user is missing."""


def read_suite(path: Path) -> Suite:
    """Read a suite from a TOML file; its name is the file's if it does not say one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or a key or value is invalid.
    """
    return read_dataclass(Suite, path)


def locate_in_folder(suite: Suite, folder: Path, *, fall_back_to_hub: bool = False) -> LocatedSuite:
    """Find the files of a suite in a folder.

    Args:
        suite: what is looked for.
        folder: in which, or in a customary one within it.
        fall_back_to_hub: where there are none, name those of the Hub.

    Raises:
        FileNotFoundError: there is no such folder, or nothing of the suite in it.
        ValueError: a file is damaged.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    roots = [folder / name for name in suite.subfolders]
    found: list[LocatedBenchmark] = []
    notes = [suite.note] if suite.note else []
    for one in suite.benchmarks:
        entry, told = _locate_in_folders(one, roots)
        if entry is None and fall_back_to_hub and (online := _locate_on_hub(one)):
            entry, told = online, []
        found += [entry] if entry else []
        notes += told
    if not found:
        names = (f.train for one in suite.benchmarks for f in one.files if not _is_hub(f))
        looked = format_names(dict.fromkeys(names))
        raise FileNotFoundError(
            f"{folder}: nothing of the suite {suite.name!r} is there (looked for {looked})"
        )
    return found, notes


def locate_on_hub(suite: Suite) -> LocatedSuite:
    """Name the files of a suite on the Hub, of which none is fetched yet.

    Raises:
        FileNotFoundError: nothing of the suite is there.
    """
    named = [(one, _locate_on_hub(one)) for one in suite.benchmarks]
    found = [entry for _, entry in named if entry]
    if not found:
        raise FileNotFoundError(f"nothing of the suite {suite.name!r} is on the Hub; name a folder")
    return found, ([suite.note] if suite.note else []) + [
        f"{one.name} is left out: it is not on the Hub; name a folder that has it"
        for one, entry in named
        if entry is None
    ]


def _is_hub(files: BenchmarkFiles) -> bool:
    return files.train.startswith(HUB_PREFIX)


def _locate_on_hub(one: Benchmark) -> LocatedBenchmark | None:
    files = next((files for files in one.files if _is_hub(files)), None)
    return _located(one, files) if files else None


def _located(one: Benchmark, files: BenchmarkFiles) -> LocatedBenchmark:
    return LocatedBenchmark(
        name=one.name, task=one.task, train=files.train, dev=files.dev, test=files.test,
        text=files.text, label=files.label, choices=files.choices, column_names=files.column_names,
        labels=one.labels, metric=one.metric, options=one.options, rows=one.rows, paper=one.paper,
    )  # fmt: skip


def _locate_in_folders(
    one: Benchmark, folders: Sequence[Path]
) -> tuple[LocatedBenchmark | None, list[str]]:
    """Find a benchmark, or say why it is left out."""
    local = [files for files in one.files if not _is_hub(files)]
    why = f"there is no {' or '.join(dict.fromkeys(files.train for files in local))}"
    for files, root in ((files, root) for files in local for root in folders):
        train = find_file(root, files.train)
        if train is None:
            continue
        if amiss := _table_mismatch(train, files):
            why = amiss
            continue
        others, told = _find_dev_and_test(one.name, root, files)
        if one.needs_test and others["test"] is None:
            why = f"there is no {files.test}"
            continue
        return _located(one, replace(files, train=str(train), **others)), told
    return None, [f"{one.name} is left out: {why}"]


def _find_dev_and_test(
    name: str, folder: Path, files: BenchmarkFiles
) -> tuple[dict[str, str | None], list[str]]:
    """Find dev and test files, and say which of them are named and not there."""
    found: dict[str, str | None] = {}
    told: list[str] = []
    for which, wanted in (("dev", files.dev), ("test", files.test)):
        path = None if wanted is None else find_file(folder, wanted)
        amiss = None if path is None else _table_mismatch(path, files)
        found[which] = None if path is None or amiss else str(path)
        if wanted is not None and found[which] is None:
            told.append(f"{name} has no {which} file: {amiss or f'there is no {wanted}'}")
    return found, told


def find_file(folder: Path, name: str) -> Path | None:
    """Find a file in a folder, as it is named or compressed."""
    return next((path for path in _with_compressed_suffixes(folder / name) if path.is_file()), None)


def _with_compressed_suffixes(path: Path) -> Iterator[Path]:
    yield path
    for ending in COMPRESSIONS:
        yield path.with_name(path.name + ending)


def _table_mismatch(path: Path, files: BenchmarkFiles) -> str | None:
    """Say how a table differs from what is expected: the same name may hold another's columns."""
    if not {".tsv", ".csv"} & {ending.lower() for ending in path.suffixes}:
        return None
    first = read_header(path, "replace")
    if files.column_names:
        n, m = len(first), len(files.column_names)
        return None if n == m else f"{path} has {n} columns, not {m}"
    named = (*files.text, *files.choices, *((files.label,) if files.label else ()))
    lacking = [name for name in named if name not in first]
    if not lacking:
        return None
    return f"{path} has no column {lacking[0]!r} (columns: {format_names(first)})"


def fetch_files(entry: LocatedBenchmark) -> LocatedBenchmark:
    """Return an entry whose files are all on this machine, fetched if they are on the Hub.

    Raises:
        FileNotFoundError: there is no such data set, config or split, or the Hub cannot be reached.
        ValueError: a split is not one file.
    """
    train, dev, test = (
        str(fetch_split(name)) if name is not None and name.startswith(HUB_PREFIX) else name
        for name in (entry.train, entry.dev, entry.test)
    )
    assert train is not None
    return replace(entry, train=train, dev=dev, test=test)


def fetch_split(name: str) -> Path:
    """Fetch a split of a data set of the Hub, as Parquet, or find it where it was fetched before.

    Args:
        name: `hf:owner/name:config:split`, see `unmask.text.hub`.

    Raises:
        FileNotFoundError: there is no such data set, config or split, or the Hub cannot be reached.
        ValueError: the split is not one file.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    data_set, config, split = split_hub_name(name.removeprefix(HUB_PREFIX))
    pattern = f"{config or _DEFAULT_CONFIG}/{split}/*.parquet"
    try:
        folder = snapshot_download(
            data_set, repo_type="dataset", revision=_PARQUET_REVISION, allow_patterns=[pattern]
        )
    except HFValidationError as error:
        raise ValueError(f"{name}: {str(error).splitlines()[0]}") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        why = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f"{name}: cannot be fetched from the Hub: {why}") from None
    found = sorted(Path(folder).glob(pattern))
    if not found:
        raise FileNotFoundError(f"{name}: the Hub has no {pattern} of it in {_PARQUET_REVISION}")
    if len(found) > 1:
        raise ValueError(f"{name}: is {len(found)} files; only a split that is one file is read")
    return found[0]
