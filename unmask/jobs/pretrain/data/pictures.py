"""The pictures of a run, decoded once, and the tokens of their captions."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Int

from unmask.checkpoints.huggingface.preprocessing import preset_preprocessing
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.checkpoints.huggingface.tokenizer import check_tokenizer_size
from unmask.files import atomic_path, encode_utf8
from unmask.images.decode import DecodeSummary
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.reading import PictureOptions, open_or_write_store
from unmask.images.sources import read_images
from unmask.images.store import ImageStore
from unmask.images.store_manifest import MANIFEST_FILE
from unmask.jobs.corpus.prepare import load_or_train_tokenizer, tokenize_corpus
from unmask.jobs.pretrain.resolve_options import RunOptions
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.objectives.inputs.pictures import picture_special_ids
from unmask.objectives.published import ObjectiveSpec
from unmask.shards.read import TokenShards
from unmask.shards.write import remove_unfinished_marker
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.training.config import Recipe
from unmask.training.data.pictures import (
    PictureTrainingData,
    caption_rows,
    picture_rows,
    split_pictures,
)
from unmask.training.device.distributed import World
from unmask.zoo.preset import Published

STORE_FOLDER, CAPTIONS_FOLDER, CAPTIONS_FILE = "pictures", "captions", "captions.txt"
"""In the folder of a run's data."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PictureCorpus:
    """Pictures of the size that a network reads, and their captions where it reads some."""

    store: ImageStore
    preprocessing: ImagePreprocessing
    captions: TokenShards | None
    """A document for each caption, in the order of the pictures."""
    stack: VisionArchitecture
    """What reads the pictures."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Of the captions; None: the network reads none."""
        return None if self.captions is None else self.captions.tokenizer

    @property
    def special_ids(self) -> SpecialTokenIds:
        """Of the tokens of rows: captions, or patches."""
        if self.captions is not None:
            return self.captions.tokenizer.special_ids
        return picture_special_ids(distillation=self.stack.has_distillation_token)

    def training_data(
        self,
        recipe: Recipe,
        preset: Published,
        objective: ObjectiveSpec,
        max_length: int,
        n_workers: int,
        world: World,
    ) -> PictureTrainingData:
        """Split the pictures, with their captions, into what is trained on and what is held out.

        Raises:
            ValueError: none is left to train on.
        """
        train, dev = split_pictures(len(self.store), recipe.dev_fraction, recipe.seed)
        n_patches, n_cut = self.stack.n_patches, 0
        if self.captions is None:
            max_length = len(self.stack.picture_ids)
            rows = [picture_rows(self.store, numbers, n_patches) for numbers in (train, dev)]
        else:
            pictures = picture_of_captions(self.store)
            longest = objective.max_text_length(max_length, self.special_ids)
            cut = [
                caption_rows(self.store, self.captions, pictures, numbers, longest)
                for numbers in (train, dev)
            ]
            rows, n_cut = [some for some, _ in cut], sum(n for _, n in cut)
        encoder_ids = self.stack.picture_ids if preset.architecture.is_encoder_decoder else ()
        return PictureTrainingData(
            store=self.store,
            preprocessing=self.preprocessing,
            objective=objective,
            recipe=recipe,
            max_length=max_length,
            train_rows=rows[0],
            dev_rows=rows[1],
            special_ids=self.special_ids,
            tokenizer=self.tokenizer,
            encoder_ids=encoder_ids,
            n_cut=n_cut,
            n_workers=n_workers,
            rank=world.rank,
            world_size=world.size,
        )


def check_picture_objective(preset: Published) -> None:
    """Check that a preset learns without labels.

    Raises:
        ValueError: it learns labels.
    """
    if "label" in preset.objective.loss_terms:
        raise ValueError(
            f"{preset.name}: labels of pictures are learned by `unmask finetune --task classify`; "
            "to pretrain, hide patches, as vit-mini does"
        )


def check_picture_data(recipe: Recipe, preset: Published, options: RunOptions) -> None:
    """Check that there are pictures, and that the recipe asks for nothing that is of texts alone.

    Raises:
        FileNotFoundError: a source is missing.
        ValueError: there is no source, or a key is of texts.
    """
    check_picture_objective(preset)
    if recipe.row_unit not in ("document", "corpus") or recipe.packing != "bucket":
        raise ValueError(
            f"row_unit = {recipe.row_unit}, packing = {recipe.packing}: a row is one picture; "
            "leave 'document' and 'bucket'"
        )
    if recipe.reshuffle_documents:
        raise ValueError("reshuffle_documents: a row is one picture; leave it false")
    if recipe.sampling_exponent != 1:
        raise ValueError("sampling_exponent: sources of pictures are not sampled; leave 1")
    if recipe.source_weights:
        raise ValueError("source_weights: sources of pictures are not sampled; leave them out")
    if not (options.output_folder / "data" / STORE_FOLDER / MANIFEST_FILE).is_file():
        own = recipe.pictures or PictureOptions()
        read_images(recipe.data, own.columns, pictures=own.folder)


