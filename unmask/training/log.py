"""What a run says of itself: a log that is equal whenever the run is, timings, one live line."""

import json
import logging
import math
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, runtime_checkable

from unmask.channels import Stream, clear, over, tell
from unmask.files import utf8
from unmask.training.aside import for_the_report

_logger = logging.getLogger(__name__)

LOG, TIMING = "log.jsonl", "timing.jsonl"
WIDTH = 100
"""Columns of the live line, at most."""
NEITHER = frozenset({"neighbors"})
"""Terms whose answers are neither right nor wrong, nor numbers: what word vectors are asked."""
_REDRAW, _PLAIN = 0.1, 10.0
"""Seconds between two live lines on a terminal, and between two lines elsewhere."""


@dataclass(frozen=True)
class Sums:
    """What some steps or batches were asked, and answered, by term. Sums add up; means do not."""

    totals: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of the loss, in nats."""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Places asked."""
    rights: Mapping[str, int] = field(default_factory=dict[str, int])
    """Right answers, of terms where that means something."""
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of terms in the loss, where it is not 1."""

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            _added(self.totals, other.totals),
            _added(self.counts, other.counts),
            _added(self.rights, other.rights),
            {**self.weights, **other.weights},
        )

    @property
    def parts(self) -> dict[str, float]:
        """The mean loss of each term; zero where nothing was asked."""
        return {name: total / max(self.counts[name], 1) for name, total in self.totals.items()}

    @property
    def loss(self) -> float:
        """The sum of all parts, each times its weight."""
        return math.fsum(self.weights.get(name, 1.0) * part for name, part in self.parts.items())

    @property
    def accuracy(self) -> dict[str, float]:
        """The share of right answers, of terms that were asked."""
        return {n: right / self.counts[n] for n, right in self.rights.items() if self.counts[n]}

    @property
    def finite(self) -> bool:
        """Whether every total is a number."""
        return all(math.isfinite(total) for total in self.totals.values())


@dataclass(frozen=True, kw_only=True)
class Report:
    """One optimizer step."""

    step: int
    """Steps count from 1."""
    steps: int
    tokens: int
    """Read since the run began, padding not counted."""
    new_tokens: int
    """Read in this step."""
    sums: Sums
    """Of this step; a loss that is not finite is shown as it is."""
    since: Sums | None
    """At a logged step: the sums since the last logged one, skipped steps not counted."""
    rate: float
    gradient_norm: float
    seconds: float
    """That this step took."""
    skipped: int
    """Steps without a finite loss and gradient, since the run began: they moved no weight."""
    skipped_now: bool = False

    @property
    def loss(self) -> float:
        """The loss of this step."""
        return self.sums.loss

    @property
    def parts(self) -> dict[str, float]:
        """The loss of this step, by term."""
        return self.sums.parts

    @property
    def accuracy(self) -> dict[str, float]:
        """The share of right answers in this step, by term."""
        return self.sums.accuracy


@runtime_checkable
class Writer(Protocol):
    """The part of TensorBoard's SummaryWriter that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Note a number."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


