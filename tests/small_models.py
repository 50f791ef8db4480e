"""Tiny random models of the reference library, each with a tokenizer of its family, in a folder."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from reference import bart, bert, gpt2, saved, t5
from toy_text import corpus

from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE, Unigram, WordPiece
from unmask.zoo.catalogue import MODELS

KINDS = {"bert": WordPiece(100), "gpt2": ByteBPE(300), "t5": Unigram(70), "bart": ByteBPE(300)}
CARDS = {"bert": "bert-tiny", "gpt2": "gpt2-mini", "t5": "t5-mini", "bart": "bart-mini"}
FAMILIES = ("bert", "gpt2", "t5")


@cache
def tokenizer(family: str) -> Tokenizer:
    """Learn a small vocabulary."""
    frame = MODELS[CARDS[family]].tokenizer.special_tokens
    return train_tokenizer(TokenizerSpec(KINDS[family], frame), corpus(20).splitlines())


def make(
    family: str, folder: Path, kind: str | None = None, **changes: Any
) -> tuple[Any, LoadedModel]:
    """Make a reference model, save it with its tokenizer, and open it."""
    known = tokenizer(family)
    special = known.special_ids
    more: dict[str, Any] = {"vocab_size": known.vocab_size, "pad_token_id": special.pad}
    if family in ("t5", "bart"):
        more |= {"eos_token_id": special.end, "decoder_start_token_id": special.start}
    if family == "gpt2":
        more |= {"bos_token_id": special.start, "eos_token_id": special.end}
    build = {"bert": bert, "gpt2": gpt2, "t5": t5, "bart": bart}[family]
    reference = build(kind, **(more | changes)) if kind else build(**(more | changes))
    saved(reference, folder)
    known.save(folder)
    return reference, load_folder(folder)


def texts(n: int, seed: int = 0, most: int = 12) -> list[str]:
    """Draw texts of one to `most` words of the toy language."""
    words = corpus(5).replace(".", " .").split()
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, rng.integers(1, most + 1))) for _ in range(n)]
