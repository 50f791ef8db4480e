"""Read a .bin file of llama2.c, a small Llama: seven sizes, then the weights.

The layout is that of `legacy_export` in llama2.c's export.py (Karpathy 2023): little-endian int32
and float32, each kind of matrix for all layers at once. Nothing in a file is executed.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.model.architecture import MAX_LAYERS

_HEADER = struct.Struct("<7i")
_MAX_SIZE = 2**20
"""Maximum size: a file with larger ones is of another kind."""


def find_weights(folder: Path) -> Path | None:
    """Return the only .bin file of llama2.c in a folder, or None."""
    paths = [p for p in sorted(folder.glob("*.bin")) if p.is_file() and read_config(p)]
    return paths[0] if len(paths) == 1 else None


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors, with the names in transformers.

    Raises:
        ValueError: it is not such a file.
    """
    if not (config := read_config(path)):
        raise ValueError(f"{path}: not a file of llama2.c, or truncated")
    numbers = torch.from_numpy(np.fromfile(path, "<f4", offset=_HEADER.size).astype(np.float32))
    state: dict[str, Tensor] = {}
    at, n = 0, config["num_hidden_layers"]
    for name, shape, heads in _tensor_layout(config):
        size = int(np.prod(shape))
        block, at = numbers[at : at + size].view(shape), at + size
        if heads:
            block = _pairs_to_halves(block, heads)
        if "*" in name:
            state |= {name.replace("*", str(i)): block[i].clone() for i in range(n)}
        elif name:
            state[name] = block.clone()
    return state


def read_config(path: Path) -> dict[str, Any]:
    """Read the sizes as a configuration of transformers; empty if the file length does not match.

    Epsilon is that of llama2.c's code.
    """
    if path.exists() and not path.is_file():
        return {}
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return {}
    width, d_ff, layers, heads, groups, rows, length = _HEADER.unpack(header)
    sizes = (width, d_ff, layers, heads, groups, abs(rows), length)
    fits = all(0 < size <= _MAX_SIZE for size in sizes) and layers <= MAX_LAYERS
    if not fits or width % heads or heads % groups:
        return {}
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": width,
        "intermediate_size": d_ff,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "vocab_size": abs(rows),
        "max_position_embeddings": length,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": rows > 0,
    }
    numbers = sum(int(np.prod(shape)) for _, shape, _ in _tensor_layout(config))
    return config if path.stat().st_size == _HEADER.size + 4 * numbers else {}


def _tensor_layout(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield name, shape and, for rows that are pairs of rotary heads, heads, in file order.

    Tensors without a name are skipped.
    """
    d, f, v = (config[f"{x}_size"] for x in ("hidden", "intermediate", "vocab"))
    n, h, g = (config[f"num_{x}"] for x in ("hidden_layers", "attention_heads", "key_value_heads"))
    e, layer = d // h, "model.layers.*."
    yield "model.embed_tokens.weight", (v, d), 0
    yield layer + "input_layernorm.weight", (n, d), 0
    yield layer + "self_attn.q_proj.weight", (n, h * e, d), h
    yield layer + "self_attn.k_proj.weight", (n, g * e, d), g
    yield layer + "self_attn.v_proj.weight", (n, g * e, d), 0
    yield layer + "self_attn.o_proj.weight", (n, d, h * e), 0
    yield layer + "post_attention_layernorm.weight", (n, d), 0
    yield layer + "mlp.gate_proj.weight", (n, f, d), 0
    yield layer + "mlp.down_proj.weight", (n, d, f), 0
    yield layer + "mlp.up_proj.weight", (n, f, d), 0
    yield "model.norm.weight", (d,), 0
    yield "", (2, config["max_position_embeddings"], e // 2), 0  # angles, which are computed
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (v, d), 0


def _pairs_to_halves(x: Tensor, heads: int) -> Tensor:
    """Reorder adjacent pairs to the two halves of a head."""
    return x.unflatten(1, (heads, -1, 2)).transpose(2, 3).reshape(x.shape)
