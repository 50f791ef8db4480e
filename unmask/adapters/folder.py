"""Loading adapter folders with their base model, and merging.

The folder names the base model, but does not contain it.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.adapters.attach import detach, merge, unmerge
from unmask.adapters.peft_format.folder import (
    CONFIG_FILE,
    module_tensors,
    native_record,
    peft_config_of,
    read_adapter,
    read_adapter_tensors,
)
from unmask.checkpoints.checksums import check_recorded_files
from unmask.checkpoints.huggingface.read import (
    HUB_PREFIX,
    LoadedModel,
    head_specs_by_name,
    load_folder,
    read_config,
    read_preset,
    resolve_model_folder,
)
from unmask.checkpoints.tensors import read_json_file, read_model_tensors
from unmask.config import from_dict
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.text.formats.records import format_names
from unmask.zoo.preset import Published

ADAPTER_NAME = "default"
"""Name of a folder's adapter in the model."""
_HEADS_OF_TASK: Mapping[str, tuple[str, ...]] = {
    "SEQ_CLS": ("label",), "TOKEN_CLS": ("token_label",), "QUESTION_ANS": ("spans",),
    "CAUSAL_LM": ("language",), "SEQ_2_SEQ_LM": ("language",), "FEATURE_EXTRACTION": (),
}  # fmt: skip
"""PEFT's task types -> heads."""


@dataclass(frozen=True)
class _TrainedHeads:
    """The heads of an adapter's training."""

    heads: Mapping[str, HeadSpec]


def is_adapter(folder: Path) -> bool:
    """Return whether a folder has an adapter and no model."""
    return (folder / CONFIG_FILE).is_file() and not (folder / "config.json").is_file()


def open_model_or_adapter(
    folder: Path, heads: Mapping[str, HeadSpec] | None = None, seed: int = 0
) -> LoadedModel:
    """Load a model, or an adapter with its model; see `load_folder` and `open_adapter`."""
    return (
        open_adapter(folder, seed=seed) if is_adapter(folder) else load_folder(folder, heads, seed)
    )


def open_adapter(folder: Path, *, base: str | None = None, seed: int = 0) -> LoadedModel:
    """Load a native or PEFT adapter with its base model.

    Args:
        folder: a folder with adapter_config.json and adapter_model.safetensors.
        base: the base model; None: the one recorded in the folder.
        seed: random seed for weights missing in both.

    Raises:
        FileNotFoundError: the base model is missing.
        ValueError: a file is damaged, or the adapter belongs to another model.
    """
    check_recorded_files(folder)
    config = read_json_file(folder / CONFIG_FILE)
    base_name = base or config.get("base_model_name_or_path")
    if not isinstance(base_name, str):
        raise ValueError(
            f"{folder / CONFIG_FILE}: base_model_name_or_path must be text, got {base_name!r}"
        )
    home = _base_model_folder(base_name, folder, None if base else config.get("revision"))
    record = native_record(folder, config)
    peft_config_of(folder, config)  # rejects unsupported settings before loading
    over = module_tensors(read_adapter_tensors(folder, config))
    heads = _trained_heads(folder, config, record, over, home)
    opened = load_folder(home, heads, seed, replacement_tensors=over)
    if opened.missing:
        raise ValueError(
            f"{folder}: neither this adapter nor its model in {home} has "
            f"{format_names(opened.missing[:3])}: it was trained with random weights that were "
            "not saved"
        )
    _check_output_matrix(folder, home, opened)
    read_adapter(folder, opened.model, opened.preset, ADAPTER_NAME)
    labels = tuple(str(label) for label in record.get("labels", ()))
    # Unexpected tensors belong to other heads of the model.
    return replace(opened, label_names=labels or _base_label_names(opened), unexpected=())


def _check_output_matrix(folder: Path, home: Path, loaded_model: LoadedModel) -> None:
    """Reject an untied output matrix that is missing.

    Raises:
        ValueError: it is missing; PEFT initializes it randomly at each load.
    """
    tied = any(s.ties_output_embeddings for s in loaded_model.model.head_specs.values())
    if tied and read_config(home).get("tie_word_embeddings") is False:
        raise ValueError(
            f"{folder}: {home / 'config.json'} says tie_word_embeddings = false, but neither this "
            "adapter nor its model has an output embedding matrix"
        )


def _base_label_names(loaded_model: LoadedModel) -> tuple[str, ...]:
    """Return the label names of the base model, if their number matches."""
    spec = next((s for s in loaded_model.model.head_specs.values() if s.has_label_names), None)
    n = getattr(spec, "n_labels", len(loaded_model.label_names))
    return (
        loaded_model.label_names
        if n == len(loaded_model.label_names)
        else tuple(f"LABEL_{i}" for i in range(n))
    )


