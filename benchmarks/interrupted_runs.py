"""A run of 1,000 processes that fail: what is read, what it costs, how often to write checkpoints.

    python benchmarks/interrupted_runs.py [--processes 1000] [--rows 10000000] [--epochs 2]

Nothing is trained. Failures are drawn at the rate of Llama 3's training (arXiv:2407.21783, section
3.3.4: 419 in 54 days on 16,384 GPUs), and at ten times that rate. First the library's own data
order (`unmask.batching.plan`) is read by all processes through every failure, each time from the
cursor of the last checkpoint and with another number of processes: the rows that made the final
weights are counted, and steps that are done again are compared with what they were. Then the time
between checkpoints is varied, and the simulated optimum set beside the formulas of Young 1974 and
Daly 2006.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from unmask.batching.plan import BatchPlan, DataCursor, GlobalBatch
from unmask.output import print_line
from unmask.planning.interruptions import (
    DEFAULT_DEVICE_MTBF_HOURS,
    Attempt,
    Interruptions,
    SimulatedJob,
    SimulatedRun,
)

STEP_SECONDS = 60.0
"""Of a step of all processes."""
MAX_LENGTH = 512
CHECKPOINT_SECONDS = (30.0, 300.0)
RATES = (1, 10)
"""Multiples of Llama 3's rate of failures."""
PROCESSES_AFTER = (1.0, 0.992, 0.904, 0.5)
"""Shares of the processes that go on after a failure, in turn: of all, one node of eight less, a
rack less, half of them."""
DAYS = 54
FACTORS = tuple(np.geomspace(0.25, 4, 33))
"""Intervals that are tried, as multiples of Daly's."""


@dataclass
class History:
    """What was read: rows of the steps that made the weights, and digests of all that were done."""

    n_rows: int
    counts: dict[int, npt.NDArray[np.uint8]] = field(default_factory=dict)
    """How often each row was read in an epoch."""
    digests: dict[int, int] = field(default_factory=dict)
    """Of the rows of each step, as it was done first."""
    repeated: int = 0
    changed: int = 0
    """Steps that were done again with other rows."""
    unfair: int = 0
    """Steps in which a process had two rows more than another, or a row was of two processes."""

    def add(self, step: int, batch: GlobalBatch, n_processes: int, *, survives: bool) -> None:
        parts = [batch.part_of(rank, n_processes) for rank in range(n_processes)]
        sizes = list(map(len, parts))
        rows = np.sort([row for part in parts for group in part for row in group])
        n_own = sum(len(group) for group in batch.row_groups)
        if max(sizes) - min(sizes) > 1 or len(rows) != n_own or (np.diff(rows) == 0).any():
            self.unfair += 1
        digest = hash((batch.cursor.epoch, rows.tobytes()))
        if step in self.digests:
            self.repeated += 1
            self.changed += digest != self.digests[step]
        self.digests[step] = digest
        if survives:
            epoch = batch.cursor.epoch
            counts = self.counts.setdefault(epoch, np.zeros(self.n_rows, np.uint8))
            counts[rows] += 1


def read_all(plan: BatchPlan, attempts: Sequence[Attempt]) -> History:
    """Read what the attempts of a run read, each from the cursor of the last checkpoint."""
    history, saved = History(len(plan.lengths)), DataCursor()
    for attempt in attempts:
        steps = zip(
            range(attempt.first_step, attempt.end_step), plan.global_batches(saved), strict=False
        )
        for step, batch in steps:
            survives = step < attempt.saved_step
            history.add(step, batch, attempt.n_processes, survives=survives)
            if survives:
                saved = batch.next_cursor
    return history


def count_steps(plan: BatchPlan, epochs: int) -> int:
    """Count the steps of whole epochs, which have not all as many."""
    n = 0
    for epoch in range(epochs):
        order = plan.row_order(epoch)
        n += sum(len(plan.window_batches(epoch, w, order)) for w in range(plan.n_windows))
    return n


def mtbf_seconds(n_processes: int, rate: int | float) -> float:
    return DEFAULT_DEVICE_MTBF_HOURS * 3600 / n_processes / rate


