"""EvaluateTasksOptions: the options of `evaluate_tasks`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from unmask.options import TerminalOptions, flag

if TYPE_CHECKING:
    from unmask.inference.pipeline import Pipeline


@dataclass(frozen=True)
class EvaluateTasksOptions(TerminalOptions):
    """Tasks for evaluation by prompting, and settings of prompts."""

    model: str | Path | Pipeline
    """Model, as for `unmask.load`, loaded or not."""
    tasks: str | Sequence[str] = "zero-shot"
    """Names of tasks: lambada, blimp, ..., or .toml files; zero-shot: all whose files are
    present."""
    _: KW_ONLY
    data: str | Path | None = None
    """Folder with the files of the tasks. None: that of a task's own .toml file."""
    shots: int | Sequence[int] = 0
    """Number of in-context examples, or several numbers, each evaluated."""
    seed: int = 0
    """Random seed for in-context examples."""
    rows: int | None = field(default=None, metadata=flag(shown_default="all"))
    """Number of items of each task, evenly spaced in the file."""
    sequence_length: int | None = field(
        default=None, metadata=flag(shown_default="as in pretraining")
    )
    """Window length in tokens; longer prompts are truncated on the left."""
    stride: int | None = field(default=None, metadata=flag(shown_default="as many as fit"))
    """Number of tokens scored per window, for perplexity."""
    memory_length: int | None = field(
        default=None, metadata=flag(shown_default="as in pretraining")
    )
    """Length of the recurrent memory before each segment, in tokens, for perplexity; by default
    none with a stride."""
    pll_masking: Literal["word", "token"] = "word"
    """Tokens masked when a masked model scores a token (pseudo-log-likelihood): word (the token and
    the rest of its word to the right) or token (the token only)."""
