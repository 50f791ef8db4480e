"""How PEFT lays out the adapters that it has too, and the way back.

LoRA, (IA)3, prefix and prompt tuning; `peft.py` makes files of it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unmask.adapters.attach import linears
from unmask.adapters.lora import LoRA, LoRAModule
from unmask.adapters.prefix import Prefix, PrefixModule, Prompt, PromptModule, reader
from unmask.adapters.scale import IA3, Factors, IA3Module
from unmask.adapters.settings import Settings
from unmask.heads.model import Model
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.names import Names

PREFIX, PROMPT = "PREFIX_TUNING", "PROMPT_TUNING"
KINDS: Mapping[str, type] = {"LORA": LoRA, "IA3": IA3, PREFIX: Prefix, PROMPT: Prompt}
"""PEFT's names of the methods that both have."""
VECTORS = "prompt_embeddings"
"""PEFT's name of the one tensor of a prefix or a prompt."""
_LOW_RANK = re.compile(r"(.+)\.lora_([AB])\.weight")
_FACTORS = re.compile(r"(.+)\.ia3_l")

Tensors = Mapping[str, Tensor]


def is_adapted(name: str) -> bool:
    """Say whether a tensor of PEFT's belongs to the adapter, not to a module trained as a whole."""
    return name == VECTORS or any(p.fullmatch(name) for p in (_LOW_RANK, _FACTORS))


Found = tuple[LoRA | IA3 | Prefix | Prompt, dict[str, Tensor]]
"""An adapter and its module's parameters by name."""


@dataclass(frozen=True, kw_only=True)
class Fused:
    """One module of theirs, and the modules of ours that its outputs are cut into."""

    theirs: str
    ours: tuple[str, ...]
    rows: tuple[int, ...]
    """Outputs of each of ours."""
    transposed: bool


def fusions(model: Model, names: Names) -> list[Fused]:
    """List the modules that both have, backbone and heads.

    The table of names is asked by sending it marks in place of weights: where they come out says
    what is renamed, joined and transposed.
    """
    weights = {name: w for name, w in model.weights().items() if name.endswith(".weight")}
    marks = {
        name: torch.full((len(w), 1) if w.dim() == 2 else (len(w),), i)
        for i, (name, w) in enumerate(weights.items())
    }
    ours = [name.removesuffix(".weight") for name in weights]
    theirs, found = names.to_theirs(marks), list[Fused]()
    for name, marked in (theirs if model.specs else names.without_prefix(theirs)).items():
        numbers, rows = marked.flatten().unique_consecutive(return_counts=True)
        found.append(
            Fused(
                theirs=name.removesuffix(".weight"),
                ours=tuple(ours[i] for i in numbers.tolist()),
                rows=tuple(rows.tolist()),
                transposed=marked.dim() == 2 and marked.shape[0] == 1 < marked.shape[1],
            )
        )
    return found


def to_peft(
    module: object, model: Model, table: Collection[Fused]
) -> tuple[dict[str, Any], Tensors]:
    """Return what PEFT's configuration says of an adapter, and its tensors by their names.

    Raises:
        TypeError: PEFT has no such method.
    """
    if isinstance(module, LoRAModule):
        return _lora_to_peft(module, table)
    if isinstance(module, IA3Module):
        return _ia3_to_peft(module, table)
    if isinstance(module, PrefixModule):
        return _prefix_to_peft(module, model)
    if isinstance(module, PromptModule):
        return _prompt_to_peft(module, model)
    raise TypeError(f"PEFT has no {type(module).__name__}")


def unsaid(module: object, table: Collection[Fused]) -> str | None:
    """Say what PEFT has no words for in an adapter; None: it can be translated."""
    if isinstance(module, IA3Module):
        for fused in _chosen(table, module.parts):
            if len(fused.ours) > 1 and any(p.of_input for p in _parts(module, fused)):
                return f"factors of the input of a part of {fused.theirs}"
    known = LoRAModule | IA3Module | PrefixModule | PromptModule
    return None if isinstance(module, known) else type(module).__name__


