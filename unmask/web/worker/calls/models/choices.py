"""`preset_choices`, `objective_choices`: what of a preset can be changed before it is trained."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from unmask.checkpoints.huggingface.read import max_text_tokens
from unmask.config import from_dict, to_dict
from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.word_vectors.train.trainer import WORD_VECTOR_FAMILY
from unmask.zoo.catalogue import MODELS, get_preset
from unmask.zoo.objectives.adapt_preset import adapt_to_objective
from unmask.zoo.objectives.presets import OBJECTIVE_PRESETS, TOKEN_HEADS, parse_objective
from unmask.zoo.preset import Published

_SIZES: Mapping[str, tuple[str, str]] = {
    "n_layers": ("Layers", "Number of blocks, one above the other."),
    "d_model": ("Width", "Size of the vector of each token; a multiple of the heads."),
    "n_heads": ("Attention heads", "Number of heads in each layer; divides the width."),
    "n_kv_heads": ("Key/value heads", "Heads of keys and values; divides the attention heads."),
    "d_ff": ("Feed-forward width", "Inner size of each layer, often four times the width."),
    "embedding_size": ("Embedding size", "Size of token embeddings, projected to the width."),
}
_CELLS = ("Cells", "Cells of each recurrent layer, of both directions together.")
_VECTORS = ("Vector size", "Numbers in the vector of each word.")
_METHOD_SIZES: Mapping[str, tuple[str, str]] = {
    "epochs": ("Epochs", "Passes over the text."),
    "window": ("Window", "Words on each side that count as neighbors, at most."),
}
_STACKS: Mapping[str, str] = {
    "encoder": "encoder",
    "decoder": "decoder",
    "text": "text encoder",
    "vision": "picture encoder",
}
_OWN_ORDER = ("mlm", "whole-word", "spans", "rtd", "clm", "prefix-lm", "span-corruption")
"""Objectives that are listed first."""


@dataclass(frozen=True, kw_only=True)
class _ChoicesArguments:
    model: str
    """A preset's name."""


