import builtins
import io
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask import output
from unmask.training import log as logs
from unmask.training.log import TrainingLog, format_duration, format_evaluation, format_report
from unmask.training.step_report import LossSums, StepReport, Throughput


def report(step=1, total_steps=100, loss=5.0, sums_since_log=None, **changes):
    sums = LossSums(
        {"masked": loss * 4, "next_sentence": 1.4}, {"masked": 4, "next_sentence": 2}, {"masked": 1}
    )
    fields = dict(
        step=step, total_steps=total_steps, n_tokens=step * 10, step_tokens=10, sums=sums,
        sums_since_log=sums_since_log, learning_rate=0.1, gradient_norm=1.5, seconds=0.5,
        n_skipped=0,
    )  # fmt: skip
    return StepReport(**(fields | changes))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def read(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def test_sums_add_up_and_give_means():
    a = LossSums({"masked": 6.0}, {"masked": 3}, {"masked": 1})
    b = LossSums(
        {"masked": 2.0, "pairs": 1.0}, {"masked": 1, "pairs": 2}, {"masked": 1, "pairs": 2}
    )
    both = a + b
    assert both.mean_losses == {"masked": 2.0, "pairs": 0.5}
    assert both.loss == 2.5
    assert both.accuracy == {"masked": 0.5, "pairs": 1.0}
    assert a + LossSums() == a == LossSums() + a


@pytest.mark.trials("numbers")
def test_no_targets_give_zero_loss_and_no_accuracy():
    sums = LossSums({"masked": 0.0}, {"masked": 0}, {"masked": 0})
    assert sums.loss == 0
    assert sums.accuracy == {}
    assert LossSums().loss == 0


def test_logged_step_is_one_machine_independent_line(tmp_path):
    with TrainingLog(tmp_path) as log:
        log(report(1))
        log(report(2, sums_since_log=report().sums))
    assert read(tmp_path / "log.jsonl") == [
        {
            "step": 2,
            "tokens": 20,
            "loss": 5.7,
            "parts": {"masked": 5.0, "next_sentence": 0.7},
            "accuracy": {"masked": 0.25},
            "rate": 0.1,
            "gradient_norm": 1.5,
            "skipped": 0,
        }
    ]


def test_timings_have_their_own_file(tmp_path):
    with TrainingLog(
        tmp_path, flops_per_token=1000.0, peak_flops=40_000.0, memory_usage=lambda: 7
    ) as log:
        log(report(1))
        log(report(2, sums_since_log=report().sums, seconds=1.5))
    (result,) = read(tmp_path / "timing.jsonl")
    assert result.pop("seconds") >= 0
    assert result == {
        "step": 2,
        "total_steps": 100,
        "tokens_per_second": 10.0,
        "matmul_share": 0.25,
        "memory_bytes": 7,
    }


def test_existing_log_is_appended(tmp_path):
    for step in (1, 2):
        with TrainingLog(tmp_path) as log:
            log(report(step, sums_since_log=report().sums))
    assert [result["step"] for result in read(tmp_path / "log.jsonl")] == [1, 2]


def test_each_line_is_flushed_immediately(tmp_path):
    log = TrainingLog(tmp_path)
    log(report(1, sums_since_log=report().sums))
    log.log_evaluation(1, {"masked_loss": 2.0})
    assert read(tmp_path / "log.jsonl")[1] == {"step": 1, "evaluation": {"masked_loss": 2.0}}
    log.close()


def test_non_finite_numbers_are_null(tmp_path):
    with TrainingLog(tmp_path) as log:
        log(
            report(
                1, sums_since_log=LossSums(), gradient_norm=math.nan, n_skipped=1, was_skipped=True
            )
        )
    (result,) = read(tmp_path / "log.jsonl")
    assert result["gradient_norm"] is None
    assert result["loss"] is None
    assert result["skipped"] == 1


def test_full_disk_names_the_file():
    with open("/dev/full", "ab", buffering=0) as full, pytest.raises(OSError, match="/dev/full"):
        logs.append_json_line(full, {"step": 1})


def test_terminal_line_is_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "_SECONDS_BETWEEN_REDRAWS", 0.0)
    terminal = Terminal()
    with TrainingLog(tmp_path, terminal=terminal) as log:
        for step in range(1, 4):
            log(report(step, total_steps=3))
    text = terminal.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    drawn = text.rstrip("\n").split("\r")[1:]
    assert [part.split("/")[0] for part in drawn] == ["1", "2", "3"]
    assert all(len(part) <= 100 for part in drawn)


