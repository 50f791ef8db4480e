"""A column of a log without parsing all of it: equal to what parsing gives, or refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made_runs import timing_line, training_line, write_lines

from unmask.web.runs.quick import column_names, quick_column
from unmask.web.runs.series import LogPart, read_series


def evaluation_line(step: int) -> dict[str, Any]:
    return {"step": step, "evaluation": {"loss": 4.0 + step, "parts": {"masked": 1.0}}}


def check_equal_to_parsed(path: Path, part: LogPart, name: str) -> None:
    quick = quick_column(path, part, name)
    assert quick is not None
    parsed = read_series(path).part(part)
    assert quick == (parsed.steps, parsed.columns[name])


@pytest.mark.parametrize(("part", "name"), [
    ("training", "loss"), ("training", "tokens"),
    ("evaluation", "loss"), ("evaluation", "parts.masked"),
])  # fmt: skip
def test_columns_are_those_of_the_whole_log(tmp_path: Path, part: LogPart, name: str) -> None:
    lines = [training_line(step, 2.5e-5 / step) for step in range(1, 40)]
    write_lines(tmp_path / "log.jsonl", [*lines, evaluation_line(40)])
    check_equal_to_parsed(tmp_path / "log.jsonl", part, name)


def test_timings(tmp_path: Path) -> None:
    write_lines(tmp_path / "timing.jsonl", (timing_line(step) for step in range(1, 9)))
    check_equal_to_parsed(tmp_path / "timing.jsonl", "timing", "tokens_per_second")


def test_a_number_that_is_none_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"step": 1, "loss": null}\n{"step": 2, "loss": -1e-05}\n{"step": 3, "loss": 1e999}\n'
    )
    assert quick_column(path, "training", "loss") == ([1.0, 2.0, 3.0], [None, -1e-5, None])


@pytest.mark.parametrize(("name", "lines"), [
    ("steps that go back", [{"step": 2, "loss": 1.0}, {"step": 1, "loss": 1.0}]),
    ("a step twice", [{"step": 1, "loss": 1.0}, {"step": 1, "loss": 2.0}]),
    ("a line without it", [{"step": 1, "loss": 1.0}, {"step": 2}]),
    ("one of the same name inside", [{"step": 1, "parts": {"loss": 1.0}}]),
    ("behind a table", [{"step": 1, "parts": {"masked": 1.0}, "loss": 1.0}]),
    ("a text", [{"step": 1, "loss": "1.0"}]),
    ("a truth", [{"step": 1, "loss": True}]),
    ("another beginning", [{"loss": 1.0, "step": 1}]),
    ("the word evaluation elsewhere", [{"step": 1, "loss": 1.0, "evaluation": None}, {"step": 2}]),
])  # fmt: skip
def test_what_is_not_certain_is_left_to_the_parser(
    tmp_path: Path, name: str, lines: list[Mapping[str, Any]]
) -> None:
    write_lines(tmp_path / "log.jsonl", lines)
    assert quick_column(tmp_path / "log.jsonl", "training", "loss") is None, name


def test_a_damaged_line_is_left_to_the_parser(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1, "loss": 1.0}\n\xff\n{"step": 2, "loss": 1.0}\n')
    assert quick_column(path, "training", "loss") is None


def test_an_unfinished_line_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 1.5')
    assert quick_column(path, "training", "loss") == ([1.0], [1.0])


def test_what_was_read_and_what_is_not_there_are_no_quick_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert quick_column(path, "training", "loss") is None
    assert column_names(path, "training") == []
    write_lines(path, [training_line(1)])
    read_series(path)
    assert quick_column(path, "training", "loss") is None
    assert "parts.masked" in column_names(path, "training")


def test_names_of_a_long_log_are_those_of_its_ends(tmp_path: Path) -> None:
    lines = [training_line(step) for step in range(1, 2000)]
    write_lines(
        tmp_path / "log.jsonl",
        [*lines, evaluation_line(2000), {**training_line(2001), "late": 1.0}],
    )
    assert (tmp_path / "log.jsonl").stat().st_size > 2**17
    assert {"loss", "accuracy.masked", "late"} <= {
        *column_names(tmp_path / "log.jsonl", "training")
    }
    assert column_names(tmp_path / "log.jsonl", "evaluation") == ["loss", "parts.masked"]
    assert json.dumps(column_names(tmp_path / "log.jsonl", "timing"))
