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


@pytest.mark.thorough
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


@pytest.mark.thorough
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


ROWS = [("a cat runs very fast", "yes"), ("the red sun 7 it's", "no"), ("moon", "no")]
BUNDLED = "unmask-mini-en"


def augmented(out: Path, method: str, header: str = "text\tlabel", **more: Any) -> Any:
    train = toy.write(out.with_suffix(".tsv"), more.pop("rows", ROWS), header)
    unmask.augment(
        BUNDLED, method=method, train=train, out=out, device="cpu", terminal=None, **more
    )  # fmt: skip
    return rows(out)


def test_words_are_replaced_by_predictions_in_their_places(tmp_path: Path) -> None:
    made = augmented(tmp_path / "a.jsonl", "words:copies=6,probability=1.0,candidates=3")
    pipeline = unmask.load(BUNDLED)
    allowed: dict[str, list[set[str]]] = {}
    for text, _ in ROWS:
        parts = text.split()
        allowed[text] = []
        for i, word in enumerate(parts):
            masked = " ".join([*parts[:i], "[MASK]", *parts[i + 1 :]])
            best = [c.text for c in pipeline.fill(masked, top_k=9).blanks[0] if c.text.isalpha()]
            allowed[text].append(set(best[:3]) if word.isalpha() else {word})
    originals = [i for i, row in enumerate(made) if row["text"] in allowed]
    assert [(made[i]["text"], made[i]["label"]) for i in originals] == ROWS
    n = 0
    for start, end in zip(originals, [*originals[1:], len(made)], strict=True):
        for row in made[start + 1 : end]:
            words = row["text"].split()
            assert row["label"] == made[start]["label"]
            sets = allowed[made[start]["text"]]
            assert all(word in some for word, some in zip(words, sets, strict=True))
            n += 1
    assert n > 6


@pytest.mark.thorough
def test_copies_depend_on_the_seed_alone_and_are_learned(
    tmp_path: Path,
) -> None:
    header, pairs = "id\tsentence1\tsentence2\tlabel", [("a", "a cat", "red sun", "yes")] * 8
    pairs += [("b", "the dog very", "blue", "no")] * 8
    found = [
        augmented(tmp_path / f"{i}.jsonl", "words:copies=2", header, rows=pairs, seed=seed)
        for i, seed in enumerate((0, 0, 1))
    ]
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert {row["id"] for row in found[0]} == {"a", "b"}
    for name in ("sentence1", "sentence2"):
        assert len({row[name] for row in found[0]}) > 2
    unmask.finetune(
        BUNDLED, task="pairs", train=tmp_path / "0.jsonl", epochs=1.0, terminal=None,
        dev=toy.write(tmp_path / "dev.tsv", pairs, header), device="cpu",
    )  # fmt: skip


def test_words_of_several_tokens_are_replaced_by_neighbors(
    tmp_path: Path,
) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("3 2\nxylophonist 1 0\nviolinist 1 0.1\nthe 0 1\n", encoding="utf-8")
    given: list[tuple[str, str]] = [("Xylophonist", "yes"), ("zzzyx", "no")]
    method = f"words:copies=1,probability=1.0,candidates=1,vectors={vectors}"
    made = augmented(tmp_path / "a.jsonl", method, rows=given)
    assert [row["text"] for row in made] == ["Xylophonist", "violinist", "zzzyx"]


@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        ("words:copies=0", [], "copies must be at least 1, got 0"),
        ("words:probability=1.5", [], "probability must be above 0 and at most 1, got 1.5"),
        ("words:candidates=100000", [], "candidates must be at most the"),
        ("words:vectors=none.txt", [], "none.txt"),
        ("words", ["--label", "label"], "label is of outputs"),
        ("words", ["--text", "title"], "no column 'title'"),
        ("words", ["GPT2"], "only reads forward and does not fill blanks"),
    ],
)
def test_words_that_cannot_be_replaced_are_refused(
    method: str,
    more: list[str],
    message: str,
    teachers: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train, out = toy.write(tmp_path / "train.tsv", ROWS), tmp_path / "new.jsonl"
    model = teachers["gpt2"] if more == ["GPT2"] else BUNDLED
    line = ["augment", str(model), "--method", method, "--train", str(train), "--out", str(out)]
    assert run([*line, "--quiet", *(word for word in more if word != "GPT2")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()
