"""Conversations as tokens, with the responses marked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from unmask.conversations.messages import Conversation, Message
from unmask.conversations.template import PLAIN, ChatTemplate
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.formats.transformers_config import role_tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedConversation:
    """The tokens of a conversation."""

    ids: Int[np.ndarray, "t"]
    is_response: Bool[np.ndarray, "t"]
    """Which tokens are of responses, each with the token that ends it."""


def plain_template(tokenizer: Tokenizer) -> ChatTemplate:
    """Return the template of a tokenizer that has none of its own.

    Raises:
        ValueError: the tokenizer has no token that ends a text.
    """
    end = tokenizer.special_tokens.end
    if end is None:
        raise ValueError(
            "a conversation needs a token that ends a response, and this tokenizer has none"
        )
    return ChatTemplate(PLAIN, {"eos_token": end})


def template_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the special tokens that a template may name, as a saved folder declares them.

    The token that ends a text is always the end of a response, also where that folder calls it a
    separator, as BERT's does.
    """
    special = tokenizer.special_tokens
    ends = {} if special.end is None else {"eos_token": special.end}
    return ends | role_tokens(special)


def encode_conversation(
    tokenizer: Tokenizer, template: ChatTemplate, conversation: Conversation
) -> EncodedConversation:
    """Encode a conversation as transformers does: its text as a whole, special tokens as such.

    A token is of a response if its text begins in it. So a token that joins the end of the prompt
    with the beginning of the response has no loss: it is not what is written after the prompt.

    Raises:
        ValueError: the template does not fit the conversation, or a turn has a special token.
    """
    check_no_special_tokens(tokenizer, conversation.messages, conversation.location)
    text, spans = template.response_spans(conversation)
    (ids,) = tokenizer.encode_ids_batch([text], allow_special=True)
    starts = tokenizer.offset_array(text, allow_special=True)[:, 0]
    is_response = np.zeros(len(ids), bool)
    for begin, end in spans:
        is_response |= (starts >= begin) & (starts < end)
    return EncodedConversation(ids=ids, is_response=is_response)


def encode_prompt(
    tokenizer: Tokenizer, template: ChatTemplate, messages: Sequence[Message], location: str = ""
) -> Int[np.ndarray, "t"]:
    """Encode what a model reads before it writes the next response.

    Raises:
        ValueError: as `encode_conversation`.
    """
    check_no_special_tokens(tokenizer, messages, location)
    text = template.render(messages, add_generation_prompt=True)
    return tokenizer.encode_ids_batch([text], allow_special=True)[0]


_RESPONSE = "response"


def end_of_response(tokenizer: Tokenizer, template: ChatTemplate) -> int | None:
    """Return the first special token that a template writes after a response.

    Of a template that writes none it is the token that ends texts; None: there is neither.

    Raises:
        ValueError: the template fails.
    """
    turns = (Message("user", "a"), Message("assistant", _RESPONSE))
    text = template.render(turns)
    (ids,) = tokenizer.encode_ids_batch([text], allow_special=True)
    starts = tokenizer.offset_array(text, allow_special=True)[:, 0]
    after = ids[starts >= text.rfind(_RESPONSE) + len(_RESPONSE)].tolist()
    special = tokenizer.special_ids
    # The unknown token stands for a space that has no piece, and is not written.
    written = (i for i in after if i in special.all_ids and tokenizer.pieces([i])[0] in text)
    return next(written, special.end)


def check_no_special_tokens(
    tokenizer: Tokenizer, messages: Sequence[Message], location: str
) -> None:
    """Check that no turn holds a special token, by which it could pose as another turn.

    Raises:
        ValueError: one does.
    """
    special = tokenizer.special_ids.all_ids
    contents = [message.content for message in messages]
    for i, ids in enumerate(tokenizer.encode_ids_batch(contents, allow_special=True), 1):
        names = tokenizer.pieces(sorted(special.intersection(ids.tolist())))
        # The unknown token stands for a character that has no piece, and is no text of the turn.
        if typed := [name for name in names if name in contents[i - 1]]:
            where = f"{location}: " if location else ""
            raise ValueError(f"{where}turn {i} has {typed[0]!r}, a special token of this model")
