"""Attach adapters to a model, activate them, merge them into its weights, and detach them.

Adapters act by hooks on the model's modules, which keep their names and files.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from unmask.heads.model import Model
from unmask.model.backbones.recurrent_layers import GRULayer, LSTMLayer


@dataclass
class Attachment:
    """The state of an adapter in its model. Its hooks read only `rows`."""

    rows: Int[Tensor, "n"] | None = None
    """The rows of the batch on which it acts; None: all."""
    hooks: list[RemovableHandle] = field(default_factory=list[RemovableHandle])
    """Hooks, while it is active."""
    unmerged_weights: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Weights without the adapter, by name, while it is merged."""


@runtime_checkable
class AdapterModule(Protocol):
    """The module of an adapter, an nn.Module.

    It is initialized from torch's default generator, seeded by `attach`. Inactive adapters have no
    hooks.
    """

    attachment: Attachment
    """Created by the module."""
    supports_row_selection: bool
    """Whether it can act on only the rows `attachment.rows` of a batch."""

    def register_hooks(self, model: Model) -> list[RemovableHandle]:
        """Act on a model until these handles are removed.

        Hooks are bound methods or partials of them, so that they are copied with the model.
        """
        ...


@runtime_checkable
class Mergeable(Protocol):
    """An adapter that can be merged into the model's weights."""

    def merged_weights(self, model: Model) -> dict[str, Tensor]:
        """Return the merged weights, by the names of the model's parameters."""
        ...


@runtime_checkable
class AdapterSpec(Protocol):
    """The specification of an adapter; `specs.Adapter` is the union of all."""

    def build(self, model: Model) -> nn.Module:
        """Build the adapter for a model, an AdapterModule."""
        ...


