"""What the small files beside a vocabulary say: roles of special tokens, and tokens added to it.

Which file is believed where several speak is as in transformers 5:

- tokenizer_config.json's `added_tokens_decoder` is the last word on how a token is found in a text
  (`lstrip`, `rstrip`, `normalized`, `single_word`); where it is there, special_tokens_map.json and
  added_tokens.json are not read.
- Otherwise special_tokens_map.json overrides the roles of tokenizer_config.json, added_tokens.json
  adds tokens, which are found as the text is normalized unless they are special, and the
  `added_tokens` of tokenizer.json override both.
- Tokens of roles, and `extra_special_tokens`, that the vocabulary lacks are added behind it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from unmask.files import read_object

CONFIG, ROLES, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
ROLE_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""In the order in which transformers adds their tokens."""
MOST_BYTES = 2**28
"""Of a JSON file. The largest published ones have 40 MB."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class Declared:
    """The small files beside a vocabulary."""

    path: Path
    config: Mapping[str, Any]
    """tokenizer_config.json"""
    roles: Mapping[str, str | None]
    """Role ("pad", "bos", ...) -> token, as declared; None: declared that there is none."""
    found_as: Mapping[str, AddedToken]
    """How tokens of roles are found in a text, where that is said with their role."""
    added: Mapping[int, AddedToken]
    """Tokens added to the vocabulary file, by id."""
    added_by: str
    """Which file and key say so."""
    extra: tuple[AddedToken, ...]
    """Other special tokens."""
    model: Mapping[str, Any]
    """config.json"""

    @property
    def kind(self) -> str:
        """The tokenizer's class in transformers in short ("Bert"), "" for a general one."""
        name = str(self.config.get("tokenizer_class") or "")
        short = name.removesuffix("Fast").removesuffix("Tokenizer")
        return "" if short in ("PreTrained", "TokenizersBackend") else short

    @property
    def model_type(self) -> str:
        """Of config.json."""
        return str(self.model.get("model_type"))

    def special(self, name: str) -> bool:
        """Say whether a token is declared as special."""
        return name in self.roles.values() or any(name == token.content for token in self.extra)


def declared(folder: Path) -> Declared:
    """Read the small files of a folder.

    Raises:
        ValueError: one is damaged, or says what cannot be; the message names file and key.
    """
    config = optional(folder / CONFIG)
    said = dict(config)
    where = dict.fromkeys(said, CONFIG)
    if "added_tokens_decoder" in config:
        added, added_by = _decoder(folder, config), f"{CONFIG}: added_tokens_decoder"
    else:
        mapped = optional(folder / ROLES)
        said |= mapped
        where |= dict.fromkeys(mapped, ROLES)
        added, added_by = {}, ADDED
    roles: dict[str, str | None] = {}
    found_as: dict[str, AddedToken] = {}
    for role in ROLE_NAMES:
        if (key := f"{role}_token") not in said:
            continue
        token = _named(folder / where[key], key, said[key])
        roles[role] = None if token is None else token.content
        if token is not None and isinstance(said[key], dict):
            found_as[token.content] = token
    extra = _extra(folder, said, where)
    if "added_tokens_decoder" not in config:
        early = "extra_special_tokens" in said or where.get(_OLD_EXTRA) == CONFIG
        special = {token.content for token in extra if early}  # transformers 5 reads no other first
        added = _added(folder / ADDED, {*roles.values(), *special})
    model = optional(folder / "config.json")
    return Declared(folder, config, roles, found_as, added, added_by, extra, model)


