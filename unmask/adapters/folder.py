"""Open an adapter's folder with its base model; merge it into that model's weights.

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
from unmask.text.records import format_names
from unmask.zoo.preset import Published

ADAPTER_NAME = "default"
"""The name of a folder's adapter in the model."""
_HEADS_OF_TASK: Mapping[str, tuple[str, ...]] = {
    "SEQ_CLS": ("label",), "TOKEN_CLS": ("token_label",), "QUESTION_ANS": ("spans",),
    "CAUSAL_LM": ("language",), "SEQ_2_SEQ_LM": ("language",), "FEATURE_EXTRACTION": (),
}  # fmt: skip
"""PEFT's task types -> our heads."""


@dataclass(frozen=True)
class _TrainedHeads:
    """The heads with which an adapter was trained."""

    heads: Mapping[str, HeadSpec]


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter, and no model."""
    return (folder / CONFIG_FILE).is_file() and not (folder / "config.json").is_file()


def open_model_or_adapter(
    folder: Path, heads: Mapping[str, HeadSpec] | None = None, seed: int = 0
) -> LoadedModel:
    """Open a model, or an adapter with its model; see `load_folder` and `open_adapter`."""
    return (
        open_adapter(folder, seed=seed) if is_adapter(folder) else load_folder(folder, heads, seed)
    )


def open_adapter(folder: Path, *, base: str | None = None, seed: int = 0) -> LoadedModel:
    """Open an adapter, ours or PEFT's, with its base model.

    Args:
        folder: has adapter_config.json and adapter_model.safetensors.
        base: the base model; None: the one that the folder names.
        seed: initializes weights that neither has.

    Raises:
        FileNotFoundError: the model is not where it is said to be.
        ValueError: a file is damaged, or the adapter belongs to another model.
    """
    check_recorded_files(folder)
    config = read_json_file(folder / CONFIG_FILE)
    said = base or config.get("base_model_name_or_path")
    if not isinstance(said, str):
        raise ValueError(
            f"{folder / CONFIG_FILE}: base_model_name_or_path must be text, got {said!r}"
        )
    home = _base_model_folder(said, folder, None if base else config.get("revision"))
    record = native_record(folder, config)
    peft_config_of(folder, config)  # what is not read is said before anything is opened
    over = module_tensors(read_adapter_tensors(folder, config))
    heads = _trained_heads(folder, config, record, over, home)
    opened = load_folder(home, heads, seed, replacement_tensors=over)
    if opened.missing:
        raise ValueError(
            f"{folder}: neither this adapter nor its model in {home} has "
            f"{format_names(opened.missing[:3])}: it was trained with random numbers that were "
            "not saved"
        )
    _check_output_matrix(folder, home, opened)
    read_adapter(folder, opened.model, opened.preset, ADAPTER_NAME)
    labels = tuple(str(label) for label in record.get("labels", ()))
    # What is over, the model had for other heads.
    return replace(opened, label_names=labels or _base_label_names(opened), unexpected=())


def _check_output_matrix(folder: Path, home: Path, loaded_model: LoadedModel) -> None:
    """Refuse scores of tokens that would be those of the table, where they have a matrix.

    Raises:
        ValueError: so it is; PEFT draws the matrix anew each time.
    """
    tied = any(s.ties_output_embeddings for s in loaded_model.model.head_specs.values())
    if tied and read_config(home).get("tie_word_embeddings") is False:
        raise ValueError(
            f"{folder}: {home / 'config.json'} says tie_word_embeddings = false, but neither this "
            "adapter nor its model has a matrix for the scores of tokens"
        )


def _base_label_names(loaded_model: LoadedModel) -> tuple[str, ...]:
    """Return the labels' names that the model below has, if they are of as many."""
    spec = next((s for s in loaded_model.model.head_specs.values() if s.has_label_names), None)
    n = getattr(spec, "n_labels", len(loaded_model.label_names))
    return (
        loaded_model.label_names
        if n == len(loaded_model.label_names)
        else tuple(f"LABEL_{i}" for i in range(n))
    )


