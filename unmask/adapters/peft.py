"""Folders of adapters in PEFT's layout: adapter_config.json and adapter_model.safetensors.

What PEFT 0.21 can say (LoRA, (IA)3, prefix and prompt tuning, and modules trained beside them) it
loads on the backbone in the Hugging Face layout. Everything else has the same two files, with
`peft_type` one of our names and our names of tensors.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast, get_args

import torch
from torch import Tensor

from unmask.adapters.attach import attach, detach, find
from unmask.adapters.prefix import PrefixModule, PromptModule
from unmask.adapters.specs import Adapter
from unmask.adapters.translate import (
    KINDS,
    VECTORS,
    Fused,
    Settings,
    fusions,
    to_ours,
    to_peft,
    unsaid,
)
from unmask.checkpoints.huggingface import heads_without_class
from unmask.checkpoints.tensors import (
    as_weight,
    digest_of,
    read_json,
    read_tensors,
    write_tensors,
)
from unmask.config import from_dict, to_dict
from unmask.heads.labels import Labels, TokenLabels
from unmask.heads.language import Language
from unmask.heads.model import Model
from unmask.published.card import Published

CONFIG, TENSORS, RECORD = "adapter_config.json", "adapter_model.safetensors", "adapter.json"
"""The third stands beside a configuration of PEFT's, which warns of keys that it does not know."""
PICKLED = "adapter_model.bin"
_OURS = {kind.__name__: kind for kind in get_args(Adapter)}
_ALONE = "Parameters"
"""Our `peft_type` of parameters of the base model without any adapter."""


def fingerprint(model: Model, without: Collection[str] = ()) -> str:
    """Return a sha256 over the names, shapes and float32 numbers of a backbone's weights.

    Two models have the same one iff their backbones are the same.
    """
    names = {n for n in model.weights() if n.startswith("backbone.") and n not in without}
    return digest_of({n: x for n, x in model.weights().items() if n in names})


def task_type(model: Model) -> str | None:
    """Return PEFT's word for what a model's heads do; None: it has none."""
    heads = list(model.specs.values())
    if not heads:
        return "FEATURE_EXTRACTION"
    if list(model.specs) == ["label"] and isinstance(heads[0], Labels):
        return "SEQ_CLS"
    if list(model.specs) == ["token_label"] and isinstance(heads[0], TokenLabels):
        return "TOKEN_CLS"
    if list(model.specs) == ["language"] and isinstance(heads[0], Language) and model.stack.causal:
        return "SEQ_2_SEQ_LM" if model.stack.cross else "CAUSAL_LM"
    return None


def why_not_peft(
    model: Model, card: Published, name: str | None, also: Collection[str] = ()
) -> str | None:
    """Say why PEFT will not load what `write_adapter` writes; None: it will."""
    if (why := _why_never(model, card, name)) is not None or name is None:
        return why
    return _why_not(model, name, _kept(model, also), fusions(model, card.names))


def _why_never(model: Model, card: Published, name: str | None) -> str | None:
    if name is None:
        return "PEFT has no layout for parameters without an adapter"
    if card.names.by_head:
        return "PEFT has no layout for maps that are joined head by head"
    if not card.fields.in_transformers:
        return "transformers has no class of this family"
    if own := heads_without_class(card, model.specs):
        return f"no class of transformers has a head {next(iter(own.values()))}"
    if isinstance(find(model, name), PrefixModule | PromptModule):
        kind, heads = task_type(model), " + ".join(model.specs) or "none"
        if kind in (None, "FEATURE_EXTRACTION"):
            return f"PEFT has no prefixes and prompts for the heads {heads}"
        if kind == "SEQ_CLS" and model.stack.cross:
            return f"PEFT has no prefixes and prompts for the heads {heads} of two stacks"
    return None


def _why_not(
    model: Model, name: str, kept: Collection[str], table: Collection[Fused]
) -> str | None:
    if (lacking := unsaid(find(model, name), table)) is not None:
        return f"PEFT has no {lacking}"
    return _why_not_beside(model, table, name, kept)


def _why_not_beside(
    model: Model, table: Collection[Fused], name: str, kept: Collection[str]
) -> str | None:
    known = {ours for fused in table for ours in fused.ours}
    for parameter in kept:
        module = parameter.rpartition(".")[0]
        if module not in known or module == "backbone.tokens":
            return f"PEFT cannot train {parameter} beside an adapter"
    adapted = {n.rpartition(".")[0] for n, _ in cast(Any, find(model, name)).named_parameters()}
    for fused in _saved(table, kept):
        if any(ours in adapted for ours in fused.ours):
            return f"PEFT cannot both adapt and train {fused.theirs}"
    return None


