"""The keys of another library's configuration: the use of each, and its allowed values."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from unmask.model.architecture import MAX_LAYERS, MAX_SIZE

KeyUse = Literal["used", "fixed", "harmless", "alias"]
MAX_LABELS = 100_000
"""Largest `num_labels` without names; more labels must be listed in `id2label`."""
MAX_SIDE = 16_384
"""Largest height or width of a picture, in pixels."""
_MAX_NUMBER = 1e30
"""Limit of numbers: twice their square is within the range of float32. Excludes infinity and
NaN."""


def _is_integer(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and -_MAX_NUMBER < x < _MAX_NUMBER


def _is_words(x: Any) -> bool:
    return isinstance(x, list) and all(isinstance(word, str) for word in cast("list[object]", x))


def _is_integers(x: Any) -> bool:
    return isinstance(x, list) and all(map(_is_integer, cast("list[object]", x)))


def _is_sequences(x: Any) -> bool:
    return isinstance(x, list) and all(map(_is_integers, cast("list[object]", x)))


def _is_within(x: Any, first: int, last: int) -> bool:
    return _is_integer(x) and first <= x <= last


def _is_sides(x: Any) -> bool:
    """Return whether this is the size of a picture."""
    sides = cast("list[object]", x) if isinstance(x, list) and len(x) == 2 else [x]
    return all(_is_within(side, 1, MAX_SIDE) for side in sides)


def _is_id2label(x: Any) -> bool:
    """Return whether this maps numbers to names, as `id2label` does."""
    return isinstance(x, dict) and all(
        str(k).removeprefix("-").isdecimal() and isinstance(name, str | int)
        for k, name in cast("dict[object, object]", x).items()
    )


_VALUE_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "size": (f"an integer from 1 to {MAX_SIZE:,}", lambda x: _is_within(x, 1, MAX_SIZE)),
    "layers": (f"an integer from 1 to {MAX_LAYERS:,}", lambda x: _is_within(x, 1, MAX_LAYERS)),
    "labels": (f"an integer from 1 to {MAX_LABELS:,}", lambda x: _is_within(x, 1, MAX_LABELS)),
    "count": (f"an integer from 0 to {MAX_SIZE:,}", lambda x: _is_within(x, 0, MAX_SIZE)),
    "integer": (f"an integer up to {MAX_SIZE:,}", lambda x: _is_within(x, -MAX_SIZE, MAX_SIZE)),
    "share": ("a number from 0 to below 1", lambda x: _is_number(x) and 0 <= x < 1),
    "positive": ("a number above 0", lambda x: _is_number(x) and x > 0),
    "real": ("a number", lambda x: _is_number(x)),
    "fraction": ("a number from 0 to 1", lambda x: _is_number(x) and 0 <= x <= 1),
    "probability": ("a number above 0, at most 1", lambda x: _is_number(x) and 0 < x <= 1),
    "ids": ("an integer or a list of integers", lambda x: _is_integer(x) or _is_integers(x)),
    "sequences": ("a list of lists of integers", _is_sequences),
    "number": ("a number, at least 0", lambda x: _is_number(x) and x >= 0),
    "sides": ("an integer above 0, or a height and a width", lambda x: _is_sides(x)),
    "flag": ("true or false", lambda x: isinstance(x, bool)),
    "word": ("a word", lambda x: isinstance(x, str)),
    "words": ("a list of words", _is_words),
    "names": ("an object of names by number", _is_id2label),
    "table": ("an object", lambda x: isinstance(x, dict)),
    "anything": ("anything", lambda x: True),
}  # fmt: skip
"""Value types: a description, and a test."""


@dataclass(frozen=True)
class ConfigKey:
    """One line of a table: a key, its use, and its values."""

    name: str
    use: KeyUse
    value_type: str = "anything"
    """A name in `_VALUE_TYPES`, or the allowed words, separated by `|`."""
    optional: bool = False
    """Whether the value may be null."""
    divisor_of: str = ""
    """The key whose value is a multiple of this one's."""
    allowed: tuple[Any, ...] = ()
    """Allowed values of a fixed key; "@key" means the value of another key."""
    default: tuple[Any, ...] = ()
    """Default of the reference library if the key is absent; empty: it stays absent."""
    required: bool = False
    alias_of: str = ""
    """The key that an alias stands for."""

    def check(self, config: Mapping[str, Any]) -> None:
        """Check the key's value in a whole configuration.

        Raises:
            ValueError: it has the wrong type, or is not supported.
        """
        if self.name not in config:
            if self.required:
                raise ValueError(f"lacks {self.name!r}")
            return
        value = config[self.name]
        if self.use == "fixed":
            self._check_fixed(value, config)
        elif not (value is None and self.optional):
            self._check_value_type(value, config)

    def _check_fixed(self, value: Any, config: Mapping[str, Any]) -> None:
        allowed = [
            config.get(value_or_key[1:])
            if isinstance(value_or_key, str) and value_or_key.startswith("@")
            else value_or_key
            for value_or_key in self.allowed
        ]
        if not any(isinstance(value, bool) == isinstance(x, bool) and value == x for x in allowed):
            supported = "only " + " or ".join(map(repr, allowed)) if allowed else "leave it out"
            raise ValueError(f"{self.name} = {_shorten(value)} is not supported, {supported}")

    def _check_value_type(self, value: Any, config: Mapping[str, Any]) -> None:
        words = self.value_type.split("|")
        if len(words) > 1:
            expected, fits = f"one of {words}", value in words
        else:
            expected, test = _VALUE_TYPES[self.value_type]
            fits = test(value)
        if not fits:
            null = " or null" if self.optional else ""
            raise ValueError(f"{self.name} must be {expected}{null}, got {_shorten(value)}")
        multiple = config.get(self.divisor_of)
        if self.divisor_of and _is_integer(multiple) and multiple % value:
            raise ValueError(f"{self.name} = {value} must divide {self.divisor_of} = {multiple}")