def check_data(n_processes: int, n_rows: int, epochs: int) -> None:
    """Simulate a run and read its data."""
    lengths = np.random.default_rng(0).integers(MAX_LENGTH // 4, MAX_LENGTH + 1, n_rows)
    plan = BatchPlan(lengths=lengths, batch_tokens=n_processes * MAX_LENGTH, seed=1)
    n_steps = count_steps(plan, epochs)
    mtbf = mtbf_seconds(n_processes, RATES[-1])
    interruptions = Interruptions(mtbf_seconds=mtbf, checkpoint_seconds=CHECKPOINT_SECONDS[0])
    every = max(1, round(interruptions.interval_seconds / STEP_SECONDS))
    job = SimulatedJob(
        n_steps=n_steps,
        step_seconds=STEP_SECONDS,
        n_processes=n_processes,
        checkpoint_every=every,
        interruptions=interruptions,
    )
    run = job.run(
        np.random.default_rng(2),
        lambda i: max(1, round(n_processes * PROCESSES_AFTER[i % len(PROCESSES_AFTER)])),
    )
    begin = time.perf_counter()
    history = read_all(plan, run.attempts)
    seconds = time.perf_counter() - begin
    print_line(
        f"{n_rows:,} rows, {epochs} epochs, {n_steps:,} steps, {n_processes:,} processes, a "
        f"checkpoint every {every} steps; {len(run.attempts) - 1} failures in "
        f"{run.seconds / 86_400:.1f} days; read in {seconds:.0f} s"
    )
    used = sorted({one.n_processes for one in run.attempts})
    print_line(
        f"processes after failures: {', '.join(map(str, used))}; {history.repeated:,} steps done "
        f"again, {history.changed} of them with other rows; {history.unfair} steps unfairly shared"
    )
    for epoch, counts in sorted(history.counts.items()):
        print_line(
            f"epoch {epoch + 1}: {int((counts == 0).sum())} rows lost, "
            f"{int((counts > 1).sum())} read twice, {int((counts == 1).sum()):,} once"
        )
    report_time(run)


def report_time(run: SimulatedRun) -> None:
    again = sum((one.end_step - one.saved_step) * STEP_SECONDS for one in run.attempts)
    print_line(
        f"of the time, {run.lost_share:.2%} trained nothing; steps done again: "
        f"{again / run.seconds:.2%} of it at full speed"
    )


def compare_intervals(n_processes: int, n_runs: int) -> None:
    """Print the costs of intervals, simulated and by the formulas."""
    print_line(
        f"| failure every | checkpoint takes | Young | Daly | best of {len(FACTORS)} "
        "| lost: at Young's | at Daly's | at the best | by Daly's formula |"
    )
    print_line("|" + " ---: |" * 9)
    for rate in RATES:
        for seconds in CHECKPOINT_SECONDS:
            mtbf = mtbf_seconds(n_processes, rate)
            interruptions = Interruptions(mtbf_seconds=mtbf, checkpoint_seconds=seconds)
            print_line(compare(interruptions, n_processes, n_runs))


def compare(interruptions: Interruptions, n_processes: int, n_runs: int) -> str:
    daly = interruptions.interval_seconds
    young = (2 * interruptions.checkpoint_seconds * interruptions.mtbf_seconds) ** 0.5
    step = 1.0  # fine, so that the interval is not rounded
    job = SimulatedJob(
        n_steps=round(DAYS * 86_400 / step),
        step_seconds=step,
        n_processes=n_processes,
        checkpoint_every=1,
        interruptions=interruptions,
    )

    def lost(interval: float) -> float:
        one = replace(job, checkpoint_every=max(1, round(interval / step)))
        runs = [one.run(np.random.default_rng(seed)) for seed in range(n_runs)]
        return 1 - sum(r.useful_seconds for r in runs) / sum(r.seconds for r in runs)

    tried = {factor * daly: lost(factor * daly) for factor in FACTORS}
    best = min(tried, key=lambda interval: tried[interval])
    cells = [
        f"{interruptions.mtbf_seconds / 3600:.1f} h", f"{interruptions.checkpoint_seconds:g} s",
        *(f"{x / 60:.1f} min" for x in (young, daly, best)),
        *(f"{x:.2%}" for x in (lost(young), lost(daly), tried[best])),
        f"{interruptions.lost_share(daly):.2%}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=400)
    given = parser.parse_args()
    check_data(given.processes, given.rows, given.epochs)
    compare_intervals(given.processes, given.runs)


if __name__ == "__main__":
    main()
