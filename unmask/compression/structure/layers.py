"""Fewer layers: some layers of each stack are kept, with their weights."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor

from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.structure.rebuild import check_no_adapters, rebuild
from unmask.config import check_number_fields
from unmask.heads.pretraining.generator import Generator
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture

LayerStrategy = Literal["spaced", "top", "bottom", "alternate", "symmetric"]
"""Which layers stay (`select_layers`)."""


@dataclass(frozen=True, kw_only=True)
class KeepLayers:
    """Some layers of each stack stay, with their weights; the others are removed."""

    keep: int | str
    """Number of layers that stay, or their indices from 0: 0+2+4."""
    strategy: LayerStrategy = "spaced"
    """Layers that stay, of a number: evenly spaced ones (Sanh et al. 2019, arXiv:1910.01108), or
    all but the top, bottom, alternate or middle (symmetric) ones (Sajjad et al. 2020,
    arXiv:2004.03844)."""
    stack: Literal["all", "encoder", "decoder"] = "all"
    """Stack of an encoder-decoder from which layers are removed."""

    makes_smaller: ClassVar[bool] = True
    makes_zeros: ClassVar[bool] = False
    uses_texts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number_fields(self)
        fits = isinstance(self.keep, int) or re.fullmatch(r"\d+(\+\d+)*", self.keep)
        if not fits or self.keep in (0, ""):
            raise ValueError(
                f"keep must be a number of layers, at least 1, or indices such as 0+2+4, got "
                f"{self.keep!r}"
            )

    def indices(self, n_layers: int) -> tuple[int, ...]:
        """Return which of so many layers stay.

        Raises:
            ValueError: there are not as many.
        """
        if isinstance(self.keep, int):
            return select_layers(n_layers, self.keep, self.strategy)
        return tuple(int(i) for i in self.keep.split("+"))

    def restructure(self, loaded_model: LoadedModel, batches: Sequence[Batch] = ()) -> LoadedModel:
        """Return the model with the layers that stay.

        Raises:
            ValueError: as `keep_layers`, or there is no such stack.
        """
        stacks = loaded_model.model.architecture.stacks
        if self.stack != "all" and self.stack not in stacks:
            raise ValueError(f"stack must be all for a model of one stack, got {self.stack}")
        chosen = stacks if self.stack == "all" else {self.stack: stacks[self.stack]}
        return keep_layers(
            loaded_model, {side: self.indices(stack.n_layers) for side, stack in chosen.items()}
        )


def every_nth(n_layers: int, n_kept: int) -> tuple[int, ...]:
    """Return indices of layers at equal distances, the first and the last among them.

    round(i (n - 1) / (k - 1)) for i = 0 ... k - 1: of 12 layers 0, 2, 4, 7, 9 and 11, as in the
    released code of DistilBERT (`extract_distilbert.py`; Sanh et al. 2019, arXiv:1910.01108,
    section 3, say "taking one layer out of two"). Of one layer, the first.

    >>> every_nth(12, 6)
    (0, 2, 4, 7, 9, 11)

    Raises:
        ValueError: there are fewer layers.
    """
    _check_number(n_layers, n_kept)
    steps = max(n_kept - 1, 1)
    return tuple((2 * i * (n_layers - 1) + steps) // (2 * steps) for i in range(n_kept))


def select_layers(
    n_layers: int, n_kept: int, strategy: LayerStrategy = "spaced"
) -> tuple[int, ...]:
    """Return indices of the layers that stay.

    "spaced": as `every_nth`. The others are named for what is removed (Sajjad et al. 2020,
    arXiv:2004.03844, section 2): "top" and "bottom" layers; "alternate": every other layer below
    the last, from the top; "symmetric": those in the middle.

    >>> select_layers(12, 8, "alternate")
    (0, 1, 2, 3, 5, 7, 9, 11)

    Raises:
        ValueError: there are fewer layers, or the strategy cannot remove as many.
    """
    _check_number(n_layers, n_kept)
    n_removed = n_layers - n_kept
    if strategy == "spaced":
        return every_nth(n_layers, n_kept)
    if strategy == "top":
        return tuple(range(n_kept))
    if strategy == "bottom":
        return tuple(range(n_removed, n_layers))
    if strategy == "symmetric":
        first = (n_kept + 1) // 2
        return (*range(first), *range(first + n_removed, n_layers))
    if n_removed > n_layers // 2:
        raise ValueError(
            f"strategy alternate removes at most {n_layers // 2} of {n_layers} layers, got "
            f"keep = {n_kept}"
        )
    removed = range(n_layers - 2, n_layers - 2 - 2 * n_removed, -2)
    return tuple(i for i in range(n_layers) if i not in removed)


def _check_number(n_layers: int, n_kept: int) -> None:
    if not 1 <= n_kept <= n_layers:
        raise ValueError(f"keep must be from 1 to {n_layers}, the number of layers, got {n_kept}")


def keep_layers(
    loaded_model: LoadedModel, indices: Sequence[int] | Mapping[str, Sequence[int]]
) -> LoadedModel:
    """Return a model with some layers of a model, in their order, with copies of their weights.

    Args:
        loaded_model: it is not changed.
        indices: of the layers that stay, from 0, rising: of each stack, or by stack ("encoder",
            "decoder"; "" for a model of one stack), of which those not named keep all layers.

    Raises:
        ValueError: there are no such layers, they share their weights, a head reads all of them, or
            their sizes do not fit together.
    """
    check_no_adapters(loaded_model, "layers")
    a = loaded_model.model.architecture
    chosen = (
        indices if isinstance(indices, Mapping) else {side: tuple(indices) for side in a.stacks}
    )
    _check_heads(loaded_model)
    stacks: dict[str, StackArchitecture] = {}
    for side, kept in chosen.items():
        _check_stack(a.stacks[side], kept, side)
        stacks[side] = a.stacks[side].with_layers(kept)
    try:
        smaller = a.with_stacks(stacks)
        weights = _renumbered(loaded_model.model.own_weights(), chosen)
        return rebuild(loaded_model, smaller, weights, _heads_of_own_depth(loaded_model))
    except ValueError as error:
        said = "; ".join(
            f"{side or 'the stack'} {'+'.join(map(str, kept))}" for side, kept in chosen.items()
        )
        raise ValueError(f"layers: {said} do not make a model: {error}") from None


def _check_stack(a: StackArchitecture, kept: Sequence[int], side: str) -> None:
    """Check that a stack can lose layers."""
    where = f" of the {side}" if side else ""
    if a.n_layers == 0:
        raise ValueError("layers: this model has none")
    if not kept or list(kept) != sorted({*kept}) or not 0 <= kept[0] <= kept[-1] < a.n_layers:
        raise ValueError(
            f"layers{where} must be rising indices from 0 to {a.n_layers - 1}, got {list(kept)}"
        )


def _check_heads(loaded_model: LoadedModel) -> None:
    for name, spec in loaded_model.model.head_specs.items():
        if spec.uses_all_layers:
            raise ValueError(f"layers: the head {name!r} reads all layers, so that all must stay")


def _heads_of_own_depth(loaded_model: LoadedModel) -> dict[str, HeadSpec]:
    """Return the heads; a generator that was as deep as the model keeps its depth."""
    depth = loaded_model.model.decoder_architecture.n_layers
    return {
        name: replace(spec, n_layers=spec.n_layers or depth)
        if isinstance(spec, Generator)
        else spec
        for name, spec in loaded_model.model.head_specs.items()
    }


def _renumbered(
    weights: Mapping[str, Tensor], chosen: Mapping[str, Sequence[int]]
) -> dict[str, Tensor]:
    """Return the weights of the layers that stay, by their new names, and all others."""
    found = dict(weights)
    for side, kept in chosen.items():
        prefix = f"backbone.{side}." if side else "backbone."
        new_index = {old: new for new, old in enumerate(kept)}
        layer = re.compile(re.escape(prefix) + r"((?:backward_)?layers)\.(\d+)\.")
        renamed: dict[str, Tensor] = {}
        for name, tensor in found.items():
            if (hit := layer.match(name)) is None:
                renamed[name] = tensor
            elif (old := int(hit[2])) in new_index:
                renamed[f"{prefix}{hit[1]}.{new_index[old]}.{name[hit.end() :]}"] = tensor
        found = renamed
        if f"{prefix}mix.0" in found:
            found = _select_sums(found, f"{prefix}mix.", kept)
    return found


def _select_sums(
    weights: Mapping[str, Tensor], prefix: str, kept: Sequence[int]
) -> dict[str, Tensor]:
    """Return depth-weighted sums over the sublayers that stay; each sum has its terms among them.

    Term 0 is that of the token embeddings; each layer has two sublayers.
    """
    sublayers = [s for i in kept for s in (2 * i, 2 * i + 1)]
    found = {name: w for name, w in weights.items() if not name.startswith(prefix)}
    for new, old in enumerate(sublayers):
        terms = [0, *(s + 1 for s in sublayers if s <= old)]
        found[f"{prefix}{new}"] = weights[f"{prefix}{old}"][terms]
    return found
