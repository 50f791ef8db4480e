"""Settings of the whole suite: one thread a worker, no network, what is quick, checked types.

`make test` runs what is quick, `make test-all` everything. Of a test with many cases
`@pytest.mark.quick("bert", "t5")` keeps in the quick suite those in whose id these words stand
(each stands for a mechanism: every kind of model that reads, counts or writes otherwise), and
the other cases are slow.
"""

import inspect
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import beartype
import jaxtyping
import pytest
from hypothesis import settings

# Workers that share cores and all compute in several threads wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
HERE = Path(__file__).parent
SHARED_FOLDERS = (
    "properties",
    "finetuning",
    "word_vectors",
    "objectives",
    "batching",
    "tokenizers",
)
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in SHARED_FOLDERS)]
sys.path.append(str(HERE.parent / "examples"))

# On a shared machine any single example may take long, the first above all.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

from quick_cases import named  # noqa: E402  (found on the path above)


def _names_an_array(hint: Any) -> bool:
    """Say whether an annotation holds an array's type, or a string that may name one."""
    if isinstance(hint, str):
        return True
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    parts = getattr(hint, "__args__", ())
    return isinstance(parts, tuple) and any(_names_an_array(part) for part in parts)


def _jaxtyped_where_arrays_are(jaxtyped: Callable[..., Any]) -> Callable[..., Any]:
    """Check functions without arrays by beartype alone.

    jaxtyping binds the arguments of every call to look for shapes, and builds two functions more
    for each that is imported; where no shape is named, beartype checks as much without.
    """

    def checked(*, typechecker: Any) -> Callable[[Any], Any]:
        def decorate(known: Any) -> Any:
            if inspect.isfunction(known):
                hints = known.__annotations__.values()
                if not any(_names_an_array(hint) for hint in hints):
                    return beartype.beartype(known)
            return jaxtyped(typechecker=typechecker)(known)

        return decorate

    return checked


jaxtyping.jaxtyped = _jaxtyped_where_arrays_are(jaxtyping.jaxtyped)


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
        quick = named(list(cases), words)
        if len(cases) > 1 and not quick:
            raise pytest.UsageError(f"{test}: its mark `quick` names none of its cases")
        for case in cases.keys() - quick:
            cases[case].add_marker("slow")
