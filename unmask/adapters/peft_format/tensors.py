"""Names and shapes of PEFT's tensors."""

import re
from collections.abc import Mapping

from torch import Tensor

from unmask.adapters.ia3 import IA3
from unmask.adapters.lora import LoRA
from unmask.adapters.prefix import (
    PrefixTuning,
    PromptTuning,
)

PREFIX_TUNING, PROMPT_TUNING = "PREFIX_TUNING", "PROMPT_TUNING"
SPEC_CLASSES: Mapping[str, type] = {
    "LORA": LoRA,
    "IA3": IA3,
    PREFIX_TUNING: PrefixTuning,
    PROMPT_TUNING: PromptTuning,
}
"""PEFT's names of the common methods."""
PROMPT_EMBEDDINGS = "prompt_embeddings"
"""PEFT's name of the one tensor of a prefix or a prompt."""
LORA_TENSOR = re.compile(r"(.+)\.lora_([AB])\.weight")
IA3_TENSOR = re.compile(r"(.+)\.ia3_l")
Tensors = Mapping[str, Tensor]


def is_adapter_tensor(name: str) -> bool:
    """Return whether a tensor of PEFT's belongs to the adapter, not to a fully trained module."""
    return name == PROMPT_EMBEDDINGS or any(p.fullmatch(name) for p in (LORA_TENSOR, IA3_TENSOR))


ReadAdapter = tuple[LoRA | IA3 | PrefixTuning | PromptTuning, dict[str, Tensor]]
"""An adapter and its module's parameters by name."""


def check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Check the shape of a tensor.

    Raises:
        ValueError: it differs.
    """
    if tuple(tensor.shape) != shape:
        raise ValueError(
            f"tensor {name} has shape {list(tensor.shape)}, this model's has {list(shape)}"
        )


def prompt_vectors(tensors: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the vectors of a prefix or prompt, and the other tensors.

    Raises:
        ValueError: there are none.
    """
    if PROMPT_EMBEDDINGS not in tensors:
        raise ValueError(f"tensor {PROMPT_EMBEDDINGS} is missing")
    if tensors[PROMPT_EMBEDDINGS].dim() != 2:
        raise ValueError(
            f"tensor {PROMPT_EMBEDDINGS} has shape {list(tensors[PROMPT_EMBEDDINGS].shape)}, not "
            "[p d]"
        )
    return tensors[PROMPT_EMBEDDINGS], {n: x for n, x in tensors.items() if n != PROMPT_EMBEDDINGS}
