"""Settings of the whole suite: one thread a worker, no network, and what is quick.

`make test` runs what is quick, `make test-all` everything. Of a test with many cases
`@pytest.mark.quick("bert", "t5")` keeps in the quick suite those in whose id these words stand
(each stands for a mechanism: every kind of model that reads, counts or writes otherwise), and
the other cases are slow.
"""

import os
import sys
from collections import defaultdict
from pathlib import Path

import pytest

# Workers that share cores and all compute in several threads wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in ("properties", "finetuning", "vectors"))]
sys.path.append(str(HERE.parent / "examples"))


def _named(cases: list[str], words: tuple[str, ...]) -> set[str]:
    """Return the ids that a word is, or, where none is, those in which it stands between dashes."""
    whole = set(words) & set(cases)
    parts = [word for word in words if word not in whole]
    return whole | {c for c in cases if any(f"-{word}-" in f"-{c}-" for word in parts)}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what a test's mark `quick` does not name."""
    tests: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("quick"):
            case = item.callspec.id  # pyright: ignore[reportAttributeAccessIssue]
            tests[item.nodeid.removesuffix(f"[{case}]")][case] = item
    for test, cases in tests.items():
        words = next(iter(cases.values())).get_closest_marker("quick").args
        quick = _named(list(cases), words)
        if len(cases) > 1 and not quick:
            raise pytest.UsageError(f"{test}: its mark `quick` names none of its cases")
        for case in cases.keys() - quick:
            cases[case].add_marker("slow")