def to_ours(
    settings: Settings,
    tensors: Tensors,
    model: Model,
    table: Collection[Fused],
    recorded: object = None,
) -> tuple[Found, dict[str, Tensor]]:
    """Return the adapter, its parameters, and the tensors that are not its own.

    Args:
        settings: what adapter_config.json says.
        tensors: by the names of modules in their base model.
        model: to which the adapter shall belong.
        table: what `fusions` says of it.
        recorded: the value that described the adapter when we wrote it, if we did.

    Raises:
        ValueError: a tensor does not fit the model or the settings; the first is named.
    """
    kind = settings.peft_type
    if kind == PREFIX:
        return _prefix_to_ours(settings, tensors, model)
    if kind == PROMPT:
        return _prompt_to_ours(settings, tensors, model)
    by_theirs = {fused.theirs: fused for fused in table}
    known = _recorded(model, recorded)
    if kind == "LORA":
        return _lora_to_ours(settings, tensors, model, by_theirs, known)
    return _ia3_to_ours(settings, tensors, model, by_theirs, known)


@dataclass(frozen=True)
class _Known:
    """What a fused tensor does not tell of an adapter that we wrote."""

    maps: frozenset[str]
    rank: int


def _recorded(model: Model, recorded: object) -> _Known | None:
    if isinstance(recorded, LoRA):
        return _Known(frozenset(linears(model, recorded.where)), recorded.rank)
    if isinstance(recorded, IA3):
        return _Known(frozenset(linears(model, (*recorded.where, *recorded.inputs))), 1)
    return None


# LoRA


def _lora_to_peft(
    module: LoRAModule, table: Collection[Fused]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """One pair of matrices for each module of theirs; all have one factor alpha / rank."""
    spec, tensors = module.spec, dict[str, Tensor]()
    ranks: dict[str, int] = {}
    chosen = _chosen(table, module.parts)
    for fused in chosen:
        down, up = _joined(module, fused)
        tensors[f"{fused.theirs}.lora_A.weight"] = down
        tensors[f"{fused.theirs}.lora_B.weight"] = up
        ranks[fused.theirs] = len(down)
    rank = min(ranks.values())
    others = {name: r for name, r in ranks.items() if r != rank}
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": _number(spec.alpha * rank / spec.rank),
        "lora_dropout": spec.dropout,
        "rank_pattern": others,
        "alpha_pattern": {n: _number(spec.alpha * r / spec.rank) for n, r in others.items()},
        "target_modules": shortest((f.theirs for f in chosen), (f.theirs for f in table)),
        "fan_in_fan_out": any(f.transposed for f in chosen),
        "bias": "none",
    }
    return config, tensors


def _number(x: float) -> int | float:
    return int(x) if x == int(x) else x


def _joined(module: LoRAModule, fused: Fused) -> tuple[Tensor, Tensor]:
    """Join A's and B's of maps that are one module of theirs.

    A's stand upon each other, and B's on a diagonal of blocks, so that the rank is the sum; one A
    that all share stays one.
    """
    parts = [module.parts.get(name) for name in fused.ours]
    there = [part for part in parts if part is not None]
    first, rank = there[0].down.detach(), module.spec.rank
    shared = all(torch.equal(part.down, first) for part in there)
    down = first if shared else torch.cat([part.down.detach() for part in there])
    up = first.new_zeros(sum(fused.rows), len(down))
    row = column = 0
    for rows, part in zip(fused.rows, parts, strict=True):
        if part is not None:
            up[row : row + rows, column : column + rank] = part.up.detach()
            column += 0 if shared else rank
        row += rows
    return down, up


