"""From the command to the first answer: ours, transformers' pipeline, and `import torch` alone.

    python benchmarks/start.py [--rounds 5] [--model unmask-mini-en]

Each is a process of its own and they take turns: `unmask fill` and `unmask predict`, and the
pipelines of transformers that do the same from the same folder (the bundled encoder, and a
classifier of two labels made from it); `import torch`, which both contain; and, of the command line
alone, `unmask --help` and the slowest `--help` of a command. Files are in the system's cache and
modules are compiled: a first round is not counted. Printed are seconds by the clock and by the
processor (of all threads), medians of the rounds, and what is left without `import torch`; the
ratios are medians of those within rounds.
"""

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from unmask.checkpoints.huggingface.read import resolve_model_folder

FILL, TEXT = "the house is [MASK] .", "a house that nobody would buy ."
CLI = (sys.executable, "-m", "unmask.cli")
PIPELINE = """
import sys, warnings
warnings.simplefilter("ignore")
from transformers import pipeline
print(pipeline(sys.argv[1], model=sys.argv[2])(sys.argv[3])[0])
"""
CLASSIFIER = """
import sys
from transformers import BertForSequenceClassification
model = BertForSequenceClassification.from_pretrained(sys.argv[1], num_labels=2)
model.save_pretrained(sys.argv[2])
"""


def programs(folder: Path, classifier: Path) -> dict[str, tuple[str, ...]]:
    """Return the command line of each party."""
    theirs = (sys.executable, "-c", PIPELINE)
    return {
        "import torch": (sys.executable, "-c", "import torch"),
        "unmask fill": (*CLI, "fill", str(folder), FILL),
        "transformers fill-mask": (*theirs, "fill-mask", str(folder), FILL),
        "unmask predict": (*CLI, "predict", str(classifier), TEXT),
        "transformers text-classification": (*theirs, "text-classification", str(classifier), TEXT),
        "unmask --help": (*CLI, "--help"),
        "unmask finetune --help": (*CLI, "finetune", "--help"),
    }


def run(command: tuple[str, ...]) -> tuple[float, float]:
    """Run a program to its end; return seconds by the clock and by the processor."""
    start, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    spent = after.children_user + after.children_system
    return time.perf_counter() - start, spent - before.children_user - before.children_system


def make_classifier(folder: Path, classifier: Path) -> None:
    """Save the encoder with an untrained head and its tokenizer, by transformers."""
    words = (sys.executable, "-c", CLASSIFIER, str(folder), str(classifier))
    subprocess.run(words, check=True, capture_output=True)
    for path in folder.glob("tokenizer*"):
        shutil.copy(path, classifier)


def compare(rounds: int, folder: Path, classifier: Path) -> dict[str, list[tuple[float, float]]]:
    """Return what each party took, in each round."""
    parties = programs(folder, classifier)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in parties}
    for i in range(rounds + 1):
        for name in list(parties)[:: -1 if i % 2 else 1]:
            once = run(parties[name])
            if i:
                taken[name].append(once)
    return taken


def row(name: str, taken: dict[str, list[tuple[float, float]]], base: str | None) -> str:
    """Return a row of the table; `base`: the party that its ratios are to."""
    torch_alone = taken["import torch"]
    cells = [name]
    for kind in (0, 1):
        own = [one[kind] for one in taken[name]]
        beyond = [a - b[kind] for a, b in zip(own, torch_alone, strict=True)]
        cells.append(f"{statistics.median(own):.2f}")
        cells.append("" if "--help" in name else f"{statistics.median(beyond):.2f}")
    for kind in (0, 1):
        pairs = [] if base is None else zip(taken[base], taken[name], strict=True)
        ratios = [theirs[kind] / ours[kind] for theirs, ours in pairs]
        cells.append(f"{statistics.median(ratios):.2f}x" if ratios else "")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Compare and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="unmask-mini-en", help="a masked encoder like BERT")
    given = parser.parse_args()
    bases = {
        "unmask fill": "transformers fill-mask",
        "unmask predict": "transformers text-classification",
    }
    with tempfile.TemporaryDirectory() as name:
        folder, classifier = resolve_model_folder(given.model), Path(name) / "classifier"
        make_classifier(folder, classifier)
        before = os.getloadavg()[0]
        taken = compare(given.rounds, folder, classifier)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {given.rounds} rounds, "
          f"load {before:.1f} to {os.getloadavg()[0]:.1f}")  # fmt: skip
    print("| | s | without torch | processor s | without torch | faster | less processor |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for party in taken:
        print(row(party, taken, bases.get(party)))


if __name__ == "__main__":
    main()