def preset_choices(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of a preset that can be set, its tokenizer and its recipe.

    Each of "sizes" is {"label", "help", "keys", "value"}: the keys of `--set` that it is for, more
    than one where an encoder and a decoder have the same.

    Raises:
        ValueError: there is no such preset.
    """
    preset = get_preset(from_dict(_ChoicesArguments, arguments).model)
    recipe = preset_recipe(preset.name)
    kind = preset.tokenizer.vocabulary
    return {
        "model": preset.name,
        "sizes": [*_sizes(preset)],
        "tokenizer": type(kind).__name__,
        "lowercase": bool(getattr(kind, "lowercase", False)),
        "vocab_size": getattr(kind, "vocab_size", None),
        "sequence_length": recipe.sequence_length,
        "max_sequence_length": max_text_tokens(preset) if preset.reads_texts else None,
        "steps": recipe.steps,
        "batch_tokens": recipe.batch_tokens,
        "learning_rate": recipe.learning_rate,
        "objective": _own_name(preset),
        "asks": list(preset.objective.loss_terms),
        "has_epochs": bool(_method_of(preset)),
        "reads_texts": preset.reads_texts,
        "reads_pictures": preset.reads_pictures,
        "languages": list(preset.tokenizer.special_tokens.languages),
    }


def objective_choices(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the objectives, whether a preset supports each, and if not, the reason.

    It is tried with the smallest preset of the family. Each has its options with the published
    values, and `follows`: whether it may be added to another one with a plus.

    Raises:
        ValueError: there is no such preset.
    """
    preset = get_preset(from_dict(_ChoicesArguments, arguments).model)
    if _method_of(preset) or not preset.reads_texts:
        return {"objectives": []}
    same = [one for one in MODELS.values() if one.family == preset.family]
    smallest = min(same, key=lambda one: one.n_parameters)
    reasons = _reasons(smallest.name)
    names = dict.fromkeys((*_OWN_ORDER, *OBJECTIVE_PRESETS))
    return {"objectives": [_objective(name, reasons[name]) for name in names]}


def _objective(name: str, reason: str | None) -> dict[str, Any]:
    preset = OBJECTIVE_PRESETS[name]
    plain = to_dict(preset.objective)
    return {
        "name": name,
        "description": preset.description,
        "options": [
            {"name": option, "value": _value_at(plain, path)}
            for option, path in preset.options.items()
        ],
        "follows": preset.wraps_objective or preset.adds_heads,
        "can": reason is None,
        "reason": reason,
    }


def _value_at(plain: Any, path: str) -> Any:
    """Return the value of an option, of an objective or a head; None where it has none."""
    head, slash, key = path.partition("/")
    if slash:
        return to_dict(TOKEN_HEADS[head]).get(key)
    for part in path.split("."):
        plain = plain[int(part)] if part.isdecimal() else plain.get(part)
    return plain if isinstance(plain, int | float | str) else None


@cache
def _reasons(name: str) -> dict[str, str | None]:
    """Try each objective with a preset: a second for all of them."""
    found: dict[str, str | None] = {}
    for objective in OBJECTIVE_PRESETS:
        found[objective] = None
        try:
            adapt_to_objective(get_preset(name), objective)
        except ValueError as error:
            found[objective] = str(error).split(f"does not support {objective}: ", 1)[-1]
    return found


def _own_name(preset: Published) -> str | None:
    """Return the name of a preset's objective; None: it has none."""
    names = (*_OWN_ORDER, *OBJECTIVE_PRESETS)
    return next((n for n in names if parse_objective(n).objective == preset.objective), None)


def _sizes(preset: Published) -> Iterator[dict[str, Any]]:
    architecture: dict[str, Any] = to_dict(preset.architecture)
    if method := _method_of(preset):
        yield _size(_VECTORS, ["architecture.d_model"], architecture["d_model"])
        for name, words in _METHOD_SIZES.items():
            if name in method:
                yield _size(words, [f"objective.{name}"], method[name])
        return
    stacks = [name for name in _STACKS if "d_model" in (architecture.get(name) or {})]
    if "d_model" in architecture:
        yield from _sizes_of(architecture, [""], "")
    elif stacks:
        yield from _sizes_of_stacks(architecture, stacks)


def _sizes_of_stacks(
    architecture: Mapping[str, Any], stacks: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the sizes that all stacks share, if they read the same tokens; else those of each."""
    first = architecture[stacks[0]]
    is_shared = all(architecture[name].get("d_model") == first["d_model"] for name in stacks)
    if not is_shared or "text" in stacks or first.get("vocab_size", 0) < _LEAST_VOCABULARY:
        for name in stacks:
            yield from _sizes_of(architecture[name], [f"{name}."], f" of the {_STACKS[name]}")
        return
    for name in stacks:
        layers = architecture[name]["n_layers"]
        words = (f"Layers of the {name}", _SIZES["n_layers"][1])
        yield _size(words, [f"architecture.{name}.n_layers"], layers)
    yield from _sizes_of(first, [f"{name}." for name in stacks], "", without="n_layers")


_LEAST_VOCABULARY = 10
"""A stack with fewer tokens reads pictures."""


def _sizes_of(
    stack: Mapping[str, Any], places: Sequence[str], of: str, without: str = ""
) -> Iterator[dict[str, Any]]:
    is_recurrent = "cell" in stack
    for name, words in _SIZES.items():
        value = stack.get(name)
        if name == without or not isinstance(value, int) or not value:
            continue
        label, text = _CELLS if is_recurrent and name == "d_ff" else words
        yield _size((label + of, text), [f"architecture.{one}{name}" for one in places], value)


def _size(words: tuple[str, str], keys: Sequence[str], value: int) -> dict[str, Any]:
    label, text = words
    return {"label": label, "help": text, "keys": list(keys), "value": value}


def _method_of(preset: Published) -> dict[str, Any]:
    """Return the settings of a method for word vectors; of another model none."""
    return to_dict(preset.objective) if preset.family == WORD_VECTOR_FAMILY else {}
