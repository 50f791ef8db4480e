"""PreferenceResult: a model after preference optimization, and how it was before."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.adapters.folder import open_model_or_adapter
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.files import parse_json, read_json
from unmask.finetuning.results.predict import read_task
from unmask.preferences.config import PreferConfig
from unmask.preferences.methods import preference_method_name
from unmask.tasks.task import Task

MEASURES_FILE, RESPONSES_FILE = "measures.json", "responses.jsonl"


@dataclass(frozen=True, kw_only=True)
class PreferenceResult:
    """A model after preference optimization."""

    loaded_model: LoadedModel = field(repr=False)
    task: Task = field(repr=False)
    config: PreferConfig = field(repr=False)
    """The resolved configuration."""
    before: Mapping[str, float]
    """Measures on development data before the first step."""
    after: Mapping[str, float]
    """Measures after the last step."""
    responses: tuple[Mapping[str, Any], ...] = ()
    """For each development prompt that was answered: the prompt, the responses before and after,
    and how they were rated."""
    warnings: tuple[str, ...] = ()
    folder: Path

    def summary(self) -> list[str]:
        """Return a line for each measure: before and after."""
        name = preference_method_name(self.config.method)
        lines = [
            f"{measure.replace('_', ' ')} {self.before[measure]:.4g} -> {value:.4g}"
            if measure in self.before
            else f"{measure.replace('_', ' ')} {value:.4g}"
            for measure, value in self.after.items()
        ]
        return [f"{name}: {lines[0]}", *lines[1:]] if lines else [name]


def read_result(folder: Path, config: PreferConfig) -> PreferenceResult:
    """Read the result of a finished run from its folder."""
    task = read_task(folder)
    assert task is not None, "a run without its task"
    measures = read_json(folder / MEASURES_FILE)
    path = folder / RESPONSES_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return PreferenceResult(
        loaded_model=open_model_or_adapter(folder),
        task=task,
        config=config,
        before=measures["before"],
        after=measures["after"],
        responses=tuple(map(parse_json, lines)),
        folder=folder,
    )
