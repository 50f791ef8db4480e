"""Preparation: speed beside `tokenizers` alone, and the memory that it takes of texts of any size.

    python benchmarks/preparation.py CORPUS [--megabytes 10] [--rounds 3] [--memory 10,100,1000]
        [--shapes documents "one document"] [--tokenizers WordPiece unigram] [--formats txt]

CORPUS is any text. Speed: `unmask prepare`'s work, from a file to shards, with one worker, against
`Tokenizer.encode_batch` of the `tokenizers` library on the same documents in memory, a megabyte at
a time and nothing else; both on one thread, in turns, by processor time. The ratio is the median
over the rounds; that of `encode_batch_fast`, without offsets, stands beside it. Memory: the peak of
a process that prepares so many megabytes, repeated text with words changed; as many documents, as
one document, and as one record.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import tokenizers

from unmask.jobs.corpus.prepare import load_or_train_tokenizer
from unmask.output import print_line
from unmask.shards.write import write_shards
from unmask.text.documents import read_documents
from unmask.tokenizers.load import load_tokenizer
from unmask.training.config import Recipe

MODELS = {
    "WordPiece": "bert-mini", "byte-level BPE": "gpt2-mini", "unigram": "t5-mini",
    "SentencePiece BPE": "llama-mini",
}  # fmt: skip
FORMATS = ("txt", "jsonl", "parquet")
SHAPES = {
    "documents": ("\n\n", "txt"), "one document": ("\n", "txt"), "one line": (" ", "txt"),
    "one JSON record": ("\n", "jsonl"), "one Parquet value": ("\n", "parquet"),
}  # fmt: skip
SECONDS_BETWEEN_LOOKS = 0.05
BATCH_CHARACTERS = 10**6
RECORD_MEGABYTES = 100
"""Of the largest text that is one record."""


def texts_of(corpus: str, n_bytes: int) -> list[str]:
    found, size = list[str](), 0
    for document in read_documents(corpus):
        found.append(document.text)
        size += len(document.text.encode())
        if size >= n_bytes:
            break
    return found


def write(texts: Sequence[str], path: Path) -> None:
    if path.suffix == ".txt":
        path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    elif path.suffix == ".jsonl":
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts)
    else:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"text": list(texts)}), path)


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch, size = list[str](), 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def encode_alone(tokenizer: Path, texts: Sequence[str], *, fast: bool = False) -> None:
    backend = tokenizers.Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    encode = backend.encode_batch_fast if fast else backend.encode_batch
    for batch in batches(texts):
        encode(batch, add_special_tokens=False)


def tokenizer_of(model: str, corpus: Path, folder: Path) -> Path:
    path = folder / f"tokenizer-{model}"
    recipe = Recipe(model=model, data=(str(corpus),))
    load_or_train_tokenizer(recipe, folder / "none").save(path)
    return path


def measure_speed(
    texts: Sequence[str], names: Sequence[str], formats: Sequence[str], rounds: int, folder: Path
) -> None:
    n_bytes = sum(len(text.encode()) for text in texts)
    files = [folder / f"corpus.{ending}" for ending in formats]
    for file in files:
        write(texts, file)
    columns = ("encode_batch_fast", *formats)
    print_line(f"| tokenizer | tokenizers alone, MB/s | {' | '.join(columns)} |")
    print_line("| --- |" + " ---: |" * (1 + len(columns)))
    for name in names:
        tokenizer = tokenizer_of(MODELS[name], files[0], folder)
        parties = [lambda path=tokenizer: encode_alone(path, texts, fast=True)]
        parties += [lambda path=tokenizer, file=file: prepare(file, path, folder) for file in files]
        alone, ratios = list[float](), [list[float]() for _ in parties]
        for _ in range(rounds):
            for party, own in zip(parties, ratios, strict=True):
                alone.append(seconds(lambda path=tokenizer: encode_alone(path, texts)))
                own.append(alone[-1] / seconds(party))
        cells = [f"{statistics.median(own):.2f}" for own in ratios]
        speed = n_bytes / statistics.median(alone) / 1e6
        print_line(f"| {name} | {speed:.2f} | {' | '.join(cells)} |")


def prepare(file: Path, tokenizer: Path, folder: Path) -> None:
    out = folder / "shards"
    shutil.rmtree(out, ignore_errors=True)
    write_shards(read_documents(file), load_tokenizer(tokenizer), out)


def more_text(texts: Sequence[str], n_bytes: int) -> Iterator[str]:
    """Repeat texts with a word in twenty changed, until there are so many bytes."""
    draw, size = random.Random(0), 0
    while size < n_bytes:
        words = draw.choice(texts).split(" ")
        for _ in range(len(words) // 20):
            words[draw.randrange(len(words))] = f"{draw.choice(words)}{draw.randrange(1000)}"
        text = " ".join(words)
        size += len(text.encode()) + 1
        yield text


def resident_bytes(process: int) -> int:
    """Return what a process and those that it began have in memory; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(resident_bytes(int(one)) for one in children)


