"""Fine-tuning on all of a suite: a run for each benchmark, and one table."""

import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import from_dict, to_dict
from unmask.files import remove_partial_files, write_atomically
from unmask.finetuning.config import RANDOM_INITIALIZATION, FinetuneConfig, make_config
from unmask.finetuning.initial_model.reopened import name_or_open_model
from unmask.finetuning.job.record import check_same_config
from unmask.finetuning.methods.method import method_name, parse_method
from unmask.finetuning.options.finetune import FinetuneSuiteOptions
from unmask.finetuning.results import report
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.finetuning.run import run_finetuning
from unmask.options import takes_options
from unmask.output import OutputStream, print_line
from unmask.output import escape_markdown as text_of
from unmask.output import markdown_table as table
from unmask.saved_format import FORMAT, read_saved
from unmask.tasks.metrics.metric import METRICS
from unmask.tasks.suites.benchmark import LocatedBenchmark, fetch_files
from unmask.tasks.suites.bundled import find_suite
from unmask.training.best_effort import best_effort
from unmask.training.interrupt import interrupt_on_signal

SUITE_FILE = "suite.json"
AVERAGE_NOTE = (
    "The average is the mean over the benchmarks of the customary metric of each, times 100, on "
    "dev."
)
_PERCENT_METRICS = frozenset({"bleu", "chrf"})


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """One benchmark: how good the model became, or why it has none."""

    name: str
    folder: str
    """Within the suite's."""
    task: str
    metric: str = ""
    dev: tuple[float, ...] = ()
    """One score for each seed."""
    test: tuple[float, ...] = ()
    baseline: tuple[float, ...] = ()
    """On dev, from random weights."""
    seconds: float = 0.0
    error: str = ""
    """What was wrong, in a line. Empty: nothing."""

    @property
    def is_averaged(self) -> bool:
        """Whether it has a score of which more is better, so that it can be a part of a mean."""
        return bool(self.dev) and METRICS[self.metric].higher_is_better


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    """What came out of a suite."""

    suite: str
    base: str
    tune: str
    benchmarks: tuple[BenchmarkResult, ...]
    notes: tuple[str, ...]
    """What a user should be told."""
    folder: Path

    @property
    def average_score(self) -> float | None:
        """The mean over benchmarks of the mean over seeds, of 100; None where none has a score."""
        scores = [
            np.mean(scale_to_100(one.metric, one.dev)) for one in self.benchmarks if one.is_averaged
        ]
        return float(np.mean(scores)) if scores else None

    def table_rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the table: the names of its columns, and its rows, the average last."""
        tested = any(one.test for one in self.benchmarks)
        compared = any(one.baseline for one in self.benchmarks)
        names = ["benchmark", "metric", "dev"]
        names += [f"dev, {RANDOM_INITIALIZATION}"] * compared + ["test"] * tested + ["seconds"]
        rows = [_row(one, with_baseline=compared, with_test=tested) for one in self.benchmarks]
        n = sum(one.is_averaged for one in self.benchmarks)
        average = "" if self.average_score is None else f"{self.average_score:.1f}"
        total = f"{sum(one.seconds for one in self.benchmarks):,.0f}"
        blank = [""] * (compared + tested)
        rows.append([f"average of {n}", "", average, *blank, total])
        return names, rows


@dataclass
class _SuiteProgress:
    """What of a suite is done so far; written anew after each benchmark."""

    folder: Path
    notes: tuple[str, ...]
    config: FinetuneConfig
    """Of each benchmark, but for what is its own; "train" names the suite."""
    from_loaded_model: bool
    """The model was given open."""
    data: Path | None
    include_test: bool = True
    results_by_name: dict[str, BenchmarkResult] = field(default_factory=dict[str, BenchmarkResult])

    def result(self) -> SuiteResult:
        return SuiteResult(
            suite=self.config.train, base=self.config.base, tune=method_name(self.config.tune),
            benchmarks=tuple(self.results_by_name.values()), notes=self.notes, folder=self.folder,
        )  # fmt: skip

    def write(self, *, finished: bool = False) -> SuiteResult:
        made = self.result()
        said = {
            "format": FORMAT,
            "kind": "suite",
            "finished": finished,
            "suite": made.suite,
            "base": made.base,
            "tune": made.tune,
            "recipe": to_dict(self.config),
            "opened": self.from_loaded_model,
            "tested": self.include_test,
            "data": None if self.data is None else str(self.data),
            "average": made.average_score,
            "entries": [_result_record(one) for one in made.benchmarks],
            "notes": list(made.notes),
        }
        write_atomically(self.folder / SUITE_FILE, report.to_json(said))
        with best_effort("README.md"):
            write_atomically(self.folder / "README.md", suite_markdown(made))
        return made


@takes_options(FinetuneSuiteOptions)
def finetune_suite(options: FinetuneSuiteOptions) -> SuiteResult:
    """Fine-tune a model on each benchmark of a suite, as `finetune` does on one.

    A benchmark that cannot be run is reported, and the others continue.

    The fields of `FinetuneSuiteOptions` are its keywords.

    Raises:
        FileNotFoundError: the suite's files are missing.
        ValueError: there is no such suite, no benchmark of it could be run, or `out` holds
            something else.
        KeyboardInterrupt: the suite was stopped; it can be resumed.
    """
    base, loaded_model = name_or_open_model(options.base, parse_method(options.tune), is_saved=True)
    return _SuiteRun(
        config=make_config(options, base),
        loaded_model=loaded_model,
        folder=Path(options.out),
        data=None if options.data is None else Path(options.data),
        include_test=options.include_test,
        device=options.device,
        terminal=options.terminal,
    ).run(resume=options.resume)


def resume_suite(
    run_folder: Path,
    base: str | None = None,
    *,
    device: str = "auto",
    terminal: OutputStream | None = sys.stderr,
) -> SuiteResult:
    """Continue with the suite in a folder as its own record says; see `resume_finetuning`."""
    said = _read_suite_record(run_folder)
    if "recipe" not in said:
        raise ValueError(
            f"{run_folder / SUITE_FILE}: does not say all of its options; give them again"
        )
    config = from_dict(FinetuneConfig, said["recipe"], f"{run_folder / SUITE_FILE}: recipe")
    if said.get("opened"):
        raise ValueError(f"{run_folder}: was given its model open; give it again, in Python")
    config = config if base is None else replace(config, base=base)
    data = None if said["data"] is None else Path(said["data"])
    return _SuiteRun(
        config=config,
        loaded_model=None,
        folder=run_folder,
        data=data,
        include_test=said.get("tested", True),
        device=device,
        terminal=terminal,
    ).run(resume=True)


@dataclass(frozen=True, kw_only=True)
class _SuiteRun:
    """A suite, about to be run or continued."""

    config: FinetuneConfig
    """What the benchmarks share; `train` names the suite."""
    loaded_model: LoadedModel | None
    folder: Path
    data: Path | None
    include_test: bool
    device: str
    terminal: OutputStream | None

    @interrupt_on_signal()
    def run(self, *, resume: bool) -> SuiteResult:
        """Run all benchmarks that are left, each as the config says but for what is its own."""
        suite, folder = self.config.train, self.folder
        entries, notes = find_suite(suite, self.data, include_test=self.include_test)
        folders = _folder_names(entries)
        _check_output_folder(folder, suite, resume)
        if resume and (folder / SUITE_FILE).is_file():
            saved = _read_suite_record(folder).get("recipe", to_dict(self.config))
            check_same_config(folder, saved, self.config)
        progress = _SuiteProgress(
            folder=folder,
            notes=tuple(notes),
            config=self.config,
            from_loaded_model=self.loaded_model is not None,
            data=self.data,
            include_test=self.include_test,
        )
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        with checkpoints.lock_run_folder(folder):
            remove_partial_files(folder)
            names = [entry.name for entry in entries]
            progress.results_by_name |= {
                one.name: one for one in _previous_results(folder) if one.name in names
            }
            progress.write()
            for note in notes:
                _print_progress(self.terminal, note)
            for n, (entry, name) in enumerate(zip(entries, folders, strict=True), 1):
                _print_progress(self.terminal, f"{entry.name}, {n} of {len(entries)}")
                _BenchmarkRun(
                    located_benchmark=entry,
                    config=self.config,
                    loaded_model=self.loaded_model,
                    folder=folder / name,
                    device=self.device,
                    terminal=self.terminal,
                ).run_into(progress)
            made = progress.write(finished=True)
        if not any(one.dev for one in made.benchmarks):
            if is_new and not any((folder / name).exists() for name in folders):
                shutil.rmtree(folder)
            raise ValueError(f"{suite}: no benchmark could be run; {made.benchmarks[0].error}")
        return made


@dataclass(frozen=True, kw_only=True)
class _BenchmarkRun:
    """One benchmark, about to be run."""

    located_benchmark: LocatedBenchmark
    config: FinetuneConfig
    loaded_model: LoadedModel | None
    folder: Path
    device: str
    terminal: OutputStream | None

    def run_into(self, progress: _SuiteProgress) -> None:
        """Run it, and keep what came out, also if someone stops it."""
        start = time.perf_counter()
        before = (
            progress.results_by_name[self.located_benchmark.name].seconds
            if self.located_benchmark.name in progress.results_by_name
            else 0.0
        )
        ran = BenchmarkResult(
            name=self.located_benchmark.name,
            folder=self.folder.name,
            task=self.located_benchmark.task,
        )
        done = (self.folder / "unmask.json").is_file() and _is_finished(self.folder)
        try:
            ran = self._with_scores(ran, self._run())
        except (ValueError, FileNotFoundError, ImportError, FloatingPointError) as error:
            ran = replace(ran, error=" ".join(str(error).split()))
            _print_progress(
                self.terminal, f"{self.located_benchmark.name} is left out: {ran.error}"
            )
        finally:
            now = 0.0 if done else time.perf_counter() - start
            progress.results_by_name[ran.name] = replace(ran, seconds=round(before + now, 1))
            progress.write()

    def _run(self) -> FinetunedModel:
        entry = fetch_files(self.located_benchmark)
        config = replace(
            self.config, task=entry.task, train=entry.train, dev=entry.dev, test=entry.test,
            text=entry.text, label=entry.label, choices=entry.choices, columns=entry.column_names,
            labels=entry.labels, metric=entry.metric, task_options=entry.options,
            rows=self.config.rows if entry.rows is None else entry.rows,
        )  # fmt: skip
        begun = self.folder.is_dir() and any(self.folder.iterdir())
        return run_finetuning(
            config,
            loaded_model=self.loaded_model,
            output_folder=self.folder,
            resume=begun,
            device=self.device,
            terminal=self.terminal,
        )

    def _with_scores(
        self, benchmark_result: BenchmarkResult, finetuned: FinetunedModel
    ) -> BenchmarkResult:
        metric, first = finetuned.task.metric, finetuned.run_results[0].arm
        own = [one for one in finetuned.run_results if one.arm == first]
        return replace(
            benchmark_result,
            metric=metric,
            dev=tuple(one.dev[metric] for one in own),
            test=tuple(one.test[metric] for one in own if one.test),
            baseline=tuple(one.dev[metric] for one in finetuned.run_results if one.arm != first),
        )


def scale_to_100(metric: str, scores: Sequence[float]) -> list[float]:
    """Return scores of 100; what is better the smaller it is stays as it is."""
    factor = 100.0 if METRICS[metric].higher_is_better and metric not in _PERCENT_METRICS else 1.0
    return [factor * one for one in scores]


def suite_markdown(suite_result: SuiteResult) -> str:
    """Write what came out as a page."""
    names, rows = suite_result.table_rows()
    lines = [
        "# " + text_of(f"{suite_result.suite}: {suite_result.base}, tune={suite_result.tune}"),
        "",
        *table(names, rows),
        "",
        f"Scores are of 100; ± is the standard deviation over seeds. {AVERAGE_NOTE}",
    ]
    lines += (
        ["", *(f"- {text_of(note)}" for note in suite_result.notes)] if suite_result.notes else []
    )
    return "\n".join(lines) + "\n"


def _row(benchmark_result: BenchmarkResult, *, with_baseline: bool, with_test: bool) -> list[str]:
    if benchmark_result.error:
        return [
            benchmark_result.name,
            "",
            "left out",
            *[""] * (with_baseline + with_test),
            f"{benchmark_result.seconds:,.0f}",
        ]
    cells = [
        benchmark_result.name,
        benchmark_result.metric.replace("_", " "),
        _format_mean(benchmark_result.metric, benchmark_result.dev),
    ]
    cells += (
        [_format_mean(benchmark_result.metric, benchmark_result.baseline)] if with_baseline else []
    )
    cells += [_format_mean(benchmark_result.metric, benchmark_result.test)] if with_test else []
    return [*cells, f"{benchmark_result.seconds:,.0f}"]


def _format_mean(metric: str, scores: Sequence[float]) -> str:
    if not scores:
        return ""
    values = scale_to_100(metric, scores)
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"


def _result_record(benchmark_result: BenchmarkResult) -> dict[str, Any]:
    return {name: value for name, value in to_dict(benchmark_result).items() if name != "kind"}


def _folder_names(benchmarks: Sequence[LocatedBenchmark]) -> list[str]:
    """Name a folder for each entry.

    Raises:
        ValueError: two would have the same.
    """
    names = [re.sub(r"[^\w.-]+", "-", one.name).strip("-.") for one in benchmarks]
    for name, entry in zip(names, benchmarks, strict=True):
        if not name or names.count(name) > 1:
            raise ValueError(f"benchmark {entry.name!r} has no folder name of its own: {name!r}")
    return names


def _check_output_folder(output_folder: Path, suite: str, resume: bool) -> None:
    if output_folder.exists() and not output_folder.is_dir():
        raise ValueError(f"{output_folder}: is a file; a suite needs a folder")
    there = output_folder.is_dir() and any(
        not p.name.startswith(".") for p in output_folder.iterdir()
    )
    if there and not (output_folder / SUITE_FILE).is_file():
        raise ValueError(f"{output_folder}: holds files, but not a suite; name a new folder")
    if there and not resume:
        raise ValueError(f"{output_folder}: holds a suite already; resume it, or name a new folder")
    if there and (old := _read_suite_record(output_folder).get("suite")) != suite:
        raise ValueError(f"{output_folder}: is a run of the suite {old!r}, not of {suite!r}")


def _read_suite_record(folder: Path) -> Mapping[str, Any]:
    path = folder / SUITE_FILE
    return read_saved(path)


def _previous_results(folder: Path) -> list[BenchmarkResult]:
    """Return what an earlier process did."""
    if not (folder / SUITE_FILE).is_file():
        return []
    entries = _read_suite_record(folder).get("entries", [])
    if not isinstance(entries, list):
        raise ValueError(f"{folder / SUITE_FILE}: entries must be a list, got {entries!r:.40}")
    return [from_dict(BenchmarkResult, one, f"{folder / SUITE_FILE}") for one in entries]


def _is_finished(folder: Path) -> bool:
    try:
        return bool(read_saved(folder / "unmask.json").get("finished"))
    except ValueError:  # the run itself says what is wrong
        return False


def _print_progress(terminal: OutputStream | None, text: str) -> None:
    if terminal is not None:
        print_line(text, terminal)
