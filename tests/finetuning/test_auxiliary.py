"""A language model's loss beside the task's: the sum that is learned, and what model is left."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy_models as toy

from unmask.batch import IGNORE
from unmask.checkpoints.huggingface import open_folder
from unmask.finetuning.ask import LABEL, LANGUAGE
from unmask.finetuning.auxiliary import with_language, with_next
from unmask.finetuning.kinds.catalogue import ask, heads_for
from unmask.finetuning.plan import Tuning
from unmask.finetuning.predict import predict, read_task
from unmask.finetuning.tuned import Tuned
from unmask.hiding.collate import pad
from unmask.serving.finetune import finetune
from unmask.tasks.task import Columns, Task
from unmask.training import loop
from unmask.training.recipe import Recipe

TASK = Task(does="classify", columns=Columns(texts=("text",), label="label"), labels=("no", "yes"))
SHORT = {
    "epochs": 1.0, "batch": 16, "rate": 3e-3, "terminal": None, "precision": "float32",
    "device": "cpu",
}  # fmt: skip


def parts(weight: float):
    """Make a model with both heads, and two micro-batches of unlike numbers of tokens."""
    card = toy.card("gpt2", dropout=0.0, attention_dropout=0.0)
    heads = with_language(heads_for(TASK, card), card, weight)
    model = card.build(heads).initialize(3)
    one = ask(replace(TASK, length=40), card, toy.tokenizer("gpt2"))
    questions = one.questions(toy.items(toy.texts(7, 4)))
    examples = [with_next(q.example) for q in questions]
    return model, [pad(some, one.special) for some in (examples[:2], examples[2:])]


def test_the_next_token_is_asked_at_each_but_the_last() -> None:
    _, (batch, _) = parts(0.5)
    assert batch.targets is not None
    assert batch.last is not None
    for ids, targets, last in zip(batch.inputs, batch.targets, batch.last.tolist(), strict=True):
        assert targets[:last].equal(ids[1 : last + 1])
        assert set(targets[last:].tolist()) == {IGNORE}


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_the_gradient_is_that_of_the_weighted_sum_of_means(weight: float) -> None:
    model, micro = parts(weight)
    card = toy.card("gpt2")
    run = loop.start(
        Recipe(model=card.name, steps=1, precision="float32"), model, lambda cursor: iter(())
    )
    sums, _, _ = loop._gradient(run, micro, 1)
    found = {name: g.clone() for name, g in run.weights.gradients.items()}
    loop.finish(run)
    totals = {LABEL: torch.zeros(()), "next_token": torch.zeros(())}
    counts = dict.fromkeys(totals, 0)
    for batch in micro:
        for name, term in model(batch).terms.items():
            totals[name] = totals[name] + term.total
            counts[name] += term.count
    means = {name: totals[name] / counts[name] for name in totals}
    expected = means[LABEL] + weight * means["next_token"]
    expected.backward()
    for name, p in model.named_parameters():
        scale = max(float(found[name].abs().max()), 1e-3)
        assert p.grad is not None
        assert float((p.grad - found[name]).abs().max()) <= 1e-5 * scale, name
    assert sums.parts == pytest.approx({n: x.item() for n, x in means.items()}, rel=1e-5)
    assert sums.loss == pytest.approx(expected.item(), rel=1e-5)
    assert model(micro[1]).loss.item() == pytest.approx(
        model(micro[1]).terms[LABEL].loss.item()
        + weight * model(micro[1]).terms["next_token"].loss.item(),
        rel=1e-6,
    )


def files(folder: Path) -> dict[str, Path]:
    return {
        "train": toy.write(folder / "train.tsv", toy.texts(64, 1, 1, 4)),
        "dev": toy.write(folder / "dev.tsv", toy.texts(20, 2, 1, 4)),
    }


def test_what_is_logged_and_what_is_left(tmp_path: Path) -> None:
    import transformers as hf

    base = toy.pretrained("gpt2", tmp_path / "base")
    out = tmp_path / "out"
    tuned = finetune(base, task="classify", **files(tmp_path), **SHORT, out=out, auxiliary=0.5)
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "next_token" in json.dumps(line)]
    assert steps
    assert list(tuned.opened.model.specs) == list(tuned.opened.card.heads) == [LABEL]
    assert not [n for n in tuned.opened.model.weights() if n.startswith(f"heads.{LANGUAGE}")]
    theirs = hf.GPT2ForSequenceClassification.from_pretrained(out)
    assert theirs.config.architectures == ["GPT2ForSequenceClassification"]
    (again,) = predict(open_folder(out), ["the good cat"], task=read_task(out))
    (said,) = tuned.predict(["the good cat"])
    assert again["label"] == said["label"]
    assert again["probabilities"] == pytest.approx(said["probabilities"], abs=1e-6)


def test_a_weight_of_zero_changes_no_bit(tmp_path: Path) -> None:
    base, given = toy.pretrained("gpt2", tmp_path / "base"), files(tmp_path)

    def tuned(out: str, **more) -> Tuned:
        return finetune(base, task="classify", **given, **SHORT, out=tmp_path / out, **more)

    one, other = tuned("one"), tuned("other", auxiliary=0.0)
    tensors = other.opened.model.weights()
    assert all(torch.equal(x, tensors[n]) for n, x in one.opened.model.weights().items())
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in ("one", "other")]
    assert logs[0] == logs[1]
    assert not torch.equal(
        tuned("third", auxiliary=0.5).opened.model.weights()["backbone.tokens.weight"],
        tensors["backbone.tokens.weight"],
    )


@pytest.mark.parametrize(
    ("family", "kind"), [("bert", "classify"), ("t5", "classify"), ("gpt2", "cloze")]
)
def test_it_is_for_decoders_with_a_head_of_labels(family: str, kind: str) -> None:
    card = toy.card(family)
    heads = heads_for(replace(TASK, does=kind), card)
    assert with_language(heads, card, 0.0) == heads
    with pytest.raises(ValueError, match="auxiliary is the weight of a language model's loss"):
        with_language(heads, card, 0.5)


def test_a_weight_is_a_number_of_at_least_zero() -> None:
    for wrong in (-0.1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="auxiliary must be"):
            Tuning(base="x", task="classify", train="x", auxiliary=wrong)
