"""Preparation: cost of a token and peak memory, as text grows and as documents become longer.

    python benchmarks/growth.py CORPUS [--megabytes 10,100,1000] [--words 20,100,500]
        [--jobs tokenize clean learn] [--models bert-mini gpt2-mini t5-mini] [--workers 1]

CORPUS is any text; it is repeated with words changed. Each job is `unmask prepare` in a process of
its own: `tokenize` with a given tokenizer, `clean` with rules and duplicates of documents and
paragraphs before, `learn` with a new tokenizer of the text. Sizes are run with documents as they
are, lengths with as many megabytes as the least size. A cost is processor time of the process and
its workers, less that of a job of 0.1 MB, by the tokens that were written (of `clean` and
`learn`, too); a peak is the most that all of them had resident at once, looked at 20 times a
second.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import preparation

from unmask.output import print_line
from unmask.shards.read import MANIFEST_FILE

TOKENIZER_MEGABYTES, START_MEGABYTES = 5, 0.1
RULES = ["--clean", "gopher:min_words=1,min_stop_words=0", "--clean", "repetition"]
DUPLICATES = [f"--deduplicate={kind}{unit}" for unit in ("", ":unit=paragraph")
              for kind in ("exact", "near")]  # fmt: skip


def of_length(texts: Iterable[str], n_words: int) -> Iterator[str]:
    """Cut texts anew into documents of half to one and a half times `n_words`."""
    draw, held = random.Random(n_words), list[str]()
    wanted = n_words
    for text in texts:
        held += text.replace("\n", " ").split(" ")
        while len(held) >= wanted:
            yield " ".join(held[:wanted])
            held = held[wanted:]
            wanted = draw.randint(max(1, n_words // 2), n_words + n_words // 2)


def run(
    job: str, model: str, file: Path, tokenizer: Path, n_workers: int
) -> tuple[float, int, int]:
    """Prepare a file; return processor seconds, the peak in bytes, and tokens."""
    out = file.with_suffix(".out")
    command = [sys.executable, "-m", "unmask.cli", "prepare", str(file), "--out", str(out)]
    command += ["--model", model, "--workers", str(n_workers), "--quiet"]
    command += [] if job == "learn" else ["--tokenizer", str(tokenizer)]
    command += [*RULES, *DUPLICATES] if job == "clean" else []
    seconds, peak = preparation.measure(command)
    n_tokens = json.loads((out / MANIFEST_FILE).read_text())["n_tokens"]
    shutil.rmtree(out)
    return seconds, peak, n_tokens


def main() -> None:
    os.environ |= {"TOKENIZERS_PARALLELISM": "false"}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("--megabytes", default="10,100,1000")
    parser.add_argument("--words", default="20,100,500")
    parser.add_argument("--jobs", nargs="+", default=["tokenize", "clean", "learn"])
    parser.add_argument("--models", nargs="+", default=["bert-mini"])
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    sizes = [float(n) for n in given.megabytes.split(",") if n]
    lengths = [int(n) for n in given.words.split(",") if n]
    texts = preparation.texts_of(given.corpus, int(TOKENIZER_MEGABYTES * 1e6))
    print_line("| job | model | MB | words a document | tokens | s a million tokens | peak, MiB |")
    print_line("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        small = Path(name) / "small.txt"
        preparation.write(texts, small)
        tokenizers = {
            model: preparation.tokenizer_of(model, small, Path(name)) for model in given.models
        }
        preparation.write(preparation.texts_of(given.corpus, int(START_MEGABYTES * 1e6)), small)
        kinds = [(job, model) for model in given.models for job in given.jobs]
        starts = {kind: run(*kind, small, tokenizers[kind[1]], given.workers) for kind in kinds}
        cases = [(n, None) for n in sizes] + [(sizes[0], n) for n in lengths]
        for n, words in cases:
            some = preparation.more_text(texts, int(n * 1e6))
            some = some if words is None else of_length(some, words)
            file = Path(name) / "input.txt"
            preparation.make_input(some, "\n\n", file)
            length = "as they are" if words is None else str(words)
            for job, model in kinds:
                start = starts[job, model]
                seconds, peak, n_tokens = run(job, model, file, tokenizers[model], given.workers)
                cost = (seconds - start[0]) / max(1, n_tokens - start[2]) * 1e6
                print_line(
                    f"| {job} | {model} | {n:g} | {length} | {n_tokens:,} | {cost:.2f} |"
                    f" {peak / 2**20:.0f} |"
                )


if __name__ == "__main__":
    main()
