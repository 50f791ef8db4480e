"""Ids of special tokens in a pipeline, and pipelines that never encode them from text."""

import json
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

import tokenizers

from unmask.tokenizers.spec import (
    SpecialTokenIds,
    SpecialTokens,
    sentinel_names,
    special_token_names,
)


def special_token_ids(
    backend: tokenizers.Tokenizer, special_tokens: SpecialTokens
) -> SpecialTokenIds:
    """Return the ids of special tokens in a pipeline.

    Raises:
        ValueError: the vocabulary lacks one, or has far more ids than pieces.
    """

    def one(name: str) -> int:
        found = backend.token_to_id(name)
        if found is None:
            raise ValueError(f"the vocabulary lacks the special token {name!r}")
        return found

    def some(named: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(one(name) for name in named)

    marks = some(sentinel_names(special_tokens))
    names = special_tokens.languages
    languages = range(len(names)) if special_tokens.language_embeddings else some(names)
    roles = {i for i, token in backend.get_added_tokens_decoder().items() if token.special}
    roles.update(marks, some(special_token_names(special_tokens)))
    vocab = backend.get_vocab(with_added_tokens=True)
    size = max(vocab.values()) + 1
    if size > 2 * len(vocab) + 1000:
        raise ValueError(f"the vocabulary has ids up to {size - 1}, but only {len(vocab)} pieces")
    return SpecialTokenIds(
        vocab_size=size,
        pad=one(special_tokens.pad),
        start=one(special_tokens.start),
        end=None if special_tokens.end is None else one(special_tokens.end),
        mask=None if special_tokens.mask is None else one(special_tokens.mask),
        unknown=None if special_tokens.unknown is None else one(special_tokens.unknown),
        prefix=some(special_tokens.prefix),
        separator=some(special_tokens.separator),
        suffix=some(special_tokens.suffix),
        sentinels=marks,
        modes=some(special_tokens.modes),
        languages=tuple(zip(special_tokens.languages, languages, strict=True)),
        language_first=special_tokens.language_first,
        language_embeddings=special_tokens.language_embeddings,
        text_languages=tuple(names.index(name) for name in special_tokens.text_languages),
        all_ids=frozenset(roles),
    )


def pipeline_without_special(
    backend: tokenizers.Tokenizer, state: dict[str, Any], special_ids: SpecialTokenIds
) -> tokenizers.Tokenizer:
    """Return a pipeline that encodes typed special tokens as text.

    It is the same one, unless the model has their names as pieces. The library can leave special
    tokens of a text to the model (`encode_special_tokens`), but a unigram model has "</s>" as a
    piece. Its copy has other names for them, with a space at the end, which no word has.
    """
    backend.encode_special_tokens = True
    names = {backend.id_to_token(i): i for i in special_ids.all_ids}
    reachable = state["model"].get("type") == "Unigram" or any(
        i in backend.encode(around.format(name), add_special_tokens=False).ids
        for name, i in names.items()
        if name != unknown_token(state["model"])
        for around in ("{}", "a {} a", "a{}a")
    )
    if not reachable:
        return backend
    model, other = state["model"], {name: f"{name} " for name in names}
    vocab = model["vocab"]
    if isinstance(vocab, list):
        vocab = [[other.get(piece, piece), score] for piece, score in vocab]
    else:
        vocab = {other.get(piece, piece): i for piece, i in vocab.items()}
    model = model | {"vocab": vocab}
    if model.get("unk_token") in other:
        model["unk_token"] = other[model["unk_token"]]
    if "merges" in model:
        merges = [m for m in model["merges"] if not {*m, "".join(m)} & set(other)]
        model = model | {"merges": merges}
    added = [t | {"content": other.get(t["content"], t["content"])} for t in state["added_tokens"]]
    renamed = state | {"model": model, "added_tokens": added, "post_processor": None}
    copied = tokenizers.Tokenizer.from_str(json.dumps(renamed))
    copied.encode_special_tokens = True
    return copied


def unknown_token(model: dict[str, Any]) -> str | None:
    """Return the unknown token of a model."""
    if model.get("unk_id") is not None:
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def check_ids(ids: Iterable[SupportsIndex]) -> list[int]:
    """Return ids as a list.

    Raises:
        ValueError: an id is negative.
    """
    checked = [operator.index(i) for i in ids]
    if negative := [i for i in checked if i < 0]:
        raise ValueError(f"an id must not be negative, got {negative[0]}")
    return checked
