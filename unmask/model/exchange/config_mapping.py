"""Two-way mapping between another library's configuration and an architecture, key by key."""

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
    """Their name of the family (`model_type`)."""
    config_keys: ConfigKeys = NO_KEYS
    """Their keys, which are checked and completed by defaults before `to_architecture`."""
    to_architecture: Callable[[Mapping[str, Any]], BackboneArchitecture]
    from_architecture: Callable[[Any], dict[str, Any]]
    class_names: Mapping[tuple[str, ...], str]
    """Names of our heads -> their class with exactly these heads (`architectures` in their
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
    """Their classes whose tensor names have the alias of `WeightNames` instead of the prefix."""
    difference: Callable[[Any, Mapping[str, Any]], str | None] = lambda a, specs: None
    """Known differences of their class from a model of this architecture with these heads.
    Otherwise logits and hidden states are equal."""
    identifying_keys: frozenset[str] = frozenset()
    """Keys that identify the family of a configuration without a model_type, or with one that
    several families share. Empty: it cannot be identified."""
    causal_class_names: Mapping[tuple[str, ...], str] = field(
        default_factory=dict[tuple[str, ...], str]
    )
    """Their classes for causal networks, if the family has both causal and bidirectional ones;
    replaces `class_names`."""
    pooling_key: tuple[str, Mapping[str, str]] = ("", {})
    """Their key for the pooling of texts, and its values -> ours. Empty: the preset's pooling."""
    ties_embeddings: Callable[[Mapping[str, Any]], bool] = lambda theirs: False
    """Whether their classes tie all token embedding tables regardless of `tie_word_embeddings`,
    unless a file has different ones."""

    arrange_config: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """The layout of their finished configuration, where keys of a part are within its own."""

    def class_names_of(self, a: BackboneArchitecture) -> Mapping[tuple[str, ...], str]:
        """Return their classes for a network, by our heads."""
        if not a.is_decoder_only:
            return self.class_names
        return {**self.class_names, **self.causal_class_names}

    def heads_of_class(self, class_name: str) -> tuple[str, ...] | None:
        """Return our names of the heads of their class; None: the class is not in this family."""
        class_names = (*self.class_names.items(), *self.causal_class_names.items())
        return next((heads for heads, name in class_names if name == class_name), None)


def native_config_mapping(
    model_type: str, architecture_class: type[Any] = Architecture
) -> ConfigMapping:
    """Return a format that stores our architecture, for families that the other library lacks."""

    def read(theirs: Mapping[str, Any]) -> BackboneArchitecture:
        plain = read_record(require_key(theirs, "architecture"), "architecture")
        stack = isinstance(plain, Mapping) and plain.get("kind") == Architecture.__name__
        # Of two stacks, one alone may have been asked.
        is_single_stack = stack and issubclass(architecture_class, EncoderDecoderArchitecture)
        return config.from_dict(
            Architecture if is_single_stack else architecture_class, plain, "architecture"
        )

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
    """Return our name of their activation.

    Raises:
        ValueError: there is none; the message names the key.
    """
    if name not in EXTERNAL_ACTIVATIONS:
        raise ValueError(f"{key} {name!r} is not one of {sorted(EXTERNAL_ACTIVATIONS)}")
    return EXTERNAL_ACTIVATIONS[name]


def write_activation(name: str) -> str:
    """Return their name of our activation."""
    return next(theirs for theirs, ours in EXTERNAL_ACTIVATIONS.items() if ours == name)


def check_fixed_keys(config: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """Refuse a configuration that our implementation of the family does not support.

    Raises:
        ValueError: a key does not have its only supported value; the message has both.
    """
    for key, value in fixed.items():
        if config.get(key, value) != value:
            raise ValueError(f"{key} = {config[key]!r} is not supported, only {value!r}")


def require_key(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a required key of their configuration.

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
    """Return mapping functions that distinguish causal networks by the key `is_decoder`."""

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

    Fields that are not in the table are as in `base`.
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
