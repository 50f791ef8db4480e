"""Make what unmask-mini-en is trained from: its text, and vectors blended with those of skip-gram.

    python scripts/mini_en.py text WIKIPEDIA BOOKS OUT
    python scripts/mini_en.py blend TOKENS MODEL OUT  (pip install gensim)
    python scripts/mini_en.py finish RUN OUT

WIKIPEDIA and BOOKS are folders with train.txt.xz, valid.txt.xz and test.txt.xz: one paragraph a
line, documents (articles; chapters) parted by blank lines. recipes/unmask-mini-en.toml has the
commands that follow.
"""

import argparse
import lzma
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from unmask.checkpoints.huggingface.read import load_folder, resolve_model_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.inference.export import save_model
from unmask.shards.read import TokenShards

KEYBOARD = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "--", "…": "...", "\u00a0": " "}
)
"""Labelled data mostly have these. Every fifth document is left as it is, so that typographic
quotes and dashes have vectors, too."""
LEAST = {"wikipedia": 8, "books": 3}
"""Words of a line that is kept: headings are not."""


def write_text(wikipedia: Path, books: Path, out: Path) -> None:
    """Write OUT/{train,valid,test}-{wikipedia,books}.txt."""
    out.mkdir(parents=True, exist_ok=True)
    for name, folder in (("wikipedia", wikipedia), ("books", books)):
        for split in ("train", "valid", "test"):
            found = documents(folder / f"{split}.txt.xz", LEAST[name])
            with (out / f"{split}-{name}.txt").open("w", encoding="utf-8") as file:
                for i, paragraphs in enumerate(found):
                    text = "\n".join(paragraphs)
                    file.write((text if i % 5 == 4 else text.translate(KEYBOARD)) + "\n\n")


def documents(path: Path, least: int) -> Iterator[list[str]]:
    """Give the documents of a file, as lists of their paragraphs."""
    kept: list[str] = []
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if len(words) >= least:
                kept.append(" ".join(words))
            if not words and kept:
                yield kept
                kept = []
    if kept:
        yield kept


def write_blended(tokens: Path, folder: Path, out: Path) -> None:
    """Add to a model's token vectors those of skip-gram, trained on the same tokens.

    Skip-gram's vectors of a token as a word and as a neighbor are summed, and turned (orthogonal
    Procrustes) to where the model's own lie; both weigh the same, and their sum as much as the
    model's did.
    """
    opened = load_folder(resolve_model_folder(folder))
    shards = TokenShards.open(tokens)
    words, neighbors = skip_gram(shards)
    table = opened.model.backbone.embedding_table.weight
    old = table.detach().double().numpy()
    added = words + neighbors
    seen = np.flatnonzero(np.abs(added).sum(1))
    ours, theirs = (x[seen] - x[seen].mean(0) for x in (old, added))
    left, _, right = np.linalg.svd(theirs.T @ ours)
    turned = theirs @ (left @ right)
    new = old.copy()
    new[seen] += turned * np.linalg.norm(ours) / np.linalg.norm(turned)
    with torch.no_grad():
        table.copy_(torch.from_numpy(new * np.linalg.norm(old) / np.linalg.norm(new)))
    save_model(opened, out)


def skip_gram(shards: TokenShards) -> tuple[np.ndarray, np.ndarray]:
    """Train skip-gram vectors of tokens on paragraphs; return them and those of neighbors."""
    from gensim.models import Word2Vec

    class Paragraphs:
        def __iter__(self) -> Iterator[list[str]]:
            for start, end in shards.row_spans(10**9, "paragraph"):
                yield [str(i) for i in shards.read_tokens(start, end).ids.tolist()]

    size = shards.tokenizer.vocab_size
    model = Word2Vec(
        sentences=Paragraphs(), vector_size=192, sg=1, negative=5, window=5, sample=1e-4,
        min_count=1, epochs=5, alpha=0.025, seed=0, workers=1,
    )  # fmt: skip
    both = np.zeros((2, size, 192))
    for token, place in model.wv.key_to_index.items():
        both[:, int(token)] = model.wv.vectors[place], model.syn1neg[place]
    return both[0], both[1]


def write_final(run: Path, out: Path) -> None:
    """Write what goes into the package: bfloat16, the second segment's vector as the first's."""
    opened = load_folder(resolve_model_folder(run))
    segments = opened.model.backbone.segments
    assert segments is not None
    with torch.no_grad():
        segments.weight[1] = segments.weight[0]
    write_folder(out, opened.model, opened.preset, opened.tokenizer, dtype=torch.bfloat16)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    what = parser.add_subparsers(dest="what", required=True)
    text, blend, finish = map(what.add_parser, ("text", "blend", "finish"))
    for name in ("wikipedia", "books", "out"):
        text.add_argument(name, type=Path)
    for name in ("tokens", "model", "out"):
        blend.add_argument(name, type=Path)
    for name in ("run", "out"):
        finish.add_argument(name, type=Path)
    given = parser.parse_args()
    if given.what == "text":
        write_text(given.wikipedia, given.books, given.out)
    elif given.what == "blend":
        write_blended(given.tokens, given.model, given.out)
    else:
        write_final(given.run, given.out)


if __name__ == "__main__":
    main()
