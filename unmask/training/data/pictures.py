"""Pictures, alone or with captions, that a recipe trains on, and the batches made of them."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch
from unmask.batching.loader import BatchLoader
from unmask.batching.pictures import CaptionSource, PictureObjective, PictureSource
from unmask.batching.plan import DataCursor
from unmask.config import from_dict, to_dict
from unmask.images.augmentation import ImageAugmentation
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.store import ImageStore
from unmask.objectives.published import ObjectiveSpec, components_of
from unmask.shards.read import TokenShards
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.training.config import Recipe
from unmask.training.data.texts import MAX_DEV_TOKENS, N_SAMPLE_ROWS, TrainingData


class Verifier(Protocol):
    """Compares data with what was written."""

    def wait(self) -> None:
        """Wait until all is compared.

        Raises:
            ValueError: a file is damaged.
        """
        ...


class _Verified:
    """Of pictures, which are compared when their folder is opened."""

    def wait(self) -> None:
        """Return at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PictureRows:
    """Pictures or captions: what is trained on, or what is held out."""

    token_source: PictureSource | CaptionSource
    row_spans: Int[np.ndarray, "n 2"]

    def some(self, indices: Int[np.ndarray, "m"] | slice) -> "PictureRows":
        """Return some of the rows."""
        return replace(self, row_spans=self.row_spans[indices])

    def first(self, n_tokens: int) -> "PictureRows":
        """Return the first rows that have so many tokens together; all if they have fewer."""
        ends = np.cumsum(self.row_spans[:, 1] - self.row_spans[:, 0])
        return self.some(slice(int(np.searchsorted(ends, n_tokens)) + 1))


