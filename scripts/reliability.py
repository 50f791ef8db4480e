"""Run the tests of what is promised, and write docs/reliability.md: what was tried how often.

    python scripts/reliability.py [--out docs/reliability.md] [--select EXPRESSION]
        [--tests PATH...] [--workers N]

Each row is a test; its trials are what it counted itself while it ran (tests/trials.py): kills
tried, files damaged, mistakes made. By default all tests with trials run but those that are slow.
The exit status is 1 where a test failed; the page says so, too.
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
SELECT = "trials and not slow and not gpu and not network"
PROPERTY = "trials:"
SECTIONS = {
    "kills": (
        "Killed at any write",
        "The job's folder as it lies on the disk before a write, a renaming, a removal or a new "
        "folder is what a `kill -9` leaves there. From it the job goes on; weights, state of the "
        "optimizer, logs, tokens and results are compared byte for byte with those of a job that "
        "was left alone. In others a process is killed at a random time.",
    ),
    "full disk": (
        "Full disk",
        "From some new file on none can be made, or none can grow beyond a size: one line names "
        "the disk, and with room the same command ends as if there always had been.",
    ),
    "checkpoints": (
        "Damaged checkpoints",
        "Each file of the newest checkpoint, cut, emptied, removed, or with one bit turned: it is "
        "named, the one before it is used, and the result is the same.",
    ),
    "signals and clocks": (
        "Signals and clocks",
        "Ctrl-C, SIGTERM and SIGHUP at any moment, once to three times; clocks that go backwards, "
        "leap or stand still.",
    ),
    "numbers": (
        "Numbers that are none",
        "An activation, a loss or a gradient that is not finite: its step is skipped and counted, "
        "and after a stated number the run ends. Steps without targets.",
    ),
    "data and workers": (
        "Data, workers, two runs at once",
        "Other numbers of loader workers, workers that are killed, a second run in a folder, data "
        "that changed between a kill and the resuming.",
    ),
    "hostile files": (
        "Hostile files",
        "Files that are made to run code, to leave their folder, or to take all memory or time.",
    ),
    "fuzzing": ("Fuzzing", "Small valid files, mutated at random: read, or refused in one line."),
    "mistakes": (
        "Mistakes of users",
        "Wrong options, files, rows and keys: one line that names the place, and nothing is left "
        "half-written. On the command line the exit status is 2.",
    ),
    "text torture": (
        "Text torture",
        "All of Unicode, floods of combining marks, surrogates, control characters, very long "
        "lines, through every kind of tokenizer.",
    ),
}
"""Sections of tests/trials.py, in order -> heading and what is tried."""
UNCOUNTED = "without a count"
"""Section of tests that ended before they counted anything."""
HEAD = """# Reliability

What is promised, the test that holds it to that, how often it was tried, and what came of it. This
page is written by `python scripts/reliability.py`, which runs the tests; nothing here is typed.
The trials of a test are those that it counts while it runs: kills tried, files damaged, mistakes
made.
"""


@dataclass(frozen=True)
class Case:
    """One case of a test, as it ended."""

    path: str
    name: str
    case: str
    trials: dict[str, int]
    failure: str | None
    skip_reason: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, write the page, and return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "reliability.md")
    parser.add_argument("--select", default=SELECT, help="expression of marks, as of pytest -m")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="files and folders of tests")
    parser.add_argument("--workers", type=int, default=0, help="processes of pytest-xdist")
    given = parser.parse_args(arguments)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = ["pytest", *given.tests, "-m", given.select, "-n", str(given.workers)]
        run_tests([*command, "-p", "no:cacheprovider", f"--junitxml={report}"])
        cases = list(read_report(report))
    command[command.index(given.select)] = f'"{given.select}"'
    facts = describe_run(" ".join(command), time.monotonic() - start)
    given.out.write_text(page(cases, facts), encoding="utf-8")
    n_failed = sum(case.failure is not None for case in cases)
    n_trials = sum(test.trials.total() for test in _by_test(cases))
    print(f"{given.out}: {n_trials:,} trials, {n_failed} failed")
    return int(n_failed > 0 or not cases)


def run_tests(command: list[str]) -> None:
    """Run pytest on this tree in a process of its own; failed tests are no error.

    Raises:
        RuntimeError: the tests could not be run.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
        preexec_fn=_heed_signals if os.name == "posix" else None,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with status {done.returncode}")


