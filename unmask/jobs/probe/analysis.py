"""What an analysis is to the job that runs it: inputs, and a report of several files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from unmask.analysis.probes.features import random_weights
from unmask.heads.model import Model
from unmask.inference.pipeline import Pipeline
from unmask.text.lines import EncodingErrors


@dataclass(frozen=True, kw_only=True)
class ProbeInputs:
    """A model and the data of an analysis, which reads from them what it needs."""

    pipeline: Pipeline
    model_name: str
    data: Path | None
    train: Path | None
    texts: tuple[str, ...]
    """Texts to show."""
    control: bool
    """Whether random weights are analyzed, too."""
    seed: int
    encoding_errors: EncodingErrors
    show: Callable[[str], None]
    """Shows progress."""

    def networks(self) -> dict[str, Model]:
        """Return the model as `trained` and, if it is wanted, the same untrained as `random`."""
        model = self.pipeline.model
        control = {"random": random_weights(model, self.seed)} if self.control else {}
        return {"trained": model} | control

    @property
    def written(self) -> str:
        """When the pages are written, for people: now."""
        return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"

    @property
    def required_data(self) -> Path:
        """The data, for an analysis that needs them.

        Raises:
            ValueError: none are given.
        """
        if self.data is None:
            raise ValueError("no data: name a file of what is analyzed (--data)")
        return self.data


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """What an analysis found, ready to be written."""

    findings: Any
    """The results, as a frozen dataclass."""
    json: Mapping[str, Any]
    markdown: str
    html: str
    table: tuple[list[str], list[list[str]]]
    """Column names and rows for a terminal."""
    sentences: tuple[str, ...]
    """What the table says, for a terminal."""
    figures: Mapping[str, str] = field(default_factory=dict[str, str])
    """Figures that stand alone, as SVG documents: NAME-FIGURE.svg."""


@runtime_checkable
class Analysis(Protocol):
    """The options of an analysis, a frozen dataclass, which runs it."""

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Analyze a model.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the data or the model are not of a kind that can be analyzed so.
        """
        ...
