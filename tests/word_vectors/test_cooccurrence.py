import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from unmask.word_vectors.train import cooccurrences as counting
from unmask.word_vectors.train import svd
from unmask.word_vectors.train.cooccurrences import (
    CooccurrenceMatrix,
    CooccurrenceWindow,
    count_cooccurrences,
)
from unmask.word_vectors.train.corpus import (
    Corpus,
    Lexicon,
    build_lexicon,
    corpus_from_ids,
    count_ids,
)

SMALL = 2**16
"""Bytes of memory that do not hold all pairs."""


def make_corpus(n_ids: int = 80, n: int = 3000) -> tuple[Corpus, Lexicon]:
    random = np.random.default_rng(7)
    ids = np.minimum(random.zipf(1.2, n), random.integers(1, n_ids, n)).astype(np.uint32)
    edges = np.cumsum([0, *random.integers(1, 15, n // 5)])
    edges = np.append(edges[edges < n], n)
    corpus = corpus_from_ids(ids, np.stack((edges[:-1], edges[1:]), 1))
    seen = count_ids(corpus)
    return corpus, build_lexicon([f"w{i}" for i in range(len(seen))], seen, [3], 2)


def by_hand(corpus: Corpus, words: Lexicon, windows: CooccurrenceWindow) -> np.ndarray:
    found = np.zeros((len(words), len(words)))
    part = corpus.read_part(0)
    for start, end in part.sentences:
        rows = [int(words.row_of[i]) for i in part.ids[start:end]]
        if not windows.break_at_unknown:
            rows = [row for row in rows if row >= 0]
        for i, row in enumerate(rows):
            for k in range(1, windows.window + 1):
                if i - k < 0 or row < 0 or rows[i - k] < 0:
                    break
                weight = {"flat": 1, "harmonic": 1 / k, "dynamic": 1 - (k - 1) / windows.window}
                found[row, rows[i - k]] += weight[windows.distance_weighting]
                if windows.symmetric:
                    found[rows[i - k], row] += weight[windows.distance_weighting]
    return found


def dense(found: CooccurrenceMatrix) -> np.ndarray:
    matrix = np.zeros((found.n_words, found.n_words))
    matrix[found.row_indices, found.columns] = found.values
    return matrix


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "windows",
    [
        CooccurrenceWindow(window=4, distance_weighting="flat"),
        CooccurrenceWindow(window=5, distance_weighting="harmonic"),
        CooccurrenceWindow(window=3, distance_weighting="dynamic", symmetric=False),
        CooccurrenceWindow(
            window=1, distance_weighting="flat", symmetric=False, break_at_unknown=True
        ),
    ],
)
@pytest.mark.parametrize("memory", [2**30, SMALL])
def test_counts_equal_a_double_loop(
    windows: CooccurrenceWindow, memory: int, tmp_path: Path
) -> None:
    corpus, words = make_corpus(400)
    found = count_cooccurrences(
        corpus, words, windows, tmp_path / "counts", memory=memory, chunk=20
    )
    np.testing.assert_allclose(dense(found), by_hand(corpus, words, windows), rtol=1e-6)
    keys = found.row_indices.astype(np.int64) * found.n_words + found.columns
    assert (np.diff(keys) > 0).all()
    assert (found.values > 0).all()
    assert {path.name for path in (tmp_path / "counts").iterdir()} == {
        "counts.json", "offsets.npy", "columns.npy", "values.npy",
    }  # fmt: skip


def test_little_memory_writes_runs_and_a_dense_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, words = make_corpus(400)
    work = counting._CountBuffer.allocate(len(words), SMALL, 10**6)
    assert 0 < len(work.dense) * 8 <= SMALL // 8
    assert (np.diff(work.limits) <= 0).all()
    for row, limit in enumerate(work.limits):  # a pair is in the block whichever comes first
        assert all((column < limit) == (row < work.limits[column]) for column in range(len(words)))
    runs = list[int]()
    written = counting._write_run

    def seen(*given: object) -> None:
        written(*given)  # type: ignore[arg-type]
        runs.append(1)

    monkeypatch.setattr(counting, "_write_run", seen)
    count_cooccurrences(
        corpus, words, CooccurrenceWindow(window=4), tmp_path / "counts", memory=SMALL, chunk=20
    )
    assert len(runs) > 3


def test_interrupted_counting_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, words = make_corpus(400)
    windows = CooccurrenceWindow(window=4, subsample=0.05, seed=3)
    whole = count_cooccurrences(corpus, words, windows, tmp_path / "whole", memory=SMALL, chunk=20)
    out = tmp_path / "counts"
    written, left = counting._write_run, 3

    def killed(*given: object) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        written(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(counting, "_write_run", killed)
    with pytest.raises(KeyboardInterrupt):
        count_cooccurrences(corpus, words, windows, out, memory=SMALL, chunk=20)
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError, match="is unfinished: count again to go on"):
        CooccurrenceMatrix.open(out)
    assert json.loads((out / "unfinished.json").read_text())["runs"] == 3
    monkeypatch.setattr(counting, "_merge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        count_cooccurrences(corpus, words, windows, out, memory=SMALL, chunk=20)
    monkeypatch.undo()
    found = count_cooccurrences(corpus, words, windows, out, memory=SMALL, chunk=20)
    for name in ("offsets", "columns", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    again = count_cooccurrences(corpus, words, windows, out)  # is only opened
    assert again.n_pairs == found.n_pairs


def test_counts_of_other_settings_are_refused(tmp_path: Path) -> None:
    corpus, words = make_corpus()
    count_cooccurrences(corpus, words, CooccurrenceWindow(window=2), tmp_path / "counts")
    with pytest.raises(ValueError, match="was counted with other windows"):
        count_cooccurrences(corpus, words, CooccurrenceWindow(window=3), tmp_path / "counts")
    with pytest.raises(FileNotFoundError, match="holds no counts"):
        CooccurrenceMatrix.open(tmp_path)
    with pytest.raises(FileExistsError, match="holds something else"):
        count_cooccurrences(corpus, words, CooccurrenceWindow(), tmp_path)
    with pytest.raises(ValueError, match="600 bytes of memory do not hold the pairs of"):
        count_cooccurrences(corpus, words, CooccurrenceWindow(), tmp_path / "small", memory=600)
    with pytest.raises(ValueError, match="size of windows must be at least 1, got 0"):
        CooccurrenceWindow(window=0)
    with pytest.raises(ValueError, match="subsample must be above 0"):
        CooccurrenceWindow(subsample=-1.0)


@pytest.mark.parametrize("n_pairs", [2, 7, 1000])
def test_merged_runs_add_up(n_pairs: int) -> None:
    random = np.random.default_rng(0)
    total, runs = Counter[int](), list[counting._SortedRun]()
    for size in (50, 1, 0, 30):
        keys = np.sort(random.choice(90, size, replace=False)).astype(np.uint64)
        values = random.integers(1, 9, size).astype(float)
        total.update(dict(zip(keys.tolist(), values.tolist(), strict=True)))
        runs.append(counting._SortedRun(keys, values))
    pieces = list(counting.merge_runs(runs, n_pairs))
    assert max(len(p.keys) for p in pieces) <= max(n_pairs, len(runs))
    found = [(int(k), float(v)) for p in pieces for k, v in zip(p.keys, p.values, strict=True)]
    assert found == sorted(total.items())


def test_ppmi_equals_formula(tmp_path: Path) -> None:
    corpus, words = make_corpus()
    found = count_cooccurrences(
        corpus, words, CooccurrenceWindow(window=3, distance_weighting="flat"), tmp_path / "counts"
    )
    n = by_hand(corpus, words, CooccurrenceWindow(window=3, distance_weighting="flat"))
    context = n.sum(0) ** 0.75 / (n.sum(0) ** 0.75).sum()
    with np.errstate(divide="ignore"):
        pmi = np.log(n / n.sum(1, keepdims=True) / context)
    for shift in (1.0, 5.0):
        expected = np.where(n > 0, np.maximum(pmi - math.log(shift), 0), 0)
        matrix = svd.pmi_matrix(found, svd.PMI(log_shift=shift))
        np.testing.assert_allclose(matrix.toarray(), expected, atol=1e-5)
        assert (matrix.data > 0).all()
    signed = svd.pmi_matrix(found, svd.PMI(positive=False, context_smoothing=1.0)).toarray()
    plain = np.log(np.where(n > 0, n, 1) * n.sum() / np.outer(n.sum(1), n.sum(0)))
    np.testing.assert_allclose(signed, np.where(n > 0, plain, 0), atol=1e-5)
    assert (signed < 0).any()
    np.testing.assert_allclose(svd.log_count_matrix(found).toarray(), np.log1p(n), rtol=1e-6)


def test_factors_equal_numpy(tmp_path: Path) -> None:
    corpus, words = make_corpus()
    found = count_cooccurrences(corpus, words, CooccurrenceWindow(window=3), tmp_path / "counts")
    matrix = svd.pmi_matrix(found, svd.PMI())
    factors = svd.truncated_svd(matrix, 6, seed=1)
    u, s, v = np.linalg.svd(matrix.toarray())
    np.testing.assert_allclose(factors.singular_values, s[:6], rtol=1e-5)
    cosines = (factors.left * u[:, :6]).sum(0)
    np.testing.assert_allclose(np.abs(cosines), 1, atol=1e-4)
    np.testing.assert_allclose((factors.right * v[:6].T).sum(0), cosines, atol=1e-4)
    assert (factors.left[np.abs(factors.left).argmax(0), range(6)] > 0).all()
    np.testing.assert_allclose(factors.vectors(1.0), factors.left * s[:6], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(factors.vectors(0.0), factors.left)
    both = factors.vectors(0.5, add_contexts=True)
    expected = (factors.left + factors.right) * np.sqrt(s[:6])
    np.testing.assert_allclose(both, expected, rtol=1e-4, atol=1e-6)
    again = svd.truncated_svd(matrix, 6, seed=1)
    np.testing.assert_array_equal(again.left, factors.left)


def test_impossible_factorizations_are_refused(tmp_path: Path) -> None:
    corpus, words = make_corpus()
    found = count_cooccurrences(corpus, words, CooccurrenceWindow(window=3), tmp_path / "counts")
    matrix = svd.pmi_matrix(found, svd.PMI())
    with pytest.raises(ValueError, match=rf"from 1 to {len(words) - 1} numbers, got {len(words)}"):
        svd.truncated_svd(matrix, len(words))
    with pytest.raises(ValueError, match="all associations are 0"):
        svd.truncated_svd(svd.pmi_matrix(found, svd.PMI(log_shift=1e9)), 3)
    with pytest.raises(ValueError, match="shift must be above 0"):
        svd.PMI(log_shift=0.0)
    with pytest.raises(ValueError, match="smoothing must be above 0 and at most 1"):
        svd.PMI(context_smoothing=1.5)
    nothing = CooccurrenceMatrix(
        np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
    )
    with pytest.raises(ValueError, match="no pair was counted"):
        svd.pmi_matrix(nothing, svd.PMI())


def test_words_without_context_have_zero_rows() -> None:
    counts = CooccurrenceMatrix(
        np.array([0, 0, 2, 3, 3]), np.array([2, 1, 1], np.int32)[[1, 0, 2]],
        np.array([1, 2, 2], np.float32),
    )  # fmt: skip
    rows, columns = counting.marginals(counts)
    assert rows.tolist() == [0, 3, 2, 0]
    assert columns.tolist() == [0, 3, 2, 0]
    matrix = svd.pmi_matrix(replace(counts), svd.PMI(context_smoothing=1.0))
    assert np.isfinite(matrix.toarray()).all()
    assert not matrix.toarray()[[0, 3]].any()
