"""Fine-tuning on a suite of benchmarks: a run for each, and one table."""

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import from_dict, to_dict
from unmask.files import lock_run_folder, remove_partial_files, write_atomically
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
from unmask.training.device.stopwatch import Stopwatch
from unmask.training.interrupt import interrupt_on_signal

SUITE_FILE = "suite.json"
AVERAGE_NOTE = (
    "The average is the mean over the benchmarks of the customary metric of each, times 100, on "
    "dev."
)


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """The scores on one benchmark, or the error."""

    name: str
    folder: str
    """Folder name within the suite's folder."""
    task: str
    metric: str = ""
    dev: tuple[float, ...] = ()
    """Dev scores, one per seed."""
    test: tuple[float, ...] = ()
    baseline: tuple[float, ...] = ()
    """Dev scores from random weights."""
    seconds: float = 0.0
    error: str = ""
    """Error in one line. Empty: none."""

    @property
    def is_averaged(self) -> bool:
        """Whether it has a score for which higher is better, so that it counts in the average."""
        return bool(self.dev) and METRICS[self.metric].higher_is_better


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    """The results of a suite."""

    suite: str
    base: str
    tune: str
    benchmarks: tuple[BenchmarkResult, ...]
    notes: tuple[str, ...]
    """Notes and warnings for the user."""
    folder: Path

    @property
    def average_score(self) -> float | None:
        """Mean over benchmarks of the mean over seeds, on a scale of 100; None without scores."""
        scores = [
            np.mean(scale_to_100(benchmark.metric, benchmark.dev))
            for benchmark in self.benchmarks
            if benchmark.is_averaged
        ]
        return float(np.mean(scores)) if scores else None

    def table_rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the table: the names of its columns, and its rows, the average last."""
        tested = any(benchmark.test for benchmark in self.benchmarks)
        compared = any(benchmark.baseline for benchmark in self.benchmarks)
        names = ["benchmark", "metric", "held out"]
        names += [f"held out, {RANDOM_INITIALIZATION}"] * compared + ["test"] * tested + ["seconds"]
        rows = [
            _row(benchmark, with_baseline=compared, with_test=tested)
            for benchmark in self.benchmarks
        ]
        n = sum(benchmark.is_averaged for benchmark in self.benchmarks)
        average = "" if self.average_score is None else f"{self.average_score:.1f}"
        total = f"{sum(benchmark.seconds for benchmark in self.benchmarks):,.0f}"
        blank = [""] * (compared + tested)
        rows.append([f"average of {n}", "", average, *blank, total])
        return names, rows


@dataclass
class _SuiteProgress:
    """The results of a suite so far; rewritten after each benchmark."""

    folder: Path
    notes: tuple[str, ...]
    config: FinetuneConfig
    """Configuration shared by all benchmarks; "train" names the suite."""
    from_loaded_model: bool
    """Whether the model was given in memory."""
    data: Path | None
    include_test: bool = True
    results_by_name: dict[str, BenchmarkResult] = field(default_factory=dict[str, BenchmarkResult])

    def result(self) -> SuiteResult:
        return SuiteResult(
            suite=self.config.train, base=self.config.base, tune=method_name(self.config.tune),
            benchmarks=tuple(self.results_by_name.values()), notes=self.notes, folder=self.folder,
        )  # fmt: skip

    def write(self, *, finished: bool = False) -> SuiteResult:
        suite_result = self.result()
        record = {
            "format": FORMAT,
            "kind": "suite",
            "finished": finished,
            "suite": suite_result.suite,
            "base": suite_result.base,
            "tune": suite_result.tune,
            "recipe": to_dict(self.config),
            "opened": self.from_loaded_model,
            "tested": self.include_test,
            "data": None if self.data is None else str(self.data),
            "average": suite_result.average_score,
            "entries": [_result_record(benchmark) for benchmark in suite_result.benchmarks],
            "notes": list(suite_result.notes),
        }
        write_atomically(self.folder / SUITE_FILE, report.to_json(record))
        with best_effort("README.md"):
            write_atomically(self.folder / "README.md", suite_markdown(suite_result))
        return suite_result


@takes_options(FinetuneSuiteOptions)
def finetune_suite(options: FinetuneSuiteOptions) -> SuiteResult:
    """Fine-tune a model on each benchmark of a suite, as `finetune` does on one.

    A benchmark that cannot be run is reported, and the others continue.

    The fields of `FinetuneSuiteOptions` are its keywords.

    Raises:
        FileNotFoundError: the suite's files are missing.
        ValueError: there is no such suite, none of its benchmarks could be run, or `out` has other
            files.
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
    """Continue the suite in a folder, with the recorded options; see `resume_finetuning`."""
    record = _read_suite_record(run_folder)
    if "recipe" not in record:
        raise ValueError(
            f"{run_folder / SUITE_FILE}: does not say all of its options; give them again"
        )
    config = from_dict(FinetuneConfig, record["recipe"], f"{run_folder / SUITE_FILE}: recipe")
    if record.get("opened"):
        raise ValueError(f"{run_folder}: was given its model open; give it again, in Python")
    config = config if base is None else replace(config, base=base)
    data = None if record["data"] is None else Path(record["data"])
    return _SuiteRun(
        config=config,
        loaded_model=None,
        folder=run_folder,
        data=data,
        include_test=record.get("tested", True),
        device=device,
        terminal=terminal,
    ).run(resume=True)


