"""A masked model of your own language or domain, beside general ones, on text that none has read.

    python benchmarks/own_text.py text ../shared/data OUT
    python benchmarks/own_text.py score MODEL... --texts OUT/captions-test.de.jsonl [--rows 500]

`text` writes what the recipes german-mini and emails-mini are trained on, and what is held out:
captions and encyclopedic paragraphs in German (Multi30k, XQuAD), business mail (AESLC).

`score` hides the same words in the same pieces of text for every model: of each piece of 40 words,
every seventh from a random one on. All tokens of a hidden word are masked together, so a model that
writes a word in many small pieces is not told a part of it, and is asked for all of it at once.
Tokenizers differ, so the figures are by words and characters, not by tokens: how many hidden words
are named in full (capitals apart), and how many bits each character of them costs. Beside them
stands how many tokens a word takes.
"""

import argparse
import json
import lzma
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import unmask
from unmask.batch import IGNORE_INDEX, Example
from unmask.batching.collate import example_length, group_by_length, pad_examples
from unmask.generation.text_batches import evaluation_mode
from unmask.inference.pipeline import Pipeline

WORD = re.compile(r"\w+(?:['’]\w+)*")
PIECE_WORDS = 40
EACH = 7
"""One of so many words is hidden: about 15 %."""


def _lines(path: Path) -> list[str]:
    loaded = lzma.open if path.suffix == ".xz" else open
    with loaded(path, "rt", encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def _write(path: Path, texts: Sequence[str]) -> None:
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), encoding="utf-8")


def write_texts(data: Path, out: Path) -> None:
    """Write the training and held-out texts, one a line of JSON."""
    out.mkdir(parents=True, exist_ok=True)
    articles: list[list[str]] = []
    for article in json.loads("\n".join(_lines(data / "xquad" / "xquad.de.json.xz")))["data"]:
        articles.append([paragraph["context"] for paragraph in article["paragraphs"]])
    of_training = [p for article in articles[:-8] for p in article]
    captions = _lines(data / "multi30k" / "train.de.xz")
    _write(out / "train.de.jsonl", captions + of_training)
    _write(out / "captions-test.de.jsonl", _lines(data / "multi30k" / "test_2016_flickr.de"))
    _write(out / "articles-test.de.jsonl", [p for article in articles[-8:] for p in article])
    for split in ("train", "test"):
        rows = [json.loads(line) for line in _lines(data / "aeslc" / f"{split}.jsonl.xz")]
        _write(out / f"{split}.emails.jsonl", [f"{r['subject']}\n{r['body']}" for r in rows])


@dataclass(frozen=True)
class Piece:
    """A piece of text and the spans of characters that are hidden in it."""

    text: str
    hidden: tuple[tuple[int, int], ...]


def pieces(texts: Sequence[str], seed: int = 0) -> Iterator[Piece]:
    """Cut texts into pieces of some words, and choose what to hide."""
    rng = np.random.default_rng(seed)
    for text in texts:
        words = [m.span() for m in WORD.finditer(text)]
        for start in range(0, len(words), PIECE_WORDS):
            some = words[start : start + PIECE_WORDS]
            begin_at, end = some[0][0], some[-1][1]
            first = int(rng.integers(min(EACH, len(some))))
            hidden = tuple((a - begin_at, b - begin_at) for a, b in some[first::EACH])
            yield Piece(text[begin_at:end], hidden)


@dataclass
class Score:
    """What a model said of the hidden words."""

    words: int = 0
    characters: int = 0
    named: int = 0
    nats: float = 0.0
    tokens: int = 0
    all_words: int = 0


def _example(piece: Piece, model: Pipeline) -> tuple[Example, list[tuple[int, list[int]]]]:
    """Mask a piece's hidden words; return also which word each run of masked places is."""
    tokenizer, special = model.tokenizer, model.tokenizer.special_ids
    assert special.mask is not None
    ids = tokenizer.encode(piece.text).ids.copy()
    spans = tokenizer.offsets(piece.text)
    targets = np.full(len(ids), IGNORE_INDEX, np.int64)
    where: list[tuple[int, list[int]]] = []
    for number, (a, b) in enumerate(piece.hidden):
        positions = [i for i, (x, y) in enumerate(spans) if x < b and y > a]
        targets[positions] = ids[positions]
        where.append((number, [i + len(special.prefix) for i in positions]))
    ids[targets != IGNORE_INDEX] = special.mask
    nothing = [np.full(len(frame), IGNORE_INDEX) for frame in (special.prefix, special.suffix)]
    inputs = np.concatenate([special.prefix, ids, special.suffix]).astype(np.int64)
    targets = np.concatenate([nothing[0], targets, nothing[1]]).astype(np.int64)
    return Example(inputs=inputs, targets=targets), where


def score(model: Pipeline, texts: Sequence[str]) -> Score:
    """Ask a model for the hidden words."""
    result, made = Score(), []
    for piece in pieces(texts):
        made.append((piece, *_example(piece, model)))
        result.tokens += len(made[-1][1].inputs)
        result.all_words += len(WORD.findall(piece.text))
    network, special = model.model, model.tokenizer.special_ids
    with evaluation_mode(network):
        for rows in group_by_length([example_length(example) for _, example, _ in made], 8192):
            batch = pad_examples([made[i][1] for i in rows], special)
            hidden = network.backbone(batch)
            for r, i in enumerate(rows):
                piece, example, where = made[i]
                for number, positions in where:
                    scores = network.language_head.logits(hidden[r, positions]).float()
                    answer = torch.from_numpy(example.targets[positions])
                    loss = torch.nn.functional.cross_entropy(scores, answer, reduction="sum")
                    a, b = piece.hidden[number]
                    text = model.tokenizer.decode(scores.argmax(-1).tolist()).strip()
                    result.words += 1
                    result.characters += b - a
                    result.nats += float(loss)
                    result.named += text.casefold() == piece.text[a:b].casefold()
    return result


def main() -> int:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    text = commands.add_parser("text")
    text.add_argument("data", type=Path)
    text.add_argument("out", type=Path)
    scored = commands.add_parser("score")
    scored.add_argument("models", nargs="+")
    scored.add_argument("--texts", type=Path, nargs="+", required=True)
    scored.add_argument("--rows", type=int, default=500)
    args = parser.parse_args()
    if args.command == "text":
        write_texts(args.data, args.out)
        return 0
    torch.set_num_threads(1)
    print("| model | text | hidden words | named, % | bits a character | tokens a word |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name in args.models:
        model = unmask.load(name)
        for path in args.texts:
            rows = [json.loads(line)["text"] for line in _lines(path)][: args.rows]
            s = score(model, rows)
            bits = s.nats / math.log(2) / s.characters
            print(
                f"| {Path(name).name} | {path.name.partition('.jsonl')[0]} | {s.words:,} "
                f"| {100 * s.named / s.words:.1f} | {bits:.2f} | {s.tokens / s.all_words:.2f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
