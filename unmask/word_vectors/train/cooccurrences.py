"""Cooccurrence counts of words: counted in bounded memory, stored as a sparse matrix.

Frequent pairs are counted in a dense block (Pennington et al. 2014, released code: the pairs whose
ranks have a small product), others in a hash table. When the table is full, all counts are written
as a sorted run and both are cleared; at the end, the runs are merged. Interrupted counting
continues after the last run.

A folder of counts has

    counts.json    what was counted of what; written last: the folder is finished if and only if it
                   is there. Until then, unfinished.json says the same of the runs written so far
    offsets.npy    where the pairs of each word begin, and the end of the last (int64)
    columns.npy    the other word of each pair (int32), ascending within a word
    values.npy     the count of each pair (float32)
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, UInt64

from unmask.config import to_dict
from unmask.files import (
    atomic_path,
    check_file_record,
    file_record,
    read_json_object,
    remove_partial_files,
    write_atomically,
)
from unmask.word_vectors.formats.npy import npy_appender, open_npy, write_npy
from unmask.word_vectors.train.corpus import (
    Corpus,
    Lexicon,
    keep_thresholds,
    load_kernels,
    subsample_chunk,
    subsampling_keep_probabilities,
)

DistanceWeighting = Literal["flat", "harmonic", "dynamic"]
_WEIGHTS = ("flat", "harmonic", "dynamic")
_ARRAYS = ("offsets", "columns", "values")
_FINISHED, _UNFINISHED, _RUNS = "counts.json", "unfinished.json", "runs"
_ENTRY = 16  # bytes of a pair: key and value


@dataclass(frozen=True, kw_only=True)
class CooccurrenceWindow:
    """The context window: which words are neighbors, and their weights.

    Raises:
        ValueError: the weighting is unknown, or a number is out of range.
    """

    window: int = 10
    """Number of neighbors on each side."""
    distance_weighting: DistanceWeighting = "harmonic"
    """Weight of a neighbor at distance k: 1; 1 / k (GloVe); or the expectation under word2vec's
    sampled windows, 1 - (k - 1) / size (Levy et al. 2015, Q15-1016, section 3.1)."""
    symmetric: bool = True
    """Count neighbors on both sides, not only those before a word."""
    subsample: float | None = None
    """Relative frequency above which words are skipped at random. None: no word is skipped."""
    break_at_unknown: bool = False
    """End the window at words without a vector; else skip these words."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"the size of windows must be at least 1, got {self.window}")
        if self.distance_weighting not in _WEIGHTS:
            raise ValueError(
                f"distance_weighting must be one of {list(_WEIGHTS)}, got "
                f"{self.distance_weighting!r}"
            )
        if self.subsample is not None and not self.subsample > 0:
            raise ValueError(f"subsample must be above 0, got {self.subsample}")

    @property
    def distance_weights(self) -> Float64[np.ndarray, "window"]:
        """Weights of the distances 1, 2, ..."""
        k = np.arange(1.0, self.window + 1)
        if self.distance_weighting == "flat":
            return np.ones(self.window)
        return 1 / k if self.distance_weighting == "harmonic" else 1 - (k - 1) / self.window

    @property
    def description(self) -> str:
        """Describe the weighting."""
        if self.distance_weighting == "flat":
            return ""
        how = "1/k" if self.distance_weighting == "harmonic" else f"1 - (k - 1)/{self.window}"
        return f", one at distance k as {how}"