class Log:
    """Writes a run's reports to its folder and to the terminal.

    `log.jsonl` holds nothing but what the run's recipe and data determine: it is equal, byte by
    byte, for a run that was killed and resumed and one that was not. What depends on the machine is
    in `timing.jsonl`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        flops: int | float = 0,
        peak: int | float = 0,
        memory: "Memory | None" = None,
        terminal: Stream | None = None,
        tensorboard: bool = False,
        step: int = 0,
    ) -> None:
        """Open the logs of a run folder, to go on where they end.

        Args:
            folder: of the run; it must exist.
            flops: of one training step, for one token.
            peak: FLOP/s of this machine's matrix product, all processes together. 0: unknown.
            memory: says how many bytes are held.
            terminal: where the live line goes, usually `sys.stderr`. None: nowhere.
            tensorboard: also write TensorBoard's event files.
            step: the last one taken: what TensorBoard has of later ones, it forgets.

        Raises:
            ImportError: TensorBoard is asked for and is not installed.
        """
        self._board = _tensorboard(folder / "tensorboard", step) if tensorboard else None
        self._log, self._timing = Lines(folder / LOG), Lines(folder / TIMING)
        self._flops, self._peak, self._memory = flops, peak, memory
        self._line = Line(terminal) if terminal is not None else None
        self._begin = time.perf_counter()
        self._speed, self._window = Speed(), Speed()

    def __call__(self, report: Report) -> None:
        """Take note of a step."""
        self._speed = self._speed.then(report, keep=0.9)
        self._window = self._window.then(report)
        if report.since is not None:
            self._write(report, report.since)
            self._window = Speed()
        if self._line is not None:
            if report.skipped_now:
                self._line.above(_skip_text(report))
            self._line.show(report, self._speed, self._share(self._speed))

    def _share(self, speed: "Speed") -> float | None:
        """Say which part of the machine's matrix-product peak a speed is."""
        return (
            speed.tokens_per_second * self._flops / self._peak
            if self._peak and self._flops
            else None
        )

    def _write(self, report: Report, since: Sums) -> None:
        said: dict[str, Any] = {
            "step": report.step,
            "tokens": report.tokens,
            "loss": since.loss,
            "parts": since.parts,
            "accuracy": since.accuracy,
            "rate": report.rate,
            "gradient_norm": report.gradient_norm,
            "skipped": report.skipped,
        }
        if not any(since.counts.values()):
            said |= {"loss": None, "parts": {}}
        timed = {
            "step": report.step,
            "seconds": round(time.perf_counter() - self._begin, 3),
            "tokens_per_second": round(self._window.tokens_per_second, 1),
            "matmul_share": _rounded(self._share(self._window)),
            "memory_bytes": self._memory() if self._memory else None,
        }
        self._log.add(said)
        self._timing.add(timed)
        self._scalars(report.step, said | {"tokens_per_second": timed["tokens_per_second"]})

    def evaluation(self, step: int, result: Mapping[str, float]) -> None:
        """Write what an evaluation after `step` found; before that step's checkpoint is saved."""
        self._log.add({"step": step, "evaluation": dict(result)})
        self._scalars(step, {"evaluation": result})
        if self._line is not None:
            self._line.above(f"step {step}, held out: {evaluated(result)}")

    def say(self, text: str) -> None:
        """Show a line of text on the terminal, above the live line; no file gets it."""
        if self._line is not None:
            self._line.above(text)

    def _scalars(self, step: int, values: Mapping[str, Any], before: str = "") -> None:
        if self._board is None:
            return
        with for_the_report("TensorBoard's files"):
            for name, value in values.items():
                if isinstance(value, Mapping):
                    self._scalars(step, value, f"{before}{name}/")
                elif isinstance(value, int | float) and name != "step":
                    self._board.add_scalar(before + name, float(value), step)

    def close(self) -> None:
        """End the live line and close the files."""
        if self._line is not None:
            self._line.end()
        if self._board is not None:
            with for_the_report("TensorBoard's files"):
                self._board.close()
        self._log.close()
        self._timing.close()

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@runtime_checkable
class Memory(Protocol):
    """Says how many bytes are held."""

    def __call__(self) -> int:
        """Say it."""
        ...


@dataclass(frozen=True)
class Speed:
    """Tokens and the seconds that they took; older ones may fade."""

    tokens: float = 0.0
    seconds: float = 0.0
    steps: float = 0.0

    def then(self, report: Report, keep: float = 1.0) -> "Speed":
        """Add a step; `keep` of what was before counts on."""
        return Speed(
            self.tokens * keep + report.new_tokens,
            self.seconds * keep + report.seconds,
            self.steps * keep + 1,
        )

    @property
    def tokens_per_second(self) -> float:
        """Mean speed; 0 before the first step."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def seconds_per_step(self) -> float:
        """Mean duration of a step; 0 before the first."""
        return self.seconds / self.steps if self.steps else 0.0


class Line:
    """One line that is overwritten in place on a terminal; elsewhere, a line every ten seconds."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._shown = 0
        self._next = 0.0

    def show(self, report: Report, speed: Speed, share: float | None) -> None:
        """Show where the run is, unless that was just done."""
        now, last = time.monotonic(), report.step == report.steps
        if now < self._next and not last:
            return
        self._next = now + (_REDRAW if self._live else _PLAIN)
        if not self._live:
            tell(line(report, speed, share), self._stream)
            return
        self._shown = over(line(report, speed, share, self._columns()), self._stream, self._shown)

    def above(self, text: str) -> None:
        """Print a line that stays."""
        if self._shown:
            clear(self._stream, self._shown)
            self._shown = 0
        tell(text, self._stream)
        self._next = 0.0

    def end(self) -> None:
        """Leave the last line as it stands."""
        if self._shown:
            tell("", self._stream)
            self._shown = 0

    def _columns(self) -> int:
        return min(WIDTH, max(shutil.get_terminal_size((WIDTH + 1, 24)).columns - 1, 20))