def _lora_to_ours(
    settings: Settings,
    tensors: Tensors,
    model: Model,
    table: Mapping[str, Fused],
    known: _Known | None,
) -> tuple[Found, dict[str, Tensor]]:
    theirs, left = _by_module(_LOW_RANK, tensors)
    found: dict[str, tuple[Tensor, Tensor]] = {}
    factors: dict[str, float] = {}
    for name, pair in theirs.items():
        if lacking := {"A", "B"} - pair.keys():
            raise ValueError(f"tensor {name}.lora_{min(lacking)}.weight is missing")
        fused = _place(table, name, f"{name}.lora_A.weight")
        settings.check_chosen(name)
        down, up = pair["A"], pair["B"]
        _fits(f"{name}.lora_A.weight", down, (len(down), _inputs(model, fused)))
        _fits(f"{name}.lora_B.weight", up, (sum(fused.rows), len(down)))
        if len(down) != (rank := settings.rank(name)):
            raise ValueError(f"tensor {name}.lora_A.weight has rank {len(down)}, but r is {rank}")
        parts = _cut(fused, down, up, known)
        found |= parts
        factors |= dict.fromkeys(parts, settings.factor(name))
    if not found:
        raise ValueError(f"there is no tensor of a LoRA (…lora_A.weight){_instead(left)}")
    _check_whole(settings, model, table, theirs, "lora_A.weight")
    rank = max(len(down) for down, _ in found.values())
    factor = next(iter(factors.values()))
    parameters: dict[str, Tensor] = {}
    for name, (down, up) in found.items():
        less = rank - len(down)
        if factors[name] != factor:
            up = up * (factors[name] / factor)
        parameters[f"{name}.down"] = torch.nn.functional.pad(down, (0, 0, 0, less))
        parameters[f"{name}.up"] = torch.nn.functional.pad(up, (0, less))
    dropout, where = settings.lora_dropout, _where(model, found)
    spec = LoRA(rank=rank, alpha=factor * rank, dropout=dropout, where=where)
    return (spec, parameters), left


def _instead(left: Collection[str]) -> str:
    """Name what is there where nothing of the adapter is: the parts of token vectors, say."""
    return f", only {min(left)}" if left else ""


def _cut(
    fused: Fused, down: Tensor, up: Tensor, known: _Known | None
) -> dict[str, tuple[Tensor, Tensor]]:
    """Cut A and B for the maps that are one module of theirs: as we joined them, or with one A."""
    ups = dict(zip(fused.ours, up.split(fused.rows), strict=True))
    mine = [name for name in fused.ours if known is not None and name in known.maps]
    if known is None or any(bool(ups[n].any()) for n in fused.ours if n not in mine):
        return {name: (down, b) for name, b in ups.items()}
    if len(down) == known.rank * len(mine):
        downs = down.split(known.rank)
        cut = {n: (downs[i], ups[n].split(known.rank, 1)[i]) for i, n in enumerate(mine)}
        if sum(int(b.count_nonzero()) for _, b in cut.values()) == int(up.count_nonzero()):
            return cut
    return {name: (down, ups[name]) for name in mine}


# (IA)3


