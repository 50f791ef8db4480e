"""Curves along tokens and seconds."""

from pathlib import Path

from made_runs import make_run, training_line, workplace, write_lines

from unmask.web.runs.axes import along_axis
from unmask.web.runs.compare import compare_series, compared_stamp
from unmask.web.runs.index import RunIndex


def test_tokens_between_steps_and_before_the_first(tmp_path: Path) -> None:
    write_lines(tmp_path / "log.jsonl", [training_line(10), training_line(20)])
    places = along_axis("tokens", [0.0, 5.0, 10.0, 15.0, 20.0, 30.0], tmp_path / "log.jsonl", None)
    assert places == [0, 320, 640, 960, 1280, 1280]
    assert along_axis("step", [3.0, 4.0], tmp_path / "log.jsonl", None) == [3, 4]


def test_a_clock_that_began_anew_goes_on(tmp_path: Path) -> None:
    clock = tmp_path / "timing.jsonl"
    write_lines(
        clock, [{"step": s, "seconds": t} for s, t in [(1, 2.0), (2, 4.0), (3, 1.0), (4, 3.0)]]
    )
    assert along_axis("seconds", [1.0, 2.0, 3.0, 4.0], tmp_path / "log.jsonl", clock) == [
        2,
        4,
        5,
        7,
    ]
    assert along_axis("seconds", [1.0], tmp_path / "log.jsonl", None) == []
    assert along_axis("seconds", [1.0], tmp_path / "log.jsonl", tmp_path / "none.jsonl") == []


def test_curves_of_runs_along_seconds(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    make_run(tmp_path / "a", steps=4)
    (make_run(tmp_path / "b") / "timing.jsonl").unlink()
    index = RunIndex(place)
    [curve] = compare_series(index, ["a", "b"], "loss", axis="seconds")
    assert (curve.run_id, curve.steps) == ("a", [0.5, 1, 1.5, 2])
    assert len(compare_series(index, ["a", "b"], "loss", axis="tokens")) == 2


def test_the_stamp_changes_with_a_log(tmp_path: Path) -> None:
    index = RunIndex(workplace(tmp_path))
    run = make_run(tmp_path / "a", steps=4)
    before = compared_stamp(index, ["a"])
    assert compared_stamp(index, ["a"]) == before
    write_lines(run / "log.jsonl", [training_line(5)], "a")
    assert compared_stamp(index, ["a"]) != before