def attach(model: Model, spec: AdapterSpec, name: str = "default", seed: int = 0) -> nn.Module:
    """Build an adapter and activate it; with several, none is active until `use_adapters`.

    Its weights are `adapters.<name>.…` of the model, initialized from their own generator.
    Trainable parameters are unchanged; see `freeze`.

    Raises:
        ValueError: the name is taken or invalid, a pattern of the adapter matches nothing, or an
            adapter is merged.
    """
    if name in model.adapters:
        raise ValueError(
            f"the model has an adapter {name!r} already; detach it, or choose another name"
        )
    if not name or "." in name or hasattr(model.adapters, name):
        raise ValueError(f"{name!r} cannot be the name of an adapter; choose a plain word")
    _check_unmerged(model, f"attach {name!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = spec.build(model)
    weight = model.backbone.embedding_table.weight
    module.to(weight.device, weight.dtype).train(model.training)
    model.adapters[name] = module
    _activate_single(model)
    return module


def detach(model: Model, name: str) -> None:
    """Remove an adapter and restore the model.

    Raises:
        ValueError: there is no such adapter.
    """
    if find_adapter(model, name).attachment.unmerged_weights:
        unmerge(model, name)
    _activate(model, {})
    del model.adapters[name]
    _activate_single(model)


def find_adapter(model: Model, name: str) -> AdapterModule:
    """Return an adapter by name.

    Raises:
        ValueError: there is no such adapter.
    """
    adapters = _adapters(model)
    if name not in adapters:
        raise ValueError(f"no adapter {name!r} (attached: {', '.join(adapters) or 'none'})")
    return adapters[name]


@contextmanager
def use_adapters(
    model: Model, adapter_names: str | Sequence[str | None] | None
) -> Generator[None, None, None]:
    """Activate one adapter, none, or one or none per row of a batch, within a `with` block.

    Rows are those of the model's input batches, in order. `generate` makes its own batches, so that
    it supports only one adapter for all rows.

    Raises:
        ValueError: there is no such adapter, it does not support row selection, an adapter is
            merged, or the number of rows differs.
    """
    _check_unmerged(model, "choose")
    before = {n: a.attachment.rows for n, a in _adapters(model).items() if a.attachment.hooks}
    checks: list[RemovableHandle] = []
    if adapter_names is None or isinstance(adapter_names, str):
        chosen: dict[str, Tensor | None] = {} if adapter_names is None else {adapter_names: None}
    else:
        chosen = _rows_by_name(adapter_names, model.device)
        check = _CheckRows(len(adapter_names))
        stacks = [m for m in model.backbone.stacks if isinstance(m, nn.Module)]
        checks = [s.register_forward_pre_hook(check, with_kwargs=True) for s in stacks]
    try:
        _activate(model, chosen)
        yield
    finally:
        for handle in checks:
            handle.remove()
        _activate(model, {n: rows for n, rows in before.items() if n in model.adapters})


def merge(model: Model, name: str) -> None:
    """Merge an adapter into the model's weights, which removes its overhead.

    Raises:
        ValueError: an adapter is merged already, or this one cannot be.
    """
    adapter = find_adapter(model, name)
    _check_unmerged(model, f"merge {name!r}")
    if (mergeable := _as_mergeable(adapter)) is None:
        method = type(cast(Any, adapter).spec).__name__.replace("ScalarMix", "scalar_mix")
        method = method.removesuffix("Adapter").removesuffix("Tuning").lower()
        raise ValueError(
            f"{method} cannot be merged into the model's weights; LoRA, IA3 and BitFit can. Its "
            "folder can be copied unchanged"
        )
    with torch.no_grad():
        for key, weight in mergeable.merged_weights(model).items():
            old = model.get_parameter(key)
            adapter.attachment.unmerged_weights[key] = old.detach().clone()
            old.copy_(weight)
    _activate(model, {})


@dataclass(frozen=True)
class WeightsInEffect:
    """What a model computes with while an adapter is active, which changes nothing of the model."""

    merged_weights: Callable[[], Mapping[str, Tensor]]
    """Computes weights with the adapter merged, by the names of the model's parameters."""
    hooks: frozenset[int]
    """The adapter's hooks, in place of which these weights are."""


def weights_in_effect(model: Model) -> WeightsInEffect | None:
    """Return what the active adapter makes of the model's weights, which stay as they are.

    None: it cannot be merged, or acts on some rows of a batch only, or several are active.
    """
    active = [adapter for adapter in _adapters(model).values() if adapter.attachment.hooks]
    if not active:
        return WeightsInEffect(dict, frozenset())
    attachment, mergeable = active[0].attachment, _as_mergeable(active[0])
    if len(active) > 1 or mergeable is None or attachment.rows is not None:
        return None
    hooks = frozenset(hook.id for hook in attachment.hooks)
    return WeightsInEffect(partial(mergeable.merged_weights, model), hooks)


def _as_mergeable(adapter: AdapterModule) -> Mergeable | None:
    return adapter if isinstance(adapter, Mergeable) else None


def unmerge(model: Model, name: str) -> None:
    """Unmerge an adapter: the weights are restored bit for bit.

    Raises:
        ValueError: it is not merged.
    """
    attachment = find_adapter(model, name).attachment
    if not attachment.unmerged_weights:
        raise ValueError(f"adapter {name!r} is not merged")
    with torch.no_grad():
        for key, weight in attachment.unmerged_weights.items():
            model.get_parameter(key).copy_(weight)
    attachment.unmerged_weights = {}
    _activate_single(model)


def freeze(model: Model) -> None:
    """Train only adapters and heads, not the backbone.

    Raises:
        ValueError: an adapter is merged.
    """
    _check_unmerged(model, "train")
    model.requires_grad_(True)
    model.get_submodule("backbone").requires_grad_(False)


def find_linears(model: Model, target_modules: Sequence[str]) -> dict[str, nn.Linear]:
    """Find linear maps of the backbone by name patterns.

    A pattern matches the last components of a dotted name; `*` and other wildcards match one
    component: `v`, `attention.v`, `layers.3.*.v`. "all": every linear map of the layers.

    LSTMs have none: one kernel uses all of their weights.

    Raises:
        ValueError: a pattern matches none, or there are none.
    """
    inside = tuple(f"{n}." for n, m in model.named_modules() if isinstance(m, LSTMLayer | GRULayer))
    linears = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    linears = {
        n: m for n, m in linears.items() if n.startswith("backbone.") and not n.startswith(inside)
    }
    if not linears:
        raise ValueError("this backbone has no linear maps to adapt: an LSTM is one kernel")
    matching: set[str] = set()
    for pattern in target_modules:
        mine = {name for name in linears if _matches(name, pattern)}
        if not mine:
            names = sorted({".".join(name.split(".")[-2:]) for name in linears})
            raise ValueError(f"{pattern!r} matches no linear map (there are {', '.join(names)})")
        matching |= mine
    return {name: m for name, m in linears.items() if name in matching}


def _matches(name: str, pattern: str) -> bool:
    if pattern == "all":
        return ".layers." in name
    words, asked = name.split("."), pattern.split(".")
    end = words[-len(asked) :]
    return len(end) == len(asked) and all(map(fnmatchcase, end, asked))


def add_submodule(tree: nn.Module, name: str, module: nn.Module) -> None:
    """Add `module` to `tree` under a dotted name."""
    *path, last = name.split(".")
    for step in path:
        if step not in dict(tree.named_children()):
            tree.add_module(step, nn.Module())
        tree = tree.get_submodule(step)
    tree.add_module(last, module)


def apply_to_rows(
    rows: Int[Tensor, "n"] | None, function: Callable[..., Tensor], output: Tensor, *others: Tensor
) -> Tensor:
    """Return change(out, *others) for these rows only."""
    if rows is None:
        return function(output, *others)
    return output.index_copy(0, rows, function(output[rows], *(x[rows] for x in others)))


def _adapters(model: Model) -> dict[str, AdapterModule]:
    return {name: cast(AdapterModule, module) for name, module in model.adapters.items()}


def _activate_single(model: Model) -> None:
    """Activate the only adapter, if there is one."""
    _activate(model, dict.fromkeys(model.adapters) if len(model.adapters) == 1 else {})


def _activate(model: Model, rows_by_name: Mapping[str, Tensor | None]) -> None:
    """Activate these adapters on these rows, and no others."""
    for name, rows in rows_by_name.items():
        if rows is not None and not find_adapter(model, name).supports_row_selection:
            raise ValueError(f"adapter {name!r} acts on all rows of a batch or on none")
    for adapter in _adapters(model).values():
        for handle in adapter.attachment.hooks:
            handle.remove()
        adapter.attachment.hooks, adapter.attachment.rows = [], None
    for name, rows in rows_by_name.items():
        adapter = find_adapter(model, name)
        adapter.attachment.rows = rows
        adapter.attachment.hooks = adapter.register_hooks(model)


def _rows_by_name(
    adapter_names: Sequence[str | None], device: torch.device
) -> dict[str, Tensor | None]:
    names = dict.fromkeys(name for name in adapter_names if name is not None)
    if len(set(adapter_names)) == 1:
        return dict.fromkeys(names)
    rows = {name: [i for i, other in enumerate(adapter_names) if other == name] for name in names}
    return {
        name: torch.tensor(rows_of_adapter, device=device) for name, rows_of_adapter in rows.items()
    }


class _CheckRows:
    """Check that a batch has the number of rows for which adapters were selected."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, stack: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        batch = args[0] if args else kwargs["batch"]
        if len(batch.inputs) != self.n:
            raise ValueError(
                f"adapters were selected for {self.n} rows, but the batch has {len(batch.inputs)}"
            )


def _check_unmerged(model: Model, operation: str) -> None:
    for name, adapter in _adapters(model).items():
        if adapter.attachment.unmerged_weights:
            raise ValueError(
                f"adapter {name!r} is merged into the weights: unmerge it to {operation}"
            )
