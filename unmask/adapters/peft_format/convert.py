"""Conversion of adapters to and from PEFT's layout.

LoRA, (IA)3, prefix and prompt tuning; `folder.py` writes the files.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unmask.adapters.attach import find_linears
from unmask.adapters.ia3 import IA3, IA3Module, IA3Scaling
from unmask.adapters.lora import LoRA, LoRAModule
from unmask.adapters.peft_format.config import PeftConfig
from unmask.adapters.peft_format.prefix import (
    prefix_from_peft,
    prefix_to_peft,
    prompt_from_peft,
    prompt_to_peft,
)
from unmask.adapters.peft_format.tensors import (
    IA3_TENSOR,
    LORA_TENSOR,
    PREFIX_TUNING,
    PROMPT_TUNING,
    ReadAdapter,
    Tensors,
    check_shape,
)
from unmask.adapters.prefix import (
    PrefixTuningModule,
    PromptTuningModule,
)
from unmask.heads.model import Model
from unmask.model.exchange.weight_names import WeightNames


@dataclass(frozen=True, kw_only=True)
class FusedModule:
    """An external module, and the internal modules into which its outputs are split."""

    external_name: str
    internal_names: tuple[str, ...]
    output_sizes: tuple[int, ...]
    """Output width of each internal module."""
    transposed: bool


def fused_modules(model: Model, names: WeightNames) -> list[FusedModule]:
    """List the corresponding modules of backbone and heads.

    The name table is applied to marker tensors: their output shows what is renamed, joined and
    transposed.
    """
    weights = {name: w for name, w in model.own_weights().items() if name.endswith(".weight")}
    marks = {
        name: torch.full((len(w), 1) if w.dim() == 2 else (len(w),), i)
        for i, (name, w) in enumerate(weights.items())
    }
    internal = [name.removesuffix(".weight") for name in weights]
    external, modules = names.to_external(marks), list[FusedModule]()
    for name, marked in (external if model.head_specs else names.without_prefix(external)).items():
        numbers, rows = marked.flatten().unique_consecutive(return_counts=True)
        modules.append(
            FusedModule(
                external_name=name.removesuffix(".weight"),
                internal_names=tuple(internal[i] for i in numbers.tolist()),
                output_sizes=tuple(rows.tolist()),
                transposed=marked.dim() == 2 and marked.shape[0] == 1 < marked.shape[1],
            )
        )
    return modules


def to_peft(
    module: object, model: Model, table: Collection[FusedModule]
) -> tuple[dict[str, Any], Tensors]:
    """Return the PEFT configuration of an adapter, and its tensors by PEFT's names.

    Raises:
        TypeError: PEFT has no such method.
    """
    if isinstance(module, LoRAModule):
        return _lora_to_peft(module, table)
    if isinstance(module, IA3Module):
        return _ia3_to_peft(module, table)
    if isinstance(module, PrefixTuningModule):
        return prefix_to_peft(module, model)
    if isinstance(module, PromptTuningModule):
        return prompt_to_peft(module, model)
    raise TypeError(f"PEFT has no {type(module).__name__}")


def untranslatable(module: object, table: Collection[FusedModule]) -> str | None:
    """Return what PEFT cannot express of an adapter; None: it can be converted."""
    if isinstance(module, IA3Module):
        for fused in _fused_with_adapters(table, module.scalings):
            if len(fused.internal_names) > 1 and any(
                p.scales_input for p in _scalings_of(module, fused)
            ):
                return f"factors of the input of a part of {fused.external_name}"
    modules = LoRAModule | IA3Module | PrefixTuningModule | PromptTuningModule
    return None if isinstance(module, modules) else type(module).__name__


def from_peft(
    settings: PeftConfig,
    tensors: Tensors,
    model: Model,
    table: Collection[FusedModule],
    recorded: object = None,
) -> tuple[ReadAdapter, dict[str, Tensor]]:
    """Return the adapter, its parameters, and the other tensors.

    Args:
        settings: the settings of adapter_config.json.
        tensors: tensors by module names of the external base model.
        model: the base model.
        table: its `fused_modules`.
        recorded: the recorded specification, if Unmask wrote the adapter.

    Raises:
        ValueError: a tensor does not fit the model or the settings; the message names the first.
    """
    kind = settings.peft_type
    if kind == PREFIX_TUNING:
        return prefix_from_peft(settings, tensors, model)
    if kind == PROMPT_TUNING:
        return prompt_from_peft(settings, tensors, model)
    by_theirs = {fused.external_name: fused for fused in table}
    modules = _recorded(model, recorded)
    if kind == "LORA":
        return _lora_from_peft(settings, tensors, model, by_theirs, modules)
    return _ia3_from_peft(settings, tensors, model, by_theirs, modules)


@dataclass(frozen=True)
class _RecordedSplit:
    """Recorded facts of a native adapter that fused tensors lack."""

    linear_names: frozenset[str]
    rank: int


def _recorded(model: Model, recorded: object) -> _RecordedSplit | None:
    if isinstance(recorded, LoRA):
        return _RecordedSplit(
            frozenset(find_linears(model, recorded.target_modules)), recorded.rank
        )
    if isinstance(recorded, IA3):
        return _RecordedSplit(
            frozenset(
                find_linears(model, (*recorded.target_modules, *recorded.feedforward_modules))
            ),
            1,
        )
    return None


# LoRA


def _lora_to_peft(
    module: LoRAModule, table: Collection[FusedModule]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return one pair of matrices per external module, with a common factor alpha / rank."""
    spec, tensors = module.spec, dict[str, Tensor]()
    ranks: dict[str, int] = {}
    chosen = _fused_with_adapters(table, module.layers)
    for fused in chosen:
        down, up = _join_fused(module, fused)
        tensors[f"{fused.external_name}.lora_A.weight"] = down
        tensors[f"{fused.external_name}.lora_B.weight"] = up
        ranks[fused.external_name] = len(down)
    rank = min(ranks.values())
    factors = {name: r for name, r in ranks.items() if r != rank}
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": _as_integer(spec.alpha * rank / spec.rank),
        "lora_dropout": spec.dropout,
        "rank_pattern": factors,
        "alpha_pattern": {n: _as_integer(spec.alpha * r / spec.rank) for n, r in factors.items()},
        "target_modules": shortest_patterns(
            (f.external_name for f in chosen), (f.external_name for f in table)
        ),
        "fan_in_fan_out": any(f.transposed for f in chosen),
        "bias": "none",
    }
    return config, tensors