def test_shorter_line_clears_a_longer_one(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "_SECONDS_BETWEEN_REDRAWS", 0.0)
    terminal = Terminal()
    with TrainingLog(tmp_path, terminal=terminal) as log:
        log(report(1, seconds=4000.0))
        log(report(2))
        log.print_above("note")
    screen = ""
    for part in terminal.getvalue().split("\n")[0].split("\r"):
        screen = part + screen[len(part) :]
    assert screen.rstrip() == "note"


def test_piped_progress_is_printed_at_intervals(tmp_path):
    stream = io.StringIO()
    with TrainingLog(tmp_path, terminal=stream) as log:
        for step in range(1, 51):
            log(report(step, total_steps=50))
    lines = stream.getvalue().splitlines()
    assert [text.split("/")[0].strip() for text in lines] == ["1", "50"]
    assert "\r" not in stream.getvalue()


def test_skipped_steps_are_reported_visibly(tmp_path):
    stream = io.StringIO()
    with TrainingLog(tmp_path, terminal=stream) as log:
        log(report(7, loss=math.nan, n_skipped=1, was_skipped=True, gradient_norm=math.nan))
        log(report(8, n_skipped=2, was_skipped=True, gradient_norm=math.inf))
    assert "step 7: the loss is not finite, so the step was skipped (1 so far)" in stream.getvalue()
    assert "step 8: the gradient is not finite" in stream.getvalue()


@given(
    step=st.integers(1, 10**7),
    loss=st.floats(allow_nan=True, allow_infinity=True),
    seconds=st.floats(1e-6, 1e6),
    tokens=st.integers(0, 10**9),
    share=st.one_of(st.none(), st.floats(0, 2)),
    skipped=st.integers(0, 10**6),
)
def test_live_line_fits_the_width(step, loss, seconds, tokens, share, skipped):
    result = report(step, 10**7, loss=loss, step_tokens=tokens, seconds=seconds, n_skipped=skipped)
    text = format_report(result, Throughput().updated(result), share)
    assert len(text) <= 100
    assert "\n" not in text
    assert text.startswith(f"{step:>8}/10000000  loss")


def test_live_line_shows_the_main_figures():
    result = report(50)
    assert format_report(result, Throughput().updated(result), 0.54) == (
        " 50/100  loss  5.700 = 5.000 + 0.700  accuracy  25.0%       20 tokens/s"
        "   54% of peak     0:25 left"
    )
    one = report(50, sums=LossSums({"masked": 10.0}, {"masked": 2}, {"masked": 1}), n_skipped=3)
    assert format_report(one, Throughput().updated(one), 0.54) == (
        " 50/100  loss  5.000  accuracy  50.0%       20 tokens/s   54% of peak     0:25 left"
        "  3 skipped"
    )


def test_loss_terms_are_named_where_there_is_room():
    sums = LossSums({"a": 1.0, "b": 2.0}, {"a": 1, "b": 1}, {"a": 1})
    assert "loss  3.000 = a 1.000 + b 2.000  " in format_report(
        report(sums=sums), Throughput(), 0.5, 120
    )


def test_terms_are_shown_with_their_weights():
    sums = LossSums({"a": 1.0, "b": 2.0}, {"a": 1, "b": 1}, {"a": 1}, {"b": 50.0})
    shown = [format_report(report(sums=sums), Throughput(), None, width) for width in (100, 94)]
    assert "loss 101.000 = a 1.000 + 50 x b 2.000  " in shown[0]
    assert "loss 101.000 = 1.000 + 50 x 2.000  " in shown[1]


def test_accuracy_is_that_of_the_term_with_most_targets():
    sums = LossSums(
        {"next_sentence": 4.0, "masked": 9.0},
        {"next_sentence": 8, "masked": 100},
        {"next_sentence": 6, "masked": 25},
    )
    assert "accuracy  25.0%" in format_report(report(sums=sums), Throughput(), None)


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (84, " 50/100  loss  5.700  accuracy  25.0%       20 tokens/s   54% of peak     0:25 left"),
        (79, " 50/100  loss  5.700  accuracy  25.0%       20 tokens/s     0:25 left"),
        (53, " 50/100  loss  5.700  accuracy  25.0%     0:25 left"),
        (34, " 50/100  loss  5.700     0:25 left"),
        (20, " 50/100  loss  5.700"),
    ],
)
def test_narrow_terminal_keeps_step_and_remaining_time(width, text):
    result = report(50)
    assert format_report(result, Throughput().updated(result), 0.54, width) == text


