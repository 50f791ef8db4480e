"""How often each promise was put to the test: kills tried, files damaged, mistakes made.

A test says so in one of two ways; `scripts/reliability.py` collects both into docs/reliability.md.

    @pytest.mark.trials("mistakes")            # each case of the test is one trial
    def test_unknown_key_is_refused(key): ...

    def test_killed_run_resumes(trials):       # one case tries many
        for instant in instants:
            ...
            trials.count("kills")              # after it held; or trials.count("kills", n)
"""

from collections import Counter

import pytest

SECTIONS = (
    "kills",
    "full disk",
    "checkpoints",
    "signals and clocks",
    "numbers",
    "data and workers",
    "hostile files",
    "fuzzing",
    "mistakes",
    "text torture",
)
"""What is promised, in the order of the page."""
PROPERTY = "trials:"
"""Of a test, in its report: followed by the section."""


class Trials:
    """A count of what one test tried, by section."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def count(self, section: str, n: int = 1) -> None:
        """Add what was tried, and held."""
        if section not in SECTIONS:
            raise ValueError(f"{section!r}: no section of trials; there are {', '.join(SECTIONS)}")
        self.counts[section] += n


def report(item: pytest.Item, counts: dict[str, int]) -> None:
    """Put counts into the report of a test, from where JUnit's file has them."""
    item.user_properties.extend((f"{PROPERTY}{section}", n) for section, n in counts.items())


def sections_of_mark(item: pytest.Item) -> dict[str, int]:
    """Return what the marks of a test count: one of a section."""
    counts = Trials()
    for mark in item.iter_markers("trials"):
        for section in mark.args:
            counts.count(section)
    return counts.counts
