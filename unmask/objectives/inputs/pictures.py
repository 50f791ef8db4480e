"""Pictures whose patches are tokens: ids, the pixels of examples and batches, and objectives.

Hidden patches need no objective of their own: a patch is hidden as a word is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float32, Int, UInt8

from unmask.batch import IGNORE_INDEX, Batch, Example, ExampleRows, Feature, Tokens
from unmask.objectives.corrupt import MaskInPlace
from unmask.objectives.objective import Objective
from unmask.objectives.select import TokenMasking
from unmask.tokenizers.spec import SpecialTokenIds

if TYPE_CHECKING:
    import torch

CLASS_ID, DISTILLATION_ID, MASK_ID, PADDING_ID, PATCH_ID = range(5)
"""What stands at a column: a special token, a hidden patch, nothing, or a patch that is seen."""
N_PICTURE_IDS = 5


def picture_special_ids(*, distillation: bool = False) -> SpecialTokenIds:
    """Return the special ids of pictures: the class token first, then that of distillation."""
    return SpecialTokenIds(
        vocab_size=N_PICTURE_IDS,
        pad=PADDING_ID,
        start=CLASS_ID,
        end=None,
        mask=MASK_ID,
        prefix=(CLASS_ID, DISTILLATION_ID) if distillation else (CLASS_ID,),
        all_ids=frozenset((CLASS_ID, DISTILLATION_ID, MASK_ID, PADDING_ID)),
    )


@dataclass(frozen=True)
class Pictures(Feature):
    """The pixels that a network of patches reads, one picture a row.

    Where pixels are bytes, their numbers are looked up on the device of the network: from process
    to process and from host to device a quarter is sent.
    """

    stored: Float[Any, "*b c height width"] | UInt8[Any, "*b c height width"]
    """Standardized numbers, or bytes; of one example, an array [c height width]."""
    table: Float32[np.ndarray, "c 256"] | None = None
    """The number of each byte in each channel. None: they are numbers."""

    @cached_property
    def pixels(self) -> "Float[torch.Tensor, '*b c height width']":
        """Standardized numbers."""
        if self.table is None:
            return self.stored
        import torch

        table = torch.from_numpy(self.table).to(self.stored.device)
        numbers = [
            row.index_select(0, x.reshape(-1).int()).view(x.shape)
            for row, x in zip(table, self.stored.movedim(-3, 0), strict=True)
        ]
        return torch.stack(numbers, -3)

    def map(self, change: Callable[[Any], Any]) -> "Pictures":
        """Return the same with other pixels; the table is of no row, and stays."""
        return replace(self, stored=change(self.stored))

    @classmethod
    def collate(cls, rows: ExampleRows) -> "Pictures":
        """Stack the pictures of a batch.

        Raises:
            ValueError: pictures differ in size, a row has several, or an example has none.
        """
        if rows.is_packed:
            raise ValueError("a row holds one picture: packing is for texts")
        pictures = [_picture_of(example) for example in rows.examples]
        shapes = sorted({x.stored.shape for x in pictures})
        if len(shapes) > 1:
            raise ValueError(f"pictures of a batch must have one size, got {shapes[:3]}")
        return cls(np.stack([x.stored for x in pictures]), pictures[0].table)

    def check(self, batch: Batch) -> None:
        """Check that there is a picture for each row.

        Raises:
            ValueError: there is not.
        """
        if self.stored.shape[0] != batch.inputs.shape[0]:
            raise ValueError(f"{self.stored.shape[0]} pictures for {batch.inputs.shape[0]} rows")


def _picture_of(example: Example) -> Pictures:
    own = example.feature(Pictures)
    if own is None:
        raise ValueError("an example without a picture among pictures")
    return own


@dataclass(frozen=True)
class PictureLabels:
    """Nothing is hidden: the label of the whole picture is predicted.

    Dosovitskiy et al. 2021, arXiv:2010.11929, section 4.1.
    """

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """That of the label."""
        return ("label",)

    @property
    def needs_second_text(self) -> bool:
        """False: pictures stand alone."""
        return False

    @property
    def causal(self) -> bool:
        """False: every patch sees all."""
        return False

    @property
    def n_variants(self) -> int | None:
        """One: nothing is drawn."""
        return 1

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the columns of pictures of so many patches."""
        return text_lengths + len(special_ids.prefix)

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the patches that a picture may have so that its columns fit `max_length`."""
        return max_length - len(special_ids.prefix)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Return the patches as they are."""
        inputs = np.concatenate((np.array(special_ids.prefix, np.int64), text.ids))
        return Example(inputs=inputs, targets=np.full(len(inputs), IGNORE_INDEX))


@dataclass(frozen=True)
class PictureContrast:
    """Nothing is hidden: a text is compared with the pictures of a batch.

    Radford et al. 2021, arXiv:2103.00020, section 2.3.
    """

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """That of the comparison."""
        return ("contrast",)

    @property
    def needs_second_text(self) -> bool:
        """False: a text stands alone."""
        return False

    @property
    def causal(self) -> bool:
        """True: a token sees those before it (section 2.4), so that the last one sees all."""
        return True

    @property
    def n_variants(self) -> int | None:
        """One: nothing is drawn."""
        return 1

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of texts of so many tokens, with special ones."""
        return text_lengths + len(special_ids.prefix) + len(special_ids.suffix)

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have so that it fits `max_length`."""
        return max_length - len(special_ids.prefix) - len(special_ids.suffix)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Return the text as it is, between special tokens."""
        around = np.array(special_ids.prefix, np.int64), np.array(special_ids.suffix, np.int64)
        inputs = np.concatenate((around[0], text.ids, around[1]))
        nothing = np.full(len(inputs), IGNORE_INDEX)
        return Example(inputs=inputs, targets=nothing, rank=np.arange(len(inputs)))


MASKED_PATCHES = Objective(
    TokenMasking(rate=0.6), MaskInPlace(mask_probability=1.0, random_token_probability=0.0)
)
"""Masked patches: Xie et al. 2022, arXiv:2111.09886, section 4.1, with its share of 60 %.

Deviates: there squares of 32 x 32 pixels are hidden, here single patches."""