def _ia3_to_peft(
    module: IA3Module, table: Collection[Fused]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    tensors, inputs = dict[str, Tensor](), list[str]()
    chosen = _chosen(table, module.parts)
    for fused in chosen:
        first = _parts(module, fused)[0]
        if first.of_input:
            inputs.append(fused.theirs)
            tensors[f"{fused.theirs}.ia3_l"] = first.factors.detach()[None]
            continue
        pieces = zip(
            fused.ours, first.factors.new_ones(sum(fused.rows)).split(fused.rows), strict=True
        )
        all_ = [module.parts[n].factors if n in module.parts else ones for n, ones in pieces]
        tensors[f"{fused.theirs}.ia3_l"] = torch.cat(all_).detach()[:, None]
    every = [f.theirs for f in table]
    config = {
        "peft_type": "IA3",
        "target_modules": shortest((f.theirs for f in chosen), every),
        "feedforward_modules": shortest(inputs, every),
        "fan_in_fan_out": any(f.transposed for f in chosen),
    }
    return config, tensors


def _parts(module: IA3Module, fused: Fused) -> list[Factors]:
    return [module.parts[name] for name in fused.ours if name in module.parts]


def _ia3_to_ours(
    settings: Settings,
    tensors: Tensors,
    model: Model,
    table: Mapping[str, Fused],
    known: _Known | None,
) -> tuple[Found, dict[str, Tensor]]:
    theirs, left = _by_module(_FACTORS, tensors)
    outputs: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}
    for name, one in theirs.items():
        fused, factors = _place(table, name, f"{name}.ia3_l"), one[""]
        settings.check_chosen(name)
        if factors.shape[0] == 1 < factors.shape[1]:
            _fits(f"{name}.ia3_l", factors, (1, _inputs(model, fused)))
            inputs |= dict.fromkeys(fused.ours, factors[0])
            continue
        _fits(f"{name}.ia3_l", factors, (sum(fused.rows), 1))
        parts = dict(zip(fused.ours, factors[:, 0].split(fused.rows), strict=True))
        ours = {n: x for n, x in parts.items() if known is None or n in known.maps}
        others = [x for n, x in parts.items() if n not in ours]
        outputs |= ours if all(bool((x == 1).all()) for x in others) else parts
    if not theirs:
        raise ValueError(f"there is no tensor of an (IA)3 (…ia3_l){_instead(left)}")
    _check_whole(settings, model, table, theirs, "ia3_l")
    spec = IA3(where=_where(model, outputs), inputs=_where(model, inputs))
    return (spec, {f"{name}.factors": x for name, x in (outputs | inputs).items()}), left


# Prefix


