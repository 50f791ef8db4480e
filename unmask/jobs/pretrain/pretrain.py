"""A pretraining run from its recipe to a folder that others can open.

Killed anywhere, it goes on by `resume`.
"""

import errno
import logging
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import torch

from unmask.batch import Batch
from unmask.bundled.models import BUNDLED_MODELS
from unmask.checkpoints.checksums import FILES_KEY, record_files
from unmask.checkpoints.folder import Checkpoint, lock_run_folder, truncate_logs
from unmask.checkpoints.generator import load_generator_weights
from unmask.checkpoints.huggingface.read import (
    HUB_PREFIX,
    LoadedModel,
    as_large,
    load_folder,
    max_text_tokens,
    resolve_model_folder,
)
from unmask.checkpoints.huggingface.tokenizer import check_tokenizer_size
from unmask.checkpoints.subword_head import fill_subwords
from unmask.config import check_number_arguments, from_dict, read_toml, to_dict, unknown_key_message
from unmask.evaluation.baselines import count_bigrams
from unmask.files import merge_folder, remove_partial_files
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.model import HeadSpec, Model, required_term
from unmask.inference.export import environment_record, write_model, write_run_file
from unmask.inference.pipeline import Pipeline
from unmask.jobs import word_vectors
from unmask.jobs.prepare import (
    DOCUMENT_OPTIONS,
    check_prepared_options,
    check_sources,
    load_or_train_tokenizer,
    tokenize_corpus,
)
from unmask.jobs.pretrain.check_labels import check_sequence_labels
from unmask.jobs.pretrain.held_out_samples import held_out_samples
from unmask.jobs.pretrain.recipe_defaults import (
    drop_unsupported_keys,
    keys_of_changes,
    schedule_note,
    with_fractional_schedule,
    with_steps,
)
from unmask.jobs.pretrain.resumed_run import ResumedRun, merge_with_resumed, open_resumed_run
from unmask.model.architecture import Architecture
from unmask.model.backbones.canine import CanineArchitecture
from unmask.model.backbones.encoder_decoder import EncoderDecoder
from unmask.model.layers.attention.attention import copy_to_global_attention
from unmask.model.names import AnyArchitecture
from unmask.model.positions.scheme import SCHEMES_WITH_MAX_POSITIONS
from unmask.model.previous_token_heads import init_previous_token_heads
from unmask.output import OutputStream, print_line
from unmask.reports.page import write_report
from unmask.reports.report_data import (
    BASELINES_FILE,
    RUN_FILE,
    SAMPLES_FILE,
    read_samples,
    save_baselines,
    save_samples,
)
from unmask.shards.manifest import folder_sha256
from unmask.shards.read import TokenShards
from unmask.shards.verify import ShardVerifier
from unmask.shards.workers import check_workers
from unmask.shards.write import remove_unfinished_marker
from unmask.text.documents import DocumentSeparator
from unmask.text.lines import EncodingErrors
from unmask.text.records import format_names
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import SpecialTokenIds, SpecialTokens
from unmask.tokenizers.vocabulary import CodePointsWithSubwords, WordBytesWithWords
from unmask.training import config as recipes
from unmask.training import loop
from unmask.training.best_effort import best_effort
from unmask.training.config import Recipe
from unmask.training.data import (
    SourceShare,
    TrainingData,
    build_training_data,
    check_languages,
    check_row_unit,
    check_sampling,
    open_prepared,
)
from unmask.training.device import distributed
from unmask.training.device.distributed import World
from unmask.training.interrupt import interrupt_on_signal, stop_after_step
from unmask.training.log import TrainingLog
from unmask.training.optimizers.layerwise import (
    layerwise_lr_decay,
    parameters_by_layer_with_tied_output,
)
from unmask.training.resume import find_newest_checkpoint, restore_run, save_checkpoint
from unmask.training.run import TrainingRun
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.zoo.catalogue import get_preset
from unmask.zoo.native_format import with_expressible_format
from unmask.zoo.objectives.adapt import adapt_to_objective, available_heads
from unmask.zoo.objectives.requirements import check_special_tokens
from unmask.zoo.preset import Published

_log = logging.getLogger(__name__)

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
DEFAULT_MICRO_BATCH_TOKENS = 16_384
"""Tokens that go through the model together unless the recipe says otherwise."""


def preset_recipe(name: str, steps: int | None = None) -> Recipe:
    """Return the recipe that a card's paper gives, or that a small card was measured with.

    Its schedule is in shares of the steps, so that a shorter run has the same. Where it is not
    known of how many steps, it is as it was published, or fits `steps`.
    """
    recipe = _published_recipe(name)
    if _has_published_length(name):
        return with_fractional_schedule(recipe)
    return recipe if steps is None or steps < 1 else with_steps(recipe, steps)


def _has_published_length(name: str) -> bool:
    return "steps" in get_preset(name).training_options


