"""Training beside programs that take a core, and come and go.

    python benchmarks/neighbor.py [--model bert-tiny] [--phases 0,1,0,2,0] [--seconds 2] [--curve 8]

The same pretraining of the bundled novels in three processes: `spin`, two threads that wait for
each other as OpenMP has it; `share`, two threads and `unmask.training.device.shared_cores`; `one`,
one thread. One at a time runs, in turn, and the others are stopped (SIGSTOP), as are the neighbors
that a phase does not have: loops that do nothing, each for a core. Printed are the tokens a second
of each phase, medians over its turns; the ratios to `spin` within turns, those in which that came
to a step; and how many cores other programs had meanwhile: the neighbors, and whatever else the
machine does. Then the curve: `spin` and `share`, each by itself, while one neighbor comes and goes,
tokens a second in each second. Needs Linux.
"""

import argparse
import os
import platform
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.objectives.published import MASKED_LM
from unmask.shards.read import TokenShards
from unmask.shards.write import write_shards
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.data.sources import open_documents, resolve_tokenizer_spec
from unmask.training.data.texts import build_training_data
from unmask.training.device.memory import keep_freed_memory
from unmask.training.device.shared_cores import share_cores
from unmask.zoo.catalogue import get_preset

WAYS = {"spin": 2, "share": 2, "one": 1}
"""Threads of each."""
SETTLE = 0.3
"""Seconds of a turn before it counts: a process that goes on finds its caches cold."""
STATE = struct.Struct("qd")
"""Tokens so far, and seconds of the processor."""


def recipe_of(model: str, batch_tokens: int) -> Recipe:
    """Return what is trained; the next sentence is left out, as in `pretraining.py`."""
    return Recipe(
        model=model,
        data=("demo:novels",),
        vocab_size=4000,
        sequence_length=64,
        batch_tokens=batch_tokens,
        steps=10**6,
        objective=MASKED_LM if model.startswith("bert") else None,
    )


def prepare(recipe: Recipe, folder: Path) -> None:
    """Write the novels as tokens."""
    spec = resolve_tokenizer_spec(recipe, apply_recipe(get_preset(recipe.model), recipe))
    tokenizer = train_tokenizer(spec, (d.text for d in open_documents(recipe)))
    write_shards(open_documents(recipe), tokenizer, folder)


def train(recipe: Recipe, way: str, folder: Path, counter: Path) -> None:
    """Train until the process is killed, and write down how far it is after each step."""
    torch.set_num_threads(WAYS[way])
    if way == "share" and not share_cores():
        print("cores are not shared here: not Linux, or one core", file=sys.stderr)
    keep_freed_memory()
    shards = TokenShards.open(folder)
    preset = apply_recipe(get_preset(recipe.model), recipe)
    architecture = preset.architecture.with_vocab_size(shards.tokenizer.vocab_size)
    model = replace(preset, architecture=architecture).build().initialize(recipe.seed)
    data = build_training_data(shards, recipe, preset.objective, recipe.sequence_length)
    with counter.open("r+b", buffering=0) as file:
        for report in loop.train(loop.start_run(recipe, model, data.batches)):
            os.pwrite(file.fileno(), STATE.pack(report.n_tokens, time.process_time()), 0)


class Process:
    """A process that is stopped but for its turns."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen([sys.executable, *words])

    def stop(self) -> None:
        """Let it wait."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let it run for a while."""
        self.go_on()
        try:
            yield
        finally:
            self.stop()


def busy_seconds() -> float:
    """Return how long all cores have been busy so far, together."""
    words = Path("/proc/stat").read_text(encoding="ascii").split()[1:9]
    user, nice, system, _, _, *interrupts = (int(word) for word in words)
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def take_turn(process: Process, counter: Path, seconds: float) -> tuple[float, float]:
    """Return tokens a second of a process, and the cores that others had meanwhile."""
    with process.turn():
        time.sleep(SETTLE)
        n, own = STATE.unpack(counter.read_bytes())
        start, busy = time.perf_counter(), busy_seconds()
        time.sleep(seconds)
        n_after, own_after = STATE.unpack(counter.read_bytes())
        taken = time.perf_counter() - start
        others = busy_seconds() - busy - (own_after - own)
    return (n_after - n) / taken, others / taken


