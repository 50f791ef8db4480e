"""The original tokens of inputs that a generator has corrupted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Int
from torch import Tensor

from unmask.batch import Feature


@dataclass(frozen=True)
class GeneratorInputs(Feature):
    """The original tokens of the text; inputs may be samples of a generator (ELECTRA, COCO-LM)."""

    column_fields: ClassVar[Mapping[str, int]] = {"original_ids": 0}
    original_ids: Int[Tensor, "b t"]