def _heed_signals() -> None:
    """Take back what a shell does to jobs in the background: signals are a part of the tests."""
    for name in ("SIGINT", "SIGHUP", "SIGTERM"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def read_report(path: Path) -> Iterator[Case]:
    """Yield the cases of a JUnit report; one that failed twice (call, teardown) once."""
    seen: set[tuple[str, str]] = set()
    for found in ElementTree.parse(path).getroot().iter("testcase"):
        place, full = found.get("classname", ""), found.get("name", "")
        skipped = next(found.iter("skipped"), None)
        if (place, full) in seen or (skipped is not None and not place):
            continue  # the latter: a file of tests that needs what is not here
        seen.add((place, full))
        name, _, case = full.partition("[")
        trials: Counter[str] = Counter()
        for fact in found.iter("property"):
            if fact.get("name", "").startswith(PROPERTY):
                section = fact.get("name", "").removeprefix(PROPERTY)
                trials[section] += int(fact.get("value", "0"))
        bad = [x for kind in ("failure", "error") for x in found.iter(kind)]
        yield Case(
            path=place.replace(".", "/") + ".py",
            name=name,
            case=case.removesuffix("]"),
            trials=dict(trials),
            failure=bad[0].get("message", "").strip() if bad else None,
            skip_reason=None if skipped is None else skipped.get("message", ""),
        )


@dataclass(frozen=True)
class TestResult:
    """All cases of a test."""

    path: str
    name: str
    cases: tuple[Case, ...]

    @property
    def trials(self) -> Counter[str]:
        """What the cases tried, by section; every section that one knows of."""
        counts: Counter[str] = Counter()
        for case in self.cases:
            counts.update(case.trials)
        return counts or Counter({UNCOUNTED: 0})

    @property
    def n_failed(self) -> int:
        """Number of cases that failed."""
        return sum(case.failure is not None for case in self.cases)

    def result(self) -> str:
        """Say how the cases ended; of what failed the first line, and of what was skipped why."""
        skipped = [case for case in self.cases if case.skip_reason is not None]
        n_passed = len(self.cases) - self.n_failed - len(skipped)
        parts = [f"{n_passed} passed"] if n_passed else []
        parts += [f"**{self.n_failed} failed**"] if self.n_failed else []
        for case in skipped[:1]:
            parts.append(f"{len(skipped)} skipped: {_cell(case.skip_reason or '')}")
        for case in self.cases:
            if case.failure is not None:
                parts.append(f"`{case.case or self.name}`: {_cell(case.failure)}")
        return ", ".join(parts)


def _by_test(cases: Iterable[Case]) -> list[TestResult]:
    """Put the cases of each test together, in the order of the report."""
    tests: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        tests.setdefault((case.path, case.name), []).append(case)
    return [TestResult(path, name, tuple(found)) for (path, name), found in tests.items()]


def page(cases: Iterable[Case], facts: Sequence[str]) -> str:
    """Return the page of a run."""
    tests = _by_test(cases)
    lines = [HEAD, *facts, "", "| | tests | cases | trials | failed |", "| --- " * 5 + "|"]
    tables: list[str] = []
    for section in (*SECTIONS, UNCOUNTED):
        own = [test for test in tests if section in test.trials]
        if not own:
            continue
        title, text = SECTIONS.get(section, ("Ended before they counted", "They stand here alone."))
        n_trials = sum(test.trials[section] for test in own)
        n_cases = sum(len(test.cases) for test in own)
        n_failed = sum(test.n_failed for test in own)
        anchor = title.lower().replace(",", "").replace(" ", "-")
        lines.append(
            f"| [{title}](#{anchor}) | {len(own)} | {n_cases:,} | {n_trials:,} | {n_failed} |"
        )
        tables += ["", f"## {title}", "", text, ""]
        tables += ["| promise | test | trials | result |", "| --- | --- | --- | --- |"]
        tables += [_row(test, section) for test in own]
    return "\n".join([*lines, *tables]) + "\n"


def _row(test: TestResult, section: str) -> str:
    words = test.name.removeprefix("test_").replace("_", " ")
    place = f"`{test.path}::{test.name}`"
    return f"| {words.capitalize()} | {place} | {test.trials[section]:,} | {test.result()} |"


def _cell(text: str) -> str:
    """Return the first line of a text, as it may stand in a table."""
    line = text.splitlines()[0] if text else ""
    line = line if len(line) <= 160 else line[:157] + "..."
    return line.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def describe_run(command: str, seconds: float) -> list[str]:
    """Say with which command, code and machine the tests ran, when, and how long."""
    commit = _git("rev-parse", "--short=10", "HEAD") or "unknown"
    if _git("status", "--porcelain", "--untracked-files=no"):
        commit += " with changes"
    packages = ", ".join(f"{name} {_version(name)}" for name in ("torch", "numpy", "safetensors"))
    return [
        f"- Command: `{command}`",
        f"- Commit: {commit}",
        f"- Python {platform.python_version()}, {packages}",
        f"- Machine: {platform.system()} {platform.release()}, {_processor()}, "
        f"{os.cpu_count()} cores",
        f"- Date: {datetime.now(UTC):%Y-%m-%d}, {seconds / 60:.0f} minutes",
    ]


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )  # an unpacked archive has no history
    return done.stdout.strip()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _processor() -> str:
    """Return the name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