@contextmanager
def parties(given: argparse.Namespace, folder: Path) -> Iterator[dict[str, tuple[Process, Path]]]:
    """Start one process of each way, which has taken its first steps, and stop it."""
    started: dict[str, tuple[Process, Path]] = {}
    try:
        for way in WAYS:
            counter = folder / way
            counter.write_bytes(STATE.pack(0, 0.0))
            words = ("--model", given.model, "--batch-tokens", str(given.batch_tokens))
            process = Process(__file__, *words, "--way", way, "--folder", str(folder))
            started[way] = process, counter
            while STATE.unpack(counter.read_bytes())[0] < 4 * given.batch_tokens:
                time.sleep(0.1)
            process.stop()
        yield started
    finally:
        for process, _ in started.values():
            process.end()


def compare(given: argparse.Namespace, folder: Path) -> None:
    """Print a line for each phase."""
    phases = [int(word) for word in given.phases.split(",")]
    loops = [Process("-c", "while True: pass") for _ in range(max(*phases, 1))]
    try:
        for neighbor in loops:
            neighbor.stop()
        with parties(given, folder) as started:
            for n in phases:
                for neighbor in loops[:n]:
                    neighbor.go_on()
                print(phase(started, n, given.rounds, given.seconds), flush=True)
                for neighbor in loops[:n]:
                    neighbor.stop()
            if given.curve:
                print("\n".join(curve(started, loops[0], given.curve)), flush=True)
    finally:
        for neighbor in loops:
            neighbor.end()


def measure_curve(
    started: dict[str, tuple[Process, Path]], neighbor: Process, seconds: int
) -> dict[str, list[float]]:
    """Return the tokens a second of each way: before a neighbor comes, with it, and after it."""
    rates: dict[str, list[float]] = {}
    for way in ("spin", "share"):
        process, counter = started[way]
        rates[way] = []
        with process.turn():
            time.sleep(SETTLE)
            for second in range(3 * seconds):
                if second == seconds:
                    neighbor.go_on()
                elif second == 2 * seconds:
                    neighbor.stop()
                (n, _), start = STATE.unpack(counter.read_bytes()), time.perf_counter()
                time.sleep(1)
                n_after, _ = STATE.unpack(counter.read_bytes())
                rates[way].append((n_after - n) / (time.perf_counter() - start))
    return rates


def curve(started: dict[str, tuple[Process, Path]], neighbor: Process, seconds: int) -> list[str]:
    """Return the table of `measure_curve`."""
    rates = measure_curve(started, neighbor, seconds)
    lines = ["", "| second | neighbors | spin | share |", "| ---: | ---: | ---: | ---: |"]
    for i, (spin, share) in enumerate(zip(*rates.values(), strict=True)):
        lines.append(f"| {i + 1} | {int(i // seconds == 1)} | {spin:,.0f} | {share:,.0f} |")
    return lines


def phase(
    started: dict[str, tuple[Process, Path]], n_neighbors: int, rounds: int, seconds: float
) -> str:
    """Return a row of the table."""
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    others: list[float] = []
    for i in range(rounds):
        for way in list(WAYS)[:: -1 if i % 2 else 1]:
            rate, taken = take_turn(*started[way], seconds)
            rates[way].append(rate)
            others.append(taken)
    speeds = " | ".join(f"{statistics.median(rates[way]):,.0f}" for way in WAYS)
    ratios = " | ".join(ratio(rates[way], rates["spin"]) for way in ("share", "one"))
    load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    return f"| {n_neighbors} | {statistics.median(others):.2f} | {load} | {speeds} | {ratios} |"


def ratio(rates: list[float], spin: list[float]) -> str:
    """Return the median of the ratios within turns, as far as spinning came to a step."""
    within = [a / b for a, b in zip(rates, spin, strict=True) if b]
    return f"{statistics.median(within):.2f}x" if within else "-"


def main() -> None:
    """Compare, or (with --way) be one of those compared."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="bert-tiny")
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--phases", default="0,1,0,2,0", help="neighbors of each phase")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--curve", type=int, default=8, help="seconds of each part; 0: no curve")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    recipe = recipe_of(given.model, given.batch_tokens)
    if given.way is not None:
        train(recipe, given.way, given.folder / "tokens", given.folder / given.way)
        return
    print(f"{given.model}, {given.batch_tokens:,} tokens a step, torch {torch.__version__}, "
          f"Python {platform.python_version()}, {os.cpu_count()} cores")  # fmt: skip
    print("| neighbors | cores of others | load | spin | share | one | share is | one is |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        prepare(recipe, Path(name) / "tokens")
        compare(given, Path(name))


if __name__ == "__main__":
    main()
