"""A pretraining run from its recipe to a model folder.

After being killed anywhere, it continues by `resume`.
"""

import logging
import os
from contextlib import nullcontext
from dataclasses import replace

from unmask.checkpoints.folder import truncate_logs
from unmask.compression.masks.gates import remove_closed_heads
from unmask.files import remove_partial_files
from unmask.inference.export import environment_record
from unmask.inference.pipeline import Pipeline
from unmask.jobs.options.pretrain import PretrainOptions
from unmask.jobs.pretrain.apply_recipe import apply_recipe, check_sequence_length
from unmask.jobs.pretrain.data.corpus import check_data, open_or_make_corpus, open_or_make_shards
from unmask.jobs.pretrain.network import load_initial_model
from unmask.jobs.pretrain.resolve_options import RunOptions, resolve_options
from unmask.jobs.pretrain.run_folder import (
    RunRecord,
    clean_up_failed_start,
    locked_run_folder,
    write_final_model,
    write_report_if_possible,
)
from unmask.jobs.pretrain.train import (
    PretrainingJob,
    finish_job,
    restore_or_begin,
    start_job,
    take_steps,
)
from unmask.jobs.word_vectors import train as word_vectors
from unmask.options import takes_options
from unmask.reports.report_data import SAMPLES_FILE, save_samples
from unmask.text.formats.records import format_names
from unmask.training import loop
from unmask.training.best_effort import best_effort
from unmask.training.config import Recipe
from unmask.training.device import distributed
from unmask.training.device.distributed import World
from unmask.training.device.memory import keep_freed_memory
from unmask.training.interrupt import interrupt_on_signal
from unmask.word_vectors.train.corpus import load_kernels
from unmask.zoo.catalogue import get_preset
from unmask.zoo.preset import Published

_log = logging.getLogger(__name__)


@takes_options(PretrainOptions)
@interrupt_on_signal()
def pretrain(options: PretrainOptions) -> Pipeline:
    """Pretrain a model on your text, from scratch or from given weights.

    The fields of `PretrainOptions` are its keywords.

    Raises:
        FileNotFoundError: a file of data or a folder is missing.
        ValueError: a name, key or value is invalid, the folder has a run already, or the text
            cannot be read. Before the first step of a new run, nothing of it is left in `out`.
        FloatingPointError: the loss stays non-finite.
        KeyboardInterrupt: the run was stopped; it can be resumed.
    """
    recipe, run_options, notes = resolve_options(options)
    if os.environ.get("RANK", "0") == "0":  # only the first process prints
        for note in notes:
            run_options.print_line(note)
    try:
        with distributed.process_group(options.device, options.strategy) as world:
            own = run_options if world.rank == 0 else replace(run_options, terminal=None)
            return _run_pretraining(recipe, own, world)
    except KeyboardInterrupt as stop:
        reason = stop.args or ("interrupted",)
        raise KeyboardInterrupt(f"{options.out}: {reason[0]}; continue with --resume") from None


def _run_pretraining(recipe: Recipe, options: RunOptions, world: World) -> Pipeline:
    """Check, open the data, build the model, train it, and finish the folder."""
    threads = distributed.set_threads(options.n_threads)
    keep_freed_memory()
    card = apply_recipe(get_preset(recipe.model), recipe)
    if word_vectors.word_vector_method(card) is not None:
        return _train_word_vectors(recipe, card, options, world, threads)
    initial = load_initial_model(recipe, card)
    if initial is not None:
        card = initial.preset
        if initial.missing:
            options.print_line(f"newly initialized: {format_names(initial.missing)}")
    check_sequence_length(recipe, card)
    check_data(recipe, card, initial, options)
    first, environment = world.rank == 0, environment_record(str(world.device), threads)
    with locked_run_folder(options, world):
        with clean_up_failed_start(options) if first else nullcontext():
            if first:
                remove_partial_files(options.output_folder)
                if options.resumed_run is None:
                    RunRecord(
                        options=options, recipe=recipe, preset=card, environment=environment
                    ).write(with_steps=options.minutes is None)
                open_or_make_corpus(recipe, card, initial, options)
            world.broadcast_object(None)
            job = start_job(recipe, card, initial, options, world, environment)
            checkpoint = restore_or_begin(job)
        for line in truncate_logs(options.output_folder, checkpoint) if first else ():
            _log.warning("%s", line)
        ended = take_steps(job)
        job = _end(job, is_finished=ended)
    if not ended:
        raise KeyboardInterrupt(
            f"stopped after step {job.run.progress.step:,} of {job.run.recipe.steps:,}"
        )
    world.broadcast_object(None)
    source = str(options.output_folder.absolute())
    return Pipeline(
        replace(job.loaded_model, model=job.loaded_model.model.float().eval(), source=source)
    )


def _end(job: PretrainingJob, *, is_finished: bool) -> PretrainingJob:
    """Return the job with the model as it is saved; the first process writes it, and the report."""
    is_first = job.run.world.rank == 0
    if is_finished:
        loop.finish_run(job.run)
    if is_first and not is_finished:
        write_report_if_possible(job.options.output_folder)
    if not is_first or not is_finished:
        return job
    job.loaded_model.model.remove_training_modules()
    trained = remove_closed_heads(job.loaded_model, job.run.recipe.compression)
    job = replace(job, loaded_model=trained)
    finish_job(job)
    return job


def _train_word_vectors(
    recipe: Recipe, preset: Published, options: RunOptions, world: World, n_threads: int
) -> Pipeline:
    """Train word vectors, which have their own steps and no network."""
    if world.size > 1:
        raise ValueError("word vectors are trained by one process with --threads")
    load_kernels("words")  # what is not installed is missed before anything is written
    check_data(recipe, preset, None, options)
    record = RunRecord(
        options=options,
        recipe=recipe,
        preset=preset,
        environment=environment_record(str(world.device), n_threads),
    )
    with locked_run_folder(options, world):
        with clean_up_failed_start(options):
            remove_partial_files(options.output_folder)
            if options.resumed_run is None:
                record.write(with_steps=False)
            shards = open_or_make_shards(recipe, preset, None, options)
            job = word_vectors.WordVectorJob.start(
                recipe, preset, shards, options.output_folder, n_threads
            )
            checkpoint, damaged = (
                job.restore_newest(options.output_folder) if options.resumed_run else (None, [])
            )
            record = replace(record, recipe=job.recipe)
            record.write()
        for line in [*damaged, *truncate_logs(options.output_folder, checkpoint)]:
            _log.warning("%s", line)  # also of a quiet run
        last = None if checkpoint is None else checkpoint.progress
        if last is not None:
            options.print_line(f"continuing after step {last['step']:,} of {job.recipe.steps:,}")
        if not job.train(
            options.output_folder, options.terminal, last, tensorboard=options.tensorboard
        ):
            write_report_if_possible(options.output_folder)
            raise KeyboardInterrupt("stopped before the last step")
        opened = job.to_model()
        job.write_ngrams(options.output_folder)
        files = write_final_model(
            options.output_folder, opened, {"learned from": job.training_summary}
        )
        files |= job.file_records(options.output_folder)
        with best_effort(SAMPLES_FILE):
            save_samples(options.output_folder, job.neighbor_samples())
        record = replace(record, n_parameters=opened.model.parameter_count())
        record.write(file_records=files)
        write_report_if_possible(options.output_folder)
    return Pipeline(replace(opened, model=opened.model.eval()))
