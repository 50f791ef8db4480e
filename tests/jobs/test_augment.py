"""Tables that a model makes of a task's table."""

import json
from pathlib import Path
from typing import Any

import pytest
import toy_models as toy

import unmask
from unmask.cli.main import run
from unmask.inference.pipeline import Pipeline
from unmask.tasks.kinds.generate import parse_generation_options
from unmask.tasks.metrics.generation import nearest_by_bleu

PAIRS = [("a cat runs", "the dog walks"), ("red sun", "blue moon"), ("one two", "three , four")]


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a generator that was fine-tuned for two steps, and one of another vocabulary."""
    folder = tmp_path_factory.mktemp("teachers")
    base = toy.pretrained("t5", folder / "base")
    unmask.finetune(
        base, task="generate", train=table(folder, PAIRS * 2), dev=table(folder, PAIRS, "dev.tsv"),
        out=folder / "t5", epochs=30.0, batch_size=8, max_length=40, learning_rate=1e-2,
        terminal=None, device="cpu", task_options={"max_target_length": 8},
    )  # fmt: skip
    return {"t5": folder / "t5", "base": base, "gpt2": toy.pretrained("gpt2", folder / "gpt2")}


def table(folder: Path, pairs: list[tuple[str, str]], name: str = "train.tsv") -> Path:
    lines = ["id\tsource\ttarget", *(f"{i}\t{a}\t{b}" for i, (a, b) in enumerate(pairs))]
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / name


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def hypotheses(teacher: Path, source: str, beams: int) -> list[str]:
    """Search as `unmask generate` does, with the prompt written out."""
    pipeline = unmask.load(teacher)
    assert isinstance(pipeline, Pipeline)
    assert pipeline.task is not None
    most = parse_generation_options(pipeline.task.options).max_target_length
    found = pipeline.generate_candidates(
        source, beams=beams, n_best=beams, max_new_tokens=most, length_penalty=1.0
    )
    return [one.text for one in found]


@pytest.mark.parametrize("interpolate", [False, True])
def test_targets_become_the_teacher_s_hypotheses(
    interpolate: bool, teachers: dict[str, Path], tmp_path: Path
) -> None:
    result = unmask.augment(
        teachers["t5"], method=f"outputs:beams=3,interpolate={interpolate}".lower(),
        train=table(tmp_path, PAIRS), out=tmp_path / "new.jsonl", device="cpu", terminal=None,
    )  # fmt: skip
    expected: list[dict[str, str]] = []
    for i, (source, reference) in enumerate(PAIRS):
        texts = [text for text in hypotheses(teachers["t5"], source, 3) if text.strip()]
        if texts:  # of others no target can be learned
            target = nearest_by_bleu(texts, [reference]) if interpolate else texts[0]
            expected.append({"id": str(i), "source": source, "target": target})
    assert rows(tmp_path / "new.jsonl") == expected
    assert (result.rows_read, result.rows_written) == (3, len(expected))


def test_the_nearest_hypothesis_has_the_most_n_grams_of_a_reference() -> None:
    references = ["the dog walks to the tree", "a dog goes"]
    texts = ["the cat", "the dog goes", "a dog goes", "a dog"]
    assert nearest_by_bleu(texts, references) == "a dog goes"
    assert nearest_by_bleu(["moon", "sun"], ["tree"]) == "moon"


def test_a_student_of_another_vocabulary_learns_outputs_for_sources_without_targets(
    teachers: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "sources.tsv").write_text(
        "source\n" + "a cat\nred sun very\n" * 6, encoding="utf-8"
    )
    arguments = [
        "augment", str(teachers["t5"]), "--method", "outputs:beams=2",
        "--train", str(tmp_path / "sources.tsv"), "--out", str(tmp_path / "new.jsonl"), "--quiet",
    ]  # fmt: skip
    assert run(arguments) == 0
    made = rows(tmp_path / "new.jsonl")
    assert 0 < len(made) <= 12
    assert set(made[0]) == {"source", "target"}
    unmask.finetune(
        teachers["gpt2"], task="generate", train=tmp_path / "new.jsonl", max_length=40,
        dev=table(tmp_path, PAIRS), epochs=1.0, terminal=None, device="cpu",
        task_options={"max_target_length": 8},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--method": "outputs:beam=3"}, "unknown key 'outputs.beam'; did you mean 'beams'"),
        ({"--method": "sequence"}, "--method must be one of outputs"),
        ({"--method": "outputs:beams=0"}, "beams must be at least 1, got 0"),
        ({"--out": "new.tsv"}, "new.tsv: the name of the new table must end in .jsonl"),
        ({"--out": "train.tsv"}, "train.tsv: the name of the new table must end in .jsonl"),
        ({"--out": "old.jsonl"}, "old.jsonl: exists already"),
        ({"--out": "none/new.jsonl"}, "there is no folder none"),
        ({"--train": "empty.tsv"}, "empty.tsv: has a header but no rows"),
        ({"--train": "sources.tsv", "--method": "outputs:interpolate=true"}, "no column 'target'"),
        ({"--method": "outputs:beams=100000"}, "100000 beams are more than the"),
        ({"model": "base"}, "must be fine-tuned with task = generate, got none"),
    ],
)
def test_wrong_tables_and_teachers_are_refused(
    change: dict[str, str],
    message: str,
    teachers: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path, PAIRS)
    (tmp_path / "old.jsonl").write_text("")
    (tmp_path / "empty.tsv").write_text("source\ttarget\n")
    (tmp_path / "sources.tsv").write_text("source\na cat\n")
    given = {"--method": "outputs:beams=2", "--train": "train.tsv", "--out": "new.jsonl"} | change
    model = teachers[given.pop("model", "t5")]
    words = [word for pair in given.items() for word in pair]
    assert run(["augment", str(model), *words, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "new.jsonl").exists()
