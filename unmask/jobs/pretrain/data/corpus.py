"""The data of a run: options are checked first, then shards or pictures opened or made."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.checkpoints.huggingface.tokenizer import check_tokenizer_size
from unmask.config import to_dict
from unmask.jobs.corpus.prepare import (
    DOCUMENT_OPTIONS,
    check_prepared_options,
    check_sources,
    load_or_train_tokenizer,
    tokenize_corpus,
)
from unmask.jobs.pretrain.apply_recipe import check_sequence_length
from unmask.jobs.pretrain.data.pictures import (
    PictureCorpus,
    check_picture_data,
    open_or_make_pictures,
)
from unmask.jobs.pretrain.resolve_options import RunOptions
from unmask.objectives.published import ObjectiveSpec
from unmask.shards.manifest import folder_sha256
from unmask.shards.read import TokenShards
from unmask.shards.write import remove_unfinished_marker
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.load import load_tokenizer, with_data_languages
from unmask.tokenizers.spec import (
    SpecialTokenIds,
    SpecialTokens,
)
from unmask.training.config import Recipe
from unmask.training.data.sources import check_languages, check_sampling, open_prepared
from unmask.training.data.texts import TrainingData, build_training_data
from unmask.training.device.distributed import World
from unmask.zoo.catalogue import get_preset
from unmask.zoo.preset import Published


@dataclass(frozen=True, kw_only=True, eq=False)
class TextCorpus:
    """Tokenized texts."""

    shards: TokenShards

    @property
    def tokenizer(self) -> Tokenizer:
        """That of the shards."""
        return self.shards.tokenizer

    @property
    def special_ids(self) -> SpecialTokenIds:
        """Those of the tokenizer."""
        return self.shards.tokenizer.special_ids

    @property
    def preprocessing(self) -> None:
        """None: there are no pictures."""
        return

    def training_data(
        self,
        recipe: Recipe,
        preset: Published,
        objective: ObjectiveSpec,
        max_length: int,
        n_workers: int,
        world: World,
    ) -> TrainingData:
        """Split the texts into rows that are trained on and rows that are held out.

        Raises:
            ValueError: as `build_training_data`.
        """
        return build_training_data(
            self.shards, recipe, objective, max_length,
            n_workers=n_workers, rank=world.rank, world_size=world.size,
        )  # fmt: skip


def open_or_make_corpus(
    recipe: Recipe, preset: Published, initial_model: LoadedModel | None, options: RunOptions
) -> TextCorpus | PictureCorpus:
    """Open or make what a run reads: shards of text, or pictures.

    Raises:
        FileNotFoundError: a source is missing.
        ValueError: it cannot be read, or does not fit the model.
    """
    if preset.reads_pictures:
        return open_or_make_pictures(recipe, preset, initial_model, options)
    return TextCorpus(shards=open_or_make_shards(recipe, preset, initial_model, options))


def check_data(
    recipe: Recipe, preset: Published, initial_model: LoadedModel | None, options: RunOptions
) -> None:
    """Check data options without reading the data, before anything is written."""
    if not recipe.data:
        raise ValueError(
            "no data: give text files, folders or hf:owner/name with --data; only a resumed run "
            f"needs none, and {options.output_folder} has no run"
        )
    if preset.reads_pictures:
        check_picture_data(recipe, preset, options)
        return
    if recipe.pictures is not None or recipe.image_size is not None:
        key = "image_size" if recipe.pictures is None else "pictures"
        raise ValueError(f"{key}: {preset.name} reads texts, not pictures")
    ready = open_prepared(recipe.data, options.remote)
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
    check_prepared_options(recipe.data[0], shards.manifest, to_dict(recipe), option_names)
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
    ready = open_prepared(recipe.data, options.remote)
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