def _base_model_folder(base_name: str, folder: Path, revision: object) -> Path:
    """Find the model: as it was named, on the Hub too, or beside the adapter."""
    at = f"@{revision}" if isinstance(revision, str) and revision else ""
    beside = folder / base_name
    if beside.is_dir() and not Path(base_name).is_dir():
        return beside
    try:
        return resolve_model_folder(base_name)
    except FileNotFoundError:
        hub = "/" in base_name and not base_name.startswith((HUB_PREFIX, "/", "."))
        if not hub:
            raise FileNotFoundError(
                f"{folder}: its model is not at {base_name}: put it there, or name where it is in "
                "adapter_config.json (base_model_name_or_path)"
            ) from None
    return resolve_model_folder(f"{HUB_PREFIX}{base_name}{at}")


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
        said = {"heads": record["heads"]}
        return dict(from_dict(_TrainedHeads, said, f"{path}").heads)
    card, theirs = read_preset(home)
    names = _head_names(path, config, card)
    _check_base_class(home, theirs, names, card)
    head = next((name for name in names if name in ("label", "token_label")), None)
    n = 2 if head is None else _count_labels(folder, home, head, card, over)
    made = head_specs_by_name(names, card, theirs, n)
    forward = bool(card.config_mapping.causal_class_names) and card.architecture.is_decoder_only
    return {name: s.as_causal() for name, s in made.items()} if forward else made


def _head_names(path: Path, config: Mapping[str, Any], preset: Published) -> tuple[str, ...]:
    """Return the names of the heads of the class for which an adapter was trained."""
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
            f"{path}: task_type {task}: no class of {preset.family} for it is read here, only "
            f"{', '.join(classes.values())}"
        )
    return names


def _check_base_class(
    home: Path, theirs: Mapping[str, Any], names: tuple[str, ...], preset: Published
) -> None:
    """Refuse a base that transformers' class for questions does not read, as it names others.

    Raises:
        ValueError: it is one: the network below the adapter was then drawn, and not saved.
    """
    if names != ("spans",) or not preset.weight_names.alias:
        return
    kinds = [preset.config_mapping.class_names[one] for one in (names, ())]
    found = theirs.get("architectures")
    kind = found[0] if isinstance(found, list) and found else None
    if kind not in kinds:
        raise ValueError(
            f"{home / 'config.json'}: {kinds[0]} reads no weights of {kind}, so the network below "
            "the adapter was made of random numbers that were not saved"
        )


def _count_labels(
    folder: Path, home: Path, head: str, preset: Published, over: Mapping[str, Tensor]
) -> int:
    """Count the labels that a head scores: PEFT saves its last map, and not how many they are."""
    name = f"heads.{head}.out.weight"
    scores = preset.weight_names.external_tensor(name, over)
    if scores is None:  # it was not trained, and is that of the model below
        scores = preset.weight_names.external_tensor(name, read_model_tensors(home))
    if scores is None:
        raise ValueError(
            f"{folder}: neither this adapter nor its model in {home} has scores of labels: it was "
            "trained with random numbers that were not saved"
        )
    return len(scores)


def merge_permanently(model: Model) -> None:
    """Put a model's only adapter into its weights for good.

    Raises:
        ValueError: it cannot be.
    """
    for name in list(model.adapters):
        merge(model, name)
        _detach_merged(model, name)


def _detach_merged(model: Model, name: str) -> None:
    """Detach an adapter whose work stays in the weights."""
    kept = {n: x.clone() for n, x in model.own_weights().items()}
    detach(model, name)
    model.load_state_dict(kept, strict=False)


@contextmanager
def merged(model: Model) -> Generator[None, None, None]:
    """Put a model's only adapter into its weights for a while, to write them.

    Raises:
        ValueError: it cannot be.
    """
    names = list(model.adapters)
    if len(names) > 1:
        raise ValueError(f"of several adapters only one can be in the weights: {', '.join(names)}")
    for name in names:
        merge(model, name)
    try:
        yield
    finally:
        for name in names:
            unmerge(model, name)
