"""The main job on the bundled text: pretrain a small BERT, which then helps with few labels."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unmask.channels import tell
from unmask.demo import bundled, recipe_file
from unmask.finetuning.tuned import Tuned
from unmask.serving.finetune import finetune
from unmask.serving.folders import read_facts
from unmask.serving.pretrain import card_recipe, pretrain
from unmask.serving.record import FACTS, Guesses, Record, read_record, save_results
from unmask.serving.report import Fill, write_report
from unmask.training import recipe as recipes
from unmask.training.aside import for_the_report
from unmask.training.stopping import interruptible

MINUTES = 4.0
SEEDS = 5
BOXED = "unmask-mini-en"
_SHOWN = 3
"""Sentences that are shown on the terminal."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo found."""

    folder: Path
    masked_accuracy: float
    """Of the pretrained model at the hidden places of held-out chapters."""
    bigram_accuracy: float
    """Of a table that is told the true word before each hidden one."""
    tuned: Tuned
    boxed: Tuned
    """The same task, from the model in the package."""
    seconds: float


@interruptible()
def demo(
    out: str | Path = "demo-run",
    *,
    minutes: int | float = MINUTES,
    seeds: int = SEEDS,
    quiet: bool = False,
) -> Demo:
    """Pretrain, fill blanks, fine-tune against random initialization, write a report.

    Interrupted, the same call goes on.

    Args:
        out: a folder; what is there of an earlier call is not made again.
        minutes: of pretraining.
        seeds: of fine-tuning, each from the pretrained weights and from random ones.
        quiet: show nothing on the terminal.

    Raises:
        ValueError: a number is not allowed, or the folder holds something else.
        KeyboardInterrupt: someone stopped it.
    """
    if not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be above 0, got {minutes}")
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    begin, out = time.monotonic(), Path(out)
    say = _silent if quiet else _say
    say("1. Pretraining a small BERT on four novels: it guesses hidden words")
    try:
        record = _pretrained(out, minutes, quiet)
        accuracy = record.evaluation.last("masked_accuracy") or 0.0
        bigram = record.baselines.get("masked_accuracy", {}).get("bigram", math.nan)
        say(f"   of the hidden words in held-out chapters it names {accuracy:.1%}")
        say(f"   (a table that is told the word before each: {bigram:.1%})")
        _show(record, say)
        say(f"2. Fine-tuning {seeds} times from these weights, and {seeds} times from random ones:")
        say("   is a sentence spoken or told?")
        tuned = _tuned(out, seeds)
        for line in tuned.summary():
            say(f"   {line}")
        say(f"   and from {BOXED}, which is in the package and has read more (without labels,")
        say("   some of the novels that this is tested on among it):")
        boxed = _boxed(out, seeds)
        say(f"   {boxed.summary()[0]}")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{out}: stopped; the same command goes on") from None
    with for_the_report("report.html"):
        say(f"3. The report: {write_report(out)}")
    return Demo(
        folder=out,
        masked_accuracy=accuracy,
        bigram_accuracy=bigram,
        tuned=tuned,
        boxed=boxed,
        seconds=time.monotonic() - begin,
    )


def _pretrained(out: Path, minutes: int | float, quiet: bool) -> Record:
    """Pretrain, unless that was done by an earlier call."""
    if not ((out / FACTS).is_file() and read_facts(out).get("finished")):
        recipe = recipes.read(recipe_file(), base=card_recipe)
        data = bundled("novels")
        pretrain(recipe, data=data, out=out, minutes=minutes, resume=out.is_dir(), quiet=quiet)
    return read_record(out)


def _tuned(out: Path, seeds: int) -> Tuned:
    """Fine-tune, unless that was done by an earlier call; keep the comparison for the report."""
    tuned = _finetuned(out, out / "spoken", seeds, baseline=True)
    comparison = read_record(out / "spoken").results
    if comparison is not None:
        save_results(out, comparison)
    return tuned


def _boxed(out: Path, seeds: int) -> Tuned:
    """Fine-tune the model in the package, too, and put it beside the others in the report."""
    tuned = _finetuned(BOXED, out / "spoken-boxed", seeds, baseline=False)
    comparison, own = read_record(out).results, read_record(out / "spoken-boxed").results
    if comparison is not None and own is not None:
        arm = replace(own.arms[0], name=BOXED)
        others = tuple(a for a in comparison.arms if a.name != BOXED)
        save_results(out, replace(comparison, arms=(*others, arm)))
    return tuned


def _finetuned(base: str | Path, folder: Path, seeds: int, *, baseline: bool) -> Tuned:
    return finetune(
        base,
        task="classify",
        train=bundled("train"),
        dev=bundled("dev"),
        test=bundled("test"),
        text="sentence",
        label="label",
        out=folder,
        baseline=baseline,
        seeds=seeds,
        resume=folder.is_dir(),
        terminal=None,
    )


def _show(record: Record, say: Callable[[str], None]) -> None:
    for sample in record.samples[:_SHOWN]:
        if isinstance(sample, Fill):
            say(f"   {sample.text}")
            say(f"     it was  {', '.join(sample.answers)}")
            say(f"     before  {_guesses(sample.before)}")
            say(f"     after   {_guesses(sample.after)}")


def _guesses(blanks: Sequence[Guesses]) -> str:
    return "; ".join(", ".join(f"{word} {p or 0:.0%}" for word, p in b[:3]) for b in blanks)


def _say(text: str) -> None:
    tell(text, sys.stderr)


def _silent(text: str) -> None:
    """Say nothing."""
