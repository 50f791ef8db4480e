"""Pretraining on the text of a task before fine-tuning; killed anywhere, it gives equal bits."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import toy_models as toy

import unmask
from unmask import TaskAdaptivePretraining
from unmask.batching.collate import pad_examples
from unmask.cli import main as cli
from unmask.finetuning import train_run
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.jobs import adapt_to_task as stage
from unmask.jobs.finetune import finetune, resume_finetuning
from unmask.jobs.pretrain import train
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.training.schedules import SlantedTriangular

FAST = {"epochs": 2.0, "batch_size": 16, "learning_rate": 3e-3, "precision": "float32"}
FEW = TaskAdaptivePretraining(
    epochs=2.0, changes=("batch_tokens=128", "sequence_length=32", "checkpoint_every=2")
)

LITTLE = {"epochs": 0.5, "changes": ("batch_tokens=64",)}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "train": toy.write(tmp_path / "train.tsv", toy.texts(96, 1)),
        "dev": toy.write(tmp_path / "dev.tsv", toy.texts(40, 2)),
    }


def quick(base, files: dict[str, Path], **more) -> FinetunedModel:
    plain = {"task": "classify", "device": "cpu", "terminal": None, "adapt_first": FEW}
    return finetune(base, **(plain | files | FAST | more))


def lstm(tmp_path: Path, name: str = "ulmfit-mini", *more: str) -> Path:
    """Pretrain a tiny ULMFiT, or another model, for a few steps."""
    text = tmp_path / "general.txt"
    text.write_text("\n\n".join(t for t, _ in toy.texts(400, 5, least=8, most=20)), "utf-8")
    changes = [
        "architecture.d_model=32", "architecture.d_ff=32", "batch_tokens=128", "sequence_length=16",
        "vocab_size=300", "dev_fraction=0.1", *more,
    ]  # fmt: skip
    pretrain(name, data=text, out=tmp_path / "lm", steps=4, changes=changes, threads=1, quiet=True)
    return tmp_path / "lm"


class Killed(Exception):
    """The process is gone."""


def dying(real, at: int):
    """Return what does as `real` does, and dies after the call numbered `at`."""
    n = 0

    def call(*args, **options):
        nonlocal n
        found = real(*args, **options)
        n += 1
        if n == at:
            raise Killed
        return found

    return call


def test_three_stages_run_in_one_call(files, tmp_path) -> None:
    base = lstm(tmp_path)
    more = tmp_path / "more.txt"
    more.write_text("\n\n".join(text for text, _ in toy.texts(50, 9)), encoding="utf-8")
    output = TaskAdaptivePretraining(
        unlabeled=(str(more),), epochs=2.0, changes=("batch_tokens=64",)
    )
    tuned = quick(base, files, out=tmp_path / "out", adapt_first=output, tune="gradual")
    assert tuned.predict(["a good cat"])
    run = json.loads((tmp_path / "out/in-domain/unmask.json").read_text())
    assert run["finished"]
    assert run["recipe"]["init_from"] == str(base)
    assert run["recipe"]["row_unit"] == "stream"
    assert run["recipe"]["layerwise_lr_decay"] == pytest.approx(1 / 2.6)
    assert run["recipe"]["schedule"] == {
        **SlantedTriangular().__dict__,
        "kind": "SlantedTriangular",
    }
    text = (tmp_path / "out/in-domain-text/rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in text] == [t for t, _ in toy.texts(96, 1)]
    own = json.loads((tmp_path / "out/unmask.json").read_text())
    assert own["recipe"]["base"] == str(base)
    assert own["recipe"]["adapt_first"]["unlabeled"] == [str(more)]
    again = resume_finetuning(tmp_path / "out", device="cpu", terminal=None)
    assert again.run_results == tuned.run_results
    plain = quick(base, files, adapt_first=False, tune="gradual")
    assert plain.best_run.dev != tuned.best_run.dev  # it did begin with other weights


@pytest.mark.thorough
def test_domain_words_are_added_and_start_as_the_mean(files, tmp_path) -> None:
    base = lstm(tmp_path, "ulmfit")
    before = unmask.load(base)
    rows = [(f"zyx {text} qvxy", label) for text, label in toy.texts(48, 1)]
    rows[0] = (rows[0][0] + " seenonce", rows[0][1])
    files["train"] = toy.write(tmp_path / "new.tsv", rows)
    tuned = quick(
        base, files, out=tmp_path / "out", adapt_first=TaskAdaptivePretraining(**LITTLE), epochs=0.5
    )
    grown = unmask.load(tmp_path / "out/in-domain-text/model")
    size = before.tokenizer.vocab_size
    assert grown.tokenizer.pieces(range(size, grown.tokenizer.vocab_size)) == ["qvxy", "zyx"]
    assert tuned.loaded_model.tokenizer.encode("zyx").ids.tolist()[:1] == [size + 1]
    was, now = before.model.own_weights(), grown.model.own_weights()
    assert was.keys() == now.keys()
    words = [name for name in was if was[name].shape != now[name].shape]
    assert "backbone.tokens.weight" in words
    for name, x in now.items():
        assert torch.equal(x[: len(was[name])], was[name]), name
        if name in words:
            mean = was[name][:size].mean(0).expand(2, *x.shape[1:])
            torch.testing.assert_close(x[size : size + 2], mean)
    run = json.loads((tmp_path / "out/in-domain/unmask.json").read_text())
    assert run["recipe"]["init_from"].endswith("in-domain-text/model")
    learned = unmask.load(tmp_path / "out/in-domain").model.own_weights()["backbone.tokens.weight"]
    assert not torch.equal(learned[size], learned[size + 1])
    for output in (
        TaskAdaptivePretraining(min_count=None, **LITTLE),
        TaskAdaptivePretraining(max_vocab_size=size, **LITTLE),
    ):
        quick(base, files, out=tmp_path / "same", adapt_first=output, epochs=0.5)
        assert unmask.load(tmp_path / "same").tokenizer.vocab_size == size
        shutil.rmtree(tmp_path / "same")


@pytest.mark.thorough
def test_frequency_grouped_softmax_keeps_its_vocabulary(files, tmp_path) -> None:
    base = lstm(
        tmp_path, "transformer-xl-words-mini", "architecture.n_layers=1",
        "architecture.n_heads=2", "architecture.adaptive_input.cutoffs=[20]",
    )  # fmt: skip
    size = unmask.load(base).tokenizer.vocab_size
    files["train"] = toy.write(tmp_path / "new.tsv", [(f"zyx {t}", y) for t, y in toy.texts(48, 1)])
    with (tmp_path / "told.txt").open("w") as output:
        little = TaskAdaptivePretraining(**LITTLE)
        tuned = quick(
            base, files, adapt_first=little, epochs=0.5, terminal=output, out=tmp_path / "out"
        )
    assert tuned.loaded_model.tokenizer.vocab_size == size
    content = (tmp_path / "told.txt").read_text()
    assert "new to the model, 'zyx' the most frequent; they stay unknown" in content


@pytest.mark.thorough
def test_forward_and_backward_models_are_averaged(files, tmp_path) -> None:
    runs = []
    for name in ("ulmfit-mini", "ulmfit-mini-backward"):
        (home := tmp_path / name).mkdir()
        base = lstm(home, name)
        quick(
            base,
            files,
            out=home / "out",
            adapt_first=TaskAdaptivePretraining(epochs=1.0),
            tune="gradual",
        )
        runs.append(home / "out")
    forward, backward = (unmask.load(run) for run in runs)
    ids = [one.tokenizer.encode("a good cat").ids.tolist() for one in (forward, backward)]
    assert ids[0] == ids[1][::-1]
    with pytest.raises(ValueError, match="reads texts backward"):
        unmask.load(runs[1] / "in-domain").generate("a good")
    predictions = [
        one.predict("a good cat")[0]["probabilities"]["yes"] for one in (forward, backward)
    ]
    both = unmask.Ensemble(runs).predict("a good cat")[0]
    assert both["probabilities"]["yes"] == pytest.approx(sum(predictions) / 2, abs=1e-6)


@pytest.mark.thorough
def test_long_text_is_read_whole_and_trained_from_first_token(tmp_path) -> None:
    base = lstm(tmp_path)
    rows = [(f"{text} " + "the cat runs " * 300, label) for text, label in toy.texts(16, 1)]
    train = toy.write(tmp_path / "long.tsv", rows)
    tuned = finetune(
        base,
        task="classify",
        train=train,
        dev=train,
        max_length=2000,
        tune="gradual",
        terminal=None,
        device="cpu",
        **FAST | {"epochs": 1.0, "batch_size": 8},
    )
    assert not [note for note in tuned.notes if "cut" in note]
    cut = finetune(
        base, task="classify", train=train, dev=train, terminal=None, device="cpu",
        **FAST | {"epochs": 1.0, "batch_size": 8},
    )  # fmt: skip
    assert [note for note in cut.notes if "have more than 512 tokens and are cut" in note]
    formulation = formulate(tuned.task, tuned.loaded_model.preset, tuned.loaded_model.tokenizer)
    (question,) = formulation.build_inputs(toy.items(rows[:1]))
    batch = pad_examples([question.example], formulation.special_ids)
    assert batch.inputs.shape[1] > 900
    model = tuned.loaded_model.model.train().requires_grad_(True)
    model(batch).terms["label"].total.backward()
    first = int(batch.inputs[0, 0])
    table = dict(model.named_parameters())["backbone.tokens.weight"]
    assert table.grad[first].abs().sum() > 0
    assert model.head_specs["label"].pooling == "concat"


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_any_pretrained_model_adapts_to_its_domain(family, files, tmp_path) -> None:
    base = toy.pretrained(family, tmp_path / "base")
    quick(base, files, out=tmp_path / "out", epochs=1.0)
    run = json.loads((tmp_path / "out/in-domain/unmask.json").read_text())
    assert run["recipe"]["objective"]
    assert run["finished"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("where", "name", "at"),
    [(train, "save_checkpoint", 1), (stage, "pretrain", 1), (train_run, "_save_checkpoint", 1)],
)
def test_run_killed_in_either_stage_resumes_bitwise(
    where, name, at, files, tmp_path, monkeypatch
) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    whole = quick(base, files, out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(where, name, dying(getattr(where, name), at))
        with pytest.raises(Killed):
            quick(base, files, out=tmp_path / "out")
    again = resume_finetuning(tmp_path / "out", device="cpu", terminal=None)
    assert again.run_results == whole.run_results
    for key, tensor in whole.loaded_model.model.own_weights().items():
        assert torch.equal(tensor, again.loaded_model.model.own_weights()[key]), key


@pytest.mark.thorough
def test_adapter_stands_on_the_domain_adapted_model(files, tmp_path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    quick(base, files, out=tmp_path / "out", tune="lora:rank=2", epochs=1.0)
    facts = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert facts["base_model_name_or_path"].endswith("in-domain")


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"base": "ulmfit-mini"}, "ulmfit-mini is a preset without weights; pretrain it first"),
        ({"initialize": "random"}, "adapt_first needs pretrained weights"),
        ({"search": 2}, "search and adapt_first cannot be combined"),
        (
            {"adapt_first": TaskAdaptivePretraining(changes=("rtae=1",))},
            "--adapt-set rtae=1: unknown key 'rtae'",
        ),
        ({"adapt_first": TaskAdaptivePretraining(unlabeled=("none.txt",))}, "none.txt"),
    ],
)
def test_mistake_is_reported_before_anything_is_written(more, message, files, tmp_path) -> None:
    base = more.pop("base", None) or toy.pretrained("bert", tmp_path / "base")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        quick(base, files, out=tmp_path / "out", **more)
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_too_little_text_leaves_nothing(files, tmp_path) -> None:
    base = lstm(tmp_path)
    files["train"] = toy.write(tmp_path / "few.tsv", toy.texts(8, 1))
    with pytest.raises(ValueError, match="row_unit = stream: the text has"):
        quick(
            base,
            files,
            out=tmp_path / "out",
            adapt_first=TaskAdaptivePretraining(
                changes=("sequence_length=4000", "batch_tokens=4000")
            ),
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_command_line_runs_domain_adaptation(files, tmp_path, capsys) -> None:
    base, out = toy.pretrained("bert", tmp_path / "base"), tmp_path / "out"
    words = ["finetune", str(base), "--task", "classify", "--train", str(files["train"])]
    words += ["--epochs", "1", "--out", str(out), "--device", "cpu", "--quiet"]
    assert cli.run([*words, "--unlabeled", "more.txt"]) == 2
    assert "--unlabeled needs --adapt-first" in capsys.readouterr().err
    assert cli.run([*words, "--adapt-first", "--adapt-set", "epochs=many"]) == 2
    assert "epochs" in capsys.readouterr().err
    assert not out.exists()
    assert cli.run([*words, "--adapt-first", "--adapt-set", "epochs=1"]) == 0
    run = json.loads((out / "unmask.json").read_text())
    assert run["recipe"]["adapt_first"]["epochs"] == 1.0


@pytest.mark.thorough
def test_adaptation_may_set_its_own_number_of_steps(files, tmp_path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    output = TaskAdaptivePretraining(changes=("batch_tokens=128", "sequence_length=32", "steps=3"))
    quick(base, files, out=tmp_path / "out", adapt_first=output, epochs=1.0)
    run = json.loads((tmp_path / "out/in-domain/unmask.json").read_text())
    assert run["recipe"]["steps"] == 3
    assert preset_recipe(run["recipe"]["model"]).steps != 3
