"""CompressionStudy: the compared ways to make one model smaller, and the tasks that judge them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from unmask.compression.methods import PACKED_METHOD, parse_compression, split_methods
from unmask.compression.options import CompressionOptions, distillation, training_methods
from unmask.studies.study import FOLDER_NAME, select_cells
from unmask.tasks.suites.bundled import SUITES

_OWN_TEACHER = "teacher"


@dataclass(frozen=True, kw_only=True)
class CompressionCell:
    """One way: what is done before, while and after the model is fine-tuned on a task."""

    name: str
    """Name, also of its folder."""
    compress: tuple[str, ...] = ()
    """Methods applied to the base before anything else, as for `unmask compress --method`. Those
    that use calibration texts read the study's text."""
    initialize: Literal["pretrained", "random"] = "pretrained"
    """Weights after that: those of the base, or random ones in the same network."""
    token_factor: float = 0.0
    """Factor of the study's token budget for further pretraining. 0: none."""
    distill: tuple[str, ...] = ()
    """Terms of further pretraining with the base as the teacher, as for `--distill`. Empty: no
    teacher."""
    tune_compress: tuple[str, ...] = ()
    """Methods while fine-tuning, as for `unmask finetune --compress`."""
    tune_distill: tuple[str, ...] = ()
    """Terms of fine-tuning with the first cell's model of the same task and seed as the teacher.
    Empty: no teacher."""
    finish: tuple[str, ...] = ()
    """Methods applied to the fine-tuned model, calibrated on its training file."""
    onnx: Literal["", "float32", "int8"] = ""
    """Precision of an ONNX graph that is scored and timed in place of the model. Empty: none."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if not FOLDER_NAME.fullmatch(self.name):
            raise ValueError(
                f"name must be valid for a folder, like 'heads-50', got {self.name!r:.120}"
            )
        if not 0 <= self.token_factor < math.inf:
            raise ValueError(f"token_factor must be at least 0, got {self.token_factor}")
        if self.distill and not self.token_factor:
            raise ValueError("distill is of further pretraining: give token_factor")
        for methods in (self.compress, self.finish):
            parsed = [parse_compression(one) for one in methods if one != PACKED_METHOD]
            if parsed:
                split_methods(parsed)
        training_methods(CompressionOptions(compression=self.tune_compress))
        for terms in (self.distill, self.tune_distill):
            distillation(CompressionOptions(teacher=_OWN_TEACHER if terms else (), distill=terms))

    @property
    def before_tuning(self) -> "CompressionCell":
        """The part that gives the model to fine-tune, without a name of its own."""
        return replace(self.tuning, tune_compress=(), tune_distill=())

    @property
    def tuning(self) -> "CompressionCell":
        """The part up to the fine-tuned model, without a name of its own."""
        return replace(self, name="shared", finish=(), onnx="")


@dataclass(frozen=True, kw_only=True)
class CompressionStudy:
    """Ways to make a model smaller, judged on the same tasks beside the whole model."""

    name: str
    question: str
    """Research question, one line."""
    cells: tuple[CompressionCell, ...]
    """The ways. The first is the whole model, which is also the teacher on each task."""
    tasks: str
    """Suite of tasks, scored on their development files, or else their test files: a name of
    `unmask.tasks.suites.bundled.SUITES`, or a .toml file. Models are timed on texts of its first
    task of one text."""
    base: str = "unmask-mini-en"
    """Model that is made smaller: a run folder, a folder in the Hugging Face layout,
    `hf:owner/name`, or the bundled model."""
    recipe: str = "bert-mini"
    """Preset whose recipe further pretraining has."""
    changes: tuple[str, ...] = ()
    """Changes of that recipe, `key=value`."""
    tokens: int
    """Tokens of further pretraining, padding included; see `CompressionCell.token_factor`."""
    rows: int | None = 1000
    """Training rows per task. None: all, or the task's own number."""
    epochs: float | None = 3.0
    """Fine-tuning epochs. None: chosen by size, as in `unmask finetune`."""
    seeds: int = 3
    """Fine-tuning seeds."""
    paper: str = ""
    """Papers whose methods are compared."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        names = [cell.name.casefold() for cell in self.cells]
        if not names:
            raise ValueError("cells must not be empty")
        for i, name in enumerate(names):
            if name in names[:i]:
                raise ValueError(f"cells has two {self.cells[i].name!r}")
        if self.cells[0] != CompressionCell(name=self.cells[0].name):
            raise ValueError(
                f"cells: the first is the whole model that others are compared with; "
                f"{self.cells[0].name} changes it"
            )
        whole = {"tokens": self.tokens, "rows": self.rows, "seeds": self.seeds}
        for key, number in whole.items():
            if number is not None and number < 1:
                raise ValueError(f"{key} must be at least 1, got {number}")
        if self.epochs is not None and not 0 < self.epochs < math.inf:
            raise ValueError(f"epochs must be above 0, got {self.epochs:g}")
        if self.tasks not in SUITES and not self.tasks.endswith(".toml"):
            raise ValueError(
                f"tasks must be a .toml file or one of {', '.join(SUITES)}, got {self.tasks!r}"
            )

    @property
    def whole(self) -> CompressionCell:
        """The cell of the whole model."""
        return self.cells[0]

    def select_cells(self, cell_names: Sequence[str]) -> list[CompressionCell]:
        """Return cells by name; all, if no names are given.

        Raises:
            ValueError: a name is unknown.
        """
        return select_cells(self.name, self.cells, cell_names)

    def token_budget(self, cell: CompressionCell) -> int:
        """Return the tokens of a cell's further pretraining."""
        return math.ceil(self.tokens * cell.token_factor)
