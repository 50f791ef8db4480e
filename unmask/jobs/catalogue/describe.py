"""Description of a model: preset, size and cost."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unmask.bundled.models import BUNDLED_MODELS
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.methods import format_methods, recorded_methods
from unmask.config import to_dict, to_expression
from unmask.inference.open_model import load
from unmask.inference.vectors.load_word_vectors import (
    describe_word_vectors,
    format_word_vector_facts,
    is_word_vectors,
)
from unmask.jobs.pretrain.resumed_run import recipe_of
from unmask.model.architecture import BackboneArchitecture
from unmask.model.layers.quantized_inputs import describe_quantized_inputs
from unmask.planning.flops import default_target_fraction, training_flops_per_token
from unmask.planning.memory import state_bytes
from unmask.reports.formatting import NARROW_SPACE, RealNumber, format_bytes, format_si
from unmask.training.config import Recipe
from unmask.zoo.catalogue import get_preset, is_preset_name
from unmask.zoo.preset import FinetuningDefaults, Published


def describe(model: str) -> dict[str, Any]:
    """Describe a preset, the model of a folder or a file of word vectors, as plain data.

    Besides the preset: `flops_per_token` of a training step, and `memory_bytes` of the weights and
    of training (bfloat16 weights, float32 masters, gradients, two moments, including pretraining
    heads), without activations. A folder's `tokenizer` is the one that it holds, by `algorithm` and
    `vocab_size`; a preset's, how it is learned.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: there is no such preset; the message suggests the nearest.
    """
    if is_word_vectors(model) and not Path(model).is_dir():
        return describe_word_vectors(model)
    loaded = None if is_preset_name(model) else load(model).loaded_model
    card = get_preset(model) if loaded is None else _preset_with_weights(loaded, model)
    built = card.build_without_memory()
    n = built.parameter_count()
    target_fraction = default_target_fraction(card.objective.loss_terms)
    trained = sum(weight.numel() for weight in built.own_weights().values())
    own: dict[str, Any] = {}
    if loaded is not None and (there := loaded.tokenizer) is not None:
        own = {"tokenizer": {"algorithm": there.algorithm, "vocab_size": there.vocab_size}}
    return (
        preset_to_dict(card)
        | own
        | {
            "parameters": n,
            "flops_per_token": training_flops_per_token(
                built, card.sequence_length, target_fraction
            ),
            "memory_bytes": {
                "inference_float32": 4 * n,
                "inference_bfloat16": 2 * n,
                "training": state_bytes(trained, "bfloat16", 2 * trained),
            },
        }
    )


KEYS_SHOWN_ELSEWHERE = (
    "architecture",
    "heads",
    "objective",
    "sequence_length",
    "batch_tokens",
    "learning_rate",
)
"""Keys of a run's recipe that the description has elsewhere."""

_RECIPE_KEYS = {
    "sequence_length": "length",
    "batch_tokens": "batch_tokens",
    "learning_rate": "rate",
}
"""Names in a description -> keys of a recipe."""


def _preset_with_weights(loaded: LoadedModel, model: str | Path) -> Published:
    """Return the preset of a model with weights, with the recipe of its training.

    Its note gives their location.
    """
    location = Path(model) if Path(model).is_dir() else BUNDLED_MODELS.get(str(model), model)
    rounding = describe_quantized_inputs(loaded.model)
    card = replace(
        loaded.preset,
        n_parameters=loaded.model.parameter_count(),
        note=f"Its weights: {location}{_compression_note(Path(location))}"
        + ("" if rounding is None else f"; computes with {rounding}"),
    )
    recipe = recipe_of(Path(location))
    if recipe is None:
        return card
    plain, usual = to_dict(recipe), to_dict(Recipe(model=recipe.model))
    return replace(
        card,
        sequence_length=recipe.sequence_length or card.sequence_length,
        batch_tokens=recipe.batch_tokens,
        learning_rate=recipe.learning_rate,
        training_options={
            k: v for k, v in plain.items() if v != usual[k] and k not in KEYS_SHOWN_ELSEWHERE
        },
    )


def _compression_note(folder: Path) -> str:
    """Return how the model in a folder was compressed, if it was."""
    records = recorded_methods(folder)
    return f"; compressed by {format_methods(records)}" if records else ""


def bundled_presets() -> list[Published]:
    """Return the presets of the bundled models."""
    return [
        _preset_with_weights(load(folder).loaded_model, folder)
        for folder in BUNDLED_MODELS.values()
    ]