def test_evaluation_is_formatted_by_term_or_metric():
    found = {"loss": 2.5, "masked_loss": 2.0, "masked_accuracy": 0.25, "masked_asked": 8}
    found |= {"next_sentence_loss": 0.5, "next_sentence_asked": 2}
    assert format_evaluation(found) == "masked loss 2.000, accuracy 25.0%; next sentence loss 0.500"
    assert format_evaluation({"accuracy": 0.5, "macro_f1": 1 / 3, "loss": 2.0}) == (
        "accuracy 0.5; macro f1 0.3333; loss 2"
    )


def test_numbers_stay_in_their_columns():
    result = [report(step, loss=loss) for step, loss in ((1, 9.87), (99, 0.12))]
    a, b = (
        format_report(r, Throughput(float(tokens), 1.0, 1.0), 0.5)
        for r, tokens in zip(result, (950, 123_456), strict=True)
    )
    for mark in ("loss", "=", "accuracy", "tokens/s", "of peak", "left"):
        assert a.index(mark) == b.index(mark)


def test_language_model_shows_perplexity():
    sums = LossSums({"next_token": 4.0}, {"next_token": 2}, {"next_token": 1})
    assert "perplexity   7.389" in format_report(report(sums=sums), Throughput(), None)


@pytest.mark.trials("numbers")
def test_step_without_targets_says_so():
    counts = LossSums(
        n_targets={"characters": 0}, total_loss={"characters": 0.0}, n_correct={"characters": 0}
    )
    line = logs._format_quality(report(sums=counts, sums_since_log=counts))
    assert line == "no targets"


def test_regression_shows_squared_error_without_perplexity():
    line = format_report(
        report(sums=LossSums({"label": 2.5}, {"label": 2}, {})), Throughput(), None
    )
    assert "squared error   1.25" in line
    assert "perplexity" not in line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (7.4, "0:07"), (754, "12:34"), (12_300, "3:25:00"), (math.inf, "?")],
)
def test_durations_are_formatted(seconds, text):
    assert format_duration(seconds) == text


def test_missing_tensorboard_names_the_extra(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if "tensorboard" in name:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=re.escape("pip install 'unmask[tensorboard]'")):
        TrainingLog(tmp_path, tensorboard=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_receives_every_number(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TrainingLog(tmp_path, tensorboard=True) as log:
        log(report(3, sums_since_log=report().sums))
        log.log_evaluation(3, {"masked_loss": 2.0})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert tags >= {"loss", "parts/masked", "accuracy/masked", "rate", "evaluation/masked_loss"}
    assert events.Scalars("evaluation/masked_loss")[0].value == 2.0
    assert events.Scalars("loss")[0].step == 3
    with TrainingLog(tmp_path, tensorboard=True, last_step=1) as log:
        log(report(2, sums_since_log=report().sums))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [2]


class Full(io.FileIO):
    """A file on a disk that takes so many bytes more; None: all."""

    room: int | None = None

    def write(self, data):
        taken = data if self.room is None else data[: self.room]
        if not taken:
            raise OSError(28, "No space left on device")
        if self.room is not None:
            self.room -= len(taken)
        return super().write(taken)


@pytest.mark.parametrize("closed", [False, True])
def test_log_line_waits_for_disk_space_without_partial_lines(tmp_path, caplog, closed):
    path = tmp_path / "log.jsonl"
    lines = logs.JsonLinesFile(path)
    lines.append({"step": 1})
    whole = path.read_bytes()
    lines._file.close()
    lines._file = disk = Full(path, "ab")
    disk.room = 5
    for step in (2, 3):
        lines.append({"step": step})
        assert path.read_bytes() == whole
    assert caplog.text.count("cannot be written now, the run goes on: No space left") == 1
    assert str(path) in caplog.text
    disk.room = None
    if not closed:
        lines.append({"step": 4})
        assert [one["step"] for one in read(path)] == [1, 2, 3, 4]
    lines.close()
    assert [one["step"] for one in read(path)] == [1, 2, 3] + [4] * (not closed)


def test_permanently_full_disk_does_not_end_the_run(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = logs.JsonLinesFile(path)
    lines._file.close()
    lines._file = Full(path, "ab")
    lines._file.room = 3
    lines.append({"step": 1})
    lines.close()
    assert path.read_bytes() == b""
