"""What stands for a text: a token, their mean, or two texts compared; in every kind with a head."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy

import unmask
from unmask.batch import Example
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.differences import heads_without_transformers_class
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.cli.main import run
from unmask.config import from_dict
from unmask.finetuning import train_run as tuning_module
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.initial_model.load import InitialModelOptions, load_initial_model
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.finetuning.results.predict import predict
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    SequenceClassificationHead,
)
from unmask.jobs.finetune import finetune
from unmask.model.requested_states import RequestedStates
from unmask.tasks.all_kinds import TASK_KINDS, resolve_options
from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.task import Task, TaskColumns, TaskExample
from unmask.zoo.catalogue import MODELS

KINDS: tuple[TaskKindName, ...] = ("classify", "pairs", "multilabel", "regress", "choose")
FAST = {
    "epochs": 1.0,
    "batch_size": 16,
    "learning_rate": 1e-2,
    "terminal": None,
    "precision": "float32",
}
TEXTS = ["the good cat", "a bad moon and a very red house", "sun"]


def task_of(
    kind: TaskKindName = "classify", pool: str | None = None, layers: str | None = None, **more
) -> Task:
    labels = () if kind in ("regress", "choose") else ("no", "yes")
    columns = TaskColumns(texts=("a", "b") if kind == "pairs" else ("text",), label="label")
    given = {"pooling": pool, "pooled_layers": layers}
    chosen = resolve_options(kind, {name: one for name, one in given.items() if one is not None})
    return Task(
        task_kind=kind, columns=columns, labels=labels, max_length=24, options=chosen, **more
    )


def head_of(kind: TaskKindName, family: str, pool: str | None) -> SequenceClassification:
    (head,) = heads_for_task(task_of(kind, pool), toy.card(family)).values()
    assert isinstance(head, SequenceClassification)
    return head


def opened(task: Task, family: str) -> LoadedModel:
    """Make a random model, its weights large enough that texts differ."""
    preset = toy.card(family)
    preset = replace(preset, heads=heads_for_task(task, preset))
    model = preset.build().eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.3)
    return LoadedModel(
        preset=preset,
        model=model,
        tokenizer=toy.tokenizer(family),
        label_names=task.labels,
        missing=(),
        unexpected=(),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("family", "own"), [("bert", "first"), ("gpt2", "last")])
def test_pooling_option_changes_only_what_is_read(kind: TaskKindName, family: str, own) -> None:
    customary = head_of(kind, family, None)
    assert customary.pooling == own
    assert head_of(kind, family, own) == customary
    two = {"compare"} if kind in ("pairs", "choose") else set()
    for pool in {"last", "mean"} - {own} | two:
        layers = "all" if pool == "compare" else "last"
        other = replace(customary, pooling=pool, pooled_layers=layers, dense_layer=False)
        assert head_of(kind, family, pool) == other
        for layers in ("last", "all"):
            (head,) = heads_for_task(task_of(kind, pool, layers), toy.card(family)).values()
            assert head == replace(other, pooled_layers=layers)


def test_modernbert_keeps_its_head_with_both_poolings_of_its_class() -> None:
    preset = MODELS["modernbert-mini"]
    heads = [heads_for_task(task_of("classify", pool), preset) for pool in ("first", "mean", "max")]
    first, mean, highest = (each["label"] for each in heads)
    assert isinstance(first, SequenceClassification)
    assert mean == replace(first, pooling="mean")
    assert highest == replace(first, pooling="max", dense_layer=False)
    assert [len(heads_without_transformers_class(preset, each)) for each in heads] == [0, 0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_unsupported_pooling_is_refused_with_alternatives(kind: TaskKindName) -> None:
    output = r"pooling must be .*'first', 'last', 'ends', 'mean'.*, got 'min'"
    with pytest.raises(ValueError, match=output):
        from_dict(TASK_KINDS[kind].options, {"pooling": "min"}, "options")
    two = {"pairs": "'attention', 'compare' or 'both'", "choose": "'attention' or 'compare'"}
    more = two.get(kind)
    fits = "'last', 'mean', 'max', 'concat'" + (f", {more}" if more else " or 'attention'")
    with pytest.raises(ValueError, match=rf"options\.pooling must be {fits} for gpt2-mini"):
        head_of(kind, "gpt2", "first")
    if kind not in ("pairs", "choose"):
        with pytest.raises(ValueError, match="'compare' is for two texts, and one is read"):
            head_of(kind, "bert", "compare")
    with pytest.raises(ValueError, match=r"pooled_layers must be .*'last', 'all'.*, got 'first'"):
        from_dict(TASK_KINDS[kind].options, {"pooled_layers": "first"}, "options")
    message = "several at once are a text" if kind == "multilabel" else "as words: leave it out"
    with pytest.raises(ValueError, match=message):
        heads_for_task(task_of(kind, "mean"), toy.card("t5"))
    with pytest.raises(ValueError, match=message):
        heads_for_task(task_of(kind, layers="all"), toy.card("t5"))
    if kind != "multilabel":
        assert heads_for_task(task_of(kind), toy.card("t5"))


def check_reading(
    kind: TaskKindName,
    family: str,
    pool: str,
    layers: str,
    read: Callable[[torch.Tensor, Example], torch.Tensor],
) -> None:
    """Compare a batch's scores with those of what is read of each row's hidden states alone."""
    task = task_of(kind, pool, layers)
    model = opened(task, family)
    formulation = formulate(task, model.preset, model.tokenizer)
    options = ("red", "a green sun") if kind == "choose" else ()
    items = [
        TaskExample(texts=(text, "dog") if kind == "pairs" else (text,), choices=options)
        for text in TEXTS
    ]
    items += [TaskExample(texts=(TEXTS[0], ""))] if kind == "pairs" else []
    examples = [q.example for q in formulation.build_inputs(items)]
    assert len({len(e.inputs) for e in examples}) > 1, "some row is padded"
    (head,) = model.model.heads.values()
    assert isinstance(head, SequenceClassificationHead)
    with torch.no_grad():
        logits = model.model(
            pad_examples(examples, formulation.special_ids), return_logits=True
        ).logits[head.spec.term]
        for row, example in zip(logits, examples, strict=True):
            row_alone = pad_examples([example], formulation.special_ids).with_feature(
                RequestedStates(all_layers=layers == "all")
            )
            hidden = model.model.hidden_states(row_alone)[0]
            assert torch.allclose(row, head.out(read(hidden, example)), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("layers", ["last", "all"])
def test_mean_covers_all_tokens_but_padding(kind: TaskKindName, family: str, layers: str) -> None:
    check_reading(kind, family, "mean", layers, lambda hidden, _: hidden.mean(0))


@pytest.mark.parametrize("kind", ["classify", "choose"])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_concat_pooling_joins_three_vectors(kind: TaskKindName, family: str) -> None:
    def three(hidden: torch.Tensor, example: Example) -> torch.Tensor:
        return torch.cat((hidden[-1], hidden.amax(0), hidden.mean(0)))

    check_reading(kind, family, "concat", "last", three)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("family", "pool", "column"), [("bert", "first", 0), ("gpt2", "last", -1)])
def test_token_of_all_layers_equals_formula(
    kind: TaskKindName, family: str, pool: str, column: int
) -> None:
    check_reading(kind, family, pool, "all", lambda hidden, _: hidden[column])


@pytest.mark.parametrize("kind", ["pairs", "choose"])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("layers", ["last", "all"])
def test_compared_pair_equals_formula_of_means(
    kind: TaskKindName, family: str, layers: str
) -> None:
    """As [u, v, |u - v|, u * v], each read by itself; of an empty text the mean is 0."""

    def compared(hidden: torch.Tensor, example: Example) -> torch.Tensor:
        second = np.asarray(example.part_ids) == 1
        u = hidden[~second].mean(0)
        v = hidden[second].mean(0) if second.any() else torch.zeros_like(u)
        return torch.cat((u, v, (u - v).abs(), u * v))

    check_reading(kind, family, "compare", layers, compared)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_compared_texts_are_encoded_separately(family: str) -> None:
    task = task_of("pairs", "compare", "last")
    model = opened(task, family)
    pairs = formulate(task, model.preset, model.tokenizer)
    single = formulate(task_of("classify"), model.preset, model.tokenizer)
    short = ("the sun", "a cat")
    (pair,) = pairs.build_inputs([TaskExample(texts=short)])
    alone = [q.example for q in single.build_inputs([TaskExample(texts=(t,)) for t in short])]
    assert np.array_equal(pair.example.inputs, np.concatenate([e.inputs for e in alone]))
    with torch.no_grad():
        together = model.model.hidden_states(pad_examples([pair.example], pairs.special_ids))[0]
        each = torch.cat(
            [model.model.hidden_states(pad_examples([e], pairs.special_ids))[0] for e in alone]
        )
    torch.testing.assert_close(together, each, rtol=0, atol=1e-4)


@pytest.mark.parametrize("pooler", [False, True])
def test_means_are_the_default_of_pairs_and_frozen_features_without_trained_pooler(
    pooler: bool, tmp_path: Path
) -> None:
    """BERT's pooler is trained by next-sentence prediction; without it, there is none."""
    preset = toy.card("bert")
    heads = preset.heads if pooler else {"language": preset.heads["language"]}
    model = replace(preset, heads=heads).build().initialize(0)
    given = LoadedModel(
        preset=preset,
        model=model,
        tokenizer=toy.tokenizer("bert"),
        label_names=(),
        missing=(),
        unexpected=(),
    )
    for kind, freezes, means in (
        ("pairs", False, ("compare", "all")),
        ("classify", True, ("mean", "all")),
        ("classify", False, ("first", "last")),
        ("multilabel", False, ("first", "last")),
        ("choose", True, ("first", "last")),
    ):
        options = InitialModelOptions(keeps_first_token=freezes)
        initial = load_initial_model(given, task_of(kind), [], options)
        (head,) = initial.preset.heads.values()
        assert isinstance(head, SequenceClassification)
        assert (head.pooling, head.pooled_layers) == (("first", "last") if pooler else means)
        assert (
            load_initial_model(given, task_of(kind, "first"), [], options)
            .preset.heads[head.term]
            .pooling
            == "first"
        )
    rows = [
        f"{text}\t{other}\t{i % 2}" for i, text in enumerate(TEXTS * 4) for other in ("cat", "sun")
    ]
    train = tmp_path / "pairs.tsv"
    train.write_text("sentence1\tsentence2\tlabel\n" + "\n".join(rows) + "\n")
    tuned = finetune(given, task="pairs", train=train, out=tmp_path / "out", device="cpu", **FAST)
    hint = "BertForSequenceClassification refuses it (--option pooling=first gives a head"
    assert any(hint in note for note in tuned.notes) == (not pooler)
    again = unmask.load(tmp_path / "out")
    pair = ("a red sun", "the cat")
    assert again.predict([pair]) == tuned.predict([pair])
    if not pooler:
        with pytest.raises(ValueError, match="this head compares two texts, and one is read"):
            again.logits(["a red sun"])
    assert tuned.task.options["pooling"] == (None if pooler else "compare")
    further = load_initial_model(again.loaded_model, replace(again.task, options={}), [])
    assert further.newly_initialized() == (), "a head that was trained is kept"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "train": toy.write(tmp_path / "train.tsv", toy.texts(48, 1)),
        "dev": toy.write(tmp_path / "dev.tsv", toy.texts(16, 2)),
    }


