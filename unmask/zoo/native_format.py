"""Networks that the format of their family has no words for: written in ours."""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from dataclasses import replace

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import BackboneArchitecture, StackArchitecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.zoo.preset import Published

NATIVE_PREFIX = "unmask-"
"""What such a folder's `model_type` begins with; the family's follows."""
FAMILY_KEY = "family"
"""Our name of it: several families share a `model_type`, and tell theirs by words of its own."""
TRAINING_ONLY_FIELDS = frozenset(
    {
        "initializer", "dropout", "attention_dropout", "activation_dropout", "final_dropout",
        "layer_dropout",
    }
)  # fmt: skip
"""What a trained network does not depend on: a format need not have words for it."""


def with_native_format(preset: Published) -> Published:
    """Return the preset of a network in our own format: transformers does not open it."""
    own = native_config_mapping(
        NATIVE_PREFIX + preset.config_mapping.model_type, type(preset.architecture)
    )
    fields = replace(
        own, from_architecture=lambda a: own.from_architecture(a) | {FAMILY_KEY: preset.family}
    )
    return replace(preset, config_mapping=fields, weight_names=NATIVE_WEIGHT_NAMES)


def with_family_format(preset: Published, family: Published) -> Published:
    """Return the preset of a network in the format of its family, whatever it was read from."""
    return replace(preset, config_mapping=family.config_mapping, weight_names=family.weight_names)


def with_expressible_format(preset: Published) -> Published:
    """Return a preset whose format can say its architecture: the family's where it can, or ours."""
    return preset if _is_expressible(preset) else with_native_format(preset)


def inexpressible_keys(preset: Published, family: Published) -> list[str]:
    """Name the keys of a network that a family's format has no words for.

    Those that are read back as something else; where nothing can be written, those that keep it
    from being so, each by itself. Where only several together do, none is named.
    """
    said = with_family_format(preset, family)
    mine, base = preset.architecture.stacks, family.architecture.stacks
    if mine.keys() != base.keys():
        return []
    try:
        again = _without_training_fields(
            family.config_mapping.to_architecture(
                family.config_mapping.from_architecture(preset.architecture)
            )
        ).stacks
        found = _differing_keys(_without_training_fields(preset.architecture).stacks, again)
    except _CONVERSION_ERRORS:
        found = []
    return found or [k for k in _differing_keys(mine, base) if _is_expressible_with(said, k, base)]


_CONVERSION_ERRORS = (ValueError, KeyError, TypeError, AttributeError, AssertionError)
"""What is raised where a table of names, or of keys, meets a part that it does not expect."""


def _is_expressible(preset: Published) -> bool:
    """Return whether a preset's format can say its architecture."""
    try:
        again = preset.config_mapping.to_architecture(
            preset.config_mapping.from_architecture(preset.architecture)
        )
        weights = preset.build_without_memory({}).trained_weights()
        named = bool(preset.weight_names.to_external(weights))
    except _CONVERSION_ERRORS:
        return False
    said = preset.config_mapping.read_language_head(
        preset.config_mapping.from_architecture(preset.architecture)
    )
    spec = preset.heads.get("language")
    if (
        isinstance(spec, LanguageModeling)
        and said.get("transform", spec.transform) != spec.transform
    ):
        return False  # one key says the activation of the network and of the head
    return named and _without_training_fields(again) == _without_training_fields(
        preset.architecture
    )


def _is_expressible_with(
    preset: Published, key: str, base: Mapping[str, StackArchitecture]
) -> bool:
    """Return whether the format could say the architecture if one key were as in `base`."""
    side, _, name = key.rpartition(".")
    value = getattr(base[side], name)
    try:
        stacks = preset.architecture.stacks
        stack = replace(stacks[side], **{name: value})
        a = preset.architecture.with_stacks({side: stack})
        return _is_expressible(replace(preset, architecture=a))
    except ValueError:  # two keys that do not go together
        return False


def _differing_keys(
    a: Mapping[str, StackArchitecture], b: Mapping[str, StackArchitecture]
) -> list[str]:
    """Name the keys in which stacks differ."""
    return [
        f"{side}.{f.name}".lstrip(".")
        for side in a
        if type(a[side]) is type(b[side])
        for f in fields_of(a[side])
        if getattr(a[side], f.name) != getattr(b[side], f.name)
    ]


def _without_training_fields(a: BackboneArchitecture) -> BackboneArchitecture:
    """Return an architecture without what matters in training alone."""
    return a.with_stacks(
        {name: replace(stack, **_training_defaults(stack)) for name, stack in a.stacks.items()}
    )


def _training_defaults(a: StackArchitecture) -> dict[str, object]:
    return {f.name: f.default for f in fields_of(a) if f.name in TRAINING_ONLY_FIELDS}