def _as_integer(x: float) -> int | float:
    return int(x) if x == int(x) else x


def _join_fused(module: LoRAModule, fused: FusedModule) -> tuple[Tensor, Tensor]:
    """Join A and B of linear maps that are one external module.

    A's are stacked and B's block-diagonal, so that ranks add up; a shared A stays one.
    """
    parts = [module.layers.get(name) for name in fused.internal_names]
    present = [part for part in parts if part is not None]
    first, rank = present[0].down.detach(), module.spec.rank
    shared = all(torch.equal(part.down, first) for part in present)
    down = first if shared else torch.cat([part.down.detach() for part in present])
    up = first.new_zeros(sum(fused.output_sizes), len(down))
    row = column = 0
    for rows, part in zip(fused.output_sizes, parts, strict=True):
        if part is not None:
            up[row : row + rows, column : column + rank] = part.up.detach()
            column += 0 if shared else rank
        row += rows
    return down, up


def _lora_from_peft(
    settings: PeftConfig,
    tensors: Tensors,
    model: Model,
    table: Mapping[str, FusedModule],
    known: _RecordedSplit | None,
) -> tuple[ReadAdapter, dict[str, Tensor]]:
    external, left = _by_module(LORA_TENSOR, tensors)
    pairs: dict[str, tuple[Tensor, Tensor]] = {}
    factors: dict[str, float] = {}
    for name, pair in external.items():
        if missing := {"A", "B"} - pair.keys():
            raise ValueError(f"tensor {name}.lora_{min(missing)}.weight is missing")
        fused = _find_fused(table, name, f"{name}.lora_A.weight")
        settings.check_targeted(name)
        down, up = pair["A"], pair["B"]
        check_shape(f"{name}.lora_A.weight", down, (len(down), _inputs(model, fused)))
        check_shape(f"{name}.lora_B.weight", up, (sum(fused.output_sizes), len(down)))
        if len(down) != (rank := settings.rank(name)):
            raise ValueError(f"tensor {name}.lora_A.weight has rank {len(down)}, but r is {rank}")
        parts = _split_fused(fused, down, up, known)
        pairs |= parts
        factors |= dict.fromkeys(parts, settings.scaling(name))
    if not pairs:
        raise ValueError(f"there is no tensor of a LoRA (…lora_A.weight){_instead(left)}")
    _check_complete(settings, model, table, external, "lora_A.weight")
    rank = max(len(down) for down, _ in pairs.values())
    factor = next(iter(factors.values()))
    parameters: dict[str, Tensor] = {}
    for name, (down, up) in pairs.items():
        reduced = rank - len(down)
        if factors[name] != factor:
            up = up * (factors[name] / factor)
        parameters[f"{name}.down"] = torch.nn.functional.pad(down, (0, 0, 0, reduced))
        parameters[f"{name}.up"] = torch.nn.functional.pad(up, (0, reduced))
    dropout, target_modules = settings.lora_dropout, _target_modules(model, pairs)
    spec = LoRA(rank=rank, alpha=factor * rank, dropout=dropout, target_modules=target_modules)
    return (spec, parameters), left


