"""Held-out loss of a mini model on dirty text, cleaned or not, for the same number of tokens.

    python benchmarks/cleaning_effect.py --out FOLDER [--megabytes 8] [--seeds 3] [--steps 300]
    python benchmarks/cleaning_effect.py --out FOLDER --table

Articles of Wikipedia are made dirty by `dirty_text.py`: menus, mojibake, copies, templates, spam,
code, other languages, filler, each in the proportion that stands there. A small GPT-2 is trained on
the dirty text as it is, deduplicated, with rules alone, and with both; and on the articles alone,
as they are and cleaned likewise, which shows whether cleaning harms clean text. All have the same
steps of the same size and one tokenizer, that of the dirty text cleaned. The loss is of held-out
articles as they are, and of the lines of them that the rule c4 keeps: it takes out titles and
headings, which a model of cleaned text never saw. Where a text is too small for its steps it is
read again.

Data: ../shared/data/wikipedia-en, xquad, multi30k. Needs `pip install '.[clean]'`.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from dirty_text import dirty

import unmask
from unmask.evaluation.perplexity import HeldOutConfig, evaluate
from unmask.output import print_line
from unmask.shards.read import TokenShards
from unmask.text.cleaning.rules import parse_cleaning
from unmask.text.documents import Document, read_documents
from unmask.tokenizers.load import load_tokenizer

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
CLEAN = ("unicode", "c4", "gopher", "repetition", "language:codes=en")
DEDUPLICATE = ("exact", "near", "near:unit=paragraph")
ARMS = {
    "dirty": ("dirty", (), ()),
    "dirty, deduplicated": ("dirty", (), DEDUPLICATE),
    "dirty, rules": ("dirty", CLEAN, ()),
    "dirty, rules, deduplicated": ("dirty", CLEAN, DEDUPLICATE),
    "clean": ("clean", (), ()),
    "clean, rules, deduplicated": ("clean", CLEAN, DEDUPLICATE),
}
TOKENIZER_ARM = "dirty, rules, deduplicated"
MODEL = "gpt2-mini"
VOCAB_SIZE = 4096
SHAPE = ("sequence_length=128", "batch_tokens=4096", "dev_fraction=0", "architecture.n_layers=2",
         "architecture.d_model=128", "architecture.n_heads=4", "architecture.d_ff=512")  # fmt: skip
DEV_ARTICLES = 60


def write_texts(out: Path, n_bytes: int) -> None:
    """Write the articles, and what a crawl would have of them."""
    if (out / "dirty.jsonl").is_file():
        return
    articles, size = list[str](), 0
    for document in read_documents([DATA / "wikipedia-en" / "train.txt.xz"]):
        articles.append(document.text)
        size += len(document.text.encode())
        if size >= n_bytes:
            break
    for name, texts in (("clean", articles), ("dirty", dirty(articles, DATA))):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (out / f"{name}.jsonl").write_text(lines, encoding="utf-8")


def folder_of(out: Path, arm: str) -> Path:
    return out / "tokens" / arm.replace(", ", "-")


def prepare(out: Path, arm: str) -> TokenShards:
    text, rules, duplicates = ARMS[arm]
    trained = folder_of(out, TOKENIZER_ARM) / "tokenizer"
    own: dict[str, Any] = (
        {"vocab_size": VOCAB_SIZE} if arm == TOKENIZER_ARM else {"tokenizer": trained}
    )
    return unmask.prepare(
        out / f"{text}.jsonl", out=folder_of(out, arm), model=MODEL, clean=rules,
        deduplicate=duplicates, quiet=True, **own,
    )  # fmt: skip


def train(out: Path, arm: str, seed: int, steps: int, shape: Sequence[str]) -> Path:
    run = out / f"seed-{seed}" / folder_of(out, arm).name
    if not (run / "model.safetensors").is_file():
        unmask.pretrain(
            MODEL, data=folder_of(out, arm), out=run, steps=steps, seed=seed, changes=shape,
            resume=run.exists(), quiet=True,
        )  # fmt: skip
    return run


def held_out() -> dict[str, list[Document]]:
    """Return held-out articles, and their lines that the rule c4 keeps."""
    found = [*islice(read_documents([DATA / "wikipedia-en" / "valid.txt.xz"]), DEV_ARTICLES)]
    (rule,) = parse_cleaning(["c4"], [], []).rules
    kept = [replace(d, text=rule.clean(d.text).text) for d in found]
    return {"articles": found, "their sentences": [d for d in kept if d.text]}


def losses(run: Path, texts: dict[str, list[Document]]) -> dict[str, float]:
    """Return the nats a token on held-out texts; they are kept in the run's folder."""
    path = run / "held_out.json"
    if not path.is_file():
        loaded = unmask.load(run)
        config = HeldOutConfig(sequence_length=loaded.preset.sequence_length)
        found = {
            name: evaluate(
                loaded.model, loaded.tokenizer, loaded.preset.objective, documents, config
            ).loss["next_token"]
            for name, documents in texts.items()
        }
        path.write_text(json.dumps(found), encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def table(out: Path, seeds: int, texts: dict[str, list[Document]]) -> None:
    """Print what was reached so far."""
    tokenizer = load_tokenizer(folder_of(out, TOKENIZER_ARM) / "tokenizer")
    for name, documents in texts.items():
        tokens = [len(ids) for ids in tokenizer.encode_ids_batch([d.text for d in documents])]
        size = sum(len(d.text.encode()) for d in documents)
        print_line(f"held-out {name}: {sum(tokens):,} tokens of {size / sum(tokens):.2f} bytes")
    print_line(f"| text | documents | M tokens | seeds | {' | '.join(texts)} |")
    print_line(f"| --- |{' ---: |' * (3 + len(texts))}")
    for arm in ARMS:
        shards = TokenShards.open(folder_of(out, arm))
        runs = [out / f"seed-{seed}" / folder_of(out, arm).name for seed in range(seeds)]
        found = [losses(run, texts) for run in runs if (run / "model.safetensors").is_file()]
        cells = [arm, f"{shards.manifest.n_documents:,}", f"{shards.manifest.n_tokens / 1e6:.2f}"]
        for name in texts if found else ():
            values = [one[name] for one in found]
            spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.3f}{spread}")
        print_line(f"| {' | '.join([*cells[:3], str(len(found)), *cells[3:]])} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    if not given.table:
        write_texts(given.out, int(given.megabytes * 1e6))
        for arm in (TOKENIZER_ARM, *(arm for arm in ARMS if arm != TOKENIZER_ARM)):
            prepare(given.out, arm)
        for seed in range(given.seeds):
            for arm in ARMS:
                train(given.out, arm, seed, given.steps, SHAPE)
    table(given.out, given.seeds, held_out())
    return 0


if __name__ == "__main__":
    sys.exit(main())