def _published_recipe(name: str) -> Recipe:
    card = get_preset(name)
    recipe = Recipe(
        model=card.name,
        sequence_length=card.sequence_length,
        batch_tokens=card.batch_tokens,
        micro_batch_tokens=max(DEFAULT_MICRO_BATCH_TOKENS, card.sequence_length)
        if card.batch_tokens > DEFAULT_MICRO_BATCH_TOKENS
        else None,
        learning_rate=card.learning_rate,
        objective=card.objective,
    )
    return from_dict(Recipe, recipes.merge(to_dict(recipe), card.training_options))


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run is told beside its recipe.

    Nothing of it changes what is learned, but for how many steps.
    """

    output_folder: Path
    minutes: int | float | None = None
    """Until its number of steps is measured."""
    resumed_run: ResumedRun | None = None
    """The run in the folder, to go on with."""
    n_workers: int = 0
    device: str = "auto"
    n_threads: int | None = None
    tensorboard: bool = False
    terminal: OutputStream | None = None

    def print_line(self, text: str) -> None:
        """Show a line."""
        if self.terminal is not None:
            print_line(text, self.terminal)


@interrupt_on_signal()
@check_number_arguments
def pretrain(
    model: str | Path | Recipe | None = None,
    *,
    data: str | Path | Sequence[str | Path] = (),
    out: str | Path,
    steps: int | None = None,
    tokens: int | None = None,
    minutes: int | float | None = None,
    init_from: str | Path | None = None,
    tokenizer: str | Path | None = None,
    vocab_size: int | None = None,
    sequence_length: int | None = None,
    document_separator: DocumentSeparator | None = None,
    text_column: str | None = None,
    encoding_errors: EncodingErrors | None = None,
    sampling_exponent: int | float | None = None,
    seed: int | None = None,
    objective: str | None = None,
    checkpoint_every: int | None = None,
    changes: Sequence[str | Mapping[str, Any]] = (),
    resume: bool = False,
    workers: int = 0,
    device: str = "auto",
    threads: int | None = None,
    tensorboard: bool = False,
    quiet: bool = False,
) -> Pipeline:
    """Train a model from scratch, or on from given weights, on your text.

    What is None is the recipe's.

    Args:
        model: a card's name, a recipe file (`.toml`), or a Recipe; to resume a run it may be left
            out.
        data: text files, folders, globs, `hf:owner/name`, or one folder that `prepare` made.
        out: the run's folder; it must be new, unless `resume`.
        steps: of the optimizer. A run that is resumed may have more than before, if its schedule's
            rates for the steps that were taken do not depend on their number (Constant; WSD before
            its decay).
        tokens: instead of steps, how many to read, padding included.
        minutes: instead of steps, how long to train; measured on this machine and fixed before the
            first step.
        init_from: a folder or `hf:owner/name` whose weights and tokenizer the run begins with.
        tokenizer: a folder with a tokenizer to use; by default one is learned from the data.
        vocab_size: of a tokenizer that is learned.
        sequence_length: tokens of a row, at most.
        document_separator: what a document of plain text is: parted by blank lines, a line, or a
            file.
        text_column: the column that holds the text of a record.
        encoding_errors: with "replace", what is not UTF-8 becomes U+FFFD.
        sampling_exponent: exponent of each source's share of the tokens; 1: as they are. A source
            is a folder, a pattern or `hf:owner/name`, or the files named of one folder (where all
            are in one folder, each).
        seed: of everything that is drawn.
        objective: what is asked, by name: "mlm", "clm", "rtd:generator_size=0.25" (see
            `unmask.zoo.objectives.presets`). None: what the card's paper asks.
        checkpoint_every: steps.
        changes: `key=value`, as for `--set`, or plain data: any other key of the recipe.
        resume: go on with the run in `out`, from its newest whole checkpoint, or from the start if
            it has none.
        workers: processes that prepare the data and make batches; what is learned does not depend
            on it.
        device: "auto", "cpu", "cuda", ...
        threads: that compute. None: all cores; of a resumed run, as many as it had.
        tensorboard: also write TensorBoard's event files.
        quiet: show nothing on the terminal.

    Raises:
        FileNotFoundError: a file of data or a folder is not there.
        ValueError: a name, key or value is wrong, the folder holds a run already, or the text
            cannot be read. Where that is found before the first step of a new run, nothing of it is
            left in `out`.
        FloatingPointError: the loss stays non-finite.
        KeyboardInterrupt: someone stopped the run; it can be resumed, and says so.
    """
    check_run_numbers(steps=steps, tokens=tokens, minutes=minutes, workers=workers, threads=threads)
    out = Path(out)
    resumed = open_resumed_run(out, resume=resume)
    sources = (data,) if isinstance(data, str | Path) else tuple(data)
    options: dict[str, Any] = {
        "data": [str(source) for source in sources] or None,
        "steps": steps,
        "init_from": None if init_from is None else str(init_from),
        "tokenizer": None if tokenizer is None else str(tokenizer),
        "vocab_size": vocab_size,
        "sequence_length": sequence_length,
        "document_separator": document_separator,
        "text_column": text_column,
        "encoding_errors": encoding_errors,
        "sampling_exponent": None if sampling_exponent is None else float(sampling_exponent),
        "seed": seed,
        "objective": objective,
        "checkpoint_every": checkpoint_every,
    }
    changed = [*changes, {key: value for key, value in options.items() if value is not None}]
    recipe = _resolve_recipe(model, changed, resumed, out)
    change_texts = [change for change in changes if isinstance(change, str)]
    has_word_vectors = word_vectors.word_vector_method(get_preset(recipe.model)) is not None
    if has_word_vectors:
        is_length_given = any(number is not None for number in (steps, tokens, minutes)) or any(
            change.partition("=")[0].strip() == "steps" for change in change_texts
        )
        word_vectors.check_word_vector_recipe(
            recipe, preset_recipe(recipe.model), length_given=is_length_given
        )
    _check_architecture(recipe, change_texts)
    if tokens is not None:
        recipe = _with_run_length(recipe, math.ceil(tokens / recipe.batch_tokens))
    recipe, notes = drop_unsupported(recipe, keys_of_changes(changed))
    if resumed is not None:
        is_counted = steps is not None or tokens is not None
        steps_given = is_counted or (minutes is None and resumed.minutes is None)
        steps_given = steps_given and not has_word_vectors
        recipe = merge_with_resumed(recipe, resumed, steps_given=steps_given)
        minutes = None if is_counted or resumed.has_known_steps else minutes or resumed.minutes
        if is_counted:
            resumed = replace(resumed, minutes=None)
        threads = threads or resumed.n_threads
    plan = RunOptions(
        output_folder=out,
        minutes=minutes,
        resumed_run=resumed,
        n_workers=workers,
        device=device,
        n_threads=threads,
        tensorboard=tensorboard,
        terminal=None if quiet else sys.stderr,
    )
    if os.environ.get("RANK", "0") == "0":  # of several processes the first one speaks
        for note in notes:
            plan.print_line(note)
    try:
        with distributed.process_group(device) as world:
            return _run_pretraining(
                recipe, plan if world.rank == 0 else replace(plan, terminal=None), world
            )
    except KeyboardInterrupt as stop:
        reason = stop.args or ("interrupted",)
        raise KeyboardInterrupt(f"{out}: {reason[0]}; go on with --resume") from None


def check_run_numbers(
    *,
    steps: int | None = None,
    tokens: int | None = None,
    minutes: int | float | None = None,
    workers: int = 0,
    threads: int | None = None,
) -> None:
    """Check what the recipe does not hold.

    Raises:
        ValueError: a number is not allowed, or several say how long to train.
    """
    spans = {"steps": steps, "tokens": tokens, "minutes": minutes}
    given = [name for name, value in spans.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"give one of steps, tokens and minutes, got {' and '.join(given)}")
    if minutes is not None and not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be above 0, got {minutes}")
    if tokens is not None and tokens < 1:
        raise ValueError(f"tokens must be at least 1, got {tokens}")
    check_workers(workers)
    distributed.check_threads(threads)


def _resolve_recipe(
    model: str | Path | Recipe | None,
    changes: Sequence[str | Mapping[str, Any]],
    resumed_run: ResumedRun | None,
    output_folder: Path,
) -> Recipe:
    """Return the recipe that is asked for."""
    if isinstance(model, Recipe):
        return recipes.apply_changes(model, changes)
    if model is not None:
        if (
            Path(model).is_dir()
            or str(model).startswith(HUB_PREFIX)
            or str(model) in BUNDLED_MODELS
        ):
            raise ValueError(
                f"{model}: is no card; to go on from its weights, name its card, and it by --from"
            )
        base = partial(preset_recipe, steps=_requested_steps(model, changes))
        return recipes.read_recipe(model, base=base, changes=changes)
    if resumed_run is None:
        raise ValueError(
            f"{output_folder}: holds no run to go on with; to begin one, name a card or a recipe "
            "file"
        )
    return recipes.apply_changes(resumed_run.recipe, changes)


def _with_run_length(recipe: Recipe, steps: int) -> Recipe:
    """Return a recipe of so many steps; a schedule that is the card's fits them."""
    if recipe.schedule == preset_recipe(recipe.model).schedule:
        return with_steps(recipe, steps)
    return replace(recipe, steps=steps)


