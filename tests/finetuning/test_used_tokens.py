"""While a model learns its table has the tokens of the texts alone; nobody sees that."""

from pathlib import Path

import pytest
import torch
import toy_models as toy

import unmask
from unmask.checkpoints.huggingface.read import load_folder
from unmask.finetuning import train_run
from unmask.finetuning.initial_model.used_tokens import UsedTokenEmbedding
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.heads.model import Model
from unmask.jobs.finetune import finetune

FEW = [("the good cat", "yes"), ("a bad cat", "no"), ("the bad cat", "no"), ("good a", "yes")]
TABLE = "backbone.tokens.weight"


def run(folder: Path, base: Path, tune: str = "full", **more) -> FinetunedModel:
    train = toy.write(folder / "train.tsv", FEW * 4)
    dev = toy.write(folder / "dev.tsv", [("the good sun", "yes"), ("a bad dog", "no")])
    return finetune(
        base,
        task="classify",
        train=train,
        dev=dev,
        tune=tune,
        epochs=4.0,
        learning_rate=1e-2,
        batch_size=4,
        seed=1,
        terminal=None,
        device="cpu",
        precision="float32",
        **({"weight_decay": 0.0} | more),
    )


def learned(tuned: FinetunedModel) -> dict[str, torch.Tensor]:
    return tuned.loaded_model.model.own_weights()


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The kinds of table that were learned with."""
    seen: list[type] = []
    start = train_run.set_up_run

    def spy(job, model: Model, seed: int):
        seen.append(type(model.backbone.embedding_table))
        return start(job, model, seed)

    monkeypatch.setattr(train_run, "set_up_run", spy)
    return seen


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("tune", ["full", "gradual", "full:layerwise_lr_decay=0.9"])
def test_used_rows_learn_equally_and_others_stay(
    family: str, tune: str, tables: list[type], tmp_path: Path, monkeypatch
) -> None:
    base = toy.pretrained(family, tmp_path / "base")
    few = run(tmp_path, base, tune)
    monkeypatch.setattr(train_run, "shrink_embeddings", lambda *given: None)
    whole = run(tmp_path, base, tune)
    assert tables == [UsedTokenEmbedding, torch.nn.Embedding]
    for name, tensor in learned(whole).items():
        torch.testing.assert_close(learned(few)[name], tensor, rtol=1e-4, atol=1e-5)
    before, after = load_folder(base).model.own_weights()[TABLE], learned(few)[TABLE]
    moved = (before != after).any(1)
    tokenizer = toy.tokenizer(family)
    read = {int(i) for text, _ in FEW for i in tokenizer.encode(text).ids}
    assert set(moved.nonzero()[:, 0].tolist()) <= read | set(tokenizer.special_ids.all_ids)
    assert 0 < int(moved.sum()) < len(moved)
    assert few.best_run.n_trainable_parameters == few.loaded_model.model.parameter_count()
    unseen = "eight rivers run, very blue"
    assert few.predict([unseen])[0]["probability"] == pytest.approx(
        whole.predict([unseen])[0]["probability"], abs=1e-4
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("tune", ["lora", "frozen", "bitfit", "prompt:n_virtual_tokens=2"])
def test_frozen_embedding_is_not_reduced(tune: str, tables: list[type], tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    tuned = run(tmp_path, base, tune)
    assert tables == [torch.nn.Embedding]
    assert torch.equal(load_folder(base).model.own_weights()[TABLE], learned(tuned)[TABLE])


@pytest.mark.thorough
def test_model_with_language_head_keeps_all_rows(tables: list[type], tmp_path: Path) -> None:
    run(tmp_path, toy.pretrained("gpt2", tmp_path / "base"), lm_loss_weight=0.5)
    run(tmp_path, toy.pretrained("t5", tmp_path / "t5"))
    assert tables == [torch.nn.Embedding] * 2


@pytest.mark.thorough
def test_finished_run_has_the_whole_embedding(tables: list[type], tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    made = run(tmp_path, base, out=tmp_path / "out", weight_decay=0.1)
    done = run(tmp_path, base, out=tmp_path / "out", weight_decay=0.1, resume=True)
    for name, tensor in learned(made).items():
        assert torch.equal(learned(done)[name], tensor), name
        assert torch.equal(unmask.load(tmp_path / "out").model.own_weights()[name], tensor), name
    assert type(done.loaded_model.model.backbone.embedding_table) is torch.nn.Embedding
    assert tables == [UsedTokenEmbedding]
