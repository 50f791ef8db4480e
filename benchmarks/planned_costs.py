"""Planned beside actual memory and time of pretraining runs, as a table.

    python benchmarks/planned_costs.py --data TEXT [--steps 100] [--presets bert-tiny,gpt2-mini]
        [--out table.md]

Each plan (`unmask plan`) and each run is a process of its own. A preset may have options of
pretraining after a colon: `bert-mini:batch_tokens=2048:sequence_length=64`. Two plans are compared
with the actual figures: that of `unmask plan`, and the one in the run's `unmask.json`, which rests
on its first steps. Outside 10 % (memory) or 20 % (time) of the actual one is marked by `!`. Run it
on an idle machine, with OMP_NUM_THREADS as both should have it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PRESETS = (
    "bert-tiny", "bert-mini:batch_tokens=2048", "gpt2-mini", "llama-mini:sequence_length=128",
    "electra-mini", "t5-mini", "bart-mini:batch_tokens=2048", "lstm-mini", "elmo-mini",
    "xlnet-mini:batch_tokens=2048", "canine-s-mini", "roberta-mini:precision=bfloat16",
)  # fmt: skip
MEMORY_TOLERANCE, TIME_TOLERANCE = 0.10, 0.20
MIB = 2**20
COLUMNS = (
    "run", "memory: plan, MiB", "in the run", "actual", "plan / actual", "in the run / actual",
    "time: plan, s", "in the run", "actual", "plan / actual", "in the run / actual",
)  # fmt: skip


def unmask(*arguments: object) -> str:
    """Call the command in a process of its own; return what it prints."""
    command = [sys.executable, "-m", "unmask.cli", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def plan_and_run(
    preset: str, data: Path, steps: int
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the plan of a preset and the cost of its run."""
    name, *changes = preset.split(":")
    own = [name, "--steps", steps, *(word for change in changes for word in ("--set", change))]
    planned = json.loads(unmask("plan", *own, "--json"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        unmask("pretrain", *own, "--data", data, "--out", out, "--quiet")
        return planned, json.loads((out / "unmask.json").read_text())["cost"]


def compare(planned: Sequence[float], actual: float, tolerance: float) -> list[str]:
    """Return the cells of planned figures, the actual one and their ratios."""
    ratios = [x / actual for x in planned]
    marked = [f"{r:.2f}{'' if abs(r - 1) <= tolerance else ' !'}" for r in ratios]
    return [*(f"{x:,.0f}" for x in planned), f"{actual:,.0f}", *marked]


def row(preset: str, planned: Mapping[str, Any], cost: Mapping[str, Any]) -> list[str]:
    """Return the cells of one run."""
    own = cost["planned"]
    totals = [one["memory_bytes"]["total"] / MIB for one in (planned, own)]
    seconds = [one["seconds"] for one in (planned, own)]
    memory = compare(totals, cost["peak_memory_bytes"] / MIB, MEMORY_TOLERANCE)
    return [preset, *memory, *compare(seconds, cost["seconds"], TIME_TOLERANCE)]


def outside(rows: Sequence[Sequence[str]]) -> list[str]:
    """Say which ratios are outside their tolerance."""
    found: list[str] = []
    for title, i, tolerance in (
        ("memory of `unmask plan`", 4, MEMORY_TOLERANCE),
        ("memory planned in the run", 5, MEMORY_TOLERANCE),
        ("time of `unmask plan`", 9, TIME_TOLERANCE),
        ("time planned in the run", 10, TIME_TOLERANCE),
    ):
        names = ", ".join(f"{cells[0]} ({cells[i][:-2]})" for cells in rows if cells[i][-1] == "!")
        found.append(f"- {title}, outside {tolerance:.0%}: {names or 'none'}")
    return found


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return all rows as Markdown, and which are outside."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (COLUMNS, *rows)]
    lines.insert(1, "| --- |" + " ---: |" * (len(COLUMNS) - 1))
    return "\n".join([*lines, "", *outside(rows)]) + "\n"


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--presets", default=",".join(PRESETS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows: list[list[str]] = []
    for preset in given.presets.split(","):
        rows.append(row(preset, *plan_and_run(preset, given.data, given.steps)))
        print(rows[-1], flush=True)
        if given.out is not None:  # what there is, also if a later run fails
            given.out.write_text(table(rows), encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
