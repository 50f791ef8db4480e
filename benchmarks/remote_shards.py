"""Tokens a second that are read from a prepared folder: from disk, over HTTP, from the cache.

    python benchmarks/remote_shards.py FOLDER --latency 0.02 --step 0.25

FOLDER is what `unmask prepare` wrote. It is served by a process of its own on this machine, which
waits before each answer. `--step` are the seconds that a training step takes between two batches.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from unmask.objectives import published
from unmask.shards.read import TokenShards
from unmask.shards.remote.access import RemoteAccess
from unmask.shards.remote.shards import open_remote
from unmask.training.config import Recipe
from unmask.training.data.texts import build_training_data

SERVER = Path(__file__).parents[1] / "tests" / "range_server.py"
LENGTH, BATCH_TOKENS = 128, 16_384


def tokens_per_second(shards: TokenShards, workers: int, steps: int, step_seconds: float) -> float:
    """Read batches of some steps, after a first one."""
    recipe = Recipe(
        model="bert-mini", data=(shards.location,), batch_tokens=BATCH_TOKENS, steps=10**6
    )
    data = build_training_data(shards, recipe, published.MASKED_LM, LENGTH, n_workers=workers)
    batches = data.batches(None)
    next(batches)
    begin, n_tokens = time.perf_counter(), 0
    for micro, _ in itertools.islice(batches, steps):
        n_tokens += sum(batch.inputs.numel() for batch in micro)
        time.sleep(step_seconds)
    return n_tokens / (time.perf_counter() - begin)


def main() -> None:
    """Measure without workers, and with two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("--step", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    folder = args.folder.absolute()
    command = [sys.executable, str(SERVER), str(folder.parent), str(args.latency)]
    for workers in (0, 2):
        with (
            tempfile.TemporaryDirectory() as cache,
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        ):
            assert server.stdout is not None
            url, access = server.stdout.readline().strip(), RemoteAccess(folder=Path(cache))
            found = [TokenShards.open(folder)]
            speeds = [tokens_per_second(found[0], workers, args.steps, args.step)]
            for _ in range(2):
                remote = open_remote(f"{url}/{folder.name}", access)
                speeds.append(tokens_per_second(remote, workers, args.steps, args.step))
            server.kill()
        disk, first, cached = (f"{speed:,.0f}" for speed in speeds)
        print(f"{workers} workers: disk {disk}, HTTP {first}, cache {cached} tokens a second")


if __name__ == "__main__":
    main()
