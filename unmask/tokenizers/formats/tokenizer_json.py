"""tokenizer.json: a pipeline in the format of the tokenizers library."""

import json
import logging
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from unmask.tokenizers.characters.byte_pipelines import marked_bytes_decoder
from unmask.tokenizers.formats import declared_tokens as declared_tokens_module
from unmask.tokenizers.formats import limits
from unmask.tokenizers.formats.declared_tokens import DeclaredTokens

_log = logging.getLogger(__name__)


def load_tokenizer_json(path: Path, declared_tokens: DeclaredTokens) -> Tokenizer:
    """Read the pipeline, and reject what the library would accept but fail on later."""
    state = declared_tokens_module.read_json_mapping(path)
    added = state.get("added_tokens") or []
    if not isinstance(added, list) or not all(
        declared_tokens_module.is_added_token(token) for token in added
    ):
        raise ValueError(f"{path}: added_tokens must be a list of tokens")
    for token in added:
        token["special"] = bool(token.get("special")) or declared_tokens.is_special(
            token["content"]
        )
    limits.check_pipeline_limits(path, state)
    _check_pieces(path, state.get("model"))
    state = _without_dropout(path, state)
    # Padding and truncation are up to the caller, and would look like a part of every text.
    written = json.dumps({**state, "padding": None, "truncation": None})
    with limits.tokenizers_errors_as_value_error(f"{path} is no tokenizer file", hide_output=True):
        backend = Tokenizer.from_str(written)
    for token in added:
        if backend.token_to_id(token["content"]) != token.get("id"):
            raise ValueError(f"{path}: {token['content']!r} cannot have the id {token.get('id')}")
    if lost := _missing_template_tokens(state.get("post_processor")):
        raise ValueError(f"{path}: post_processor has {lost[0]!r} without an id")
    _check_model(path, state["model"])
    mark = state["model"].get("end_of_word_suffix")
    if mark and (state.get("decoder") or {}).get("type") == "ByteLevel":
        # CLIP's: its class in transformers replaces the mark after decoding.
        backend.decoder = marked_bytes_decoder(mark)
    return backend


def _without_dropout(path: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Remove dropout, which skips merges at random (Provilkov et al. 2020).

    arXiv:1910.13267: it is for training; inference segments texts without it.
    """
    model = state.get("model")
    if not isinstance(model, dict) or not model.get("dropout"):
        return state
    _log.warning(
        "%s: model.dropout is %s; it is ignored, so that segmentation is deterministic",
        path, model["dropout"],
    )  # fmt: skip
    return {**state, "model": {**model, "dropout": None}}


def _check_pieces(path: Path, model: Any) -> None:
    """Reject values on which the library would panic or allocate a huge table.

    That is merges whose right part lacks the continuation prefix, and ids far above the number of
    pieces.
    """
    if not isinstance(model, dict):
        return
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        most = 2 * len(vocab) + 1000
        for piece, i in vocab.items():
            if type(i) is not int or not 0 <= i <= most:
                raise ValueError(
                    f"{path}: model.vocab: {piece!r} must have an id from 0 to {most}, as there "
                    f"are {len(vocab)} pieces, got {i!r}"
                )
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    for merge in merges if prefix and isinstance(merges, list) else ():
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not (isinstance(pair, list) and pair and str(pair[-1]).startswith(str(prefix))):
            raise ValueError(
                f"{path}: model.merges: the right part of {merge!r} does not begin with {prefix!r}"
            )


def _check_model(path: Path, model: dict[str, Any]) -> None:
    """Reject a model without an unknown token, or with duplicate ids."""
    vocab, unknown = model["vocab"], model.get("unk_token")
    if not isinstance(vocab, dict):
        if model.get("unk_id") is None:
            raise ValueError(f"{path}: model.unk_id must be the id of the unknown token")
        return
    if unknown is not None and unknown not in vocab:
        raise ValueError(f"{path}: model.unk_token is {unknown!r}, which is not in its vocabulary")
    if len(set(vocab.values())) < len(vocab):
        raise ValueError(f"{path}: two pieces of the vocabulary have the same id")


def _missing_template_tokens(processor: Any) -> list[str]:
    """List the special tokens of a template that have no ids in it."""
    if isinstance(processor, list):
        return [name for part in processor for name in _missing_template_tokens(part)]
    if not isinstance(processor, dict):
        return []
    used = [
        str(part["SpecialToken"].get("id"))
        for part in [*(processor.get("single") or []), *(processor.get("pair") or [])]
        if isinstance(part, dict) and isinstance(part.get("SpecialToken"), dict)
    ]
    special_tokens = processor.get("special_tokens") or {}
    return [name for name in used if name not in special_tokens] + _missing_template_tokens(
        processor.get("processors")
    )