def measure(command: Sequence[str]) -> tuple[float, int]:
    """Run a command; return its processor seconds, and the most that it and its children held.

    The system's own figure would begin with what this process holds.
    """
    process, peak = subprocess.Popen(command, stdout=subprocess.DEVNULL), 0
    while True:
        done, status, usage = os.wait4(process.pid, os.WNOHANG)
        if done:
            break
        peak = max(peak, resident_bytes(process.pid))
        time.sleep(SECONDS_BETWEEN_LOOKS)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{' '.join(command)}: {process.returncode}"
    return usage.ru_utime + usage.ru_stime, peak


def measure_preparation(file: Path, tokenizer: Path, folder: Path) -> tuple[float, int]:
    """Prepare a file in a process of its own; return its processor seconds and its peak."""
    out = folder / "prepared"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "unmask.cli", "prepare", file, "--out", out, "--model"]
    command += [MODELS["byte-level BPE"], "--tokenizer", tokenizer, "--quiet"]
    return measure(list(map(str, command)))


def measure_memory(
    texts: Sequence[str], megabytes: Sequence[float], shapes: Sequence[str], folder: Path
) -> None:
    small = folder / "small.txt"
    write(list(islice(texts, 2000)), small)
    tokenizer = tokenizer_of(MODELS["byte-level BPE"], small, folder)
    print_line("| input | MB | peak, MiB | MB/s |")
    print_line("| --- | ---: | ---: | ---: |")
    for n in megabytes:
        for name in shapes:
            joint, ending = SHAPES[name]
            if ending != "txt" and n > RECORD_MEGABYTES:
                continue
            file = folder / f"input.{ending}"
            make_input(more_text(texts, int(n * 1e6)), joint, file)
            used, peak = measure_preparation(file, tokenizer, folder)
            print_line(f"| {name} | {n:g} | {peak / 2**20:.0f} | {n / used:.2f} |")
            file.unlink()


def make_input(texts: Iterator[str], joint: str, file: Path) -> None:
    """Write many documents, one, or one line, without holding them where it can be."""
    if file.suffix != ".txt":
        write([joint.join(texts)], file)
        return
    with file.open("w", encoding="utf-8") as out:
        for text in texts:
            out.write((text.replace("\n", " ") if joint == " " else text) + joint)


def main() -> None:
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="10,100,1000")
    parser.add_argument("--tokenizers", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    given = parser.parse_args()
    texts = texts_of(given.corpus, int(given.megabytes * 1e6))
    with tempfile.TemporaryDirectory() as name:
        if given.rounds:
            measure_speed(texts, given.tokenizers, given.formats, given.rounds, Path(name))
        if given.memory:
            sizes = [float(n) for n in given.memory.split(",")]
            measure_memory(texts, sizes, given.shapes, Path(name))


if __name__ == "__main__":
    main()
