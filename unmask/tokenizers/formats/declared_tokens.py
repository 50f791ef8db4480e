"""What the small files beside a vocabulary say: roles of special tokens, and tokens added to it.

Which file is believed where several speak is as in transformers 5:

- tokenizer_config.json's `added_tokens_decoder` is the last word on how a token is found in a text
  (`lstrip`, `rstrip`, `normalized`, `single_word`); where it is there, special_tokens_map.json and
  added_tokens.json are not read.
- Otherwise special_tokens_map.json overrides the roles of tokenizer_config.json, added_tokens.json
  adds tokens, which are found as the text is normalized unless they are special, and the
  `added_tokens` of tokenizer.json override both.
- Tokens of roles, and `extra_special_tokens`, that the vocabulary lacks are added after it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from unmask.files import read_json_object

CONFIG_FILE, SPECIAL_TOKENS_FILE, ADDED_TOKENS_FILE = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
ROLE_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""In the order in which transformers adds their tokens."""
MAX_JSON_BYTES = 2**28
"""Of a JSON file. The largest published ones have 40 MB."""
_ADDED_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class DeclaredTokens:
    """The small files beside a vocabulary."""

    folder: Path
    config: Mapping[str, Any]
    """tokenizer_config.json"""
    roles: Mapping[str, str | None]
    """Role ("pad", "bos", ...) -> token, as declared; None: declared that there is none."""
    added_token_of_role: Mapping[str, AddedToken]
    """How tokens of roles are found in a text, where that is said with their role."""
    added_tokens: Mapping[int, AddedToken]
    """Tokens added to the vocabulary file, by id."""
    added_tokens_source: str
    """Which file and key say so."""
    extra_special_tokens: tuple[AddedToken, ...]
    """Other special tokens."""
    model_config: Mapping[str, Any]
    """config.json"""

    @property
    def tokenizer_class(self) -> str:
        """The tokenizer's class in transformers in short ("Bert"), "" for a general one."""
        name = str(self.config.get("tokenizer_class") or "")
        short = name.removesuffix("Fast").removesuffix("Tokenizer")
        return "" if short in ("PreTrained", "TokenizersBackend") else short

    @property
    def model_type(self) -> str:
        """Of config.json."""
        return str(self.model_config.get("model_type"))

    def is_special(self, name: str) -> bool:
        """Return whether a token is declared as special."""
        return name in self.roles.values() or any(
            name == token.content for token in self.extra_special_tokens
        )


def read_declared_tokens(folder: Path) -> DeclaredTokens:
    """Read the small files of a folder.

    Raises:
        ValueError: one is damaged, or says what cannot be; the message names file and key.
    """
    config = read_optional_json(folder / CONFIG_FILE)
    said = dict(config)
    file_of_key = dict.fromkeys(said, CONFIG_FILE)
    if "added_tokens_decoder" in config:
        added, added_by = (
            _read_added_tokens_decoder(folder, config),
            f"{CONFIG_FILE}: added_tokens_decoder",
        )
    else:
        mapped = read_optional_json(folder / SPECIAL_TOKENS_FILE)
        said |= mapped
        file_of_key |= dict.fromkeys(mapped, SPECIAL_TOKENS_FILE)
        added, added_by = {}, ADDED_TOKENS_FILE
    roles: dict[str, str | None] = {}
    found_as: dict[str, AddedToken] = {}
    for role in ROLE_NAMES:
        if (key := f"{role}_token") not in said:
            continue
        token = _parse_token(folder / file_of_key[key], key, said[key])
        roles[role] = None if token is None else token.content
        if token is not None and isinstance(said[key], dict):
            found_as[token.content] = token
    extra = _read_extra_special_tokens(folder, said, file_of_key)
    if "added_tokens_decoder" not in config:
        early = "extra_special_tokens" in said or file_of_key.get(_OLD_EXTRA_KEY) == CONFIG_FILE
        special = {token.content for token in extra if early}  # transformers 5 reads no other first
        added = _read_added_tokens(folder / ADDED_TOKENS_FILE, {*roles.values(), *special})
    model = read_optional_json(folder / "config.json")
    return DeclaredTokens(folder, config, roles, found_as, added, added_by, extra, model)


