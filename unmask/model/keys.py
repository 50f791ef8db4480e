"""Keys: what each key of another library's configuration is to us, and what it may hold."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from unmask.model.architecture import MOST, MOST_LAYERS

Decision = Literal["used", "fixed", "harmless", "alias"]
MOST_LABELS = 100_000
"""More labels have to be listed by name (`id2label`): a number alone may not ask for them."""
_LARGEST = 1e30
"""Numbers below this have a square in float32's range twice over; infinity and NaN are not."""


def _whole(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and -_LARGEST < x < _LARGEST


def _words(x: Any) -> bool:
    return isinstance(x, list) and all(isinstance(word, str) for word in cast("list[object]", x))


def _within(x: Any, first: int, last: int) -> bool:
    return _whole(x) and first <= x <= last


def _names(x: Any) -> bool:
    """Say whether these are names by number, as `id2label` has them."""
    return isinstance(x, dict) and all(
        str(k).removeprefix("-").isdecimal() and isinstance(name, str | int)
        for k, name in cast("dict[object, object]", x).items()
    )


_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "size": (f"an integer from 1 to {MOST:,}", lambda x: _within(x, 1, MOST)),
    "layers": (f"an integer from 1 to {MOST_LAYERS:,}", lambda x: _within(x, 1, MOST_LAYERS)),
    "labels": (f"an integer from 1 to {MOST_LABELS:,}", lambda x: _within(x, 1, MOST_LABELS)),
    "count": (f"an integer from 0 to {MOST:,}", lambda x: _within(x, 0, MOST)),
    "integer": (f"an integer up to {MOST:,}", lambda x: _within(x, -MOST, MOST)),
    "share": ("a number from 0 to below 1", lambda x: _number(x) and 0 <= x < 1),
    "positive": ("a number above 0", lambda x: _number(x) and x > 0),
    "number": ("a number, at least 0", lambda x: _number(x) and x >= 0),
    "flag": ("true or false", lambda x: isinstance(x, bool)),
    "word": ("a word", lambda x: isinstance(x, str)),
    "words": ("a list of words", _words),
    "names": ("an object of names by number", _names),
    "table": ("an object", lambda x: isinstance(x, dict)),
    "anything": ("anything", lambda x: True),
}  # fmt: skip
"""What values may be: in words, and as a test."""


@dataclass(frozen=True)
class Key:
    """One line of a table: a key, what is decided of it, and its values."""

    name: str
    decision: Decision
    kind: str = "anything"
    """One of `_KINDS`; several words with `|` between: one of them."""
    optional: bool = False
    """It may be null."""
    divides: str = ""
    """The key whose value is a multiple of this one's."""
    allowed: tuple[Any, ...] = ()
    """Of a fixed key; "@key" stands for the value of another."""
    default: tuple[Any, ...] = ()
    """What the reference takes where the key is absent; nothing: it stays absent."""
    required: bool = False
    target: str = ""
    """Of an alias: the key that it is another name of."""

    def check(self, given: Mapping[str, Any]) -> None:
        """Check the key's value in a whole configuration.

        Raises:
            ValueError: it is of another kind, or another than the only one known.
        """
        if self.name not in given:
            if self.required:
                raise ValueError(f"lacks {self.name!r}")
            return
        value = given[self.name]
        if self.decision == "fixed":
            self._check_fixed(value, given)
        elif not (value is None and self.optional):
            self._check_kind(value, given)

    def _check_fixed(self, value: Any, given: Mapping[str, Any]) -> None:
        allowed = [
            given.get(one[1:]) if isinstance(one, str) and one.startswith("@") else one
            for one in self.allowed
        ]
        if not any(isinstance(value, bool) == isinstance(x, bool) and value == x for x in allowed):
            known = "only " + " or ".join(map(repr, allowed)) if allowed else "leave it out"
            raise ValueError(f"{self.name} = {_short(value)} is not supported, {known}")

    def _check_kind(self, value: Any, given: Mapping[str, Any]) -> None:
        words = self.kind.split("|")
        if len(words) > 1:
            said, fits = f"one of {words}", value in words
        else:
            said, test = _KINDS[self.kind]
            fits = test(value)
        if not fits:
            null = " or null" if self.optional else ""
            raise ValueError(f"{self.name} must be {said}{null}, got {_short(value)}")
        whole = given.get(self.divides)
        if self.divides and _whole(whole) and whole % value:
            raise ValueError(
                f"{self.name} = {value} must divide {self.divides} = {whole} without a rest"
            )


