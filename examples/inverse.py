"""What the examples of inverse problems share: make pairs, learn the hard direction, verify.

An inverse problem is easy one way and hard the other: to differentiate and to integrate, to compile
and to decompile, to count and to write. Pairs are made the easy way, the hard one is learned from
them, and what the model answers is verified by the easy one, whatever the answer looks like.
"""

import argparse
import json
import math
import multiprocessing
import random
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import unmask

DRAWS = 1000
"""Of a part, which has a generator of its own: pairs do not depend on the number of processes."""
PARTS = 8
"""That are made side by side before pairs are counted."""

Pair = tuple[str, str]
"""Question and answer: words with spaces between."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An inverse problem, and a budget for it: about a quarter of an hour of one CPU core."""

    name: str
    draw: Callable[[random.Random], Pair | None]
    """Make an answer at random, and its question the easy way. None: of no use, too long say."""
    right: Callable[[str, str], bool | None]
    """Verify an answer to a question. None: it could not be decided."""
    pairs: int
    """At most so many are learned from."""
    longest: tuple[int, int]
    """Words of a question and of an answer, at most."""
    epochs: float
    dropout: float = 0.0
    metric: str = "exact_match"
    """By which the best state is kept: of texts alone, for it verifies nothing."""


def _part(draw: Callable[[random.Random], Pair | None], seed: int, part: int) -> list[Pair]:
    rng = random.Random(f"{seed} {part}")
    return [pair for _ in range(DRAWS) if (pair := draw(rng)) is not None]


@contextmanager
def _side_by_side(processes: int) -> Generator[Callable[..., Iterable[list[Pair]]]]:
    """Map in so many processes; in this one, which need not start, where it is one."""
    if processes == 1:
        yield map
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield partial(pool.map, chunksize=1)


