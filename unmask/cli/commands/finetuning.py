"""`finetune`: a model on a labeled task, or on each of a suite; `augment`: its table."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.finetuning.options.finetune import FinetuneOptions, FinetuneSuiteOptions
from unmask.jobs.options.augment import AugmentOptions
from unmask.jobs.options.shell.finetune import AdaptationOptions, SuiteOptions
from unmask.jobs.options.shell.from_dataclass import (
    command,
    default_values,
    long_flag,
    refuse_options,
)
from unmask.jobs.options.shell.shared_options import JsonOption
from unmask.options import QuietOptions
from unmask.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from unmask.finetuning.methods.adapt_first import TaskAdaptivePretraining
    from unmask.finetuning.results.finetuned_model import FinetunedModel
    from unmask.finetuning.suite import SuiteResult

_OPTIONAL = {"base": None, "task": None, "train": None, "out": "runs/finetuned"}
_OF_RESUMING = {"base", "out", "resume", "device"}


@command(
    FinetuneOptions, SuiteOptions, AdaptationOptions, QuietOptions, JsonOption, defaults=_OPTIONAL
)
def finetune(
    options: Mapping[str, Any],
    suite: SuiteOptions,
    adaptation: AdaptationOptions,
    progress: QuietOptions,
    output: JsonOption,
) -> None:
    """Fine-tune a model on labeled data.

    Missing settings are derived from the data and the model, and printed. Ctrl-C keeps finished
    work; --out FOLDER --resume alone continues a stopped or killed run to the same result.
    """
    out, terminal = Path(options["out"]), None if progress.quiet else sys.stderr
    try:
        if options["resume"] and options["task"] is options["train"] is suite.tasks is None:
            _check_resume_options(options, adaptation)
            _resume(options, terminal, output.as_json)
        elif options["base"] is None:
            raise ValueError("MODEL is missing; see unmask finetune --help")
        elif suite.tasks is not None:
            suite_run = _finetune_suite(suite.tasks, options, suite, adaptation, terminal)
            _print_suite(suite_run, out, output.as_json)
        else:
            finetuned = _finetune(options, suite, adaptation, terminal)
            _print_finetuned(finetuned, out, output.as_json)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{out}: stopped; continue with --resume") from None


def _finetune(
    options: Mapping[str, Any], suite: SuiteOptions, adaptation: AdaptationOptions, terminal: Any
) -> FinetunedModel:
    """Fine-tune on one task."""
    import unmask

    for name in ("task", "train"):
        if options[name] is None:
            raise ValueError(f"--{name} must be given, or a suite of benchmarks by --tasks")
    if suite.data is not None:
        raise ValueError("--data is the folder of the files of --tasks; labeled data is --train")
    keywords = dict(options)
    keywords["adapt_first"] = _read_adaptation(options["adapt_first"], adaptation)
    return unmask.finetune(keywords.pop("base"), **keywords, terminal=terminal)


def _finetune_suite(
    tasks: str,
    options: Mapping[str, Any],
    suite: SuiteOptions,
    adaptation: AdaptationOptions,
    terminal: Any,
) -> SuiteResult:
    """Fine-tune on each benchmark of a suite."""
    import unmask

    task_options = {f.name for f in fields(FinetuneSuiteOptions)}
    of_a_task = {name: value for name, value in options.items() if name not in task_options}
    of_a_task |= vars(adaptation)
    defaults = default_values(FinetuneOptions, AdaptationOptions) | _OPTIONAL
    for name, value in of_a_task.items():
        if value != defaults[name]:
            flags = _flags()
            raise ValueError(
                f"--tasks defines the task, its data and columns; leave out {flags[name]}"
            )
    shared = {name: value for name, value in options.items() if name in task_options}
    return unmask.finetune_suite(
        shared.pop("base"), **shared, tasks=tasks, data=suite.data, terminal=terminal
    )


def _flags() -> dict[str, str]:
    every = (*fields(FinetuneOptions), *fields(AdaptationOptions))
    return {one.name: long_flag(one) for one in every}


def _read_adaptation(
    is_wanted: bool, adaptation: AdaptationOptions
) -> bool | TaskAdaptivePretraining:
    """Read the settings of task-adaptive pretraining."""
    if not is_wanted:
        refuse_options(AdaptationOptions, "", " needs --adapt-first", **vars(adaptation))
        return False
    from unmask.config import from_dict, parse_change
    from unmask.finetuning.methods.adapt_first import TaskAdaptivePretraining

    settings: dict[str, Any] = {"unlabeled": list(adaptation.unlabeled), "changes": []}
    own_fields = {one.name for one in fields(TaskAdaptivePretraining)} - settings.keys()
    for change in adaptation.adapt_set:
        if change.partition("=")[0].strip() in own_fields:
            settings |= parse_change(change)
        else:
            settings["changes"].append(change)
    return from_dict(TaskAdaptivePretraining, settings, "--adapt-set")


def _check_resume_options(options: Mapping[str, Any], adaptation: AdaptationOptions) -> None:
    """Reject options that are saved in the resumed run."""
    defaults = default_values(FinetuneOptions, AdaptationOptions) | _OPTIONAL
    for name, value in {**options, **vars(adaptation)}.items():
        if name not in _OF_RESUMING and value != defaults[name]:
            raise ValueError(
                "--resume without --task uses the options saved in the run; leave out "
                f"{_flags()[name]}, or give all options again"
            )


def _resume(options: Mapping[str, Any], terminal: Any, as_json: bool) -> None:
    """Resume a fine-tuning run, or a suite of them, and print the result."""
    from unmask.finetuning.suite import SUITE_FILE, resume_suite
    from unmask.jobs.finetune import resume_finetuning

    out, base, device = Path(options["out"]), options["base"], options["device"]
    if (out / SUITE_FILE).is_file():
        _print_suite(resume_suite(out, base, device=device, terminal=terminal), out, as_json)
    else:
        finetuned = resume_finetuning(out, base, device=device, terminal=terminal)
        _print_finetuned(finetuned, out, as_json)


def _print_finetuned(result: FinetunedModel, out: Path, as_json: bool) -> None:
    """Write the report of a finished run, and print its scores."""
    import unmask
    from unmask.training.best_effort import best_effort

    with best_effort("report.html"):
        unmask.write_report(out)
    if as_json:
        runs = [
            {"arm": s.arm, "seed": s.seed, "dev": dict(s.dev), "test": dict(s.test)}
            for s in result.run_results
        ]
        print_json({"folder": str(out), "metric": result.task.metric, "runs": runs})
        return
    for line in result.summary():
        print_line(line)
    print_line(f"{out}: done; report in {out / 'report.html'}")


def _print_suite(suite_run: SuiteResult, out: Path, as_json: bool) -> None:
    """Write the report of each run of a finished suite, and print the table."""
    import unmask
    from unmask.files import read_json
    from unmask.finetuning.suite import AVERAGE_NOTE
    from unmask.training.best_effort import best_effort

    for entry in suite_run.benchmarks:
        if not entry.error:
            with best_effort(f"{entry.folder}/report.html"):
                unmask.write_report(out / entry.folder)
    if as_json:
        print_json(read_json(out / "suite.json"))
        return
    names, rows = suite_run.table_rows()
    title = f"{suite_run.suite}: {suite_run.base}, --tune {suite_run.tune}"
    print_table(title, names, rows[:-1], footer=rows[-1], n_left_aligned=2)
    for note in suite_run.notes:
        print_line(note)
    print_line(AVERAGE_NOTE)
    print_line(f"{out}: done")


@command(AugmentOptions, QuietOptions, JsonOption)
def augment(given: Mapping[str, Any], progress: QuietOptions, output: JsonOption) -> None:
    """Make a new training table: a teacher's outputs as targets, or words replaced.

    finetune takes the new table as any other; give --dev, too, since by default a tenth of --train
    is held out.
    """
    import unmask

    terminal = None if progress.quiet else sys.stderr
    result = unmask.augment(**given, terminal=terminal)
    if output.as_json:
        print_json(vars(result))
        return
    print_line(f"{result.path}: {result.rows_written:,} rows, of {result.rows_read:,}")
