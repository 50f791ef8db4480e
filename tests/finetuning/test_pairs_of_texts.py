"""Texts for texts from random weights: two files, what is refused, beams, the mean of states."""

import lzma
import math
import re
from pathlib import Path

import pytest
import torch
import toy_models as toy

from unmask.batch import IGNORE_INDEX
from unmask.checkpoints import folder as checkpoints
from unmask.finetuning import train_run
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.options.derived import resolve_evaluation_interval
from unmask.finetuning.results.predict import predict_scores
from unmask.generation.decode import generate
from unmask.generation.settings import BeamSearch, GenerationConfig
from unmask.jobs.finetune import finetune
from unmask.tasks.all_kinds import TASK_KINDS, resolve_options
from unmask.tasks.kinds.generate import TextGenerationOptions
from unmask.tasks.readers.tables import read_table
from unmask.tasks.task import Task, TaskColumns, TaskExample

SHORT = {"terminal": None, "precision": "float32", "device": "cpu"}
ONE = TaskColumns(texts=("source",), label="target")


def pairs(folder: Path, n: int, seed: int) -> str:
    """Write two files: words, and each of them twice."""
    some = [text for text, _ in toy.texts(n, seed, most=4)]
    (folder / f"{seed}.src").write_text("".join(f"{text}\n" for text in some))
    twice = (" ".join(w for word in text.split() for w in (word, word)) for text in some)
    (folder / f"{seed}.tgt").write_text("".join(f"{text}\n" for text in twice))
    return f"{folder / f'{seed}.src'}+{seed}.tgt"


def make_formulation(family: str, **given):
    task = Task(
        task_kind="generate", columns=ONE, max_length=60, options=resolve_options("generate", given)
    )
    return formulate(task, toy.card(family), toy.tokenizer(family))


def test_parallel_files_are_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("eins\nzwei\n")
    (tmp_path / "a.en.xz").write_bytes(lzma.compress(b"one\ntwo\n"))
    for name in (f"{tmp_path}/a.de+a.en.xz", f"{tmp_path}/a.de+{tmp_path}/a.en.xz"):
        table = read_table(name)
        assert table.columns == ("source", "target")
        assert table.column("source") == ["eins", "zwei"]
        assert table.column("target") == ["one", "two"]
        assert table.location(1) == f"{tmp_path}/a.de:2"
    (tmp_path / "c++.jsonl").write_text('{"source": "a"}')
    assert len(read_table(tmp_path / "c++.jsonl")) == 1


@pytest.mark.parametrize(
    ("source", "target", "output"),
    [
        ("a\nb\n", "a\n", r"x\.src has 2 lines and .*x\.tgt 1; the lines must correspond"),
        ("a\nb\n", "a\n \n", r"x\.tgt:2: the line is empty"),
        ("a\n\nb\n", "a\nb\nc\n", r"x\.src:2: the line is empty"),
        ("", "", r"x\.src: the file is empty"),
    ],
)
def test_files_of_different_length_or_kind_are_refused(source, target, output, tmp_path) -> None:
    (tmp_path / "x.src").write_text(source)
    (tmp_path / "x.tgt").write_text(target)
    with pytest.raises(ValueError, match=output):
        read_table(f"{tmp_path}/x.src+x.tgt")


def test_missing_second_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.src").write_text("a\n")
    with pytest.raises(FileNotFoundError, match=r"x\.tgt: no such file, which .*x\.src\+x\.tgt"):
        read_table(f"{tmp_path}/x.src+x.tgt")


