"""The training of a run: start or restore, steps, evaluations, checkpoints, final model."""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

from unmask.batch import Batch
from unmask.checkpoints.folder import Checkpoint
from unmask.checkpoints.huggingface.read import (
    LoadedModel,
)
from unmask.compression.distillation.forward import DistillationForward
from unmask.compression.distillation.store import open_store
from unmask.compression.distillation.teacher import open_teachers
from unmask.compression.methods import format_methods, training_records
from unmask.evaluation.baselines import count_bigrams
from unmask.heads.model import Model
from unmask.jobs.pretrain.apply_recipe import check_sequence_length
from unmask.jobs.pretrain.data.check_labels import check_sequence_labels
from unmask.jobs.pretrain.data.corpus import open_or_make_corpus
from unmask.jobs.pretrain.fit_memory import fit_into_memory
from unmask.jobs.pretrain.held_out_pictures import held_out_pictures
from unmask.jobs.pretrain.held_out_samples import held_out_samples
from unmask.jobs.pretrain.network import (
    build_network,
    freeze_parameters,
    learning_rate_factors,
    reinitialized_heads,
)
from unmask.jobs.pretrain.resolve_options import (
    RunOptions,
    published_schedule_note,
    with_run_length,
)
from unmask.jobs.pretrain.run_folder import (
    RunRecord,
    write_final_model,
    write_report_if_possible,
)
from unmask.model.layers.attention.attention import copy_to_global_attention
from unmask.planning.flops import training_flops_per_token
from unmask.planning.rows import shape_of_batches
from unmask.planning.run_cost import RunCost
from unmask.reports.report_data import (
    BASELINES_FILE,
    SAMPLES_FILE,
    ReportSample,
    read_report_data,
    read_samples,
    save_baselines,
    save_samples,
)
from unmask.text.formats.records import format_names
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.training import loop
from unmask.training.best_effort import best_effort
from unmask.training.config import Recipe
from unmask.training.data.pictures import RunData
from unmask.training.data.texts import TrainingData
from unmask.training.device import distributed
from unmask.training.device.distributed import World
from unmask.training.device.memory import peak_memory_bytes
from unmask.training.interrupt import stop_after_step
from unmask.training.log import TrainingLog
from unmask.training.resume import find_newest_checkpoint, restore_run, save_checkpoint
from unmask.training.run import TrainingRun
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.zoo.objectives.requirements import check_special_tokens
from unmask.zoo.preset import Published

_log = logging.getLogger(__name__)

FIRST_SAMPLES_SECONDS, MAX_SAMPLING_FRACTION = 5.0, 0.04
"""Of training, until its first samples; and the maximum fraction of the time for all of them."""


@dataclass(frozen=True, kw_only=True)
class PretrainingJob:
    """A run and its components."""

    options: RunOptions
    run: TrainingRun
    loaded_model: LoadedModel
    """The model in training, as it will be saved."""
    training_data: RunData
    dev_batches: Sequence[Batch]
    """Held-out batches."""
    dev_batches_by_component: Mapping[str, Sequence[Batch]]
    """Held-out batches of each named component of the objective."""
    environment_record: Mapping[str, Any]
    teachers: tuple[Model, ...] = ()
    cost: RunCost = field(default_factory=RunCost)

    def write_run_file(
        self,
        file_records: Mapping[str, Any] | None = None,
        cost: Mapping[str, Any] | None = None,
    ) -> None:
        """Write unmask.json, with the number of steps; with files, as finished."""
        RunRecord(
            options=self.options,
            recipe=self.run.recipe,
            preset=self.loaded_model.preset,
            environment=self.environment_record,
            n_parameters=self.loaded_model.model.parameter_count(),
            source_shares=self.training_data.source_shares,
            source_epochs=self.training_data.with_recipe(self.run.recipe).source_epochs(),
        ).write(file_records=file_records, cost=cost)