def line(report: Report, speed: Speed, share: float | None, width: int = WIDTH) -> str:
    """Write a report in at most `width` columns.

    Where the run is; the loss and, if there is room, its parts with their names; right answers,
    perplexity or squared error; speed; time left. Numbers stay in their columns from line to line.
    """
    parts = report.parts
    named = " + ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in parts.items())
    plain = " + ".join(f"{value:.3f}" for value in parts.values())
    left = (report.steps - report.step) * speed.seconds_per_step
    fast = f"{speed.tokens_per_second:7,.0f} tokens/s"
    peak = "" if share is None else f"{share:4.0%} of peak"
    after = f"{duration(left):>7} left" + (f"  {report.skipped} skipped" if report.skipped else "")
    where = f"{report.step:>{len(str(report.steps))}}/{report.steps}"
    loss, good = f"loss {report.loss:6.3f}", _quality(report)
    losses = [f"{loss} = {named}", f"{loss} = {plain}"] if len(parts) > 1 else []
    rows = [(where, shown, good, fast, peak, after) for shown in [*losses, loss]]
    rows += [(where, loss, good, fast, after), (where, loss, good, after), (where, loss, after)]
    lines = ["  ".join(filter(None, row)) for row in rows]
    return next((text for text in lines if len(text) <= width), lines[-1][:width])


def evaluated(result: Mapping[str, float]) -> str:
    """Write what an evaluation found: each term's loss and right answers, or all numbers by name.

    How many places were asked is left out.
    """
    terms = [name.removesuffix("_loss") for name in result if name.endswith("_loss")]
    said: list[str] = []
    for term in terms:
        right = result.get(f"{term}_accuracy")
        told = "" if right is None else f", {right:.1%} right"
        said.append(f"{term.replace('_', ' ')} loss {result[f'{term}_loss']:.3f}{told}")
    shown = {f"{term}_{what}" for term in terms for what in ("loss", "accuracy", "asked")}
    rest = {name: value for name, value in result.items() if name not in shown}
    if terms:
        rest.pop("loss", None)  # their sum
    said += [f"{name.replace('_', ' ')} {value:.4g}" for name, value in rest.items()]
    return "; ".join(said)


def _quality(report: Report) -> str:
    """Say how good the first term is: right answers, perplexity, a number's squared error."""
    parts, accuracy = report.parts, report.accuracy
    if not parts:
        return ""
    first = next(iter(parts))
    if not report.sums.counts[first]:
        return "nothing asked"
    if first in NEITHER:
        return ""
    if first not in accuracy:  # no answer is right or wrong: numbers are asked for
        return f"squared error {parts[first]:6.4g}"
    if first.startswith(("next_token", "both_sides")):
        return f"perplexity {math.exp(min(parts[first], 80)):7.4g}"
    return f"{accuracy[first]:6.1%} right"


def duration(seconds: int | float) -> str:
    """Write a time as 0:07, 12:34 or 3:25:00."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Lines:
    """A file that grows by whole JSON lines; what a full disk does not take waits for the next."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._path = path
        self._waiting: list[Mapping[str, Any]] = []
        self._told = False

    def add(self, said: Mapping[str, Any]) -> None:
        """Write a line, and before it those that could not be written."""
        self._waiting.append(said)
        self._write()

    def close(self) -> None:
        """Write what waits, if now there is room, and close the file."""
        self._write()
        self._file.close()

    def _write(self) -> None:
        while self._waiting:
            number = self._file.fileno()
            size = os.fstat(number).st_size
            try:
                append(self._file, self._waiting[0])
            except OSError as error:
                with suppress(OSError):  # half a line is none
                    os.ftruncate(number, size)
                if not self._told:
                    _logger.warning(
                        "%s: cannot be written now, the run goes on: %s", self._path, error.strerror
                    )
                self._told = True
                return
            self._waiting.pop(0)


def append(file: BinaryIO, said: Mapping[str, Any]) -> None:
    """Append one JSON line, in one write; a number that is none is null.

    Raises:
        OSError: it cannot be written, for instance because the disk is full; names the file.
    """
    data = utf8(json.dumps(_finite(said), ensure_ascii=False, allow_nan=False) + "\n")
    try:
        while data:
            data = data[file.write(data) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, file.name) from error


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    return value


def _added(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in [*a, *(n for n in b if n not in a)]}


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _skip_text(report: Report) -> str:
    what = "the gradient" if report.sums.finite else "the loss"
    so_far = f"({report.skipped} so far)"
    return f"step {report.step}: {what} is not finite, so the step was skipped {so_far}"


def _tensorboard(folder: Path, step: int) -> Writer:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ImportError(
            "TensorBoard is not installed: pip install 'unmask[tensorboard]'", name="tensorboard"
        ) from None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)
