"""Pictures as rows: what the loader of texts needs to read a store of pictures.

Row i of a `PictureSource` is picture i: its tokens are its patches. Row i of a `CaptionSource` is a
caption with its picture. A `PictureObjective` applies an objective of texts, which hides patches as
it hides words, and adds the pixels, changed by chance where it trains. Order, packing of steps,
resuming and workers are those of texts.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int, UInt8

from unmask.batch import Example, ExampleRows, Feature, Tokens
from unmask.batching.plan import TokenSource
from unmask.images.augmentation import ImageAugmentation
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.store import ImageStore
from unmask.objectives.inputs.pictures import PATCH_ID, Pictures
from unmask.objectives.published import ObjectiveSpec
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True)
class PictureTokens(Tokens):
    """A picture as its patches, with its pixels."""

    pixels: UInt8[np.ndarray, "h w c"] | None = None
    label: int | None = None
    """Number of its label; None: it has none."""
    name: str = ""
    """Of the picture, for messages."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PictureSource:
    """Some pictures of a store, each a row of `n_patches` tokens; a `TokenSource`."""

    store: ImageStore
    indices: Int[np.ndarray, "n"]
    """Which pictures of the store are rows, in this order."""
    n_patches: int

    @property
    def row_spans(self) -> Int[np.ndarray, "n 2"]:
        """The first and the last token (exclusive) of each picture."""
        starts = np.arange(len(self.indices), dtype=np.int64) * self.n_patches
        return np.stack((starts, starts + self.n_patches), 1)

    def read_tokens(self, start: int, end: int) -> PictureTokens:
        """Read the picture from `start` up to `end`.

        Raises:
            ValueError: this is not one picture.
        """
        row, rest = divmod(start, self.n_patches)
        if rest or end - start != self.n_patches or not 0 <= row < len(self.indices):
            raise ValueError(f"tokens {start} to {end} are not one of {len(self.indices)} pictures")
        at = int(self.indices[row])
        label = int(self.store.labels[at])
        return PictureTokens(
            np.full(self.n_patches, PATCH_ID),
            np.zeros(self.n_patches, np.uint8),
            pixels=self.store.pixels([at])[0],
            label=None if label < 0 else label,
            name=f"{self.store.folder}: picture {at}",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class CaptionSource:
    """Captions, each a row with its picture; a `TokenSource`."""

    store: ImageStore
    captions: TokenSource
    """The tokens of all captions."""
    row_spans: Int[np.ndarray, "n 2"]
    """The first and the last token (exclusive) of each caption, ascending."""
    pictures: Int[np.ndarray, "n"]
    """The number of each caption's picture."""

    def read_tokens(self, start: int, end: int) -> PictureTokens:
        """Read the caption from `start` up to `end`, and its picture.

        Raises:
            ValueError: this is not one caption.
        """
        row = int(np.searchsorted(self.row_spans[:, 0], start))
        if row == len(self.row_spans) or self.row_spans[row].tolist() != [start, end]:
            raise ValueError(f"tokens {start} to {end} are not a caption")
        tokens, at = self.captions.read_tokens(start, end), int(self.pictures[row])
        return PictureTokens(
            tokens.ids,
            tokens.boundaries,
            pixels=self.store.pixels([at])[0],
            name=f"{self.store.folder}: picture {at}",
        )


@dataclass(frozen=True, kw_only=True)
class PictureObjective:
    """An objective of patches or captions, which also reads the pixels and the label."""

    objective: ObjectiveSpec
    preprocessing: ImagePreprocessing
    augmentation: ImageAugmentation | None = None
    """Random changes of each picture in each epoch; None: none, as for evaluation."""
    source: tuple[int, ...] = ()
    """Ids of the patches that an encoder reads, where the objective is one of captions; none where
    there is no encoder."""

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """Those of the objective."""
        return self.objective.loss_terms

    @property
    def needs_second_text(self) -> bool:
        """False: pictures stand alone."""
        return False

    @property
    def causal(self) -> bool:
        """Whether each patch sees those before it only."""
        return self.objective.causal

    @property
    def n_variants(self) -> int | None:
        """Number of corruptions of a picture; None where it is also changed by chance."""
        return self.objective.n_variants if self.augmentation is None else None

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the columns of pictures of so many patches."""
        return self.objective.max_example_length(text_lengths, special_ids)

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the patches that a picture may have so that its columns fit `max_length`."""
        return self.objective.max_text_length(max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide patches, and add pixels and label.

        Raises:
            ValueError: the objective asks for a label that the picture does not have.
        """
        if not isinstance(text, PictureTokens) or text.pixels is None:
            raise TypeError("pictures are read from a PictureSource")
        example = self.objective(text, special_ids, rng)
        pixels = (
            self.preprocessing.pixels(text.pixels)
            if self.augmentation is None
            else self.augmentation.pixels(text.pixels, self.preprocessing, rng)
        )
        if "label" in self.loss_terms:
            if text.label is None:
                raise ValueError(f"{text.name} has no label to learn")
            example = replace(example, label=text.label)
        if self.source:
            example = replace(example, source=np.array(self.source))
        return example.with_feature(stored_picture(pixels, self.preprocessing))


def stored_picture(
    pixels: UInt8[np.ndarray, "*b h w c"], preprocessing: ImagePreprocessing
) -> Pictures:
    """Return pixels that were resized and cropped as bytes, which networks read as numbers."""
    return Pictures(np.moveaxis(pixels, -1, -3), preprocessing.table)


@dataclass(frozen=True)
class UnreadPicture(Feature):
    """A picture that is read when a batch is made, so that examples are small."""

    store: ImageStore
    index: int
    preprocessing: ImagePreprocessing

    @property
    def pixels(self) -> UInt8[np.ndarray, "h w c"]:
        """Its pixels, as stored."""
        return self.store.pixels([self.index])[0]

    @classmethod
    def collate(cls, rows: ExampleRows) -> Pictures | None:
        """Read and prepare the pictures of a batch; None: they were read before."""
        unread = [example.feature(cls) for example in rows.examples]
        if any(one is None for one in unread):
            return None
        pixels = [one.preprocessing.pixels(one.pixels) for one in unread if one is not None]
        how = next(one.preprocessing for one in unread if one is not None)
        return stored_picture(np.stack(pixels), how)
