"""Rows of preferences: prompts with better and worse responses, or prompts alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

from unmask.conversations.messages import (
    Message,
    check_learned,
    read_conversation,
    read_prompt,
    read_responses,
)
from unmask.tasks.kinds.prefer import CHOSEN, RANKED, REJECTED, ranked_columns
from unmask.tasks.readers.tables import Table, read_table
from unmask.text.formats.records import check_text, describe_value, format_names
from unmask.text.lines import EncodingErrors

LABEL = "label"
"""Column of single responses: whether the response is desirable."""


@dataclass(frozen=True, kw_only=True)
class PreferenceRow:
    """A prompt and its responses."""

    prompt: tuple[Message, ...]
    responses: tuple[str, ...] = ()
    """The better one before the other; or a single one; or none."""
    is_desirable: bool | None = None
    """Of a single response."""
    location: str = ""
    """File and line, for messages."""


def read_pairs(path: str | Path, encoding_errors: EncodingErrors = "strict") -> list[PreferenceRow]:
    """Read pairs of responses; a ranking of k responses is k (k - 1) / 2 pairs.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a row has no pair, with file and line.
    """
    found: list[PreferenceRow] = []
    for row, location in _rows(path, encoding_errors):
        keys: tuple[str, ...] = (CHOSEN, REJECTED)
        if RANKED in row:
            row, keys = ranked_columns(row, location)
        turns = [conversation.messages for conversation in read_responses(row, keys, location)]
        if not turns[0][:-1]:
            raise ValueError(f"{location}: there is no prompt before the response")
        found += [
            PreferenceRow(
                prompt=better[:-1],
                responses=(better[-1].content, worse[-1].content),
                location=location,
            )
            for better, worse in combinations(turns, 2)
        ]
    return found


def read_labeled(
    path: str | Path, encoding_errors: EncodingErrors = "strict"
) -> list[PreferenceRow]:
    """Read single responses with a label, true or false; a pair is one of each.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a row is neither, with file and line.
    """
    table = read_table(path, encoding_errors=encoding_errors)
    if LABEL not in table.columns:
        return [
            PreferenceRow(
                prompt=pair.prompt,
                responses=(response,),
                is_desirable=is_desirable,
                location=pair.location,
            )
            for pair in read_pairs(path, encoding_errors)
            for response, is_desirable in zip(pair.responses, (True, False), strict=True)
        ]
    found: list[PreferenceRow] = []
    for row, location in _table_rows(table, encoding_errors):
        turns = read_conversation(row, location).messages
        if turns[-1].role != "assistant" or len(turns) < 2:
            raise ValueError(f"{location}: there is no response after a prompt")
        check_learned(turns[-1], location, "messages")
        found.append(
            PreferenceRow(
                prompt=turns[:-1],
                responses=(turns[-1].content,),
                is_desirable=_read_label(row[LABEL], location),
                location=location,
            )
        )
    return found


def read_prompts(
    path: str | Path, encoding_errors: EncodingErrors = "strict"
) -> list[PreferenceRow]:
    """Read prompts; responses that stand after them are left out.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a row has no prompt, with file and line.
    """
    return [
        PreferenceRow(prompt=_prompt_of(row, location), location=location)
        for row, location in _rows(path, encoding_errors)
    ]


def rows_sha256(rows: Sequence[PreferenceRow]) -> str:
    """Return a digest of rows, by which a resumed run knows its data."""
    digest = sha256()
    for row in rows:
        turns = [turn.to_dict() for turn in row.prompt]
        digest.update(json.dumps([turns, row.responses, row.is_desirable]).encode() + b"\n")
    return digest.hexdigest()


def _prompt_of(row: Mapping[str, Any], location: str) -> tuple[Message, ...]:
    if row.get("prompt") is not None or row.get("instruction") is not None:
        turns = read_prompt(row, location)
    elif row.get(CHOSEN) is not None:
        turns = read_responses(row, (CHOSEN,), location)[0].messages
    elif row.get("text") is not None:
        turns = read_prompt({"prompt": row["text"]}, location)
    else:
        turns = read_conversation(row, location).messages
    if turns and turns[-1].role == "assistant":
        turns = turns[:-1]
    if not turns or not any(turn.content.strip() for turn in turns):
        raise ValueError(f"{location}: there is no prompt")
    return turns


def _read_label(value: Any, location: str) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    found = known.get(str(value).strip().lower())
    if found is None:
        raise ValueError(
            f"{location}: {LABEL!r} must be true or false, got {describe_value(value)}"
        )
    return found


def _rows(
    path: str | Path, encoding_errors: EncodingErrors
) -> Sequence[tuple[dict[str, Any], str]]:
    return _table_rows(read_table(path, encoding_errors=encoding_errors), encoding_errors)


def _table_rows(table: Table, encoding_errors: EncodingErrors) -> list[tuple[dict[str, Any], str]]:
    """Return the rows of a file by column, with their places."""
    if len(set(table.columns)) < len(table.columns):
        raise ValueError(f"{table.path}: two columns have one name: {format_names(table.columns)}")
    found: list[tuple[dict[str, Any], str]] = []
    for i, (_, fields) in enumerate(table.rows):
        location = table.location(i)
        row: dict[str, Any] = dict(zip(table.columns, fields, strict=True))
        for name, value in row.items():
            if isinstance(value, str):
                row[name] = check_text(value, location, name, encoding_errors)
        found.append((row, location))
    return found
