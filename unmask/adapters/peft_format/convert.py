"""How PEFT lays out the adapters that it has too, and the way back.

LoRA, (IA)3, prefix and prompt tuning; `peft.py` makes files of it.
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
    """One module of theirs, and the modules of ours that its outputs are cut into."""

    external_name: str
    internal_names: tuple[str, ...]
    output_sizes: tuple[int, ...]
    """Outputs of each of ours."""
    transposed: bool


def fused_modules(model: Model, names: WeightNames) -> list[FusedModule]:
    """List the modules that both have, backbone and heads.

    The table of names is asked by sending it marks in place of weights: where they come out says
    what is renamed, joined and transposed.
    """
    weights = {name: w for name, w in model.own_weights().items() if name.endswith(".weight")}
    marks = {
        name: torch.full((len(w), 1) if w.dim() == 2 else (len(w),), i)
        for i, (name, w) in enumerate(weights.items())
    }
    ours = [name.removesuffix(".weight") for name in weights]
    theirs, found = names.to_external(marks), list[FusedModule]()
    for name, marked in (theirs if model.head_specs else names.without_prefix(theirs)).items():
        numbers, rows = marked.flatten().unique_consecutive(return_counts=True)
        found.append(
            FusedModule(
                external_name=name.removesuffix(".weight"),
                internal_names=tuple(ours[i] for i in numbers.tolist()),
                output_sizes=tuple(rows.tolist()),
                transposed=marked.dim() == 2 and marked.shape[0] == 1 < marked.shape[1],
            )
        )
    return found


def to_peft(
    module: object, model: Model, table: Collection[FusedModule]
) -> tuple[dict[str, Any], Tensors]:
    """Return what PEFT's configuration says of an adapter, and its tensors by their names.

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
    """Say what PEFT has no words for in an adapter; None: it can be translated."""
    if isinstance(module, IA3Module):
        for fused in _fused_with_adapters(table, module.scalings):
            if len(fused.internal_names) > 1 and any(
                p.scales_input for p in _scalings_of(module, fused)
            ):
                return f"factors of the input of a part of {fused.external_name}"
    known = LoRAModule | IA3Module | PrefixTuningModule | PromptTuningModule
    return None if isinstance(module, known) else type(module).__name__


def from_peft(
    settings: PeftConfig,
    tensors: Tensors,
    model: Model,
    table: Collection[FusedModule],
    recorded: object = None,
) -> tuple[ReadAdapter, dict[str, Tensor]]:
    """Return the adapter, its parameters, and the tensors that are not its own.

    Args:
        settings: what adapter_config.json says.
        tensors: by the names of modules in their base model.
        model: to which the adapter shall belong.
        table: what `fused_modules` says of it.
        recorded: the value that described the adapter when we wrote it, if we did.

    Raises:
        ValueError: a tensor does not fit the model or the settings; the first is named.
    """
    kind = settings.peft_type
    if kind == PREFIX_TUNING:
        return prefix_from_peft(settings, tensors, model)
    if kind == PROMPT_TUNING:
        return prompt_from_peft(settings, tensors, model)
    by_theirs = {fused.external_name: fused for fused in table}
    known = _recorded(model, recorded)
    if kind == "LORA":
        return _lora_from_peft(settings, tensors, model, by_theirs, known)
    return _ia3_from_peft(settings, tensors, model, by_theirs, known)


@dataclass(frozen=True)
class _RecordedSplit:
    """What a fused tensor does not tell of an adapter that we wrote."""

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
    """One pair of matrices for each module of theirs; all have one factor alpha / rank."""
    spec, tensors = module.spec, dict[str, Tensor]()
    ranks: dict[str, int] = {}
    chosen = _fused_with_adapters(table, module.layers)
    for fused in chosen:
        down, up = _join_fused(module, fused)
        tensors[f"{fused.external_name}.lora_A.weight"] = down
        tensors[f"{fused.external_name}.lora_B.weight"] = up
        ranks[fused.external_name] = len(down)
    rank = min(ranks.values())
    others = {name: r for name, r in ranks.items() if r != rank}
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": _as_integer(spec.alpha * rank / spec.rank),
        "lora_dropout": spec.dropout,
        "rank_pattern": others,
        "alpha_pattern": {n: _as_integer(spec.alpha * r / spec.rank) for n, r in others.items()},
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
    """Join A's and B's of maps that are one module of theirs.

    A's are upon each other, and B's on a diagonal of blocks, so that the rank is the sum; one A
    that all share stays one.
    """
    parts = [module.layers.get(name) for name in fused.internal_names]
    there = [part for part in parts if part is not None]
    first, rank = there[0].down.detach(), module.spec.rank
    shared = all(torch.equal(part.down, first) for part in there)
    down = first if shared else torch.cat([part.down.detach() for part in there])
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
    theirs, left = _by_module(LORA_TENSOR, tensors)
    found: dict[str, tuple[Tensor, Tensor]] = {}
    factors: dict[str, float] = {}
    for name, pair in theirs.items():
        if lacking := {"A", "B"} - pair.keys():
            raise ValueError(f"tensor {name}.lora_{min(lacking)}.weight is missing")
        fused = _find_fused(table, name, f"{name}.lora_A.weight")
        settings.check_targeted(name)
        down, up = pair["A"], pair["B"]
        check_shape(f"{name}.lora_A.weight", down, (len(down), _inputs(model, fused)))
        check_shape(f"{name}.lora_B.weight", up, (sum(fused.output_sizes), len(down)))
        if len(down) != (rank := settings.rank(name)):
            raise ValueError(f"tensor {name}.lora_A.weight has rank {len(down)}, but r is {rank}")
        parts = _split_fused(fused, down, up, known)
        found |= parts
        factors |= dict.fromkeys(parts, settings.scaling(name))
    if not found:
        raise ValueError(f"there is no tensor of a LoRA (…lora_A.weight){_instead(left)}")
    _check_complete(settings, model, table, theirs, "lora_A.weight")
    rank = max(len(down) for down, _ in found.values())
    factor = next(iter(factors.values()))
    parameters: dict[str, Tensor] = {}
    for name, (down, up) in found.items():
        less = rank - len(down)
        if factors[name] != factor:
            up = up * (factors[name] / factor)
        parameters[f"{name}.down"] = torch.nn.functional.pad(down, (0, 0, 0, less))
        parameters[f"{name}.up"] = torch.nn.functional.pad(up, (0, less))
    dropout, target_modules = settings.lora_dropout, _target_modules(model, found)
    spec = LoRA(rank=rank, alpha=factor * rank, dropout=dropout, target_modules=target_modules)
    return (spec, parameters), left


