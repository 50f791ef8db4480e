"""The folder of a run: lock, record, clean-up, and the trained model."""

import errno
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.checkpoints.checksums import FILES_KEY, record_files
from unmask.checkpoints.folder import check_not_begun
from unmask.checkpoints.huggingface.read import LoadedModel, resolve_model_folder
from unmask.compression.methods import COMPRESSION_KEY, recorded_methods, training_records
from unmask.config import to_dict
from unmask.files import lock_run_folder, merge_folder
from unmask.inference.export import write_model, write_run_file
from unmask.jobs.pretrain.resolve_options import RunOptions
from unmask.reports.page import write_report
from unmask.reports.report_data import RUN_FILE
from unmask.training.best_effort import best_effort
from unmask.training.config import Recipe
from unmask.training.data.texts import SourceShare
from unmask.training.device.distributed import World
from unmask.zoo.preset import Published

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The record of a run, unmask.json."""

    options: RunOptions
    recipe: Recipe
    preset: Published
    environment: Mapping[str, Any]
    n_parameters: int = 0
    source_shares: Sequence[SourceShare] = ()
    source_epochs: Mapping[str, float] = field(default_factory=dict[str, float])
    """How often each source is read."""

    def write(
        self,
        *,
        with_steps: bool = True,
        file_records: Mapping[str, Any] | None = None,
        cost: Mapping[str, Any] | None = None,
    ) -> None:
        """Write unmask.json, with the number of steps if known.

        With the checksums of the model's files, the run is finished, and its cost known.
        """
        options = self.options
        recipe = to_dict(self.recipe) | ({} if with_steps else {"steps": None})
        minutes = options.minutes or (options.resumed_run.minutes if options.resumed_run else None)
        facts: dict[str, Any] = {
            "kind": "pretrain",
            "card": self.preset.name,
            "parameters": self.n_parameters,
            "recipe": recipe,
            "environment": self.environment,
            "finished": file_records is not None,
        }
        if records := self._compression_records():
            facts[COMPRESSION_KEY] = records
        if minutes is not None:
            facts["minutes"] = minutes
        if file_records is not None:
            facts[FILES_KEY] = file_records
        if cost is not None:
            facts["cost"] = cost
        if self.source_shares:
            facts["sources"] = {
                s.name: {
                    "tokens": s.n_tokens,
                    "share": s.token_share,
                    "gets": s.sampling_share,
                    "epochs": self.source_epochs[s.name],
                }
                for s in self.source_shares
            }
        write_run_file(options.output_folder, facts)

    def _compression_records(self) -> list[dict[str, Any]]:
        """Return what the initial weights were compressed by, and what this run does."""
        recipe = self.recipe
        own = training_records(recipe.compression, recipe.distillation)
        if recipe.init_from is None:
            return own
        return recorded_methods(resolve_model_folder(recipe.init_from)) + own


@contextmanager
def locked_run_folder(options: RunOptions, world: World) -> Generator[None]:
    """Make the run's folder, for all processes, and lock it against other runs."""
    if world.rank:
        world.broadcast_object(None)
        yield
        return
    new = [
        folder
        for folder in (options.output_folder, *options.output_folder.parents)
        if not folder.exists()
    ]
    options.output_folder.mkdir(parents=True, exist_ok=True)
    world.broadcast_object(None)
    try:
        with lock_run_folder(options.output_folder):
            if options.resumed_run is None:
                check_not_begun(options.output_folder, RUN_FILE)
            yield
    finally:
        for folder in new:  # still empty: nothing began
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def clean_up_failed_start(options: RunOptions) -> Generator[None]:
    """Empty the folder of a new run that fails to start, so that it can be reused.

    But not if the disk is full, or much was tokenized: the same run can then continue.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        data = options.output_folder / "data"
        keeps_shards = (data / "unfinished.json").is_file() and any(data.glob("*.tokens"))
        full = isinstance(error, OSError) and error.errno in _DISK_FULL_ERRORS
        if options.resumed_run is None and not (
            keeps_shards or (full and (options.output_folder / RUN_FILE).is_file())
        ):
            for path in options.output_folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
        raise


def write_report_if_possible(output_folder: Path) -> None:
    """Write the report; warn if that fails."""
    with best_effort("report.html"):
        write_report(output_folder)


def write_final_model(
    output_folder: Path, loaded_model: LoadedModel, card_entries: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a trained model to its run's folder atomically; return the records of its files."""
    beside = output_folder / ".final.part"
    if beside.exists():
        shutil.rmtree(beside)
    write_model(beside, loaded_model, card_entries)
    files = record_files(beside)
    merge_folder(beside, output_folder, last_name="config.json")
    return files
