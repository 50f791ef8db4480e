"""Open an adapter's folder with the model that it belongs to; put it into that model's weights.

The folder says where the model is; the model itself is not in it.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unmask.adapters.attach import detach, merge, unmerge
from unmask.adapters.peft import CONFIG, TENSORS, read_adapter, record_of
from unmask.checkpoints.huggingface import HUB, Opened, locate, open_folder
from unmask.checkpoints.tensors import read_json, read_tensors
from unmask.config import from_dict
from unmask.heads.labels import TokenLabels
from unmask.heads.model import HeadSpec, Model
from unmask.published.card import Published
from unmask.published.catalogue import family

NAME = "default"
"""What the adapter of a folder is called in the model."""
_LABELS = ("classifier.weight", "score.weight")
_TASKS: Mapping[str, str] = {
    "SEQ_CLS": "label", "TOKEN_CLS": "token_label", "CAUSAL_LM": "language",
    "SEQ_2_SEQ_LM": "language",
}  # fmt: skip


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
    config = read_json(folder / CONFIG)
    said = base or config.get("base_model_name_or_path")
    if not isinstance(said, str):
        raise ValueError(f"{folder / CONFIG}: base_model_name_or_path must be text, got {said!r}")
    home = _home(said, folder)
    record = record_of(folder, config)
    heads = _heads(folder, config, record, home)
    brought = [name for name in heads or () if name != "language"]
    opened = open_folder(home, heads, seed, elsewhere=brought)
    read_adapter(folder, opened.model, opened.card, NAME)
    labels = tuple(str(label) for label in record.get("labels", ())) or opened.labels
    # The model had other heads before: what it lacks the adapter brings, what is over they had.
    return replace(opened, labels=labels, missing=(), extra=())


def _home(said: str, folder: Path) -> Path:
    """Find the model: as it was named, on the Hub too, or beside the adapter."""
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
    return locate(f"{HUB}{said}")


def _heads(
    folder: Path, config: Mapping[str, Any], record: Mapping[str, Any], home: Path
) -> dict[str, HeadSpec] | None:
    """Return the heads with which an adapter was trained; None: those of its model."""
    if "heads" in record:
        said = {"heads": record["heads"]}
        return dict(from_dict(_Trained, said, f"{folder / CONFIG}").heads)
    name = _TASKS.get(str(config.get("task_type")))
    card = family(read_json(home / "config.json"))
    if name is None:
        return {}
    return {name: _head(name, card, folder)}


def _head(name: str, card: Published, folder: Path) -> HeadSpec:
    """Return a head with as many labels as PEFT saved scores for."""
    if name == "language":
        return card.heads["language"]
    tensors = read_tensors(folder / TENSORS)
    n = next((len(x) for key, x in tensors.items() if key.endswith(_LABELS)), 2)
    if name == "token_label":
        return TokenLabels(n_labels=n)
    if card.labels is None:
        raise ValueError(f"{folder}: {card.name} has no head for labels")
    return replace(card.labels, n_labels=n)


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
