"""What a run says of itself: a log that is equal whenever the run is, timings, one live line.

And reading the logs again: lines may be damaged, and clocks begin anew.
"""

import json
import logging
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, runtime_checkable

from unmask.files import encode_utf8, parse_json, read_bytes
from unmask.output import OutputStream, ProgressLine
from unmask.training.best_effort import best_effort
from unmask.training.device.stopwatch import Stopwatch
from unmask.training.step_report import (
    TERMS_WITHOUT_ACCURACY,
    LossSums,
    MemoryUsage,
    StepReport,
    Throughput,
    round_share,
)

_logger = logging.getLogger(__name__)

LOG_FILE, TIMING_FILE = "log.jsonl", "timing.jsonl"
MAX_LINE_WIDTH = 100
"""Columns of the live line, at most."""


@runtime_checkable
class ScalarWriter(Protocol):
    """The part of TensorBoard's SummaryWriter that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Note a number."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


class TrainingLog:
    """Writes a run's reports to its folder and to the terminal.

    `log.jsonl` holds nothing but what the run's recipe and data determine: it is equal, byte by
    byte, for a run that was killed and resumed and one that was not. What depends on the machine is
    in `timing.jsonl`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        flops_per_token: int | float = 0,
        peak_flops: int | float = 0,
        memory_usage: "MemoryUsage | None" = None,
        terminal: OutputStream | None = None,
        tensorboard: bool = False,
        last_step: int = 0,
    ) -> None:
        """Open the logs of a run folder for appending.

        Args:
            folder: the run folder; it must exist.
            flops_per_token: FLOPs of a training step per token.
            peak_flops: FLOP/s of this machine's matrix product, all processes together. 0: unknown.
            memory_usage: returns the bytes in use.
            terminal: stream of the live line, usually `sys.stderr`. None: no live line.
            tensorboard: whether TensorBoard's event files are written, too.
            last_step: last step that was taken; TensorBoard's later records are purged.

        Raises:
            ImportError: TensorBoard is requested and not installed.
        """
        self._scalar_writer = (
            _open_tensorboard(folder / "tensorboard", last_step) if tensorboard else None
        )
        self._log_file, self._timing_file = (
            JsonLinesFile(folder / LOG_FILE),
            JsonLinesFile(folder / TIMING_FILE),
        )
        self._flops_per_token, self._peak_flops, self._memory_usage = (
            flops_per_token,
            peak_flops,
            memory_usage,
        )
        self._progress_line = ProgressLine(terminal, at_once=True)
        self._watch = Stopwatch()
        self._smoothed_throughput, self._logged_throughput = Throughput(), Throughput()

    def __call__(self, report: StepReport) -> None:
        """Take note of a step."""
        self._smoothed_throughput = self._smoothed_throughput.updated(report, decay=0.9)
        self._logged_throughput = self._logged_throughput.updated(report)
        if report.sums_since_log is not None:
            self._write_step(report, report.sums_since_log)
            self._logged_throughput = Throughput()
        if report.was_skipped:
            self._progress_line.print_above(_skip_message(report))
        self._progress_line.show(
            lambda: self._format_line(report), last=report.step == report.total_steps
        )

    def _format_line(self, report: StepReport) -> str:
        throughput = self._smoothed_throughput
        width = _max_columns() if self._progress_line.is_terminal else MAX_LINE_WIDTH
        return format_report(report, throughput, self._peak_fraction(throughput), width)

    def _peak_fraction(self, throughput: "Throughput") -> float | None:
        """Return the fraction of the machine's peak matrix-product throughput (MFU)."""
        return (
            throughput.tokens_per_second * self._flops_per_token / self._peak_flops
            if self._peak_flops and self._flops_per_token
            else None
        )

    def _write_step(self, report: StepReport, sums_since_log: LossSums) -> None:
        said: dict[str, Any] = {
            "step": report.step,
            "tokens": report.n_tokens,
            "loss": sums_since_log.loss,
            "parts": sums_since_log.weighted_means,
            "accuracy": sums_since_log.accuracy,
            "rate": report.learning_rate,
            "gradient_norm": report.gradient_norm,
            "skipped": report.n_skipped,
        }
        if not any(sums_since_log.n_targets.values()):
            said |= {"loss": None, "parts": {}}
        if measures := sums_since_log.measures:
            said["measures"] = measures
        timed = {
            "step": report.step,
            "total_steps": report.total_steps,
            "seconds": round(self._watch.seconds, 3),
            "tokens_per_second": round(self._logged_throughput.tokens_per_second, 1),
            "matmul_share": round_share(self._peak_fraction(self._logged_throughput)),
            "memory_bytes": self._memory_usage() if self._memory_usage else None,
        }
        self._log_file.append(said)
        self._timing_file.append(timed)
        self._write_scalars(report.step, said | {"tokens_per_second": timed["tokens_per_second"]})

    def log_evaluation(self, step: int, result: Mapping[str, float]) -> None:
        """Write what an evaluation after `step` found; before that step's checkpoint is saved."""
        self._log_file.append({"step": step, "evaluation": dict(result)})
        self._write_scalars(step, {"evaluation": result})
        self._progress_line.print_above(f"step {step}, held out: {format_evaluation(result)}")

    def print_above(self, text: str) -> None:
        """Show a line of text on the terminal, above the live line; no file gets it."""
        self._progress_line.print_above(text)

    def _write_scalars(self, step: int, values: Mapping[str, Any], prefix: str = "") -> None:
        if self._scalar_writer is None:
            return
        with best_effort("TensorBoard's files"):
            for name, value in values.items():
                if isinstance(value, Mapping):
                    self._write_scalars(step, value, f"{prefix}{name}/")
                elif isinstance(value, int | float) and name != "step":
                    self._scalar_writer.add_scalar(prefix + name, float(value), step)

    def close(self) -> None:
        """End the live line and close the files."""
        self._progress_line.finish()
        if self._scalar_writer is not None:
            with best_effort("TensorBoard's files"):
                self._scalar_writer.close()
        self._log_file.close()
        self._timing_file.close()

    def __enter__(self) -> "TrainingLog":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _max_columns() -> int:
    return min(
        MAX_LINE_WIDTH, max(shutil.get_terminal_size((MAX_LINE_WIDTH + 1, 24)).columns - 1, 20)
    )


