"""Several tasks learned at once, each with its own share: Raffel et al. 2020, section 3.5.2.

A mixture is a TOML file: files of pairs, each with its template, and plain text, of which the model
is asked what its pretraining asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from unmask.batching.source_sampling import SourceSampling
from unmask.config import read_dataclass
from unmask.tasks.text_templates import TextTemplate
from unmask.text.mixtures import smoothed_shares

MAX_NAME_LENGTH = 100
"""Characters of the name of a part, at most."""


@dataclass(frozen=True, kw_only=True)
class MixtureTask:
    """A task of a mixture."""

    train: str
    dev: str | None = None
    """By which the best state is chosen. None: a tenth of the training file."""
    test: str | None = None
    template: str | TextTemplate | None = None
    """How it is put in text: a name of `TEXT_TEMPLATES`, or a table. None: the name of the task."""
    label: str | None = None
    """The column of targets. None: the template's, or found by its customary names."""
    column_names: tuple[str, ...] = ()
    """Names of the columns, of files without a header."""
    metric: str | None = None
    """None: the template's."""
    size_limit: int | None = None
    """In place of the mixture's."""


@dataclass(frozen=True, kw_only=True)
class MixtureText:
    """Plain text as a part of a mixture, hidden as in pretraining, anew whenever it is read."""

    data: tuple[str, ...]
    """Files, folders, patterns, as in pretraining."""
    size_limit: int | None = None
    """In place of the mixture's."""


@dataclass(frozen=True, kw_only=True)
class TaskMixture:
    """Which tasks are learned together, and how often each is read.

    Of part m with e_m examples an epoch reads in proportion to min(e_m, size_limit) **
    sampling_exponent, and of all together as many as the sum of min(e_m, size_limit).
    """

    name: str
    tasks: Mapping[str, MixtureTask]
    text: Mapping[str, MixtureText] = field(default_factory=dict[str, MixtureText])
    size_limit: int | None = None
    """The most examples for which a part counts, K in the paper: one that is much larger than
    others is then read less often than it would be. None: each counts for what it has."""
    sampling_exponent: float = 1.0
    """1 over the paper's temperature T: 1 in proportion to examples, 0.5 is T = 2, 0 all alike."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if not self.tasks:
            raise ValueError("tasks must have one at least")
        if twice := sorted(set(self.tasks) & set(self.text)):
            raise ValueError(f"text.{twice[0]} has the name of a task")
        if not 0 <= self.sampling_exponent <= 1:
            raise ValueError(f"sampling_exponent must be from 0 to 1, got {self.sampling_exponent}")
        _check_size_limit("size_limit", self.size_limit)
        _check_components("tasks", self.tasks)
        _check_components("text", self.text)

    @property
    def component_names(self) -> tuple[str, ...]:
        """The names of all parts, tasks first."""
        return (*self.tasks, *self.text)

    def size_limit_of(self, name: str) -> int | None:
        """Return the most examples for which a part counts."""
        part = self.tasks[name] if name in self.tasks else self.text[name]
        return self.size_limit if part.size_limit is None else part.size_limit

    def make_source_sampling(self, component_of_example: Sequence[str]) -> SourceSampling:
        """Return how many examples of each part an epoch reads.

        Args:
            component_of_example: the part of each example.
        """
        numbers = np.array(
            [self.component_names.index(name) for name in component_of_example], np.int64
        )
        sizes = np.bincount(numbers, minlength=len(self.component_names)).tolist()
        counted = [
            min(n, self.size_limit_of(name) or n)
            for name, n in zip(self.component_names, sizes, strict=True)
        ]
        shares = smoothed_shares(counted, self.sampling_exponent)
        return SourceSampling(
            source_of_row=numbers,
            rows_per_epoch=tuple(max(1, round(s * sum(counted))) for s in shares),
        )


def _check_components(table_name: str, components: Mapping[str, MixtureTask | MixtureText]) -> None:
    """Refuse names that a line does not show as they are, and keys that name nothing.

    Raises:
        ValueError: there is one.
    """
    for name, part in components.items():
        if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable() or name != name.strip():
            raise ValueError(
                f"{table_name}: the name of a part must have from 1 to {MAX_NAME_LENGTH} "
                "printable characters "
                f"and no space around it, got {name!r:.40}"
            )
        _check_size_limit(f"{table_name}.{name}.size_limit", part.size_limit)
        for key, value in vars(part).items():
            if value == "" or (isinstance(value, tuple) and "" in value):
                raise ValueError(f"{table_name}.{name}.{key} must not be empty, got {value!r}")
        if isinstance(part, MixtureText) and not part.data:
            raise ValueError(f"{table_name}.{name}.data must name a file")


def _check_size_limit(name: str, size_limit: int | None) -> None:
    if size_limit is not None and size_limit < 1:
        raise ValueError(f"{name} must be at least 1, got {size_limit}")


def is_mixture(path: str) -> bool:
    """Return whether a training file is named as a mixture."""
    return path.lower().endswith(".toml")


def read_mixture(path: str | Path) -> TaskMixture:
    """Read a mixture.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or a key or value is invalid.
    """
    return read_dataclass(TaskMixture, Path(path))
