"""The config files of a vocabulary: roles of special tokens, and added tokens.

Precedence among the files is that of transformers 5:

- `added_tokens_decoder` of tokenizer_config.json decides how a token is matched in a text
  (`lstrip`, `rstrip`, `normalized`, `single_word`); if present, special_tokens_map.json and
  added_tokens.json are not read.
- Otherwise special_tokens_map.json overrides the roles of tokenizer_config.json, added_tokens.json
  adds tokens, matched in normalized text unless they are special, and the `added_tokens` of
  tokenizer.json override both.
- Tokens of roles, and `extra_special_tokens`, that the vocabulary lacks are added after it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from unmask.files import read_bytes, read_json_object

CONFIG_FILE, SPECIAL_TOKENS_FILE, ADDED_TOKENS_FILE = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
ROLE_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""In the order in which transformers adds their tokens."""
MAX_JSON_BYTES = 2**28
"""Maximum size of a JSON file. The largest published ones have 40 MB."""
_ADDED_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class DeclaredTokens:
    """The config files of a vocabulary."""

    folder: Path
    config: Mapping[str, Any]
    """tokenizer_config.json"""
    roles: Mapping[str, str | None]
    """Role ("pad", "bos", ...) -> token, as declared; None: declared that there is none."""
    added_token_of_role: Mapping[str, AddedToken]
    """Matching flags of role tokens, where given with the role."""
    added_tokens: Mapping[int, AddedToken]
    """Tokens added to the vocabulary file, by id."""
    added_tokens_source: str
    """File and key of these."""
    extra_special_tokens: tuple[AddedToken, ...]
    """Other special tokens."""
    model_config: Mapping[str, Any]
    """config.json"""

    @property
    def tokenizer_class(self) -> str:
        """Short name of the tokenizer class in transformers ("Bert"), "" for a generic one."""
        name = str(self.config.get("tokenizer_class") or "")
        short = name.removesuffix("Fast").removesuffix("Tokenizer")
        return "" if short in ("PreTrained", "TokenizersBackend") else short

    @property
    def model_type(self) -> str:
        """`model_type` of config.json."""
        return str(self.model_config.get("model_type"))

    def is_special(self, name: str) -> bool:
        """Return whether a token is declared as special."""
        return name in self.roles.values() or any(
            name == token.content for token in self.extra_special_tokens
        )


def read_declared_tokens(folder: Path) -> DeclaredTokens:
    """Read the config files of a folder.

    Raises:
        ValueError: one is damaged or has an invalid value; the message names file and key.
    """
    config = read_optional_json(folder / CONFIG_FILE)
    declared = dict(config)
    file_of_key = dict.fromkeys(declared, CONFIG_FILE)
    if "added_tokens_decoder" in config:
        added, added_by = (
            _read_added_tokens_decoder(folder, config),
            f"{CONFIG_FILE}: added_tokens_decoder",
        )
    else:
        mapped = read_optional_json(folder / SPECIAL_TOKENS_FILE)
        declared |= mapped
        file_of_key |= dict.fromkeys(mapped, SPECIAL_TOKENS_FILE)
        added, added_by = {}, ADDED_TOKENS_FILE
    roles: dict[str, str | None] = {}
    found_as: dict[str, AddedToken] = {}
    for role in ROLE_NAMES:
        if (key := f"{role}_token") not in declared:
            continue
        token = _parse_token(folder / file_of_key[key], key, declared[key])
        roles[role] = None if token is None else token.content
        if token is not None and isinstance(declared[key], dict):
            found_as[token.content] = token
    extra = _read_extra_special_tokens(folder, declared, file_of_key)
    if "added_tokens_decoder" not in config:
        early = "extra_special_tokens" in declared or file_of_key.get(_OLD_EXTRA_KEY) == CONFIG_FILE
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
    """Add declared tokens to a vocabulary, with their matching flags.

    Args:
        path: the vocabulary's file, for messages.
        backend: the pipeline, modified in place.
        declared_tokens: the declared tokens.
        lstrip: role tokens that absorb the spaces before them unless configured otherwise.

    Raises:
        ValueError: a token would get another id than declared.
    """
    present = {repr(token) for token in backend.get_added_tokens_decoder().values()}
    for i, token in sorted(declared_tokens.added_tokens.items()):
        if repr(token) in present:
            continue
        token.special = token.special or declared_tokens.is_special(token.content)
        backend.add_tokens([token])
        if (actual := backend.token_to_id(token.content)) != i:
            raise ValueError(
                f"{path.parent / declared_tokens.added_tokens_source}: {token.content!r} must "
                f"have the id {i}, but "
                f"would get {actual}"
            )
    known_names = {token.content for token in backend.get_added_tokens_decoder().values()}
    names = [
        declared_tokens.roles[role]
        for role in ROLE_NAMES
        if declared_tokens.roles.get(role) is not None
    ]
    missing = [
        declared_tokens.added_token_of_role.get(
            str(n), AddedToken(str(n), special=True, lstrip=n in lstrip)
        )
        for n in names
    ]
    for token in [*missing, *declared_tokens.extra_special_tokens]:
        if token.content not in known_names:
            token.special = True
            backend.add_tokens([token])
            known_names.add(token.content)


def parse_added_token(location: str, value: Any, **fixed_flags: bool) -> AddedToken:
    """Parse a token given as a table with `content`.

    Args:
        location: file and key, for messages.
        value: the value read.
        fixed_flags: flags that override the table.

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
    """Return whether a value is a token table with `content`."""
    return isinstance(token, dict) and isinstance(token.get("content"), str)


def read_optional_json(path: Path) -> dict[str, Any]:
    """Read a JSON file; {} if missing."""
    return read_json_mapping(path) if path.is_file() else {}


def read_json_mapping(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: the file is too large, nested too deeply, or no object; the message names it.
    """
    if (size := path.stat().st_size) > MAX_JSON_BYTES:
        raise ValueError(f"{path}: must have at most {MAX_JSON_BYTES:,} bytes, got {size:,}")
    return read_json_object(path)


def read_utf8(path: Path) -> str:
    """Read a UTF-8 file.

    Raises:
        ValueError: it is not UTF-8; the message names it.
    """
    try:
        return read_bytes(path).decode("utf-8")
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
    """Parse a token given as a name or as a table with `content`."""
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
    if isinstance(value, dict):  # role -> token
        value = list(value.values())
    if not isinstance(value, list):
        raise ValueError(
            f"{folder / file_of_key[key]}: {key} must be a list of tokens, got {value!r}"
        )
    tokens = [_parse_token(folder / file_of_key[key], key, token) for token in value]
    return tuple(token for token in tokens if token is not None)


_OLD_EXTRA_KEY = "additional_special_tokens"
