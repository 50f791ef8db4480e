"""Odd data are learned from, wrong ones are one line that names the place."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import toy_models as toy

from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.jobs.finetune import finetune

FAST = {
    "epochs": 2.0,
    "batch_size": 16,
    "learning_rate": 3e-3,
    "terminal": None,
    "precision": "float32",
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "train": toy.write(tmp_path / "train.tsv", toy.texts(160, 1)),
        "dev": toy.write(tmp_path / "dev.tsv", toy.texts(40, 2)),
    }


def quick(base: Path | str, files: dict[str, Path], **more) -> FinetunedModel:
    return finetune(base, **({"task": "classify", "device": "cpu"} | files | FAST | more))


@pytest.mark.parametrize("n", [2, 3, 16, 17])
def test_few_rows_are_enough(n: int, tmp_path: Path) -> None:
    rows = [("good cat", "yes"), ("bad cat", "no"), *toy.texts(n - 2, 1)]
    files = {
        "train": toy.write(tmp_path / "a.tsv", rows),
        "dev": toy.write(tmp_path / "b.tsv", rows[:1]),
    }
    tuned = quick(toy.pretrained("bert", tmp_path / "base"), files, epochs=1.0)
    assert set(tuned.best_run.dev) >= {"accuracy", "loss"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", toy.FAMILIES)
def test_odd_texts_are_trained_on_without_error(family, tmp_path: Path, caplog) -> None:
    odd = ["", " ", "\u200b", "é" * 9, "good " * 700, "🙂", "[MASK] </s> <|endoftext|>", "a\u0301"]
    rows = [(text, ("no", "yes")[i % 2]) for i, text in enumerate(odd * 3)]
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in rows))
    base = toy.pretrained(family, tmp_path / "base")
    tuned = quick(base, {"train": path, "dev": path}, epochs=1.0, max_length=64)
    assert any("3 of 24 training texts have more than 64 tokens" in note for note in tuned.notes)
    assert any("odd.jsonl: 6 of 24 texts are empty" in note for note in tuned.notes)
    assert "odd.jsonl: 6 of 24 texts are empty" in caplog.text  # though no progress is shown


@pytest.mark.trials("mistakes")
@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("train", "dev", "more", "message"),
    [
        (
            "text\tlabel\na\tx\nb\tx\n",
            "text\tlabel\na\tx\n",
            {},
            r"train\.tsv: only one label, 'x'",
        ),
        ("text\tlabel\na\tx\nb\ty\n", "text\tlabel\na\tz\n", {}, r"dev\.tsv:2: label 'z'"),
        ("text\tlabel\na\tx\nb\ty\n", "text\tclass\na\tx\n", {}, r"dev\.tsv: no column 'label'"),
        ("text\tlabel\na\tx\nb\n", "text\tlabel\na\tx\n", {}, r"train\.tsv:3: 1 field"),
        ("text\tlabel\na\tx\nb\ty\n", "", {}, r"dev\.tsv: the file is empty"),
        ("a\tb\n1\t2\n", "a\tb\n1\t2\n", {}, r"train\.tsv: which column holds the text"),
        (
            "text\tlabel\na\tx\nb\ty\n",
            "text\tlabel\na\tx\n",
            {"max_length": 2},
            "max_length must be at least",
        ),
        (
            "text\tlabel\na\tx\nb\ty\n",
            "text\tlabel\na\tx\n",
            {"max_length": 999},
            "max_length must be at most",
        ),
        (
            "text\tlabel\na\tx\nb\ty\n",
            "text\tlabel\na\tx\n",
            {"metric": "x"},
            "metric must be one of",
        ),
        (
            "text\tlabel\na\tx\nb\ty\n",
            "text\tlabel\na\tx\n",
            {"seeds": 0},
            "seeds must be at least 1",
        ),
        ("text\tlabel\na\tx\nb\ty\n", "text\tlabel\na\tx\n", {"seed": -1}, "seed must be"),
        (
            "text\tlabel\na\tx\nb\ty\n",
            "text\tlabel\na\tx\n",
            {"learning_rate": 0.0},
            "learning_rate must be above 0",
        ),
        ("text\tlabel\na\tx\nb\ty\n", "text\tlabel\na\tx\n", {"dropout": 1.0}, "dropout must be"),
        (
            "text\tlabel\na\tx\nb\ty\n",
            "text\tlabel\na\tx\n",
            {"task": "regress"},
            "must be a number",
        ),
        *(
            ("text\tlabel\na\tx\nb\ty\n", "text\tlabel\na\tx\n", more, message)
            for more, message in (
                ({"tune": "lora:target_modules=nope"}, "'nope' matches no linear map"),
                ({"tune": "lora:rank=65"}, r"rank must be at most 32, as backbone\..* is, got 65"),
                (
                    {"tune": "lora:alpha=nan"},
                    "lora:alpha=nan: alpha must be above 0 and finite, got",
                ),
                ({"tune": "top:n_layers=99"}, "top tunes at most 2 layers"),
                ({"tune": "full:reinitialize_layers=99"}, "reinitialize_layers must be at most 2"),
                (
                    {"tune": "prompt:n_virtual_tokens=100000"},
                    "100000 learned tokens leave no room in base",
                ),
                ({"tune": "prompt:init_text="}, "init_text '' has no tokens"),
                ({"weight_decay": math.nan}, "weight_decay must be at least 0, got nan"),
                ({"weight_decay": math.inf}, "weight_decay must be a finite number, got inf"),
                ({"epochs": math.inf}, "epochs must be at most 1,000,000, got inf"),
                ({"epochs": 1e300}, "epochs must be at most 1,000,000, got 1e[+]300"),
                ({"text": "label"}, r"train\.tsv: column 'label' would be read as text and as som"),
                ({"dev": ""}, "dev must name a file, got ''"),
                ({"dev": None}, r"train\.tsv: 2 labels in 2 rows: too many labels"),
            )
        ),
        (
            "text\tlabel\nжж ж\tx\nщщ\ty\n",
            "text\tlabel\na\tx\n",
            {},
            "100% of 3 tokens of the training texts are unknown to the tokenizer, at most 90% may",
        ),
        ("text\tlabel\n \tx\n \ty\n", "text\tlabel\na\tx\n", {}, "train.*: all 2 texts are empty"),
        (
            "x\tlabel\na\tx\nb\ty\n",
            "",
            {},
            r"name it by text \(--text\), or name all columns of a file",
        ),
    ],
)
def test_each_mistake_is_one_line_and_leaves_no_folder(train, dev, more, message, tmp_path) -> None:
    (tmp_path / "train.tsv").write_text(train)
    (tmp_path / "dev.tsv").write_text(dev)
    files = {"train": tmp_path / "train.tsv", "dev": tmp_path / "dev.tsv"}
    base = toy.pretrained("bert", tmp_path / "base")
    with pytest.raises(ValueError, match=message) as caught:
        quick(
            base,
            files,
            out=tmp_path / "out",
            **({"label": "label"} if "label" in train else {}),
            **more,
        )
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_automatic_choices_are_reported_before_the_first_step(files, tmp_path: Path) -> None:
    more = {"tune": "lora:rank=2", "rows": 60, "epochs": None, "max_length": 32}
    base = toy.pretrained("bert", tmp_path / "base")
    with (tmp_path / "said").open("w") as terminal:
        tuned = quick(base, files, terminal=terminal, **more)
    n, of = (
        tuned.best_run.n_trainable_parameters,
        sum(p.numel() for p in tuned.loaded_model.model.parameters()),
    )
    line = (
        "rows 60, epochs 20, batch size 16, steps 80, learning rate 0.003, max length 32, "
        f"trainable parameters {n:,} of {of:,}"
    )
    lines = (tmp_path / "said").read_text().splitlines()
    (at,) = (i for i, one in enumerate(lines) if one.startswith(line))
    assert not any("loss" in one for one in lines[:at])
    assert lines[at + 1].startswith(" 1/80  loss")
    assert "Architecture" not in repr(tuned)


@pytest.mark.thorough
def test_value_of_wrong_type_is_named() -> None:
    code = """
