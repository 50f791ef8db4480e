"""A configuration of another library to an architecture and back, key by key."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from unmask import config
from unmask.model.architecture import BackboneArchitecture
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import NO_KEYS, ConfigKeys
from unmask.model.exchange.weight_names import EXTERNAL_ACTIVATIONS, ArchitectureT
from unmask.saved_format import read_record, write_record


@dataclass(frozen=True, kw_only=True)
class ConfigMapping:
    """A two-way table between our architecture and their config.json."""

    model_type: str
    """Their name of the family."""
    config_keys: ConfigKeys = NO_KEYS
    """The use of each of their keys: `to_architecture` checks all and fills in defaults."""
    to_architecture: Callable[[Mapping[str, Any]], BackboneArchitecture]
    from_architecture: Callable[[Any], dict[str, Any]]
    class_names: Mapping[tuple[str, ...], str]
    """Our heads, by name -> the class of theirs that has just these (`architectures` in their
    config.json)."""
    read_language_head: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda theirs: {}
    """Fields of `LanguageModeling` from their configuration that differ from the preset's."""
    write_language_head: Callable[[Any], dict[str, Any]] = lambda spec: {}
    """The keys of their configuration for a language head."""
    read_classification_head: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda theirs: {}
    """The same for classification heads: fields of `SequenceClassification`."""
    in_transformers: bool = True
    """Whether the reference library has classes of this family."""
    aliased_classes: frozenset[str] = frozenset()
    """Classes of theirs whose tensors have the alias of `WeightNames` in place of the prefix."""
    difference: Callable[[Any, Mapping[str, Any]], str | None] = lambda a, specs: None
    """What their class does otherwise than a model of this architecture with these heads: of all
    else, its scores and hidden states are equal."""
    identifying_keys: frozenset[str] = frozenset()
    """Keys that tell the family of a configuration which has no model_type, or one that several
    families share; none: it is not told."""
    causal_class_names: Mapping[tuple[str, ...], str] = field(
        default_factory=dict[tuple[str, ...], str]
    )
    """Their classes for causal networks, where the family has such besides bidirectional ones,
    instead of those above."""
    pooling_key: tuple[str, Mapping[str, str]] | None = None
    """Their key for the pooling of texts, and its values -> ours; None: it is the preset's."""
    ties_embeddings: Callable[[Mapping[str, Any]], bool] = lambda theirs: False
    """Whether their classes tie all tables of tokens to one, unless a file holds others, whatever
    `tie_word_embeddings` says."""

    def class_names_of(self, a: BackboneArchitecture) -> Mapping[tuple[str, ...], str]:
        """Return their classes of a network, by our heads."""
        if not a.is_decoder_only:
            return self.class_names
        return {**self.class_names, **self.causal_class_names}

    def heads_of_class(self, class_name: str) -> tuple[str, ...] | None:
        """Return our heads that a class of theirs has; None: it is none of this family."""
        every = (*self.class_names.items(), *self.causal_class_names.items())
        return next((heads for heads, name in every if name == class_name), None)


def native_config_mapping(
    model_type: str, architecture_class: type[Any] = Architecture
) -> ConfigMapping:
    """Return a format that holds our architecture as it is, for what the other library lacks."""

    def read(theirs: Mapping[str, Any]) -> BackboneArchitecture:
        plain = read_record(require_key(theirs, "architecture"), "architecture")
        stack = isinstance(plain, Mapping) and plain.get("kind") == Architecture.__name__
        # Of two stacks, one alone may have been asked.
        one = stack and issubclass(architecture_class, EncoderDecoderArchitecture)
        return config.from_dict(Architecture if one else architecture_class, plain, "architecture")

    def write(a: BackboneArchitecture) -> dict[str, Any]:
        return {"architecture": write_record(config.to_dict(a))}

    return ConfigMapping(
        model_type=model_type,
        to_architecture=read,
        from_architecture=write,
        class_names={(): model_type},
        in_transformers=False,
    )


def read_activation(name: str, key: str = "activation") -> str:
    """Our name of an activation of theirs.

    Raises:
        ValueError: there is none; the message names the key.
    """
    if name not in EXTERNAL_ACTIVATIONS:
        raise ValueError(f"{key} {name!r} is not one of {sorted(EXTERNAL_ACTIVATIONS)}")
    return EXTERNAL_ACTIVATIONS[name]


def write_activation(name: str) -> str:
    """Their name of an activation of ours."""
    return next(theirs for theirs, ours in EXTERNAL_ACTIVATIONS.items() if ours == name)


def check_fixed_keys(config: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """Refuse a configuration that asks for something this family of ours does not do.

    Raises:
        ValueError: a key has another value than the only one known, with both.
    """
    for key, value in fixed.items():
        if config.get(key, value) != value:
            raise ValueError(f"{key} = {config[key]!r} is not supported, only {value!r}")


def require_key(config: Mapping[str, Any], key: str) -> Any:
    """Return a key of their configuration that must be there.

    Raises:
        ValueError: it is not.
    """
    if key not in config:
        raise ValueError(f"lacks {key!r}")
    return config[key]


def with_is_decoder(
    read: Callable[[Mapping[str, Any]], ArchitectureT],
    write: Callable[[ArchitectureT], dict[str, Any]],
) -> tuple[Callable[[Mapping[str, Any]], ArchitectureT], Callable[[ArchitectureT], dict[str, Any]]]:
    """Let a format with `is_decoder` distinguish causal networks."""

    def read_either(theirs: Mapping[str, Any]) -> ArchitectureT:
        a = read({**theirs, "is_decoder": False})
        return replace(a, causal=True) if theirs.get("is_decoder") else a

    def write_either(a: ArchitectureT) -> dict[str, Any]:
        return write(a) | {"is_decoder": a.causal}

    return read_either, write_either


def config_functions(
    table: Mapping[str, str], base: ArchitectureT, fixed: Mapping[str, Any]
) -> tuple[Callable[[Mapping[str, Any]], ArchitectureT], Callable[[ArchitectureT], dict[str, Any]]]:
    """Make `read` and `write` from {our dotted path: their key}.

    What the table does not name is as in `base`.
    """

    def read(theirs: Mapping[str, Any]) -> ArchitectureT:
        check_fixed_keys(theirs, fixed)
        plain = config.to_dict(base)
        for ours, key in table.items():
            if key in theirs and theirs[key] is not None:
                value = theirs[key]
                _set_nested(
                    plain, ours, read_activation(value, key) if ours == "activation" else value
                )
            elif ours in ("vocab_size", "d_model", "n_layers", "n_heads"):
                require_key(theirs, key)
        return config.from_dict(type(base), plain)

    def write(a: ArchitectureT) -> dict[str, Any]:
        out = dict(fixed)
        for ours, key in table.items():
            value: Any = a
            for part in ours.split("."):
                value = getattr(value, part)
            out[key] = write_activation(value) if ours == "activation" else value
        return out

    return read, write


def _set_nested(plain: dict[str, Any], path: str, value: Any) -> None:
    *outer, last = path.split(".")
    for part in outer:
        plain = plain[part]
    plain[last] = value