def start_job(
    recipe: Recipe,
    preset: Published,
    initial_model: LoadedModel | None,
    options: RunOptions,
    world: World,
    environment_record: Mapping[str, Any],
) -> PretrainingJob:
    """Build the model and its data."""
    corpus = open_or_make_corpus(recipe, preset, initial_model, replace(options, terminal=None))
    special_ids = corpus.special_ids
    recipe = fit_into_memory(recipe, preset, special_ids, initial_model, options, world)
    _note_new_heads(recipe, preset, initial_model, special_ids, options)
    model = build_network(preset, recipe, special_ids, initial_model)
    freeze_parameters(model, recipe.frozen)
    preset = replace(preset, architecture=model.architecture, heads=model.head_specs)
    objective = preset.objective
    assert not isinstance(objective, WORD_VECTOR_METHODS)  # trained elsewhere
    location = (
        recipe.tokenizer or recipe.init_from or (recipe.data[0] if recipe.data else recipe.model)
    )
    check_special_tokens(objective, special_ids, location)
    length = check_sequence_length(recipe, preset)
    data = corpus.training_data(recipe, preset, objective, length, options.n_workers, world)
    labels_note = check_sequence_labels(data, model, has_initial_weights=initial_model is not None)
    _print_notes(data, labels_note, options)
    loaded = LoadedModel(
        preset=preset, model=model, tokenizer=corpus.tokenizer, label_names=(), missing=(),
        unexpected=(), preprocessing=corpus.preprocessing,
    )  # fmt: skip
    forward = _forward_with_teachers(recipe, loaded, data, world)
    return PretrainingJob(
        options=options,
        run=loop.start_run(
            recipe,
            model,
            data.batches,
            world=world,
            learning_rate_factors=learning_rate_factors(recipe, model),
            forward=forward,
            checkpoint_activations=options.checkpoint_activations,
        ),
        loaded_model=loaded,
        training_data=data,
        dev_batches=data.dev_batches(),
        dev_batches_by_component=data.dev_batches_by_component(),
        environment_record=environment_record,
        teachers=() if forward is None else forward.teachers,
    )


def _note_new_heads(
    recipe: Recipe,
    preset: Published,
    initial_model: LoadedModel | None,
    special_ids: SpecialTokenIds,
    options: RunOptions,
) -> None:
    """Print which heads of an initial model are new for the tokenizer."""
    if initial_model is None:
        return
    if new := reinitialized_heads(preset, initial_model, special_ids):
        options.print_line(
            f"newly initialized: {format_names(new)}, whose vocabulary differs from that of "
            f"{recipe.init_from}"
        )


def _forward_with_teachers(
    recipe: Recipe, student: LoadedModel, data: RunData, world: World
) -> DistillationForward | None:
    """Return the training loss of a student with its teachers, if it has any.

    Raises:
        ValueError: the teachers do not fit the student, or their store the run.
    """
    given, seed = recipe.distillation, recipe.seed
    if given is None:
        return None
    if given.store is not None and world.size > 1:
        raise ValueError(f"store: a run with a store is one process, got {world.size}")
    teachers = open_teachers(given, student.tokenizer, device=world.device)
    forward = DistillationForward(student.model, teachers, given, seed)
    forward.use_store(
        open_store(given, teachers, student.tokenizer, seed, lambda: next(data.batches(None))[0])
    )
    return forward


def _print_notes(data: RunData, labels_note: str | None, options: RunOptions) -> None:
    """Print notes on the data of a run."""
    for note in data.notes():
        options.print_line(note)
    if labels_note is not None:
        options.print_line(labels_note)
    if data.rank == 0 and (note := data.batch_size_warning()) is not None:
        _log.warning("%s", note)