@pytest.mark.parametrize(
    ("rows", "output"),
    [
        ("a\tb\nc\td\te\n", "p.tsv:3: 3 fields, but there are 2 columns ('source', 'target')"),
        ("a\tb\nc\n", "p.tsv:3: 1 field, but there are 2 columns ('source', 'target')"),
        ("a\tb\n \td\n", "p.tsv:3: the source is empty"),
        ("a\tb\nc\t \n", "p.tsv:3: the target is empty"),
    ],
)
@pytest.mark.parametrize("which", ["train", "dev"])
def test_mistake_in_parallel_files_is_reported_with_line(
    rows: str, output: str, which: str, tmp_path: Path
) -> None:
    (tmp_path / "good.tsv").write_text("source\ttarget\na\tb\nc\td\n")
    (tmp_path / "p.tsv").write_text(f"source\ttarget\n{rows}")
    files = {"train": tmp_path / "good.tsv", "dev": tmp_path / "good.tsv"}
    files[which] = tmp_path / "p.tsv"
    with pytest.raises(ValueError, match=re.escape(output)) as caught:
        finetune("transformer-mini", task="generate", **files, **SHORT)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_truncated_targets_are_counted(family: str) -> None:
    one = make_formulation(family, max_target_length=4)
    items = [TaskExample(texts=("a",), label=(t,)) for t in ("a", "a a a a a a a a", "a cat")]
    found = one.build_inputs(items)
    assert [q.target_truncated for q in found][:2] == [False, True]
    assert int((found[1].example.targets != IGNORE_INDEX).sum()) == 4
    assert not any(q.target_truncated for q in one.build_inputs([TaskExample(texts=("a",))]))


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_targets_are_generated_with_beams(family: str) -> None:
    one = make_formulation(family, max_target_length=6, beams=3, length_penalty=0.6)
    model = toy.card(family, dropout=0.0, attention_dropout=0.0)
    model = model.build(heads_for_task(one.task, model)).initialize(3).eval()
    some = [TaskExample(texts=(text,)) for text, _ in toy.texts(6, 5)]
    questions = one.build_inputs(some)
    by = BeamSearch(beams=3, length_penalty=0.6)
    read_ = [q.example.inputs if family == "gpt2" else q.example.source for q in questions]
    for ids, predictions in zip(read_, predict_scores(one, model, questions).scores, strict=True):
        (expected,) = generate(
            model, [ids.tolist()], one.special_ids, GenerationConfig(strategy=by, max_new_tokens=6)
        )
        assert predictions.token_ids.tolist() == expected
    with pytest.raises(ValueError, match="beams must be at least 1"):
        TextGenerationOptions(beams=0)


def test_transformer_smooths_labels_by_default() -> None:
    from unmask.zoo.catalogue import MODELS

    preset = MODELS["transformer-mini"]
    for given, smoothing in (({}, 0.1), ({"label_smoothing": 0.0}, 0.0)):
        task = Task(task_kind="generate", columns=ONE, options=resolve_options("generate", given))
        assert heads_for_task(task, preset)["language"].label_smoothing == smoothing


def test_checkpoint_average_is_computed_in_float64() -> None:
    torch.manual_seed(0)
    states = [{"a": torch.randn(50, 30) * 1e3, "b": torch.randn(7)} for _ in range(5)]
    found = checkpoints.average_tensors(states, ["a", "b"])
    for name, x in found.items():
        exact = torch.stack([state[name].double() for state in states]).mean(0)
        assert x.dtype == torch.float32
        assert torch.equal(x, exact.float())
    with pytest.raises(ValueError, match="different models: b differs"):
        checkpoints.average_tensors([states[0], {"a": states[1]["a"]}], ["a", "b"])
    with pytest.raises(ValueError, match="no state"):
        checkpoints.average_tensors([], ["a"])


