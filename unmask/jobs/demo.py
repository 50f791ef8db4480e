"""The demo on the bundled text: pretrain a small BERT, then fine-tune it with few labels."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unmask.bundled.demo import bundled_path, demo_recipe_path
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.inference.export import is_finished_run
from unmask.jobs.finetune import finetune
from unmask.jobs.options.demo import DemoOptions
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.options import takes_options
from unmask.output import print_line
from unmask.reports.page import write_report
from unmask.reports.report_data import (
    BlankPredictions,
    Fill,
    ReportData,
    read_report_data,
    save_results,
)
from unmask.training import config as recipes
from unmask.training.best_effort import best_effort
from unmask.training.device.stopwatch import Stopwatch
from unmask.training.interrupt import interrupt_on_signal

BUNDLED_MODEL = "unmask-mini-en"
_N_SHOWN_SENTENCES = 3
"""Sentences shown on the terminal."""


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """Results of the demo."""

    folder: Path
    masked_accuracy: float
    """Accuracy of the pretrained model on masked tokens of held-out chapters."""
    bigram_accuracy: float
    """Accuracy of a bigram table given the true previous word."""
    finetuned: FinetunedModel
    bundled_finetuned: FinetunedModel
    """The same task, from the bundled model."""
    seconds: float


@takes_options(DemoOptions)
@interrupt_on_signal()
def demo(options: DemoOptions) -> DemoResult:
    """Pretrain, fill blanks, fine-tune against random initialization, write a report.

    After an interruption, the same call continues.

    The fields of `DemoOptions` are its keywords.

    Raises:
        ValueError: a number is invalid, or the folder has other content.
        KeyboardInterrupt: the job was stopped.
    """
    out, minutes, seeds = Path(options.out), options.minutes, options.seeds
    if not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be above 0, got {minutes}")
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    watch = Stopwatch()
    say = _print_nothing if options.quiet else _print_line
    say("1. Pretraining a small BERT on four novels: it predicts masked words")
    try:
        record = _pretrain_once(out, minutes, options.quiet)
        accuracy = record.evaluation_log.last("masked_accuracy") or 0.0
        bigram = record.baselines.get("masked_accuracy", {}).get("bigram", math.nan)
        say(f"   accuracy on masked words of held-out chapters: {accuracy:.1%}")
        say(f"   (a bigram table given the true previous word: {bigram:.1%})")
        _print_samples(record, say)
        say(f"2. Fine-tuning {seeds} times from these weights, and {seeds} times from random ones:")
        say("   is a sentence spoken or told?")
        tuned = _finetune_once(out, seeds)
        for line in tuned.summary():
            say(f"   {line}")
        say(
            f"   and from {BUNDLED_MODEL}, the bundled model, pretrained on more text (without "
            "labels,"
        )
        say("   including some of the test novels):")
        bundled = _finetune_bundled(out, seeds)
        say(f"   {bundled.summary()[0]}")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{out}: stopped; the same command continues") from None
    with best_effort("report.html"):
        say(f"3. The report: {write_report(out)}")
    return DemoResult(
        folder=out,
        masked_accuracy=accuracy,
        bigram_accuracy=bigram,
        finetuned=tuned,
        bundled_finetuned=bundled,
        seconds=watch.seconds,
    )


def _pretrain_once(output_folder: Path, minutes: int | float, quiet: bool) -> ReportData:
    """Pretrain, unless an earlier call did."""
    if not is_finished_run(output_folder):
        recipe = recipes.read_recipe(demo_recipe_path(), base=preset_recipe)
        data = bundled_path("novels")
        pretrain(
            recipe,
            data=data,
            out=output_folder,
            minutes=minutes,
            resume=output_folder.is_dir(),
            quiet=quiet,
        )
    return read_report_data(output_folder)


def _finetune_once(output_folder: Path, seeds: int) -> FinetunedModel:
    """Fine-tune, unless an earlier call did; save the comparison for the report."""
    tuned = _finetune(output_folder, output_folder / "spoken", seeds, baseline=True)
    comparison = read_report_data(output_folder / "spoken").results
    if comparison is not None:
        save_results(output_folder, comparison)
    return tuned


def _finetune_bundled(output_folder: Path, seeds: int) -> FinetunedModel:
    """Fine-tune the bundled model, too, and add it to the report."""
    tuned = _finetune(BUNDLED_MODEL, output_folder / "spoken-boxed", seeds, baseline=False)
    comparison, pretrained = (
        read_report_data(output_folder).results,
        read_report_data(output_folder / "spoken-boxed").results,
    )
    if comparison is not None and pretrained is not None:
        arm = replace(pretrained.arms[0], name=BUNDLED_MODEL)
        results = tuple(a for a in comparison.arms if a.name != BUNDLED_MODEL)
        save_results(output_folder, replace(comparison, arms=(*results, arm)))
    return tuned


def _finetune(base: str | Path, folder: Path, seeds: int, *, baseline: bool) -> FinetunedModel:
    return finetune(
        base,
        task="classify",
        train=bundled_path("train"),
        dev=bundled_path("dev"),
        test=bundled_path("test"),
        text="sentence",
        label="label",
        out=folder,
        baseline=baseline,
        seeds=seeds,
        resume=folder.is_dir(),
        terminal=None,
    )


def _print_samples(record: ReportData, print_line: Callable[[str], None]) -> None:
    for sample in record.samples[:_N_SHOWN_SENTENCES]:
        if isinstance(sample, Fill):
            print_line(f"   {sample.text}")
            print_line(f"     it was  {', '.join(sample.answers)}")
            print_line(f"     before  {_format_predictions(sample.before)}")
            print_line(f"     after   {_format_predictions(sample.after)}")


def _format_predictions(predictions_by_blank: Sequence[BlankPredictions]) -> str:
    return "; ".join(
        ", ".join(f"{word} {p or 0:.0%}" for word, p in b[:3]) for b in predictions_by_blank
    )


def _print_line(text: str) -> None:
    print_line(text, sys.stderr)


def _print_nothing(text: str) -> None:
    """Print nothing."""
