"""Narrower layers: attention heads and feed-forward columns that are removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.config import Scope, check_fraction
from unmask.compression.structure.cut import cut_columns, cut_heads
from unmask.compression.structure.importance import mask_gradients, normalized
from unmask.compression.structure.rebuild import check_no_adapters, rebuild
from unmask.config import check_number_fields
from unmask.heads.model import Model
from unmask.model.architecture import FEED_FORWARD_INNER_SLOTS, BackboneArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.layers.per_layer import LayerWidths

Importance = Literal["gradient", "magnitude"]


@dataclass(frozen=True, kw_only=True)
class _WidthPruning:
    """Parts of the layers are removed, by their importance."""

    fraction: float = 0.5
    scope: Scope = "global"
    importance: Importance | None = None

    makes_smaller: ClassVar[bool] = True
    makes_zeros: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number_fields(self)
        check_fraction("fraction", self.fraction)

    @property
    def uses_texts(self) -> bool:
        """Whether it reads calibration texts, where there are some."""
        return self.importance != "magnitude"

    def _uses_gradients(self, batches: Sequence[Batch]) -> bool:
        """Return whether importance is that of gradients.

        Raises:
            ValueError: so it is, and there are no texts.
        """
        if self.importance == "gradient" and not batches:
            raise ValueError("importance=gradient needs calibration texts (--data FILE)")
        return bool(batches) and self.importance != "magnitude"


@dataclass(frozen=True, kw_only=True)
class HeadPruning(_WidthPruning):
    """The least important attention heads are removed from all matrices.

    Query heads that share a key and value head are removed together. One of each layer stays.
    """

    fraction: float = 0.5
    """Fraction of the heads that are removed, from 0 to below 1."""
    scope: Scope = "global"
    """Heads that are compared: of all layers together, or of each layer by itself."""
    importance: Importance | None = None
    """How important a head is: gradient, the expected absolute gradient of the loss with respect to
    a mask of its output, on texts (Michel et al. 2019, arXiv:1905.10650, equation 2, divided by the
    norm of each layer's); magnitude, the Frobenius norm of its W_O W_V. None: gradient with texts,
    magnitude without."""

    def restructure(self, loaded_model: LoadedModel, batches: Sequence[Batch] = ()) -> LoadedModel:
        """Return a model without the least important heads.

        Raises:
            ValueError: the network has no heads that can be removed, or there are no texts.
        """
        stacks = _stacks_of(loaded_model, "heads")
        for a in stacks.values():
            _check_heads_are_separate(a, "heads")
        if self.fraction == 0:
            return loaded_model
        scores = self.scores(loaded_model.model, stacks, batches)
        kept = _select(scores, self.fraction, self.scope)
        return _with_widths(loaded_model, stacks, heads=kept)

    def scores(
        self,
        model: Model,
        stacks: Mapping[str, Architecture],
        batches: Sequence[Batch] = (),
    ) -> dict[str, Float[Tensor, "n"]]:
        """Return the importance of each group of heads, by the attention sublayer's name."""
        modules = _sublayers(model, stacks, ("attention", "cross"))
        sizes = {name: _group_counts(module, a) for name, (module, a) in modules.items()}
        if self._uses_gradients(batches):
            masked = {
                name: (module.get_submodule("o"), sizes[name][0])
                for name, (module, _) in modules.items()
            }
            found = normalized(mask_gradients(model, masked, batches))
        else:
            found = normalized(
                {name: _head_norms(module, a.d_head) for name, (module, a) in modules.items()}
            )
        return {name: x.reshape(sizes[name][1], -1).sum(1) for name, x in found.items()}


@dataclass(frozen=True, kw_only=True)
class ColumnPruning(_WidthPruning):
    """The least important columns of the feed-forward layers are removed; one of each stays."""

    fraction: float = 0.5
    """Fraction of the columns that are removed, from 0 to below 1."""
    scope: Scope = "global"
    """Columns that are compared: of all layers together, or of each layer by itself."""
    importance: Importance | None = None
    """How important a column is: gradient, the expected absolute product of its activation and the
    gradient of the loss, summed over a text's tokens (Molchanov et al. 2019, arXiv:1906.10771,
    equation 8); magnitude, the product of the norms of its weights. Both are divided by the norm of
    each layer's. None: gradient with texts, magnitude without."""

    def restructure(self, loaded_model: LoadedModel, batches: Sequence[Batch] = ()) -> LoadedModel:
        """Return a model without the least important columns.

        Raises:
            ValueError: the network has no such columns, or there are no texts.
        """
        stacks = _stacks_of(loaded_model, "columns")
        for a in stacks.values():
            if a.norm_placement & FEED_FORWARD_INNER_SLOTS:
                raise ValueError(
                    "columns: a norm within the feed-forward layers reads all columns, so that "
                    "removing some would change the others"
                )
        if self.fraction == 0:
            return loaded_model
        scores = self.scores(loaded_model.model, stacks, batches)
        kept = _select(scores, self.fraction, self.scope)
        return _with_widths(loaded_model, stacks, columns=kept)

    def scores(
        self,
        model: Model,
        stacks: Mapping[str, Architecture],
        batches: Sequence[Batch] = (),
    ) -> dict[str, Float[Tensor, "n"]]:
        """Return the importance of each column, by the feed-forward sublayer's name."""
        modules = _sublayers(model, stacks, ("feed_forward",))
        if self._uses_gradients(batches):
            masked = {
                name: (module.get_submodule("down"), _matrix(module, "down").shape[1])
                for name, (module, _) in modules.items()
            }
            return normalized(mask_gradients(model, masked, batches))
        return normalized({name: _column_norms(module) for name, (module, _) in modules.items()})


def gated_projections(model: Model, method: str) -> dict[str, tuple[Float[Tensor, "o i"], int]]:
    """Return the output projections of attention, and of how many groups of heads they read each.

    By the weights' names. Query heads that share a key and value head are one group.

    Raises:
        ValueError: the network has no heads that can be removed.
    """
    found: dict[str, tuple[Float[Tensor, "o i"], int]] = {}
    stacks = _stacks_with_heads(model, method)
    for name, (module, a) in _sublayers(model, stacks, ("attention", "cross")).items():
        parameters = dict(module.named_parameters())
        weight = "o.weight" if "o.weight" in parameters else "o.narrow.weight"
        found[f"{name}.{weight}"] = parameters[weight], _group_counts(module, a)[1]
    return found


def heads_of_projections(model: Model, method: str) -> dict[str, tuple[nn.Module, int]]:
    """Return the maps that read what heads give, and how many groups of heads, by sublayer.

    Raises:
        ValueError: the network has no heads that can be removed.
    """
    stacks = _stacks_with_heads(model, method)
    return {
        name: (module.get_submodule("o"), _group_counts(module, a)[1])
        for name, (module, a) in _sublayers(model, stacks, ("attention", "cross")).items()
    }


def head_scores(
    model: Model, batches: Sequence[Batch], method: str
) -> dict[str, Float[Tensor, "n"]]:
    """Return the importance of each group of heads, by the attention sublayer's name.

    Raises:
        ValueError: the network has no heads that can be removed, or groups that share keys alone.
    """
    stacks = _stacks_with_heads(model, method)
    if any(a.n_key_value_heads == 1 < a.n_heads for a in stacks.values()):
        raise ValueError(f"{method}: keys and values that all heads share belong to none of them")
    return HeadPruning().scores(model, stacks, batches)


def feed_forward_scores(
    model: Model, batches: Sequence[Batch], method: str
) -> dict[str, Float[Tensor, "1"]]:
    """Return the importance of each feed-forward sublayer, by its name: with texts by gradients."""
    modules = _sublayers(model, _divisible_stacks(model, method), ("feed_forward",))
    if batches:
        masked = {name: (module.get_submodule("down"), 1) for name, (module, _) in modules.items()}
        return mask_gradients(model, masked, batches)
    return {name: _column_norms(module).sum()[None] for name, (module, _) in modules.items()}


def keep_heads(
    loaded_model: LoadedModel, kept: Mapping[str, Sequence[int]], method: str
) -> LoadedModel:
    """Return a model with some groups of heads of each attention sublayer, by its name.

    Raises:
        ValueError: the network has no heads that can be removed.
    """
    check_no_adapters(loaded_model, method)
    stacks = _stacks_with_heads(loaded_model.model, method)
    return _with_widths(loaded_model, stacks, heads=kept)


def _stacks_with_heads(model: Model, method: str) -> dict[str, Architecture]:
    stacks = _divisible_stacks(model, method)
    for a in stacks.values():
        _check_heads_are_separate(a, method)
    return stacks


def _stacks_of(loaded_model: LoadedModel, method: str) -> dict[str, Architecture]:
    """Return the stacks of a Transformer whose layers may differ.

    Raises:
        ValueError: it is another network, or its layers cannot differ.
    """
    check_no_adapters(loaded_model, method)
    return _divisible_stacks(loaded_model.model, method)


def _divisible_stacks(model: Model, method: str) -> dict[str, Architecture]:
    found = require_transformer_stacks(model.architecture, method)
    for a in found.values():
        if any(a.layers.types):
            raise ValueError(f"{method}: layers with convolutions have widths of their own")
    return found


def require_transformer_stacks(
    architecture: BackboneArchitecture, method: str
) -> dict[str, Architecture]:
    """Return the stacks of a network of Transformer blocks, each with layers of its own.

    Raises:
        ValueError: it is another network, or two stacks share their layers.
    """
    found: dict[str, Architecture] = {}
    for side, a in architecture.stacks.items():
        if not isinstance(a, Architecture):
            raise ValueError(
                f"{method}: only Transformer blocks can be divided so, got {type(a).__name__}"
            )
        found[side] = a
    if len(found) > 1 and _is_tied(architecture):
        raise ValueError(f"{method}: encoder and decoder share their layers, which must be equal")
    return found


def _is_tied(architecture: object) -> bool:
    return bool(vars(architecture).get("tie_encoder_decoder"))


def _check_heads_are_separate(a: Architecture, method: str) -> None:
    if "inside" in a.norm_placement:
        raise ValueError(
            f"{method}: a norm within attention reads all heads, so that removing some would "
            "change the others"
        )
    if a.attention.query_key_norm == "all":
        raise ValueError(
            f"{method}: queries and keys of all heads are normalized together, so that removing "
            "some would change the others"
        )


def _sublayers(
    model: Model, stacks: Mapping[str, Architecture], parts: Sequence[str]
) -> dict[str, tuple[nn.Module, Architecture]]:
    """Return sublayers by their names, shared ones once, with their architectures."""
    found: dict[str, tuple[nn.Module, Architecture]] = {}
    seen: set[int] = set()
    for side, a in stacks.items():
        for i in range(a.n_layers):
            for part in parts:
                name = _sublayer_name(side, i, part)
                around, _, last = name.rpartition(".")
                module = dict(model.get_submodule(around).named_children()).get(last)
                if module is not None and id(module) not in seen:
                    seen.add(id(module))
                    found[name] = module, a.at_layer(i, cross=part == "cross")
    return found


def _sublayer_name(side: str, i: int, part: str) -> str:
    return f"backbone.{side}.layers.{i}.{part}".replace("..", ".")


def _group_counts(attention: nn.Module, a: Architecture) -> tuple[int, int]:
    """Return the number of heads of a sublayer, and of groups that are removed together."""
    groups = a.n_key_value_heads
    return a.n_heads, a.n_heads if groups == 1 else groups


def _matrix(module: nn.Module, name: str) -> Float[Tensor, "o i"]:
    """Return the matrix of a linear map, or the product of its factors."""
    part = dict(module.get_submodule(name).named_parameters())
    if "weight" in part:
        return part["weight"].detach().double()
    return part["widen.weight"].detach().double() @ part["narrow.weight"].detach().double()


def _head_norms(attention: nn.Module, d_head: int) -> Float[Tensor, "h"]:
    """Return |W_O W_V| of each head: it does not change with the scale of either."""
    out = _matrix(attention, "o").unflatten(1, (-1, d_head)).movedim(1, 0)  # [h d e]
    value = _matrix(attention, "v").unflatten(0, (-1, d_head))  # [g e d]
    value = value.repeat_interleave(len(out) // len(value), 0)
    grams = (out.mT @ out) @ (value @ value.mT)  # [h e e]
    return grams.diagonal(dim1=1, dim2=2).sum(1).clamp_min(0).sqrt()


def _column_norms(feed_forward: nn.Module) -> Float[Tensor, "f"]:
    """Return the product of the norms of each column's weights."""
    found = _matrix(feed_forward, "down").norm(dim=0) * _matrix(feed_forward, "up").norm(dim=1)
    gate = dict(feed_forward.named_children()).get("gate")
    return found if gate is None else found * _matrix(feed_forward, "gate").norm(dim=1)


def _select(
    scores: Mapping[str, Float[Tensor, "n"]], fraction: float, scope: Scope
) -> dict[str, list[int]]:
    """Return which parts of each sublayer stay: those of the highest scores, at least one each."""
    sizes = {name: len(x) for name, x in scores.items()}
    ranked = sorted(
        (float(x), name, i) for name, values in scores.items() for i, x in enumerate(values)
    )
    removed: dict[str, set[int]] = {name: set() for name in scores}
    budgets = {name: min(round(fraction * n), n - 1) for name, n in sizes.items()}
    left = round(fraction * sum(sizes.values()))
    if scope == "global":
        budgets, total = {name: n - 1 for name, n in sizes.items()}, left
    else:
        total = sum(budgets.values())
    for _, name, i in ranked:
        if total and len(removed[name]) < budgets[name]:
            removed[name].add(i)
            total -= 1
    return {name: [i for i in range(n) if i not in removed[name]] for name, n in sizes.items()}


def _with_widths(
    loaded_model: LoadedModel,
    stacks: Mapping[str, Architecture],
    *,
    heads: Mapping[str, Sequence[int]] | None = None,
    columns: Mapping[str, Sequence[int]] | None = None,
) -> LoadedModel:
    """Return a model with some groups of heads, or columns, of each sublayer."""
    weights = loaded_model.model.own_weights()
    narrower: dict[str, Architecture] = {}
    for side, a in stacks.items():
        widths = a.layers.widths or LayerWidths()
        if heads is not None:
            widths = replace(widths, heads=_cut_attention(weights, a, side, "attention", heads))
            if a.cross_attention:
                cross = _cut_attention(weights, a, side, "cross", heads)
                widths = replace(widths, cross_heads=cross)
        if columns is not None:
            widths = replace(widths, d_ff=_cut_feed_forward(weights, a, side, columns))
        narrower[side] = replace(a, layers=replace(a.layers, widths=widths))
    if all(spec.is_kept_after_pretraining for spec in loaded_model.model.head_specs.values()):
        narrower = {side: _as_uniform(a) for side, a in narrower.items()}  # generators follow sizes
    architecture = loaded_model.model.architecture
    return rebuild(loaded_model, architecture.with_stacks(narrower), weights)


def _cut_attention(
    weights: dict[str, Tensor],
    a: Architecture,
    side: str,
    part: Literal["attention", "cross"],
    kept: Mapping[str, Sequence[int]],
) -> tuple[tuple[int, ...], ...]:
    """Cut the groups of heads that go from weights; return each layer's heads of the stack's."""
    found: list[tuple[int, ...]] = []
    for i in range(a.n_layers):
        shared = part in a.layers.shared_sublayers
        name, layer = (
            _sublayer_name(side, 0 if shared else i, part),
            a.at_layer(i, cross=part == "cross"),
        )
        groups, size = kept[name], layer.n_heads // layer.n_key_value_heads
        size = 1 if layer.n_key_value_heads == 1 else size
        heads = [group * size + j for group in groups for j in range(size)]
        if not (shared and i):
            key_value_heads = [0] if layer.n_key_value_heads == 1 else groups
            cut_heads(weights, f"{name}.", heads, key_value_heads, a.d_head)
        before = a.layer_heads(i, cross=part == "cross") or range(a.n_heads)
        found.append(tuple(before[head] for head in heads))
    return tuple(found)


def _cut_feed_forward(
    weights: dict[str, Tensor], a: Architecture, side: str, kept: Mapping[str, Sequence[int]]
) -> tuple[int, ...]:
    """Cut the columns that go from weights; return each layer's width."""
    found: list[int] = []
    for i in range(a.n_layers):
        shared = "feed_forward" in a.layers.shared_sublayers
        name = _sublayer_name(side, 0 if shared else i, "feed_forward")
        if not (shared and i):
            cut_columns(weights, f"{name}.", kept[name])
        found.append(len(kept[name]))
    return tuple(found)


def _as_uniform(a: Architecture) -> Architecture:
    """Return an architecture without widths of layers, as far as all of them are alike."""
    widths = a.layers.widths
    if widths is None:
        return a
    if len({*widths.d_ff}) == 1:
        a, widths = replace(a, d_ff=widths.d_ff[0]), replace(widths, d_ff=())
    counts = {len(heads) for heads in (*widths.heads, *widths.cross_heads)}
    if len(counts) == 1 and not a.position.has_head_biases:
        (n,), groups = counts, a.n_kv_heads
        groups = None if groups is None else max(groups * n // a.n_heads, 1)
        widths = replace(widths, heads=(), cross_heads=())
        a = replace(a, head_dim=a.d_head, layers=replace(a.layers, widths=None))
        a = replace(a, n_heads=n, n_kv_heads=groups)
    return replace(a, layers=replace(a.layers, widths=None if widths == LayerWidths() else widths))
