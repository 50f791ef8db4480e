"""Attach adapters to a model, activate them, merge them into its weights, and detach them.

Adapters act by hooks on the model's modules: these, their names and their files stay as they are.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from unmask.heads.model import Model
from unmask.model.backbones.recurrent_layers import GRULayer, LSTMLayer


@dataclass
class Attachment:
    """The state of an adapter in its model. An adapter's hooks read `rows` alone."""

    rows: Int[Tensor, "n"] | None = None
    """The rows of the batch on which it acts; None: all."""
    hooks: list[RemovableHandle] = field(default_factory=list[RemovableHandle])
    """Hooks, while it is active."""
    unmerged_weights: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """While it is merged: the weights without it, by name."""


@runtime_checkable
class AdapterModule(Protocol):
    """The module of an adapter, an nn.Module.

    It is initialized from torch's default generator, which `attach` seeds. It need not check
    whether it is active: while it is not, it has no hooks.
    """

    attachment: Attachment
    """Created by the module."""
    supports_row_selection: bool
    """Whether it can act on the rows of a batch in `attachment.rows` alone."""

    def register_hooks(self, model: Model) -> list[RemovableHandle]:
        """Act on a model until these handles are removed.

        Hooks are bound methods or partials of them, so that a copy of the model has its own.
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
    """The specification of an adapter; `specs.Adapter` has them all."""

    def build(self, model: Model) -> nn.Module:
        """Build the adapter for a model, an AdapterModule."""
        ...


def attach(model: Model, spec: AdapterSpec, name: str = "default", seed: int = 0) -> nn.Module:
    """Build an adapter and activate it; if there are several, none is until `use_adapters`.

    Its weights are `adapters.<name>.…` of the model, initialized from a generator of their own.
    What is trained is not changed; see `freeze`.

    Raises:
        ValueError: the name is taken or not possible, a pattern of the adapter matches nothing, or
            an adapter is merged.
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
        ValueError: there is none of this name.
    """
    if find_adapter(model, name).attachment.unmerged_weights:
        unmerge(model, name)
    _activate(model, {})
    del model.adapters[name]
    _activate_single(model)


def find_adapter(model: Model, name: str) -> AdapterModule:
    """Return the adapter of this name.

    Raises:
        ValueError: there is none.
    """
    adapters = _adapters(model)
    if name not in adapters:
        raise ValueError(f"no adapter {name!r} (attached: {', '.join(adapters) or 'none'})")
    return adapters[name]


@contextmanager
def use_adapters(
    model: Model, adapter_names: str | Sequence[str | None] | None
) -> Generator[None, None, None]:
    """Activate one adapter, none, or one or none for each row of a batch, within a `with` block.

    Rows are those of the batches that the model is given, in their order. `generate` forms batches
    of its prompts itself, so there only one adapter for all makes sense.

    Raises:
        ValueError: there is no such adapter, it does not support row selection, an adapter is
            merged, or a batch has another number of rows.
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
    """Merge an adapter into the model's weights: it then costs nothing.

    Raises:
        ValueError: an adapter is merged already, or this one cannot be.
    """
    adapter = find_adapter(model, name)
    _check_unmerged(model, f"merge {name!r}")
    if not isinstance(adapter, Mergeable):
        method = type(cast(Any, adapter).spec).__name__.replace("ScalarMix", "scalar_mix")
        method = method.removesuffix("Adapter").removesuffix("Tuning").lower()
        raise ValueError(
            f"{method} cannot be put into the model's weights; LoRA, IA3 and BitFit can. A folder "
            "that holds one can be copied as it is"
        )
    with torch.no_grad():
        for key, weight in adapter.merged_weights(model).items():
            old = model.get_parameter(key)
            adapter.attachment.unmerged_weights[key] = old.detach().clone()
            old.copy_(weight)
    _activate(model, {})


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
    """Find the backbone's linear maps by patterns, by their names in the model.

    A pattern matches the end of a name, by whole words between dots, where `*` and the like match
    one word: `v`, `attention.v`, `layers.3.*.v`. "all": every linear map of the layers.

    LSTMs have none: one kernel uses all of their weights.

    Raises:
        ValueError: a pattern matches none, or there are none.
    """
    inside = tuple(f"{n}." for n, m in model.named_modules() if isinstance(m, LSTMLayer | GRULayer))
    there = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    there = {
        n: m for n, m in there.items() if n.startswith("backbone.") and not n.startswith(inside)
    }
    if not there:
        raise ValueError("this backbone has no linear maps to adapt: an LSTM is one kernel")
    found: set[str] = set()
    for pattern in target_modules:
        mine = {name for name in there if _matches(name, pattern)}
        if not mine:
            known = sorted({".".join(name.split(".")[-2:]) for name in there})
            raise ValueError(f"{pattern!r} matches no linear map (there are {', '.join(known)})")
        found |= mine
    return {name: m for name, m in there.items() if name in found}


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
    """Return change(out, *others), in these rows only."""
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
    return {name: torch.tensor(found, device=device) for name, found in rows.items()}


class _CheckRows:
    """Check that a batch has as many rows as adapters were chosen for."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, stack: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        batch = args[0] if args else kwargs["batch"]
        if len(batch.inputs) != self.n:
            raise ValueError(
                f"adapters were chosen for {self.n} rows, but the batch has {len(batch.inputs)}"
            )


def _check_unmerged(model: Model, what: str) -> None:
    for name, adapter in _adapters(model).items():
        if adapter.attachment.unmerged_weights:
            raise ValueError(f"adapter {name!r} is merged into the weights: unmerge it to {what}")