def add_declared_tokens(
    path: Path,
    backend: Tokenizer,
    declared_tokens: DeclaredTokens,
    *,
    lstrip: Iterable[str | None] = (),
) -> None:
    """Add to a vocabulary what the files beside it add, found in a text as they say.

    Args:
        path: the vocabulary's file, for messages.
        backend: changed.
        declared_tokens: the files beside it.
        lstrip: tokens of roles that take the spaces before them unless configured otherwise.

    Raises:
        ValueError: a token would have another id than is said.
    """
    there = {repr(token) for token in backend.get_added_tokens_decoder().values()}
    for i, token in sorted(declared_tokens.added_tokens.items()):
        if repr(token) in there:
            continue
        token.special = token.special or declared_tokens.is_special(token.content)
        backend.add_tokens([token])
        if (found := backend.token_to_id(token.content)) != i:
            raise ValueError(
                f"{path.parent / declared_tokens.added_tokens_source}: {token.content!r} should "
                f"have the id {i}, but "
                f"would have {found}"
            )
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    named = [
        declared_tokens.roles[role]
        for role in ROLE_NAMES
        if declared_tokens.roles.get(role) is not None
    ]
    wanted = [
        declared_tokens.added_token_of_role.get(
            str(n), AddedToken(str(n), special=True, lstrip=n in lstrip)
        )
        for n in named
    ]
    for token in [*wanted, *declared_tokens.extra_special_tokens]:
        if token.content not in known:
            token.special = True
            backend.add_tokens([token])
            known.add(token.content)


def parse_added_token(location: str, value: Any, **fixed_flags: bool) -> AddedToken:
    """Return a token that is written as a table with its `content`.

    Args:
        location: file and key, for messages.
        value: as read.
        fixed_flags: flags that hold whatever the table says.

    Raises:
        ValueError: it is no such table, or a flag is neither true nor false.
    """
    if not is_added_token(value):
        raise ValueError(f"{location} must be a token, got {value!r}")
    flags = {
        name: value[name] for name in _ADDED_TOKEN_FLAGS if value.get(name) is not None
    } | fixed_flags
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{location}.{name} must be true or false, got {flag!r}")
    return AddedToken(value["content"], **flags)


def is_added_token(token: Any) -> bool:
    """Return whether plain data is a token, with its content."""
    return isinstance(token, dict) and isinstance(token.get("content"), str)


def read_optional_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that need not be there."""
    return read_json_mapping(path) if path.is_file() else {}


def read_json_mapping(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: the file is too large, nested too deeply, or holds none; the message names it.
    """
    if (size := path.stat().st_size) > MAX_JSON_BYTES:
        raise ValueError(
            f"{path}: has {size:,} bytes, of which at most {MAX_JSON_BYTES:,} are read"
        )
    return read_json_object(path)


def read_utf8(path: Path) -> str:
    """Read a file of UTF-8.

    Raises:
        ValueError: it is none; the message names it.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error


def _read_added_tokens_decoder(folder: Path, config: Mapping[str, Any]) -> dict[int, AddedToken]:
    location = f"{folder / CONFIG_FILE}: added_tokens_decoder"
    decoder = config["added_tokens_decoder"] or {}
    if not isinstance(decoder, dict):
        raise ValueError(f"{location} must map ids to tokens")
    added: dict[int, AddedToken] = {}
    for i, token in decoder.items():
        if not (i.isascii() and i.isdecimal() and len(i) < 10 and is_added_token(token)):
            raise ValueError(f"{location} must map ids to tokens, got {i!r}: {token!r}")
        added[int(i)] = parse_added_token(f"{location}.{i}", token)
    return added


def _read_added_tokens(path: Path, special: set[str | None]) -> dict[int, AddedToken]:
    added: dict[int, AddedToken] = {}
    for name, i in read_optional_json(path).items():
        if type(i) is not int or not 0 <= i < 2**31:
            raise ValueError(f"{path} must map tokens to ids, got {name!r}: {i!r}")
        added[i] = AddedToken(name, special=name in special, normalized=name not in special)
    return added


def _parse_token(path: Path, key: str, value: Any) -> AddedToken | None:
    """Return a token that is written as its name, or as a table with its `content`."""
    if value is None:
        return None
    if isinstance(value, str):
        return AddedToken(value, special=True)
    return parse_added_token(f"{path}: {key}", value, special=True)


def _read_extra_special_tokens(
    folder: Path, config: Mapping[str, Any], file_of_key: Mapping[str, str]
) -> tuple[AddedToken, ...]:
    """List the special tokens without a role, by either name of their key."""
    key = "extra_special_tokens" if config.get("extra_special_tokens") else _OLD_EXTRA_KEY
    value = config.get(key) or []
    if isinstance(value, dict):  # of a model's own role -> token
        value = list(value.values())
    if not isinstance(value, list):
        raise ValueError(
            f"{folder / file_of_key[key]}: {key} must be a list of tokens, got {value!r}"
        )
    found = [_parse_token(folder / file_of_key[key], key, token) for token in value]
    return tuple(token for token in found if token is not None)


_OLD_EXTRA_KEY = "additional_special_tokens"