def add(
    path: Path, backend: Tokenizer, beside: Declared, *, lstrip: Iterable[str | None] = ()
) -> None:
    """Add to a vocabulary what the files beside it add, found in a text as they say.

    Args:
        path: the vocabulary's file, for messages.
        backend: changed.
        beside: the files beside it.
        lstrip: tokens of roles that take the spaces before them where nothing else is said.

    Raises:
        ValueError: a token would have another id than is said.
    """
    there = {repr(token) for token in backend.get_added_tokens_decoder().values()}
    for i, token in sorted(beside.added.items()):
        if repr(token) in there:
            continue
        token.special = token.special or beside.special(token.content)
        backend.add_tokens([token])
        if (found := backend.token_to_id(token.content)) != i:
            raise ValueError(
                f"{path.parent / beside.added_by}: {token.content!r} should have the id {i}, but "
                f"would have {found}"
            )
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    named = [beside.roles[role] for role in ROLE_NAMES if beside.roles.get(role) is not None]
    wanted = [
        beside.found_as.get(str(n), AddedToken(str(n), special=True, lstrip=n in lstrip))
        for n in named
    ]
    for token in [*wanted, *beside.extra]:
        if token.content not in known:
            token.special = True
            backend.add_tokens([token])
            known.add(token.content)


def token_of(where: str, value: Any, **other: bool) -> AddedToken:
    """Return a token that is written as a table with its `content`.

    Args:
        where: file and key, for messages.
        value: as read.
        other: flags that hold whatever the table says.

    Raises:
        ValueError: it is no such table, or a flag is neither true nor false.
    """
    if not is_token(value):
        raise ValueError(f"{where} must be a token, got {value!r}")
    flags = {name: value[name] for name in _FLAGS if value.get(name) is not None} | other
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{where}.{name} must be true or false, got {flag!r}")
    return AddedToken(value["content"], **flags)


def is_token(token: Any) -> bool:
    """Say whether plain data is a token, with its content."""
    return isinstance(token, dict) and isinstance(token.get("content"), str)


def optional(path: Path) -> dict[str, Any]:
    """Read a JSON file that need not be there."""
    return read_json(path) if path.is_file() else {}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: the file is too large, nested too deeply, or holds none; the message names it.
    """
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path}: has {size:,} bytes, of which at most {MOST_BYTES:,} are read")
    return read_object(path)


def read_text(path: Path) -> str:
    """Read a file of UTF-8.

    Raises:
        ValueError: it is none; the message names it.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error


def _decoder(folder: Path, config: Mapping[str, Any]) -> dict[int, AddedToken]:
    where = f"{folder / CONFIG}: added_tokens_decoder"
    decoder = config["added_tokens_decoder"] or {}
    if not isinstance(decoder, dict):
        raise ValueError(f"{where} must map ids to tokens")
    added: dict[int, AddedToken] = {}
    for i, token in decoder.items():
        if not (i.isascii() and i.isdecimal() and len(i) < 10 and is_token(token)):
            raise ValueError(f"{where} must map ids to tokens, got {i!r}: {token!r}")
        added[int(i)] = token_of(f"{where}.{i}", token)
    return added


def _added(path: Path, special: set[str | None]) -> dict[int, AddedToken]:
    added: dict[int, AddedToken] = {}
    for name, i in optional(path).items():
        if type(i) is not int or not 0 <= i < 2**31:
            raise ValueError(f"{path} must map tokens to ids, got {name!r}: {i!r}")
        added[i] = AddedToken(name, special=name in special, normalized=name not in special)
    return added


def _named(path: Path, key: str, value: Any) -> AddedToken | None:
    """Return a token that is written as its name, or as a table with its `content`."""
    if value is None:
        return None
    if isinstance(value, str):
        return AddedToken(value, special=True)
    return token_of(f"{path}: {key}", value, special=True)


def _extra(
    folder: Path, said: Mapping[str, Any], where: Mapping[str, str]
) -> tuple[AddedToken, ...]:
    """List the special tokens without a role, by either name of their key."""
    key = "extra_special_tokens" if said.get("extra_special_tokens") else _OLD_EXTRA
    value = said.get(key) or []
    if isinstance(value, dict):  # of a model's own role -> token
        value = list(value.values())
    if not isinstance(value, list):
        raise ValueError(f"{folder / where[key]}: {key} must be a list of tokens, got {value!r}")
    found = [_named(folder / where[key], key, token) for token in value]
    return tuple(token for token in found if token is not None)


_OLD_EXTRA = "additional_special_tokens"
