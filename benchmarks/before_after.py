"""The commands as they are beside those of an earlier commit, taking turns.

    python benchmarks/before_after.py COMMIT [--rounds 3] [--only NAME ...] [--corpus TEXT]

COMMIT is checked out into a temporary folder. Each command is a process of its own, from its start
to its end, of the one tree and then of the other, with the same files: models with random weights,
texts of SST-2, MRPC and BLiMP where they are there, of the corpus or the bundled novels else. A
first turn of each is not counted. Printed are seconds by the clock, medians, the median of the
ratios within rounds, and whether both trees came to the same: texts alike, numbers within 1e-3.
"""

import argparse
import contextlib
import json
import lzma
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import finetuning
import numpy as np
import reading

from unmask.bundled.demo import bundled_path
from unmask.checkpoints.huggingface.write import write_folder
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.training.device import distributed
from unmask.zoo.catalogue import get_preset

HERE = Path(__file__).parent
WIKITEXT = HERE.parent.parent / "shared" / "data" / "wikitext-2" / "train.txt.xz"
TUNE = "finetune {encoder} --epochs 1 --learning-rate 5e-5 --max-length 128 --out {out}"
WRITE = "--max-new-tokens 64 --min-new-tokens 64 --input"
JOBS = {
    "start": "--help",
    "fill one text": "fill {encoder} {blank}",
    "prepare": "prepare {corpus} --tokenizer {encoder} --out {out}",
    "masked": "pretrain bert-mini {masked} --steps 30 --out {out}",
    "causal": "pretrain gpt2-mini {causal} --steps 20 --out {out}",
    "spans": "pretrain t5-mini {spans} --steps 20 --out {out}",
    "ELMo": "pretrain elmo-mini {corpus_start} --steps 10 --out {out}",
    "LSTM": "pretrain lstm-mini {corpus_start} --steps 10 --out {out}",
    "sentences": f"{TUNE} --task classify --train {{sentences}} --dev {{sentences}} --text first",
    "pairs": f"{TUNE} --task pairs --train {{pairs}} --dev {{pairs}} --text first --text second",
    "embed": "embed {encoder} --input {texts} --out {out}.npy",
    "BLiMP": "evaluate {decoder} --task blimp --data {blimp}",
    "generate, 1 prompt": f"generate {{decoder}} {WRITE} {{prompt}}",
    "generate, 16 prompts": f"generate {{decoder}} {WRITE} {{prompts}}",
    "4 beams, T5": f"generate {{translator}} --beams 4 {WRITE} {{prompts}}",
}
"""What follows `unmask`; in braces, files that `make_inputs` makes."""
VOCABULARY_SIZE = 16000
"""Of what is pretrained."""
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def make_inputs(folder: Path, corpus: Path) -> dict[str, str]:
    """Write the files that the commands read, with the code of this tree."""
    opened = lzma.open if corpus.suffix == ".xz" else open
    with opened(corpus, "rt", encoding="utf-8") as file:
        start = file.read(2_000_000)
    texts = [one for one in finetuning.texts() if len(one) > 40]
    questions = reading.questions("blimp", 1000)
    for name in ("blimp", "here"):  # no name of a model is a folder where commands run
        (folder / name).mkdir()
    rows = [
        {"uid": "some", "field": "some", "term": "some", "good": good, "bad": bad}
        for (_, good), (_, bad) in zip(questions[::2], questions[1::2], strict=True)
    ]
    written = {
        "corpus_start": start,
        "texts": "\n".join(texts),
        "prompt": texts[0],
        "prompts": "\n".join(texts[:16]),
        "blimp/blimp": "\n".join(map(json.dumps, rows)),
    }
    for name, text in written.items():
        path = folder / f"{name}.{'jsonl' if name.startswith('blimp') else 'txt'}"
        path.write_text(text + "\n", encoding="utf-8")
    found = {name: str(folder / f"{name}.txt") for name in written if "/" not in name}
    for name, model in {"masked": "bert-mini", "causal": "gpt2-mini", "spans": "t5-mini"}.items():
        found[name] = str(folder / name)
        words = ("prepare", "--model", model, str(corpus), "--out", found[name])
        run(HERE.parent, [*words, "--vocab-size", str(VOCABULARY_SIZE)], folder)
    preset = get_preset("t5-mini")
    tokenizer = train_tokenizer(preset.tokenizer, texts)
    architecture = preset.architecture.with_vocab_size(tokenizer.vocab_size)
    preset = replace(preset, architecture=architecture)
    write_folder(folder / "translator", preset.build().initialize(0), preset, tokenizer)
    return found | {
        "encoder": str(finetuning.model_folder(folder)),
        "decoder": str(reading.decoder_folder(folder)),
        "translator": str(folder / "translator"),
        "sentences": str(finetuning.rows(folder, "sentences")),
        "pairs": str(finetuning.rows(folder, "pairs")),
        "corpus": str(corpus),
        "blimp": str(folder / "blimp"),
        "blank": "the house is [MASK] .",
    }


