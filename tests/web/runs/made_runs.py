"""Run folders as jobs leave them, made of plain files."""

import json
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmask.web.runs.summary import RunSummary
from unmask.web.workplace import Workplace

SAVED = Path(__file__).parent / "saved"
"""Folders that jobs wrote."""
LOCK = """
import sys
from pathlib import Path
from unmask.files import lock_run_folder
with lock_run_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]], mode: str = "w") -> None:
    """Write lines of JSON."""
    with path.open(mode, encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def training_line(step: int, loss: float | None = None) -> dict[str, Any]:
    """Return a line as `TrainingLog` writes it."""
    value = 5.0 - step / 100 if loss is None else loss
    return {
        "step": step, "tokens": 64 * step, "loss": value, "parts": {"masked": value},
        "accuracy": {"masked": step / 1000}, "rate": 1e-3, "gradient_norm": 1.5, "skipped": 0,
    }  # fmt: skip


def make_run(folder: Path, *, steps: int = 20, done: int | None = None, **changes: Any) -> Path:
    """Make a pretraining run that logged every step and evaluated the last."""
    folder.mkdir(parents=True, exist_ok=True)
    done = steps if done is None else done
    recipe = {
        "kind": "Recipe", "steps": steps, "learning_rate": 1e-3,
        "optimizer": {"kind": "AdamW", "weight_decay": 0.01},
    }  # fmt: skip
    record = {
        "format": 2, "kind": "pretrain", "card": "bert-tiny", "parameters": 1000,
        "recipe": recipe, "finished": done == steps,
    }  # fmt: skip
    (folder / "unmask.json").write_text(json.dumps(record | changes))
    evaluation = {"loss": 4.0, "masked_loss": 4.0, "masked_accuracy": 0.25}
    lines = [training_line(step) for step in range(1, done + 1)]
    write_lines(folder / "log.jsonl", [*lines, {"step": done, "evaluation": evaluation}])
    write_lines(folder / "timing.jsonl", (timing_line(step, steps) for step in range(1, done + 1)))
    return folder


def figures_of(run: RunSummary) -> list[tuple[str, str]]:
    """Return names and texts of a run's figures, with plain spaces."""
    return [
        (figure.name, figure.text.replace("\N{NARROW NO-BREAK SPACE}", " "))
        for figure in run.headline
    ]


def timing_line(step: int, total: int = 20) -> dict[str, Any]:
    """Return a line as `TrainingLog` writes it."""
    return {"step": step, "total_steps": total, "seconds": step / 2, "tokens_per_second": 128.0}


@contextmanager
def held_lock(folder: Path) -> Generator[int]:
    """Let another process hold the lock of a folder; give its number."""
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.stdin.close()


def workplace(root: Path) -> Workplace:
    """Return a workplace that exists."""
    root.mkdir(parents=True, exist_ok=True)
    return Workplace(root)
