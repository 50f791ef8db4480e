"""Running a study of compression: each way on each task and seed, scored and measured."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from unmask.checkpoints.huggingface.read import resolve_model_folder
from unmask.compression.methods import PACKED_METHOD, parse_compression, split_methods
from unmask.compression.options import CompressionOptions, distillation, training_methods
from unmask.files import lock_run_folder
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.run import run_finetuning
from unmask.finetuning.suite import BenchmarkResult, benchmark_config, folder_names
from unmask.inference.export import is_finished_run
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.jobs.compress import compress
from unmask.jobs.corpus.prepare import prepare
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.reports.report_data import RUN_FILE
from unmask.studies.compression.measure import measure_model, timed_texts
from unmask.studies.compression.page import (
    FRONT_FILE,
    draw_front,
    draw_scores,
    format_compression_page,
)
from unmask.studies.compression.result import CompressedResult, CompressionStudyResult
from unmask.studies.compression.study import CompressionCell, CompressionStudy
from unmask.studies.options import StudyOptions
from unmask.studies.page import PLOT_FILE
from unmask.studies.study_run import PRETRAINED_FOLDER, TUNED_FOLDER, StudyRun, run_fields
from unmask.tasks.suites.benchmark import LocatedBenchmark, fetch_files
from unmask.tasks.suites.bundled import find_suite

_COMPRESSED_FOLDER, _FINISHED_FOLDER = "compressed", "finished"
INITIAL_SEED = 0
"""Seed of random weights that are then pretrained."""


def run_compression_study(study: CompressionStudy, options: StudyOptions) -> CompressionStudyResult:
    """Run the cells that are wanted, after the whole model's, which is the teacher.

    Raises:
        FileNotFoundError: there is no such base, or none of the tasks' files.
        ValueError: a task has no file to be scored on, or none of one text is there to be timed.
    """
    now = study.select_cells(options.cells)
    fields = run_fields(study, options)
    located, _ = find_suite(study.tasks, fields["tasks_folder"])
    resolve_model_folder(study.base)
    folder_names(located)
    for one in located:
        if not _scored_file(one):
            raise ValueError(f"{study.tasks}: {one.name} has no other file to be scored on")
    if not any(one.task == "classify" for one in located):
        raise ValueError(f"{study.tasks}: has no task classify, on whose texts models are timed")
    run = _CompressionStudyRun(
        **fields, benchmarks=tuple(one.name for one in located), located=tuple(located)
    )
    first = [] if study.whole in now else [study.whole]
    return run.result(run.run([*first, *now], resume=options.resume))


@dataclass(frozen=True, kw_only=True)
class _CompressionStudyRun(StudyRun[CompressionCell, CompressedResult]):
    """A study of compression to run or resume."""

    study: CompressionStudy
    located: tuple[LocatedBenchmark, ...]

    @property
    def result_type(self) -> type[CompressedResult]:
        return CompressedResult

    def result(self, results: tuple[CompressedResult, ...]) -> CompressionStudyResult:
        return CompressionStudyResult(
            study=self.study, benchmarks=self.benchmarks, cell_results=results
        )

    def pages(self, results: tuple[CompressedResult, ...]) -> Mapping[str, Callable[[], str]]:
        result = self.result(results)
        return {
            PLOT_FILE: lambda: draw_scores(result),
            FRONT_FILE: lambda: draw_front(result),
            "README.md": lambda: format_compression_page(result),
        }

    def run_outcome(self, cell: CompressionCell, so_far: CompressedResult) -> CompressedResult:
        """Score a cell on each task and seed, and measure it; its errors do not stop others."""
        outcome = replace(so_far, error="")
        try:
            for benchmark in self._tasks_in_turn(cell):
                for seed in range(self.study.seeds):
                    outcome = self._score_once(cell, benchmark, seed, outcome)
                    self.save_result(outcome)
            return self._measure(cell, outcome)
        except (FloatingPointError, ValueError, ImportError) as error:
            message = " ".join(str(error).split())
            self.show(f"{cell.name} is left out: {message}")
            return replace(outcome, error=message)

    def _tasks_in_turn(self, cell: CompressionCell) -> tuple[LocatedBenchmark, ...]:
        """Return the tasks, each cell's beginning with another: processes share what cells share.

        Cells that differ in what is done to a fine-tuned model would wait for the same ones.
        """
        start = self.study.cells.index(cell) % len(self.located)
        return self.located[start:] + self.located[:start]

    def _score_once(
        self,
        cell: CompressionCell,
        benchmark: LocatedBenchmark,
        seed: int,
        so_far: CompressedResult,
    ) -> CompressedResult:
        """Return the result with the score of one task and seed, unless it has that."""
        name = f"{benchmark.name}, seed {seed}"
        old = next((one for one in so_far.scores if one.name == benchmark.name), None)
        if old is not None and len(old.dev) > seed:
            return so_far
        folder = self._final_model(cell, benchmark, seed)
        pipeline, metric = load(folder), old.metric if old else self._metric(benchmark, seed)
        score = pipeline.score(
            _scored_file(fetch_files(benchmark)),
            text=benchmark.text,
            label=benchmark.label,
            choices=benchmark.choices,
            columns=benchmark.column_names,
        )[metric]
        self.show(f"{cell.name}, {name}: {metric} {score:.4f}")
        before = old or BenchmarkResult(
            name=benchmark.name, folder=benchmark.name, task=benchmark.task, metric=metric
        )
        new = replace(before, dev=(*before.dev, score))
        others = tuple(one for one in so_far.scores if one.name != benchmark.name)
        return replace(so_far, scores=(*others, new))

    def _metric(self, benchmark: LocatedBenchmark, seed: int) -> str:
        """Return the metric of the fine-tuned model's task."""
        task = load(self._tuned_model(self.study.whole, benchmark, seed)).task
        assert task is not None
        return task.metric

    def _measure(self, cell: CompressionCell, outcome: CompressedResult) -> CompressedResult:
        """Return the result with what the model of the first task of one text needs."""
        benchmark = next(one for one in self.located if one.task == "classify")
        whole = self._final_model(self.study.whole, benchmark, 0)
        folder = self._final_model(cell, benchmark, 0)
        rows = load(whole).read_inputs(
            _scored_file(fetch_files(benchmark)),
            text=benchmark.text,
            columns=benchmark.column_names,
        )
        return replace(
            outcome,
            parameters=load(folder).model.parameter_count(),
            measurements=measure_model(folder, whole, timed_texts(rows)),
        )

    def _final_model(self, cell: CompressionCell, benchmark: LocatedBenchmark, seed: int) -> Path:
        """Return the folder of a cell's model of a task and seed, made if it is not there."""
        tuned = self._tuned_model(cell, benchmark, seed)
        if not cell.finish and not cell.onnx:
            return tuned
        folder = self._place(_FINISHED_FOLDER, cell, benchmark, seed)
        with self._making(folder):
            if folder.exists():
                return folder
            source = tuned
            if cell.finish:
                source = folder.with_name(f"{folder.name}-weights") if cell.onnx else folder
                shutil.rmtree(source, ignore_errors=True)
                calibration = fetch_files(benchmark).train if _use_texts(cell.finish) else None
                compress(tuned, method=cell.finish, data=calibration, out=source)
            if cell.onnx:
                load(source).save(folder, format="onnx", int8=cell.onnx == "int8")
        return folder

    def _tuned_model(self, cell: CompressionCell, benchmark: LocatedBenchmark, seed: int) -> Path:
        """Return the folder of a cell's fine-tuned model; cells that tune alike share it."""
        cell = next(one for one in self.study.cells if one.tuning == cell.tuning)
        folder = self._place(TUNED_FOLDER, cell, benchmark, seed)
        base, teachers = self._base(cell), list[Path]()
        if cell.tune_distill:
            teachers.append(self._tuned_model(self.study.whole, benchmark, seed))
        with self._making(folder):
            if not is_finished_run(folder):
                shared = FinetuneConfig(
                    base=base, task=benchmark.task, train=benchmark.train, rows=self.study.rows,
                    epochs=self.study.epochs, seed=seed,
                    initialize="pretrained" if cell.token_factor else cell.initialize,
                    compression=training_methods(CompressionOptions(compression=cell.tune_compress)),
                    distillation=distillation(
                        CompressionOptions(teacher=teachers, distill=cell.tune_distill)
                    ),
                )  # fmt: skip
                run_finetuning(
                    benchmark_config(shared, replace(benchmark, test=None)),
                    output_folder=folder, resume=folder.is_dir(), device=self.device,
                    terminal=self.terminal,
                )  # fmt: skip
        return folder

    def _base(self, cell: CompressionCell) -> str:
        """Return the model that a cell fine-tunes; cells that make it alike share it."""
        cell = next(o for o in self.study.cells if o.before_tuning == cell.before_tuning)
        base = self.study.base
        if cell.compress:
            folder = self.folder / _COMPRESSED_FOLDER / cell.name
            with self._making(folder):
                if not folder.exists():
                    data = str(self.sources[0]) if _use_texts(cell.compress) else None
                    compress(base, method=cell.compress, data=data, out=folder)
            base = str(folder)
        if not cell.token_factor:
            return base
        folder = self.folder / PRETRAINED_FOLDER / cell.name
        with self._making(folder):
            if not is_finished_run(folder):
                self._pretrain(cell, self._initial_weights(cell, base), folder)
        return str(folder)

    def _initial_weights(self, cell: CompressionCell, base: str) -> str:
        """Return the folder of a model, with random weights if the cell says so."""
        if cell.initialize == "pretrained":
            return base
        folder = self.folder / _COMPRESSED_FOLDER / f"{cell.name}.random"
        if not folder.exists():
            loaded = load(base).loaded_model
            model = loaded.preset.build().initialize(INITIAL_SEED)
            Pipeline(replace(loaded, model=model)).save(folder, format="unmask")
        return str(folder)

    def _pretrain(self, cell: CompressionCell, init_from: str, folder: Path) -> None:
        folder.parent.mkdir(exist_ok=True)
        text = self.folder / "text"
        with self._making(text):
            prepare(
                self.sources, out=text, model=self.study.recipe,
                tokenizer=resolve_model_folder(self.study.base),
                workers=max(1, self.workers), quiet=self.terminal is None,
            )  # fmt: skip
        pretrain(
            self.study.recipe, data=text, out=folder, init_from=init_from,
            tokens=self.study.token_budget(cell), changes=self.study.changes,
            teacher=self.study.base if cell.distill else (), distill=cell.distill,
            resume=(folder / RUN_FILE).is_file(), workers=self.workers, device=self.device,
            threads=self.threads, quiet=self.terminal is None,
        )  # fmt: skip

    def _place(
        self, kind: str, cell: CompressionCell, benchmark: LocatedBenchmark, seed: int
    ) -> Path:
        (name,) = folder_names([benchmark])
        return self.folder / kind / cell.name / f"{name}-{seed}"

    def _making(self, folder: Path) -> AbstractContextManager[None]:
        """Return a lock under which a folder is made; other processes wait for it."""
        place = self.folder / ".running" / "-".join(folder.relative_to(self.folder).parts)
        place.mkdir(parents=True, exist_ok=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return lock_run_folder(place, wait=True)


def _scored_file(benchmark: LocatedBenchmark) -> str:
    """Return the development file, or the test file where there is none; empty: neither."""
    return benchmark.dev or benchmark.test or ""


def _use_texts(methods: Sequence[str]) -> bool:
    """Return whether any of the methods measures the model on texts."""
    parsed = [parse_compression(one) for one in methods if one != PACKED_METHOD]
    if not parsed:
        return False
    changes, quantize = split_methods(parsed)
    rounds_inputs = quantize is not None and quantize.activations is not None
    return rounds_inputs or any(change.uses_texts for change in changes)