def _instead(left: Collection[str]) -> str:
    """Name a tensor that is present if the adapter has none, such as embeddings."""
    return f", only {min(left)}" if left else ""


def _split_fused(
    fused: FusedModule, down: Tensor, up: Tensor, known: _RecordedSplit | None
) -> dict[str, tuple[Tensor, Tensor]]:
    """Split A and B for linear maps that are one external module, as joined or with one A."""
    ups = dict(zip(fused.internal_names, up.split(fused.output_sizes), strict=True))
    mine = [
        name for name in fused.internal_names if known is not None and name in known.linear_names
    ]
    if known is None or any(bool(ups[n].any()) for n in fused.internal_names if n not in mine):
        return {name: (down, b) for name, b in ups.items()}
    if len(down) == known.rank * len(mine):
        downs = down.split(known.rank)
        cut = {n: (downs[i], ups[n].split(known.rank, 1)[i]) for i, n in enumerate(mine)}
        if sum(int(b.count_nonzero()) for _, b in cut.values()) == int(up.count_nonzero()):
            return cut
    return {name: (down, ups[name]) for name in mine}


# (IA)3


def _ia3_to_peft(
    module: IA3Module, table: Collection[FusedModule]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    tensors, inputs = dict[str, Tensor](), list[str]()
    chosen = _fused_with_adapters(table, module.scalings)
    for fused in chosen:
        first = _scalings_of(module, fused)[0]
        if first.scales_input:
            inputs.append(fused.external_name)
            tensors[f"{fused.external_name}.ia3_l"] = first.factors.detach()[None]
            continue
        pieces = zip(
            fused.internal_names,
            first.factors.new_ones(sum(fused.output_sizes)).split(fused.output_sizes),
            strict=True,
        )
        all_ = [module.scalings[n].factors if n in module.scalings else ones for n, ones in pieces]
        tensors[f"{fused.external_name}.ia3_l"] = torch.cat(all_).detach()[:, None]
    every = [f.external_name for f in table]
    config = {
        "peft_type": "IA3",
        "target_modules": shortest_patterns((f.external_name for f in chosen), every),
        "feedforward_modules": shortest_patterns(inputs, every),
        "fan_in_fan_out": any(f.transposed for f in chosen),
    }
    return config, tensors


def _scalings_of(module: IA3Module, fused: FusedModule) -> list[IA3Scaling]:
    return [module.scalings[name] for name in fused.internal_names if name in module.scalings]


def _ia3_from_peft(
    settings: PeftConfig,
    tensors: Tensors,
    model: Model,
    table: Mapping[str, FusedModule],
    known: _RecordedSplit | None,
) -> tuple[ReadAdapter, dict[str, Tensor]]:
    external, left = _by_module(IA3_TENSOR, tensors)
    outputs: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}
    for name, scaling in external.items():
        fused, factors = _find_fused(table, name, f"{name}.ia3_l"), scaling[""]
        settings.check_targeted(name)
        if factors.shape[0] == 1 < factors.shape[1]:
            check_shape(f"{name}.ia3_l", factors, (1, _inputs(model, fused)))
            inputs |= dict.fromkeys(fused.internal_names, factors[0])
            continue
        check_shape(f"{name}.ia3_l", factors, (sum(fused.output_sizes), 1))
        parts = dict(
            zip(fused.internal_names, factors[:, 0].split(fused.output_sizes), strict=True)
        )
        internal = {n: x for n, x in parts.items() if known is None or n in known.linear_names}
        remaining = [x for n, x in parts.items() if n not in internal]
        outputs |= internal if all(bool((x == 1).all()) for x in remaining) else parts
    if not external:
        raise ValueError(f"there is no tensor of an (IA)3 (…ia3_l){_instead(left)}")
    _check_complete(settings, model, table, external, "ia3_l")
    spec = IA3(
        target_modules=_target_modules(model, outputs),
        feedforward_modules=_target_modules(model, inputs),
    )
    return (spec, {f"{name}.factors": x for name, x in (outputs | inputs).items()}), left


