"""Multi-task mixtures with examples-proportional mixing: Raffel et al. 2020, section 3.5.2.

A mixture is a TOML file. It names files of pairs, each with a template, and plain text, on which
the pretraining objective is trained.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from unmask.batching.source_sampling import SourceSampling
from unmask.config import read_dataclass
from unmask.tasks.text_templates import TextTemplate
from unmask.text.mixtures import smoothed_shares

MAX_NAME_LENGTH = 100
"""Maximum number of characters in the name of a part."""


@dataclass(frozen=True, kw_only=True)
class MixtureTask:
    """A task of a mixture."""

    train: str | None = None
    """Training file. None, of instructions: a held-out task, with a dev or test file alone."""
    dev: str | None = None
    """Dev file, for selecting the best checkpoint. None: a tenth of the training file."""
    test: str | None = None
    template: str | TextTemplate | None = None
    """Text template: a name in `TEXT_TEMPLATES`, or a table. None: the name of the task."""
    label: str | None = None
    """Column of targets. None: the template's, or found by common names."""
    column_names: tuple[str, ...] = ()
    """Names of all columns, for files without a header."""
    metric: str | None = None
    """Metric. None: the template's."""
    size_limit: int | None = None
    """In place of the mixture's."""
    text: tuple[str, ...] = ()
    """Of instructions: columns of the prompt. Empty: found by common names."""
    by: str | None = None
    """Of instructions: column whose values are tasks of their own, such as data sets."""
    metrics: Mapping[str, str] = field(default_factory=dict[str, str])
    """With `by`: the metric of a value's task, in place of `metric`."""
    dev_share: float | None = None
    """Of instructions: share of the training rows that are held out without a dev file; 0: none.
    None: a tenth."""


@dataclass(frozen=True, kw_only=True)
class MixtureText:
    """Plain text as a part of a mixture, corrupted as in pretraining, differently in each epoch."""

    data: tuple[str, ...]
    """Files, folders and patterns, as in pretraining."""
    size_limit: int | None = None
    """In place of the mixture's."""


@dataclass(frozen=True, kw_only=True)
class TaskMixture:
    """The tasks of a mixture and their sampling rates.

    Examples of part m, which has e_m examples, are sampled in proportion to
    min(e_m, size_limit) ** sampling_exponent. An epoch has the sum of min(e_m, size_limit)
    examples.
    """

    name: str
    tasks: Mapping[str, MixtureTask]
    text: Mapping[str, MixtureText] = field(default_factory=dict[str, MixtureText])
    size_limit: int | None = None
    """Artificial size limit K of the paper: number of examples beyond which a larger part is not
    sampled more often. None: no limit."""
    sampling_exponent: float = 1.0
    """1 / T for the paper's temperature T. 1: proportional to examples; 0.5: T = 2; 0: equal."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if not self.tasks:
            raise ValueError("tasks must have one at least")
        if twice := sorted(set(self.tasks) & set(self.text)):
            raise ValueError(f"text.{twice[0]} has the name of a task")
        if not 0 <= self.sampling_exponent <= 1:
            raise ValueError(f"sampling_exponent must be from 0 to 1, got {self.sampling_exponent}")
        for name, task in self.tasks.items():
            if task.train is None and task.dev is None and task.test is None:
                raise ValueError(f"tasks.{name} must have train, or, to be held out, dev or test")
            if task.dev_share is not None and not 0 <= task.dev_share < 1:
                raise ValueError(
                    f"tasks.{name}.dev_share must be from 0 to below 1, got {task.dev_share}"
                )
        _check_size_limit("size_limit", self.size_limit)
        _check_components("tasks", self.tasks)
        _check_components("text", self.text)

    def with_tasks(self, origins: Mapping[str, str]) -> "TaskMixture":
        """Return the mixture of the tasks that were found in its files.

        Args:
            origins: for each task, the name of the table that it was read from.
        """
        return replace(self, tasks={name: self.tasks[table] for name, table in origins.items()})

    @property
    def component_names(self) -> tuple[str, ...]:
        """Names of all parts, tasks first."""
        return (*self.tasks, *self.text)

    def sampled_names(self, component_of_example: Iterable[str]) -> tuple[str, ...]:
        """Names of the parts that have examples: not of held-out tasks."""
        present = set(component_of_example)
        return tuple(name for name in self.component_names if name in present)

    def size_limit_of(self, name: str) -> int | None:
        """Return the size limit of a part."""
        part = self.tasks[name] if name in self.tasks else self.text[name]
        return self.size_limit if part.size_limit is None else part.size_limit

    def make_source_sampling(self, component_of_example: Sequence[str]) -> SourceSampling:
        """Return the number of examples of each part in an epoch.

        Args:
            component_of_example: the part of each example.
        """
        names = self.sampled_names(component_of_example)
        numbers = np.array([names.index(name) for name in component_of_example], np.int64)
        sizes = np.bincount(numbers, minlength=len(names)).tolist()
        counted = [
            min(n, self.size_limit_of(name) or n) for name, n in zip(names, sizes, strict=True)
        ]
        shares = smoothed_shares(counted, self.sampling_exponent)
        return SourceSampling(
            source_of_row=numbers,
            rows_per_epoch=tuple(max(1, round(s * sum(counted))) for s in shares),
        )


def _check_components(table_name: str, components: Mapping[str, MixtureTask | MixtureText]) -> None:
    """Refuse names that cannot be printed in a line, and unknown keys.

    Raises:
        ValueError: a name or key is invalid.
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


def path_in_mixture(mixture_path: str, path: str) -> str:
    """Resolve the path of a file, or of two, relative to the folder of the mixture."""
    folder = Path(mixture_path).parent
    if path.startswith("hf:"):
        return path
    first, plus, second = path.partition("+")
    if plus and "/" in second and not (folder / path).exists():
        return f"{folder / first}+{folder / second}"
    return str(folder / path)


def is_mixture(path: str) -> bool:
    """Return whether the name of a training file is that of a mixture (.toml)."""
    return path.lower().endswith(".toml")


def read_mixture(path: str | Path) -> TaskMixture:
    """Read a mixture.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or a key or value is invalid.
    """
    return read_dataclass(TaskMixture, Path(path))
