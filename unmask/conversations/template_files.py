"""Chat templates in folders of transformers: chat_template.jinja, or a key of the tokenizer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.conversations.template import ChatTemplate
from unmask.files import write_atomically
from unmask.text.formats.records import describe_value
from unmask.tokenizers.formats.declared_tokens import (
    CONFIG_FILE,
    read_declared_tokens,
    read_optional_json,
    read_utf8,
)

TEMPLATE_FILE, TEMPLATE_KEY = "chat_template.jinja", "chat_template"


def load_chat_template(folder: Path) -> ChatTemplate | None:
    """Read the chat template of a folder; None: it has none.

    chat_template.jinja goes before the key of tokenizer_config.json, as in transformers. Of several
    named templates that called "default" is read.

    Raises:
        ValueError: a file is damaged, or the template is no Jinja text.
    """
    path = folder / TEMPLATE_FILE
    if path.is_file():
        source, location = read_utf8(path), str(path)
    else:
        location = f"{folder / CONFIG_FILE}: {TEMPLATE_KEY}"
        source = _template_of_key(read_optional_json(folder / CONFIG_FILE), location)
    if source is None:
        return None
    roles = read_declared_tokens(folder).roles
    names = {f"{role}_token": name for role, name in roles.items() if name is not None}
    try:
        return ChatTemplate(source, names)
    except ValueError as error:
        raise ValueError(f"{location}: {error}") from None


def _template_of_key(config: Mapping[str, Any], location: str) -> str | None:
    value = config.get(TEMPLATE_KEY)
    if value is None or isinstance(value, str):
        return value
    named = value if isinstance(value, dict) else _by_name(value, location)
    if not isinstance(source := named.get("default"), str):
        raise ValueError(f"{location}: must have a template called 'default', got {[*named]}")
    return source


def _by_name(value: Any, location: str) -> dict[str, Any]:
    if not isinstance(value, list) or not all(
        isinstance(one, dict) and {"name", "template"} <= one.keys() for one in value
    ):
        raise ValueError(
            f"{location} must be a text, or a list of {{name, template}}, got "
            f"{describe_value(value)}"
        )
    return {str(one["name"]): one["template"] for one in value}


def save_chat_template(template: ChatTemplate | None, folder: Path) -> None:
    """Write the template of a model that has one, where transformers reads it.

    Its special tokens are written as roles of the tokenizer, where the folder declares none.
    """
    if template is None:
        return
    write_atomically(folder / TEMPLATE_FILE, template.source)
    config = read_optional_json(folder / CONFIG_FILE)
    more = {name: x for name, x in template.special_tokens.items() if name not in config}
    if more:
        text = json.dumps({**config, **more}, ensure_ascii=False, indent=2) + "\n"
        write_atomically(folder / CONFIG_FILE, text)