def _schedule_note(recipe: Recipe) -> str | None:
    name = recipe.model
    return schedule_note(
        _published_recipe(name), recipe, has_published_length=_has_published_length(name)
    )


def drop_unsupported(recipe: Recipe, given_keys: frozenset[str]) -> tuple[Recipe, list[str]]:
    """Leave out what the card's own recipe has and another network or objective cannot do.

    Returns:
        The recipe, and a line for each key that was left out.

    Raises:
        ValueError: the network cannot be asked the objective.
    """
    own = get_preset(recipe.model)
    adapted = replace(own, architecture=_apply_architecture(own.architecture, recipe.architecture))
    if recipe.objective is not None:
        adapted = adapt_to_objective(adapted, recipe.objective)
    return drop_unsupported_keys(recipe, preset_recipe(recipe.model), (own, adapted), given_keys)


def _requested_steps(model: str | Path, changes: Sequence[str | Mapping[str, Any]]) -> int | None:
    """Return the number of steps that changes, or else a recipe file, name."""
    keys: dict[str, Any] = {}
    if str(model).endswith(".toml") and Path(model).is_file():
        keys |= read_toml(Path(model))
    for change in changes:
        if not isinstance(change, str):
            keys |= change
        elif change.partition("=")[0].strip() == "steps":
            keys |= recipes.parse_change(change)
    steps = keys.get("steps")
    return steps if type(steps) is int else None


@dataclass(frozen=True, kw_only=True)
class _PretrainingJob:
    """A run, with what it is made from."""

    options: RunOptions
    run: TrainingRun
    loaded_model: LoadedModel
    """The model in training, as its folder will hold it."""
    training_data: TrainingData
    dev_batches: Sequence[Batch]
    """Held-out batches."""
    dev_batches_by_component: Mapping[str, Sequence[Batch]]
    """Those of each named part of what is asked, by itself."""
    environment_record: Mapping[str, Any]

    def write_run_file(self, file_records: Mapping[str, Any] | None = None) -> None:
        """Write unmask.json, with the number of steps that the run has; with files, as finished."""
        card, n = self.loaded_model.preset, self.loaded_model.model.parameter_count()
        _write_run_file(
            self.options, self.run.recipe, card, self.environment_record, n,
            file_records=file_records, source_shares=self.training_data.source_shares,
        )  # fmt: skip


