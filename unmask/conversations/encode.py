"""Conversations as tokens, with the responses marked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX
from unmask.conversations.messages import Conversation, Message
from unmask.conversations.template import PLAIN, ChatTemplate
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.formats.transformers_config import role_tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedConversation:
    """The tokens of a conversation."""

    ids: Int[np.ndarray, "t"]
    targets: Int[np.ndarray, "t"]
    """What is learned after each token: those of responses, each with the token that ends it."""


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
    tokenizer: Tokenizer,
    template: ChatTemplate,
    conversation: Conversation,
    end_id: int | None = None,
) -> EncodedConversation:
    """Encode a conversation as transformers does: its text as a whole, special tokens as such.

    A token is of a response if its text begins in it. So a token that joins the end of the prompt
    with the beginning of the response has no loss: it is not what is written after the prompt.

    Args:
        tokenizer: of the model.
        template: the model's.
        conversation: its turns.
        end_id: `end_of_response`, the last target of each response, also where the template writes
            it no sooner than with the next turn, or never; what is read is what it writes.

    Raises:
        ValueError: the template does not fit the conversation, or a turn has a special token.
    """
    check_no_special_tokens(tokenizer, conversation.messages, conversation.location)
    text, spans = template.response_spans(conversation)
    (ids,) = tokenizer.encode_ids_batch([text], allow_special=True)
    starts = tokenizer.offset_array(text, allow_special=True)[:, 0]
    targets = np.full(len(ids), IGNORE_INDEX)
    for begin, end in spans:
        learned = np.flatnonzero((starts >= begin) & (starts < end))
        if not len(learned):
            continue
        ends = np.flatnonzero(ids[learned] == end_id)[:1]
        learned = learned[: ends[0] + 1] if len(ends) else learned
        targets[learned[learned > 0] - 1] = ids[learned[learned > 0]]
        if not len(ends) and end_id is not None:
            targets[learned[-1]] = end_id
    return EncodedConversation(ids=ids, targets=targets)


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


_PROMPT, _RESPONSE = Message("user", "a"), Message("assistant", "response")


def end_of_response(tokenizer: Tokenizer, template: ChatTemplate) -> int | None:
    """Return the token that ends a response, in training and in generation.

    The first special token that the template writes after a response; of a template that writes
    none, the special token with which it begins the next turn (GLM: <|user|>); of one that has
    neither, the token that ends texts. None: there is none.

    Raises:
        ValueError: the template fails.
    """
    end = tokenizer.special_ids.end
    last = _first_special(tokenizer, template.render((_PROMPT, _RESPONSE)))
    if last is not None:
        return last[0]
    try:
        text = template.render((_PROMPT, _RESPONSE, _PROMPT))
    except ValueError:  # of templates for two turns
        return end
    token, between = _first_special(tokenizer, text) or (end, "")
    return end if between.strip() else token


def _first_special(tokenizer: Tokenizer, text: str) -> tuple[int, str] | None:
    """Return the first special token after the response in a text, and what is between both."""
    begin = text.rfind(_RESPONSE.content) + len(_RESPONSE.content)
    (ids,) = tokenizer.encode_ids_batch([text], allow_special=True)
    starts = tokenizer.offset_array(text, allow_special=True)[:, 0]
    special = tokenizer.special_ids
    for token, start in zip(ids.tolist(), starts.tolist(), strict=True):
        # The unknown token stands for a space that has no piece, and is not written.
        is_written = token in special.all_ids and tokenizer.pieces([token])[0] in text
        if start >= begin and is_written:
            return token, text[begin:start]
    return None


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
