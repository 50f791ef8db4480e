"""Architectures that their family's format cannot express, in Unmask's native format."""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from dataclasses import replace

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import BackboneArchitecture, StackArchitecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.zoo.preset import Published

NATIVE_PREFIX = "unmask-"
"""Prefix of `model_type` in the native format; the family's follows."""
FAMILY_KEY = "family"
"""Key of the family's name in Unmask: several families share a `model_type`."""
TRAINING_ONLY_FIELDS = frozenset(
    {
        "initializer", "dropout", "attention_dropout", "activation_dropout", "final_dropout",
        "layer_dropout",
    }
)  # fmt: skip
"""Fields that do not affect a trained network, which a format need not express."""


def with_native_format(preset: Published) -> Published:
    """Return a preset with the native format, which transformers does not load."""
    mapping = native_config_mapping(
        NATIVE_PREFIX + preset.config_mapping.model_type, type(preset.architecture)
    )
    fields = replace(
        mapping,
        from_architecture=lambda a: mapping.from_architecture(a) | {FAMILY_KEY: preset.family},
    )
    return replace(preset, config_mapping=fields, weight_names=NATIVE_WEIGHT_NAMES)


def with_family_format(preset: Published, family: Published) -> Published:
    """Return a preset with the format of its family."""
    return replace(preset, config_mapping=family.config_mapping, weight_names=family.weight_names)


def with_expressible_format(preset: Published) -> Published:
    """Return a preset with a format for its architecture: the family's if possible, or native."""
    return preset if _is_expressible(preset) else with_native_format(preset)


def inexpressible_keys(preset: Published, family: Published) -> list[str]:
    """Return the keys of an architecture that a family's format cannot express.

    Keys that differ after writing and reading; if writing fails, those that cause it alone. Empty
    if only several together cause it.
    """
    in_family_format = with_family_format(preset, family)
    mine, base = preset.architecture.stacks, family.architecture.stacks
    if mine.keys() != base.keys():
        return []
    try:
        again = _without_training_fields(
            family.config_mapping.to_architecture(
                family.config_mapping.from_architecture(preset.architecture)
            )
        ).stacks
        keys = _differing_keys(_without_training_fields(preset.architecture).stacks, again)
    except _CONVERSION_ERRORS:
        keys = []
    return keys or [
        k for k in _differing_keys(mine, base) if _is_expressible_with(in_family_format, k, base)
    ]


_CONVERSION_ERRORS = (ValueError, KeyError, TypeError, AttributeError, AssertionError)
"""Errors of name tables and configuration keys for unexpected parts."""


def _is_expressible(preset: Published) -> bool:
    """Return whether a preset's format can express its architecture."""
    try:
        again = preset.config_mapping.to_architecture(
            preset.config_mapping.from_architecture(preset.architecture)
        )
        weights = preset.build_without_memory({}).trained_weights()
        mapped = bool(preset.weight_names.to_external(weights))
    except _CONVERSION_ERRORS:
        return False
    config = preset.config_mapping.read_language_head(
        preset.config_mapping.from_architecture(preset.architecture)
    )
    spec = preset.heads.get("language")
    if isinstance(spec, LanguageModeling) and any(
        config.get(key, own) != own
        for key, own in (("transform", spec.transform), ("bias", spec.bias))
    ):
        return False  # one key is for the activation of the network and of the head
    return mapped and _without_training_fields(again) == _without_training_fields(
        preset.architecture
    )


def _is_expressible_with(
    preset: Published, key: str, base: Mapping[str, StackArchitecture]
) -> bool:
    """Return whether the format could express the architecture with one key of `base`."""
    side, _, name = key.rpartition(".")
    value = getattr(base[side], name)
    try:
        stacks = preset.architecture.stacks
        stack = replace(stacks[side], **{name: value})
        a = preset.architecture.with_stacks({side: stack})
        return _is_expressible(replace(preset, architecture=a))
    except ValueError:  # inconsistent keys
        return False


def _differing_keys(
    a: Mapping[str, StackArchitecture], b: Mapping[str, StackArchitecture]
) -> list[str]:
    """Return the keys in which stacks differ."""
    return [
        f"{side}.{f.name}".lstrip(".")
        for side in a
        if type(a[side]) is type(b[side])
        for f in fields_of(a[side])
        if getattr(a[side], f.name) != getattr(b[side], f.name)
    ]


def _without_training_fields(a: BackboneArchitecture) -> BackboneArchitecture:
    """Return an architecture with default training-only fields."""
    return a.with_stacks(
        {name: replace(stack, **_training_defaults(stack)) for name, stack in a.stacks.items()}
    )


def _training_defaults(a: StackArchitecture) -> dict[str, object]:
    return {f.name: f.default for f in fields_of(a) if f.name in TRAINING_ONLY_FIELDS}