def format_report(
    report: StepReport,
    throughput: Throughput,
    peak_fraction: float | None,
    width: int = MAX_LINE_WIDTH,
) -> str:
    """Write a report in at most `width` columns.

    Step; loss and, if there is room, its terms with their names and weights; accuracy, perplexity
    or squared error of the term with the most targets; speed; time left. Numbers stay in their
    columns from line to line. Measures, terms without weight, stand in place of the speed.
    """
    measures = report.sums.measures
    parts = report.sums.weighted_means
    weights = {name: report.sums.loss_weights.get(name, 1.0) for name in parts}
    times = {name: "" if weight == 1 else f"{weight:g} x " for name, weight in weights.items()}
    named = " + ".join(f"{times[n]}{n.replace('_', ' ')} {value:.3f}" for n, value in parts.items())
    plain = " + ".join(f"{times[name]}{value:.3f}" for name, value in parts.items())
    left = (report.total_steps - report.step) * throughput.seconds_per_step
    fast = f"{throughput.tokens_per_second:7,.0f} tokens/s"
    peak = "" if peak_fraction is None else f"{peak_fraction:4.0%} of peak"
    after = f"{format_duration(left):>7} left" + (
        f"  {report.n_skipped} skipped" if report.n_skipped else ""
    )
    where = f"{report.step:>{len(str(report.total_steps))}}/{report.total_steps}"
    loss, good = f"loss {report.loss:6.3f}", _format_quality(report)
    losses = [f"{loss} = {named}", f"{loss} = {plain}"] if len(parts) > 1 else []
    rows = [(where, shown, good, fast, peak, after) for shown in [*losses, loss]]
    if measures:
        shown = [f"{name.replace('_', ' ')} {value:.3g}" for name, value in measures.items()]
        rows = [(where, loss, good, *shown[:n], after) for n in range(len(shown), 0, -1)]
    rows += [(where, loss, good, fast, after), (where, loss, good, after), (where, loss, after)]
    lines = ["  ".join(filter(None, row)) for row in rows]
    return next((text for text in lines if len(text) <= width), lines[-1][:width])


def format_evaluation(result: Mapping[str, float]) -> str:
    """Write the results of an evaluation: each term's loss and accuracy, or all numbers by name.

    Numbers of targets are left out.
    """
    terms = [name.removesuffix("_loss") for name in result if name.endswith("_loss")]
    said: list[str] = []
    for term in terms:
        accuracy = result.get(f"{term}_accuracy")
        shown = "" if accuracy is None else f", accuracy {accuracy:.1%}"
        said.append(f"{term.replace('_', ' ')} loss {result[f'{term}_loss']:.3f}{shown}")
    of_terms = {f"{term}_{what}" for term in terms for what in ("loss", "accuracy", "asked")}
    rest = {name: value for name, value in result.items() if name not in of_terms}
    if terms:
        rest.pop("loss", None)  # their sum
    said += [f"{name.replace('_', ' ')} {value:.4g}" for name, value in rest.items()]
    return "; ".join(said)