def quick(base: Path | str, files: dict[str, Path], **more) -> FinetunedModel:
    given = {"task": "classify", "device": "cpu", "task_options": {"pooling": "mean"}}
    return finetune(base, **(given | files | FAST | more))


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("layers", ["last", "all"])
def test_run_round_trips_with_its_pooling(family: str, layers: str, files, tmp_path: Path) -> None:
    from transformers import AutoModel

    base = toy.pretrained(family, tmp_path / "base")
    options = {"pooling": "mean", "pooled_layers": layers}
    tuned = quick(base, files, out=tmp_path / "out", baseline=True, task_options=options)
    predictions = tuned.predict(TEXTS)
    again = unmask.load(tmp_path / "out")
    assert again.predict(TEXTS) == predictions
    assert predict(again.loaded_model, TEXTS) == predictions  # by what the head says of itself
    again.save(tmp_path / "copy")
    assert unmask.load(tmp_path / "copy").predict(TEXTS) == predictions
    assert [one.shape for one in again.logits(TEXTS)] == [(2,)] * 3
    readme = (tmp_path / "out" / "README.md").read_text()
    said_of_head = "pooling='mean'" + ("" if layers == "last" else ", pooled_layers='all'")
    assert f"its head is SequenceClassification({said_of_head}), which transformers lacks" in readme
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "ForSequenceClassification" not in config["architectures"][0]
    theirs = AutoModel.from_pretrained(tmp_path / "out").eval()
    formulation = formulate(tuned.task, tuned.loaded_model.preset, tuned.loaded_model.tokenizer)
    (question,) = formulation.build_inputs([TaskExample(texts=("the red cat",))])
    batch = pad_examples([question.example], formulation.special_ids)
    with torch.no_grad():
        hidden = theirs(batch.inputs).last_hidden_state
    assert torch.allclose(hidden, again.model.hidden_states(batch), atol=1e-4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize(
    "options", [{"pooling": "mean"}, {"pooled_layers": "all"}, {"pooling": "compare"}, {}], ids=str
)
def test_regression_keeps_its_scale_for_every_pooling(family, options, tmp_path: Path) -> None:
    """The scale in which they are learned goes into the head, or nothing of it does."""
    rng = np.random.default_rng(0)
    rows = [(f"{text}\tthe sun", f"{rng.normal(500, 3):.3f}") for text, _ in toy.texts(48, 1)]
    train = toy.write(tmp_path / "n.tsv", rows, "a\tb\tscore")
    base = toy.pretrained(family, tmp_path / "base")
    given = {"train": train, "dev": train, "text": ("a", "b"), "label": "score"}
    tuned = quick(base, given, task="regress", task_options=options, out=tmp_path / "out")
    pairs = [(text, "the sun") for text, _ in toy.texts(9, 5)]
    predictions = tuned.predict(pairs)
    assert unmask.load(tmp_path / "out").predict(pairs) == pytest.approx(predictions, rel=1e-5)
    if family == "bert" or (options.keys() <= {"pooling"} and "compare" not in options.values()):
        assert np.mean(predictions) == pytest.approx(500, abs=60)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({}, None),
        ({"pooling": "mean"}, "--option pooling=first gives a head that it has"),
        ({"pooled_layers": "all"}, "--option pooled_layers=last gives a head that it has"),
    ],
    ids=str,
)
def test_transformers_opens_a_classifier_with_its_head_or_refuses_it(
    options: dict[str, str], hint: str | None, files, tmp_path: Path, capsys
) -> None:
    """Never with a random head; what it refuses is named before training and at conversion."""
    from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

    tuned = quick(
        "unmask-mini-en", files, out=tmp_path / "out", task_options=options, learning_rate=1e-4
    )
    capsys.readouterr()
    assert run(["convert", str(tmp_path / "out"), str(tmp_path / "new")]) == 0
    readme = (tmp_path / "new" / "README.md").read_text()
    for output in (" ".join(tuned.notes), capsys.readouterr().err, readme):
        assert ("BertForSequenceClassification refuses it" in output) == (hint is not None)
        assert hint is None or hint in output
    for folder in (tmp_path / "out", tmp_path / "new"):
        again = unmask.load(folder)
        assert (again.loaded_model.missing, again.loaded_model.unexpected) == ((), ())
        if hint is not None:
            AutoModel.from_pretrained(folder)
            with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
                AutoModelForSequenceClassification.from_pretrained(folder)
            continue
        theirs = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        tokens = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = theirs(**tokens).logits.numpy()
        np.testing.assert_allclose(logits, np.stack(again.logits(TEXTS)), rtol=0, atol=1e-4)


