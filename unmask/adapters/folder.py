"""Open an adapter's folder with the model that it belongs to; put it into that model's weights.

The folder says where the model is; the model itself is not in it.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.adapters.attach import detach, merge, unmerge
from unmask.adapters.peft import (
    CONFIG,
    beside,
    read_adapter,
    read_weights,
    record_of,
    settings_of,
)
from unmask.checkpoints.huggingface import (
    HUB,
    Opened,
    configuration,
    described,
    heads_named,
    labels_named,
    locate,
    open_folder,
    reading_forward,
)
from unmask.checkpoints.tensors import read_json, read_model_tensors
from unmask.checkpoints.written import check_written
from unmask.config import from_dict
from unmask.heads.language import Language
from unmask.heads.model import HeadSpec, Model
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.published.card import Published
from unmask.text.records import listed

NAME = "default"
"""What the adapter of a folder is called in the model."""
_TASKS: Mapping[str, tuple[str, ...]] = {
    "SEQ_CLS": ("label",), "TOKEN_CLS": ("token_label",), "QUESTION_ANS": ("spans",),
    "CAUSAL_LM": ("language",), "SEQ_2_SEQ_LM": ("language",), "FEATURE_EXTRACTION": (),
}  # fmt: skip
"""PEFT's words for what a model does -> our heads."""


@dataclass(frozen=True)
class _Trained:
    """The heads with which an adapter was trained."""

    heads: Mapping[str, HeadSpec]


def is_adapter(folder: Path) -> bool:
    """Say whether a folder holds an adapter, and no model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def open_any(folder: Path, heads: Mapping[str, HeadSpec] | None = None, seed: int = 0) -> Opened:
    """Open a model, or an adapter with its model; see `open_folder` and `open_adapter`."""
    return (
        open_adapter(folder, seed=seed) if is_adapter(folder) else open_folder(folder, heads, seed)
    )


def open_adapter(folder: Path, *, base: str | None = None, seed: int = 0) -> Opened:
    """Open an adapter, ours or PEFT's, with the model that it belongs to.

    Args:
        folder: has adapter_config.json and adapter_model.safetensors.
        base: where the model is; None: where the folder says.
        seed: fills weights that neither has.

    Raises:
        FileNotFoundError: the model is not where it is said to be.
        ValueError: a file is damaged, or the adapter belongs to another model.
    """
    check_written(folder)
    config = read_json(folder / CONFIG)
    said = base or config.get("base_model_name_or_path")
    if not isinstance(said, str):
        raise ValueError(f"{folder / CONFIG}: base_model_name_or_path must be text, got {said!r}")
    home = _home(said, folder, None if base else config.get("revision"))
    record = record_of(folder, config)
    settings_of(folder, config)  # what is not read is said before anything is opened
    over = beside(read_weights(folder, config))
    heads = _heads(folder, config, record, over, home)
    opened = open_folder(home, heads, seed, over=over)
    if opened.missing:
        raise ValueError(
            f"{folder}: neither this adapter nor its model in {home} has "
            f"{listed(opened.missing[:3])}: it was trained with random numbers that were not saved"
        )
    _check_scores(folder, home, opened)
    read_adapter(folder, opened.model, opened.card, NAME)
    labels = tuple(str(label) for label in record.get("labels", ()))
    # What is over, the model had for other heads.
    return replace(opened, labels=labels or _named(opened), extra=())


def _check_scores(folder: Path, home: Path, opened: Opened) -> None:
    """Refuse scores of tokens that would be those of the table, where they have a matrix.

    Raises:
        ValueError: so it is; PEFT draws the matrix anew each time.
    """
    tied = any(isinstance(s, Language) and s.tied for s in opened.model.specs.values())
    if tied and configuration(home).get("tie_word_embeddings") is False:
        raise ValueError(
            f"{folder}: {home / 'config.json'} says tie_word_embeddings = false, but neither this "
            "adapter nor its model has a matrix for the scores of tokens"
        )


def _named(opened: Opened) -> tuple[str, ...]:
    """Return the labels' names that the model below has, if they are of as many."""
    spec = next((s for s in opened.model.specs.values() if labels_named(s)), None)
    n = getattr(spec, "n_labels", len(opened.labels))
    return opened.labels if n == len(opened.labels) else tuple(f"LABEL_{i}" for i in range(n))