def write_adapter(
    folder: Path,
    model: Model,
    card: Published,
    name: str | None,
    *,
    base: str,
    also: Collection[str] = (),
    labels: Sequence[str] = (),
) -> None:
    """Write an adapter and what was trained beside it; the caller makes the folder whole.

    Args:
        folder: gets adapter_config.json and adapter_model.safetensors.
        model: has the adapter.
        card: says what the model's parts are called in transformers.
        name: of the adapter; None: there is none, only `also`.
        base: the folder, or the name on the Hub, of the model without the adapter.
        also: parameters of the model that were trained too. Those of heads that do not name tokens
            are always written.
        labels: names of the classes, for a model that labels.

    Raises:
        ValueError: there is no such adapter, parameter, or anything to write, or an adapter is
            merged.
    """
    kept = _kept(model, also)
    module = None if name is None else find(model, name)
    if module is None and not kept:
        raise ValueError("there is nothing to write: no adapter, no head, no parameters")
    if merged := [n for n in model.adapters if find(model, n).attachment.kept]:
        raise ValueError(f"adapter {merged[0]!r} is merged into the weights: unmerge it to write")
    spec = None if module is None else cast(Any, module).spec
    table = [] if _why_never(model, card, name) is not None else fusions(model, card.names)
    if name is not None and table and _why_not(model, name, kept, table) is not None:
        table = []
    saved = _saved(table, kept)
    if saved:
        kept = _whole(model, saved)
    record = {
        "backbone": fingerprint(model, kept),
        "adapter": to_dict(spec),
        "heads": to_dict(model.specs),
        "labels": list(labels),
    }
    config = {
        "task_type": task_type(model),
        "base_model_name_or_path": base,
        "inference_mode": True,
    }
    folder.mkdir(parents=True, exist_ok=True)
    if table:
        more, tensors = to_peft(module, model, table)
        beside = _beside(model, card, kept)
        config |= {**more, "modules_to_save": [fused.theirs for fused in saved] or None}
        write_tensors(folder / TENSORS, _named_as_in_peft(tensors, beside))
        _write_json(folder / RECORD, record)
    else:
        weights = model.weights()
        tensors = {n: weights[n] for n in kept}
        if module is not None:
            state = cast(Any, module).state_dict()
            tensors |= {f"adapter.{n}": x for n, x in state.items()}
        config |= {"peft_type": _ALONE if spec is None else type(spec).__name__, "unmask": record}
        write_tensors(folder / TENSORS, tensors)
        (folder / RECORD).unlink(missing_ok=True)
    _write_json(folder / CONFIG, config)


def _kept(model: Model, also: Collection[str]) -> list[str]:
    """List the parameters to write beside the adapter."""
    weights = model.weights()
    if unknown := [name for name in also if name not in weights]:
        raise ValueError(f"the model has no parameter {unknown[0]!r}")
    heads = tuple(f"heads.{n}." for n, s in model.specs.items() if not isinstance(s, Language))
    return [name for name in weights if name in also or name.startswith(heads)]


def _saved(table: Collection[Fused], kept: Collection[str]) -> list[Fused]:
    """List the modules of theirs that have a parameter that is written."""
    ours = {name.rpartition(".")[0] for name in kept}
    return [fused for fused in table if any(name in ours for name in fused.ours)]


def _whole(model: Model, saved: Collection[Fused]) -> list[str]:
    """List all parameters of modules: PEFT knows no parts of them."""
    ours = {name for fused in saved for name in fused.ours}
    return [name for name in model.weights() if name.rpartition(".")[0] in ours]


def _beside(model: Model, card: Published, kept: Collection[str]) -> dict[str, Tensor]:
    """Return these parameters by their names; the others keep their shapes only."""
    state = {
        name: w if name in kept else torch.empty_like(w, device="meta")
        for name, w in model.weights().items()
    }
    theirs = card.names.to_theirs(state)
    theirs = theirs if model.specs else card.names.without_prefix(theirs)
    return {name: x for name, x in theirs.items() if not x.is_meta}