@dataclass(frozen=True, eq=False)
class CooccurrenceMatrix:
    """A square sparse matrix of counts: of each word, those of its neighbors, memory-mapped."""

    offsets: Int[np.ndarray, "_"]
    columns: Int[np.ndarray, "k"]
    values: Float32[np.ndarray, "k"]

    @classmethod
    def open(cls, folder: Path) -> "CooccurrenceMatrix":
        """Open a finished folder.

        Raises:
            FileNotFoundError: there is none, or it is unfinished.
            ValueError: its files are not of one matrix.
        """
        if not (folder / _FINISHED).exists():
            unfinished = (folder / _UNFINISHED).exists()
            why = "is unfinished: count again to go on" if unfinished else "holds no counts"
            raise FileNotFoundError(f"{folder} {why}")
        arrays = [open_npy(folder / f"{n}.npy") for n in _ARRAYS]
        _check_files(folder, read_json_object(folder / _FINISHED))
        found = cls(*arrays)
        if not len(found.offsets) or not (
            len(found.columns) == len(found.values) == found.offsets[-1]
        ):
            raise ValueError(f"{folder} is damaged: its files are not of one matrix")
        return found

    @property
    def n_words(self) -> int:
        """Rows, and columns."""
        return len(self.offsets) - 1

    @property
    def n_pairs(self) -> int:
        """Pairs that were seen."""
        return len(self.values)

    @property
    def row_indices(self) -> Int[np.ndarray, "k"]:
        """The first word of each pair, in memory."""
        return np.repeat(np.arange(self.n_words, dtype=np.int32), np.diff(self.offsets))


