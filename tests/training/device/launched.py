"""Processes that torchrun starts, for tests."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
TINY = (
    "bert-tiny", "--data", "demo:novels", "--vocab-size", "2000", "--quiet",
    "--set", "precision=float32", "--set", "log_every=1", "--set", "batch_tokens=1024",
)  # fmt: skip
"""A pretraining run of a second."""


def torchrun_command(n: int, *arguments: object, options: tuple[str, ...] = ()) -> list[str]:
    """Return the command that starts n processes of a script or module."""
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    if "--rdzv-endpoint" not in options:
        torchrun.append("--standalone")
    return [*torchrun, *options, "--nproc-per-node", str(n), *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of the processes: this tree, one thread each."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | more


def torchrun(n: int, *arguments: object, options: tuple[str, ...] = ()) -> str:
    """Run n processes to their end, and return what they wrote.

    Raises:
        AssertionError: one failed.
    """
    command = torchrun_command(n, *arguments, options=options)
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def pretrain(n: int, out: Path, *arguments: object) -> str:
    """Pretrain a tiny model by n processes, or by one without torchrun."""
    own = ("-m", "unmask.cli", "pretrain", *TINY, "--out", out, *arguments)
    if n > 1:
        return torchrun(n, *own)
    done = subprocess.run(
        [sys.executable, *map(str, own)],
        capture_output=True, text=True, env=environment(), timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr
