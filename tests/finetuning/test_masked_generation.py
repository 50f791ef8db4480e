"""Text-to-text tasks by mask tokens (UniLM): inputs, targets, loss and learning."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy

from unmask import load
from unmask.batch import IGNORE_INDEX
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import load_folder
from unmask.finetuning import train_run
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.formulations.formulation import ResamplesExamples
from unmask.finetuning.formulations.text_to_text.masked import MaskedTextFormulation
from unmask.finetuning.results.predict import predict, predict_scores, read_task
from unmask.finetuning.results.score import score_file
from unmask.generation.decode import generate
from unmask.generation.settings import generation_config
from unmask.heads.language.language_modeling import AppendedMaskGeneration, LanguageModeling
from unmask.heads.model import Model
from unmask.inference.pipeline import Pipeline
from unmask.jobs.finetune import finetune
from unmask.model.backbones.transformer import Architecture
from unmask.tasks.all_kinds import resolve_options
from unmask.tasks.task import Task, TaskColumns, TaskExample

ONE = TaskColumns(texts=("source",), label="target")
SHORT = {"batch_size": 16, "terminal": None, "precision": "float32", "device": "cpu"}
TOKENIZER = toy.tokenizer("unilm")
SPECIAL = TOKENIZER.special_ids
START, END, MASK = SPECIAL.start, SPECIAL.end, SPECIAL.mask


def task(length: int = 60, **given) -> Task:
    return Task(
        task_kind="generate", columns=ONE, task_name="generate", max_length=length,
        options=resolve_options("generate", given), metric="exact_match",
    )  # fmt: skip


def make_formulation(**more) -> MaskedTextFormulation:
    found = formulate(task(**more), toy.card("unilm"), TOKENIZER)
    assert isinstance(found, MaskedTextFormulation)
    return found


def make_model(seed: int = 0) -> Model:
    preset = toy.card("unilm", dropout=0.0, attention_dropout=0.0)
    model = preset.build(heads_for_task(task(), preset)).initialize(seed).eval()
    with torch.no_grad():  # so that what is read matters
        for name, weight in model.named_parameters():
            if "attention" in name and weight.dim() == 2:
                weight.mul_(20)
    return model


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text).ids.tolist()


def make_example(source: str, *targets: str) -> TaskExample:
    return TaskExample(texts=(source,), label=targets or None)


def test_source_and_target_are_separated_by_special_tokens() -> None:
    (question,) = make_formulation(prefix="text: ").build_inputs(
        [make_example("a cat", "red sun", "no")]
    )
    source, target = [START, *ids("text: a cat"), END], [*ids("red sun"), END]
    e = question.example
    assert e.inputs.tolist() == [*source, *target]
    assert e.targets.tolist() == [IGNORE_INDEX] * len(source) + target
    assert e.rank is not None
    assert e.segments is not None
    assert e.rank.tolist() == [0] * len(source) + list(range(1, len(target) + 1))
    assert e.segments.tolist() == [4] * len(source) + [5] * len(target)


def test_input_does_not_depend_on_the_target_and_fits() -> None:
    one, long = make_formulation(length=40, max_target_length=8), " ".join(toy.WORDS)
    some = [make_example(long), make_example(long, "a"), make_example(long, long)]
    unknown, short, cut = (q.example for q in one.build_inputs(some))
    assert all(q.truncated for q in one.build_inputs(some))
    assert len(unknown.inputs) == 32
    for e in (short, cut):
        assert e.rank is not None
        assert e.inputs[e.rank == 0].tolist() == unknown.inputs.tolist()
    assert len(cut.inputs) == 40
    assert cut.targets[-1] != END  # it goes on
    assert short.targets[-1] == END


def test_masks_are_sampled_for_training_only() -> None:
    one = make_formulation()
    assert isinstance(one, ResamplesExamples)
    assert not isinstance(formulate(task(), toy.card("t5"), toy.tokenizer("t5")), ResamplesExamples)
    (question,) = one.build_inputs([make_example("a cat", "1 2 3 4 5")])
    e = one.sample_example(question.example, np.random.default_rng(0))
    assert int((e.targets != IGNORE_INDEX).sum()) == 4  # round(0.7 * 5)
    assert MASK in e.inputs
    assert MASK not in question.example.inputs


@torch.no_grad()
def reference_loss(model: Model, source: Sequence[int], target: Sequence[int]) -> float:
    """Ask for each token of a mask, in a text of its own."""
    total = 0.0
    for i, token in enumerate(target):
        e = make_formulation().masked_target.unmasked_example(source, [*target[:i], MASK or 0])
        scores = model.language_head.logits(model.hidden_states(pad_examples([e], SPECIAL)))[0, -1]
        total -= scores[: SPECIAL.vocab_size].log_softmax(-1)[token].item()
    return total


@pytest.mark.thorough
def test_loss_is_of_each_token_given_the_gold_ones_before() -> None:
    one, model = make_formulation(max_target_length=9), make_model()
    some = [
        make_example("a cat runs", "the sun"),
        make_example("", "one two three"),
        make_example("red " * 5),
        make_example("dog", ""),
    ]
    predictions = predict_scores(one, model, one.build_inputs(some)).scores
    for item, written in zip(some, predictions, strict=True):
        source = [START, *ids(item.texts[0]), END]
        target = [] if item.label is None else [*ids(str(item.label[0])), END]  # type: ignore[index]
        assert one.loss(item, written) == (
            pytest.approx(reference_loss(model, source, target), rel=1e-4), len(target),
        )  # fmt: skip
        (expected,) = generate(model, [source], SPECIAL, generation_config(max_new_tokens=9))
        assert written.token_ids.tolist() == expected
    assert len({tuple(written.token_ids.tolist()) for written in predictions}) > 1
    for item, written in zip(some, predictions, strict=True):
        (alone,) = predict_scores(one, model, one.build_inputs([item])).scores
        assert alone.token_ids.tolist() == written.token_ids.tolist()
        assert alone.target_loss == pytest.approx(written.target_loss, rel=1e-4)


def test_long_source_and_target_stay_within_positions() -> None:
    preset = toy.card("unilm")
    a = preset.architecture
    assert isinstance(a, Architecture)
    preset = replace(
        preset, architecture=replace(a, position=replace(a.position, max_positions=30))
    )
    model = preset.build(heads_for_task(task(30), preset)).initialize(0).eval()
    one, long = make_formulation(length=30, max_target_length=8), " ".join(toy.WORDS)
    some = [make_example(long, "a"), make_example("a", long), make_example(long, long)]
    assert [
        w.n_target_tokens for w in predict_scores(one, model, one.build_inputs(some)).scores
    ] == [
        2,
        8,
        8,
    ]


def test_unsuitable_model_is_refused_in_one_line() -> None:
    preset = toy.card("unilm")
    a = preset.architecture
    assert isinstance(a, Architecture)
    two = replace(preset, architecture=replace(a, n_segments=2))
    with pytest.raises(ValueError, match="has 2 segments, none of them for sources, which have 4"):
        heads_for_task(task(), two)
    with pytest.raises(ValueError, match="no token that masks others"):
        formulate(task(), preset, toy.tokenizer("t5"))
    with pytest.raises(ValueError, match="max_length must be at least 35 for targets of 32 tokens"):
        make_formulation(length=30, max_target_length=32)


def in_reverse(path: Path, n: int, seed: int) -> Path:
    """Write one or two numbers and the same in the reverse order."""
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(list("123456"), rng.integers(1, 3)).tolist() for _ in range(n)]
    return toy.write(path, [(" ".join(w), " ".join(w[::-1])) for w in drawn], "source\ttarget")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    return {
        "train": in_reverse(folder / "train.tsv", 160, 1),
        "dev": in_reverse(folder / "dev.tsv", 40, 2),
    }


@pytest.mark.thorough
def test_reversed_numbers_are_learned(files, tmp_path: Path) -> None:
    base = toy.pretrained("unilm", tmp_path / "base", dropout=0.0, attention_dropout=0.0)
    out = tmp_path / "out"
    tuned = finetune(
        base, task="generate", **files, **SHORT, out=out, epochs=18.0, learning_rate=1e-2,
        metric="exact_match", task_options={"max_target_length": 5, "max_dev_items": 40},
        evaluate_every=90,
    )  # fmt: skip
    assert tuned.best_run.dev["exact_match"] == 1
    assert tuned.best_run.dev["loss"] < 0.05
    assert tuned.predict(["2 6"]) == [{"answer": "6 2"}]
    again, known = load_folder(out), read_task(out)
    assert again.model.head_specs == tuned.loaded_model.model.head_specs
    language = again.model.head_specs["language"]
    assert isinstance(language, LanguageModeling)
    assert language.generation == AppendedMaskGeneration(5, source_segment=4)
    assert json.loads((out / "config.json").read_text())["answers_sources"] is True
    assert "answers_sources" not in json.loads((base / "config.json").read_text())
    assert known == tuned.task
    assert predict(again, ["2 6"], task=known) == [{"answer": "6 2"}]
    assert score_file(again, files["dev"], task=known) == pytest.approx(
        tuned.best_run.dev, abs=1e-5
    )
    content = (out / "README.md").read_text()
    assert "pipeline_tag: text2text-generation" in content
    assert "transformers uses it to fill masks, not to generate" in content
    pipeline = Pipeline(again, task=known)
    assert pipeline.generate("2 6") == "6 2"
    assert pipeline.generate("2 6", beams=3) == "6 2"
    assert pipeline.generate("2 6", output_prefix="6") == "6 2"
    assert "".join(pipeline.stream("2 6")) == "6 2"
    best = pipeline.rank_choices("2 6", ["2 6", "6 2", "6"])
    assert best[0].text == "6 2"


class Killed(Exception):
    """The process is gone."""


@pytest.mark.thorough
@pytest.mark.quick("2")
@pytest.mark.parametrize("at", [1, 2])
def test_killed_and_resumed_run_is_bitwise_equal(at, files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("unilm", tmp_path / "base")
    more = {
        **files, **SHORT, "task": "generate", "epochs": 2.0, "learning_rate": 3e-3,
        "evaluate_every": 7,
        "task_options": {"max_target_length": 5, "max_dev_items": 4}, "rows": 100,
    }  # fmt: skip
    whole = finetune(base, **more, out=tmp_path / "whole")
    out, n, save = tmp_path / "killed", 0, train_run._save_checkpoint

    def save_and_die(*args, **how) -> None:
        nonlocal n
        save(*args, **how)
        n += 1
        if n == at:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(train_run, "_save_checkpoint", save_and_die)
        with pytest.raises(Killed):
            finetune(base, **more, out=out)
    assert list((out / "checkpoints").iterdir())
    again = finetune(base, **more, out=out, resume=True)
    assert again.run_results == whole.run_results
    for name, tensor in whole.loaded_model.model.own_weights().items():
        assert torch.equal(tensor, again.loaded_model.model.own_weights()[name]), name
    assert (out / "log.jsonl").read_bytes() == (tmp_path / "whole" / "log.jsonl").read_bytes()


@pytest.mark.sample(1)
@pytest.mark.parametrize("tune", ["lora:rank=2", "prefix", "prompt"])
def test_parameter_efficient_methods_learn_it_too(tune: str, files, tmp_path: Path) -> None:
    base = toy.pretrained("unilm", tmp_path / "base")
    out = tmp_path / "out"
    tuned = finetune(
        base, task="generate", **files, **SHORT, out=out, epochs=1.0, learning_rate=1e-3, tune=tune,
        rows=32, max_length=40, task_options={"max_target_length": 5, "max_dev_items": 10},
    )  # fmt: skip
    assert tuned.best_run.dev["loss"] > 0
    assert load(out).predict(["1 2"]) == tuned.predict(["1 2"])
