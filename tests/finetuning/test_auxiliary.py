"""A language model's loss beside the task's: the sum of the losses, and the saved model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy_models as toy

from unmask.batch import IGNORE_INDEX
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import load_folder
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.formulations.formulation import LABEL_HEAD, LANGUAGE_HEAD
from unmask.finetuning.initial_model.auxiliary_lm import with_language_head, with_next_token_targets
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.finetuning.results.predict import predict, read_task
from unmask.jobs.finetune import finetune
from unmask.tasks.task import Task, TaskColumns
from unmask.training import loop
from unmask.training.config import Recipe

TASK = Task(
    task_kind="classify", columns=TaskColumns(texts=("text",), label="label"), labels=("no", "yes")
)
SHORT = {
    "epochs": 1.0, "batch_size": 16, "learning_rate": 3e-3, "terminal": None,
    "precision": "float32", "device": "cpu",
}  # fmt: skip


def parts(weight: float):
    """Make a model with both heads, and two micro-batches of unlike numbers of tokens."""
    preset = toy.card("gpt2", dropout=0.0, attention_dropout=0.0)
    heads = with_language_head(heads_for_task(TASK, preset), preset, weight)
    model = preset.build(heads).initialize(3)
    one = formulate(replace(TASK, max_length=40), preset, toy.tokenizer("gpt2"))
    questions = one.build_inputs(toy.items(toy.texts(7, 4)))
    examples = [with_next_token_targets(q.example) for q in questions]
    return model, [pad_examples(some, one.special_ids) for some in (examples[:2], examples[2:])]


def test_next_token_is_a_target_at_all_but_the_last() -> None:
    _, (batch, _) = parts(0.5)
    assert batch.targets is not None
    assert batch.last_token_positions is not None
    for ids, targets, last in zip(
        batch.inputs, batch.targets, batch.last_token_positions.tolist(), strict=True
    ):
        assert targets[:last].equal(ids[1 : last + 1])
        assert set(targets[last:].tolist()) == {IGNORE_INDEX}


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_gradient_is_of_the_weighted_sum_of_means(weight: float) -> None:
    model, micro = parts(weight)
    preset = toy.card("gpt2")
    run = loop.start_run(
        Recipe(model=preset.name, steps=1, precision="float32"), model, lambda cursor: iter(())
    )
    sums, _, _ = loop._accumulate_gradients(run, micro, 1)
    found = {name: g.clone() for name, g in run.weights.gradients.items()}
    loop.finish_run(run)
    totals = {LABEL_HEAD: torch.zeros(()), "next_token": torch.zeros(())}
    counts = dict.fromkeys(totals, 0)
    for batch in micro:
        for name, term in model(batch).terms.items():
            totals[name] = totals[name] + term.total
            counts[name] += term.count
    means = {name: totals[name] / counts[name] for name in totals}
    expected = means[LABEL_HEAD] + weight * means["next_token"]
    expected.backward()
    for name, p in model.named_parameters():
        scale = max(float(found[name].abs().max()), 1e-3)
        assert p.grad is not None
        assert float((p.grad - found[name]).abs().max()) <= 1e-5 * scale, name
    assert sums.mean_losses == pytest.approx({n: x.item() for n, x in means.items()}, rel=1e-5)
    assert sums.loss == pytest.approx(expected.item(), rel=1e-5)
    assert model(micro[1]).loss.item() == pytest.approx(
        model(micro[1]).terms[LABEL_HEAD].loss.item()
        + weight * model(micro[1]).terms["next_token"].loss.item(),
        rel=1e-6,
    )


def files(folder: Path) -> dict[str, Path]:
    return {
        "train": toy.write(folder / "train.tsv", toy.texts(64, 1, 1, 4)),
        "dev": toy.write(folder / "dev.tsv", toy.texts(20, 2, 1, 4)),
    }


def test_auxiliary_loss_is_logged_and_its_head_dropped(tmp_path: Path) -> None:
    import transformers as hf

    base = toy.pretrained("gpt2", tmp_path / "base")
    out = tmp_path / "out"
    tuned = finetune(base, task="classify", **files(tmp_path), **SHORT, out=out, lm_loss_weight=0.5)
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "next_token" in json.dumps(line)]
    assert steps
    assert (
        list(tuned.loaded_model.model.head_specs)
        == list(tuned.loaded_model.preset.heads)
        == [LABEL_HEAD]
    )
    assert not [
        n for n in tuned.loaded_model.model.own_weights() if n.startswith(f"heads.{LANGUAGE_HEAD}")
    ]
    theirs = hf.GPT2ForSequenceClassification.from_pretrained(out)
    assert theirs.config.architectures == ["GPT2ForSequenceClassification"]
    (again,) = predict(load_folder(out), ["the good cat"], task=read_task(out))
    (predictions,) = tuned.predict(["the good cat"])
    assert again["label"] == predictions["label"]
    assert again["probabilities"] == pytest.approx(predictions["probabilities"], abs=1e-6)


@pytest.mark.thorough
def test_weight_zero_changes_no_bit(tmp_path: Path) -> None:
    base, given = toy.pretrained("gpt2", tmp_path / "base"), files(tmp_path)

    def tuned(out: str, **more) -> FinetunedModel:
        return finetune(base, task="classify", **given, **SHORT, out=tmp_path / out, **more)

    one, other = tuned("one"), tuned("other", lm_loss_weight=0.0)
    tensors = other.loaded_model.model.own_weights()
    assert all(torch.equal(x, tensors[n]) for n, x in one.loaded_model.model.own_weights().items())
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in ("one", "other")]
    assert logs[0] == logs[1]
    assert not torch.equal(
        tuned("third", lm_loss_weight=0.5).loaded_model.model.own_weights()[
            "backbone.tokens.weight"
        ],
        tensors["backbone.tokens.weight"],
    )


@pytest.mark.parametrize(
    ("family", "kind"), [("bert", "classify"), ("t5", "classify"), ("gpt2", "cloze")]
)
def test_auxiliary_loss_needs_a_decoder_with_label_head(family: str, kind: str) -> None:
    preset = toy.card(family)
    heads = heads_for_task(replace(TASK, task_kind=kind), preset)
    assert with_language_head(heads, preset, 0.0) == heads
    with pytest.raises(ValueError, match="lm_loss_weight is the weight of a language model's loss"):
        with_language_head(heads, preset, 0.5)


def test_weight_must_be_nonnegative() -> None:
    for wrong in (-0.1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="lm_loss_weight must be"):
            FinetuneConfig(base="x", task="classify", train="x", lm_loss_weight=wrong)
