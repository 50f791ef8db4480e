"""Study: the compared pretraining variants, their budget and tasks."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from unmask.config import to_dict
from unmask.finetuning.methods.method import parse_method
from unmask.objectives.published import ObjectiveSpec
from unmask.tasks.suites.bundled import SUITES
from unmask.word_vectors.train.trainer import WordVectorMethod
from unmask.zoo.catalogue import get_preset

FOLDER_NAME = re.compile(r"\w[\w.+-]{,99}")
"""Form of the name of a cell, which is also that of its folder."""


@dataclass(frozen=True, kw_only=True)
class StudyCell:
    """One variant: a model and its changes."""

    name: str
    """Name, also of its folder."""
    model: str
    """Name of a preset."""
    objective: ObjectiveSpec | str | None = None
    """Objective as for `unmask pretrain --objective`, or a table. None: that of the preset."""
    changes: tuple[str, ...] = ()
    """`key=value` of its recipe, as for `unmask pretrain --set`."""
    init_from: str = ""
    """Earlier cell that provides the initial weights. Empty: from scratch."""
    text: tuple[str, ...] = ()
    """Files in the folder of the tasks that replace the study's text."""
    token_factor: float = 1.0
    """Factor of the study's token budget. Above 1 if rows have more tokens for the same text:
    source and target, of which two stacks count the longer. 0: the weights of the initial cell, or
    random ones drawn for each fine-tuning seed. Word vectors are trained on the whole text for the
    epochs of their recipe: 1, or 0."""
    tune: str = "full"
    """Tuning method, as for `unmask finetune --tune`."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if not FOLDER_NAME.fullmatch(self.name):
            raise ValueError(
                f"name must be valid for a folder, like 'span-3', got {self.name!r:.120}"
            )
        if not 0 <= self.token_factor < math.inf:
            raise ValueError(f"token_factor must be at least 0, got {self.token_factor}")
        if self.has_word_vectors and self.token_factor not in (0, 1):
            raise ValueError(
                f"token_factor of {self.model} must be 0 or 1, got {self.token_factor}: word "
                "vectors are trained on the whole text for objective.epochs"
            )
        parse_method(self.tune)

    @property
    def has_word_vectors(self) -> bool:
        """Whether the model is word vectors, which are trained on the whole text."""
        return isinstance(get_preset(self.model).objective, WordVectorMethod)

    @property
    def has_trained_weights(self) -> bool:
        """Whether it has trained weights."""
        return bool(self.token_factor or self.init_from)


@dataclass(frozen=True, kw_only=True)
class PretrainedCells:
    """Pretraining variants with the same budget and text: what studies of them have in common."""

    name: str
    question: str
    """Research question, one line."""
    cells: tuple[StudyCell, ...]
    tokens: int
    """Pretraining tokens of each cell, padding included; see `StudyCell.token_factor`."""
    changes: tuple[str, ...] = ()
    """Changes of the recipes of all cells, applied before their own."""
    paper: str = ""
    """Paper and table that this reproduces at small scale."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        names = [cell.name for cell in self.cells]
        if not names:
            raise ValueError("cells must not be empty")
        folders = [name.casefold() for name in names]  # some file systems ignore case
        for i, name in enumerate(names):
            if folders[i] in folders[:i]:
                raise ValueError(f"cells has two {name!r}")
        if self.tokens < 1:
            raise ValueError(f"tokens must be at least 1, got {self.tokens}")
        for i, cell in enumerate(self.cells):
            if cell.init_from and cell.init_from not in names[:i]:
                before = ", ".join(names[:i]) or "none"
                raise ValueError(
                    f"cell {cell.name}: init_from must be a cell before it ({before}), got "
                    f"{cell.init_from!r}"
                )

    def recipe_changes(self, cell: StudyCell) -> list[str | Mapping[str, Any]]:
        """Return all changes of a cell's recipe from its preset's."""
        own = [] if cell.objective is None else [{"objective": to_dict(cell.objective)}]
        return [*self.changes, *own, *cell.changes]

    def token_budget(self, cell: StudyCell) -> int:
        """Return the token budget of a cell; for one without pretraining, that of its text."""
        return max(1, math.ceil(self.tokens * cell.token_factor))

    def select_cells(self, cell_names: Sequence[str]) -> list[StudyCell]:
        """Return cells by name; all, if no names are given.

        Raises:
            ValueError: a name is unknown.
        """
        return select_cells(self.name, self.cells, cell_names)


@dataclass(frozen=True, kw_only=True)
class Study(PretrainedCells):
    """Pretraining variants with the same budget and text, fine-tuned on the same tasks."""

    tasks: str
    """Suite of tasks: a name of `unmask.tasks.suites.bundled.SUITES`, or a .toml file."""
    rows: int | None = 1000
    """Training rows per task. None: all, or the task's own number."""
    epochs: float | None = 5.0
    """Fine-tuning epochs. None: chosen by size, as in `unmask finetune`."""
    seeds: int = 3
    """Fine-tuning seeds; each cell is pretrained once."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        super().__post_init__()
        for key, number in {"rows": self.rows, "seeds": self.seeds}.items():
            if number is not None and number < 1:
                raise ValueError(f"{key} must be at least 1, got {number}")
        if self.epochs is not None and not 0 < self.epochs < math.inf:
            raise ValueError(f"epochs must be above 0, got {self.epochs:g}")
        if self.tasks not in SUITES and not self.tasks.endswith(".toml"):
            raise ValueError(
                f"tasks must be a .toml file or one of {', '.join(SUITES)}, got {self.tasks!r}"
            )


@runtime_checkable
class NamedCell(Protocol):
    """One variant of a study."""

    @property
    def name(self) -> str:
        """Name, also of its folder."""
        ...


CellT = TypeVar("CellT", bound=NamedCell)


def select_cells(study_name: str, cells: Sequence[CellT], cell_names: Sequence[str]) -> list[CellT]:
    """Return cells by name; all, if no names are given.

    One with `kind = "LotteryStudy"` is a study of lottery tickets.

    Raises:
        ValueError: a name is unknown.
    """
    names = [cell.name for cell in cells]
    for name in cell_names:
        if name not in names:
            raise ValueError(f"{study_name} has no cell {name!r} (it has {', '.join(names)})")
    return [cell for cell in cells if not cell_names or cell.name in cell_names]
