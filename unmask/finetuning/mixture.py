"""Several tasks learned at once, each with its own share: Raffel et al. 2020, section 3.5.2.

A mixture is a TOML file: files of pairs, each with its form, and plain text, of which the model is
asked what its pretraining asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from unmask.config import read_named
from unmask.hiding.sources import Sources
from unmask.tasks.text_forms import Form
from unmask.text.mix import smoothed

LONGEST = 100
"""Characters of the name of a part, at most."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A task of a mixture."""

    train: str
    dev: str | None = None
    """By which the best state is chosen. None: a tenth of the training file."""
    test: str | None = None
    form: str | Form | None = None
    """How it is put in text: a name of `FORMS`, or a table. None: the name of the task."""
    label: str | None = None
    """The column of targets. None: the form's, or found by its customary names."""
    columns: tuple[str, ...] = ()
    """Names of the columns, of files without a header."""
    metric: str | None = None
    """None: the form's."""
    limit: int | None = None
    """In place of the mixture's."""


@dataclass(frozen=True, kw_only=True)
class Plain:
    """Plain text as a part of a mixture, hidden as in pretraining, anew whenever it is read."""

    data: tuple[str, ...]
    """Files, folders, patterns, as in pretraining."""
    limit: int | None = None
    """In place of the mixture's."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Which tasks are learned together, and how often each is read.

    Of part m with e_m examples an epoch reads in proportion to min(e_m, limit) ** sampling, and of
    all together as many as the sum of min(e_m, limit).
    """

    name: str
    tasks: Mapping[str, Part]
    text: Mapping[str, Plain] = field(default_factory=dict[str, Plain])
    limit: int | None = None
    """The most examples for which a part counts, K in the paper: one that is much larger than
    others is then read less often than it would be. None: each counts for what it has."""
    sampling: float = 1.0
    """1 over the paper's temperature T: 1 in proportion to examples, 0.5 is T = 2, 0 all alike."""

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        if not self.tasks:
            raise ValueError("tasks must have one at least")
        if twice := sorted(set(self.tasks) & set(self.text)):
            raise ValueError(f"text.{twice[0]} has the name of a task")
        if not 0 <= self.sampling <= 1:
            raise ValueError(f"sampling must be from 0 to 1, got {self.sampling}")
        _check_limit("limit", self.limit)
        _check_parts("tasks", self.tasks)
        _check_parts("text", self.text)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of all parts, tasks first."""
        return (*self.tasks, *self.text)

    def limit_of(self, name: str) -> int | None:
        """Return the most examples for which a part counts."""
        part = self.tasks[name] if name in self.tasks else self.text[name]
        return self.limit if part.limit is None else part.limit

    def sources(self, of: Sequence[str]) -> Sources:
        """Say how many examples of each part an epoch reads.

        Args:
            of: the part of each example.
        """
        numbers = np.array([self.parts.index(name) for name in of], np.int64)
        sizes = np.bincount(numbers, minlength=len(self.parts)).tolist()
        counted = [
            min(n, self.limit_of(name) or n) for name, n in zip(self.parts, sizes, strict=True)
        ]
        shares = smoothed(counted, self.sampling)
        return Sources(of=numbers, takes=tuple(max(1, round(s * sum(counted))) for s in shares))


def _check_parts(kind: str, parts: Mapping[str, Part | Plain]) -> None:
    """Refuse names that a line does not show as they are, and keys that name nothing.

    Raises:
        ValueError: there is one.
    """
    for name, part in parts.items():
        if not 0 < len(name) <= LONGEST or not name.isprintable() or name != name.strip():
            raise ValueError(
                f"{kind}: the name of a part must have from 1 to {LONGEST} printable characters "
                f"and no space around it, got {name!r:.40}"
            )
        _check_limit(f"{kind}.{name}.limit", part.limit)
        for key, value in vars(part).items():
            if value == "" or (isinstance(value, tuple) and "" in value):
                raise ValueError(f"{kind}.{name}.{key} must not be empty, got {value!r}")
        if isinstance(part, Plain) and not part.data:
            raise ValueError(f"{kind}.{name}.data must name a file")


def _check_limit(name: str, limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise ValueError(f"{name} must be at least 1, got {limit}")


def is_mixture(path: str) -> bool:
    """Say whether a training file is named as a mixture."""
    return path.lower().endswith(".toml")


def read_mixture(path: str | Path) -> Mixture:
    """Read a mixture.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or a key or value is not what it should be.
    """
    return read_named(Mixture, Path(path))
