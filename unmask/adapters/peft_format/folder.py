"""Folders of adapters in PEFT's layout: adapter_config.json and adapter_model.safetensors.

Adapters that PEFT 0.21 supports (LoRA, (IA)3, prefix and prompt tuning, and modules trained with
them) can be loaded by PEFT on the backbone in the Hugging Face layout. Others have the same two
files, with a native `peft_type`, distinct from PEFT's, and internal tensor names.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import torch
from torch import Tensor

from unmask.adapters.attach import attach, detach, find_adapter
from unmask.adapters.peft_format.compatibility import (
    modules_to_save,
    parameters_to_save,
    prefix_incompatibility,
    task_type,
    tensor_incompatibility,
    unsupported_by_peft,
)
from unmask.adapters.peft_format.config import PeftConfig, read_peft_config
from unmask.adapters.peft_format.convert import FusedModule, from_peft, fused_modules, to_peft
from unmask.adapters.peft_format.tensors import (
    PREFIX_TUNING,
    PROMPT_EMBEDDINGS,
    PROMPT_TUNING,
    SPEC_CLASSES,
    is_adapter_tensor,
)
from unmask.adapters.specs import Adapter
from unmask.checkpoints.tensors import (
    read_json_file,
    read_tensors,
    tensors_sha256,
    to_float32_weight,
    write_tensors,
)
from unmask.config import from_dict, to_dict
from unmask.files import encode_utf8
from unmask.heads.model import Model
from unmask.saved_format import read_record, write_record
from unmask.zoo.preset import Published

CONFIG_FILE, WEIGHTS_FILE, RECORD_FILE = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "adapter.json",
)
"""The third is separate from PEFT's configuration, which warns of unknown keys."""
PICKLED_FILE = "adapter_model.bin"
LIBRARY_TYPE = "unmask"
"""Key of the native record in a configuration that is not PEFT's."""
_SPEC_CLASSES = {kind.__name__: kind for kind in get_args(Adapter)}
_PARAMETERS_ONLY = "Parameters"
"""Native `peft_type` of base-model parameters without an adapter."""


def backbone_digest(model: Model, without: Collection[str] = ()) -> str:
    """Return a SHA-256 of the names, shapes and float32 values of a backbone's weights.

    It identifies a backbone.
    """
    names = {n for n in model.own_weights() if n.startswith("backbone.") and n not in without}
    return tensors_sha256({n: x for n, x in model.own_weights().items() if n in names})


def write_adapter(
    folder: Path,
    model: Model,
    preset: Published,
    name: str | None,
    *,
    base: str,
    extra_parameters: Collection[str] = (),
    labels: Sequence[str] = (),
) -> None:
    """Write an adapter and the parameters trained with it; the caller makes it atomic.

    Args:
        folder: folder for adapter_config.json and adapter_model.safetensors.
        model: the model with the adapter.
        preset: preset with the module names of transformers.
        name: name of the adapter; None: only `extra_parameters`.
        base: folder or Hub name of the base model.
        extra_parameters: further trained parameters of the model. Those of heads other than
            language heads are always written.
        labels: class names of a classifier.

    Raises:
        ValueError: the adapter or a parameter does not exist, there is nothing to write, or an
            adapter is merged.
    """
    names = parameters_to_save(model, extra_parameters)
    module = None if name is None else find_adapter(model, name)
    if module is None and not names:
        raise ValueError("there is nothing to write: no adapter, no head, no parameters")
    if merged := [n for n in model.adapters if find_adapter(model, n).attachment.unmerged_weights]:
        raise ValueError(f"adapter {merged[0]!r} is merged into the weights: unmerge it to write")
    spec = None if module is None else cast(Any, module).spec
    table = (
        []
        if unsupported_by_peft(model, preset, name) is not None
        else fused_modules(model, preset.weight_names)
    )
    if name is not None and table and tensor_incompatibility(model, name, names, table) is not None:
        table = []
    saved = modules_to_save(table, names)
    if saved:
        names = _module_parameters(model, saved)
    record = write_record(
        {
            "backbone": backbone_digest(model, names),
            "adapter": to_dict(spec),
            "heads": to_dict(model.head_specs),
            "labels": list(labels),
        }
    )
    config = {
        "task_type": task_type(model),
        "base_model_name_or_path": base,
        "inference_mode": True,
    }
    folder.mkdir(parents=True, exist_ok=True)
    if table:
        settings, tensors = to_peft(module, model, table)
        beside = _extra_tensors(model, preset, names)
        config |= {**settings, "modules_to_save": [fused.external_name for fused in saved] or None}
        write_tensors(folder / WEIGHTS_FILE, _peft_tensor_names(tensors, beside))
        _write_json(folder / RECORD_FILE, record)
    else:
        weights = model.own_weights()
        tensors = {n: weights[n] for n in names}
        if module is not None:
            state = cast(Any, module).state_dict()
            tensors |= {f"adapter.{n}": x for n, x in state.items()}
        config |= {"peft_type": _native_peft_type(spec), LIBRARY_TYPE: record}
        write_tensors(folder / WEIGHTS_FILE, tensors)
        (folder / RECORD_FILE).unlink(missing_ok=True)
    _write_json(folder / CONFIG_FILE, config)


