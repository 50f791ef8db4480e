"""Benchmarks: published tasks, the locations and the format of their files.

A `Suite` is a list of them. Files are searched in a folder under their published names, or fetched
from the Hub; no row is read here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unmask.config import read_dataclass
from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.readers.tables import read_header
from unmask.text.formats.decompress import COMPRESSIONS
from unmask.text.formats.hub import split_hub_name
from unmask.text.formats.records import format_names

HUB_PREFIX = "hf:"

_PARQUET_REVISION = "refs/convert/parquet"
"""The Hub branch with each data set as CONFIG/SPLIT/0000.parquet and so on
(huggingface.co/docs/dataset-viewer/parquet): no code of a data set is run."""
_DEFAULT_CONFIG = "default"  # the Hub's name for the only config of a data set


@dataclass(frozen=True, kw_only=True)
class BenchmarkFiles:
    """One distribution of the files of a benchmark.

    A file is a path within a folder, optionally followed by .gz, .xz or .zst, or
    `hf:owner/name:split` on the Hub, with a config `hf:owner/name:config:split`.
    """

    train: str
    dev: str | None = None
    """None: a part of the training file is set aside."""
    test: str | None = None
    text: tuple[str, ...] = ()
    """Text columns. Empty: found by usual names."""
    label: str | None = None
    choices: tuple[str, ...] = ()
    column_names: tuple[str, ...] = ()
    """Names of all columns, for files without a header."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A published task."""

    name: str
    task: TaskKindName
    files: tuple[BenchmarkFiles, ...]
    """Alternatives; the first that exists is used."""
    labels: tuple[str, ...] = ()
    """All labels, in order; numbers 0, 1, ... in the files are indices into them. Empty: those of
    the training file."""
    metric: str | None = None
    """Main metric. None: that of the kind of task."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the kind of task; see `unmask.tasks.kinds`."""
    rows: int | None = None
    """Number of training rows, overriding that of the run. None: that of the run."""
    needs_test: bool = False
    """Whether only the test file is its own; it is trained on the files of another benchmark."""
    paper: str = ""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if not self.files:
            raise ValueError(f"benchmark {self.name!r} has no files")
        if self.rows is not None and self.rows < 1:
            raise ValueError(f"benchmark {self.name!r}: rows must be at least 1, got {self.rows}")
        for files in self.files:
            if files.label in files.text:
                raise ValueError(
                    f"benchmark {self.name!r}: column {files.label!r} is both text and label"
                )


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Benchmarks that are run together."""

    name: str
    benchmarks: tuple[Benchmark, ...]
    subfolders: tuple[str, ...] = ("",)
    """Subfolders of the given folder that may contain the files."""
    note: str = ""
    """Note for the user about its scores."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        names = [benchmark.name for benchmark in self.benchmarks]
        if not names:
            raise ValueError(f"suite {self.name!r} has no benchmarks")
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"suite {self.name!r} has two benchmarks {repeated[0]!r}")

    @property
    def without_test(self) -> "Suite":
        """A copy without test files, and without benchmarks that have only a test file."""
        benchmarks = (
            replace(benchmark, files=tuple(replace(files, test=None) for files in benchmark.files))
            for benchmark in self.benchmarks
            if not benchmark.needs_test
        )
        return replace(self, benchmarks=tuple(benchmarks))


@dataclass(frozen=True, kw_only=True)
class LocatedBenchmark:
    """A benchmark with located files, as passed to a fine-tuning run."""

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
"""The benchmarks found, and notes on what is missing."""


def read_suite(path: Path) -> Suite:
    """Read a suite from a TOML file; the default name is that of the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or a key or value is invalid.
    """
    return read_dataclass(Suite, path)