def count_cooccurrences(
    corpus: Corpus,
    words: Lexicon,
    windows: CooccurrenceWindow,
    folder: Path,
    *,
    memory: int = 2**30,
    chunk: int = 2**16,
) -> CooccurrenceMatrix:
    """Count neighbors into a folder, or open a folder with the same counts.

    Args:
        corpus: the token ids.
        words: the words that are counted.
        windows: the context window.
        folder: a new or empty folder, or one with these counts, finished or not.
        memory: approximate number of bytes for counts.
        chunk: approximate number of tokens in a chunk; fewer if the memory is small.

    Raises:
        ValueError: `folder` has the counts of other data, or the memory does not hold the pairs of
            a sentence.
        FileExistsError: `folder` has other files.
    """
    asked = _counting_record(corpus, words, windows)
    if (folder / _FINISHED).exists():
        _check_same_record(folder / _FINISHED, asked, folder)
        _remove_intermediate(folder)
        return CooccurrenceMatrix.open(folder)
    begun = _begin_or_resume(folder, asked)
    keep = keep_thresholds(subsampling_keep_probabilities(words.counts, windows.subsample))
    key = np.random.SeedSequence(windows.seed).generate_state(1, np.uint64)[0]
    place = begun["place"]
    sides = 1 + windows.symmetric
    most = min(len(words) ** 2, corpus.n_tokens * windows.window * sides)
    work = _CountBuffer.allocate(len(words), memory, most)
    chunk = max(min(chunk, work.n_free_pairs // (2 * windows.window * sides)), 1)
    for piece in corpus.iter_chunks(chunk, place):
        found = subsample_chunk(piece, words.row_of, keep, key, gaps=windows.break_at_unknown)
        needed = found.n_words * windows.window * sides
        if work.used and not work.has_room(needed):
            _write_run(folder, asked, begun, work, place)
        if not work.has_room(needed):
            raise ValueError(
                f"{memory} bytes of memory do not hold the pairs of {found.n_words} words: give "
                "more"
            )
        work.add(found.rows, found.bounds, found.n_sentences, windows)
        place = piece.end
    _write_run(folder, asked, begun, work, place)
    return _merge(folder, asked, begun, len(words), memory)


class _SortedRun(NamedTuple):
    """Pairs in ascending order, each once: (row << 32 | column), and counts."""

    keys: UInt64[np.ndarray, "k"]
    values: Float64[np.ndarray, "k"]


@dataclass(eq=False)
class _CountBuffer:
    """The counts in memory: half of it, as writing a run needs the other half."""

    limits: Int[np.ndarray, "n"]
    starts: Int[np.ndarray, "n"]
    dense: Float64[np.ndarray, "m"]
    keys: UInt64[np.ndarray, "c"]
    values: Float64[np.ndarray, "c"]
    most: int
    """Pairs that there can be at all."""
    used: int = 0

    @classmethod
    def allocate(cls, n: int, memory: int, most: int) -> "_CountBuffer":
        """Divide memory: an eighth for the dense block, which a run has twice, the rest for others.

        The block has the pairs whose ranks, from 1, have at most a product: as great as fits.
        """
        ranks = np.arange(1, n + 1)
        low, high = 0, n * n
        while low < high:  # the greatest product whose block fits
            middle = (low + high + 1) // 2
            fits = int(np.minimum(n, middle // ranks).sum()) * 8 <= memory // 8
            low, high = (middle, high) if fits else (low, middle - 1)
        limits = np.minimum(n, low // ranks)
        capacity = 2 ** max((memory // 4 // _ENTRY).bit_length() - 1, 4)
        capacity = min(capacity, 2 ** (most * 4 // 3 + 1).bit_length())
        dense = np.zeros(int(limits.sum()))
        keys, values = np.zeros(capacity, np.uint64), np.zeros(capacity)
        return cls(limits, np.cumsum(limits) - limits, dense, keys, values, most)

    @property
    def n_free_pairs(self) -> int:
        """Pairs that the table takes and stays fast: a quarter of it is empty."""
        return len(self.keys) * 3 // 4

    def has_room(self, n_pairs: int) -> bool:
        """Return whether there is room for a number of further pairs."""
        if (
            self.n_free_pairs >= self.most or (self.limits == len(self.limits)).all()
        ):  # all are dense
            return True
        return self.used + n_pairs <= self.n_free_pairs

    def add(
        self,
        rows: Int[np.ndarray, "t"],
        bounds: Int[np.ndarray, "_"],
        n_sentences: int,
        windows: CooccurrenceWindow,
    ) -> None:
        """Count the neighbors in some sentences."""
        self.used = load_kernels("cooccurrence").count_pairs(
            rows, bounds, n_sentences, windows.distance_weights, windows.symmetric, self.limits,
            self.starts, self.dense, self.keys, self.values, self.used,
        )  # fmt: skip

    def drain(self) -> _SortedRun:
        """Return all counts, sorted, and clear them."""
        n = int(np.count_nonzero(self.dense))
        keys, values = np.empty(n, np.uint64), np.empty(n)
        load_kernels("cooccurrence").dense_pairs(self.limits, self.starts, self.dense, keys, values)
        taken = np.flatnonzero(self.keys)
        taken = taken[np.argsort(self.keys[taken])]
        keys = np.concatenate((keys, self.keys[taken] - np.uint64(1)))
        values = np.concatenate((values, self.values[taken]))
        order = np.argsort(keys, kind="stable")  # quick: two parts, each in order
        self.dense[:], self.keys[:], self.values[:], self.used = 0, 0, 0, 0
        return _SortedRun(keys[order], values[order])


def _counting_record(corpus: Corpus, words: Lexicon, windows: CooccurrenceWindow) -> dict[str, Any]:
    """Return a record of the counted data, as far as it is known without reading them."""
    digest = hashlib.sha256(np.ascontiguousarray(words.row_of).tobytes())
    digest.update(words.counts.astype(np.int64).tobytes())
    return {
        "windows": to_dict(windows),
        "n_tokens": corpus.n_tokens,
        "n_words": len(words),
        "words": digest.hexdigest(),
    }


def _check_same_record(path: Path, asked: dict[str, Any], out: Path) -> dict[str, Any]:
    found = read_json_object(path)
    for name, value in asked.items():
        if found.get(name) != value:
            raise ValueError(
                f"{out} was counted with other {name}: {found.get(name)}, not {value}; name "
                "another folder, or remove this one"
            )
    return found


def _check_begun(path: Path, begun: dict[str, Any]) -> None:
    for name in ("place", "runs"):
        if not isinstance(begun[name], int) or begun[name] < 0:
            raise ValueError(f"{path} is damaged: {name} must be a number, got {begun[name]!r:.40}")


def _begin_or_resume(out: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Start, or continue after the last complete run."""
    begun: dict[str, Any] = {"place": 0, "runs": 0, "files": {}}
    if out.is_dir():
        remove_partial_files(out)
    if (out / _UNFINISHED).exists():
        found = _check_same_record(out / _UNFINISHED, asked, out)
        begun = {name: found.get(name, usual) for name, usual in begun.items()}
        _check_begun(out / _UNFINISHED, begun)
        _check_files(out / _RUNS, begun)
    elif out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} holds something else than counts")
    else:
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / _UNFINISHED, json.dumps(asked | begun))
    (out / _RUNS).mkdir(exist_ok=True)
    remove_partial_files(out / _RUNS)
    return begun


def _write_run(
    out: Path, asked: dict[str, Any], begun: dict[str, Any], work: _CountBuffer, place: int
) -> None:
    """Write what is in memory as a run, then that all before `place` is counted."""
    for name, array in zip(_SortedRun._fields, work.drain(), strict=True):
        with atomic_path(out / _RUNS / f"{begun['runs']:05}.{name}.npy") as beside:
            write_npy(beside, array)
        begun["files"][f"{begun['runs']:05}.{name}.npy"] = file_record(
            out / _RUNS / f"{begun['runs']:05}.{name}.npy"
        )
    begun |= {"place": place, "runs": begun["runs"] + 1}
    write_atomically(out / _UNFINISHED, json.dumps(asked | begun))


def _merge(
    out: Path, asked: dict[str, Any], begun: dict[str, Any], n: int, memory: int
) -> CooccurrenceMatrix:
    """Merge all runs into the files of the matrix, and remove the runs."""
    runs = [
        _SortedRun(*(open_npy(out / _RUNS / f"{i:05}.{f}.npy") for f in _SortedRun._fields))
        for i in range(begun["runs"])
    ]
    sizes = np.zeros(n, np.int64)
    with (
        npy_appender(out / "columns.npy", np.int32) as add_columns,
        npy_appender(out / "values.npy", np.float32) as add_values,
    ):
        for run in merge_runs(runs, max(memory // (8 * _ENTRY), 2)):
            sizes += np.bincount((run.keys >> np.uint64(32)).astype(np.int64), minlength=n)
            add_columns(run.keys & np.uint64(0xFFFFFFFF))
            add_values(run.values)
    with atomic_path(out / "offsets.npy") as beside:
        write_npy(beside, np.concatenate(([0], np.cumsum(sizes))))
    files = {f"{name}.npy": file_record(out / f"{name}.npy") for name in _ARRAYS}
    write_atomically(out / _FINISHED, json.dumps(asked | {"files": files}))
    _remove_intermediate(out)
    return CooccurrenceMatrix.open(out)


def _remove_intermediate(out: Path) -> None:
    """Remove what counts that are finished were made from."""
    (out / _UNFINISHED).unlink(missing_ok=True)
    if (out / _RUNS).exists():
        shutil.rmtree(out / _RUNS)


def _check_files(folder: Path, said: dict[str, Any]) -> None:
    """Compare arrays with the record written with them."""
    for name, file in said.get("files", {}).items():
        check_file_record(folder / name, file, "remove the folder of counts, and count again")


def merge_runs(runs: list[_SortedRun], n_pairs: int) -> Iterator[_SortedRun]:
    """Merge sorted runs in blocks of bounded size; the counts of equal pairs are added."""
    if len(runs) == 1:
        ((keys, values),) = runs
        for start in range(0, len(keys), n_pairs):
            yield _SortedRun(keys[start : start + n_pairs], values[start : start + n_pairs])
        return
    at = [0] * len(runs)
    share = max(n_pairs // max(len(runs), 1), 1)
    while any(a < len(run.keys) for a, run in zip(at, runs, strict=True)):
        nexts = [
            run.keys[a + share]
            for a, run in zip(at, runs, strict=True)
            if a + share < len(run.keys)
        ]
        ends = [
            int(np.searchsorted(run.keys, min(nexts))) if nexts else len(run.keys) for run in runs
        ]
        spans = list(zip(runs, at, ends, strict=True))
        keys = np.concatenate([run.keys[a:b] for run, a, b in spans])
        values = np.concatenate([run.values[a:b] for run, a, b in spans])
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        yield _SortedRun(keys[first], np.add.reduceat(values, first))
        at = ends


def marginals(
    counts: CooccurrenceMatrix,
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Add up all counts of each word, and those of each word as a neighbor."""
    rows = np.add.reduceat(
        np.append(counts.values.astype(np.float64), 0),
        np.minimum(counts.offsets[:-1], len(counts.values)),
    )
    rows[np.diff(counts.offsets) == 0] = 0
    columns = np.bincount(counts.columns, counts.values, counts.n_words)
    return rows, columns
