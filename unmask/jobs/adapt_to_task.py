"""Task-adaptive pretraining: pretraining continues on the text of the task."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from unmask.adapters.folder import is_adapter
from unmask.checkpoints.huggingface.read import read_config, resolve_model_folder
from unmask.files import atomic_path, write_atomically
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.job.finetune_job import FinetuneJob
from unmask.finetuning.methods.adapt_first import ADAPTATION_FOLDER, TaskAdaptivePretraining
from unmask.finetuning.options.derived import default_learning_rate
from unmask.inference.expand_vocabulary import add_words
from unmask.inference.export import is_finished_run, write_model
from unmask.inference.open_model import load
from unmask.jobs.corpus.prepare import check_sources, prepare
from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.jobs.pretrain.resolve_options import DEFAULT_MICRO_BATCH_TOKENS, preset_recipe
from unmask.jobs.pretrain.resumed_run import recipe_of
from unmask.reports.report_data import RUN_FILE
from unmask.shards.read import TokenShards
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.text.documents import read_documents
from unmask.training import config as recipes
from unmask.training.config import Recipe
from unmask.training.optimizers.layerwise import (
    default_layerwise_lr_decay,
    parameters_by_layer_with_tied_output,
)
from unmask.training.schedules import SlantedTriangular
from unmask.zoo.catalogue import get_preset, is_preset_name, preset_for_config

TASK_TEXT_FOLDER = "in-domain-text"
"""Subfolder of a fine-tuning run with the text of the task."""


def check_adaptation(config: FinetuneConfig, *, model_given: bool = False) -> None:
    """Check the adaptation stage of a config, before anything is written.

    Args:
        config: the config.
        model_given: whether a loaded model is given in place of `config.base`.

    Raises:
        FileNotFoundError: the model or a file of text is missing.
        ValueError: the model is not pretrained, or the changes of its recipe are invalid.
    """
    if model_given:
        raise ValueError(
            "adapt_first needs the folder of a model: give that folder, not a loaded model"
        )
    recipe = adaptation_recipe(config)
    apply_recipe(get_preset(recipe.model), recipe)
    if text_files := _adaptation(config).unlabeled:
        check_sources(text_files)


def adapt_to_task_text(job: FinetuneJob) -> Path:
    """Run or resume the pretraining of a model on the text of a job; return its folder.

    Raises:
        ValueError: the text cannot be read, or there is too little of it.
        FloatingPointError: the loss stays non-finite.
        KeyboardInterrupt: it was stopped.
    """
    out, recipe = job.folder / ADAPTATION_FOLDER, adaptation_recipe(job.config)
    is_resumed = (out / RUN_FILE).is_file()
    if is_finished_run(out):
        return out
    sources = _write_task_text(job, recipe)
    recipe = replace(recipe, init_from=_initial_model_with_words(job, recipe, sources))
    text = _tokenize_task_text(job, recipe, sources)
    epochs, changed = _adaptation(job.config).epochs, _changed_keys(job.config)
    tokens = math.ceil(epochs * text.n_tokens * (1 - recipe.dev_fraction))
    job.print_progress(f"first, pretraining on {text.n_tokens:,} tokens of the task's domain")
    pretrain(
        recipe,
        data=text.folder,
        out=out,
        tokens=None if "steps" in changed else tokens,
        resume=is_resumed,
        device=str(job.world.device),
        threads=job.run_record["environment"]["threads"],
        quiet=job.terminal is None,
    )
    return out


def adaptation_recipe(config: FinetuneConfig) -> Recipe:
    """Return the recipe of continued pretraining, without its length.

    It is that of the pretraining run; for other models that of the preset, with the usual
    fine-tuning rate for a model of this size.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: it is not pretrained, or a change is invalid.
    """
    if is_preset_name(config.base):
        raise ValueError(
            f"adapt_first: {config.base} is a preset without weights; pretrain it first (unmask "
            f"pretrain {config.base} ...) and name the run's folder"
        )
    folder = resolve_model_folder(config.base)
    if is_adapter(folder):
        raise ValueError(
            f"adapt_first: {config.base} is an adapter; merge it first (unmask "
            f"convert {config.base} FOLDER)"
        )
    pipeline = load(config.base)
    recipe_of_run = recipe_of(folder)
    if recipe_of_run is None:
        usual = preset_recipe(preset_for_config(read_config(folder)).name)
        length = pipeline.preset.sequence_length
        recipe_of_run = replace(
            usual,
            objective=pipeline.preset.objective,
            sequence_length=length,
            batch_tokens=max(length, min(usual.batch_tokens, DEFAULT_MICRO_BATCH_TOKENS)),
            micro_batch_tokens=None,
            learning_rate=default_learning_rate(
                pipeline.model.parameter_count(), uses_word_labels=False
            ),
        )
    usual = Recipe(model=recipe_of_run.model)
    recipe = replace(
        recipe_of_run,
        init_from=config.base,
        data=(),
        **{name: getattr(usual, name) for name in _RESET_KEYS},
        schedule=SlantedTriangular(),
        layerwise_lr_decay=default_layerwise_lr_decay(
            len(parameters_by_layer_with_tied_output(pipeline.model))
        ),
        encoding_errors=config.encoding_errors,
        precision=config.precision,
        seed=config.seed,
    )
    return recipes.apply_changes(recipe, _adaptation(config).changes, origin="--adapt-set")


_RESET_KEYS = (
    "document_separator", "text_column", "sampling_exponent", "source_weights", "tokenizer",
    "vocab_size", "character_coverage", "init_previous_token_heads", "frozen", "steps",
    "dev_fraction",
)  # fmt: skip
"""Keys of the pretraining run that are specific to its text or its start."""


def _adaptation(config: FinetuneConfig) -> TaskAdaptivePretraining:
    assert config.adapt_first is not None
    return config.adapt_first


def _changed_keys(config: FinetuneConfig) -> set[str]:
    """Return the changed keys of the recipe."""
    return {change.partition("=")[0].strip() for change in _adaptation(config).changes}


def _write_task_text(job: FinetuneJob, recipe: Recipe) -> list[str | Path]:
    """Write the text of the task, unless it exists; return it and the other sources.

    Records have the text in the same column as the rows.
    """
    rows = job.folder / TASK_TEXT_FOLDER / "rows.jsonl"
    rows.parent.mkdir(exist_ok=True)
    if not rows.is_file():
        column = _text_column(job, recipe)
        lines = (
            json.dumps({column: text}, ensure_ascii=False) + "\n" for text in _training_texts(job)
        )
        write_atomically(rows, "".join(lines))
    return [rows, *_adaptation(job.config).unlabeled]


def _text_column(job: FinetuneJob, recipe: Recipe) -> str:
    return recipe.text_column or job.task.columns.texts[0]


def _initial_model_with_words(
    job: FinetuneJob, recipe: Recipe, sources: Sequence[str | Path]
) -> str:
    """Return the initial model: if it is word-level, one expanded by the words of the text.

    It is made once, in the folder of the text.
    """
    adaptation, folder = _adaptation(job.config), job.folder / TASK_TEXT_FOLDER / "model"
    if (folder / "config.json").is_file():
        return str(folder)
    loaded = load(job.config.base).loaded_model
    tokenizer = loaded.tokenizer
    if adaptation.min_count is None or tokenizer is None or tokenizer.algorithm != "WordLevel":
        return job.config.base
    texts = read_documents(
        sources,
        document_separator=recipe.document_separator,
        text_column=_text_column(job, recipe),
        encoding_errors=recipe.encoding_errors,
    )
    counts, vocabulary = (
        tokenizer.count_words(text.text for text in texts),
        tokenizer.word_vocabulary(),
    )
    new = [
        word for word, n in counts.items() if n >= adaptation.min_count and word not in vocabulary
    ]
    new = sorted(new, key=lambda word: (-counts[word], word))
    new = new[: max(0, adaptation.max_vocab_size - tokenizer.vocab_size)]
    if not new:
        return job.config.base
    message = f"{len(new):,} words of its domain are new to the model, {new[0]!r} the most frequent"
    try:
        loaded = add_words(loaded, new)
    except ValueError as error:
        job.print_progress(f"{message}; they stay unknown: {error}")
        return job.config.base
    job.print_progress(message)
    with atomic_path(folder) as beside:
        write_model(beside, loaded, {"words added": len(new)})
    return str(folder)


def _tokenize_task_text(
    job: FinetuneJob, recipe: Recipe, sources: Sequence[str | Path]
) -> TokenShards:
    """Tokenize the text of the task, unless done."""
    assert recipe.init_from is not None
    return prepare(
        sources,
        out=job.folder / TASK_TEXT_FOLDER / "tokens",
        model=recipe.model,
        tokenizer=resolve_model_folder(recipe.init_from),
        document_separator=recipe.document_separator,
        text_column=_text_column(job, recipe),
        encoding_errors=recipe.encoding_errors,
        sampling_exponent=recipe.sampling_exponent,
        quiet=job.terminal is None,
    )


def _training_texts(job: FinetuneJob) -> Iterator[str]:
    """Yield the texts of the training rows, pairs as two paragraphs."""
    between = " " if TASK_KINDS[job.task.task_kind].reader.word_per_line else "\n"
    return (between.join(item.texts) for item in job.data.train)