def preset_to_dict(preset: Published) -> dict[str, Any]:
    """Return a preset as plain data."""
    return {
        "name": preset.name,
        "family": preset.family,
        "parameters": preset.n_parameters,
        "paper": to_dict(preset.paper),
        "architecture": _architecture_to_dict(preset.architecture),
        "heads": to_dict(preset.heads),
        "objective": to_dict(preset.objective),
        "tokenizer": to_dict(preset.tokenizer),
        "length": preset.sequence_length,
        "batch_tokens": preset.batch_tokens,
        "rate": preset.learning_rate,
        "training": to_dict(preset.training_options),
        "finetuning": to_dict(preset.finetuning),
        "hub": preset.hub_id,
        "note": preset.note,
    }


def _architecture_to_dict(architecture: BackboneArchitecture) -> dict[str, Any]:
    """Return an architecture as plain data, without uninformative fields."""
    return {
        name: value
        for name, value in to_dict(architecture).items()
        if name not in architecture.ignored_fields
    }


def preset_line(preset: Published) -> str:
    """Format a preset as one line of a table."""
    authors = f"{preset.paper.authors.split(',')[0]} {preset.paper.year}"
    if preset.name in BUNDLED_MODELS:
        authors = "with its weights in this package"
    return f"{preset.name:38}{_format_count(preset.n_parameters):>7} parameters  {authors}"


def format_description(description: Mapping[str, Any]) -> Iterator[str]:
    """Format a description as lines for a terminal."""
    return (
        iter(format_word_vector_facts(description))
        if "width" in description
        else _format_model(description)
    )


def _format_model(description: Mapping[str, Any]) -> Iterator[str]:
    paper = description["paper"]
    yield description["name"]
    yield f"{paper['authors']} {paper['year']}, {paper['title']}"
    if paper["arxiv"] or paper["url"]:
        yield f"https://arxiv.org/abs/{paper['arxiv']}" if paper["arxiv"] else paper["url"]
    if description["note"]:
        yield description["note"]
    yield ""
    for name, text in _description_rows(description).items():
        yield f"{name:24}{text}"
    yield ""
    yield "recipe"
    recipe = {key: description[name] for key, name in _RECIPE_KEYS.items()}
    yield from _format_fields(recipe | description["training"])
    for name, stack in _stacks_by_name(description["architecture"]).items():
        yield ""
        yield f"architecture{name and '.' + name}"
        yield from _format_fields(stack)
    if description["architecture"].get("tie_encoder_decoder") is True:
        yield ""
        yield "the layers of both are the same"


def _description_rows(description: Mapping[str, Any]) -> dict[str, str]:
    size = description["memory_bytes"]
    weights, training = map(_format_memory, (size["inference_float32"], size["training"]))
    rows = {
        "parameters": f"{description['parameters']:,}",
        "memory": f"{weights} of weights in float32",
    }
    if flops := description["flops_per_token"]:  # none for word vectors
        rows["memory"] += f"; to train, {training} and activations"
        rows["to train"] = (
            f"{_format_count(flops)}FLOP per token, in rows of {description['length']}"
        )
    if description["finetuning"] != to_dict(FinetuningDefaults()):
        rows["fine-tuning"] = to_expression(description["finetuning"])
    rows |= {
        "tokenizer": _format_tokenizer(description["tokenizer"]),
        "objective": to_expression(description["objective"]),
    }
    return rows | {
        f"heads.{name}": to_expression(spec) for name, spec in description["heads"].items()
    }


def _format_tokenizer(tokenizer: Mapping[str, Any]) -> str:
    """Format how a preset's tokenizer is learned, or what a folder's is."""
    if "vocabulary" in tokenizer:
        return to_expression(tokenizer["vocabulary"])
    return f"{tokenizer['algorithm']} of {tokenizer['vocab_size']:,} tokens"


def recipe_settings(description: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the recipe of a description as `key`, `value` for `--set`."""
    yield "objective", to_expression(description["objective"])
    for name, spec in description["heads"].items():
        yield f"heads.{name}", to_expression(spec)
    for key, name in _RECIPE_KEYS.items():
        yield key, to_expression(description[name])
    for name, value in description["training"].items():
        yield name, to_expression(value)
    for name, stack in _stacks_by_name(description["architecture"]).items():
        for key, value in stack.items():
            if key != "kind":
                yield f"architecture{name and '.' + name}.{key}", to_expression(value)


def _stacks_by_name(architecture: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the stacks of a network by name; a single one has the name ""."""
    if "decoder" not in architecture:
        return {"": architecture}
    return {name: part for name, part in architecture.items() if isinstance(part, Mapping)}


def _format_fields(stack: Mapping[str, Any]) -> Iterator[str]:
    fields = {name: x for name, x in stack.items() if name != "kind" and x is not None}
    width = max((22, *(len(name) + 2 for name in fields)))
    for name, value in fields.items():
        yield f"  {name:{width}}{to_expression(value)}"


def _format_count(n: RealNumber) -> str:
    return format_si(n).replace(NARROW_SPACE, " ")


def _format_memory(n: RealNumber) -> str:
    return format_bytes(n).replace(NARROW_SPACE, " ")