class Keys:
    """A table, one key a line: what is decided of it, the kind of its values, the default.

    `used` keys are read, and `harmless` ones change no number that a trained network gives;
    `fixed` ones are refused unless they are absent or hold one of the values named, with `|`
    between, where `@other` is the value of another key; an `alias` is another name of the key that
    follows.
    Kinds are those of `_KINDS`; one that ends in `?` may be null, and `size@other` divides the
    value of another key. Where a used key is absent the reference takes the default; `-`: none, and
    the key stays absent; no default: it has to be there. Keys of no table are left as they are: the
    reference's classes do not read what they do not declare, but for those that stand here.
    """

    def __init__(self, table: str, *bases: "Keys") -> None:
        found: dict[str, Key] = {}
        for base in bases:
            found |= base.table
        for line in table.strip().splitlines():
            key = _key(line.split())
            found[key.name] = key
        self.table: Mapping[str, Key] = found

    def complete(self, theirs: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration with one name a key, and defaults for what it leaves out.

        Raises:
            ValueError: a key holds what it may not hold, or one that is needed is not there.
        """
        given = self._renamed(theirs)
        filled = {key.name: key.default[0] for key in self.table.values() if key.default} | given
        for key in self.table.values():
            if key.decision != "alias":
                key.check(filled)
        return filled

    def _renamed(self, theirs: Mapping[str, Any]) -> dict[str, Any]:
        given = dict(theirs)
        for key in self.table.values():
            if key.decision != "alias" or key.name not in given:
                continue
            value = given.pop(key.name)
            if given.setdefault(key.target, value) != value:
                raise ValueError(
                    f"{key.name} = {_short(value)} and {key.target} = "
                    f"{_short(given[key.target])} are two names of one number"
                )
        return given


def _key(words: list[str]) -> Key:
    """Read a line of a table."""
    name, decision, *rest = words
    if decision == "alias":
        return Key(name, "alias", target=rest[0])
    if decision == "fixed":
        return Key(
            name, "fixed", allowed=tuple(map(_value, "|".join(rest).split("|"))) if rest else ()
        )
    kind, _, divides = (rest[0] if rest else "anything").partition("@")
    optional = kind.endswith("?")
    said = rest[1] if len(rest) > 1 else "-" if decision == "harmless" else None
    return Key(
        name,
        cast(Decision, decision),
        kind=kind.removesuffix("?"),
        optional=optional,
        divides=divides,
        default=() if said in (None, "-") else (_value(said),),
        required=said is None,
    )


def _value(word: str) -> Any:
    """Read a value: JSON, or a word without its quotes."""
    try:
        return json.loads(word)
    except ValueError:
        return word


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 80 else f"{said[:77]}..."


COMMON = Keys(
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
    pruned_heads                fixed     {}|null
    text_config                 fixed     null
    text_encoder                fixed     null
    decoder                     fixed     null
    generator                   fixed     null
    """  # noqa: E501 - a line is a key
)
"""What all their configurations have in common, those of encoders where they differ.

`dtype` says how the numbers of a file are kept: ours are computed in float32. Kernels
(`attn_implementation`) and code of its own (`auto_map`) are named by a file and never asked for
here. Generation's settings are not read from a configuration, there or here."""

CAUSAL = Keys("is_causal fixed true\ntoken_classification_bias fixed true", COMMON)
"""The same of decoders."""
SEQ2SEQ = Keys(
    """
    is_encoder_decoder          fixed     true
    is_causal                   fixed
    is_decoder                  fixed     false|null
    decoder_start_token_id      harmless
    forced_bos_token_id         harmless
    forced_eos_token_id         harmless
    """,
    COMMON,
)
"""The same of encoder-decoders."""
NO_KEYS = Keys("")
"""Of a format of ours, whose every key is checked as it is read."""
