"""Settings of the whole suite: one thread a worker, no network, what is quick, checked types.

`make test` runs what is quick, `make test-thorough` what costs half a second or more and has a
quick test of the same mechanism beside it, `make test-all` everything. Continuous integration runs
the first two. A test that compares with a formula, a reference or the law of a draw is quick where
no other does.

Of a test with many cases

- `@pytest.mark.quick("bert", "t5")` keeps those in whose id these words stand (each stands for a
  mechanism: every kind of model that reads, counts or writes otherwise), the others are slow;
- `@pytest.mark.sample(4)` then keeps that many at equal distances, the others are thorough.

The quick and the thorough suite draw at most 25 examples a property, the same at every run, and in
each test check the types of a function with arrays at its first calls; the whole one searches as
many examples as a property says, others at every run, and checks every call.

Tests of what is promised (trials.py) count what they try, by the mark or the fixture `trials`:
`pytest -m trials` runs them alone.
"""

import functools
import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest
import typer
from hypothesis import settings

# Workers that share cores and all compute in several threads wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
HERE = Path(__file__).parent
SHARED_FOLDERS = (
    "properties",
    "faults",
    "finetuning",
    "word_vectors",
    "objectives",
    "batching",
    "tokenizers",
)
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in SHARED_FOLDERS)]
sys.path.append(str(HERE.parent / "examples"))

# On a shared machine any single example may take long, the first above all.
settings.register_profile("search", deadline=None)
settings.register_profile("repeat", deadline=None, derandomize=True)
SETTINGS = "_hypothesis_internal_use_settings"
"""Where hypothesis keeps the settings of a property."""
QUICK_EXAMPLES = 25
"""Of each property, in the quick suite."""
CHECKED_CALLS = 20
"""Of each function with arrays, in each test of the quick suite."""

# A service, nohup and `&` in a script ignore some of these, and processes inherit it.
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    handler = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
    signal.signal(getattr(signal, name), handler)
if "PYTEST_XDIST_WORKER" in os.environ:
    os.setsid()  # a terminal that closes reaches the controller alone, which nohup protects

import checked_types  # noqa: E402
import torch  # noqa: E402  (reads the number of threads)
from quick_cases import named, spread  # noqa: E402  (found on the path above)
from trials import Trials, report, sections_of_mark  # noqa: E402

jaxtyping.jaxtyped = checked_types.jaxtyped


def _ignore(*args: object, **kwargs: object) -> None:
    pass


# Each call waits for the disk, tens of thousands of times. What happens in which order, and which
# files are flushed, is tested with functions in its place; that a disk obeys, not at all.
os.fsync = _ignore

# Each seed would keep the stack at which it was set, for the day on which such a device is there.
for module in (torch.cuda, torch.xpu, torch.mtia):
    if not module.is_available():
        sys.modules[module.manual_seed_all.__module__]._lazy_call = _ignore  # pyright: ignore


def _is_quick(config: pytest.Config) -> bool:
    return "not slow" in config.option.markexpr


def pytest_configure(config: pytest.Config) -> None:
    """Draw the same examples at every run of the quick suite: none fails by the luck of a draw."""
    settings.load_profile("repeat" if _is_quick(config) else "search")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Do once what each test would do again, with the same outcome."""
    gc.collect()
    gc.freeze()  # modules and tests are no garbage until the end
    gc.set_threshold(20_000)
    typer.main.get_command = functools.cache(typer.main.get_command)
    main = sys.modules.get("unmask.cli.main")
    if main:
        main.make_app = functools.cache(main.make_app)
    distributed = sys.modules.get("unmask.training.device.distributed")
    if distributed:
        distributed.matmul_peak_flops = functools.cache(distributed.matmul_peak_flops)


def pytest_runtest_setup(item: pytest.Item) -> None:
    checked_types.begin_test()
    report(item, sections_of_mark(item))


@pytest.fixture
def trials(request: pytest.FixtureRequest) -> Iterator[Trials]:
    """Count what a test tries of what is promised."""
    counts = Trials()
    yield counts
    report(request.node, counts.counts)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow or thorough the cases that a test's marks do not keep quick."""
    if _is_quick(config):
        checked_types.check_first_calls(CHECKED_CALLS)
        for function in {f for item in items if hasattr(f := item.obj, SETTINGS)}:
            output = getattr(function, SETTINGS)
            n = min(output.max_examples, QUICK_EXAMPLES)
            setattr(function, SETTINGS, settings(output, max_examples=n))
    for item in items:
        report(item, dict.fromkeys(sections_of_mark(item), 0))  # also of a test that is skipped
        if "trials" in getattr(item, "fixturenames", ()) and not sections_of_mark(item):
            item.add_marker("trials")  # without a section: it counts itself
    for test, cases in _cases_of(items, "quick").items():
        words = next(iter(cases.values())).get_closest_marker("quick").args
        quick = named(list(cases), words)
        if len(cases) > 1 and not quick:
            raise pytest.UsageError(f"{test}: its mark `quick` names none of its cases")
        for case in cases.keys() - quick:
            cases[case].add_marker("slow")
    unslow = [item for item in items if not item.get_closest_marker("slow")]
    for cases in _cases_of(unslow, "sample").values():
        (n,) = next(iter(cases.values())).get_closest_marker("sample").args
        for case in cases.keys() - spread(list(cases), n):
            cases[case].add_marker("thorough")


def _cases_of(items: list[pytest.Item], mark: str) -> dict[str, dict[str, pytest.Item]]:
    """Return the cases of each test with a mark, by their ids."""
    tests: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker(mark):
            case = item.callspec.id  # pyright: ignore[reportAttributeAccessIssue]
            tests[item.nodeid.removesuffix(f"[{case}]")][case] = item
    return tests
