"""Lists of runs and curves, as the workbench asks for them, against reading each for a report.

    python benchmarks/web_runs.py [--runs 1000] [--lines 200] [--curves 50] [--points 2000]

Run folders of plain files are made, with so many lines in each log. In each round all runs are
listed by an index that knows none ("cold"), again ("warm"), and read with `read_report_data`;
then the logs of some longer runs are read as series, cold, warm and thinned out for small curves,
and as a report reads them. Printed are medians of seconds of processor time, and the median of the
ratios within rounds.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unmask.reports.report_data import log_series, read_report_data
from unmask.training.log import LOG_FILE, TIMING_FILE, read_log_lines
from unmask.web.runs.index import RunIndex
from unmask.web.runs.series import read_series
from unmask.web.workplace import Workplace

EVALUATE_EVERY = 50
REPORT = "as a report reads them"


def log_lines(n: int) -> list[dict[str, Any]]:
    """Return the log of a masked language model with sentence pairs."""
    lines: list[dict[str, Any]] = []
    for step in range(1, n + 1):
        masked = 8 - 5 * step / n
        lines.append(
            {
                "step": step, "tokens": 8192 * step, "loss": masked + 0.69123456789,
                "parts": {"next_sentence": 0.69123456789, "masked": masked},
                "accuracy": {"next_sentence": 0.5, "masked": step / n / 2},
                "rate": 0.0012345678901234, "gradient_norm": 0.842050671, "skipped": 0,
            }
        )  # fmt: skip
        if step % EVALUATE_EVERY == 0 or step == n:
            found = {"loss": masked, "masked_loss": masked, "masked_accuracy": 0.25}
            lines.append({"step": step, "evaluation": found})
    return lines


def make_run(folder: Path, n: int) -> None:
    """Make a run of n steps."""
    folder.mkdir(parents=True)
    recipe = {"steps": n, "objective": {"kind": "Objective"}} | {f"key_{i}": i for i in range(80)}
    record = {"format": 2, "kind": "pretrain", "card": "bert-mini", "recipe": recipe}
    (folder / "unmask.json").write_text(json.dumps(record | {"finished": True}, indent=2))
    clock = (
        {"step": s, "total_steps": n, "seconds": s / 7, "tokens_per_second": 54321.0,
         "matmul_share": 0.25, "memory_bytes": 400_000_000}
        for s in range(1, n + 1)
    )  # fmt: skip
    for name, lines in ((LOG_FILE, log_lines(n)), (TIMING_FILE, clock)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def seconds(call: Callable[[], object]) -> float:
    """Return how much processor time a call takes, whatever else the machine does."""
    start = time.process_time()
    call()
    return time.process_time() - start


def read_reports(root: Path) -> None:
    """Read all runs for their reports."""
    for folder in root.iterdir():
        read_report_data(folder)


def read_curves(root: Path, points: int | None = None) -> None:
    """Read the curves of all runs, and thin them out."""
    for folder in root.iterdir():
        read_series(folder / LOG_FILE).to_dict(points)


def read_logs(root: Path) -> None:
    """Read the logs of all runs as a report does."""
    for folder in root.iterdir():
        log_series(read_log_lines(folder / LOG_FILE)[0])


def time_lists(root: Path) -> dict[str, float]:
    """List all runs cold and warm, and read them for reports."""
    index = RunIndex(Workplace(root))
    found = {"list, cold": seconds(index.list), "list, warm": seconds(index.list)}
    return found | {REPORT: seconds(lambda: read_reports(root))}


def time_curves(root: Path, number: int) -> dict[str, float]:
    """Read all curves cold and warm, and for reports; under a new path, of which none is known."""
    root = root.rename(root.with_name(f"curves-{number}"))
    found = {name: seconds(lambda: read_curves(root)) for name in ("series, cold", "series, warm")}
    found["series, warm, thinned out"] = seconds(lambda: read_curves(root, 200))
    found[REPORT] = seconds(lambda: read_logs(root))
    root.rename(root.with_name("curves"))
    return found


def show(title: str, rounds: Sequence[dict[str, float]]) -> None:
    """Print medians, and ratios to the time of reading for a report."""
    print(f"\n{title}\n\n| | seconds | of the report's |\n| --- | ---: | ---: |")
    for name in rounds[0]:
        time_, share = (
            statistics.median(values)
            for values in (
                [one[name] for one in rounds],
                [one[name] / one[REPORT] for one in rounds],
            )
        )
        print(f"| {name} | {time_:.3f} | {share:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Lists of runs and their curves.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--curves", type=int, default=50)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        lists, curves = Path(name, "lists"), Path(name, "curves")
        for root, n, lines in ((lists, args.runs, args.lines), (curves, args.curves, args.points)):
            for i in range(n):
                make_run(root / f"run-{i}", lines)
        RunIndex(Workplace(curves)).list()  # modules that are imported at the first list
        found = [(time_lists(lists), time_curves(curves, i)) for i in range(args.rounds)]
    show(f"{args.runs} runs of {args.lines} lines", [one for one, _ in found])
    show(f"{args.curves} runs of {args.points} lines", [one for _, one in found])


if __name__ == "__main__":
    main()