def _write_run_file(
    options: RunOptions,
    recipe: Recipe,
    preset: Published,
    environment_record: Mapping[str, Any],
    n_parameters: int = 0,
    *,
    with_steps: bool = True,
    file_records: Mapping[str, Any] | None = None,
    source_shares: Sequence[SourceShare] = (),
) -> None:
    """Write unmask.json; with the number of steps only where that is known.

    With what is to be known of the files of its model, the run is finished.
    """
    plain = to_dict(recipe) | ({} if with_steps else {"steps": None})
    minutes = options.minutes or (options.resumed_run.minutes if options.resumed_run else None)
    more: dict[str, Any] = {} if minutes is None else {"minutes": minutes}
    if file_records is not None:
        more[FILES_KEY] = file_records
    if source_shares:
        more["sources"] = {
            s.name: {"tokens": s.n_tokens, "share": s.token_share, "gets": s.sampling_share}
            for s in source_shares
        }
    write_run_file(
        options.output_folder, "pretrain", plain, preset, n_parameters, environment_record,
        finished=file_records is not None, extra_facts=more,
    )  # fmt: skip


def _run_pretraining(recipe: Recipe, options: RunOptions, world: World) -> Pipeline:
    threads = distributed.set_threads(options.n_threads)
    distributed.keep_freed_memory()
    card = apply_recipe(get_preset(recipe.model), recipe)
    if word_vectors.word_vector_method(card) is not None:
        return _train_word_vectors(recipe, card, options, world, threads)
    begun = _load_initial_model(recipe, card)
    if begun is not None:
        card = begun.preset
        if begun.missing:
            options.print_line(f"new, drawn at random: {format_names(begun.missing)}")
    _check_sequence_length(recipe, card)
    _check_data(recipe, begun, options)
    first, around = world.rank == 0, environment_record(str(world.device), threads)
    with _locked_run_folder(options, world):
        with _clean_up_failed_start(options) if first else nullcontext():
            if first:
                remove_partial_files(options.output_folder)
                if options.resumed_run is None:
                    _write_run_file(
                        options, recipe, card, around, with_steps=options.minutes is None
                    )
                _open_or_make_shards(recipe, card, begun, options)
            world.broadcast_object(None)
            job = _start_job(recipe, card, begun, options, world, around)
            checkpoint = _restore_or_begin(job)
        for line in truncate_logs(options.output_folder, checkpoint) if first else ():
            options.print_line(line)
        ended = _take_steps(job)
        if first and ended:
            loop.finish_run(job.run)
            _finish_job(job)
        elif first:
            _write_report_if_possible(options.output_folder)
    if not ended:
        raise KeyboardInterrupt(
            f"stopped after step {job.run.progress.step:,} of {job.run.recipe.steps:,}"
        )
    world.broadcast_object(None)
    return Pipeline(replace(job.loaded_model, model=job.loaded_model.model.float().eval()))


def _train_word_vectors(
    recipe: Recipe, preset: Published, options: RunOptions, world: World, n_threads: int
) -> Pipeline:
    """Learn word vectors: they have steps of their own, and no network."""
    if world.size > 1:
        raise ValueError("word vectors are learned by one process; it uses --threads")
    _check_data(recipe, None, options)
    around = environment_record(str(world.device), n_threads)
    with _locked_run_folder(options, world):
        with _clean_up_failed_start(options):
            remove_partial_files(options.output_folder)
            if options.resumed_run is None:
                _write_run_file(options, recipe, preset, around, with_steps=False)
            shards = _open_or_make_shards(recipe, preset, None, options)
            job = word_vectors.WordVectorJob.start(
                recipe, preset, shards, options.output_folder, n_threads
            )
            checkpoint, damaged = (
                job.restore_newest(options.output_folder) if options.resumed_run else (None, [])
            )
            _write_run_file(options, job.recipe, preset, around)
        for line in [*damaged, *truncate_logs(options.output_folder, checkpoint)]:
            options.print_line(line)
        last = None if checkpoint is None else checkpoint.progress
        if last is not None:
            options.print_line(f"going on after step {last['step']:,} of {job.recipe.steps:,}")
        if not job.train(
            options.output_folder, options.terminal, last, tensorboard=options.tensorboard
        ):
            _write_report_if_possible(options.output_folder)
            raise KeyboardInterrupt("stopped before the last step")
        opened = job.to_model()
        job.write_ngrams(options.output_folder)
        files = _write_final_model(
            options.output_folder, opened, {"learned from": job.training_summary}
        )
        files |= job.file_records(options.output_folder)
        with best_effort(SAMPLES_FILE):
            save_samples(options.output_folder, job.neighbor_samples())
        n = opened.model.parameter_count()
        _write_run_file(options, job.recipe, preset, around, n, file_records=files)
        _write_report_if_possible(options.output_folder)
    return Pipeline(replace(opened, model=opened.model.eval()))


def _check_data(recipe: Recipe, initial_model: LoadedModel | None, options: RunOptions) -> None:
    """Find what can be found without reading the text, before anything is written."""
    if not recipe.data:
        raise ValueError(
            "no data: name text files, folders or hf:owner/name with --data; only a run that goes "
            f"on needs none, and {options.output_folder} holds no run"
        )
    ready = open_prepared(recipe.data)
    check_sampling(recipe, ready)
    check_languages(recipe, _language_tokens(recipe, initial_model), ready)
    if ready is not None:
        _check_prepared(recipe, ready, initial_model)
        return
    if (options.output_folder / "data" / "shards.json").is_file():
        return
    if recipe.tokenizer is not None:
        load_tokenizer(Path(recipe.tokenizer))
    for source in recipe.data:
        if (Path(source) / "unfinished.json").is_file():
            TokenShards.open(Path(source))  # says that it is unfinished
    check_sources(recipe.data)


def _language_tokens(
    recipe: Recipe, initial_model: LoadedModel | None
) -> SpecialTokenIds | SpecialTokens:
    """Return what says which languages there are tokens for."""
    if recipe.tokenizer is not None:
        return load_tokenizer(Path(recipe.tokenizer)).special_ids
    if initial_model is not None and initial_model.tokenizer is not None:
        return initial_model.tokenizer.special_ids
    return get_preset(recipe.model).tokenizer.special_tokens