def _format_quality(report: StepReport) -> str:
    """Write accuracy, perplexity or squared error of the term with the most targets.

    A term with an accuracy goes before those without one, such as a teacher's.
    """
    losses, n_targets = report.sums.weighted_means, report.sums.n_targets
    if not losses:
        return ""
    term = max(losses, key=lambda name: (name in report.accuracy, n_targets[name]))
    if not n_targets[term]:
        return "no targets"
    if term in TERMS_WITHOUT_ACCURACY:
        return ""
    if term not in report.accuracy:  # targets are numbers
        return f"{'squared error' if term == 'label' else 'error'} {losses[term]:6.4g}"
    if term.startswith(("next_token", "both_sides")):
        return f"perplexity {math.exp(min(losses[term], 80)):7.4g}"
    return f"accuracy {report.accuracy[term]:6.1%}"


def format_duration(seconds: int | float) -> str:
    """Write a time as 0:07, 12:34 or 3:25:00."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class JsonLinesFile:
    """A file that grows by whole JSON lines; what a full disk does not take waits for the next."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._path = path
        self._pending: list[Mapping[str, Any]] = []
        self._has_warned = False

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line, after those that could not be written before."""
        self._pending.append(record)
        self._write_pending()

    def close(self) -> None:
        """Write what waits, if now there is room, and close the file."""
        self._write_pending()
        self._file.close()

    def _write_pending(self) -> None:
        while self._pending:
            number = self._file.fileno()
            size = os.fstat(number).st_size
            try:
                append_json_line(self._file, self._pending[0])
            except OSError as error:
                with suppress(OSError):  # half a line is none
                    os.ftruncate(number, size)
                if not self._has_warned:
                    _logger.warning(
                        "%s: cannot be written now, the run goes on: %s", self._path, error.strerror
                    )
                self._has_warned = True
                return
            self._pending.pop(0)


def append_json_line(file: BinaryIO, record: Mapping[str, Any]) -> None:
    """Append one JSON line, in one write; a number that is none is null.

    Raises:
        OSError: it cannot be written, for instance because the disk is full; names the file.
    """
    data = encode_utf8(
        json.dumps(_replace_non_finite(record), ensure_ascii=False, allow_nan=False) + "\n"
    )
    try:
        while data:
            data = data[file.write(data) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, file.name) from error


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: _replace_non_finite(v) for k, v in value.items()}
    return value


def _skip_message(report: StepReport) -> str:
    if not report.sums.is_finite:
        what = "the loss is not finite"
    elif not math.isfinite(report.gradient_norm):
        what = "the gradient is not finite"
    else:
        what = "the loss or the gradient is far above those before"
    so_far = f"({report.n_skipped} so far)"
    return f"step {report.step}: {what}, so the step was skipped {so_far}"


def _open_tensorboard(folder: Path, step: int) -> ScalarWriter:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ImportError(
            "TensorBoard is not installed: pip install 'unmask[tensorboard]'", name="tensorboard"
        ) from None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)


def read_log_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read JSON lines; return also how many are not. The last may be still being written."""
    if not path.is_file():
        return [], 0
    rows: list[dict[str, Any]] = []
    bad = 0
    pieces = read_bytes(path).split(b"\n")
    for i, piece in enumerate(pieces):
        row = _parse_line(piece)
        if isinstance(row, dict):
            rows.append(row)
        elif piece.strip() and i < len(pieces) - 1:
            bad += 1
    return rows, bad


def _parse_line(piece: bytes) -> Any:
    try:
        return parse_json(piece)
    except ValueError:  # empty, cut, or not UTF-8
        return None


def process_boundaries(
    timing_lines: Sequence[Mapping[str, Any]],
) -> tuple[tuple[int, ...], float | None]:
    """Find where a new process took over, for its clock begins anew; add up all their times."""
    resumed: list[int] = []
    total, before = 0.0, None
    for line in timing_lines:
        now, step = finite_number(line.get("seconds")), finite_number(line.get("step"))
        if now is None:
            continue
        if before is not None and now < before:
            total += before
            resumed += [] if step is None else [int(step)]
        before = now
    return tuple(resumed), None if before is None else total + before


def finite_number(value: Any) -> float | None:
    """Return a finite number as a float, and anything else as None.

    What is too large or too small for its square to be a float counts as not finite, or as zero.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e100:
        return None
    return float(value) if abs(value) > 1e-100 else 0.0
