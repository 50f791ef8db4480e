"""Fine-tuning: it learns, its steps equal the reference library's, its record is complete."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy
from reference import bert, gpt2, saved
from torch.nn import functional as F

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.config import from_dict
from unmask.finetuning import run as tuning_module
from unmask.finetuning import train_run
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.finetuning.results.predict import predict, read_task
from unmask.finetuning.results.score import score_file
from unmask.jobs.finetune import finetune
from unmask.reports.report_data import FinetuningResults, read_report_data

SHORT = {
    "epochs": 1.0, "batch_size": 16, "learning_rate": 3e-3, "terminal": None,
    "precision": "float32", "device": "cpu",
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "train": toy.write(tmp_path / "train.tsv", toy.texts(240, 1, 1, 5)),
        "dev": toy.write(tmp_path / "dev.tsv", toy.texts(60, 2, 1, 5)),
    }


def quick(base: Path | str, files: dict[str, Path], **more) -> FinetunedModel:
    return finetune(base, **({"task": "classify"} | files | SHORT | more))


def log_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", toy.FAMILIES)
def test_every_family_learns_classification(family: str, files, tmp_path: Path) -> None:
    base = toy.pretrained(family, tmp_path / "base", dropout=0.0, attention_dropout=0.0)
    tuned = quick(base, files, out=tmp_path / "out", epochs=6.0)
    assert tuned.best_run.dev["accuracy"] > 0.9
    texts = ["the good cat runs", "a bad moon", "", "good " * 600]
    answers = tuned.predict(texts)
    assert [a["label"] for a in answers[:2]] == ["yes", "no"]
    again, task = load_folder(tmp_path / "out"), read_task(tmp_path / "out")
    for output, answer in zip(predict(again, texts, task=task), answers, strict=True):
        assert output["label"] == answer["label"]  # rounding depends on where weights lie in memory
        assert output["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)
    assert score_file(again, files["dev"], task=task) == pytest.approx(tuned.best_run.dev, abs=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("family", toy.FAMILIES)
def test_regression_is_learned_at_any_scale(family: str, tmp_path: Path) -> None:
    def rows(n: int, seed: int) -> list[tuple[str, str]]:
        return [(t, str(1000 + 300 * (y == "yes"))) for t, y in toy.texts(n, seed, 1, 5)]

    files = {
        "train": toy.write(tmp_path / "train.tsv", rows(240, 1), "text\tscore"),
        "dev": toy.write(tmp_path / "dev.tsv", rows(60, 2), "text\tscore"),
    }
    base = toy.pretrained(family, tmp_path / "base", dropout=0.0, attention_dropout=0.0)
    slow = {"epochs": 6.0, "learning_rate": 6e-3} if family == "bart" else {"epochs": 4.0}
    tuned = quick(base, files, task="regress", out=tmp_path / "out", **slow)
    assert tuned.best_run.dev["pearson"] > 0.7
    texts = ["the good cat", "the bad cat"]
    good, bad = tuned.predict(texts)
    assert 1200 < good < 1400
    assert 900 < bad < 1100
    again = load_folder(tmp_path / "out")
    assert predict(again, texts, task=read_task(tmp_path / "out")) == pytest.approx([good, bad])
    # Its head is kept, and means the same in the scale in which it is learned.
    more = quick(tmp_path / "out", files, task="regress", epochs=0.01, learning_rate=1e-9)
    assert more.best_run.dev["pearson"] == pytest.approx(tuned.best_run.dev["pearson"], abs=1e-3)
    assert more.predict(texts) == pytest.approx([good, bad], rel=1e-3)


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_tagging_is_learned(family: str, tmp_path: Path) -> None:
    tags = {"cat": "B-X", "housecat": "B-Y", "red": "I-X", "the": "O"}

    def sentences(n: int, seed: int) -> str:
        rng = np.random.default_rng(seed)
        made = [rng.choice(list(tags), rng.integers(1, 9)).tolist() for _ in range(n)]
        return "\n\n".join("\n".join(f"{word} {tags[word]}" for word in words) for words in made)

    (tmp_path / "train.conll").write_text(sentences(240, 1))
    (tmp_path / "dev.conll").write_text(sentences(50, 2))
    files = {"train": tmp_path / "train.conll", "dev": tmp_path / "dev.conll"}
    base = toy.pretrained(family, tmp_path / "base", dropout=0.0, attention_dropout=0.0)
    slow = {"epochs": 14.0, "learning_rate": 6e-3} if family == "bart" else {"epochs": 4.0}
    tuned = quick(base, files, task="tag", out=tmp_path / "out", **slow)
    assert tuned.task.metric == "entity_f1"
    assert tuned.best_run.dev["entity_f1"] > 0.9
    (answer,) = tuned.predict([["the", "cat", "red", "housecat", "the"]])
    assert answer["labels"] == ["O", "B-X", "I-X", "B-Y", "O"]
    again = load_folder(tmp_path / "out")
    assert predict(again, [["cat", "red"]]) == tuned.predict([["cat", "red"]])


@pytest.mark.parametrize("make", [bert, gpt2])
@pytest.mark.parametrize("n_labels", [1, 3])
def test_step_loss_and_gradients_equal_reference(make, n_labels, tmp_path) -> None:
    kind = {bert: "BertForSequenceClassification", gpt2: "GPT2ForSequenceClassification"}[make]
    reference = make(kind, num_labels=n_labels)
    loaded = load_folder(saved(reference, tmp_path))
    model, names = loaded.model, loaded.preset.weight_names
    t, lengths = 9, torch.tensor([9, 4, 1])
    real = torch.arange(t)[None] < lengths[:, None]
    rng = np.random.default_rng(0)
    ids = torch.where(real, torch.from_numpy(rng.integers(5, 99, (3, t))), 0)
    labels = torch.tensor([0, 2, 1]) if n_labels == 3 else torch.tensor([0.5, -1.0, 2.0])
    batch = Batch(
        inputs=ids,
        visibility=Visibility(document=torch.where(real, 0, -1), causal=make is gpt2),
        last_token_positions=lengths - 1,
        labels=labels,
    )
    ours = model(batch).loss
    ours.backward()
    logits = reference(input_ids=ids, attention_mask=real.long()).logits
    expected = (
        F.mse_loss(logits[:, 0], labels) if n_labels == 1 else F.cross_entropy(logits, labels)
    )
    expected.backward()
    assert ours.item() == pytest.approx(expected.item(), rel=1e-5)
    theirs = {n: p.grad for n, p in reference.named_parameters() if p.grad is not None}
    named = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    found = names.to_external(named)
    assert set(found) == set(theirs)
    for name, gradient in found.items():
        scale = float(theirs[name].abs().max())
        assert float((gradient - theirs[name]).abs().max()) <= 1e-5 * max(scale, 1e-2), name


@pytest.mark.parametrize("micro_tokens", [40, 8192])
def test_step_does_not_depend_on_micro_batches(micro_tokens, files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base", dropout=0.0, attention_dropout=0.0)
    drop_nothing(monkeypatch)
    losses = []
    for tokens in (micro_tokens, 300):
        tuning = tuning_module.FinetuneConfig(
            base=str(base),
            task="classify",
            train=str(files["train"]),
            dev=str(files["dev"]),
            epochs=0.3,
            batch_size=16,
            learning_rate=1e-3,
            log_every=1,
            micro_batch_tokens=tokens,
            precision="float32",
        )
        out = tmp_path / f"out{tokens}"
        tuning_module.run_finetuning(tuning, output_folder=out, device="cpu", terminal=None)
        losses.append([line["loss"] for line in log_of(out) if "loss" in line])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)  # sums of float32 in another order


def drop_nothing(monkeypatch) -> None:
    """Let the head of labels drop nothing: what is dropped depends on how a step is cut."""
    from unmask.finetuning.initial_model import load

    heads_for = load.heads_for_task

    def without(task, preset):
        return {name: replace(spec, dropout=0.0) for name, spec in heads_for(task, preset).items()}

    monkeypatch.setattr(load, "heads_for_task", without)


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["bert", "bart", "mbart"])
def test_folder_opens_in_transformers_with_equal_outputs(
    family: str, files, tmp_path: Path
) -> None:
    import transformers as hf

    tuned = quick(toy.pretrained(family, tmp_path / "base"), files, out=tmp_path / "out")
    model = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "out")
    classify = hf.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    assert model.config.problem_type == "single_label_classification"
    for text, _ in toy.texts(5, 9):
        (theirs,) = classify([text])
        (ours,) = tuned.predict([text])
        assert theirs["label"] == ours["label"]
        assert theirs["score"] == pytest.approx(ours["probability"], abs=1e-5)


@pytest.mark.thorough
def test_run_record_holds_everything_it_depends_on(files, tmp_path: Path) -> None:
    out = tmp_path / "out"
    base = toy.pretrained("bert", tmp_path / "base")
    tuned = quick(base, files, out=out, test=files["dev"], seeds=2, baseline=True)
    facts = json.loads((out / "unmask.json").read_text())
    assert facts["kind"] == "finetune"
    assert facts["finished"] is True
    assert facts["recipe"]["learning_rate"] == 3e-3
    assert facts["recipe"]["max_length"] == 512
    assert facts["task"]["labels"] == ["no", "yes"]
    assert facts["data"]["train"]["rows"] == 240
    assert facts["parameters"] == tuned.loaded_model.model.parameter_count()
    assert {p.name for p in out.iterdir() if not p.name.startswith(".")} == {
        "README.md", "config.json", "log.jsonl", "model.safetensors", "results.json",
        "timing.jsonl", "tokenizer.json", "tokenizer_config.json", "unmask.json",
        "seed-0", "seed-1", "random-seed-0", "random-seed-1",
    }  # fmt: skip
    results = from_dict(FinetuningResults, json.loads((out / "results.json").read_text()))
    assert [arm.name for arm in results.arms] == ["pretrained", "not pretrained"]
    assert (
        [len(arm.dev) for arm in results.arms] == [len(arm.test) for arm in results.arms] == [2, 2]
    )
    assert results.chance == pytest.approx(max(results.chance, 1 - results.chance), abs=0.2)
    assert results.confusion is not None
    assert sum(map(sum, results.confusion.counts)) == 60
    record = read_report_data(out)
    assert record.evaluation_log.last("accuracy") == tuned.best_run.dev["accuracy"]
    assert record.notes == ()
    assert any("newly initialized" in note for note in tuned.notes)
    assert len(tuned.summary()) == 2
    best = max(
        (s for s in tuned.run_results if s.arm == "pretrained"), key=lambda s: s.dev["accuracy"]
    )
    assert tuned.best_run.dev["accuracy"] == best.dev["accuracy"]


def test_best_state_is_kept_not_the_last(files, tmp_path, monkeypatch) -> None:
    """The weights that are returned are those of the evaluation that was chosen."""
    base = toy.pretrained("bert", tmp_path / "base")
    seen: list[tuple[int, dict]] = []
    evaluated = train_run._evaluate

    def falling(job, run, log, best):
        state = evaluated(job, run, log, best)
        seen.append((run.progress.step, {n: x.clone() for n, x in run.weights.masters.items()}))
        better = best is None or run.progress.step == 30
        return replace(state, step=run.progress.step, tensors=seen[-1][1]) if better else best

    monkeypatch.setattr(train_run, "_evaluate", falling)
    tuned = quick(base, files, epochs=3.0)
    assert tuned.best_run.best_step == 30
    kept, found = dict(seen)[30], tuned.loaded_model.model.own_weights()
    used, table = kept.pop("backbone.tokens.weight"), found.pop("backbone.tokens.weight")
    assert all(torch.equal(x, kept[n]) for n, x in found.items())
    assert (table[:, None] == used[None]).all(-1).any(0).all()  # each row is one of the table


@pytest.mark.thorough
def test_frozen_backbone_does_not_change(files, tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    before = load_folder(base).model.own_weights()
    after = quick(base, files, tune="frozen").loaded_model.model.own_weights()
    for name, tensor in after.items():
        if name.startswith("backbone."):
            assert torch.equal(tensor, before[name]), name
    assert not torch.equal(
        after["heads.label.dense.weight"], before["heads.next_sentence.dense.weight"]
    )
    with pytest.raises(ValueError, match="nothing is trained"):
        quick(toy.pretrained("t5", tmp_path / "t5"), files, tune="frozen")


@pytest.mark.thorough
def test_tuning_leaves_the_open_model_unchanged(files, tmp_path: Path) -> None:
    loaded = load_folder(toy.pretrained("gpt2", tmp_path / "base"))
    before = {n: x.clone() for n, x in loaded.model.own_weights().items()}
    tuned = finetune(loaded, task="classify", **files, **SHORT)
    assert tuned.folder is None
    assert all(torch.equal(x, before[n]) for n, x in loaded.model.own_weights().items())


@pytest.mark.thorough
def test_tuned_model_is_tuned_further_with_its_head(files, tmp_path: Path) -> None:
    first = quick(
        toy.pretrained("bert", tmp_path / "base"), files, out=tmp_path / "out", epochs=5.0
    )
    assert first.best_run.dev["accuracy"] > 0.9
    more = quick(tmp_path / "out", files, epochs=0.01, learning_rate=1e-9)
    assert more.best_run.dev["loss"] == pytest.approx(first.best_run.dev["loss"], rel=1e-3)


def test_small_data_defaults_to_more_epochs() -> None:
    from unmask.finetuning.config import FinetuneConfig
    from unmask.finetuning.options.derived import count_steps, resolve_config
    from unmask.tasks.task import Task, TaskColumns

    task = Task(task_kind="classify", columns=TaskColumns(texts=("text",), label="label"))
    config = FinetuneConfig(base="x", task="classify", train="x")
    epochs = {
        n: resolve_config(config, task, n, 110_000_000, uses_word_labels=False).epochs
        for n in (100, 635, 2490, 8551, 67_349)
    }
    assert list(epochs.values()) == [20, 20, 13, 4, 3]
    assert (
        resolve_config(config, task, 100, 110_000_000, uses_word_labels=False).learning_rate == 5e-5
    )
    assert (
        count_steps(
            resolve_config(replace(config, epochs=0.001), task, 100, 1, uses_word_labels=False), 7
        )
        == 1
    )


@pytest.mark.thorough
def test_folder_can_be_moved(files, tmp_path: Path) -> None:
    tuned = quick(toy.pretrained("bert", tmp_path / "base"), files, out=tmp_path / "out")
    shutil.move(tmp_path / "out", tmp_path / "moved")
    again = load_folder(tmp_path / "moved")
    assert predict(again, ["good"]) == tuned.predict(["good"])


@pytest.mark.thorough
def test_open_model_is_tuned_and_saved(tmp_path: Path) -> None:
    from unmask.checkpoints.huggingface.read import load_folder
    from unmask.inference.open_model import load
    from unmask.inference.pipeline import Pipeline

    train = tmp_path / "train.tsv"
    rows = [
        f"the {word} {i}\t{label}" for i in range(8) for word, label in (("cat", "a"), ("dog", "b"))
    ]
    train.write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    first = finetune(
        "bert-tiny",
        task="classify",
        train=train,
        dev=train,
        epochs=1.0,
        terminal=None,
        out=tmp_path / "one",
    )
    again = finetune(
        Pipeline(load_folder(tmp_path / "one")),
        task="classify",
        train=train,
        dev=train,
        epochs=1.0,
        terminal=None,
    )
    assert not [n for n in again.notes if "all weights" in n]
    again.save(tmp_path / "saved")
    predictions = again.predict(["the cat"])
    assert load(tmp_path / "saved").predict(["the cat"])[0]["label"] == predictions[0]["label"]
    with pytest.raises(ValueError, match="is there already"):
        again.save(tmp_path / "saved")
    assert first.loaded_model.label_names == ("a", "b")