def _check_prepared(recipe: Recipe, shards: TokenShards, initial_model: LoadedModel | None) -> None:
    """Check that nothing else is asked for than what was prepared."""
    usual = Recipe(model=recipe.model)
    option_names = [
        name for name in DOCUMENT_OPTIONS if getattr(recipe, name) != getattr(usual, name)
    ]
    check_prepared_options(Path(recipe.data[0]), shards.manifest, to_dict(recipe), option_names)
    if initial_model is not None and initial_model.tokenizer is not None:
        with tempfile.TemporaryDirectory() as folder:
            initial_model.tokenizer.save(Path(folder))
            if folder_sha256(Path(folder)) != shards.manifest.tokenizer_sha256:
                raise ValueError(
                    f"{recipe.data[0]}: was prepared with another tokenizer than that of "
                    f"{recipe.init_from}; prepare it with --tokenizer {recipe.init_from}"
                )


@contextmanager
def _locked_run_folder(options: RunOptions, world: World) -> Generator[None]:
    """Make the run's folder, which all processes then have, and keep others out of it."""
    if world.rank:
        world.broadcast_object(None)
        yield
        return
    new = [
        folder
        for folder in (options.output_folder, *options.output_folder.parents)
        if not folder.exists()
    ]
    options.output_folder.mkdir(parents=True, exist_ok=True)
    world.broadcast_object(None)
    try:
        with lock_run_folder(options.output_folder):
            yield
    finally:
        for folder in new:  # those that are empty still: nothing began
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def _clean_up_failed_start(options: RunOptions) -> Generator[None]:
    """Empty the folder of a new run that cannot begin: it can then be used again.

    But not where the disk is full, or much was tokenized: then the same run can go on.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        data = options.output_folder / "data"
        much = (data / "unfinished.json").is_file() and any(data.glob("*.tokens"))
        full = isinstance(error, OSError) and error.errno in _DISK_FULL_ERRORS
        if options.resumed_run is None and not (
            much or (full and (options.output_folder / RUN_FILE).is_file())
        ):
            for path in options.output_folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
        raise


def _apply_architecture(
    architecture: AnyArchitecture, changes: Mapping[str, Any]
) -> AnyArchitecture:
    """Return a network with changes."""
    if not changes:
        return architecture
    plain = to_dict(architecture)
    return from_dict(
        type(architecture),
        recipes.merge(plain, _with_same_max_positions(plain, changes)),
        "architecture",
    )


def _with_same_max_positions(
    architecture: Mapping[str, Any], changes: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Let another position scheme be for texts as long as the network's own, unless changed."""
    found: dict[str, Any] = {}
    for key, value in changes.items():
        if key in ("encoder", "decoder", "source_encoder") and isinstance(value, Mapping):
            value = _with_same_max_positions(architecture.get(key) or {}, value)
        if key == "position":
            value = _with_max_positions(architecture.get(key) or {}, value)
        found[key] = value
    return found


def _with_max_positions(position: Mapping[str, Any], change: Any) -> Any:
    new: Any = {"kind": change} if isinstance(change, str) else change
    if not isinstance(new, Mapping) or new.get("kind", position.get("kind")) == position.get(
        "kind"
    ):
        return change
    longer = (
        "max_positions" in position
        and new["kind"] in SCHEMES_WITH_MAX_POSITIONS
        and "max_positions" not in new
    )
    return {**new, "max_positions": position["max_positions"]} if longer else new


def _check_architecture(recipe: Recipe, changes: Sequence[str]) -> None:
    """Check that the network can be, and if not, say by which change.

    Raises:
        ValueError: it cannot be, with the `--set` that alone leads to the same, or with all of the
            network.
    """
    own = get_preset(recipe.model).architecture
    try:
        _apply_architecture(own, recipe.architecture)
    except ValueError as error:
        of_it = [c for c in changes if c.lstrip().startswith("architecture.")]
        alone = [c for c in of_it if _architecture_error(own, c) == str(error)]
        settings = " ".join(f"--set {change}" for change in alone[-1:] or of_it)
        raise ValueError(f"{settings}: {error}" if settings else str(error)) from None


def _architecture_error(architecture: AnyArchitecture, change: str) -> str | None:
    """Say what is wrong with a change, if nothing else is changed."""
    try:
        _apply_architecture(architecture, recipes.parse_change(change)["architecture"])
    except ValueError as error:
        return str(error)
    return None


def apply_recipe(preset: Published, recipe: Recipe) -> Published:
    """Apply what a recipe says of the network and the objective to its card.

    Raises:
        ValueError: it names something that the architecture does not have, or its rows are not
            such that the objective can be asked of them.
    """
    preset = replace(
        preset, architecture=_apply_architecture(preset.architecture, recipe.architecture)
    )
    if recipe.objective is not None:
        preset = adapt_to_objective(preset, recipe.objective)
    architecture, objective = preset.architecture, preset.objective
    if recipe.packing == "pack" and isinstance(architecture, CanineArchitecture):
        raise ValueError(
            f"packing: {preset.name} reads blocks of characters, in rows of one text each; "
            "use 'bucket'"
        )
    check_row_unit(recipe, objective)
    heads_of = _apply_head_changes(preset, recipe.heads)
    heads = {n: s for n, s in heads_of.items() if required_term(n, s) in objective.loss_terms}
    if (rate := recipe.dropout) is not None:
        architecture = architecture.with_dropout(rate)
        heads = {
            n: replace(s, dropout=rate) if isinstance(s, SequenceClassification) else s
            for n, s in heads.items()
        }
    made = replace(preset, architecture=architecture, objective=objective, heads=heads)
    return with_expressible_format(made) if recipe.architecture else made


