"""Running a lottery study: a chain of rounds for each task and seed, and its controls."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unmask.checkpoints.huggingface.read import resolve_model_folder
from unmask.compression.config import GivenMask
from unmask.compression.masks.blocks import BlockPruning
from unmask.config import from_dict, to_dict
from unmask.files import lock_run_folder, remove_partial_files, write_atomically
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.methods.adapt_first import TaskAdaptivePretraining
from unmask.finetuning.results.report import RunResult, to_json
from unmask.finetuning.run import run_finetuning
from unmask.finetuning.suite import benchmark_config, folder_names
from unmask.inference.export import is_finished_run, read_run_file
from unmask.jobs.adapt_to_task import adaptation_recipe
from unmask.jobs.compress import compress
from unmask.jobs.corpus.prepare import check_sources, prepare
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.output import OutputStream, print_line
from unmask.reports.report_data import RUN_FILE
from unmask.saved_format import FORMAT
from unmask.studies.lottery.page import PLOT_FILE, draw_svg, format_markdown
from unmask.studies.lottery.result import LotteryResult, LotteryScore
from unmask.studies.lottery.study import DENSE, Arm, LotteryStudy
from unmask.studies.study_run import STUDY_FILE, check_study_folder, comparable_settings
from unmask.tasks.suites.benchmark import LocatedBenchmark
from unmask.tasks.suites.bundled import find_suite
from unmask.training.best_effort import best_effort
from unmask.training.config import Recipe

_OTHER_SEED = 1_000_003
"""Distance of the seed of random weights to that of a ticket, where both are random."""


@dataclass(frozen=True, kw_only=True)
class LotteryPlaces:
    """Where a study reads and writes, and computes."""

    folder: Path
    sources: tuple[str, ...]
    """Text, of `masks_of = "text"`."""
    tasks_folder: Path | None
    device: str = "auto"
    threads: int | None = None
    workers: int = 0
    terminal: OutputStream | None = None


def run_lottery(
    study: LotteryStudy, places: LotteryPlaces, arms: Sequence[Arm], *, resume: bool
) -> LotteryResult:
    """Run a study, or what is left of it; each finished run is kept.

    Raises:
        FileNotFoundError: the text, or all files of the tasks, are missing.
        ValueError: the study does not fit the model, or the folder has other content.
        KeyboardInterrupt: the study was stopped; it can be resumed.
    """
    if study.masks_of == "text":
        if not places.sources:
            raise ValueError(f'{study.name}: masks_of = "text" reads text: give it by --data')
        check_sources(list(places.sources))
    elif places.sources:
        raise ValueError(f"{study.name} reads no text: leave --data out")
    job = _LotteryRun(study=study, places=places, benchmarks=_find_benchmarks(study, places))
    is_new = not places.folder.exists()
    check_study_folder(places.folder, study, job.settings, resume=resume)
    places.folder.mkdir(parents=True, exist_ok=True)
    try:
        return job.run(arms)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{places.folder}: stopped; continue with --resume") from None
    except (ValueError, OSError):
        if is_new and not (places.folder / "runs").exists():
            shutil.rmtree(places.folder)  # the folder can be used again
        raise


def _find_benchmarks(
    study: LotteryStudy, places: LotteryPlaces
) -> tuple[tuple[LocatedBenchmark, str], ...]:
    """Return the benchmarks of a study, each with the name of its folder."""
    found, _ = find_suite(study.tasks, places.tasks_folder)
    names = [one.name for one in found]
    for name in study.benchmarks:
        if name not in names:
            raise ValueError(f"{study.tasks} has no benchmark {name!r} (found: {', '.join(names)})")
    chosen = [one for one in found if not study.benchmarks or one.name in study.benchmarks]
    return tuple(zip(chosen, folder_names(chosen), strict=True))


@dataclass(frozen=True, kw_only=True)
class _LotteryRun:
    """A study to run or resume; other processes may run other tasks and seeds."""

    study: LotteryStudy
    places: LotteryPlaces
    benchmarks: tuple[tuple[LocatedBenchmark, str], ...]

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that must be equal when a study is resumed."""
        places = self.places
        return comparable_settings(self.study, places.sources, places.tasks_folder)

    def run(self, arms: Sequence[Arm]) -> LotteryResult:
        """Run all chains that no other process runs."""
        self.save_result()
        for seed in range(self.study.seeds):
            for benchmark, name in self.benchmarks:
                place = self.places.folder / ".running" / f"{name}-seed-{seed}"
                place.mkdir(parents=True, exist_ok=True)
                with ExitStack() as stack:
                    try:
                        stack.enter_context(lock_run_folder(place))
                    except ValueError:
                        self.show(f"{benchmark.name}, seed {seed}: run by another process")
                        continue
                    self._run_chain(benchmark, seed, arms)
        return self.save_result()

    def _run_chain(self, benchmark: LocatedBenchmark, seed: int, arms: Sequence[Arm]) -> None:
        """Run the dense model, then each round's ticket and controls."""
        study = self.study
        self._finetune(benchmark, DENSE, 0.0, seed)
        for i, sparsity in enumerate(study.sparsities):
            is_needed = study.masks_of == "task" and i + 1 < len(study.sparsities)
            for arm in study.arms:
                if arm in arms or (arm == "ticket" and is_needed):
                    self._finetune(benchmark, arm, sparsity, seed)

    def _finetune(self, benchmark: LocatedBenchmark, arm: str, sparsity: float, seed: int) -> None:
        """Fine-tune once, unless done."""
        folder = self._run_folder(self._name_of(benchmark), arm, sparsity, seed)
        if is_finished_run(folder):
            return
        study = self.study
        self.show(f"{benchmark.name}, seed {seed}: {_describe(arm, sparsity)}")
        config = FinetuneConfig(
            base=study.base, task=benchmark.task, train=benchmark.train, rows=study.rows,
            epochs=study.epochs, seed=seed, initialize=study.initialize,
        )  # fmt: skip
        if arm != DENSE:
            mask = self._mask(benchmark, sparsity, seed)
            if study.unit == "blocks":
                mask = self._block_mask(benchmark_config(config, benchmark), mask, folder, arm)
            elif arm == "random-mask":
                mask = replace(mask, shuffle=seed)
            config = replace(config, compression=(mask,))
        if arm == "random-weights":
            is_random = study.initialize == "random"
            config = replace(
                config, initialize="random", seed=seed + _OTHER_SEED if is_random else seed
            )
        run_finetuning(
            benchmark_config(config, benchmark),
            output_folder=folder,
            resume=folder.is_dir() and any(folder.iterdir()),
            device=self.places.device,
            terminal=self.places.terminal,
        )
        self.save_result()

    def _mask(self, benchmark: LocatedBenchmark, sparsity: float, seed: int) -> GivenMask:
        """Return the mask of a round: that of the smallest weights of the round before."""
        study = self.study
        i = study.sparsities.index(sparsity)
        before = study.sparsities[i - 1] if i else 0.0
        if study.masks_of == "text":
            source = self._pretrain(before)
        else:
            arm = "ticket" if before else DENSE
            source = self._run_folder(self._name_of(benchmark), arm, before, seed)
        return GivenMask(
            source=str(source), fraction=sparsity, scope=study.scope, start=study.rewind
        )

    def _block_mask(
        self, config: FinetuneConfig, mask: GivenMask, folder: Path, arm: str
    ) -> GivenMask:
        """Return the mask of the least important heads and sublayers of a run, or of random ones.

        It is a folder beside that of the run that will have it.
        """
        masked, fraction = folder.parent / f"{folder.name}-mask", mask.fraction
        assert fraction is not None
        if not masked.exists():
            method = BlockPruning(
                heads=fraction,
                feed_forward=fraction,
                random=config.seed if arm == "random-mask" else None,
            )
            masked.parent.mkdir(parents=True, exist_ok=True)
            compress(mask.source, method=[method], data=config.train, out=masked)
        return GivenMask(source=str(masked), start=mask.start)

    def _pretrain(self, sparsity: float) -> Path:
        """Pretrain a round on the text, after the rounds before it, unless done."""
        study, places = self.study, self.places
        name = f"ticket-{100 * sparsity:g}" if sparsity else DENSE
        run = places.folder / "runs" / "text" / name
        if is_finished_run(run):
            return run
        recipe = self._recipe()
        if sparsity:
            i = study.sparsities.index(sparsity)
            source = self._pretrain(study.sparsities[i - 1] if i else 0.0)
            mask = GivenMask(
                source=str(source), fraction=sparsity, scope=study.scope, start=study.rewind
            )
            recipe = replace(recipe, compression=(mask,))
        place = places.folder / ".running" / "text"
        place.mkdir(parents=True, exist_ok=True)
        with lock_run_folder(place, wait=True):
            if is_finished_run(run):
                return run
            self.show(f"text: {_describe('ticket' if sparsity else DENSE, sparsity)}")
            text = places.folder / "text"
            prepare(
                places.sources, out=text, model=recipe.model,
                tokenizer=resolve_model_folder(study.base), workers=max(1, places.workers),
                quiet=places.terminal is None,
            )  # fmt: skip
            run.parent.mkdir(parents=True, exist_ok=True)
            pretrain(
                recipe, data=text, out=run, tokens=study.tokens,
                resume=(run / RUN_FILE).is_file(), workers=places.workers, device=places.device,
                threads=places.threads, quiet=places.terminal is None,
            )  # fmt: skip
        return run

    def _recipe(self) -> Recipe:
        """Return the recipe of pretraining that goes on from the model."""
        adaptation = TaskAdaptivePretraining(changes=self.study.changes)
        return adaptation_recipe(
            FinetuneConfig(
                base=self.study.base, task="classify", train="text", adapt_first=adaptation
            )
        )

    def _name_of(self, benchmark: LocatedBenchmark) -> str:
        return next(name for one, name in self.benchmarks if one.name == benchmark.name)

    def _run_folder(self, benchmark: str, arm: str, sparsity: float, seed: int) -> Path:
        which = f"{arm}-{100 * sparsity:g}" if sparsity else arm
        return self.places.folder / "runs" / benchmark / which / f"seed-{seed}"

    def show(self, text: str) -> None:
        """Print a line."""
        if self.places.terminal is not None:
            print_line(text, self.places.terminal)

    def save_result(self) -> LotteryResult:
        """Write the scores of all finished runs, the table and the plot; return them."""
        folder = self.places.folder
        with lock_run_folder(folder, wait=True):
            remove_partial_files(folder)
            result = self._read_result()
            record = self.settings | {"scores": [to_dict(one) for one in result.scores]}
            write_atomically(folder / STUDY_FILE, to_json({"format": FORMAT, **record}))
            with best_effort(PLOT_FILE):
                write_atomically(folder / PLOT_FILE, draw_svg(result))
            with best_effort("README.md"):
                write_atomically(folder / "README.md", format_markdown(result))
        return result

    def _read_result(self) -> LotteryResult:
        study = self.study
        runs = [(DENSE, 0.0), *((arm, s) for s in study.sparsities for arm in study.arms)]
        scores: list[LotteryScore] = []
        for benchmark, name in self.benchmarks:
            for arm, sparsity in runs:
                for seed in range(study.seeds):
                    folder = self._run_folder(name, arm, sparsity, seed)
                    if is_finished_run(folder):
                        facts = read_run_file(folder)
                        best = from_dict(RunResult, facts["best"], "best")
                        metric = str(facts["task"]["metric"])
                        scores.append(
                            LotteryScore(
                                benchmark=benchmark.name, arm=arm, sparsity=sparsity, seed=seed,
                                metric=metric, dev=best.dev[metric], test=best.test.get(metric),
                            )
                        )  # fmt: skip
        names = tuple(benchmark.name for benchmark, _ in self.benchmarks)
        return LotteryResult(study=study, benchmarks=names, scores=tuple(scores))


def _describe(arm: str, sparsity: float) -> str:
    return f"{arm.replace('-', ' ')}, {100 * sparsity:g} % zeros" if sparsity else arm
