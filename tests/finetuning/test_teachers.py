"""Fine-tuning with a teacher of the same task, and with codes or masks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy_models as toy

from unmask.checkpoints.tensors import read_tensors
from unmask.cli.main import run
from unmask.compression.distillation.scores import TeacherScores
from unmask.compression.prune import layer_matrices
from unmask.finetuning import train_run as tuning_module
from unmask.jobs.compress import compress
from unmask.jobs.finetune import finetune

FAST: dict[str, Any] = {
    "epochs": 1.0, "batch_size": 16, "learning_rate": 3e-3, "terminal": None,
    "precision": "float32", "device": "cpu",
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "train": toy.write(tmp_path / "train.tsv", toy.texts(96, 1)),
        "dev": toy.write(tmp_path / "dev.tsv", toy.texts(40, 2)),
    }


class Killed(Exception):
    """The process is gone."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "more",
    [
        {"distill": ["soft:temperature=4", "hidden", "attention"]},
        {"distill": ["soft", "objective:weight=0"], "compression": ["qat:bits=2"]},
        {"compression": ["movement:fraction=0.5"]},
    ],
    ids=["layers", "soft and codes", "movement"],
)
def test_killed_and_resumed_run_is_bitwise_equal(
    more: dict[str, Any], files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    if "distill" in more:
        finetune(base, task="classify", out=tmp_path / "teacher", **files, **FAST)
        more |= {"teacher": tmp_path / "teacher"}
    whole = finetune(base, task="classify", out=tmp_path / "whole", **files, **FAST, **more)
    save = tuning_module._save_checkpoint

    def save_and_die(*args: Any, **options: Any) -> None:
        save(*args, **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(tuning_module, "_save_checkpoint", save_and_die)
        with pytest.raises(Killed):
            finetune(base, task="classify", out=tmp_path / "killed", **files, **FAST, **more)
    again = finetune(
        base, task="classify", out=tmp_path / "killed", resume=True, **files, **FAST, **more
    )
    assert again.run_results == whole.run_results
    a, b = (read_tensors(tmp_path / f / "model.safetensors") for f in ("whole", "killed"))
    assert [n for n in a if not torch.equal(a[n], b[n])] == []
    word = "distill (terms soft" if "distill" in more else "movement (fraction 0.5"
    assert f"compressed by {word}" in (tmp_path / "whole" / "README.md").read_text()
    if "movement" in str(more):
        zeros = [
            float((w == 0).float().mean())
            for w in layer_matrices(again.loaded_model.model).values()
        ]
        assert min(zeros) == pytest.approx(0.5, abs=0.01)


@pytest.mark.thorough
def test_compressed_teacher_in_bfloat16_is_run_once_with_store(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    finetune(base, task="classify", out=tmp_path / "teacher", **files, **FAST)
    compress(tmp_path / "teacher", method=["int8"], out=tmp_path / "int8")
    given = {"task": "classify", "teacher": tmp_path / "int8"} | files | FAST
    settings = "teacher:precision=bfloat16"
    without = finetune(base, distill=["soft", settings], **given)
    stored = ["soft", f"{settings},store={tmp_path / 'store'}"]
    first = finetune(base, distill=stored, **given)
    monkeypatch.setattr(TeacherScores, "_compute", None)  # it is not run again
    second = finetune(base, distill=stored, **given)
    runs = [run.loaded_model.model.own_weights() for run in (without, first, second)]
    assert [n for b in runs for n in b if not torch.equal(runs[0][n], b[n])] == []
    with pytest.raises(ValueError, match="was made with precision bfloat16, this run has float32"):
        finetune(base, distill=["soft", f"teacher:store={tmp_path / 'store'}"], **given)
    with pytest.raises(ValueError, match="store is of one run and its seed"):
        finetune(base, distill=stored, seeds=2, **given)


@pytest.mark.slow
def test_student_learns_from_teacher_alone(files: dict[str, Path], tmp_path: Path) -> None:
    base, long = toy.pretrained("bert", tmp_path / "base"), FAST | {"epochs": 25.0}
    teacher = finetune(base, task="classify", out=tmp_path / "teacher", **files, **long)
    assert teacher.best_run.dev["accuracy"] > 0.9
    rng = np.random.default_rng(0)
    noise = [(text, str(rng.choice(["no", "yes"]))) for text, _ in toy.texts(96, 3)]
    given = files | {"train": toy.write(tmp_path / "noise.tsv", noise)}
    student = finetune(
        base, task="classify", teacher=tmp_path / "teacher", distill=["soft", "objective:weight=0"],
        **given, **long,
    )  # fmt: skip
    assert student.best_run.dev["accuracy"] > 0.9


@pytest.mark.slow
def test_regression_teacher_is_learned_in_its_own_units(tmp_path: Path) -> None:
    rows = [(text, 110.0 if label == "yes" else 100.0) for text, label in toy.texts(160, 1)]
    train = toy.write(tmp_path / "train.tsv", [(text, str(x)) for text, x in rows[:120]])
    dev = toy.write(tmp_path / "dev.tsv", [(text, str(x)) for text, x in rows[120:]])
    base = toy.pretrained("bert", tmp_path / "base")
    more: dict[str, Any] = {"task": "regress", "dev": dev} | FAST | {"epochs": 30.0}
    teacher = finetune(base, train=train, out=tmp_path / "teacher", **more)
    assert teacher.best_run.dev["pearson"] > 0.9
    rng = np.random.default_rng(0)
    noise = [(text, f"{rng.normal(103, 4):.2f}") for text, _ in rows[:120]]
    student = finetune(
        base, train=toy.write(tmp_path / "noise.tsv", noise), teacher=tmp_path / "teacher",
        distill=["soft", "objective:weight=0"], **more,
    )  # fmt: skip
    assert student.best_run.dev["pearson"] > 0.9
    assert student.best_run.dev["mean_squared_error"] < 5


@pytest.mark.thorough
def test_incompatible_teacher_is_refused_in_one_line(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    other = [(text, f"{label}x") for text, label in toy.texts(40, 1)]
    wrong = toy.write(tmp_path / "other.tsv", other)
    finetune(base, task="classify", train=wrong, dev=wrong, out=tmp_path / "other", **FAST)
    finetune(base, task="classify", out=tmp_path / "teacher", **files, **FAST)
    line = [
        "finetune", str(base), "--task", "classify", "--train", str(files["train"]), "--dev",
        str(files["dev"]), "--epochs", "1", "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    for more, message in (
        (["--teacher", str(tmp_path / "other")], "in this order"),
        (["--teacher", str(base)], "the task no, yes, in this order"),
        (["--teacher", "nowhere"], "nowhere: no such folder"),
        (["--tune", "lora", "--compress", "qat"], "a model with adapters is not compressed"),
        (["--tune", "adamix", "--teacher", str(tmp_path / "teacher")], "a loss of its own"),
    ):
        assert run([*line, *more]) == 2
        assert message in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.thorough
def test_a_state_before_the_last_weights_are_pruned_is_not_the_best(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    score, n = tuning_module.score, iter(range(100))

    def falling(*args: Any) -> dict[str, float]:
        return {**score(*args), "accuracy": 1 - 0.01 * next(n)}

    monkeypatch.setattr(tuning_module, "score", falling)
    tuned = finetune(
        base, task="classify", evaluate_every=1, patience=1, **files, **FAST,
        compression=["gradual:fraction=0.5,start=0,end=0.6,interval=2"],
    )  # fmt: skip
    assert tuned.best_run.best_step == 4  # the first with half of the weights, of six
    zeros = [
        float((w == 0).float().mean()) for w in layer_matrices(tuned.loaded_model.model).values()
    ]
    assert zeros == pytest.approx([0.5] * len(zeros), abs=0.01)


@pytest.mark.parametrize(("own", "other"), [("first", "compare"), ("compare", "first")])
def test_teacher_that_reads_two_texts_otherwise_is_refused(
    own: str, other: str, files: dict[str, Path], tmp_path: Path
) -> None:
    rows = ["first\tsecond\tlabel", *(f"{a}\t{a}\tx\n{a}\tb\ty" for a in ("the king", "a fox"))]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(rows) + "\n")
    base = toy.pretrained("bert", tmp_path / "base")
    pairs: dict[str, Any] = {"task": "pairs", "train": path, "dev": path, **FAST}
    texts = {"text": ["first", "second"], "label": "label"}
    teacher = tmp_path / "teacher"
    finetune(base, out=teacher, task_options={"pooling": other}, **texts, **pairs)
    with pytest.raises(ValueError, match=f"was fine-tuned with pooling={other}, the student has"):
        finetune(
            base, out=tmp_path / "student", teacher=teacher, distill=["soft"],
            task_options={"pooling": own}, **texts, **pairs,
        )  # fmt: skip
    assert not (tmp_path / "student").exists()