def _apply_head_changes(preset: Published, changes: Mapping[str, Any]) -> dict[str, HeadSpec]:
    """Return a card's heads, as the recipe has them, and those that any model can be asked by.

    Raises:
        ValueError: the recipe names a head that there is not, or what a head does not have.
    """
    found = available_heads(preset)
    for name, difference in changes.items():
        if name not in found:
            raise ValueError(f"heads: {unknown_key_message(name, found)}")
        if not isinstance(difference, Mapping):
            raise ValueError(f"heads.{name}: must be a table, got {difference!r}")
        spec = found[name]
        plain = recipes.merge(to_dict(spec), difference)
        found[name] = from_dict(type(spec), plain, f"heads.{name}")
    return found


def _load_initial_model(recipe: Recipe, preset: Published) -> LoadedModel | None:
    """Open the weights that the run begins with, in the network that the recipe makes of theirs.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: they are of another family, have no tokenizer, or do not fit the network.
    """
    if recipe.init_from is None:
        return None
    folder = resolve_model_folder(recipe.init_from)
    opened = _convert_family(
        load_folder(folder, as_large(preset.heads, folder), recipe.seed), preset
    )
    filled = load_generator_weights(folder, opened.model) | fill_subwords(folder, opened.model)
    opened = replace(opened, missing=tuple(n for n in opened.missing if n not in filled))
    if opened.preset.family != preset.family:
        raise ValueError(
            f"{recipe.init_from}: is a {opened.preset.family} model, the recipe's is "
            f"{preset.family}"
        )
    if opened.tokenizer is not None:
        opened.tokenizer.check_single_vocabulary(f"pretraining on from {recipe.init_from}")
    if opened.tokenizer is None and recipe.tokenizer is None:
        raise ValueError(
            f"{recipe.init_from}: has no tokenizer; name a folder that has one with --tokenizer"
        )
    if _lacks_output_vocabulary(
        opened.tokenizer, preset
    ):  # they are not published: new ones are learned
        opened = replace(opened, tokenizer=None)
    own = replace(preset, architecture=opened.preset.architecture, heads=opened.model.head_specs)
    own = apply_recipe(replace(own, unused_pooler=opened.preset.unused_pooler), recipe)
    with torch.device("meta"):
        model = own.build()
    weights = opened.model.state_dict()
    wanted = {name: x.shape for name, x in model.state_dict().items()}
    if odd := [
        n for n in wanted.keys() | weights.keys() if wanted.get(n) != _weight_shape(weights, n)
    ]:
        theirs, ours = to_dict(opened.preset.architecture), to_dict(own.architecture)
        other = [
            f"{name} {value} (it has {theirs.get(name)})"
            for name, value in ours.items()
            if value != theirs.get(name)
        ]
        raise ValueError(
            f"{recipe.init_from}: its weights do not fit the recipe's architecture: "
            f"{', '.join(other) or min(odd)}; leave that out, or begin from scratch"
        )
    model.load_state_dict(weights, assign=True)
    learned = model.requires_grad_(True)
    if learned.pooler is not None:
        learned.pooler.requires_grad_(False)
    return replace(opened, preset=own, model=learned)


def _lacks_output_vocabulary(tokenizer: Tokenizer | None, preset: Published) -> bool:
    """Say whether a tokenizer knows none of the subwords or words that a card's loss is about."""
    wanted = isinstance(preset.tokenizer.vocabulary, CodePointsWithSubwords | WordBytesWithWords)
    return wanted and tokenizer is not None and tokenizer.special_ids.output_vocabulary is None


def _convert_family(loaded_model: LoadedModel, preset: Published) -> LoadedModel:
    """Turn a model of a family that the card grows from into one of its own."""
    grow, wanted = preset.weight_converters.get(loaded_model.preset.family), preset.architecture
    if grow is None or not isinstance(wanted, Architecture):
        return loaded_model
    model = grow(loaded_model.model, wanted)
    own = replace(
        preset,
        architecture=model.architecture,
        heads=model.head_specs,
        unused_pooler=model.unused_pooler,
    )
    return replace(loaded_model, preset=own, model=model)


def _weight_shape(weights: Mapping[str, torch.Tensor], name: str) -> torch.Size | None:
    return weights[name].shape if name in weights else None


def _open_or_make_shards(
    recipe: Recipe, preset: Published, initial_model: LoadedModel | None, options: RunOptions
) -> TokenShards:
    """Open the run's tokens, or make them, if the tokenizer and the length fit the model."""
    ready = open_prepared(recipe.data)
    if ready is not None:
        return ready
    folder = options.output_folder / "data"
    if (folder / "shards.json").is_file():
        remove_unfinished_marker(folder)
        return TokenShards.open(folder)
    if (
        initial_model is not None
        and initial_model.tokenizer is not None
        and recipe.tokenizer is None
    ):
        tokenizer = initial_model.tokenizer
        if recipe.vocab_size not in (None, tokenizer.vocab_size):
            options.print_line(
                f"vocab_size = {recipe.vocab_size} is not used: {recipe.init_from} has a tokenizer"
            )
    else:
        tokenizer = load_or_train_tokenizer(recipe, folder, options.terminal, preset)
    if initial_model is not None:
        check_tokenizer_size(tokenizer, initial_model.model.vocab_size, str(recipe.init_from))
    preset.objective.max_text_length(_check_sequence_length(recipe, preset), tokenizer.special_ids)
    workers = max(1, options.n_workers)
    return tokenize_corpus(recipe, folder, tokenizer, n_workers=workers, terminal=options.terminal)


