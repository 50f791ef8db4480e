"""Fine-tuning in one call, optionally after task-adaptive pretraining."""

import sys
from dataclasses import replace
from pathlib import Path

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import from_dict
from unmask.finetuning.config import FinetuneConfig, make_config
from unmask.finetuning.initial_model.reopened import name_or_open_model
from unmask.finetuning.job.record import check_same_config, read_run_record
from unmask.finetuning.methods.method import parse_method
from unmask.finetuning.options.finetune import FinetuneOptions
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.finetuning.results.predict import RUN_FILE
from unmask.finetuning.run import run_finetuning
from unmask.finetuning.search import TRIALS_FILE
from unmask.jobs.adapt_to_task import adapt_to_task_text, check_adaptation
from unmask.options import takes_options
from unmask.output import OutputStream


@takes_options(FinetuneOptions)
def finetune(options: FinetuneOptions) -> FinetunedModel:
    """Fine-tune a model on labeled data. Missing options are derived.

    The fields of `FinetuneOptions` are its keywords.

    Raises:
        FileNotFoundError: a file or model is missing.
        ValueError: a file, a column or an option is invalid, or `out` has a run already.
        KeyboardInterrupt: the run was stopped; if it has a folder, it can be resumed.
    """
    base, loaded_model = name_or_open_model(
        options.base, parse_method(options.tune), is_saved=options.out is not None
    )
    return _run_finetuning(
        make_config(options, base),
        loaded_model=loaded_model,
        output_folder=None if options.out is None else Path(options.out),
        resume=options.resume,
        device=options.device,
        terminal=options.terminal,
    )


def resume_finetuning(
    run_folder: Path,
    base: str | None = None,
    *,
    device: str = "auto",
    terminal: OutputStream | None = sys.stderr,
) -> FinetunedModel:
    """Resume the run in a folder with its recorded settings.

    Args:
        run_folder: the run's folder.
        base: its initial model; optional.
        device: "auto", "cpu", "cuda", ...
        terminal: stream for progress. None: not shown.

    Raises:
        FileNotFoundError: a file or model is missing.
        ValueError: there is no run, or its data have changed.
    """
    if (run_folder / TRIALS_FILE).is_file() and not (run_folder / RUN_FILE).is_file():
        raise ValueError(
            f"{run_folder}: its search is unfinished; resume it with all of its options"
        )
    facts = read_run_record(run_folder)
    if facts.get("opened"):
        raise ValueError(f"{run_folder}: its initial model was in memory; give it again, in Python")
    tuning = from_dict(FinetuneConfig, facts["recipe"], f"{run_folder / RUN_FILE}: recipe")
    if base is not None:
        check_same_config(run_folder, facts["recipe"], replace(tuning, base=base))
    return _run_finetuning(
        tuning, output_folder=run_folder, resume=True, device=device, terminal=terminal
    )


def _run_finetuning(
    config: FinetuneConfig,
    *,
    loaded_model: LoadedModel | None = None,
    output_folder: Path | None,
    resume: bool,
    device: str,
    terminal: OutputStream | None,
) -> FinetunedModel:
    if config.adapt_first is not None:
        check_adaptation(config, model_given=loaded_model is not None)
    return run_finetuning(
        config,
        loaded_model=loaded_model,
        output_folder=output_folder,
        resume=resume,
        device=device,
        adapt=adapt_to_task_text,
        terminal=terminal,
    )
