"""vocab.json and merges.txt: byte-level vocabularies as GPT-2's, RoBERTa's and CLIP's."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from unmask.tokenizers import pipeline
from unmask.tokenizers.formats import declared_tokens as declared_tokens_module
from unmask.tokenizers.formats.declared_tokens import DeclaredTokens
from unmask.tokenizers.spec import CLIP, SpecialTokens

_BYTE_LEVEL_CLASSES = ("none", "gpt2", "roberta", "bart", "longformer", "led")
"""Classes in transformers, or model types, whose vocab.json and merges.txt are read as GPT-2's; "":
undeclared. Those of Qwen and GPT-NeoX have further added tokens."""


def read_merges(path: Path, vocab: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Read merges.txt: two pieces per line, the first merge first."""
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(declared_tokens_module.read_utf8(path).split("\n"), 1):
        line = line.rstrip("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        pair = line.split(" ")
        if len(pair) != 2 or not all(pair):
            raise ValueError(
                f"{path}:{number}: a line must be two pieces separated by a space, got {line!r}"
            )
        for piece in (*pair, "".join(pair)):
            if piece not in vocab:
                raise ValueError(f"{path}:{number}: {piece!r} is not in vocab.json")
        merges.append((pair[0], pair[1]))
    # A piece that is neither one symbol nor merged must be a special token; many of them mean that
    # the file is truncated.
    merged = {left + right for left, right in merges}
    unmade = sum(len(p.removesuffix("</w>")) > 1 and p not in merged for p in vocab)
    if unmade > max(1000, len(vocab) // 50):
        raise ValueError(
            f"{path} seems truncated: {unmade} pieces of vocab.json result from no merge"
        )
    return merges


def check_bytes(path: Path, vocab: Mapping[str, int]) -> None:
    """Check that each of the 256 bytes has a piece.

    Raises:
        ValueError: one has none.
    """
    if missing := [c for c in pipeline.byte_characters() if c not in vocab]:
        raise ValueError(f"{path} is not byte-level: {len(missing)} of 256 bytes have no piece")


def clip_special_tokens(
    path: Path, roles: Mapping[str, str], vocab: Mapping[str, int]
) -> SpecialTokens:
    """Return CLIP's special tokens, by their declared names."""
    missing = [role for role in ("unk", "bos", "eos") if roles.get(role) not in vocab]
    if missing:
        raise ValueError(f"{path}: the vocabulary lacks the token of {', '.join(missing)}")
    end = roles["eos"]
    return replace(
        CLIP, pad=roles.get("pad", end), start=roles["bos"], end=end, unknown=roles["unk"],
        prefix=(roles["bos"],), separator=(end, end), suffix=(end,),
    )  # fmt: skip


def byte_level_pipeline(
    path: Path,
    declared_tokens: DeclaredTokens,
    vocab: Mapping[str, int],
    merges: list[tuple[str, str]],
) -> Tokenizer:
    """Build the byte-level pipeline of a folder's family."""
    kind = (
        (declared_tokens.tokenizer_class or declared_tokens.model_type)
        .lower()
        .replace("-", "")
        .replace("_", "")
    )
    if kind not in _BYTE_LEVEL_CLASSES:
        raise ValueError(
            f"{path}: the treatment of such files by the tokenizer of "
            f"{declared_tokens.tokenizer_class or declared_tokens.model_type!r} is unknown; "
            "save it with transformers as tokenizer.json first"
        )
    space = bool(declared_tokens.config.get("add_prefix_space", False))
    return pipeline.byte_bpe_pipeline(vocab, merges, add_prefix_space=space)


def byte_level_template(
    declared_tokens: DeclaredTokens, roles: Mapping[str, str], vocab: set[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the special tokens before, between and after texts of such a tokenizer."""
    if {"<s>", "</s>", "<mask>"} <= vocab:  # RoBERTa, BART
        return ("<s>",), ("</s>", "</s>"), ("</s>",)
    begin = (
        (roles["bos"],) if declared_tokens.config.get("add_bos_token") and "bos" in roles else ()
    )
    finish = (
        (roles["eos"],) if declared_tokens.config.get("add_eos_token") and "eos" in roles else ()
    )
    return begin, finish + begin, finish