def test_too_few_checkpoints_are_refused(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoints.write_checkpoint(
            tmp_path, step, {"model": {"a": torch.ones(2) * step}}, {}, n_kept=9
        )
    assert [one.step for one in checkpoints.last_checkpoints(tmp_path, 2)] == [2, 3]
    with pytest.raises(ValueError, match="has 3 checkpoints, but the average needs 5"):
        checkpoints.last_checkpoints(tmp_path, 5)
    with pytest.raises(ValueError, match="has 0 checkpoints"):
        checkpoints.last_checkpoints(tmp_path / "none", 2)
    (tmp_path / "checkpoints" / "step-00000002" / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match="damaged, cannot be averaged"):
        checkpoints.last_checkpoints(tmp_path, 2)


def test_too_few_evaluations_are_refused() -> None:
    tuning = FinetuneConfig(
        base="b", task="generate", train="t", average=5, epochs=2.0, evaluate_every=3
    )
    assert resolve_evaluation_interval(tuning, 8).evaluate_every == 3
    with pytest.raises(ValueError, match="one every 3 of 14 steps there are 4"):
        resolve_evaluation_interval(tuning, 7)


@pytest.mark.thorough
def test_last_states_of_a_run_are_averaged(tmp_path: Path, monkeypatch) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    real = train_run._trainable_tensors

    def score(formulation, model, *more):
        seen.append({n: p.detach().clone() for n, p in model.named_parameters()})
        return {"answer_f1": 0.0, "exact_match": 0.0, "loss": 10.0 - len(seen)}  # ever better

    monkeypatch.setattr(train_run, "score", score)
    tuned = finetune(
        toy.pretrained("t5", tmp_path / "base"),
        task="generate",
        train=pairs(tmp_path, 24, 1),
        dev=pairs(tmp_path, 8, 2),
        out=tmp_path / "run",
        batch_tokens=60,
        epochs=2.0,
        learning_rate=1e-2,
        evaluate_every=2,
        average=3,
        metric="answer_f1",
        task_options={"max_target_length": 12},
        **SHORT,
    )
    assert real is train_run._trainable_tensors
    assert len(seen) > 4
    *_, a, b, c, both = seen  # the last evaluation is at the last step
    kept = tuned.loaded_model.model.own_weights()
    assert any(not torch.equal(a[n], c[n]) for n in kept)
    for name, x in kept.items():
        mean = torch.stack([s[name].double() for s in (a, b, c)]).mean(0).float()
        assert torch.equal(both[name], mean)
        assert torch.equal(x, mean)


@pytest.mark.thorough
def test_translation_is_learned_from_random_weights(tmp_path: Path) -> None:
    tuned = finetune(
        "transformer-mini", task="generate", train=pairs(tmp_path, 80, 1),
        dev=pairs(tmp_path, 12, 2), epochs=6.0, learning_rate=3e-3, dropout=0.0,
        batch_tokens=200, task_options={"max_target_length": 24, "max_dev_items": 1}, **SHORT,
    )  # fmt: skip
    assert tuned.best_run.dev["loss"] < 0.65 * math.log(tuned.loaded_model.model.vocab_size)
    assert tuned.config.batch_size is None
    assert any(re.match(r"dev BLEU [\d.]+ \(nrefs:1\|case:mixed", note) for note in tuned.notes)
    assert any(note.startswith("dev chrF ") for note in tuned.notes)


@pytest.mark.parametrize(
    ("change", "output"),
    [
        ({"batch_size": 8, "batch_tokens": 90}, "give one of them"),
        ({"average": 1}, "average must be at least 2"),
        ({"average": 3, "patience": 2}, "patience may stop a run early"),
        ({"warmup": 1.5}, "or a whole number of steps, got 1.5"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1"),
    ],
)
def test_incompatible_options_are_refused(change: dict, output: str) -> None:
    with pytest.raises(ValueError, match=output):
        FinetuneConfig(base="b", task="generate", train="t", **change)


def test_averaging_needs_an_output_folder() -> None:
    with pytest.raises(ValueError, match="name a folder with out"):
        finetune("transformer-mini", task="generate", train="none.tsv", average=3, **SHORT)


def test_generation_figures_carry_metric_signature() -> None:
    task = Task(
        task_kind="generate", columns=ONE, max_length=60, options=resolve_options("generate", {})
    )
    found = TASK_KINDS["generate"].metric_signatures(task, [("a b c d",)], ["a b c d"])
    assert found[0].startswith("BLEU 100.00 (nrefs:1|")
    assert found[1].startswith("chrF 100.00 (nrefs:1|")
