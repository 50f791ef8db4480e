"""Whole: the same numbers in layers of one width with whole matrices, for other libraries."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.structure.cut import expand_columns, expand_heads
from unmask.compression.structure.rebuild import rebuild
from unmask.model.architecture import BackboneArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.zoo.native_format import NATIVE_PREFIX

WHOLE_NOTE = (
    "heads and columns that were removed are zeros, and factors are multiplied, so that other "
    "libraries open it; --to unmask keeps it small"
)
"""What a folder in the Hugging Face layout has in place of what was removed."""


def is_divided(architecture: BackboneArchitecture) -> bool:
    """Return whether layers have widths of their own, or maps two factors."""
    stacks = architecture.stacks.values()
    layers = [vars(a)["layers"] for a in stacks if "layers" in vars(a)]
    return any(part.widths is not None or part.factorized for part in layers)


def to_whole(loaded_model: LoadedModel) -> LoadedModel:
    """Return a model whose layers have one width and whole matrices, and the same outputs.

    Factors are multiplied, and the heads and columns that were removed are there again as zeros.
    The model itself, if there is nothing to do.
    """
    architecture = loaded_model.model.architecture
    stacks: dict[str, Architecture] = {}
    weights = dict(loaded_model.model.own_weights())
    native = loaded_model.preset.config_mapping.model_type.startswith(NATIVE_PREFIX)
    for side, a in architecture.stacks.items():
        if not isinstance(a, Architecture):
            return loaded_model
        prefix = f"backbone.{side}." if side else "backbone."
        for part in a.layers.factorized:
            _multiply(weights, f"{prefix}{part.name}", is_table=part.is_table)
        n_heads = a.d_model // a.d_head if native and _can_be_padded(a) else a.n_heads
        for i in range(a.n_layers):
            _expand_layer(weights, f"{prefix}layers.{i}.", a, i, n_heads)
        n_kv_heads = None if a.n_kv_heads is None else a.n_key_value_heads * n_heads // a.n_heads
        stacks[side] = replace(
            a,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=a.head_dim if n_heads == a.n_heads else None,
            layers=a.layers.undivided(),
        )
    if not (is_divided(architecture) or stacks != architecture.stacks):
        return loaded_model
    return rebuild(loaded_model, architecture.with_stacks(stacks), weights)


def _can_be_padded(a: Architecture) -> bool:
    """Return whether heads were removed from all layers, so that the number of the stack is less.

    Then heads of zeros can be added, if nothing of the stack has numbers for each head.
    """
    return (
        a.head_dim is not None
        and a.n_heads * a.head_dim < a.d_model
        and a.d_model % a.head_dim == 0
        and a.n_kv_heads is None
        and not a.position.has_head_biases
    )


def _multiply(weights: dict[str, Tensor], name: str, *, is_table: bool) -> None:
    """Put the product of two factors in their place."""
    narrow, widen = (weights.pop(f"{name}.{part}.weight") for part in ("narrow", "widen"))
    if is_table:  # tokens are the rows of the first factor
        narrow, widen = widen.T, narrow
    weights[f"{name}.weight"] = (widen.double() @ narrow.double()).to(narrow.dtype)
    if (bias := weights.pop(f"{name}.widen.bias", None)) is not None:
        weights[f"{name}.bias"] = bias


def _expand_layer(
    weights: dict[str, Tensor], prefix: str, a: Architecture, i: int, n_heads: int
) -> None:
    """Put zeros where heads and columns were removed from a layer."""
    for part in ("attention", "cross"):
        layer = a.at_layer(i, cross=part == "cross")
        heads: Sequence[int] = a.layer_heads(i, cross=part == "cross") or range(a.n_heads)
        if len(heads) == n_heads:
            continue
        groups = a.n_key_value_heads if a.n_kv_heads else n_heads
        size = n_heads // groups
        of_groups = sorted({head // size for head in heads})
        assert len(of_groups) == layer.n_key_value_heads
        expand_heads(weights, f"{prefix}{part}.", (heads, n_heads), (of_groups, groups), a.d_head)
    width = a.at_layer(i).d_ff
    if width != a.d_ff:
        expand_columns(weights, f"{prefix}feed_forward.", a.d_ff)
