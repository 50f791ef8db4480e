"""A tiny model of each kind, saved as if it were pretrained, and a task that one word decides."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from unmask.batch import Batch, Example
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.write import write_folder
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.tasks.task import TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import TokenizerSpec
from unmask.zoo.catalogue import MODELS
from unmask.zoo.preset import Published

_TEXT = """the a cat dog house tree runs walks red blue green sun moon stone river bird very so
one two three four five six seven eight 0 1 2 3 4 5 6 7 8 9 . , ? !"""
WORDS = _TEXT.split()
FAMILIES = ("bert", "gpt2", "t5", "bart")
CARDS = {
    "bert": "bert-tiny",
    "gpt2": "gpt2-mini",
    "gpt": "gpt-mini",
    "t5": "t5-mini",
    "bart": "bart-mini",
    "mbart": "mbart-mini",
    "longformer": "longformer-mini",
    "unilm": "unilm-mini",
}


def texts(n: int, seed: int = 0, least: int = 1, most: int = 9) -> list[tuple[str, str]]:
    """Make texts that contain "good" or "bad" once, with the label that follows."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        words = rng.choice(WORDS, rng.integers(least, most + 1)).tolist()
        label = int(rng.integers(2))
        words.insert(int(rng.integers(len(words) + 1)), ("bad", "good")[label])
        made.append((" ".join(words), ("no", "yes")[label]))
    return made


@cache
def tokenizer(family: str) -> Tokenizer:
    """Learn a small vocabulary of the family's kind."""
    spec = MODELS[CARDS[family]].tokenizer
    # As many ids as the texts can fill, so that learning does not warn.
    sizes = {
        "bert": 90,
        "unilm": 90,
        "gpt2": 300,
        "gpt": 120,
        "t5": 45,
        "bart": 300,
        "mbart": 105,
        "longformer": 300,
    }
    size = sizes[family]
    spec = TokenizerSpec(replace(spec.vocabulary, vocab_size=size), spec.special_tokens)
    plain = [f"{text} {label}" for text, label in texts(300, 99)]
    return train_tokenizer(
        spec, [*plain, "text: label: classify pairs regress sentence1 sentence2", "-.0123456789"]
    )


def card(family: str, **changes: float) -> Published:
    """Return the family's card at a tiny size."""
    published = MODELS[CARDS[family]]
    d_ff = 128 if family == "gpt" else 64  # the first GPT's format knows no other

    def small(a: Architecture) -> Architecture:
        sizes = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": d_ff, "head_dim": None}
        return replace(a, vocab_size=tokenizer(family).vocab_size, **sizes, **changes)

    a = published.architecture
    if isinstance(a, EncoderDecoderArchitecture):
        a = replace(a, encoder=small(a.encoder), decoder=small(a.decoder))
    else:
        a = small(a)
    return replace(published, architecture=a)


def pretrained(family: str, folder: Path, seed: int = 7, **changes: float) -> Path:
    """Write a random model with the family's pretraining heads."""
    published = card(family, **changes)
    write_folder(folder, published.build().initialize(seed), published, tokenizer(family))
    return folder


def write(path: Path, rows: list[tuple[str, ...]], header: str = "text\tlabel") -> Path:
    """Write a .tsv file."""
    path.write_text("\n".join([header, *("\t".join(map(str, r)) for r in rows)]) + "\n")
    return path


def items(rows: list[tuple[str, str]]) -> list[TaskExample]:
    """Make items of texts and labels."""
    return [
        TaskExample(texts=(text,), label=label, location=f"row {i}")
        for i, (text, label) in enumerate(rows)
    ]


def batch(family: str, rows: list[list[int]]) -> Batch:
    """Make a padded batch of token ids."""
    examples = [Example(inputs=np.array(row), targets=np.array(row)) for row in rows]
    return pad_examples(examples, tokenizer(family).special_ids)