def locate_in_folder(suite: Suite, folder: Path, *, fall_back_to_hub: bool = False) -> LocatedSuite:
    """Find the files of a suite in a folder.

    Args:
        suite: the suite.
        folder: the folder; its usual subfolders are searched, too.
        fall_back_to_hub: use files of the Hub for those not found.

    Raises:
        FileNotFoundError: there is no such folder, or nothing of the suite in it.
        ValueError: a file is damaged.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    roots = [folder / name for name in suite.subfolders]
    located: list[LocatedBenchmark] = []
    notes = [suite.note] if suite.note else []
    for benchmark in suite.benchmarks:
        entry, messages = _locate_in_folders(benchmark, roots)
        if entry is None and fall_back_to_hub and (online := _locate_on_hub(benchmark)):
            entry, messages = online, []
        located += [entry] if entry else []
        notes += messages
    if not located:
        names = (
            f.train for benchmark in suite.benchmarks for f in benchmark.files if not _is_hub(f)
        )
        looked_for = format_names(dict.fromkeys(names))
        raise FileNotFoundError(
            f"{folder}: no file of the suite {suite.name!r} (looked for {looked_for})"
        )
    return located, notes


def locate_on_hub(suite: Suite) -> LocatedSuite:
    """Return the files of a suite on the Hub, without fetching them.

    Raises:
        FileNotFoundError: nothing of the suite is there.
    """
    entries = [(benchmark, _locate_on_hub(benchmark)) for benchmark in suite.benchmarks]
    located = [entry for _, entry in entries if entry]
    if not located:
        raise FileNotFoundError(f"suite {suite.name!r} has no files on the Hub; give a folder")
    return located, ([suite.note] if suite.note else []) + [
        f"{benchmark.name} is left out: it is not on the Hub; give a folder that has it"
        for benchmark, entry in entries
        if entry is None
    ]


def _is_hub(files: BenchmarkFiles) -> bool:
    return files.train.startswith(HUB_PREFIX)


def _locate_on_hub(benchmark: Benchmark) -> LocatedBenchmark | None:
    files = next((files for files in benchmark.files if _is_hub(files)), None)
    return _located(benchmark, files) if files else None


def _located(benchmark: Benchmark, files: BenchmarkFiles) -> LocatedBenchmark:
    return LocatedBenchmark(
        name=benchmark.name, task=benchmark.task, train=files.train, dev=files.dev, test=files.test,
        text=files.text, label=files.label, choices=files.choices, column_names=files.column_names,
        labels=benchmark.labels, metric=benchmark.metric, options=benchmark.options,
        rows=benchmark.rows, paper=benchmark.paper,
    )  # fmt: skip


def _locate_in_folders(
    benchmark: Benchmark, folders: Sequence[Path]
) -> tuple[LocatedBenchmark | None, list[str]]:
    """Find a benchmark, or return the reason why it is skipped."""
    local = [files for files in benchmark.files if not _is_hub(files)]
    reason = f"there is no {' or '.join(dict.fromkeys(files.train for files in local))}"
    for files, root in ((files, root) for files in local for root in folders):
        train = find_file(root, files.train)
        if train is None:
            continue
        if mismatch := _table_mismatch(train, files):
            reason = mismatch
            continue
        other_files, messages = _find_dev_and_test(benchmark.name, root, files)
        if benchmark.needs_test and other_files["test"] is None:
            reason = f"there is no {files.test}"
            continue
        return _located(benchmark, replace(files, train=str(train), **other_files)), messages
    return None, [f"{benchmark.name} is left out: {reason}"]


def _find_dev_and_test(
    name: str, folder: Path, files: BenchmarkFiles
) -> tuple[dict[str, str | None], list[str]]:
    """Find dev and test files, with messages about missing ones."""
    paths: dict[str, str | None] = {}
    messages: list[str] = []
    for split, file_name in (("dev", files.dev), ("test", files.test)):
        path = None if file_name is None else find_file(folder, file_name)
        mismatch = None if path is None else _table_mismatch(path, files)
        paths[split] = None if path is None or mismatch else str(path)
        if file_name is not None and paths[split] is None:
            messages.append(f"{name} has no {split} file: {mismatch or f'there is no {file_name}'}")
    return paths, messages


def find_file(folder: Path, name: str) -> Path | None:
    """Find a file in a folder, plain or compressed."""
    return next((path for path in _with_compressed_suffixes(folder / name) if path.is_file()), None)


def _with_compressed_suffixes(path: Path) -> Iterator[Path]:
    yield path
    for ending in COMPRESSIONS:
        yield path.with_name(path.name + ending)


def _table_mismatch(path: Path, files: BenchmarkFiles) -> str | None:
    """Describe how a table differs from what is expected; None if it does not."""
    if not {".tsv", ".csv"} & {ending.lower() for ending in path.suffixes}:
        return None
    first = read_header(path, "replace")
    if files.column_names:
        n, m = len(first), len(files.column_names)
        return None if n == m else f"{path} has {n} columns, not {m}"
    expected = (*files.text, *files.choices, *((files.label,) if files.label else ()))
    missing = [name for name in expected if name not in first]
    if not missing:
        return None
    return f"{path} has no column {missing[0]!r} (columns: {format_names(first)})"


def fetch_files(entry: LocatedBenchmark) -> LocatedBenchmark:
    """Return an entry with local files, fetched from the Hub if needed.

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
    """Fetch a split of a data set of the Hub as Parquet, or find it in the cache.

    Args:
        name: `hf:owner/name:config:split`, see `unmask.text.formats.hub`.

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
        reason = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f"{name}: cannot be fetched from the Hub: {reason}") from None
    files = sorted(Path(folder).glob(pattern))
    if not files:
        raise FileNotFoundError(f"{name}: the Hub has no {pattern} of it in {_PARQUET_REVISION}")
    if len(files) > 1:
        raise ValueError(f"{name}: must be one file, got {len(files)}")
    return files[0]
