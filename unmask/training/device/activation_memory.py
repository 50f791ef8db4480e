"""How much fits: the memory that is free, and what a token's activations take of it in training."""

import torch
from torch import nn

from unmask.machine_memory import available_bytes
from unmask.model.architecture import BackboneArchitecture

ACTIVATION_MEMORY_FRACTION = 0.5
"""Of the free memory that activations may fill: others want some too, and allocators waste some."""
MAX_TOKENS_OF_DEVICE = {"cpu": 8192}
"""Tokens above which nothing becomes faster; on a CPU they no longer fit the caches."""
MAX_TOKENS_OTHER_DEVICES = 65_536


def free_memory_bytes(device: torch.device) -> int | None:
    """Return how much memory is free on a device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        used = torch.mps.driver_allocated_memory()
        return max(torch.mps.recommended_max_memory() - used, 0)
    return available_bytes() if device.type == "cpu" else None


def check_optimizer_fits(model: nn.Module, device: torch.device, n_moments: int = 2) -> None:
    """Check that gradients and the optimizer's moments of the trained parameters fit into memory.

    Args:
        model: the model.
        device: where it is trained.
        n_moments: moments of each parameter; AdamW has 2, Adafactor next to none.

    Raises:
        ValueError: they do not.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    is_whole = len(trained) == len([*model.parameters()])
    needed, free = (1 + n_moments) * sum(p.nbytes for p in trained), free_memory_bytes(device)
    if free is not None and needed > free:
        raise ValueError(
            f"memory: gradients and optimizer state of {sum(p.numel() for p in trained):,} trained "
            f"parameters take {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free; "
            + ("take --tune lora or a smaller model" if is_whole else "take a smaller model")
        )


def activation_bytes_per_token(
    architecture: BackboneArchitecture, sequence_length: int, dtype: torch.dtype
) -> int:
    """Estimate the bytes that a training step keeps of each token until its backward."""
    return architecture.activations(sequence_length) * dtype.itemsize


def max_micro_batch_tokens(
    architecture: BackboneArchitecture,
    sequence_length: int,
    dtype: torch.dtype,
    device: torch.device,
) -> int:
    """Return the number of tokens in one forward pass: as many as are useful and fit into memory.

    At least one text of `sequence_length` tokens.
    """
    most = MAX_TOKENS_OF_DEVICE.get(device.type, MAX_TOKENS_OTHER_DEVICES)
    free = free_memory_bytes(device)
    if free is not None:
        most = min(
            most,
            int(ACTIVATION_MEMORY_FRACTION * free)
            // activation_bytes_per_token(architecture, sequence_length, dtype),
        )
    return max(most, sequence_length)
