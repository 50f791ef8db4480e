"""HideOptions: the options of `hide`, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from unmask.options import JobOptions, flag


@dataclass(frozen=True)
class HideOptions(JobOptions):
    """The text to corrupt, the model and its objective."""

    model: str | Path = field(metadata=flag(metavar="MODEL", is_argument=True))
    """Model: a catalogue name (see `unmask models`) or a model folder."""
    text: str = field(metadata=flag(metavar="TEXT", is_argument=True))
    """Text to corrupt, paragraphs separated by newlines; of a model that reads pictures, the name
    of a picture."""
    _: KW_ONLY
    objective: str | None = field(
        default=None, metadata=flag(metavar="NAME", shown_default="that of the model")
    )
    """Pretraining objective, e.g. mlm, clm, rtd, mlm:rate=0.3+nsp (docs/objectives.md)."""
    language: str | None = field(default=None, metadata=flag(metavar="NAME", shown_default="none"))
    """Language of the text, for models that are told it (XLM, mBART): en; of a text and its
    translation, each a line, both: de+en."""
    tokenizer: str | Path | None = field(default=None, metadata=flag(metavar="FOLDER"))
    """Folder of a tokenizer or a run for a model that has no tokenizer; unmask-mini-en: that of the
    bundled model."""
    seed: int = 0
    """Random seed for target selection and corruption."""
    changes: Sequence[str] = field(default=(), metadata=flag("--set", metavar="KEY=VALUE"))
    """Setting of the objective to change, e.g. select.rate=0.3; keys that an outer objective, such
    as a sentence pair, lacks are those of the inner one."""