@dataclass(frozen=True, kw_only=True)
class PictureTrainingData:
    """Where batches of pictures come from; used as `TrainingData` is."""

    store: ImageStore
    preprocessing: ImagePreprocessing
    objective: ObjectiveSpec
    recipe: Recipe
    max_length: int
    train_rows: PictureRows
    dev_rows: PictureRows
    special_ids: SpecialTokenIds
    tokenizer: Tokenizer | None = None
    """Of captions."""
    encoder_ids: tuple[int, ...] = ()
    """What stands for a picture in the source of an encoder-decoder."""
    n_cut: int = 0
    """Captions that are longer than a row, of which the beginning is read."""
    n_workers: int = 0
    rank: int = 0
    world_size: int = 1

    @property
    def text_shards(self) -> None:
        """None: statistics of words are of texts."""
        return

    @property
    def source_shares(self) -> tuple[()]:
        """Sources are not sampled."""
        return ()

    def source_epochs(self) -> dict[str, float]:
        """Return nothing: sources are not sampled."""
        return {}

    def with_recipe(self, recipe: Recipe) -> "PictureTrainingData":
        """Return the same for another number of steps."""
        return replace(self, recipe=recipe)

    def verifier(self) -> AbstractContextManager[Verifier]:
        """Return what waits for nothing: pictures were compared when they were opened."""
        return nullcontext(_Verified())

    def notes(self) -> list[str]:
        """Describe how much there is, and what is left out."""
        n, skipped = len(self.store), self.store.manifest.n_skipped
        notes = [f"{n:,} pictures"]
        if self.tokenizer is not None:
            rows = len(self.train_rows.row_spans) + len(self.dev_rows.row_spans)
            notes[0] += f" with {rows:,} captions"
        if skipped:
            notes.append(f"pictures that could not be read and are left out: {skipped:,}")
        if self.n_cut:
            notes.append(f"captions longer than a row, which are cut at its end: {self.n_cut:,}")
        return notes

    def batches(self, cursor: Any) -> Iterator[tuple[Sequence[Batch], Any]]:
        """Yield the micro-batches of each step after a cursor (plain data; None: the beginning)."""
        start = DataCursor() if cursor is None else from_dict(DataCursor, cursor)
        loader = self._make_loader(self.train_rows, start, self._augmentation)
        for micro, after in replace(loader, total_steps=self.recipe.steps):
            yield micro, to_dict(after)

    def dev_batches(self) -> list[Batch]:
        """Make the batches on which the run is evaluated; always the same."""
        return self._dev_batches_of(self.objective, MAX_DEV_TOKENS)

    def dev_batches_by_component(self) -> dict[str, list[Batch]]:
        """Make those on which each named part of a mixture is evaluated, by itself."""
        parts = components_of(self.objective)
        return {
            name: batches
            for name, o in parts.items()
            if (batches := self._dev_batches_of(o, MAX_DEV_TOKENS // len(parts)))
        }

    def sample_batches(self) -> list[Batch]:
        """Make batches of some rows to train on, from all over the data; always the same."""
        last = len(self.train_rows.row_spans) - 1
        some = np.unique(np.linspace(0, last, N_SAMPLE_ROWS).astype(np.int64))
        return self._all_batches(self.train_rows.some(some), self.objective)

    def batch_size_warning(self) -> str | None:
        """Return a note if a step is larger than the training data; else None."""
        loader = self._make_loader(self.train_rows, DataCursor(), None)
        n, asked = round(loader.plan.n_tokens), self.recipe.batch_tokens
        if asked <= n:
            return None
        return (
            f"batch_tokens = {asked:,}: a step holds all that there is to train on, {n:,} tokens; "
            "give more pictures, or a smaller batch_tokens"
        )

    @property
    def _augmentation(self) -> ImageAugmentation | None:
        return None if self.recipe.pictures is None else self.recipe.pictures.augmentation

    def _dev_batches_of(self, objective: ObjectiveSpec, tokens: int) -> list[Batch]:
        rows = self.dev_rows.first(tokens)
        return self._all_batches(rows, objective) if len(rows.row_spans) else []

    def _all_batches(self, rows: PictureRows, objective: ObjectiveSpec) -> list[Batch]:
        recipe = replace(self.recipe, seed=0)
        same = replace(self, objective=objective, recipe=recipe, n_workers=0, rank=0, world_size=1)
        loader = same._make_loader(rows, DataCursor(), None, max_epochs=1)
        return [batch for micro, _ in loader for batch in micro]

    def _make_loader(
        self,
        rows: PictureRows,
        cursor: DataCursor,
        augmentation: ImageAugmentation | None,
        max_epochs: int | None = None,
    ) -> BatchLoader:
        return BatchLoader(
            token_source=rows.token_source,
            row_spans=rows.row_spans,
            objective=PictureObjective(
                objective=self.objective,
                preprocessing=self.preprocessing,
                augmentation=augmentation,
                source=self.encoder_ids,
            ),
            special_ids=self.special_ids,
            max_length=self.max_length,
            batch_tokens=self.recipe.batch_tokens,
            micro_batch_tokens=self.recipe.micro_batch_tokens,
            seed=self.recipe.seed,
            start_cursor=cursor,
            max_epochs=max_epochs,
            n_workers=self.n_workers,
            rank=self.rank,
            world_size=self.world_size,
        )


RunData = TrainingData | PictureTrainingData
"""What a run trains on."""


def split_pictures(
    n_pictures: int, dev_fraction: float, seed: int
) -> tuple[Int[np.ndarray, "m"], Int[np.ndarray, "k"]]:
    """Return the numbers of the pictures to train on, and of those held out, both ascending.

    Raises:
        ValueError: none is left to train on.
    """
    n_dev = min(max(1, round(dev_fraction * n_pictures)), n_pictures) if dev_fraction else 0
    if n_dev >= n_pictures:
        raise ValueError(
            f"dev_fraction = {dev_fraction:g} of {n_pictures} pictures leaves none to train on"
        )
    order = np.random.default_rng((seed, n_pictures)).permutation(n_pictures)
    return np.sort(order[n_dev:]), np.sort(order[:n_dev])


def picture_rows(store: ImageStore, numbers: Int[np.ndarray, "n"], n_patches: int) -> PictureRows:
    """Return some pictures as rows of patches."""
    source = PictureSource(store=store, indices=numbers, n_patches=n_patches)
    return PictureRows(token_source=source, row_spans=source.row_spans)


def caption_rows(
    store: ImageStore,
    captions: TokenShards,
    picture_of_caption: Int[np.ndarray, "n"],
    numbers: Int[np.ndarray, "m"],
    longest: int,
) -> tuple[PictureRows, int]:
    """Return the captions of some pictures as rows of at most `longest` tokens.

    Args:
        store: of the pictures.
        captions: a document for each caption.
        picture_of_caption: the number of its picture.
        numbers: which pictures.
        longest: tokens of a row; what is longer is cut at its end.

    Returns:
        The rows, and how many were cut.
    """
    spans = captions.document_spans[np.isin(picture_of_caption, numbers)]
    pictures = picture_of_caption[np.isin(picture_of_caption, numbers)]
    ends = np.minimum(spans[:, 1], spans[:, 0] + longest)
    rows = np.stack((spans[:, 0], ends), 1)
    source = CaptionSource(store=store, captions=captions, row_spans=rows, pictures=pictures)
    n_cut = int((ends < spans[:, 1]).sum())
    return PictureRows(token_source=source, row_spans=rows), n_cut
