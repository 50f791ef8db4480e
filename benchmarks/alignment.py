r"""How many seeds two languages need to be aligned, by the size of the text and of the vectors.

    python benchmarks/alignment.py --source TEXT --target TEXT --dictionary FILE \
        --test FILE --out FOLDER

The lines of both files are translations of each other, as those of Multi30k are. Nothing is told
of that: with `--parted` the first half of the source's lines and the second half of the target's
are learned from, so that no line has its translation. Vectors are skip-gram's. Seeds are the first
pairs of the dictionary that both spaces know, `numerals` the numbers that both have; each is tried
as it is and with self-learning by CSLS. What is finished is not done again.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from unmask import align
from unmask.jobs.options.align import SelfLearningName
from unmask.word_vectors.alignment.dictionary import CHANCE_LEVEL

SEEDS = ("5000", "250", "100", "50", "25", "numerals")
LEARNING: tuple[SelfLearningName, ...] = ("none", "csls")
RECIPE = ("objective.epochs=20", "objective.window=10")


def write_share(text: Path, share: float, second: bool, out: Path) -> Path:
    """Write a share of a text's lines, from the beginning of its whole or of its second half."""
    lines = text.read_text(encoding="utf-8").splitlines(keepends=True)
    first = len(lines) // 2 if second else 0
    out.write_text("".join(lines[first : first + round(share * len(lines))]), encoding="utf-8")
    return out


def learn(text: Path, width: int, out: Path) -> Path:
    """Learn vectors of a text by the command."""
    if not (out / "report.html").exists():
        shutil.rmtree(out, ignore_errors=True)  # where it was stopped: it takes seconds
        changes = [f"--set={each}" for each in (*RECIPE, f"architecture.d_model={width}")]
        command = [sys.executable, "-m", "unmask.cli", "pretrain", "word2vec-skipgram-mini"]
        command += ["--data", str(text), "--out", str(out), "--quiet", *changes]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out


def tried(
    spaces: tuple[Path, Path], seeds: str, learning: SelfLearningName, dictionary: Path, test: Path
) -> dict[str, float]:
    """Align two spaces, and give how it went."""
    numerals = seeds == "numerals"
    made = align(
        *spaces,
        dictionary=None if numerals else dictionary,
        seed_pairs=None if numerals else int(seeds),
        numerals=numerals,
        lowercase=True,
        test=test,
        self_learning=learning,
        terminal=None,
    )
    found = made.scores["csls"]
    return {
        "pairs": made.rounds[0].n_pairs,
        "rounds": len(made.rounds),
        "asked": found.n_evaluated,
        "p_at_1": found.precision_at_1,
        "p_at_5": found.precision_at_5,
        "by_chance": found.chance_p_value,
    }


def main() -> None:
    """Do what is not done, then print the table."""
    parser = argparse.ArgumentParser()
    for name in ("source", "target", "dictionary", "test", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--widths", default="30,100")
    parser.add_argument("--shares", default="1,0.5,0.25", help="of the lines; at most 0.5 parted")
    parser.add_argument("--parted", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for share in map(float, given.shares.split(",")):
        for width in map(int, given.widths.split(",")):
            name = f"{share:g}-{width}{'-parted' * given.parted}"
            texts = [
                write_share(path, share, second, given.out / f"{side}-{name}.txt")
                for side, path, second in (
                    ("source", given.source, False),
                    ("target", given.target, given.parted),
                )
            ]
            one, other = (learn(text, width, text.with_suffix("")) for text in texts)
            for seeds in SEEDS:
                for learning in LEARNING:
                    result = given.out / f"{name}-{seeds}-{learning}.json"
                    if not result.exists():
                        found = tried((one, other), seeds, learning, given.dictionary, given.test)
                        result.write_text(json.dumps(found))
                        print(result.stem, found, flush=True)
    table(given.out)


def table(out: Path) -> None:
    """Print P@1 by CSLS; * is no more than by chance, in brackets stands how many seeds."""
    print("| share-width | self-learning | asked |", " | ".join(SEEDS), "|")
    print("| --- | --- |" + " ---: |" * (1 + len(SEEDS)))
    for first in sorted(out.glob(f"*-{SEEDS[0]}-*.json"), reverse=True):
        name, _, learning = first.stem.rsplit("-", 2)
        found, cells = json.loads(first.read_text()), list[str]()
        for seeds in SEEDS:
            found = json.loads((out / f"{name}-{seeds}-{learning}.json").read_text())
            mark = "" if found["by_chance"] < CHANCE_LEVEL else "*"
            known = f" ({found['pairs']:,})" if seeds in (SEEDS[0], SEEDS[-1]) else ""
            cells.append(f"{100 * found['p_at_1']:.1f}{mark}{known}")
        print(f"| {name} | {learning} | {found['asked']:,} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
