"""Chat: what a model reads of the turns so far, and what it writes next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from unmask.conversations.encode import encode_prompt
from unmask.conversations.messages import Message, fit_turns, read_conversation
from unmask.conversations.template import ChatTemplate
from unmask.tokenizers.encode import Tokenizer

MIN_FREE_SHARE = 4
"""Of a decoder's positions a fourth is left to the response, if it may have so many tokens."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ChatPrompt:
    """What a model reads before it writes the next response."""

    ids: Int[np.ndarray, "t"]
    turns: tuple[Message, ...]
    """Those that are read: without the earliest exchanges, where these do not fit."""


def read_chat(messages: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Read messages, {"role", "content"}, of which the last is of the user.

    Raises:
        ValueError: they are no messages, in no order of a conversation, or end with a response.
    """
    turns = read_conversation({"messages": list(messages)}, "chat").messages
    if turns[-1].role != "user":
        raise ValueError(f"chat: the last turn must be of the user, got the {turns[-1].role}'s")
    return turns


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    turns: tuple[Message, ...],
    *,
    max_tokens: int | None,
    max_new_tokens: int,
) -> ChatPrompt:
    """Encode turns by a template; those that leave no room lose their earliest exchanges.

    The system's turn is kept. The last exchange alone may take all of the room.

    Args:
        tokenizer: of what the model reads.
        template: the model's.
        turns: the last one is of the user.
        max_tokens: that the model reads. None: any number.
        max_new_tokens: of the response, that are read beside the turns; 0: none.

    Raises:
        ValueError: the last turn does not fit, a turn has a special token, or the template fails.
    """

    def encode(some: tuple[Message, ...]) -> ChatPrompt:
        return ChatPrompt(ids=encode_prompt(tokenizer, template, some), turns=some)

    if max_tokens is None:
        return encode(turns)
    room = max_tokens - min(max_new_tokens, max_tokens // MIN_FREE_SHARE)
    found = fit_turns(turns, encode, lambda prompt: len(prompt.ids) <= room)
    if found is not None:
        return found[0]
    system = turns[:1] if turns[0].role == "system" else ()
    prompt = encode((*system, turns[-1]))
    if len(prompt.ids) > max_tokens:
        raise ValueError(
            f"chat: the last turn has {len(prompt.ids)} tokens in the chat template, but the model "
            f"only {max_tokens} positions for it"
        )
    return prompt