def make(
    problem: Problem, folder: Path, *, pairs: int, held_out: int, seed: int, processes: int
) -> None:
    """Write train.jsonl, dev.jsonl and test.jsonl; no question is in two of them, or twice in one.

    Args:
        problem: whose pairs are drawn.
        folder: where they are written.
        pairs: to learn from, at most: fewer where nearly all that is drawn was drawn before.
        held_out: of dev and of test, each.
        seed: of what is drawn, and what is held out.
        processes: that draw side by side.
    """
    found: dict[str, str] = {}
    started, drawn, part = time.perf_counter(), 0, 0
    with _side_by_side(processes) as map_parts:
        new = 1.0
        while len(found) < pairs + 2 * held_out and new > 0.05:
            before = len(found)
            draw = partial(_part, problem.draw, seed)
            for some in map_parts(draw, range(part, part + PARTS)):
                for question, answer in some:
                    found.setdefault(question, answer)
            part, drawn = part + PARTS, drawn + PARTS * DRAWS
            new = (len(found) - before) / (PARTS * DRAWS)
            print(f"\r{len(found):,} pairs of {drawn:,} drawn", end="", flush=True)
    seconds = time.perf_counter() - started
    print(f"\r{len(found):,} pairs of {drawn:,} drawn, {len(found) / seconds:,.0f} a second")
    rows = list(found.items())
    if len(rows) <= 2 * held_out:
        raise ValueError(f"{len(rows):,} pairs are too few to hold out {held_out:,} twice")
    random.Random(seed).shuffle(rows)
    cuts = {"test": slice(held_out), "dev": slice(held_out, 2 * held_out)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, cut in (cuts | {"train": slice(2 * held_out, 2 * held_out + pairs)}).items():
        lines = [json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows[cut]]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        print(f"{folder / name}.jsonl: {len(lines):,} pairs")


def train(
    problem: Problem, folder: Path, *, epochs: float, seed: int = 0, easy: bool = False
) -> None:
    """Learn answers from questions; go on with the run where it was stopped.

    Args:
        problem: whose pairs are in the folder.
        folder: the files of `make`; the run is written there.
        epochs: passes over the pairs.
        seed: of weights and order.
        easy: learn the easy direction instead, questions from answers.
    """
    asked, output = problem.longest[::-1] if easy else problem.longest
    unmask.finetune(
        "transformer-tiny",
        task="generate",
        vocabulary="words",
        train=folder / "train.jsonl",
        dev=folder / "dev.jsonl",
        text="answer" if easy else "question",
        label="question" if easy else "answer",
        out=_run(folder, easy),
        resume=True,
        epochs=float(epochs),
        batch_tokens=1024,
        learning_rate=2e-3,
        warmup=0.1,
        schedule="linear",
        dropout=problem.dropout,
        metric=problem.metric,
        max_length=asked + 1,
        evaluate_every=500,
        task_options={
            "max_target_length": output + 1,
            "label_smoothing": 0.0,
            "max_dev_items": 100,
        },
        seed=seed,
    )


def verify(
    problem: Problem, folder: Path, *, beams: Sequence[int], rows: int | None, easy: bool = False
) -> None:
    """Answer the test questions, and count those of which any answer is right.

    Args:
        problem: says what is right.
        folder: the files of `make`, with a run of `train`.
        beams: for each of these numbers, so many answers to each question.
        rows: of the test file. None: all.
        easy: of the easy direction, whose answers are right if they are what the easy way gives.
    """
    model = unmask.load(_run(folder, easy))
    test, known = _read(folder / "test.jsonl")[:rows], _read(folder / "train.jsonl")
    learned = {pair[not easy] for pair in known}
    asked, true = ([pair[side] for pair in test] for side in (easy, not easy))
    most = problem.longest[not easy] + 1
    found = {"greedy": [[text] for text in model.generate(asked, max_new_tokens=most)]}
    for n in beams:
        best = model.generate_candidates(asked, beams=n, n_best=n, max_new_tokens=most)
        found[f"beam {n}"] = [[one.text for one in some] for some in best]
    verdicts: dict[Pair, bool | None] = {}
    for how, answers in found.items():
        right, new, open_ = 0, 0, 0
        for question, truth, some in zip(asked, true, answers, strict=True):
            for text in some:
                if (question, text) not in verdicts:
                    same = text == truth  # which is what the easy way gave
                    verdict = same if easy else problem.right(question, text)
                    verdicts[question, text] = verdict
            good = [text for text in some if verdicts[question, text]]
            right += bool(good)
            new += bool(good) and not learned.intersection(good)
            open_ += not good and any(verdicts[question, text] is None for text in some)
        n, share = len(asked), right / len(asked)
        spread = math.sqrt(share * (1 - share) / n)
        undecided = f", {open_} not decided" if open_ else ""
        print(
            f"{how:8} {right} of {n} right ({share:.1%} +- {spread:.1%}), {new} of them by no "
            f"answer of the training file{undecided}"
        )
    for question, truth, some in list(zip(asked, true, found["greedy"], strict=True))[:5]:
        right = "right" if verdicts[question, some[0]] else "wrong"
        print(f"\nquestion  {question}\nanswer    {some[0]}  ({right})\nin file   {truth}")


def _run(folder: Path, easy: bool) -> Path:
    return folder / ("easy-run" if easy else "run")


def _read(path: Path) -> list[Pair]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(row["question"], row["answer"]) for row in rows]


def main(problem: Problem, description: str, given: Sequence[str] | None = None) -> None:
    """Run the steps of a problem that the command line names."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=("make", "train", "verify", "all"))
    parser.add_argument("--out", type=Path, default=Path("runs") / problem.name)
    parser.add_argument("--pairs", type=int, default=problem.pairs)
    parser.add_argument("--held-out", type=int, default=500, help="pairs of dev and of test")
    parser.add_argument("--processes", type=int, default=None, help="of make; by default all cores")
    parser.add_argument("--epochs", type=float, default=problem.epochs)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beams", default="5,10")
    parser.add_argument("--rows", type=int, default=None, help="test questions that are asked")
    parser.add_argument("--easy", action="store_true", help="learn the easy direction instead")
    args = parser.parse_args(given)
    if args.step in ("make", "all"):
        processes = args.processes or multiprocessing.cpu_count()
        make(
            problem, args.out, pairs=args.pairs, held_out=args.held_out, seed=args.seed,
            processes=processes,
        )  # fmt: skip
    if args.step in ("train", "all"):
        train(problem, args.out, epochs=args.epochs, seed=args.seed, easy=args.easy)
    if args.step in ("verify", "all"):
        beams = [int(n) for n in args.beams.split(",") if n]
        verify(problem, args.out, beams=beams, rows=args.rows, easy=args.easy)