def _base_model_folder(base_name: str, folder: Path, revision: object) -> Path:
    """Find the base model by its name, on the Hub, or next to the adapter."""
    path = f"@{revision}" if isinstance(revision, str) and revision else ""
    beside = folder / base_name
    if beside.is_dir() and not Path(base_name).is_dir():
        return beside
    try:
        return resolve_model_folder(base_name)
    except FileNotFoundError:
        hub = "/" in base_name and not base_name.startswith((HUB_PREFIX, "/", "."))
        if not hub:
            raise FileNotFoundError(
                f"{folder}: its base model is not at {base_name}: move it there, or set its path "
                "in adapter_config.json (base_model_name_or_path)"
            ) from None
    return resolve_model_folder(f"{HUB_PREFIX}{base_name}{path}")


def _trained_heads(
    folder: Path,
    config: Mapping[str, Any],
    record: Mapping[str, Any],
    over: Mapping[str, Tensor],
    home: Path,
) -> dict[str, HeadSpec]:
    """Return the heads with which an adapter was trained."""
    path = folder / CONFIG_FILE
    if "heads" in record:
        label_names = {"heads": record["heads"]}
        return dict(from_dict(_TrainedHeads, label_names, f"{path}").heads)
    card, base_config = read_preset(home)
    names = _head_names(path, config, card)
    _check_base_class(home, base_config, names, card)
    head = next((name for name in names if name in ("label", "token_label")), None)
    n = 2 if head is None else _count_labels(folder, home, head, card, over)
    heads = head_specs_by_name(names, card, base_config, n)
    forward = bool(card.config_mapping.causal_class_names) and card.architecture.is_decoder_only
    return {name: s.as_causal() for name, s in heads.items()} if forward else heads


def _head_names(path: Path, config: Mapping[str, Any], preset: Published) -> tuple[str, ...]:
    """Return the head names of the class for which an adapter was trained."""
    task, classes = config.get("task_type"), preset.config_mapping.class_names
    if task is None:
        mapping = config.get("auto_mapping")
        kind = mapping.get("base_model_class") if isinstance(mapping, Mapping) else None
        found = preset.config_mapping.heads_of_class(str(kind))
        if found is None:
            raise ValueError(
                f"{path}: auto_mapping.base_model_class {kind!r} is not one of "
                f"{', '.join(classes.values())}, and there is no task_type"
            )
        return found
    if task not in _HEADS_OF_TASK:
        raise ValueError(f"{path}: task_type {task!r} is not one of {', '.join(_HEADS_OF_TASK)}")
    both = preset.architecture.is_encoder_decoder
    if (names := _HEADS_OF_TASK[task]) not in classes or (
        names == ("language",) and both != ("2" in task)
    ):
        raise ValueError(
            f"{path}: task_type {task}: no class of {preset.family} for it is supported, only "
            f"{', '.join(classes.values())}"
        )
    return names


def _check_base_class(
    home: Path, base_config: Mapping[str, Any], names: tuple[str, ...], preset: Published
) -> None:
    """Reject a base whose weights transformers' class for question answering does not load.

    Raises:
        ValueError: it is one: the adapter was then trained on a random, unsaved network.
    """
    if names != ("spans",) or not preset.weight_names.alias:
        return
    kinds = [preset.config_mapping.class_names[class_name] for class_name in (names, ())]
    class_names = base_config.get("architectures")
    kind = class_names[0] if isinstance(class_names, list) and class_names else None
    if kind not in kinds:
        raise ValueError(
            f"{home / 'config.json'}: {kinds[0]} loads no weights of {kind}, so the network below "
            "the adapter had random weights that were not saved"
        )


def _count_labels(
    folder: Path, home: Path, head: str, preset: Published, over: Mapping[str, Tensor]
) -> int:
    """Return the number of labels of a head, from its last linear map: PEFT does not save it."""
    name = f"heads.{head}.out.weight"
    scores = preset.weight_names.external_tensor(name, over)
    if scores is None:  # not trained: that of the base model
        scores = preset.weight_names.external_tensor(name, read_model_tensors(home))
    if scores is None or not len(scores):  # empty: see `refusing_tensors`
        raise ValueError(
            f"{folder}: neither this adapter nor its model in {home} has a classification layer: "
            "it was trained with random weights that were not saved"
        )
    return len(scores)


def merge_permanently(model: Model) -> None:
    """Merge a model's only adapter into its weights permanently.

    Raises:
        ValueError: it cannot be.
    """
    for name in list(model.adapters):
        merge(model, name)
        _detach_merged(model, name)


def _detach_merged(model: Model, name: str) -> None:
    """Detach an adapter, keeping the merged weights."""
    merged_values = {n: x.clone() for n, x in model.own_weights().items()}
    detach(model, name)
    model.load_state_dict(merged_values, strict=False)


@contextmanager
def merged(model: Model) -> Generator[None, None, None]:
    """Merge a model's only adapter into its weights temporarily, to write them.

    Raises:
        ValueError: it cannot be.
    """
    names = list(model.adapters)
    if len(names) > 1:
        raise ValueError(f"only one of several adapters can be merged: {', '.join(names)}")
    for name in names:
        merge(model, name)
    try:
        yield
    finally:
        for name in names:
            unmerge(model, name)