class ConfigKeys:
    """A table, one key per line: its use, the type of its values, the default.

    `used` keys are read. `harmless` keys do not change the output of a trained network. A `fixed`
    key must be absent or have one of the given values, separated by `|`, where `@other` is the
    value of another key. An `alias` is another name of the key that follows. Types are those of
    `_VALUE_TYPES`; a type that ends in `?` may be null, and a `size@other` must divide the value of
    another key. The default is that of the reference library for an absent key; `-`: the key stays
    absent; no default: the key is required. Keys in no table are ignored: the reference's classes
    read no undeclared keys except those listed here.
    """

    def __init__(self, table: str, *bases: "ConfigKeys") -> None:
        keys: dict[str, ConfigKey] = {}
        for base in bases:
            keys |= base.table
        for line in table.strip().splitlines():
            key = _parse_key(line.split())
            keys[key.name] = key
        self.table: Mapping[str, ConfigKey] = keys

    def complete(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration with aliases resolved and defaults filled in.

        Raises:
            ValueError: a value is not allowed, or a required key is missing.
        """
        resolved = self._resolve_aliases(config)
        filled = {key.name: key.default[0] for key in self.table.values() if key.default} | resolved
        for key in self.table.values():
            if key.use != "alias":
                key.check(filled)
        return filled

    def _resolve_aliases(self, config: Mapping[str, Any]) -> dict[str, Any]:
        resolved = dict(config)
        for key in self.table.values():
            if key.use != "alias" or key.name not in resolved:
                continue
            value = resolved.pop(key.name)
            if resolved.setdefault(key.alias_of, value) != value:
                raise ValueError(
                    f"{key.name} = {_shorten(value)} and {key.alias_of} = "
                    f"{_shorten(resolved[key.alias_of])} are two names of one number"
                )
        return resolved


def _parse_key(words: list[str]) -> ConfigKey:
    """Parse a line of a table."""
    name, decision, *rest = words
    if decision == "alias":
        return ConfigKey(name, "alias", alias_of=rest[0])
    if decision == "fixed":
        return ConfigKey(
            name,
            "fixed",
            allowed=tuple(map(_parse_value, "|".join(rest).split("|"))) if rest else (),
        )
    kind, _, divides = (rest[0] if rest else "anything").partition("@")
    optional = kind.endswith("?")
    default = rest[1] if len(rest) > 1 else "-" if decision == "harmless" else None
    return ConfigKey(
        name,
        cast(KeyUse, decision),
        value_type=kind.removesuffix("?"),
        optional=optional,
        divisor_of=divides,
        default=() if default in (None, "-") else (_parse_value(default),),
        required=default is None,
    )


def _parse_value(word: str) -> Any:
    """Parse a value: JSON, or a word without quotes."""
    try:
        return json.loads(word)
    except ValueError:
        return word


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


COMMON_KEYS = ConfigKeys(
    """
    model_type                  used      word                  -
    architectures               used      words?                -
    id2label                    used      names?                -
    num_labels                  used      labels?               -
    problem_type                used      regression|single_label_classification|multi_label_classification? -
    label2id                    harmless
    transformers_version        harmless
    name_or_path                harmless
    _name_or_path               harmless
    dtype                       harmless
    torch_dtype                 harmless
    output_hidden_states        harmless
    output_attentions           harmless
    return_dict                 harmless
    chunk_size_feed_forward     harmless  count
    tie_last_hidden_states      harmless
    use_cache                   harmless  flag
    auto_map                    harmless
    attn_implementation         harmless
    _attn_implementation        harmless
    pad_token_id                harmless
    bos_token_id                harmless
    eos_token_id                harmless
    is_encoder_decoder          fixed     false
    is_causal                   fixed     false|null
    quantization_config         fixed     null
    compression_config          fixed     null
    per_layer_config            fixed     null
    pruned_heads                used      table?                -
    text_config                 fixed     null
    text_encoder                fixed     null
    decoder                     fixed     null
    generator                   fixed     null
    """  # noqa: E501 - a line is a key
)
"""The keys that all configurations share; where they differ, those of encoders.

`dtype` is the storage type of a file; our computation is in float32. A file may name kernels
(`attn_implementation`) and its own code (`auto_map`), which are never used here. Settings of
generation are of `unmask.checkpoints.huggingface.generation`."""

CAUSAL_KEYS = ConfigKeys("is_causal fixed true\ntoken_classification_bias fixed true", COMMON_KEYS)
"""The shared keys of decoders."""
SEQ2SEQ_KEYS = ConfigKeys(
    """
    is_encoder_decoder          fixed     true
    is_causal                   fixed
    is_decoder                  fixed     false|null
    decoder_start_token_id      harmless
    forced_bos_token_id         harmless
    forced_eos_token_id         harmless
    """,
    COMMON_KEYS,
)
"""The shared keys of encoder-decoders."""
NO_KEYS = ConfigKeys("")
"""Keys of our own format, each of which is checked when it is read."""