def run(tree: Path, words: Sequence[str], folder: Path) -> tuple[float, str]:
    """Run a command with the code of a tree; return its seconds and what it printed."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "unmask.cli", *words], cwd=folder / "here", check=False, text=True,
        capture_output=True, env=os.environ | {"PYTHONPATH": str(tree)},
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"{tree}: unmask {' '.join(words)}: {done.stderr.strip()[-500:]}")
    return seconds, done.stdout


def outcome(folder: Path, printed: str, name: str) -> str:
    """Return what a command came to: last loss, vectors, or what it printed without its folder."""
    log, vectors = folder / "log.jsonl", folder.with_name(f"{folder.name}.npy")
    if vectors.is_file():
        return " ".join(f"{x:.6f}" for x in np.load(vectors).flatten())
    if not log.is_file():
        return printed.replace(folder.name, "")
    losses = [row for row in map(json.loads, log.read_text().splitlines()) if "loss" in row]
    return f"{name} {losses[-1]['loss']:.6f}"


def is_same(one: str, other: str) -> bool:
    """Return whether texts are alike, and numbers in them within a thousandth of their size."""
    if NUMBER.sub("0.0", one) != NUMBER.sub("0.0", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(abs(float(a) - float(b)) <= 1e-3 * max(1, abs(float(a))) for a, b in pairs)


@contextlib.contextmanager
def checked_out(commit: str, folder: Path) -> Generator[Path, None, None]:
    """Check out a commit into a folder, and remove it again."""
    git = ("git", "-C", str(HERE.parent), "worktree")
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def compare(before: Path, names: Sequence[str], rounds: int, corpus: Path, folder: Path) -> None:
    """Print a row for each command."""
    inputs = make_inputs(folder, corpus)
    print("| command | before, s | now, s | before / now | same |")
    print("| --- | ---: | ---: | ---: | --- |")
    trees = {"before": before, "now": HERE.parent}
    for name in names:
        seconds: dict[str, list[float]] = {side: [] for side in trees}
        results: dict[str, str] = {}
        for i in range(rounds + 1):
            for side in list(trees)[:: -1 if i % 2 else 1]:
                out = folder / f"{side}{list(JOBS).index(name)}.{i}"
                filled = [w.format(**inputs, out=out) for w in JOBS[name].split()]
                taken, printed = run(trees[side], filled, folder)
                results[side] = outcome(out, printed, name)
                if i:
                    seconds[side].append(taken)
        ratio = statistics.median(
            a / b for a, b in zip(seconds["before"], seconds["now"], strict=True)
        )
        middle = " | ".join(f"{statistics.median(seconds[side]):.2f}" for side in trees)
        same = "yes" if is_same(results["before"], results["now"]) else "no"
        print(f"| {name} | {middle} | {ratio:.2f}x | {same} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument(
        "--corpus", type=Path, default=WIKITEXT if WIKITEXT.is_file() else bundled_path("novels"),
        help="any text; default: WikiText-2, or the bundled novels",
    )  # fmt: skip
    given = parser.parse_args()
    distributed.set_threads(None)
    with (
        tempfile.TemporaryDirectory() as name,
        checked_out(given.commit, Path(name) / "before") as tree,
    ):
        inputs = Path(name) / "inputs"
        inputs.mkdir()
        compare(tree, given.only, given.rounds, given.corpus.resolve(), inputs)


if __name__ == "__main__":
    main()