from unmask.finetuning.config import FinetuneConfig
for wrong in ({"epochs": "1"}, {"seeds": 1.5}, {"labels": (1, 2)}, {"baseline": "yes"}):
    try:
        FinetuneConfig(base="x", task="classify", train="y.tsv", **wrong)
    except ValueError as error:
        print(error)
"""  # in another process: the types of this one are checked as tests are
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "epochs must be float, got '1'",
        "seeds must be int, got 1.5",
        "labels[0] must be str, got 1",
        "baseline must be bool, got 'yes'",
    ]


def test_output_folder_with_other_files_is_left_alone(files, tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    with pytest.raises(ValueError, match="holds files, but not a run"):
        quick(base, files, out=base)
    with pytest.raises(ValueError, match="is a file; a run needs a folder"):
        quick(base, files, out=files["dev"])
    (base / "unmask.json").write_text('{"format": 2, "kind": "pretrain", "recipe": {}, "data": {}}')
    with pytest.raises(ValueError, match="is a run of pretrain"):
        quick(base, files, out=base, resume=True)
    with pytest.raises(FileNotFoundError, match=r"none\.tsv: no such file"):
        quick(base, files | {"train": tmp_path / "none.tsv"})


def test_optimizer_that_does_not_fit_into_memory_is_refused(
    files, tmp_path: Path, monkeypatch
) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    monkeypatch.setattr(
        "unmask.training.device.activation_memory.free_memory_bytes", lambda _: 10_000
    )
    with pytest.raises(
        ValueError, match=r"memory: gradients and optimizer state of .* GiB are free"
    ):
        quick(base, files, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_diverged_model_is_an_error_not_a_score(files, tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match="not finite"):
        quick(toy.pretrained("bert", tmp_path / "base"), files, learning_rate=1000.0)


def test_run_without_dev_file_holds_out_some_rows(files, tmp_path: Path) -> None:
    del files["dev"]
    tuned = quick(toy.pretrained("bert", tmp_path / "base"), files, epochs=0.1)
    assert any("16 of the 160 training rows are held out" in note for note in tuned.notes)