@dataclass(frozen=True, kw_only=True)
class _SuiteRun:
    """A suite to run or to continue."""

    config: FinetuneConfig
    """Configuration shared by all benchmarks; `train` names the suite."""
    loaded_model: LoadedModel | None
    folder: Path
    data: Path | None
    include_test: bool
    device: str
    terminal: OutputStream | None

    @interrupt_on_signal()
    def run(self, *, resume: bool) -> SuiteResult:
        """Run all remaining benchmarks, each with the shared config and its own task."""
        suite, folder = self.config.train, self.folder
        entries, notes = find_suite(suite, self.data, include_test=self.include_test)
        folders = folder_names(entries)
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
        with lock_run_folder(folder):
            remove_partial_files(folder)
            names = [entry.name for entry in entries]
            progress.results_by_name |= {
                benchmark.name: benchmark
                for benchmark in _previous_results(folder)
                if benchmark.name in names
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
            suite_result = progress.write(finished=True)
        if not any(benchmark.dev for benchmark in suite_result.benchmarks):
            if is_new and not any((folder / name).exists() for name in folders):
                shutil.rmtree(folder)
            raise ValueError(
                f"{suite}: no benchmark could be run; {suite_result.benchmarks[0].error}"
            )
        return suite_result


@dataclass(frozen=True, kw_only=True)
class _BenchmarkRun:
    """One benchmark to run."""

    located_benchmark: LocatedBenchmark
    config: FinetuneConfig
    loaded_model: LoadedModel | None
    folder: Path
    device: str
    terminal: OutputStream | None

    def run_into(self, progress: _SuiteProgress) -> None:
        """Run the benchmark and record the result, also if it is interrupted."""
        watch = Stopwatch()
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
            now = 0.0 if done else watch.seconds
            progress.results_by_name[ran.name] = replace(ran, seconds=round(before + now, 1))
            progress.write()

    def _run(self) -> FinetunedModel:
        config = benchmark_config(self.config, self.located_benchmark)
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
        own = [run for run in finetuned.run_results if run.arm == first]
        return replace(
            benchmark_result,
            metric=metric,
            dev=tuple(run.dev[metric] for run in own),
            test=tuple(run.test[metric] for run in own if run.test),
            baseline=tuple(run.dev[metric] for run in finetuned.run_results if run.arm != first),
        )


def benchmark_config(config: FinetuneConfig, located_benchmark: LocatedBenchmark) -> FinetuneConfig:
    """Return a configuration with the task and the files of a benchmark, fetched if need be.

    Raises:
        FileNotFoundError: a file is missing, or the Hub does not answer.
    """
    entry = fetch_files(located_benchmark)
    return replace(
        config, task=entry.task, train=entry.train, dev=entry.dev, test=entry.test,
        text=entry.text, label=entry.label, choices=entry.choices, columns=entry.column_names,
        labels=entry.labels, metric=entry.metric, task_options=entry.options,
        rows=config.rows if entry.rows is None else entry.rows,
    )  # fmt: skip


def scale_to_100(metric: str, scores: Sequence[float]) -> list[float]:
    """Return scores on a scale of 100; metrics for which lower is better are unchanged."""
    one = METRICS[metric]
    factor = 100.0 if one.higher_is_better and not one.ranges_to_100 else 1.0
    return [factor * score for score in scores]


def suite_markdown(suite_result: SuiteResult) -> str:
    """Return the results as Markdown."""
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


def folder_names(benchmarks: Sequence[LocatedBenchmark]) -> list[str]:
    """Return a folder name for each benchmark.

    Raises:
        ValueError: two would have the same name.
    """
    names = [re.sub(r"[^\w.-]+", "-", benchmark.name).strip("-.") for benchmark in benchmarks]
    for name, entry in zip(names, benchmarks, strict=True):
        if not name or names.count(name) > 1:
            raise ValueError(f"benchmark {entry.name!r} has no folder name of its own: {name!r}")
    return names


def _check_output_folder(output_folder: Path, suite: str, resume: bool) -> None:
    if not checkpoints.has_run(output_folder, (SUITE_FILE,), "suite"):
        return
    checkpoints.check_resumed(output_folder, "suite", resume=resume)
    if (old := _read_suite_record(output_folder).get("suite")) != suite:
        raise ValueError(f"{output_folder}: is a run of the suite {old!r}, not of {suite!r}")


def _read_suite_record(folder: Path) -> Mapping[str, Any]:
    path = folder / SUITE_FILE
    return read_saved(path)


def _previous_results(folder: Path) -> list[BenchmarkResult]:
    """Return the results of an earlier process."""
    if not (folder / SUITE_FILE).is_file():
        return []
    entries = _read_suite_record(folder).get("entries", [])
    if not isinstance(entries, list):
        raise ValueError(f"{folder / SUITE_FILE}: entries must be a list, got {entries!r:.40}")
    return [from_dict(BenchmarkResult, entry, f"{folder / SUITE_FILE}") for entry in entries]


def _is_finished(folder: Path) -> bool:
    try:
        return bool(read_saved(folder / "unmask.json").get("finished"))
    except ValueError:  # the run itself reports the error
        return False


def _print_progress(terminal: OutputStream | None, text: str) -> None:
    if terminal is not None:
        print_line(text, terminal)