def _prefix_to_peft(module: PrefixModule, model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Write the prefix that came out; the maps through which it was learned are dropped."""
    a, vectors = module.a, module.prefix().detach()
    n, width = a.n_layers, a.groups * a.d_head
    if two := isinstance(model.architecture, EncoderDecoderArchitecture):
        # PEFT 0.21 cuts the prefix of an encoder-decoder into fours where it means pairs: layer i
        # gets pair 2i, modulo their number. So every other pair is left empty.
        pairs = vectors.unflatten(1, (n, 1, -1))
        vectors, n = torch.cat((pairs, torch.zeros_like(pairs)), 2).flatten(1), 2 * n
    config = {
        "peft_type": PREFIX,
        "num_layers": n,
        "token_dim": width,
        "num_attention_heads": a.groups,
        "num_transformer_submodules": 1 + two,
        "num_virtual_tokens": module.spec.length,
        "encoder_hidden_size": module.spec.hidden or width,
        "prefix_projection": False,
    }
    return config, {VECTORS: vectors}


def _prefix_to_ours(
    settings: Settings, tensors: Tensors, model: Model
) -> tuple[Found, dict[str, Tensor]]:
    vectors, left = _vectors(tensors)
    a, n = model.stack, settings.num_layers or model.stack.n_layers
    two = isinstance(model.architecture, EncoderDecoderArchitecture)
    length = settings.num_virtual_tokens or len(vectors)
    _fits(VECTORS, vectors, (length, 2 * n * a.groups * a.d_head))
    said = {
        "num_attention_heads": (settings.num_attention_heads, a.groups),
        "token_dim": (settings.token_dim, a.groups * a.d_head),
        "num_transformer_submodules": (settings.num_transformer_submodules, 1 + two),
    }
    for key, (theirs, ours) in said.items():
        if theirs is not None and theirs != ours:
            raise ValueError(f"{key} is {theirs}, but a prefix of this model has {ours}")
    if n < a.n_layers or (n > a.n_layers and not two):
        raise ValueError(f"tensor {VECTORS} is a prefix for {n} layers, the model has {a.n_layers}")
    pairs = [2 * i % n if two else i for i in range(a.n_layers)]  # see `_prefix_to_peft`
    vectors = vectors.unflatten(1, (n, -1))[:, pairs].flatten(1)
    return (Prefix(length=len(vectors)), {"vectors": vectors}), left


# Prompt


def _prompt_to_peft(module: PromptModule, model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    a = module.a
    config = {
        "peft_type": PROMPT,
        "num_layers": a.n_layers,
        "token_dim": a.d_embed,
        "num_attention_heads": a.n_heads,
        "num_transformer_submodules": 1,
        "num_virtual_tokens": module.spec.length,
        "prompt_tuning_init": "RANDOM",
    }
    # Where vectors of tokens are scaled up, a prompt's are so here too, and not there.
    return config, {VECTORS: module.vectors.detach() * _scale(a)}


def _prompt_to_ours(
    settings: Settings, tensors: Tensors, model: Model
) -> tuple[Found, dict[str, Tensor]]:
    vectors, left = _vectors(tensors)
    times = settings.num_transformer_submodules
    length = settings.num_virtual_tokens or len(vectors) // times
    _fits(VECTORS, vectors, (length * times, reader(model).a.d_embed))
    # PEFT keeps vectors for the decoder too, and puts none there.
    vectors = vectors[:length] / _scale(reader(model).a)  # see `_prompt_to_peft`
    return (Prompt(length=length), {"vectors": vectors}), left


def _scale(a: Architecture) -> float:
    """Return what vectors of tokens are multiplied with when they are read."""
    return a.d_embed**0.5 if a.tokens_scaled else 1.0


# What several need


def shortest(chosen: Iterable[str], every: Iterable[str]) -> list[str]:
    """Name modules by what follows their layer's number, where this names no others.

    PEFT takes a module whose name ends so.
    """
    wanted, names = list(dict.fromkeys(chosen)), list(every)
    ends = list(dict.fromkeys(re.sub(r".*\.\d+\.", "", name) for name in wanted))
    taken = {name for name in names if any(name.endswith(end) for end in ends)}
    return ends if taken == set(wanted) else wanted


def _where(model: Model, chosen: Collection[str]) -> tuple[str, ...]:
    """Name linear maps by patterns: by their sublayer where this names no others."""
    if not chosen:
        return ()
    ends = tuple(dict.fromkeys(".".join(name.split(".")[-2:]) for name in chosen))
    return ends if linears(model, ends).keys() == set(chosen) else tuple(chosen)


def _chosen(table: Iterable[Fused], parts: Collection[str]) -> list[Fused]:
    return [fused for fused in table if any(name in parts for name in fused.ours)]


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


def _place(table: Mapping[str, Fused], module: str, tensor: str) -> Fused:
    """Find a module of theirs, which a model without a head calls by the end of its name."""
    for name, fused in table.items():
        if _same(name, module):
            if not fused.ours[0].startswith("backbone."):
                raise ValueError(f"tensor {tensor} adapts a head; only backbones are adapted")
            return fused
    raise ValueError(f"tensor {tensor} has no place in this model")


def _same(a: str, b: str) -> bool:
    """Say whether two names are of one module, which one of them may call by the name's end."""
    return a == b or a.endswith(f".{b}") or b.endswith(f".{a}")


def _check_whole(
    settings: Settings,
    model: Model,
    table: Mapping[str, Fused],
    found: Collection[str],
    tensor: str,
) -> None:
    """Refuse an adapter that lacks tensors of a map which PEFT adapts: it would draw them anew.

    Raises:
        ValueError: one is lacking.
    """
    maps = linears(model, ("*",))
    for name, fused in table.items():
        if any(one not in maps for one in fused.ours) or not settings.chooses(name):
            continue
        if not any(_same(name, one) for one in found):
            raise ValueError(f"tensor {name}.{tensor} is missing: target_modules names its module")


def _inputs(model: Model, fused: Fused) -> int:
    return model.get_parameter(f"{fused.ours[0]}.weight").shape[1]


def _fits(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(
            f"tensor {name} has shape {list(tensor.shape)}, this model's has {list(shape)}"
        )


def _vectors(tensors: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
    if VECTORS not in tensors:
        raise ValueError(f"tensor {VECTORS} is missing")
    if tensors[VECTORS].dim() != 2:
        raise ValueError(f"tensor {VECTORS} has shape {list(tensors[VECTORS].shape)}, not [p d]")
    return tensors[VECTORS], {n: x for n, x in tensors.items() if n != VECTORS}
