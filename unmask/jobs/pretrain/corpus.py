"""The shards of a run: options are checked first, then shards opened or made."""

import tempfile
from pathlib import Path

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.checkpoints.huggingface.tokenizer import check_tokenizer_size
from unmask.config import to_dict
from unmask.jobs.prepare import (
    DOCUMENT_OPTIONS,
    check_prepared_options,
    check_sources,
    load_or_train_tokenizer,
    tokenize_corpus,
)
from unmask.jobs.pretrain.apply_recipe import check_sequence_length
from unmask.jobs.pretrain.resolve_options import RunOptions
from unmask.shards.manifest import folder_sha256
from unmask.shards.read import TokenShards
from unmask.shards.write import remove_unfinished_marker
from unmask.tokenizers.load import load_tokenizer, with_data_languages
from unmask.tokenizers.spec import (
    SpecialTokenIds,
    SpecialTokens,
)
from unmask.training.config import Recipe
from unmask.training.data import (
    check_languages,
    check_sampling,
    open_prepared,
)
from unmask.zoo.catalogue import get_preset
from unmask.zoo.preset import Published


def check_data(recipe: Recipe, initial_model: LoadedModel | None, options: RunOptions) -> None:
    """Check data options without reading the text, before anything is written."""
    if not recipe.data:
        raise ValueError(
            "no data: give text files, folders or hf:owner/name with --data; only a resumed run "
            f"needs none, and {options.output_folder} has no run"
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
            TokenShards.open(Path(source))  # raises if unfinished
    check_sources(recipe.data)


def _language_tokens(
    recipe: Recipe, initial_model: LoadedModel | None
) -> SpecialTokenIds | SpecialTokens:
    """Return the special tokens with the languages of the run."""
    if recipe.tokenizer is not None:
        return load_tokenizer(Path(recipe.tokenizer)).special_ids
    if initial_model is not None and initial_model.tokenizer is not None:
        return initial_model.tokenizer.special_ids
    return with_data_languages(get_preset(recipe.model).tokenizer.special_tokens, recipe.data)


def _check_prepared(recipe: Recipe, shards: TokenShards, initial_model: LoadedModel | None) -> None:
    """Check that the requested options are those of the prepared data."""
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


def open_or_make_shards(
    recipe: Recipe, preset: Published, initial_model: LoadedModel | None, options: RunOptions
) -> TokenShards:
    """Open or make the run's shards, if the tokenizer and the length fit the model."""
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
    preset.objective.max_text_length(check_sequence_length(recipe, preset), tokenizer.special_ids)
    workers = max(1, options.n_workers)
    return tokenize_corpus(recipe, folder, tokenizer, n_workers=workers, terminal=options.terminal)