# Prefix


# Prompt


# Shared


def shortest_patterns(selected: Iterable[str], all_names: Iterable[str]) -> list[str]:
    """Return name suffixes after the layer index, where they match no other module.

    PEFT matches modules by suffix.
    """
    selected_names, names = list(dict.fromkeys(selected)), list(all_names)
    suffixes = list(dict.fromkeys(re.sub(r".*\.\d+\.", "", name) for name in selected_names))
    used = {name for name in names if any(name.endswith(end) for end in suffixes)}
    return suffixes if used == set(selected_names) else selected_names


def _target_modules(model: Model, chosen: Collection[str]) -> tuple[str, ...]:
    """Return patterns of linear maps: their sublayer, where it matches no others."""
    if not chosen:
        return ()
    suffixes = tuple(dict.fromkeys(".".join(name.split(".")[-2:]) for name in chosen))
    return suffixes if find_linears(model, suffixes).keys() == set(chosen) else tuple(chosen)


def _fused_with_adapters(table: Iterable[FusedModule], parts: Collection[str]) -> list[FusedModule]:
    return [fused for fused in table if any(name in parts for name in fused.internal_names)]


def _by_module(
    pattern: re.Pattern[str], tensors: Tensors
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Tensor]]:
    """Group tensors by module and by the pattern's last group."""
    grouped: dict[str, dict[str, Tensor]] = {}
    left: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if (hit := pattern.fullmatch(name)) is None:
            left[name] = tensor
        else:
            module, *kind = hit.groups()
            grouped.setdefault(module, {})["".join(kind)] = tensor
    return grouped, left


def _find_fused(table: Mapping[str, FusedModule], module: str, tensor: str) -> FusedModule:
    """Find an external module, by a suffix of its name in models without a head."""
    for name, fused in table.items():
        if _is_same_module(name, module):
            if not fused.internal_names[0].startswith("backbone."):
                raise ValueError(f"tensor {tensor} adapts a head; only backbones are adapted")
            return fused
    raise ValueError(f"tensor {tensor} does not belong to this model")


def _is_same_module(a: str, b: str) -> bool:
    """Return whether two names are of one module; one may be a suffix of the other."""
    return a == b or a.endswith(f".{b}") or b.endswith(f".{a}")


def _check_complete(
    settings: PeftConfig,
    model: Model,
    table: Mapping[str, FusedModule],
    found: Collection[str],
    tensor: str,
) -> None:
    """Reject an adapter that lacks tensors of an adapted map, which PEFT would initialize.

    Raises:
        ValueError: a tensor is missing.
    """
    maps = find_linears(model, ("*",))
    for name, fused in table.items():
        if any(
            modules_missing not in maps for modules_missing in fused.internal_names
        ) or not settings.targets(name):
            continue
        if not any(_is_same_module(name, modules_missing) for modules_missing in found):
            raise ValueError(f"tensor {name}.{tensor} is missing: target_modules names its module")


def _inputs(model: Model, fused: FusedModule) -> int:
    return model.get_parameter(f"{fused.internal_names[0]}.weight").shape[1]
