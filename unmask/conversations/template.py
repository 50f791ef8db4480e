"""ChatTemplate: the text that a model reads of a conversation, in the format of transformers.

A template is a Jinja text that comes with a tokenizer. It is rendered in Jinja's sandbox and has no
access to files, modules or attributes of Python objects; what it writes is bounded.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn, cast

import jinja2
import jinja2.exceptions

from unmask.conversations.messages import Conversation, Message
from unmask.conversations.sandbox import Sandbox

MAX_TEMPLATE_CHARACTERS = 2**20
"""Of a template; published ones have up to 20,000."""
MAX_GROWTH_CHARACTERS = 2**20
"""That a template may add to the texts of a conversation."""

PLAIN = """\
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}
{{ message['content'].strip() + '\\n\\n' }}
{%- elif message['role'] == 'user' -%}
{{ '### Instruction:\\n' + message['content'].strip() + '\\n\\n### Response:\\n' }}
{%- else -%}
{% generation %}{{ message['content'].strip() + eos_token }}{% endgeneration %}
{{- '\\n\\n' if not loop.last else '' }}
{%- endif -%}
{%- endfor -%}
"""
"""For tokenizers without a template and without tokens for roles: the headings of Alpaca (Taori et
al. 2023, https://github.com/tatsu-lab/stanford_alpaca)."""

CONTINUATION = """\
{%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}
{% generation %}{{ message['content'] }}{% endgeneration %}
{%- else -%}
{{ message['content'] }}
{%- endif -%}
{%- endfor -%}
"""
"""Turns joined as they are: a response continues its prompt, and no text marks its end."""


@dataclass(frozen=True)
class ChatTemplate:
    """A Jinja template with the special tokens that it may name."""

    source: str
    """The Jinja text."""
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names in the template -> tokens: {"eos_token": "</s>"}."""

    def __post_init__(self) -> None:
        """Parse the template.

        Raises:
            ValueError: it is too long, or no Jinja text.
        """
        if len(self.source) > MAX_TEMPLATE_CHARACTERS:
            raise ValueError(
                f"chat template: {len(self.source):,} characters, at most "
                f"{MAX_TEMPLATE_CHARACTERS:,} are allowed"
            )
        self._template  # noqa: B018 - parses it

    @cached_property
    def _sandbox(self) -> Sandbox:
        environment = Sandbox()
        environment.filters["tojson"] = lambda x, *how, **named: _to_json(
            environment.measured(x), *how, **named
        )
        names = cast("dict[str, Any]", environment.globals)
        names |= {"raise_exception": _raise, "strftime_now": _format_now}
        return environment

    @cached_property
    def _template(self) -> jinja2.Template:
        try:
            return self._sandbox.from_string(self.source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ValueError(f"chat template: {_one_line(error)}") from None

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
        """Return the text of a conversation.

        Args:
            messages: its turns.
            add_generation_prompt: whether what comes before a response is added at the end.

        Raises:
            ValueError: the template refuses the conversation, fails, or writes too much.
        """
        room = MAX_GROWTH_CHARACTERS + 2 * sum(len(m.content) for m in messages)
        pieces = self._generate(
            messages=[m.to_dict() for m in messages],
            add_generation_prompt=add_generation_prompt,
            tools=None,
            documents=None,
            **self.special_tokens,
        )
        return "".join(_bounded(pieces, room))

    def _generate(self, **variables: Any) -> Iterable[str]:
        self._sandbox.begin(sum(len(m["content"]) for m in variables["messages"]))
        try:
            yield from self._template.generate(**variables)
        except jinja2.TemplateError as error:
            raise ValueError(f"chat template: {_one_line(error)}") from None
        except (TypeError, KeyError, RecursionError, ZeroDivisionError, OverflowError) as error:
            raise ValueError(f"chat template fails: {_one_line(error)}") from None

    def response_spans(self, conversation: Conversation) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of a conversation, and where the responses that are learned are in it.

        A response begins where the prompt before it ends, and ends with its turn: with the token
        that ends it, without the space after that.

        Raises:
            ValueError: the template fails, or changes the beginning of a text when turns are added.
        """
        messages = conversation.messages
        whole, spans = self.render(messages), list[tuple[int, int]]()
        for i, message in enumerate(messages):
            if message.role != "assistant" or not message.is_learned:
                continue
            before = self.render(messages[:i], add_generation_prompt=True)
            rendered = self.render(messages[: i + 1])
            after = rendered.rstrip()
            if not whole.startswith(after):  # Phi ends a whole conversation with the end of texts
                after = after.removesuffix(self.special_tokens.get("eos_token", "")).rstrip()
            if not rendered.startswith(before) or not whole.startswith(after):
                raise ValueError(
                    f"{conversation.location}: the chat template changes earlier turns when later "
                    "ones are added, so that responses have no place; choose another template"
                )
            spans.append((len(before), len(after)))
        return whole, spans


def _bounded(pieces: Iterable[str], room: int) -> Iterable[str]:
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            raise ValueError(f"chat template writes more than {MAX_GROWTH_CHARACTERS:,} characters")
        yield piece


def _raise(message: object) -> NoReturn:
    """Refuse a conversation, as a template asks."""
    raise jinja2.exceptions.TemplateError(str(message))


def _format_now(pattern: str) -> str:
    """Write the present time, which templates of some models name, as transformers does."""
    return datetime.now().strftime(pattern)


def _to_json(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON without escapes for HTML, as transformers does."""
    return json.dumps(
        x,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:297] + "..." if len(text) > 300 else text
