"""Pairs are made, learned and verified; what is held out is in no other file."""

import json
import random
from pathlib import Path

import inverse
import pytest
from inverse import Pair, Problem, make

import unmask.jobs.finetune  # noqa: F401  its default terminal is that of the import


def draw(rng: random.Random) -> Pair | None:
    letters = rng.choices("abcd", k=rng.randint(1, 4))
    return None if letters[0] == "d" else (" ".join(sorted(letters)), " ".join(letters))


def right(question: str, answer: str) -> bool:
    return " ".join(sorted(answer.split())) == question


TOY = Problem(name="toy", draw=draw, right=right, pairs=24, longest=(4, 4), epochs=2)


def rows(folder: Path, name: str) -> list[Pair]:
    lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["question"], row["answer"]) for row in map(json.loads, lines)]


@pytest.mark.thorough
def test_pairs_are_split_disjointly_and_independent_of_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in (1, 2):
        make(TOY, tmp_path / str(n), pairs=24, held_out=5, seed=3, processes=n)
    assert "jsonl: 24 pairs" in capsys.readouterr().out
    names = ("train", "dev", "test")
    found = [rows(tmp_path / "1", name) for name in names]
    assert found == [rows(tmp_path / "2", name) for name in names]
    assert [len(some) for some in found] == [24, 5, 5]
    questions = [question for some in found for question, _ in some]
    assert len(set(questions)) == len(questions)
    assert all(right(*pair) for some in found for pair in some)


def test_too_few_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="are too few to hold out 500 twice"):
        make(TOY, tmp_path, pairs=10, held_out=500, seed=0, processes=1)


@pytest.mark.thorough
def test_command_line_steps_run_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--out", str(tmp_path), "--held-out", "4"]
    inverse.main(TOY, "", ["make", *folder, "--processes", "1"])
    inverse.main(TOY, "", ["train", *folder])
    capsys.readouterr()
    inverse.main(TOY, "", ["verify", *folder, "--beams", "2", "--rows", "3"])
    output = capsys.readouterr().out.splitlines()
    assert output[0].startswith("greedy ")
    assert output[1].startswith("beam 2 ")
    assert all(" of 3 right (" in line for line in output[:2])
    shown = [line.split()[0] for line in output[2:] if line]
    assert shown == ["question", "answer", "in"] * 3


class Told:
    """A model whose answers are known."""

    def generate(self, prompts: list[str], **_: int) -> list[str]:
        return [{"a b": "b a", "a c": "c c", "a d": "d a"}[one] for one in prompts]


@pytest.mark.parametrize("easy", [False, True])
def test_answers_are_verified_not_compared(
    easy: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"train": [("a d", "d a")], "test": [("a b", "a b"), ("a c", "a c"), ("a d", "a d")]}
    for name, pairs in files.items():
        lines = [json.dumps({"question": q, "answer": a}) + "\n" for q, a in pairs]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    monkeypatch.setattr(inverse.unmask, "load", lambda folder: Told())
    inverse.verify(TOY, tmp_path, beams=(), rows=None, easy=easy)
    output = capsys.readouterr().out.splitlines()[0]
    if easy:  # of which only one answer is right
        assert output.startswith("greedy   0 of 3 right")
    else:
        assert output.startswith(
            "greedy   2 of 3 right (66.7% +- 27.2%), 1 of them by no answer of"
        )