@pytest.mark.thorough
@pytest.mark.quick("gpt2")
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_adapters_of_one_model_may_pool_differently(family: str, files, tmp_path: Path) -> None:
    base = toy.pretrained(family, tmp_path / "base")
    runs = {
        "own": ({}, "lora"),
        "mean": ({"pooling": "mean"}, "lora"),
        "all": ({"pooling": "mean", "pooled_layers": "all"}, "lora"),
        "asked": ({"pooling": "mean", "pooled_layers": "all"}, "prompt:n_virtual_tokens=3"),
    }
    for name, (read, tune) in runs.items():
        quick(base, files, task_options=read, tune=tune, out=tmp_path / name)
    config = json.loads((tmp_path / "mean" / "adapter_config.json").read_text())
    assert config["unmask"]["heads"]["label"]["pooling"] == "mean"
    assert "no class of transformers has" in (tmp_path / "mean" / "README.md").read_text()
    several = unmask.MultiAdapter({name: tmp_path / name for name in runs})
    names = [list(runs)[i % 4] for i in range(12)]
    texts = [text for text, _ in toy.texts(12, 5, 1, 20)]
    for text, name, answer in zip(texts, names, several.predict(texts, names), strict=True):
        (alone,) = unmask.load(tmp_path / name).predict([text])
        assert answer["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-4)


class Killed(Exception):
    """The process is gone."""


@pytest.mark.thorough
def test_killed_and_resumed_run_is_bitwise_equal(files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    whole = quick(base, files, out=tmp_path / "whole", epochs=2.0)
    save = tuning_module._save_checkpoint

    def save_and_die(*args, **more):
        save(*args, **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(tuning_module, "_save_checkpoint", save_and_die)
        with pytest.raises(Killed):
            quick(base, files, out=tmp_path / "out", epochs=2.0)
    again = quick(base, files, out=tmp_path / "out", epochs=2.0, resume=True)
    assert again.run_results == whole.run_results
    for name, tensor in whole.loaded_model.model.own_weights().items():
        assert torch.equal(tensor, again.loaded_model.model.own_weights()[name]), name
    done = quick(base, files, out=tmp_path / "out", epochs=2.0, resume=True)
    assert done.predict(TEXTS) == again.predict(TEXTS)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["classify", "regress"])
def test_head_is_kept_only_for_equal_pooling(kind: TaskKindName, files, tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    if kind == "regress":
        rng = np.random.default_rng(0)
        rows = [(text, f"{rng.normal():.3f}") for text, _ in toy.texts(48, 1)]
        files = {"train": toy.write(tmp_path / "n.tsv", rows, "text\tscore")} | {
            "dev": tmp_path / "n.tsv"
        }
    for pool in ("first", "mean"):
        quick(base, files, task=kind, task_options={"pooling": pool}, out=tmp_path / pool)
    fresh = load_initial_model(
        str(tmp_path / "mean"), task_of(kind, "mean", "all"), []
    ).newly_initialized()
    assert "heads.label.out.weight" in fresh
    for was in ("first", "mean"):
        for expected in ("first", "mean", "last"):
            fresh = load_initial_model(
                str(tmp_path / was), task_of(kind, expected), []
            ).newly_initialized()
            assert ("heads.label.out.weight" in fresh) == (was != expected), (was, expected)
    kept = (
        load_initial_model(str(tmp_path / "first"), task_of(kind, "mean"), [])
        .build_model(0)
        .own_weights()
    )
    old = load_folder(tmp_path / "first").model.own_weights()
    assert all(torch.equal(x, old[n]) for n, x in kept.items() if n.startswith("backbone."))