def _start_job(
    recipe: Recipe,
    preset: Published,
    initial_model: LoadedModel | None,
    options: RunOptions,
    world: World,
    environment_record: Mapping[str, Any],
) -> _PretrainingJob:
    """Build the model and lay out its data."""
    shards = _open_or_make_shards(recipe, preset, initial_model, replace(options, terminal=None))
    if initial_model is not None and (
        new := _reinitialized_heads(preset, initial_model, shards.tokenizer)
    ):
        options.print_line(
            f"new, drawn at random: {format_names(new)}, of other words than {recipe.init_from} "
            "knows"
        )
    model = build_network(preset, recipe, shards.tokenizer, initial_model)
    _freeze_parameters(model, recipe.frozen)
    preset = replace(preset, architecture=model.architecture, heads=model.head_specs)
    objective = preset.objective
    assert not isinstance(objective, WORD_VECTOR_METHODS)  # they are learned elsewhere
    where = (
        recipe.tokenizer or recipe.init_from or (recipe.data[0] if recipe.data else recipe.model)
    )
    check_special_tokens(objective, shards.tokenizer.special_ids, where)
    data = build_training_data(
        shards,
        recipe,
        objective,
        _check_sequence_length(recipe, preset),
        n_workers=options.n_workers,
        rank=world.rank,
        world_size=world.size,
    )
    if data.source_shares:
        options.print_line(
            f"sampling_exponent = {recipe.sampling_exponent:g}: "
            f"{_format_source_shares(data.source_shares)}"
        )
    if (
        note := check_sequence_labels(data, model, has_initial_weights=initial_model is not None)
    ) is not None:
        options.print_line(note)
    if world.rank == 0 and (note := data.batch_size_warning()) is not None:
        _log.warning("%s", note)
    return _PretrainingJob(
        options=options,
        run=loop.start_run(
            recipe,
            model,
            data.batches,
            world=world,
            learning_rate_factors=_learning_rate_factors(recipe, model),
        ),
        loaded_model=LoadedModel(
            preset=preset,
            model=model,
            tokenizer=shards.tokenizer,
            label_names=(),
            missing=(),
            unexpected=(),
        ),
        training_data=data,
        dev_batches=data.dev_batches(),
        dev_batches_by_component=data.dev_batches_by_component(),
        environment_record=environment_record,
    )


def _learning_rate_factors(recipe: Recipe, model: Model) -> dict[str, float] | None:
    """Return the factor of each parameter's rate; None where all are 1."""
    if recipe.layerwise_lr_decay == 1:
        return None
    return layerwise_lr_decay(
        parameters_by_layer_with_tied_output(model), recipe.layerwise_lr_decay
    )


def _format_source_shares(source_shares: Sequence[SourceShare]) -> str:
    """Say what share of the tokens each source has and gets, the first twenty."""
    each = [
        f"{s.name} has {s.token_share:.1%} of the tokens and gets {s.sampling_share:.1%}"
        for s in source_shares[:20]
    ]
    return "; ".join(
        [*each, f"and {len(source_shares) - 20} more"] if len(source_shares) > 20 else each
    )


def build_network(
    preset: Published,
    recipe: Recipe,
    tokenizer: Tokenizer,
    initial_model: LoadedModel | None = None,
) -> Model:
    """Return the network that a run begins with, for the ids of its tokenizer.

    Raises:
        ValueError: the tokenizer has more ids than the given weights have vectors; or this network
            has no heads that can look at the previous token, or cannot read a memory.
    """
    own = preset.with_vocabulary(tokenizer.special_ids)
    if initial_model is None:
        model = own.build().initialize(recipe.seed)
        if recipe.memory_length:
            model.check_supports_memory()
        if recipe.init_previous_token_heads:
            init_previous_token_heads(model.networks, recipe.init_previous_token_heads)
        return model
    check_tokenizer_size(tokenizer, initial_model.model.vocab_size, str(recipe.init_from))
    model = initial_model.model
    if recipe.memory_length:
        model.check_supports_memory()
    other = {name: spec for name, spec in own.heads.items() if spec != model.head_specs[name]}
    for name, spec in other.items():
        model.add_head(name, spec)
    if other:
        new = tuple(f"heads.{name}." for name in other)
        model.initialize(recipe.seed, [n for n in model.own_weights() if not n.startswith(new)])
    return model.train()


def _reinitialized_heads(
    preset: Published, initial_model: LoadedModel, tokenizer: Tokenizer
) -> list[str]:
    """Name the heads whose weights the run has, but of another vocabulary than that they ask."""
    wanted = preset.with_vocabulary(tokenizer.special_ids).heads
    heads = [n for n, spec in wanted.items() if spec != initial_model.model.head_specs[n]]
    return [n for n in heads if not any(x.startswith(f"heads.{n}.") for x in initial_model.missing)]


def _freeze_parameters(model: Model, patterns: Sequence[str]) -> None:
    """Keep some parameters as they are.

    Raises:
        ValueError: there are none of such a name, or nothing is left to learn.
    """
    named = dict(model.named_parameters())
    for pattern in patterns:
        frozen = [name for name in named if fnmatchcase(name, pattern)]
        if not frozen:
            raise ValueError(
                f"frozen: no parameter is called {pattern!r} (they are {', '.join(named)})"
            )
        for name in frozen:
            named[name].requires_grad_(False)
    if not any(p.requires_grad for p in named.values()):
        raise ValueError(f"frozen: {', '.join(patterns)} leaves nothing to be learned")


