"""All speed benchmarks, one after the other, and one dated report of what they print.

    python benchmarks/run_all.py [--out benchmarks/reports] [--only NAME ...] [--corpus TEXT]

Each is a command of its own (`COMMANDS`) and goes on after one that fails, which the report says.
The report has the machine, versions, the measured peak of its matrix products, and for each command
how busy other programs kept the cores meanwhile: more than a tenth of a core, and the figures are
those of a machine that is not quiet. It is written anew after each command. `make bench` calls it;
it takes about an hour.
"""

import argparse
import importlib.metadata
import os
import platform
import resource
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from unmask.bundled.demo import bundled_path
from unmask.training.device import distributed

HERE = Path(__file__).parent
WIKITEXT = HERE.parent.parent / "shared" / "data" / "wikitext-2" / "train.txt.xz"
COMMANDS = {
    "start": "start.py",
    "pretraining": "pretraining.py --rounds 3 --steps 4",
    "families": "families.py --rounds 2 --steps 3",
    "fine-tuning": "finetuning.py --rounds 2",
    "reading": "reading.py --rounds 3 --texts 128",
    "generation": "generation.py --rounds 4",
    "preparation": "preparation.py CORPUS --memory 10,100 --formats txt --shapes documents",
    "growth": "growth.py CORPUS --megabytes 10,50 --jobs tokenize",
    "word vectors": "word2vec.py CORPUS",
    "neighbor": "neighbor.py",
}
"""Arguments of scripts of this folder, which take less than an hour on two cores."""
PACKAGES = ("torch", "numpy", "transformers", "tokenizers", "gensim")
QUIET = 0.1
"""Cores that other programs may use while a machine counts as quiet."""


def machine() -> list[str]:
    """Describe the machine and its software."""
    cpu = torch.device("cpu")
    peaks = [distributed.matmul_peak_flops(d, cpu) / 1e9 for d in (torch.float32, torch.bfloat16)]
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    cpu_name = names[0] if names else platform.processor()
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    native = distributed.has_native_bfloat16(cpu)
    return [
        f"- {platform.system()} {platform.machine()}, {cpu_name}, {os.cpu_count()} cores; "
        f"instructions for bfloat16: {'yes' if native else 'no'}",
        f"- Matrix products, {torch.get_num_threads()} threads: {peaks[0]:.0f} GFLOP/s in float32, "
        f"{peaks[1]:.0f} in bfloat16",
        f"- Python {platform.python_version()}, {versions}",
    ]


def busy_seconds() -> float:
    """Return the seconds that all cores have computed so far; 0 where the system does not say."""
    stat = Path("/proc/stat")
    if not stat.is_file():
        return 0.0
    user, nice, system, _idle, _wait, interrupts, soft, *_ = map(
        int, stat.read_text(encoding="utf-8").splitlines()[0].split()[1:]
    )
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the seconds that the processes started here have computed so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: str, corpus: Path) -> list[str]:
    """Run a command; return its section of the report."""
    words = [str(corpus) if word == "CORPUS" else word for word in shlex.split(command)]
    start, busy, own = time.perf_counter(), busy_seconds(), own_seconds()
    done = subprocess.run(
        [sys.executable, str(HERE / words[0]), *words[1:]],
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    others = max(0.0, (busy_seconds() - busy - own_seconds() + own) / seconds)
    noise = "" if others <= QUIET else ": **not a quiet machine**"
    shown = command.replace("CORPUS", corpus.name)
    section = [
        f"`python benchmarks/{shown}`: {seconds / 60:.1f} minutes; other programs used "
        f"{others:.2f} cores{noise}.",
        "",
        *done.stdout.strip().splitlines(),
    ]
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        section += ["", f"It ended with status {done.returncode}: {last}"]
    return section


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=HERE / "reports")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument(
        "--corpus", type=Path, default=WIKITEXT if WIKITEXT.is_file() else bundled_path("novels"),
        help="any text; default: WikiText-2, or the bundled novels",
    )  # fmt: skip
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    distributed.set_threads(None)
    today = datetime.now(UTC).date().isoformat()
    path = given.out / f"{today}-bench.md"
    report = [f"# All speed benchmarks, {today}", "", "`make bench`", "", *machine()]
    for name in given.only:
        print(f"{name} ...", flush=True)
        report += ["", f"## {name.capitalize()}", "", *run(COMMANDS[name], given.corpus)]
        path.write_text("\n".join(report) + "\n", encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