def restore_or_begin(job: PretrainingJob) -> Checkpoint | None:
    """Restore the newest intact checkpoint, if there is one; else determine the run's length."""
    plan, run, first = job.options, job.run, job.run.world.rank == 0
    checkpoint, damaged = None, list[str]()
    if plan.resumed_run is not None:
        checkpoint, damaged = find_newest_checkpoint(plan.output_folder, run.world)
    for line in damaged:
        _log.warning("%s", line)  # also of a quiet run
    if checkpoint is not None:
        restore_run(run, checkpoint)
        assert plan.resumed_run is not None
        if first and run.recipe.steps != plan.resumed_run.recipe.steps:
            job.write_run_file()  # from here on the longer run
        plan.print_line(f"continuing after step {run.progress.step:,} of {run.recipe.steps:,}")
        return checkpoint
    if plan.minutes is not None:
        minutes = f"{plan.minutes:g} {'minute' if plan.minutes == 1 else 'minutes'}"
        plan.print_line(f"measuring how many steps fit into {minutes}")
        run.recipe = with_run_length(run.recipe, loop.estimate_steps(run, plan.minutes))
        plan.print_line(
            f"{run.recipe.steps:,} steps fit; reading what the model answers before them"
        )
        run.batches = job.training_data.with_recipe(run.recipe).batches
    if (note := published_schedule_note(run.recipe)) is not None:
        plan.print_line(note)
    epochs = job.training_data.with_recipe(run.recipe).source_epochs()
    if epochs:
        plan.print_line(f"epochs of each source: {_format_epochs(epochs)}")
    if first:
        job.write_run_file()
        _save_initial_results(job)
    return None


def _format_epochs(epochs: Mapping[str, float]) -> str:
    """Format how often each of the first twenty sources is read."""
    parts = [f"{name} {n:,.2f}" for name, n in [*epochs.items()][:20]]
    more = [f"and {len(epochs) - 20} more"] if len(epochs) > 20 else []
    return "; ".join([*parts, *more])


def _save_initial_results(job: PretrainingJob) -> None:
    """Save the predictions of the untrained model, and simple baselines on held-out text."""
    if not job.dev_batches:
        return
    with best_effort(BASELINES_FILE):
        _save_baselines(job)
    with best_effort(SAMPLES_FILE):
        save_samples(job.options.output_folder, _held_out_samples(job))


def _held_out_samples(
    job: PretrainingJob, previous: Sequence[ReportSample] = ()
) -> Sequence[ReportSample]:
    if job.training_data.text_shards is None:
        return held_out_pictures(job.loaded_model, job.dev_batches, previous)
    texts = cast(TrainingData, job.training_data)
    return held_out_samples(job.loaded_model, texts, previous)


class RunningSamples:
    """What a model answers while it is trained, after some of the steps.

    Nothing random is drawn from the run's streams, so that its curve is the same without them.
    """

    def __init__(self, job: PretrainingJob) -> None:
        self._job = job
        self._next_time = time.monotonic() + FIRST_SAMPLES_SECONDS

    def update(self, step: int) -> None:
        """Save what the model answers now, unless that would take a large part of the time."""
        job, begin = self._job, time.monotonic()
        is_due = (
            begin >= self._next_time and step < job.run.recipe.steps
        )  # finish_job saves the last
        if not is_due or job.run.world.rank or job.run.sharded is not None or not job.dev_batches:
            return
        path = job.options.output_folder / SAMPLES_FILE
        with best_effort(SAMPLES_FILE), loop.averaged_weights(job.run):
            save_samples(path.parent, _held_out_samples(job, read_samples(path)))
        end = time.monotonic()
        self._next_time = end + (end - begin) / MAX_SAMPLING_FRACTION


def _save_baselines(job: PretrainingJob) -> None:
    opened, specs = job.loaded_model, job.loaded_model.model.head_specs
    spec, texts = specs.get("language") or specs.get("generator"), job.training_data.text_shards
    is_single = not opened.model.architecture.is_encoder_decoder
    if spec is not None and texts is not None and is_single:
        table = count_bigrams(texts, cast(TrainingData, job.training_data).train_spans)
        name = f"{spec.objective_term}_accuracy"
        save_baselines(job.options.output_folder, {name: table.accuracy(job.dev_batches)})


