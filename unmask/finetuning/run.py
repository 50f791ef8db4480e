"""Fine-tuning: labeled files and a model -> a fine-tuned model, its scores, and its folder."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from unmask.adapters.folder import open_model_or_adapter
from unmask.adapters.scalar_mix import ScalarMixModule
from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.checksums import FILES_KEY
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.masks.gates import remove_closed_heads
from unmask.compression.methods import format_methods, training_records
from unmask.config import from_dict, to_dict
from unmask.files import lock_run_folder, remove_partial_files, write_atomically
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.formulations.conversations.instructions import template_of_task
from unmask.finetuning.formulations.formulation import TaskFormulation, uses_word_labels
from unmask.finetuning.formulations.text_to_text.formulate import with_task_languages
from unmask.finetuning.initial_model.regression_scale import without_target_scale
from unmask.finetuning.initial_model.reopened import check_base_of_adapter
from unmask.finetuning.job.finetune_job import FinetuneJob
from unmask.finetuning.job.notes import split_text_notes, truncation_warnings
from unmask.finetuning.job.prepare import is_finished, prepare_job, restart_from
from unmask.finetuning.methods.adapt_first import ADAPTATION_FOLDER as IN_DOMAIN
from unmask.finetuning.methods.method import is_parameter_efficient, method_name
from unmask.finetuning.options import derived as derived_options
from unmask.finetuning.results import report as results_report
from unmask.finetuning.results.bag_of_words import bag_of_words_score
from unmask.finetuning.results.cost import measured_cost
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.finetuning.results.predict import RUN_FILE, PredictedScores, predict_scores
from unmask.finetuning.results.report import RunResult
from unmask.finetuning.results.save_model import save_into_run_folder
from unmask.finetuning.results.score import score, score_predictions, tune_threshold
from unmask.finetuning.results.task_metrics import tasks_of_mixture
from unmask.finetuning.search import TRIALS_FILE, read_trials, run_search
from unmask.finetuning.search import check_search as check_search
from unmask.finetuning.search import trial_record as plain_trial
from unmask.finetuning.train_run import BestState, train_run
from unmask.heads.model import Model
from unmask.output import OutputStream
from unmask.planning.run_cost import RunCost
from unmask.saved_format import read_saved
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import Label, Task
from unmask.tasks.task_kind import ReportsMetricSignatures
from unmask.training.best_effort import best_effort
from unmask.training.device import distributed
from unmask.training.device.memory import keep_freed_memory
from unmask.training.interrupt import interrupt_on_signal

RESULTS_FILE = "results.json"
MIN_PLANNED_STEPS = 50
"""Steps of a job whose cost is planned."""


@interrupt_on_signal()
def run_finetuning(
    config: FinetuneConfig,
    *,
    loaded_model: LoadedModel | None = None,
    output_folder: Path | None = None,
    resume: bool = False,
    device: str = "auto",
    adapt: Callable[[FinetuneJob], Path] | None = None,
    terminal: OutputStream | None = sys.stderr,
) -> FinetunedModel:
    """Fine-tune by a config; `unmask.finetune` takes its fields as arguments.

    Args:
        config: the configuration.
        loaded_model: the model, instead of `config.base`.
        output_folder: a folder for the run. None: nothing is written.
        resume: continue the run in `output_folder`.
        device: "auto", "cpu", "cuda", ...
        adapt: function that pretrains the model of a job on the text of its task, or resumes it,
            and returns the model's folder; used with `FinetuneConfig.adapt_first`.
        terminal: stream for progress. None: no progress is shown.
    """
    _check_options(config, loaded_model, output_folder, resume)
    with distributed.process_group(device) as world, _job_folder(output_folder) as folder:
        if world.size > 1:
            raise ValueError(f"fine-tuning runs in one process, not in {world.size}")
        n = distributed.set_threads(None)
        keep_freed_memory()
        job = prepare_job(config, loaded_model, folder, world, n, terminal)
        job = replace(
            job, keeps_folder=output_folder is not None, peak_flops=_measure_peak_flops(job)
        )
        folder.mkdir(parents=True, exist_ok=True)
        with lock_run_folder(folder):
            remove_partial_files(folder)
            for warning in job.warnings:
                job.warn(warning)
            for note in job.notes:
                job.print_progress(note)
            if config.search:
                job = run_search(job, config, _run_trial)
            if is_finished(job):
                return _load_finished(job)
            if config.adapt_first is not None:
                assert adapt is not None, "adapt_first needs a function that continues pretraining"
                job = _adapt_first(job, adapt)
            return _run_all(job)


def _check_options(
    config: FinetuneConfig,
    loaded_model: LoadedModel | None,
    output_folder: Path | None,
    resume: bool,
) -> None:
    """Check the options before any file is read."""
    if resume and output_folder is None:
        raise ValueError("a run can only be resumed in its folder: name it with out")
    if config.average and output_folder is None:
        raise ValueError("average needs a run's checkpoints: name a folder with out")
    if output_folder is not None:
        if is_parameter_efficient(config.tune):
            _check_named_base(config, loaded_model)
        if checkpoints.has_run(output_folder, (RUN_FILE, TRIALS_FILE)):
            checkpoints.check_resumed(output_folder, resume=resume)
    if config.search and not (output_folder is not None and (output_folder / RUN_FILE).is_file()):
        check_search(config)  # a run that was started has its learning rate and batch size already


def _check_named_base(config: FinetuneConfig, loaded_model: LoadedModel | None) -> None:
    """Check that the base model of an adapter can be loaded by name, also by PEFT."""
    if loaded_model is not None:
        raise ValueError(
            f"a run of {method_name(config.tune)} is saved without its base model: give that "
            "model's folder rather than the open model, or use `save`"
        )
    check_base_of_adapter(config.base, config.tune)


def _adapt_first(job: FinetuneJob, adapt: Callable[[FinetuneJob], Path]) -> FinetuneJob:
    """Return the job with the model after task-adaptive pretraining.

    If that cannot start, no files are left, so the folder can be used again.
    """
    try:
        return restart_from(job, adapt(job))
    except ValueError:
        if not (job.folder / IN_DOMAIN).exists():
            shutil.rmtree(job.folder)
        raise


def _measure_peak_flops(job: FinetuneJob) -> float:
    """Measure the peak FLOP/s of the machine, unless the job takes less time than that."""
    if job.total_steps * len(job.runs) < MIN_PLANNED_STEPS:
        return 0.0
    precision = distributed.resolve_precision(job.config.precision, job.world.device)
    return distributed.matmul_peak_flops(distributed.weight_dtype(precision), job.world.device)


@contextmanager
def _job_folder(output_folder: Path | None) -> Generator[Path, None, None]:
    """Yield the folder of the run, or a temporary one."""
    if output_folder is not None:
        yield output_folder
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _run_trial(job: FinetuneJob) -> float | None:
    """Run a search trial: the first run of a job. Return its best score, None if it diverged."""
    with tempfile.TemporaryDirectory() as name:
        try:
            trial = replace(
                job, folder=Path(name), keeps_folder=False, terminal=None, cost=RunCost()
            )
            _, state = train_run(trial, *job.runs[0])
        except FloatingPointError:
            return None
    return float(state.scores[job.task.metric])


def _run_all(job: FinetuneJob) -> FinetunedModel:
    """Make all remaining runs, and write the results."""
    job.print_progress(job.summary)
    scored: list[RunResult] = []
    best: tuple[ScoredRun, Model] | None = None
    for arm, seed in job.runs:
        if len(job.runs) > 1:
            job.print_progress(f"{arm}, seed {seed}")
        model, state = train_run(job, arm, seed)
        one = _score_run(job, arm, seed, model, state)
        scored.append(one.result)
        first = arm == job.runs[0][0]
        if first and (best is None or job.task.is_better(one.result.dev, best[0].result.dev)):
            best = one, model
    assert best is not None
    opened = remove_closed_heads(_to_loaded_model(job, best[1]), job.config.compression)
    formulation, predicted = best[0].formulation, best[0].predictions
    report: dict[str, Any] | None = None
    with best_effort(RESULTS_FILE):
        report = _build_report(job, scored, formulation, predicted)
    n_short = sum(question.target_truncated for question in job.dev_inputs)
    warnings = truncation_warnings(
        job.formulation, predicted.n_truncated, n_short, len(job.data.dev), "dev"
    )
    mixing_notes = [
        *split_text_notes(job.task, predicted.n_truncated, len(job.data.dev), "dev"),
        *_metric_signatures(formulation, job, opened.model, predicted),
        *(
            one.summary()
            for one in opened.model.adapters.values()
            if isinstance(one, ScalarMixModule)
        ),
    ]
    for warning in warnings:
        job.warn(warning)
    for note in mixing_notes:
        job.print_progress(note)
    tuned = FinetunedModel(
        loaded_model=opened,
        task=formulation.task,
        config=job.config,
        run_results=tuple(scored),
        best_run=best[0].result,
        notes=(*job.notes, *job.warnings, *warnings, *mixing_notes),
        folder=job.folder if job.keeps_folder else None,
    )
    if job.keeps_folder:
        _write_results(job, tuned, report, (*job.warnings, *warnings))
    return tuned


def _build_report(
    job: FinetuneJob,
    scored: Sequence[RunResult],
    formulation: TaskFormulation,
    predicted: PredictedScores,
) -> dict[str, Any]:
    """Return the content of `results.json`."""
    train, dev, name = job.data.train, job.data.dev, Path(job.config.train).name
    report = results_report.build_report(scored, formulation, name, train, dev, predicted)
    if job.config.baseline:
        report["bag_of_words"] = _bag_of_words(job)
    if job.config.search:
        report["search"] = [plain_trial(one) for one in read_trials(job.folder)]
    return report


def _bag_of_words(job: FinetuneJob) -> float | None:
    """Return the dev score of a bag of words, beside the network that was not pretrained."""
    score = bag_of_words_score(job.task, job.data.train, job.data.dev)
    if score is not None:
        job.print_progress(f"bag of words: {job.task.metric} held out {score:.4f}")
    return score


def _metric_signatures(
    formulation: TaskFormulation, job: FinetuneJob, model: Model, predicted: PredictedScores
) -> list[str]:
    """Return the signatures of metrics that are compared across papers, with their values."""
    kind = TASK_KINDS[job.task.task_kind]
    if not isinstance(kind, ReportsMetricSignatures):
        return []
    lines_of_splits: list[str] = []
    for split, items, questions in (
        ("dev", job.data.dev, job.dev_inputs),
        ("test", job.data.test, job.test_inputs),
    ):
        scores = (
            predicted.scores
            if split == "dev" or not items
            else predict_scores(formulation, model, questions).scores
        )
        for name, task in tasks_of_mixture(job.task).items():
            some = [
                (cast("Label", item.label), formulation.prediction(item, s))
                for item, s in zip(items, scores, strict=bool(items))
                if item.component == name
            ]
            lines = kind.metric_signatures(
                task, [truth for truth, _ in some], [text for _, text in some]
            )
            lines_of_splits += [f"{split} {name} {line}".replace("  ", " ") for line in lines]
    return lines_of_splits


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """The result of a run, and what its model says of the dev file."""

    result: RunResult
    formulation: TaskFormulation
    """With the threshold of this model, if it has one."""
    predictions: PredictedScores


def _score_run(
    job: FinetuneJob, arm: str, seed: int, model: Model, best_state: BestState
) -> ScoredRun:
    """Score the best checkpoint of a run in float32, as it will be used."""
    formulation, dev = without_target_scale(job.formulation), job.data.dev
    predictions = predict_scores(formulation, model, job.dev_inputs)
    formulation = tune_threshold(formulation, dev, predictions)
    result = RunResult(
        arm=arm,
        seed=seed,
        best_step=best_state.step,
        dev=score_predictions(formulation, dev, predictions),
        test=score(formulation, model, job.data.test, job.test_inputs) if job.test_inputs else {},
        n_trainable_parameters=job.n_trainable_parameters,
    )
    return ScoredRun(result=result, formulation=formulation, predictions=predictions)


def _to_loaded_model(job: FinetuneJob, model: Model) -> LoadedModel:
    # Other libraries count the label names of a head; span heads have none.
    has_names = any(spec.has_label_names for spec in model.head_specs.values())
    return LoadedModel(
        preset=replace(job.initial_model.preset, heads=model.head_specs),
        model=model,
        tokenizer=with_task_languages(job.initial_model.tokenizer, job.task)
        if job.initial_model.preset.reads_texts
        else None,
        preprocessing=job.initial_model.preprocessing,
        chat_template=template_of_task(job.task) or job.initial_model.chat_template,
        label_names=job.task.labels or (job.task.columns.label,) if has_names else (),
        missing=(),
        unexpected=(),
        source=str(job.folder.absolute()) if job.keeps_folder else None,
    )


def _write_results(
    job: FinetuneJob,
    finetuned: FinetunedModel,
    report: Mapping[str, Any] | None,
    warnings: Sequence[str],
) -> None:
    """Write the model into the run's folder; the run is marked as finished last."""
    folder = job.folder
    base = job.config.base if is_parameter_efficient(job.config.tune) else None
    files = save_into_run_folder(
        folder,
        finetuned.loaded_model,
        finetuned.task,
        [*_summary_lines(finetuned), *warnings],
        base,
    )
    with best_effort(RESULTS_FILE):
        if report is not None:
            write_atomically(folder / RESULTS_FILE, results_report.to_json(report))
        if job.run_folder(finetuned.best_run.arm, finetuned.best_run.seed) != folder:
            for name in checkpoints.LOG_FILES:
                source = job.run_folder(finetuned.best_run.arm, finetuned.best_run.seed) / name
                write_atomically(folder / name, source.read_bytes())
    result = {
        "finished": True,
        FILES_KEY: files,
        "task": to_dict(finetuned.task),
        "scored": to_dict(finetuned.run_results),
        "best": to_dict(finetuned.best_run),
        "notes": list(finetuned.notes),
        "cost": measured_cost(job),
    }
    write_atomically(folder / RUN_FILE, results_report.to_json(dict(job.run_record) | result))
    _remove_checkpoints(job)