def open_or_make_pictures(
    recipe: Recipe, preset: Published, initial_model: LoadedModel | None, options: RunOptions
) -> PictureCorpus:
    """Open or make the run's pictures, and learn a tokenizer of their captions if it needs one.

    Raises:
        FileNotFoundError: a source is missing.
        ValueError: a picture cannot be read, or there are no captions where some are needed.
    """
    folder, stack = options.output_folder / "data", preset.architecture.picture_stack
    how = preset_preprocessing(preset)
    if initial_model is not None and initial_model.preprocessing is not None:
        how = _with_size_of(initial_model.preprocessing, how)
    assert stack is not None
    assert how is not None
    store = _open_or_make_store(recipe, how, folder / STORE_FOLDER, options)
    captions = None
    if preset.reads_texts:
        captions = _open_or_make_captions(recipe, preset, initial_model, options, store)
    return PictureCorpus(
        store=store, preprocessing=how, captions=captions, stack=cast(VisionArchitecture, stack)
    )


def _with_size_of(
    initial: ImagePreprocessing, own: ImagePreprocessing | None
) -> ImagePreprocessing:
    """Return the preprocessing of initial weights, for pictures of the size of this network."""
    if own is None or initial.size == own.size:
        return initial
    return replace(initial, resize=own.resize, crop=None)


def _open_or_make_store(
    recipe: Recipe, how: ImagePreprocessing, folder: Path, options: RunOptions
) -> ImageStore:
    if (folder / MANIFEST_FILE).is_file():
        return ImageStore.open(folder, verify_contents=True)
    summary = DecodeSummary()
    options.print_line(f"decoding pictures of {', '.join(recipe.data)}")
    own = recipe.pictures or PictureOptions()
    store = open_or_write_store(recipe.data, folder, own, how, summary)
    for note in summary.notes():
        options.print_line(note)
    return store


def iterate_captions(store: ImageStore) -> Iterator[tuple[int, str]]:
    """Yield each caption that is not blank, on one line, and the number of its picture."""
    for i in range(len(store)):
        for caption in store.captions(i):
            if line := " ".join(caption.split()):
                yield i, line


def picture_of_captions(store: ImageStore) -> Int[np.ndarray, "n"]:
    """Return the number of each caption's picture."""
    return np.array([i for i, _ in iterate_captions(store)], np.int64)


def _open_or_make_captions(
    recipe: Recipe,
    preset: Published,
    initial_model: LoadedModel | None,
    options: RunOptions,
    store: ImageStore,
) -> TokenShards:
    folder = options.output_folder / "data" / CAPTIONS_FOLDER
    if (folder / "shards.json").is_file():
        remove_unfinished_marker(folder)
        return TokenShards.open(folder)
    path = folder.parent / CAPTIONS_FILE
    n = len(picture_of_captions(store))
    if not n:
        raise ValueError(
            f"{', '.join(recipe.data)}: none of {len(store):,} pictures has a caption, which "
            f"{preset.name} learns from; name the column with --set pictures.columns.captions"
        )
    if not path.is_file():
        with atomic_path(path) as beside:
            lines = (line for _, line in iterate_captions(store))
            beside.write_bytes(encode_utf8("\n".join(lines) + "\n"))
    of_captions = replace(recipe, data=(str(path),), document_separator="line", text_column=None)
    tokenizer = None if initial_model is None else initial_model.tokenizer
    if tokenizer is None or recipe.tokenizer is not None:
        tokenizer = load_or_train_tokenizer(of_captions, folder, options.terminal, preset)
    if initial_model is not None:
        check_tokenizer_size(tokenizer, initial_model.model.vocab_size, str(recipe.init_from))
    shards = tokenize_corpus(
        of_captions,
        folder,
        tokenizer,
        n_workers=max(1, options.n_workers),
        terminal=options.terminal,
    )
    if len(shards.document_spans) != n:
        raise ValueError(
            f"{path}: {n - len(shards.document_spans):,} of {n:,} captions have no token; leave "
            "these captions out"
        )
    return shards
