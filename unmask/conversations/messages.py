r"""Conversations and their parts, read from rows of the usual formats.

A row is one of these, the first that it has:

- `messages`: a list of {"role", "content"} (OpenAI, transformers);
- `conversations`: a list of {"from", "value"} (ShareGPT);
- `instruction`, optionally `input` or `context`, and `output` or `response` (Alpaca, Dolly);
- `prompt` and `completion` or `response`, each text or a list of messages (TRL);
- a text with turns after "\n\nHuman:" and "\n\nAssistant:" (HH-RLHF), for `chosen` and `rejected`.

Beside them a row may have `system`, the turn of the system, and a message `weight`, `train` or
`loss`: 0 or false of a response that is read and not learned. Keys that would change what is read
(tools, images, thoughts) are refused; of other keys of messages a warning says that they are not
read.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, cast, get_args

from unmask.text.formats.records import describe_value, format_names

_log = logging.getLogger(__name__)
EncodedT = TypeVar("EncodedT")

Role = Literal["system", "user", "assistant"]
ROLES: tuple[Role, ...] = get_args(Role)
_ROLE_OF_NAME: Mapping[str, Role] = {
    "system": "system", "user": "user", "human": "user", "assistant": "assistant",
    "gpt": "assistant", "chatgpt": "assistant", "model": "assistant", "bing": "assistant",
}  # fmt: skip
"""Names of roles in data; `model` is Gemma's."""
_TURN = re.compile(r"\n\n(Human|Assistant):")
_SYSTEM_KEYS = ("system", "system_prompt")
_WEIGHTS = ("weight", "loss_weight", "train", "training", "loss")
"""Keys of messages: OpenAI and ShareGPT; LLaMA-Factory; axolotl; ms-swift."""
_ROW_KEYS = ("tools", "functions", "history", "images", "videos", "audios")
_MESSAGE_KEYS = (
    "name", "tool_calls", "tool_call_id", "function_call", "thinking", "reasoning",
    "reasoning_content", "refusal", "audio", "images", "train_detail", "loss_scale",
)  # fmt: skip
"""Keys of messages that change what a template writes or what is learned."""
_NOTHING: tuple[Any, ...] = (None, "", [], {}, "[]", "{}", "null")
_INPUT_KEYS, _OUTPUT_KEYS = ("input", "context"), ("output", "response", "completion")


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str
    is_learned: bool = True
    """Of a response: whether it has a loss."""

    def to_dict(self) -> dict[str, str]:
        """Return it as templates read it."""
        return {"role": self.role, "content": self.content}


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Turns, in their order."""

    messages: tuple[Message, ...]
    location: str = ""
    """File and line, for messages."""

    def __post_init__(self) -> None:
        if not self.messages:
            raise ValueError(f"{self.location}: a conversation has no turn".lstrip(": "))

    @property
    def prompt(self) -> "tuple[Message, ...]":
        """What is before the last turn."""
        return self.messages[:-1]

    @property
    def has_response(self) -> bool:
        """Whether a turn of the assistant has text, and is learned."""
        turns = (m for m in self.messages if m.role == "assistant" and m.is_learned)
        return any(m.content.strip() for m in turns)


def read_conversation(row: Mapping[str, Any], location: str) -> Conversation:
    """Read a conversation of a row, whose last turn is the response.

    Raises:
        ValueError: the row is of no known format, or a value is invalid; names location and key.
    """
    format_of_row = _format_of(row, location)
    if format_of_row in ("messages", "conversations"):
        messages = _read_list(row[format_of_row], location, format_of_row)
    else:
        key, response = _response_of(row, location)
        messages = (*read_prompt(row, location), *_as_messages(response, location, key))
    messages = _with_system(row, messages, location)
    return Conversation(messages=_check_order(messages, location), location=location)


def read_prompt(row: Mapping[str, Any], location: str) -> tuple[Message, ...]:
    """Read what is before the response of a row with a prompt or an instruction.

    Raises:
        ValueError: there is neither, or a value is invalid.
    """
    if row.get("prompt") is not None:
        prompt = row["prompt"]
        if isinstance(prompt, str):
            turns = (Message("user", _text(prompt, location, "prompt")),)
        else:
            turns = _read_list(prompt, location, "prompt")
        return _with_system(row, turns, location)
    if row.get("instruction") is None:
        raise ValueError(
            f"{location}: no messages, conversations, instruction or prompt, only "
            f"{format_names(map(str, row))}"
        )
    instruction = _text(row["instruction"], location, "instruction")
    parts = [_text(row[key], location, key) for key in _INPUT_KEYS if row.get(key) is not None]
    content = "\n\n".join(part for part in (instruction, *parts) if part.strip())
    return _with_system(row, (Message("user", content),), location)


def read_responses(
    row: Mapping[str, Any], keys: Sequence[str], location: str
) -> tuple[Conversation, ...]:
    """Read the conversations of a row that differ in their responses: chosen and rejected.

    Args:
        row: its prompt stands in `prompt`, `instruction`, or in each of the responses.
        keys: columns of the responses.
        location: file and line, for messages.

    Raises:
        ValueError: a column is missing, or the prompts of the responses differ.
    """
    found: list[tuple[Message, ...]] = []
    for key in keys:
        if key not in row:
            raise ValueError(f"{location}: no {key!r}, only {format_names(map(str, row))}")
        if row[key] is None:
            raise ValueError(f"{location}: {key!r} is empty")
        found.append(_as_messages(row[key], location, key))
    has_prompt = row.get("prompt") is not None or row.get("instruction") is not None
    whole = [len(turns) > 1 and turns[0].role != "assistant" for turns in found]
    if has_prompt and not any(whole):
        found = [(*read_prompt(row, location), *turns) for turns in found]
    elif not all(whole):
        raise ValueError(f"{location}: no prompt before {keys[whole.index(False)]!r}")
    for key, turns in zip(keys, found, strict=True):
        if turns[:-1] != found[0][:-1]:
            raise ValueError(f"{location}: {keys[0]!r} and {key!r} differ before their last turn")
        if turns[-1].role != "assistant":
            raise ValueError(f"{location}: {key!r} does not end with a response")
        check_learned(turns[-1], location, key)
    found = [_check_order(_with_system(row, turns, location), location) for turns in found]
    return tuple(Conversation(messages=turns, location=location) for turns in found)


def check_learned(response: Message, location: str, key: str) -> None:
    """Check that a response has no weight of 0: preferences are learned, or left out.

    Raises:
        ValueError: it has.
    """
    if not response.is_learned:
        raise ValueError(
            f"{location}: the response in {key!r} has a weight of 0; leave the row out"
        )


def _with_system(
    row: Mapping[str, Any], turns: tuple[Message, ...], location: str
) -> tuple[Message, ...]:
    """Return turns after that of the system, where it has a column; refuse keys with more."""
    for key in _ROW_KEYS:
        if row.get(key) not in _NOTHING:
            raise ValueError(f"{location}: {key!r} is not read; write it into the turns as text")
    for key in _SYSTEM_KEYS:
        if row.get(key) in _NOTHING:
            continue
        system = Message("system", _text(row[key], location, key))
        if turns[0].role == "system" and turns[0] != system:
            raise ValueError(f"{location}: {key!r} and the first turn are both of the system")
        turns = turns if turns[0] == system else (system, *turns)
    return turns


def _format_of(row: Mapping[str, Any], location: str) -> str:
    given = [key for key in ("messages", "conversations") if row.get(key) is not None]
    if len(given) > 1:
        raise ValueError(f"{location}: has both messages and conversations; leave one out")
    return given[0] if given else "prompt"


def _response_of(row: Mapping[str, Any], location: str) -> tuple[str, Any]:
    given = [key for key in _OUTPUT_KEYS if row.get(key) is not None]
    if len(given) != 1:
        found = " and ".join(given) if given else format_names(map(str, row))
        raise ValueError(
            f"{location}: the response must be in one of {', '.join(_OUTPUT_KEYS)}, got {found}"
        )
    return given[0], row[given[0]]


def _as_messages(value: Any, location: str, key: str) -> tuple[Message, ...]:
    """Read a response: a text, a text with marked turns, or a list of messages."""
    if not isinstance(value, str):
        return _read_list(value, location, key)
    value = _text(value, location, key)
    if _TURN.match(value):
        return parse_marked_turns(value)
    return (Message("assistant", value),)


def parse_marked_turns(text: str) -> tuple[Message, ...]:
    r"""Split a text at "\n\nHuman:" and "\n\nAssistant:", as HH-RLHF has turns.

    Bai et al. 2022, arXiv:2204.05862. Turns of one speaker in a row are one.
    """
    parts = _TURN.split(text)[1:]
    turns: list[Message] = []
    for name, content in zip(parts[::2], parts[1::2], strict=True):
        role, said = "user" if name == "Human" else "assistant", content.strip()
        if turns and turns[-1].role == role:
            said = "\n\n".join(part for part in (turns.pop().content, said) if part)
        turns.append(Message(role, said))
    return tuple(turns)


def _read_list(value: Any, location: str, key: str) -> tuple[Message, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(
            f"{location}: {key!r} must be a list of messages, got {describe_value(value)}"
        )
    return tuple(
        _read_message(one, location, f"{key}[{i}]")
        for i, one in enumerate(cast("Sequence[Any]", value))
    )


def _read_message(value: Any, location: str, key: str) -> Message:
    if not isinstance(value, Mapping):
        raise ValueError(f"{location}: {key} must be a message, got {describe_value(value)}")
    given = cast("Mapping[str, Any]", value)
    names = ("role", "content") if "role" in given else ("from", "value")
    for name in names:
        if name not in given:
            raise ValueError(
                f"{location}: {key} must have role and content, or from and value, got "
                f"{format_names(map(str, given))}"
            )
    role = _ROLE_OF_NAME.get(str(given[names[0]]).lower())
    if role is None:
        raise ValueError(
            f"{location}: {key}.{names[0]} must be one of {', '.join(_ROLE_OF_NAME)}, got "
            f"{describe_value(given[names[0]])}"
        )
    content = _text(given[names[1]], location, f"{key}.{names[1]}")
    is_learned = _is_learned(given, role, location, key)
    for name, entry in given.items():
        if name in (*names, *_WEIGHTS) or entry in _NOTHING:
            continue
        if name in _MESSAGE_KEYS:
            raise ValueError(
                f"{location}: {key}.{name} is not read; write it into {key}.{names[1]}, or leave "
                "it out"
            )
        _warn_unread(location.rpartition(":")[0] or location, str(name))
    return Message(role, content, is_learned)


def _is_learned(given: Mapping[str, Any], role: Role, location: str, key: str) -> bool:
    """Read the weight of a message: 0 or 1, which only responses have."""
    weights = {name: given[name] for name in _WEIGHTS if given.get(name) is not None}
    for name, weight in weights.items():
        if weight not in (0, 1):
            raise ValueError(
                f"{location}: {key}.{name} must be 0 or 1, false or true, got "
                f"{describe_value(weight)}"
            )
        if weight and role != "assistant":
            raise ValueError(
                f"{location}: {key}.{name} is {weight} of a turn of the {role}; responses alone "
                "are learned"
            )
    return role != "assistant" or all(weights.values())


@lru_cache(maxsize=1000)
def _warn_unread(path: str, name: str) -> None:
    """Warn once a file."""
    _log.warning("%s: %r of messages is not read", path, name)


def _text(value: Any, location: str, key: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{location}: {key} must be text, got {describe_value(value)}")
    return value


def _check_order(messages: tuple[Message, ...], location: str) -> tuple[Message, ...]:
    """Check that a system turn is the first one, and that no turn is followed by its own kind."""
    for i, message in enumerate(messages):
        if message.role == "system" and i:
            raise ValueError(f"{location}: turn {i + 1} is of the system, which speaks first only")
        if i and message.role == messages[i - 1].role:
            raise ValueError(f"{location}: turns {i} and {i + 1} are both of the {message.role}")
    return messages


def without_first_exchange(turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """Leave out the first turn of the user and its response; none is left of a single exchange."""
    system = turns[:1] if turns[0].role == "system" else ()
    rest = turns[len(system) :]
    later = next((i for i, m in enumerate(rest) if i and m.role == "user"), None)
    return () if later is None else (*system, *rest[later:])


def fit_turns(
    turns: tuple[Message, ...],
    encode: Callable[[tuple[Message, ...]], EncodedT],
    fits: Callable[[EncodedT], bool],
) -> tuple[EncodedT, int] | None:
    """Encode turns without their earliest exchanges, as many as have to be left out.

    Returns what was encoded and the number of exchanges left out; None: the last one does not fit.
    """
    n_left_out = 0
    while turns:
        encoded = encode(turns)
        if fits(encoded):
            return encoded, n_left_out
        turns, n_left_out = without_first_exchange(turns), n_left_out + 1
    return None
