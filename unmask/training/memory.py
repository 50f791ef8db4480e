"""How much fits: the memory that is free, and what a token's activations take of it in training."""

from pathlib import Path

import torch

from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.canine import CanineArchitecture
from unmask.model.names import AnyArchitecture

SHARE = 0.5
"""Of the free memory that activations may fill: others want some too, and allocators waste some."""
MOST = {"cpu": 8192}
"""Tokens above which nothing becomes faster; on a CPU they no longer fit the caches."""
MOST_ELSEWHERE = 65_536


def free_bytes(device: torch.device) -> int | None:
    """Return how much memory is free on a device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    known = Path("/proc/meminfo")
    if device.type != "cpu" or not known.is_file():
        return None
    for line in known.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def activation_bytes(architecture: AnyArchitecture, length: int, dtype: torch.dtype) -> int:
    """Estimate what a training step keeps of each token until its backward.

    Korthikanti et al. 2023, arXiv:2205.05198, section 4.1, equation 2, counted in numbers instead
    of bytes: of a layer 17 d for its maps and 2.5 h t for its scores, where the feed-forward layer
    is 4 d wide; for any width f of it, 9 d + 2 f.
    """
    if isinstance(architecture, EncoderDecoderArchitecture):
        parts = (architecture.source, architecture.encoder, architecture.decoder)
        return sum(activation_bytes(a, length, dtype) for a in parts if a is not None)
    return _stack(architecture, length) * dtype.itemsize


def _stack(a: Architecture, length: int) -> int:
    if isinstance(a, CanineArchitecture):
        around = _blocks(a, length) // a.n_layers * 2
        return around + _blocks(a, length // a.rate) // a.rate
    return max(_blocks(a, length), a.d_embed)  # a table of vectors has no layers


def _blocks(a: Architecture, length: int) -> int:
    own = 9 * a.d_model + 2 * a.d_ff * (2 if a.gated else 1)
    scores = 5 * a.n_heads * length // 2
    return a.n_layers * (own + scores) * (2 if a.cross else 1)


def tokens_at_once(
    architecture: AnyArchitecture, length: int, dtype: torch.dtype, device: torch.device
) -> int:
    """Say how many tokens may go through a model at once: as many as help, and as fit.

    At least one text of `length` tokens.
    """
    most = MOST.get(device.type, MOST_ELSEWHERE)
    free = free_bytes(device)
    if free is not None:
        most = min(most, int(SHARE * free) // activation_bytes(architecture, length, dtype))
    return max(most, length)
