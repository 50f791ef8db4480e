"""A study as a value: which ways to pretrain are compared, for how long, and on which tasks."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unmask.config import read_dataclass, to_dict
from unmask.finetuning.methods.method import parse_method
from unmask.objectives.published import ObjectiveSpec
from unmask.tasks.suites.bundled import SUITES
from unmask.word_vectors.train.trainer import WordVectorMethod
from unmask.zoo.catalogue import get_preset

_FOLDER_NAME = re.compile(r"\w[\w.+-]{,99}")


@dataclass(frozen=True, kw_only=True)
class StudyCell:
    """One of the ways: a model, and what it has otherwise."""

    name: str
    """Of its folder, too."""
    model: str
    """A card's name."""
    objective: ObjectiveSpec | str | None = None
    """By name, as `unmask pretrain --objective` takes it, or a table. None: the card's."""
    changes: tuple[str, ...] = ()
    """`key=value` of its recipe, as for `unmask pretrain --set`."""
    init_from: str = ""
    """The cell before it with whose weights it begins. Empty: from scratch."""
    text: tuple[str, ...] = ()
    """What it reads in place of the study's text: files in the folder of the tasks."""
    token_factor: float = 1.0
    """How many tokens it reads for each of the study's. Above 1 where a row holds more of them for
    as much text: source and target, of which two stacks count the longer. 0: it has the weights of
    the cell with which it begins; where there is none, they are drawn anew for each seed of
    tuning. Word vectors are learned of the whole text, as often as their recipe says: 1, or 0."""
    tune: str = "full"
    """How it is tuned, as for `unmask finetune --tune`."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if not _FOLDER_NAME.fullmatch(self.name):
            raise ValueError(f"name must do for a folder, like 'span-3', got {self.name!r:.120}")
        if not 0 <= self.token_factor < math.inf:
            raise ValueError(f"token_factor must be at least 0, got {self.token_factor}")
        if self.has_word_vectors and self.token_factor not in (0, 1):
            raise ValueError(
                f"token_factor of {self.model} must be 0 or 1, got {self.token_factor}: word "
                "vectors are learned of the whole text, as often as objective.epochs says"
            )
        parse_method(self.tune)

    @property
    def has_word_vectors(self) -> bool:
        """Whether word vectors are learned, which go over all of the text."""
        return isinstance(get_preset(self.model).objective, WordVectorMethod)

    @property
    def has_trained_weights(self) -> bool:
        """Whether it has weights to be tuned from."""
        return bool(self.token_factor or self.init_from)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Ways to pretrain, each for as many tokens of the same text, and tuned on the same tasks."""

    name: str
    question: str
    """What is to be found out, in a line."""
    cells: tuple[StudyCell, ...]
    tasks: str
    """A name of `unmask.tasks.suites.bundled.SUITES`, or a .toml file with a suite."""
    tokens: int
    """That each cell reads, padding included; see `StudyCell.token_factor`."""
    changes: tuple[str, ...] = ()
    """Of the recipes of all cells, before their own."""
    rows: int | None = 1000
    """Of each task that are learned from; None: all, or as many as the task itself says."""
    epochs: float | None = 5.0
    """None: few rows are learned for longer, as `unmask finetune` decides."""
    seeds: int = 3
    """Of tuning; each cell is pretrained once."""
    paper: str = ""
    """Whose table this is in small."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        names = [cell.name for cell in self.cells]
        if not names:
            raise ValueError("cells must have one at least")
        folders = [name.casefold() for name in names]  # some file systems take these for one
        for i, name in enumerate(names):
            if folders[i] in folders[:i]:
                raise ValueError(f"cells has two {name!r}")
        whole = {"tokens": self.tokens, "rows": self.rows, "seeds": self.seeds}
        for key, number in whole.items():
            if number is not None and number < 1:
                raise ValueError(f"{key} must be at least 1, got {number}")
        for i, cell in enumerate(self.cells):
            if cell.init_from and cell.init_from not in names[:i]:
                before = ", ".join(names[:i]) or "none"
                raise ValueError(
                    f"cell {cell.name}: init_from must be a cell before it ({before}), got "
                    f"{cell.init_from!r}"
                )
        if self.epochs is not None and not 0 < self.epochs < math.inf:
            raise ValueError(f"epochs must be above 0, got {self.epochs:g}")
        if self.tasks not in SUITES and not self.tasks.endswith(".toml"):
            raise ValueError(
                f"tasks must be a .toml file or one of {', '.join(SUITES)}, got {self.tasks!r}"
            )

    def recipe_changes(self, cell: StudyCell) -> list[str | Mapping[str, Any]]:
        """Return all that a cell's recipe has otherwise than its card's."""
        own = [] if cell.objective is None else [{"objective": to_dict(cell.objective)}]
        return [*self.changes, *own, *cell.changes]

    def token_budget(self, cell: StudyCell) -> int:
        """Return how many tokens a cell reads; of one that reads none, a step of which is made."""
        return max(1, math.ceil(self.tokens * cell.token_factor))

    def select_cells(self, cell_names: Sequence[str]) -> list[StudyCell]:
        """Return some of the cells; all, where none is named.

        Raises:
            ValueError: there is no such cell.
        """
        known = [cell.name for cell in self.cells]
        for name in cell_names:
            if name not in known:
                raise ValueError(f"{self.name} has no cell {name!r} (it has {', '.join(known)})")
        return [cell for cell in self.cells if not cell_names or cell.name in cell_names]


def read_study(path: Path) -> Study:
    """Read a study from a TOML file; its name is the file's if it does not say one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or a key or value is invalid.
    """
    study = read_dataclass(Study, path)
    if study.tasks.endswith(".toml"):
        return replace(study, tasks=str(path.parent / study.tasks))
    return study