def _instead(left: Collection[str]) -> str:
    """Name what is there where nothing of the adapter is: the parts of token vectors, say."""
    return f", only {min(left)}" if left else ""


def _split_fused(
    fused: FusedModule, down: Tensor, up: Tensor, known: _RecordedSplit | None
) -> dict[str, tuple[Tensor, Tensor]]:
    """Cut A and B for the maps that are one module of theirs: as we joined them, or with one A."""
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
    theirs, left = _by_module(IA3_TENSOR, tensors)
    outputs: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}
    for name, one in theirs.items():
        fused, factors = _find_fused(table, name, f"{name}.ia3_l"), one[""]
        settings.check_targeted(name)
        if factors.shape[0] == 1 < factors.shape[1]:
            check_shape(f"{name}.ia3_l", factors, (1, _inputs(model, fused)))
            inputs |= dict.fromkeys(fused.internal_names, factors[0])
            continue
        check_shape(f"{name}.ia3_l", factors, (sum(fused.output_sizes), 1))
        parts = dict(
            zip(fused.internal_names, factors[:, 0].split(fused.output_sizes), strict=True)
        )
        ours = {n: x for n, x in parts.items() if known is None or n in known.linear_names}
        others = [x for n, x in parts.items() if n not in ours]
        outputs |= ours if all(bool((x == 1).all()) for x in others) else parts
    if not theirs:
        raise ValueError(f"there is no tensor of an (IA)3 (…ia3_l){_instead(left)}")
    _check_complete(settings, model, table, theirs, "ia3_l")
    spec = IA3(
        target_modules=_target_modules(model, outputs),
        feedforward_modules=_target_modules(model, inputs),
    )
    return (spec, {f"{name}.factors": x for name, x in (outputs | inputs).items()}), left


# Prefix


# Prompt


# What several need


def shortest_patterns(selected: Iterable[str], all_names: Iterable[str]) -> list[str]:
    """Name modules by what follows their layer's number, where this names no others.

    PEFT takes a module whose name ends so.
    """
    wanted, names = list(dict.fromkeys(selected)), list(all_names)
    ends = list(dict.fromkeys(re.sub(r".*\.\d+\.", "", name) for name in wanted))
    taken = {name for name in names if any(name.endswith(end) for end in ends)}
    return ends if taken == set(wanted) else wanted


def _target_modules(model: Model, chosen: Collection[str]) -> tuple[str, ...]:
    """Name linear maps by patterns: by their sublayer where this names no others."""
    if not chosen:
        return ()
    ends = tuple(dict.fromkeys(".".join(name.split(".")[-2:]) for name in chosen))
    return ends if find_linears(model, ends).keys() == set(chosen) else tuple(chosen)


def _fused_with_adapters(table: Iterable[FusedModule], parts: Collection[str]) -> list[FusedModule]:
    return [fused for fused in table if any(name in parts for name in fused.internal_names)]


def _by_module(
    pattern: re.Pattern[str], tensors: Tensors
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Tensor]]:
    """Sort tensors by their module and, in it, by what the pattern's last group says."""
    found: dict[str, dict[str, Tensor]] = {}
    left: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if (hit := pattern.fullmatch(name)) is None:
            left[name] = tensor
        else:
            module, *which = hit.groups()
            found.setdefault(module, {})["".join(which)] = tensor
    return found, left


def _find_fused(table: Mapping[str, FusedModule], module: str, tensor: str) -> FusedModule:
    """Find a module of theirs, which a model without a head calls by the end of its name."""
    for name, fused in table.items():
        if _is_same_module(name, module):
            if not fused.internal_names[0].startswith("backbone."):
                raise ValueError(f"tensor {tensor} adapts a head; only backbones are adapted")
            return fused
    raise ValueError(f"tensor {tensor} has no place in this model")


def _is_same_module(a: str, b: str) -> bool:
    """Return whether two names are of one module, which one of them may call by the name's end."""
    return a == b or a.endswith(f".{b}") or b.endswith(f".{a}")


def _check_complete(
    settings: PeftConfig,
    model: Model,
    table: Mapping[str, FusedModule],
    found: Collection[str],
    tensor: str,
) -> None:
    """Refuse an adapter that lacks tensors of a map which PEFT adapts: it would draw them anew.

    Raises:
        ValueError: one is lacking.
    """
    maps = find_linears(model, ("*",))
    for name, fused in table.items():
        if any(one not in maps for one in fused.internal_names) or not settings.targets(name):
            continue
        if not any(_is_same_module(name, one) for one in found):
            raise ValueError(f"tensor {name}.{tensor} is missing: target_modules names its module")


def _inputs(model: Model, fused: FusedModule) -> int:
    return model.get_parameter(f"{fused.internal_names[0]}.weight").shape[1]
