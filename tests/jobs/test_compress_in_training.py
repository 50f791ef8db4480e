"""Teachers and compression in runs, from their options to their folders."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import make
from toy_text import corpus

import unmask
from unmask.batch import Batch
from unmask.checkpoints.tensors import read_tensors
from unmask.cli.main import run
from unmask.compression.distillation.scores import TeacherScores
from unmask.compression.prune import layer_matrices

SMALL: list[str | dict[str, Any]] = [
    "architecture={d_model=16,d_ff=32,n_layers=1,n_heads=2}",
    "sequence_length=32",
    "batch_tokens=256",
    "dropout=0.1",
    "evaluate_every=4",
    "checkpoint_every=4",
    "log_every=2",
    "dev_fraction=0.1",
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(corpus(20).splitlines()), encoding="utf-8")
    return path


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    make("bert", tmp_path / "teacher", "BertForMaskedLM", hidden_size=32)
    return tmp_path / "teacher"


def pretrain(text: Path, out: Path, **more: Any) -> unmask.Pipeline:
    given = {"data": text, "steps": 8, "quiet": True, "changes": SMALL} | more
    return unmask.pretrain("bert-tiny", out=out, **given)


STUDY = {
    "teacher": {"distill": ["soft", "hidden", "objective:weight=0.5"]},
    "codes": {"compression": ["qat:bits=4,group=16"]},
    "everything": {
        "compression": ["movement:fraction=0.5,start=0", "qat:bits=8"],
        "distill": ["relations:kinds=query+key+value,heads=2"],
    },
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", STUDY)
def test_run_is_resumed_and_loaded_as_any_other(
    name: str, text: Path, teacher: Path, tmp_path: Path
) -> None:
    more = dict(STUDY[name])
    if "distill" in more:
        more |= {"teacher": teacher}
    else:
        more |= {"tokenizer": teacher}
    whole = pretrain(text, tmp_path / "whole", **more)
    assert not list(whole.model.training_modules.parameters())
    logged = (tmp_path / "whole" / "log.jsonl").read_text()
    if name == "teacher":
        assert {"masked_soft", "hidden_states"} <= set(json.loads(logged.splitlines()[0])["parts"])
    # From a checkpoint in the middle on.
    broken = tmp_path / "broken"
    shutil.copytree(tmp_path / "whole", broken)
    for path in (broken / "checkpoints").glob("step-00000008"):
        shutil.rmtree(path)
    facts = json.loads((broken / "unmask.json").read_text())
    facts["finished"] = False
    facts.pop("files")
    (broken / "unmask.json").write_text(json.dumps(facts))
    unmask.pretrain(out=broken, resume=True, quiet=True)
    a, b = (read_tensors(tmp_path / f / "model.safetensors") for f in ("whole", "broken"))
    assert a.keys() == b.keys()
    assert [n for n in a if not torch.equal(a[n], b[n])] == []
    assert [one["method"] for one in facts["compression"]] == {
        "teacher": ["distill"], "codes": ["qat"], "everything": ["distill", "movement", "qat"],
    }[name]  # fmt: skip
    methods = [one["method"] for one in facts["compression"]]
    assert f"- compressed by: {methods[0]} (" in (tmp_path / "whole" / "README.md").read_text()
    if name == "teacher":
        return
    loaded = unmask.load(tmp_path / "whole")
    if name == "everything":
        zeros = [float((w == 0).float().mean()) for w in layer_matrices(loaded.model).values()]
        assert min(zeros) >= 0.5
    result = unmask.compress(tmp_path / "whole", method=["packed"], out=tmp_path / "packed")
    assert result.bytes_after < result.bytes_before
    packed = unmask.load(tmp_path / "packed").model.own_weights()
    for name_, w in loaded.model.own_weights().items():
        torch.testing.assert_close(packed[name_], w, rtol=2e-3, atol=2e-3 * float(w.abs().max()))


@pytest.mark.thorough
def test_second_run_of_store_does_not_run_the_teacher(
    text: Path, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soft = "soft:top_k=8,tokens=all"
    more: dict[str, Any] = {
        "teacher": teacher, "distill": [soft, f"teacher:store={tmp_path / 'store'}"]
    }  # fmt: skip
    pretrain(text, tmp_path / "without", teacher=teacher, distill=[soft])
    pretrain(text, tmp_path / "first", **more | {"steps": 5})  # the second takes three more
    computed: list[Batch] = []
    compute = TeacherScores._compute

    def count(self: TeacherScores, batch: Batch) -> Any:
        computed.append(batch)
        return compute(self, batch)

    monkeypatch.setattr(TeacherScores, "_compute", count)
    pretrain(text, tmp_path / "second", **more)
    assert 0 < len(computed) <= 3 * 4
    computed.clear()
    pretrain(text, tmp_path / "third", **more)
    assert computed == []
    runs = ("without", "second", "third")
    a, *others = (read_tensors(tmp_path / f / "model.safetensors") for f in runs)
    assert [n for b in others for n in a if not torch.equal(a[n], b[n])] == []


@pytest.mark.thorough
def test_store_of_another_run_is_refused(
    text: Path, teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [
        "pretrain", "bert-tiny", "--data", str(text), "--steps", "2", "--quiet",
        "--distill", "soft:top_k=8", "--distill", f"teacher:store={tmp_path / 'store'}",
        *(word for change in SMALL for word in ("--set", str(change))),
    ]  # fmt: skip
    make("bert", tmp_path / "other", "BertForMaskedLM", hidden_size=16)
    given = ["--teacher", str(teacher)]
    assert run([*line, *given, "--out", str(tmp_path / "a")]) == 0
    capsys.readouterr()
    text.with_name("more.txt").write_text(text.read_text() + "\n\nthe end of it all .")
    for more, message in (
        (["--teacher", str(tmp_path / "other")], "was made with teachers"),
        ([*given, "--seed", "1"], "was made with seed 0, this run has 1"),
        ([*given, "--set", "batch_tokens=128"], "was made with data"),
        ([*given, "--data", str(text.with_name("more.txt"))], "was made with data"),
    ):
        assert run([*line, *more, "--out", str(tmp_path / "b")]) == 2, message
        error = capsys.readouterr().err.strip()
        assert message in error.splitlines()[-1]


@pytest.mark.thorough
def test_codes_of_transposed_layout_are_packed_losslessly(text: Path, tmp_path: Path) -> None:
    make("gpt2", tmp_path / "base")
    unmask.pretrain(
        "gpt2-mini", data=text, init_from=tmp_path / "base", out=tmp_path / "run", steps=2,
        quiet=True, compression=["qat:bits=4,group=8"],
        changes=["sequence_length=32", "batch_tokens=256"],
    )  # fmt: skip
    unmask.compress(tmp_path / "run", method=["packed"], out=tmp_path / "packed")
    packed = unmask.load(tmp_path / "packed").model.own_weights()
    for name, w in unmask.load(tmp_path / "run").model.own_weights().items():
        torch.testing.assert_close(packed[name], w, rtol=2e-3, atol=2e-3 * float(w.abs().max()))
    record = json.loads((tmp_path / "packed" / "packed.json").read_text())["tensors"]
    assert record["transformer.h.0.attn.c_attn.weight"]["transposed"]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--teacher", "nowhere"], "nowhere: no such folder"),
        (["--distill", "soft"], "distill needs a teacher"),
        (
            ["--teacher", "TEACHER", "--distill", "hiden"],
            "distill must be one of soft, hard, cosine",
        ),
        (["--teacher", "TEACHER", "--distill", "cosine"], "16 dimensions, the teacher's 32"),
        (["--teacher", "OTHER", "--tokenizer", "TEACHER"], "has another vocabulary"),
        (["--teacher", "TEACHER", "--distill", "soft:top_k=999"], "top_k must be at most the 100"),
        (["--teacher", "TEACHER", "--distill", "soft:topk=9"], "unknown key 'soft.topk'"),
        (["--teacher", "TEACHER", "--distill", "teacher:store=s"], "are too many to be kept"),
        (["--compress", "qat:bits=5"], "bits must be one of 1, 1.58, 2, 3, 4, 8, got 5"),
        (["--compress", "qat", "--compress", "qat"], "at most one method that prunes"),
        (["--compress", "movement:fraction=1.5"], "fraction must be from 0 to below 1, got 1.5"),
        (["--compress", "halve"], "compress must be one of qat, gradual, movement, keep_zeros"),
    ],
)
def test_invalid_option_is_one_line(
    options: list[str],
    message: str,
    text: Path,
    teacher: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make("gpt2", tmp_path / "other")
    words = {"TEACHER": str(teacher), "OTHER": str(tmp_path / "other")}
    given = [words.get(word, word) for word in options]
    small = [x for change in SMALL for x in ("--set", str(change))]
    out = tmp_path / "run"
    line = ["pretrain", "bert-tiny", "--data", str(text), "--steps", "4", "--out", str(out)]
    assert run([*line, *small, *given]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error.splitlines()[-1]
    assert not out.exists()


def test_packing_needs_codes(teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="packed: the model was not trained with codes"):
        unmask.compress(teacher, method=["packed"], out=tmp_path / "out")


@pytest.mark.thorough
def test_pruning_schedule_fixes_the_number_of_steps(text: Path, tmp_path: Path) -> None:
    constant = [*SMALL, "schedule={kind='Constant',warmup=0}"]
    for name, methods in (("codes", ["qat:bits=8"]), ("masks", ["gradual:fraction=0.5"])):
        pretrain(text, tmp_path / name, compression=methods, changes=constant, vocab_size=150)
    unmask.pretrain(out=tmp_path / "codes", resume=True, steps=10, quiet=True)
    with pytest.raises(ValueError, match="its compression depends on that number"):
        unmask.pretrain(out=tmp_path / "masks", resume=True, steps=10, quiet=True)
