"""Rows that a plan counts and tries: of the bundled text, or of pictures of noise."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import cast

import numpy as np

from unmask.bundled.demo import bundled_path
from unmask.checkpoints.huggingface.preprocessing import preset_preprocessing
from unmask.images.records import ImageRecord
from unmask.images.store import write_images
from unmask.jobs.pretrain.apply_recipe import check_sequence_length
from unmask.jobs.pretrain.data.pictures import PictureCorpus, check_picture_objective
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.objectives.published import ObjectiveSpec
from unmask.planning.rows import (
    RowShape,
    sample_row_shape,
    sample_shards,
    sample_tokenizer,
    shape_of_batches,
)
from unmask.shards.read import TokenShards
from unmask.shards.write import write_shards
from unmask.text.documents import Document, read_documents
from unmask.tokenizers.encode import Tokenizer
from unmask.training.config import Recipe
from unmask.training.data.pictures import RunData
from unmask.training.data.texts import build_training_data
from unmask.training.device.distributed import World
from unmask.zoo.preset import Published

N_PICTURES = 64
CAPTION_WORDS = 12
"""Words of a caption: Flickr8k's have 11.8 in the mean (Hodosh et al. 2013), with punctuation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedRows(ABC):
    """Some rows of the kind that a run reads."""

    preset: Published
    shape: RowShape
    """Their mean shape."""
    tokenizer: Tokenizer | None
    """A small one of their texts; None: they have none."""

    @abstractmethod
    def training_data(self, recipe: Recipe, objective: ObjectiveSpec) -> RunData:
        """Return them as what a run trains on."""

    def with_vocabulary(self, size: int) -> Published:
        """Return the preset with the special ids of the tokenizer, and so many ids."""
        if self.tokenizer is None:
            return self.preset
        return self.preset.with_vocabulary(replace(self.tokenizer.special_ids, vocab_size=size))


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedTexts(PlannedRows):
    """Rows of the bundled text."""

    tokenizer: Tokenizer
    folder: Path
    """For the tokens."""

    def training_data(self, recipe: Recipe, objective: ObjectiveSpec) -> RunData:
        """Return the text as what a run trains on."""
        folder = self.folder / "text"
        written = (folder / "shards.json").is_file()
        shards = TokenShards.open(folder) if written else sample_shards(self.tokenizer, folder)
        return build_training_data(shards, recipe, objective, self.shape.length)


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedPictures(PlannedRows):
    """Pictures of noise, of the size that the network reads, with captions where it learns some."""

    corpus: PictureCorpus
    length: int
    """Tokens of a caption, at most."""

    def training_data(self, recipe: Recipe, objective: ObjectiveSpec) -> RunData:
        """Return the pictures as what a run trains on."""
        return self.corpus.training_data(recipe, self.preset, objective, self.length, 0, World())


def make_planned_rows(
    recipe: Recipe, preset: Published, objective: ObjectiveSpec, folder: Path
) -> PlannedRows:
    """Return rows of the kind that a preset reads.

    Args:
        recipe: of the run.
        preset: as the recipe changes it.
        objective: that of the preset.
        folder: for files that are made.

    Raises:
        ValueError: the preset learns labels of pictures, which `pretrain` does not.
    """
    if preset.reads_pictures:
        return _make_pictures(recipe, preset, objective, folder)
    tokenizer = sample_tokenizer(preset, recipe.vocab_size)
    shape = sample_row_shape(tokenizer, objective, check_sequence_length(recipe, preset))
    return PlannedTexts(preset=preset, shape=shape, tokenizer=tokenizer, folder=folder)


def _make_pictures(
    recipe: Recipe, preset: Published, objective: ObjectiveSpec, folder: Path
) -> PlannedPictures:
    check_picture_objective(preset)
    how, stack = preset_preprocessing(preset), preset.architecture.picture_stack
    assert how is not None
    assert stack is not None
    a, tokenizer, shards = cast(VisionArchitecture, stack), None, None
    captions = [*islice(_captions(), N_PICTURES)] if preset.reads_texts else []
    store = write_images(_noise(a, captions), folder / "pictures", how)
    if preset.reads_texts:
        tokenizer = sample_tokenizer(preset, recipe.vocab_size)
        texts = (Document(text=one, location=f"caption {i}") for i, one in enumerate(captions))
        shards = write_shards(texts, tokenizer, folder / "captions")
    corpus = PictureCorpus(store=store, preprocessing=how, captions=shards, stack=a)
    length = check_sequence_length(recipe, preset)
    counted = replace(recipe, dev_fraction=0.0)
    data = corpus.training_data(counted, preset, objective, length, 0, World())
    shape = shape_of_batches(data.sample_batches(), data.max_length)
    return PlannedPictures(
        preset=preset, shape=shape, tokenizer=tokenizer, corpus=corpus, length=length
    )


def _captions() -> Iterator[str]:
    """Yield pieces of the bundled text that are as long as captions, for ever."""
    words = [w for one in read_documents(bundled_path("novels")) for w in one.text.split()]
    pieces = (words[i : i + CAPTION_WORDS] for i in range(0, 1000 * CAPTION_WORDS, CAPTION_WORDS))
    return cycle(" ".join(piece) for piece in pieces)


def _noise(a: VisionArchitecture, captions: Sequence[str]) -> Iterator[ImageRecord]:
    """Yield pictures of noise, each with a caption if there are any."""
    draw = np.random.default_rng(0)
    shape = (*a.image_size, 3)
    for i in range(N_PICTURES):
        pixels = draw.integers(0, 256, shape, dtype=np.uint8)
        yield ImageRecord(
            location=f"noise {i}",
            name=str(i),
            load=lambda pixels=pixels: pixels,
            captions=tuple(captions[i : i + 1]),
        )
