"""Logs read as they grow."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import SAVED, timing_line, training_line, write_lines

from unmask.reports.report_data import read_report_data
from unmask.web.runs import series
from unmask.web.runs.scan import find_run
from unmask.web.runs.series import Columns, downsample, read_series, series_logs

FOLDERS = ("bert", "electra", "stopped", "tags", "word2vec", "vectors")


@pytest.mark.parametrize("name", FOLDERS)
def test_columns_are_those_of_the_report(name: str) -> None:
    data = read_report_data(SAVED / name)
    log, clock = read_series(SAVED / name / "log.jsonl"), read_series(SAVED / name / "timing.jsonl")
    for ours, theirs in (
        (log.training, data.training_log), (log.evaluation, data.evaluation_log),
        (clock.training, data.timing_log),
    ):  # fmt: skip
        assert ours.steps == theirs.steps.tolist()
        assert ours.columns.keys() == theirs.columns.keys()
        for column, values in ours.columns.items():
            plain = [math.nan if value is None else value for value in values]
            np.testing.assert_array_equal(plain, theirs.columns[column])


def test_only_whole_lines_after_the_offset_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert read_series(path).training.steps == []
    write_lines(path, [training_line(1), {"step": 1, "evaluation": {"loss": 2.0}}])
    first = read_series(path)
    assert first.offset == path.stat().st_size
    assert (first.training.steps, first.evaluation.columns) == ([1.0], {"loss": [2.0]})
    with path.open("a") as file:
        file.write(json.dumps(training_line(2)) + '\n{"step": 3, "lo')
    second = read_series(path, first.offset, first.check)
    assert second.training.steps == [2.0]
    assert not second.restarted
    with path.open("a") as file:
        file.write('ss": 1.5}\n')
    third = read_series(path, second.offset, second.check)
    assert third.training.columns == {"loss": [1.5]}
    again = read_series(path, third.offset, third.check)
    assert (again.offset, again.training.steps, again.restarted) == (third.offset, [], False)
    assert read_series(path).training.steps == [1.0, 2.0, 3.0]


def test_what_is_read_in_parts_is_what_is_read_at_once(tmp_path: Path) -> None:
    path, parts = tmp_path / "log.jsonl", Columns()
    offset, check = 0, None
    for start in range(1, 50, 7):
        write_lines(path, map(training_line, range(start, start + 7)), "a")
        found = read_series(path, offset, check)
        offset, check = found.offset, found.check
        for i, step in enumerate(found.training.steps):
            parts.add({"step": step} | {n: c[i] for n, c in found.training.columns.items()})
    assert parts.copied() == read_series(path).training


@pytest.mark.parametrize("given_check", [True, False])
def test_log_that_was_cut_is_read_from_the_beginning(tmp_path: Path, given_check: bool) -> None:
    path = tmp_path / "log.jsonl"
    write_lines(path, map(training_line, range(1, 11)))
    before = read_series(path)
    write_lines(path, map(training_line, range(1, 6)))
    found = read_series(path, before.offset, before.check if given_check else None)
    assert found.restarted
    assert found.training.steps == [1.0, 2.0, 3.0, 4.0, 5.0]
    path.unlink()
    gone = read_series(path, before.offset, before.check)
    assert (gone.restarted, gone.offset, gone.training.steps) == (True, 0, [])


def test_log_that_was_cut_and_has_grown_again_is_noticed_by_its_check(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write_lines(path, (training_line(step, 1.5) for step in range(1, 6)))
    before = read_series(path)
    write_lines(path, (training_line(step, 2.5) for step in range(1, 6)))
    assert path.stat().st_size == before.offset
    found = read_series(path, before.offset, before.check)
    assert found.restarted
    assert found.training.columns["loss"] == [2.5] * 5
    assert read_series(path).training.columns["loss"] == [2.5] * 5


def test_step_that_is_logged_again_holds(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write_lines(path, [{"step": s, "loss": s} for s in (1, 2, 4)])
    write_lines(path, [{"step": s, "loss": 10 * s} for s in (2, 3)], "a")
    found = read_series(path).training
    assert (found.steps, found.columns) == ([1, 2, 3, 4], {"loss": [1, 20, 30, 4]})


def test_numbers_that_are_none_are_null_and_damaged_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        b'{"step": 1, "loss": NaN, "a": 1e300, "b": null, "c": true, "d": "x"}\n'
        b'\xff\xfe\n1, 2\n[]\n\n{"loss": 1}\n{"step": 2, "loss": 1, "new": {"x": 3}}\n'
    )
    found = read_series(path)
    assert found.n_bad_lines == 3
    assert found.training.steps == [1, 2]
    assert found.training.columns == {
        "loss": [None, 1], "a": [None, None], "b": [None, None], "c": [1, None], "d": [None, None],
        "new.x": [None, 3],
    }  # fmt: skip
    json.dumps(found.to_dict(), allow_nan=False)


def test_lines_that_are_json_only_together_are_bad(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "x": [1\n2]}\n')
    found = read_series(path)
    assert (found.training.steps, found.n_bad_lines) == ([1], 2)


def test_each_seed_has_a_log() -> None:
    found = find_run(SAVED, "suite/How-long")
    assert found is not None
    assert found.parent == "suite"
    logs = series_logs(found)
    assert list(logs) == ["seed-0", "seed-1"]
    assert all(len(read_series(path).training.steps) for path in logs.values())
    single = find_run(SAVED, "bert")
    assert single is not None
    assert list(series_logs(single, "timing.jsonl")) == [""]


numbers = st.one_of(st.none(), st.floats(-1e6, 1e6))


@given(st.lists(numbers, max_size=400), st.integers(5, 60))
def test_thinned_column_keeps_its_ends_and_extremes(values: list[float | None], n: int) -> None:
    steps = [float(i) for i in range(len(values))]
    kept, thinned = downsample(steps, values, n)
    assert len(kept) <= n or len(kept) == len(steps)
    assert kept == sorted(set(kept))
    assert thinned == [values[int(step)] for step in kept]
    known = [value for value in values if value is not None]
    left = [value for value in thinned if value is not None]
    assert (None in thinned) == (None in values)
    if known:
        assert (min(left), max(left)) == (min(known), max(known))
        assert (left[0], left[-1]) == (known[0], known[-1])


def test_thinned_data_for_small_curves(tmp_path: Path) -> None:
    path = tmp_path / "timing.jsonl"
    write_lines(path, (timing_line(step) for step in range(1, 101)))
    whole = read_series(path).training
    assert whole.to_dict(100)["steps"] == whole.steps
    assert len(whole.to_dict(20)["thinned"]["seconds"]["steps"]) <= 20
    with pytest.raises(ValueError, match="n must be at least 5, got 4"):
        downsample([1.0], [1.0], 4)


def test_of_a_very_long_log_samples_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MAX_WHOLE_BYTES", 2**16)
    monkeypatch.setattr(series, "_N_BLOCKS", 20)
    monkeypatch.setattr(series, "_BLOCK_BYTES", 2**10)
    path, n = tmp_path / "log.jsonl", 5000
    evaluations = {step: {"step": step, "evaluation": {"loss": step / 2}} for step in (7, 900, n)}
    lines = [
        [training_line(i, float(i)), *([evaluations[i]] if i in evaluations else [])]
        for i in range(1, n + 1)
    ]
    write_lines(path, itertools.chain.from_iterable(lines))
    whole_size = path.stat().st_size
    with path.open("a") as file:
        file.write('{"step": 5001, "lo')
    found = read_series(path)
    steps = found.training.steps
    assert found.is_sampled
    assert found.offset == whole_size
    assert (found.n_bad_lines, len(steps) < n // 5) == (0, True)
    assert (steps[0], steps[-1]) == (1.0, n)
    assert steps == found.training.columns["loss"] == sorted(set(steps))
    assert max(b - a for a, b in itertools.pairwise(steps)) < n // 10
    assert found.evaluation.columns == {"loss": [3.5, 450.0, n / 2]}
    with path.open("a") as file:
        file.write('ss": 1.5}\n')
    assert read_series(path, found.offset, found.check).training.columns == {"loss": [1.5]}
    assert read_series(path).training.steps == [*steps, n + 1]