def _check_sequence_length(recipe: Recipe, preset: Published) -> int:
    length = preset.sequence_length if recipe.sequence_length is None else recipe.sequence_length
    longest = max_text_tokens(preset)
    if longest is not None and length > longest:
        raise ValueError(
            f"sequence_length must be at most the model's {longest} positions, got {length}"
        )
    return length


def _restore_or_begin(job: _PretrainingJob) -> Checkpoint | None:
    """Go back to the newest whole checkpoint, if there is one; else fix what the run will be."""
    plan, run, first = job.options, job.run, job.run.world.rank == 0
    checkpoint, damaged = None, list[str]()
    if plan.resumed_run is not None:
        checkpoint, damaged = find_newest_checkpoint(plan.output_folder, run.world)
    for line in damaged:
        plan.print_line(line)
    if checkpoint is not None:
        restore_run(run, checkpoint)
        assert plan.resumed_run is not None
        if first and run.recipe.steps != plan.resumed_run.recipe.steps:
            job.write_run_file()  # it is the longer run from here on
        plan.print_line(f"going on after step {run.progress.step:,} of {run.recipe.steps:,}")
        return checkpoint
    if plan.minutes is not None:
        plan.print_line(f"measuring how many steps fit into {plan.minutes:g} minutes")
        run.recipe = _with_run_length(run.recipe, loop.estimate_steps(run, plan.minutes))
        run.batches = replace(job.training_data, recipe=run.recipe).batches
    if (note := _schedule_note(run.recipe)) is not None:
        plan.print_line(note)
    if first:
        job.write_run_file()
        _save_initial_results(job)
    return None


def _save_initial_results(job: _PretrainingJob) -> None:
    """Keep what the untrained model predicts, and what simple baselines reach on held-out text."""
    if not job.dev_batches:
        return
    with best_effort(BASELINES_FILE):
        _save_baselines(job)
    with best_effort(SAMPLES_FILE):
        save_samples(
            job.options.output_folder, held_out_samples(job.loaded_model, job.training_data)
        )


def _save_baselines(job: _PretrainingJob) -> None:
    opened, specs = job.loaded_model, job.loaded_model.model.head_specs
    spec = specs.get("language") or specs.get("generator")
    if spec is not None and not isinstance(opened.model.backbone, EncoderDecoder):
        table = count_bigrams(job.training_data.shards, job.training_data.train_spans)
        name = f"{required_term('language', spec)}_accuracy"
        save_baselines(job.options.output_folder, {name: table.accuracy(job.dev_batches)})


def _flops_per_token(job: _PretrainingJob) -> float:
    """Count FLOPs of a training step a token, from the target positions of held-out batches."""
    tokens = sum(map(loop.count_tokens, job.dev_batches))
    n_targets = sum(map(_count_target_positions, job.dev_batches))
    return job.loaded_model.model.flops(
        job.training_data.max_length, n_targets / tokens if tokens else 1.0
    )


def _count_target_positions(batch: Batch) -> int:
    if batch.target_positions is not None:
        return batch.target_positions.numel()
    return 0 if batch.targets is None else batch.targets.numel()


def _take_steps(job: _PretrainingJob) -> bool:
    """Take the steps that are left, with evaluations and checkpoints; False if someone stops it."""
    recipe, world = job.run.recipe, job.run.world
    peak = (
        distributed.matmul_peak_flops(distributed.weight_dtype(recipe.precision), world.device)
        * world.size
    )
    log = None
    if world.rank == 0:
        log = TrainingLog(
            job.options.output_folder,
            flops_per_token=_flops_per_token(job),
            peak_flops=peak,
            memory_usage=lambda: distributed.peak_memory_bytes(world.device),
            terminal=job.options.terminal,
            tensorboard=job.options.tensorboard,
        )
    shards = job.training_data.shards
    with (
        log or nullcontext(),
        stop_after_step() as stop,
        ShardVerifier(shards) if world.rank == 0 else nullcontext() as intact,
    ):
        for report in loop.train(job.run):
            last = report.step == recipe.steps
            if log is not None:
                log(report)
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
            stopped = stop.is_requested_anywhere(world)
            if last or stopped or report.step % recipe.checkpoint_every == 0:
                if intact is not None:
                    intact.wait()
                save_checkpoint(job.run, job.options.output_folder)
            if stopped and not last:
                return False
    return True


def _finish_job(job: _PretrainingJob) -> None:
    """Write the trained model, and say at the very end that the run is finished."""
    out, progress = job.options.output_folder, job.run.progress
    if (
        job.run.recipe.init_from is None
    ):  # no objective has global tokens, so nothing was learned of them
        copy_to_global_attention(job.loaded_model.model)
    figures = {"trained on": f"{progress.n_tokens:,} tokens in {progress.step:,} steps"}
    files = _write_final_model(out, job.loaded_model, figures)
    if job.dev_batches:
        before = None
        with best_effort(f"{SAMPLES_FILE} before training"):
            before = read_samples(out / SAMPLES_FILE)
        with best_effort(SAMPLES_FILE):
            save_samples(out, held_out_samples(job.loaded_model, job.training_data, before or ()))
    job.write_run_file(files)
    _write_report_if_possible(out)


def _write_report_if_possible(output_folder: Path) -> None:
    with best_effort("report.html"):
        write_report(output_folder)


def _write_final_model(
    output_folder: Path, loaded_model: LoadedModel, card_entries: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a trained model into its run's folder, whole; say what is to be known of its files."""
    beside = output_folder / ".final.part"
    if beside.exists():
        shutil.rmtree(beside)
    write_model(beside, loaded_model, card_entries)
    files = record_files(beside)
    merge_folder(beside, output_folder, last_name="config.json")
    return files