def _home(said: str, folder: Path, revision: object) -> Path:
    """Find the model: as it was named, on the Hub too, or beside the adapter."""
    at = f"@{revision}" if isinstance(revision, str) and revision else ""
    beside = folder / said
    if beside.is_dir() and not Path(said).is_dir():
        return beside
    try:
        return locate(said)
    except FileNotFoundError:
        hub = "/" in said and not said.startswith((HUB, "/", "."))
        if not hub:
            raise FileNotFoundError(
                f"{folder}: its model is not at {said}: put it there, or name where it is in "
                "adapter_config.json (base_model_name_or_path)"
            ) from None
    return locate(f"{HUB}{said}{at}")


def _heads(
    folder: Path,
    config: Mapping[str, Any],
    record: Mapping[str, Any],
    over: Mapping[str, Tensor],
    home: Path,
) -> dict[str, HeadSpec]:
    """Return the heads with which an adapter was trained."""
    path = folder / CONFIG
    if "heads" in record:
        said = {"heads": record["heads"]}
        return dict(from_dict(_Trained, said, f"{path}").heads)
    card, theirs = described(home)
    names = _names(path, config, card)
    _check_read(home, theirs, names, card)
    head = next((name for name in names if name in ("label", "token_label")), None)
    n = 2 if head is None else _count(folder, home, head, card, over)
    made = heads_named(names, card, theirs, n)
    one = card.architecture
    forward = bool(card.fields.forward) and isinstance(one, Architecture) and one.causal
    return {name: reading_forward(s) for name, s in made.items()} if forward else made


def _names(path: Path, config: Mapping[str, Any], card: Published) -> tuple[str, ...]:
    """Return the names of the heads of the class for which an adapter was trained."""
    task, classes = config.get("task_type"), card.fields.classes
    if task is None:
        mapping = config.get("auto_mapping")
        kind = mapping.get("base_model_class") if isinstance(mapping, Mapping) else None
        found = card.fields.heads_of(str(kind))
        if found is None:
            raise ValueError(
                f"{path}: auto_mapping.base_model_class {kind!r} is not one of "
                f"{', '.join(classes.values())}, and there is no task_type"
            )
        return found
    if task not in _TASKS:
        raise ValueError(f"{path}: task_type {task!r} is not one of {', '.join(_TASKS)}")
    both = isinstance(card.architecture, EncoderDecoderArchitecture)
    if (names := _TASKS[task]) not in classes or (names == ("language",) and both != ("2" in task)):
        raise ValueError(
            f"{path}: task_type {task}: no class of {card.family} for it is read here, only "
            f"{', '.join(classes.values())}"
        )
    return names


def _check_read(
    home: Path, theirs: Mapping[str, Any], names: tuple[str, ...], card: Published
) -> None:
    """Refuse a base that transformers' class for questions does not read, as it names others.

    Raises:
        ValueError: it is one: the network below the adapter was then drawn, and not saved.
    """
    if names != ("spans",) or not card.names.alias:
        return
    kinds = [card.fields.classes[one] for one in (names, ())]
    found = theirs.get("architectures")
    kind = found[0] if isinstance(found, list) and found else None
    if kind not in kinds:
        raise ValueError(
            f"{home / 'config.json'}: {kinds[0]} reads no weights of {kind}, so the network below "
            "the adapter was made of random numbers that were not saved"
        )


def _count(folder: Path, home: Path, head: str, card: Published, over: Mapping[str, Tensor]) -> int:
    """Count the labels that a head scores: PEFT saves its last map, and not how many they are."""
    name = f"heads.{head}.out.weight"
    scores = card.names.theirs_of(name, over)
    if scores is None:  # it was not trained, and is that of the model below
        scores = card.names.theirs_of(name, read_model_tensors(home))
    if scores is None:
        raise ValueError(
            f"{folder}: neither this adapter nor its model in {home} has scores of labels: it was "
            "trained with random numbers that were not saved"
        )
    return len(scores)


def fold(model: Model) -> None:
    """Put a model's only adapter into its weights for good.

    Raises:
        ValueError: it cannot be.
    """
    for name in list(model.adapters):
        merge(model, name)
        _forget(model, name)


def _forget(model: Model, name: str) -> None:
    """Detach an adapter whose work stays in the weights."""
    kept = {n: x.clone() for n, x in model.weights().items()}
    detach(model, name)
    model.load_state_dict(kept, strict=False)


@contextmanager
def folded(model: Model) -> Generator[None, None, None]:
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
