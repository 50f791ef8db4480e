"""A preset with the architecture, heads and objective of a recipe."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast, get_args

from unmask.checkpoints.huggingface.read import (
    max_text_tokens,
)
from unmask.config import from_dict, parse_change, to_dict, unknown_key_message
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import BackboneArchitecture
from unmask.model.backbones.canine import CanineArchitecture
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.model.positions.scheme import PositionScheme
from unmask.text.mixtures import source_names
from unmask.training import config as recipes
from unmask.training.config import Recipe
from unmask.training.data.sources import check_row_unit, check_translation_pairs
from unmask.zoo.catalogue import get_preset
from unmask.zoo.native_format import with_expressible_format
from unmask.zoo.objectives.adapt_preset import adapt_to_objective, available_heads
from unmask.zoo.preset import Published

_SCHEMES_WITH_MAX_POSITIONS = {
    scheme.__name__
    for scheme in get_args(PositionScheme)
    if "max_positions" in {field.name for field in fields(scheme)}
}


def apply_architecture(
    architecture: BackboneArchitecture, changes: Mapping[str, Any]
) -> BackboneArchitecture:
    """Return an architecture with changes."""
    if not changes:
        return architecture
    plain = to_dict(architecture)
    return from_dict(
        type(architecture),
        recipes.merge(plain, _with_same_max_positions(plain, changes)),
        "architecture",
    )


def _with_same_max_positions(
    architecture: Mapping[str, Any], changes: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Keep the maximum length of a position scheme when it is replaced, unless changed."""
    found: dict[str, Any] = {}
    for key, value in changes.items():
        if key in ("encoder", "decoder", "source_encoder") and isinstance(value, Mapping):
            value = _with_same_max_positions(architecture.get(key) or {}, value)
        if key == "position":
            value = _with_max_positions(architecture.get(key) or {}, value)
        found[key] = value
    return found


def _with_max_positions(position: Mapping[str, Any], change: Any) -> Any:
    new: Any = {"kind": change} if isinstance(change, str) else change
    if not isinstance(new, Mapping) or new.get("kind", position.get("kind")) == position.get(
        "kind"
    ):
        return change
    longer = (
        "max_positions" in position
        and new["kind"] in _SCHEMES_WITH_MAX_POSITIONS
        and "max_positions" not in new
    )
    return {**new, "max_positions": position["max_positions"]} if longer else new


def check_architecture(recipe: Recipe, changes: Sequence[str]) -> None:
    """Check that the architecture is valid, and otherwise find the invalid change.

    Raises:
        ValueError: it is invalid; the message has the `--set` that alone causes it, or all of the
            architecture.
    """
    own = get_preset(recipe.model).architecture
    try:
        apply_architecture(own, recipe.architecture)
    except ValueError as error:
        of_it = [c for c in changes if c.lstrip().startswith("architecture.")]
        alone = [c for c in of_it if _architecture_error(own, c) == str(error)]
        settings = " ".join(f"--set {change}" for change in alone[-1:] or of_it)
        raise ValueError(f"{settings}: {error}" if settings else str(error)) from None


def _architecture_error(architecture: BackboneArchitecture, change: str) -> str | None:
    """Return the error of a change on its own, if any."""
    try:
        apply_architecture(architecture, parse_change(change)["architecture"])
    except ValueError as error:
        return str(error)
    return None


def apply_recipe(preset: Published, recipe: Recipe) -> Published:
    """Apply the architecture, heads and objective of a recipe to its preset.

    Raises:
        ValueError: a key does not exist in the architecture, or its rows do not support the
            objective.
    """
    preset = replace(
        preset, architecture=apply_architecture(preset.architecture, recipe.architecture)
    )
    if recipe.image_size is not None and preset.reads_pictures:
        preset = replace(preset, architecture=_with_image_size(preset, *recipe.image_size))
    if recipe.objective is not None:
        preset = adapt_to_objective(preset, recipe.objective)
    architecture, objective = preset.architecture, preset.objective
    if recipe.packing == "pack" and isinstance(architecture, CanineArchitecture):
        raise ValueError(
            f"packing: {preset.name} reads blocks of characters, one text per row; use 'bucket'"
        )
    check_row_unit(recipe, objective)
    check_translation_pairs(recipe, objective, source_names(recipe.data))
    heads_of = _apply_head_changes(preset, recipe.heads)
    heads = {n: s for n, s in heads_of.items() if s.objective_term in objective.loss_terms}
    if (rate := recipe.dropout) is not None:
        architecture = architecture.with_dropout(rate)
        heads = {n: s.with_dropout(rate) for n, s in heads.items()}
    result = replace(preset, architecture=architecture, objective=objective, heads=heads)
    return with_expressible_format(result) if recipe.architecture else result


def _with_image_size(preset: Published, height: int, width: int) -> BackboneArchitecture:
    """Return the network for pictures of another size.

    Raises:
        ValueError: it is not made of whole patches.
    """
    a = preset.architecture
    try:
        return a.with_stacks(
            {
                name: cast(VisionArchitecture, stack).with_image_size(height, width)
                if stack is a.picture_stack
                else stack
                for name, stack in a.stacks.items()
            }
        )
    except ValueError as error:
        raise ValueError(f"image_size = [{height}, {width}]: {error}") from None


def _apply_head_changes(preset: Published, changes: Mapping[str, Any]) -> dict[str, HeadSpec]:
    """Return the heads of a preset with the changes of the recipe, and the general heads.

    Raises:
        ValueError: the recipe has an unknown head or an unknown setting of a head.
    """
    found = available_heads(preset)
    for name, difference in changes.items():
        if name not in found:
            raise ValueError(f"heads: {unknown_key_message(name, found)}")
        if not isinstance(difference, Mapping):
            raise ValueError(f"heads.{name}: must be a table, got {difference!r}")
        spec = found[name]
        plain = recipes.merge(to_dict(spec), difference)
        found[name] = from_dict(type(spec), plain, f"heads.{name}")
    return found


def check_sequence_length(recipe: Recipe, preset: Published) -> int:
    """Return the sequence length, at most the number of the model's positions.

    Raises:
        ValueError: it is longer.
    """
    if not preset.reads_texts:
        assert preset.architecture.max_positions is not None
        return preset.architecture.max_positions  # the patches of a picture
    length = preset.sequence_length if recipe.sequence_length is None else recipe.sequence_length
    longest = max_text_tokens(preset)
    if longest is not None and length > longest:
        raise ValueError(
            f"sequence_length must be at most the model's {longest} positions, got {length}"
        )
    return length