def _native_peft_type(spec: Adapter | None) -> str:
    """Return the native `peft_type` of an adapter: its kind, unless PEFT has the same name."""
    name = _PARAMETERS_ONLY if spec is None else type(spec).__name__
    return f"{LIBRARY_TYPE}.{name}" if name in SPEC_CLASSES else name


def _module_parameters(model: Model, saved: Collection[FusedModule]) -> list[str]:
    """List all parameters of modules, which PEFT saves as a whole."""
    internal = {name for fused in saved for name in fused.internal_names}
    return [name for name in model.own_weights() if name.rpartition(".")[0] in internal]


def _extra_tensors(
    model: Model, preset: Published, parameters: Collection[str]
) -> dict[str, Tensor]:
    """Return these parameters by external names; of others only the shapes matter."""
    state = {
        name: w if name in parameters else torch.empty_like(w, device="meta")
        for name, w in model.own_weights().items()
    }
    external = preset.weight_names.to_external(state)
    external = external if model.head_specs else preset.weight_names.without_prefix(external)
    return {name: x for name, x in external.items() if not x.is_meta}


def _peft_tensor_names(
    tensors: Mapping[str, Tensor], beside: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Add the prefixes of PEFT's modules to names of the base model."""
    if PROMPT_EMBEDDINGS in tensors:
        return {**tensors, **{f"base_model.{n}": x for n, x in beside.items()}}
    return {f"base_model.model.{n}": x for n, x in (*tensors.items(), *beside.items())}


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_bytes(encode_utf8(json.dumps(data, indent=2, ensure_ascii=False) + "\n"))


def read_adapter(
    folder: Path, model: Model, preset: Published, name: str = "default"
) -> Adapter | None:
    """Attach a native or PEFT adapter of a folder, and load the parameters trained with it.

    Returns:
        The adapter's specification; None if the folder has only parameters of the base model.

    Raises:
        FileNotFoundError: the folder has no adapter.
        ValueError: a file is damaged or pickled, the method is unknown, or the adapter belongs to
            another backbone; the model is then unchanged.
    """
    config = read_json_file(folder / CONFIG_FILE)
    record = native_record(folder, config)
    tensors = read_adapter_tensors(folder, config)
    settings = peft_config_of(folder, config)
    try:
        spec, parameters, beside = _parse_adapter(settings, tensors, model, preset, record)
        _check_backbone(model, record, beside)
        _load_parameters(model, name, spec, parameters, beside)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    return spec


def is_native(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration is of a native adapter."""
    return LIBRARY_TYPE in config


def peft_config_of(folder: Path, config: Mapping[str, Any]) -> PeftConfig | None:
    """Read the settings of a PEFT configuration; None: it is native.

    Raises:
        ValueError: the method is unknown, or a key is unsupported.
    """
    path, kind = folder / CONFIG_FILE, config.get("peft_type")
    native_types = (
        *_SPEC_CLASSES,
        *(f"{LIBRARY_TYPE}.{name}" for name in _SPEC_CLASSES if name in SPEC_CLASSES),
        _PARAMETERS_ONLY,
    )
    if kind not in (*SPEC_CLASSES, *native_types):
        raise ValueError(
            f"{path}: peft_type {kind!r} is not one of {', '.join((*SPEC_CLASSES, *native_types))}"
        )
    if is_native(config) or kind not in SPEC_CLASSES:
        return None
    try:
        return read_peft_config(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_adapter_tensors(folder: Path, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Read an adapter's tensors; those of PEFT by module names of the base model.

    Raises:
        FileNotFoundError: there are none.
        ValueError: the file is damaged or pickled, or a tensor has no floating-point values.
    """
    path = folder / WEIGHTS_FILE
    if not path.is_file() and (folder / PICKLED_FILE).is_file():
        raise ValueError(
            f"{folder / PICKLED_FILE}: a pickled adapter is not read, only {WEIGHTS_FILE}; save "
            "it again "
            "with PEFT"
        )
    try:
        tensors = {name: to_float32_weight(name, x) for name, x in read_tensors(path).items()}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if is_native(config):
        return tensors
    external: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if ".original_module." in name:  # the untrained original
            continue
        base = _base_name(name)
        if base in external and not torch.equal(external[base], tensor):
            raise ValueError(f"{path}: has two tensors of {base}, and they differ")
        external[base] = tensor
    return external


def module_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of fully trained modules, which replace those of the base model."""
    return {n: x for n, x in tensors.items() if not is_adapter_tensor(n) and not _is_own(n)}


def native_record(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the native record of an adapter; empty for others.

    Raises:
        ValueError: it is damaged.
    """
    if is_native(config):
        record = read_record(config[LIBRARY_TYPE], f"{folder / CONFIG_FILE}: {LIBRARY_TYPE}")
    elif (folder / RECORD_FILE).is_file():
        record = read_record(read_json_file(folder / RECORD_FILE), f"{folder / RECORD_FILE}")
    else:
        return {}
    if not isinstance(record, Mapping) or not {"backbone", "adapter"} <= record.keys():
        raise ValueError(f"{folder}: its record must be a table with 'backbone' and 'adapter'")
    return record


def _parse_adapter(
    settings: PeftConfig | None,
    tensors: Mapping[str, Tensor],
    model: Model,
    preset: Published,
    record: Mapping[str, Any],
) -> tuple[Adapter | None, dict[str, Tensor], dict[str, Tensor]]:
    """Return the adapter's specification, its parameters, and parameters of the model."""
    settings_record = record.get("adapter")
    spec = None if settings_record is None else _parse_spec(settings_record)
    if settings is not None:
        if preset.weight_names.joins_by_head:
            raise ValueError("PEFT adapters of maps joined by head are not supported")
        if settings.peft_type in (PREFIX_TUNING, PROMPT_TUNING) and (
            reason := prefix_incompatibility(model, preset, settings.peft_type == PREFIX_TUNING)
        ):
            raise ValueError(f"peft_type {settings.peft_type} is not supported: {reason}")
        table = fused_modules(model, preset.weight_names)
        (spec, parameters), left = from_peft(settings, tensors, model, table, spec)
        expected = {n: w.shape for n, w in model.own_weights().items()}
        matched = preset.weight_names.from_external(left, expected)
        if matched.unexpected:
            raise ValueError(f"tensor {matched.unexpected[0]} does not belong to this model")
        if not record:
            _check_embeddings(model, matched.tensors)
        return spec, parameters, dict(matched.tensors)
    parameters = {n.removeprefix("adapter."): x for n, x in tensors.items() if _is_own(n)}
    return spec, parameters, {n: x for n, x in tensors.items() if not _is_own(n)}


def _check_embeddings(model: Model, beside: Mapping[str, Tensor]) -> None:
    """Reject trained embeddings if PEFT leaves the old ones in other modules that share them.

    Raises:
        ValueError: so it is.
    """
    if "backbone.tokens.weight" not in beside:
        return
    tied = model.has_language_head and "heads.language.out.weight" not in model.own_weights()
    if tied or model.decoder_architecture.attends_to_encoder:
        owner = "the scores" if tied else "one of the stacks"
        raise ValueError(
            f"the adapter has trained embeddings, but PEFT leaves those of {owner} as they "
            "were, which is not supported"
        )


def _parse_spec(value: Any) -> Adapter:
    kind = value.get("kind") if isinstance(value, Mapping) else value
    if kind not in [*_SPEC_CLASSES]:  # it may be a list, which has no hash
        raise ValueError(f"adapter.kind {kind!r} is not one of {', '.join(_SPEC_CLASSES)}")
    return cast(Adapter, from_dict(_SPEC_CLASSES[kind], value, "adapter"))


def _is_own(name: str) -> bool:
    return name.startswith("adapter.")


def _base_name(name: str) -> str:
    """Return the base-model name of a tensor in PEFT's file."""
    name = name.removeprefix("base_model.").removeprefix("model.")
    return name.replace(".base_layer.", ".").replace(".modules_to_save.", ".")


def _check_backbone(model: Model, record: Mapping[str, Any], beside: Mapping[str, Tensor]) -> None:
    if record and (mine := backbone_digest(model, beside)) != record["backbone"]:
        raise ValueError(
            f"this adapter was trained on another backbone (sha256 {record['backbone'][:12]}…, "
            f"this model's is {mine[:12]}…)"
        )


def _load_parameters(
    model: Model,
    name: str,
    spec: Adapter | None,
    parameters: Mapping[str, Tensor],
    beside: Mapping[str, Tensor],
) -> None:
    """Load the parameters of a new adapter and of the model; all or nothing."""
    weights = model.own_weights()
    for key, tensor in beside.items():
        _check_tensor(key, tensor, weights.get(key))
    if spec is not None:
        module = attach(model, spec, name)
        state = module.state_dict()
        try:
            for key, tensor in parameters.items():
                _check_tensor(f"adapter.{key}", tensor, state.get(key))
            if missing := state.keys() - parameters.keys():
                raise ValueError(f"tensor adapter.{min(missing)} is missing")
        except ValueError:
            detach(model, name)
            raise
        module.load_state_dict(dict(parameters))
    with torch.no_grad():
        for key, tensor in beside.items():
            model.get_parameter(key).copy_(tensor)


def _check_tensor(name: str, tensor: Tensor, mine: Tensor | None) -> None:
    if mine is None:
        raise ValueError(f"tensor {name} does not belong to this model")
    if tensor.shape != mine.shape:
        raise ValueError(
            f"tensor {name} has shape {list(tensor.shape)}, this model's has {list(mine.shape)}"
        )