def take_steps(job: PretrainingJob) -> bool:
    """Run the remaining steps with evaluations and checkpoints; False if stopped."""
    recipe, world = job.run.recipe, job.run.world
    peak = distributed.matmul_peak_flops(distributed.weight_dtype(recipe.precision), world.device)
    log, samples = None, RunningSamples(job)
    if world.rank == 0:
        shape = shape_of_batches(job.dev_batches, job.training_data.max_length)
        model = job.loaded_model.model
        dev_tokens = sum(batch.inputs.numel() for batch in job.dev_batches)
        job.cost.begin(model, recipe, shape, world, peak, dev_tokens, job.teachers)
        log = TrainingLog(
            job.options.output_folder,
            flops_per_token=training_flops_per_token(
                model, shape.length, shape.target_fraction, job.teachers
            ),
            peak_flops=peak * world.size,
            memory_usage=lambda: peak_memory_bytes(world.device),
            terminal=job.options.terminal,
            tensorboard=job.options.tensorboard,
        )
    with (
        log or nullcontext(),
        stop_after_step() as stop,
        job.training_data.verifier() if world.rank == 0 else nullcontext() as intact,
    ):
        for report in loop.train(job.run):
            last = report.step == recipe.steps
            if log is not None:
                log(report)
                job.cost.observe(report.seconds)
            if job.dev_batches and (last or report.step % recipe.evaluate_every == 0):
                memory = job.run.recipe.memory_length
                with loop.averaged_weights(job.run):
                    result = loop.evaluate_batches(
                        job.run.model, job.dev_batches, world.device, memory_length=memory
                    )
                    for part, batches in job.dev_batches_by_component.items():
                        result |= loop.evaluate_batches(
                            job.run.model, batches, world.device, component=part
                        )
                loop.report_dev_loss(job.run, result["loss"])
                if log is not None:
                    log.log_evaluation(report.step, result)
                    job.cost.observe_evaluation(report.step)
            samples.update(report.step)
            stopped = stop.is_requested_anywhere(world)
            if last or stopped or report.step % recipe.checkpoint_every == 0:
                if intact is not None:
                    intact.wait()
                save_checkpoint(job.run, job.options.output_folder)
            if stopped:
                return False
    return True


def _measured_cost(job: PretrainingJob) -> dict[str, Any]:
    """Return the cost of the run, including earlier processes.

    That of a finished run without further steps stays as recorded.
    """
    timed = read_report_data(job.options.output_folder)
    recorded = dict(timed.record_section("cost"))
    if recorded.get("tokens") == job.run.progress.n_tokens:
        return recorded
    logged = timed.timing_log.maximum("memory_bytes") or 0
    return job.cost.record(
        seconds=timed.total_seconds or 0.0,
        n_tokens=job.run.progress.n_tokens,
        peak_memory_bytes=max(int(logged), peak_memory_bytes(job.run.world.device)),
    )


def finish_job(job: PretrainingJob) -> None:
    """Write the trained model, and last the record that the run is finished."""
    out, progress = job.options.output_folder, job.run.progress
    if job.run.recipe.init_from is None:  # no objective has global tokens, so they were not trained
        copy_to_global_attention(job.loaded_model.model)
    figures = {"trained on": f"{progress.n_tokens:,} tokens in {progress.step:,} steps"}
    recipe = job.run.recipe
    if records := training_records(recipe.compression, recipe.distillation):
        figures["compressed by"] = format_methods(records)
    files = write_final_model(out, job.loaded_model, figures)
    if job.dev_batches:
        before = None
        with best_effort(f"{SAMPLES_FILE} before training"):
            before = read_samples(out / SAMPLES_FILE)
        with best_effort(SAMPLES_FILE):
            save_samples(out, _held_out_samples(job, before or ()))
    job.write_run_file(files, _measured_cost(job))
    write_report_if_possible(out)