def _named_as_in_peft(
    tensors: Mapping[str, Tensor], beside: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Put names of the base model behind what PEFT's own modules are called."""
    if VECTORS in tensors:
        return {**tensors, **{f"base_model.{n}": x for n, x in beside.items()}}
    return {f"base_model.model.{n}": x for n, x in (*tensors.items(), *beside.items())}


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_adapter(
    folder: Path, model: Model, card: Published, name: str = "default"
) -> Adapter | None:
    """Attach the adapter of a folder, ours or PEFT's, and load what was trained beside it.

    Returns:
        The adapter's value; None where the folder has only parameters of the base model.

    Raises:
        FileNotFoundError: the folder has no adapter.
        ValueError: a file is damaged or pickled, the method is unknown, or the adapter belongs to
            another backbone; the model is then as before.
    """
    config = read_json(folder / CONFIG)
    kind = config.get("peft_type")
    if kind not in (*KINDS, *_OURS, _ALONE):
        known = ", ".join((*KINDS, *_OURS, _ALONE))
        raise ValueError(f"{folder / CONFIG}: peft_type {kind!r} is not one of {known}")
    if not (folder / TENSORS).is_file() and (folder / PICKLED).is_file():
        raise ValueError(
            f"{folder / PICKLED}: a pickled adapter is not read, only {TENSORS}; save it again "
            "with PEFT"
        )
    record = record_of(folder, config)
    tensors = _weights(folder / TENSORS)
    settings = _settings(folder / CONFIG, config) if kind in KINDS else None
    try:
        spec, parameters, beside = _parsed(settings, tensors, model, card, record)
        _check_backbone(model, record, beside)
        _load(model, name, spec, parameters, beside)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    return spec


def _weights(path: Path) -> dict[str, Tensor]:
    try:
        return {name: as_weight(name, x) for name, x in read_tensors(path).items()}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _settings(path: Path, config: Mapping[str, Any]) -> Settings:
    """Read what PEFT's configuration says of the tensors; what it says of training is left out."""
    known = {f.name for f in fields(Settings)}
    said = {key: x for key, x in config.items() if key in known and x is not None}
    try:
        return from_dict(Settings, said)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def record_of(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what we noted of an adapter that we wrote; nothing of others.

    Raises:
        ValueError: it is damaged.
    """
    if "unmask" in config:
        found = config["unmask"]
    elif (folder / RECORD).is_file():
        found = read_json(folder / RECORD)
    else:
        return {}
    if not isinstance(found, Mapping) or not {"backbone", "adapter"} <= found.keys():
        raise ValueError(f"{folder}: its record must be a table with 'backbone' and 'adapter'")
    return found


def _parsed(
    settings: Settings | None,
    tensors: Mapping[str, Tensor],
    model: Model,
    card: Published,
    record: Mapping[str, Any],
) -> tuple[Adapter | None, dict[str, Tensor], dict[str, Tensor]]:
    """Return the adapter's value, its module's parameters, and parameters of the model."""
    said = record.get("adapter")
    spec = None if said is None else _spec(said)
    if settings is not None:
        if card.names.by_head:
            raise ValueError("PEFT's adapters of maps that are joined head by head are not read")
        theirs = {_base_name(name): x for name, x in tensors.items()}
        table = fusions(model, card.names)
        (spec, parameters), left = to_ours(settings, theirs, model, table, spec)
        wanted = {n: w.shape for n, w in model.weights().items()}
        read = card.names.from_theirs(left, wanted)
        if read.extra:
            raise ValueError(f"tensor {read.extra[0]} has no place in this model")
        return spec, parameters, dict(read.tensors)
    parameters = {n.removeprefix("adapter."): x for n, x in tensors.items() if _is_own(n)}
    return spec, parameters, {n: x for n, x in tensors.items() if not _is_own(n)}


def _spec(said: Any) -> Adapter:
    kind = said.get("kind") if isinstance(said, Mapping) else said
    if kind not in _OURS:
        raise ValueError(f"adapter.kind {kind!r} is not one of {', '.join(_OURS)}")
    return cast(Adapter, from_dict(_OURS[kind], said, "adapter"))


def _is_own(name: str) -> bool:
    return name.startswith("adapter.")


def _base_name(name: str) -> str:
    return name.removeprefix("base_model.").removeprefix("model.")


def _check_backbone(model: Model, record: Mapping[str, Any], beside: Mapping[str, Tensor]) -> None:
    if record and (mine := fingerprint(model, beside)) != record["backbone"]:
        raise ValueError(
            f"this adapter was trained on another backbone (sha256 {record['backbone'][:12]}…, "
            f"this model's is {mine[:12]}…)"
        )


def _load(
    model: Model,
    name: str,
    spec: Adapter | None,
    parameters: Mapping[str, Tensor],
    beside: Mapping[str, Tensor],
) -> None:
    """Fill a new adapter, and the model's own parameters; all or nothing."""
    weights = model.weights()
    for key, tensor in beside.items():
        _check(key, tensor, weights.get(key))
    if spec is not None:
        module = attach(model, spec, name)
        state = module.state_dict()
        try:
            for key, tensor in parameters.items():
                _check(f"adapter.{key}", tensor, state.get(key))
            if lacking := state.keys() - parameters.keys():
                raise ValueError(f"tensor adapter.{min(lacking)} is missing")
        except ValueError:
            detach(model, name)
            raise
        module.load_state_dict(dict(parameters))
    with torch.no_grad():
        for key, tensor in beside.items():
            model.get_parameter(key).copy_(tensor)


def _check(name: str, tensor: Tensor, mine: Tensor | None) -> None:
    if mine is None:
        raise ValueError(f"tensor {name} has no place in this model")
    if tensor.shape != mine.shape:
        raise ValueError(
            f"tensor {name} has shape {list(tensor.shape)}, this model's has {list(mine.shape)}"
        )
