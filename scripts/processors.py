"""Run the suite as other processors and other ways of starting it would, and print a table.

`make test-processors` runs the quick suite under every setting; `python scripts/processors.py
--marks "thorough and not slow and not gpu and not network" --settings avx2` runs another part under
one. What fails is printed below the table, and the exit status is then 1.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK = "not slow and not thorough and not gpu and not network"
SETTINGS: dict[str, dict[str, str]] = {
    "here": {},
    "scalar": {
        "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE",
    },
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_CBWR": "AVX512"},
    "two-threads": {"OMP_NUM_THREADS": "2"},
    "background": {},
}  # fmt: skip
"""Environment of each. With `ATEN_CPU_CAPABILITY` set, `auto` precision is float32; oneDNN's
AVX512_CORE is AVX-512 without bfloat16. `background` ignores the signals of a terminal, as a
service, `nohup` and `&` in a script do."""
IGNORE = 'trap "" INT HUP; exec "$@"'


def run(name: str, marks: str, paths: list[str]) -> tuple[str, float, list[str]]:
    """Run tests under a setting; return pytest's last line, minutes, and what failed."""
    words = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "worksteal", "-rfE"]
    if name == "background":
        words = ["sh", "-c", IGNORE, "sh", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **SETTINGS[name]}
    start = time.monotonic()
    process = subprocess.run(
        [*words, "-m", marks, *paths],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    lines = process.stdout.splitlines()
    failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    counts = re.findall(r"\d+ (?:passed|failed|errors?|skipped)", lines[-1] if lines else "")
    outcome = ", ".join(counts) or f"no test ran, exit status {process.returncode}"
    if process.returncode and not failures:
        failures = lines[-5:]
    return outcome, (time.monotonic() - start) / 60, failures


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", help="tests; default: all")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--marks", default=QUICK, help="pytest's -m; default: the quick suite")
    options = parser.parse_args()
    print("| setting | tests | minutes |\n| --- | --- | --: |", flush=True)
    failed: list[str] = []
    for name in options.settings:
        outcome, minutes, failures = run(name, options.marks, options.paths)
        print(f"| {name} | {outcome} | {minutes:.1f} |", flush=True)
        failed += [f"{name}: {line}" for line in failures]
    print("\n".join(["", *failed]) if failed else "")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