def _remove_checkpoints(job: FinetuneJob) -> None:
    """Remove the checkpoints of a finished run."""
    for arm, seed in job.runs:
        shutil.rmtree(job.run_folder(arm, seed) / "checkpoints", ignore_errors=True)


def _summary_lines(finetuned: FinetunedModel) -> list[str]:
    """Return a few lines on the training and the scores of the model."""
    t = finetuned.config
    records = training_records(t.compression, t.distillation)
    size = derived_options.describe_batch_size(t) + ("" if t.batch_size is None else " texts")
    epochs = f"{t.epochs:g} epoch" + "s" * (t.epochs != 1)
    return [
        f"fine-tuned on {Path(t.train).name} for {epochs} of {size} a step, "
        f"at rate {t.learning_rate:g}",
        *([f"compressed by {format_methods(records)}"] if records else []),
        *finetuned.summary(),
    ]


def _load_finished(job: FinetuneJob) -> FinetunedModel:
    """Load the results of a finished run from its folder."""
    _remove_checkpoints(job)
    facts = read_saved(job.folder / RUN_FILE)
    opened = open_model_or_adapter(job.folder)
    if uses_word_labels(opened.preset):
        opened = replace(opened, label_names=())
    return FinetunedModel(
        loaded_model=replace(
            opened,
            model=opened.model.to(job.world.device),
            source=str(job.folder.absolute()),
        ),
        task=from_dict(Task, facts["task"], "task"),
        config=job.config,
        run_results=tuple(from_dict(RunResult, record, "scored") for record in facts["scored"]),
        best_run=from_dict(RunResult, facts["best"], "best"),
        notes=tuple(facts["notes"]),
        folder=job.folder,
    )
