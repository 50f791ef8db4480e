"""What a discriminator knows of the inputs that a generator made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Int
from torch import Tensor

from unmask.batch import Feature


@dataclass(frozen=True)
class GeneratorInputs(Feature):
    """The tokens of the text, where inputs may be a generator's samples (ELECTRA, COCO-LM)."""

    column_fields: ClassVar[Mapping[str, int]] = {"original_ids": 0}
    original_ids: Int[Tensor, "b t"]
