"""Mixtures: shares of tasks, what is read of each, that all are learned, and that runs go on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_models as toy
from hypothesis import given
from hypothesis import strategies as st

from unmask.batch import IGNORE_INDEX, Example
from unmask.checkpoints.tensors import read_tensors
from unmask.cli import main as cli
from unmask.finetuning import train_run
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data import read_data
from unmask.finetuning.data.batch_stream import BatchSize, count_epoch_steps, make_batch_stream
from unmask.finetuning.data.task_mixture import (
    MixtureTask,
    MixtureText,
    TaskMixture,
    is_mixture,
    read_mixture,
)
from unmask.finetuning.results.predict import predict, read_task
from unmask.finetuning.results.score import score_file
from unmask.finetuning.results.task_metrics import (
    compute_metrics,
    task_of_mixture,
    tasks_of_mixture,
)
from unmask.inference.pipeline import Pipeline
from unmask.jobs.finetune import finetune, resume_finetuning

SPECIAL = toy.tokenizer("t5").special_ids
FORM = '{source = "text: {text}", labels = ["no", "yes"]}'


def mixture(sizes: dict[str, int], **more: Any) -> tuple[TaskMixture, list[str]]:
    one = TaskMixture(name="m", tasks={name: MixtureTask(train="x") for name in sizes}, **more)
    return one, [name for name, n in sizes.items() for _ in range(n)]


def takes(sizes: dict[str, int], **more: Any) -> tuple[int, ...]:
    one, of = mixture(sizes, **more)
    return one.make_source_sampling(of).rows_per_epoch


def test_shares_equal_those_of_the_paper() -> None:  # section 3.5.2
    sizes = {"a": 1000, "b": 100, "c": 10}
    assert takes(sizes) == (1000, 100, 10)
    assert takes(sizes, size_limit=100) == (100, 100, 10)
    assert takes(sizes, sampling_exponent=0.0) == (370, 370, 370)
    roots = np.sqrt([1000, 100, 10])
    assert takes(sizes, sampling_exponent=0.5) == tuple(
        (1110 * roots / roots.sum()).round().astype(int)
    )
    capped = np.array([200.0, 100, 10]) ** 0.5
    expected = (310 * capped / capped.sum()).round().astype(int)
    assert takes(sizes, size_limit=200, sampling_exponent=0.5) == tuple(expected)


def test_component_may_have_its_own_limit() -> None:
    tasks = {"a": MixtureTask(train="x"), "b": MixtureTask(train="x", size_limit=30)}
    one = TaskMixture(name="m", tasks=tasks, text={"c": MixtureText(data=("x",))}, size_limit=20)
    assert one.make_source_sampling(["a"] * 50 + ["b"] * 50 + ["c"] * 50).rows_per_epoch == (
        20,
        30,
        20,
    )


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.integers(1, 20),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 9),
)
def test_epoch_reads_each_component_by_its_share(sizes, limit, sampling, seed) -> None:
    one, of = mixture(
        {f"t{i}": n for i, n in enumerate(sizes)}, size_limit=limit, sampling_exponent=sampling
    )
    sources = one.make_source_sampling(of)
    output = [Example(inputs=np.array([7]), targets=np.array([i])) for i in range(len(of))]
    steps = count_epoch_steps(output, 4, None, sources)
    stream = make_batch_stream(
        output, SPECIAL, BatchSize(n_units=4, micro_batch_tokens=100), seed, source_sampling=sources
    )
    counts = np.zeros(len(of), np.int64)
    result = [step for _, step in zip(range(3 * steps), stream(None), strict=False)]
    for parts, _ in result:
        for part in parts:
            np.add.at(counts, part.targets.numpy().ravel(), 1)
    for number, take in enumerate(sources.rows_per_epoch):
        own = counts[sources.source_of_row == number]
        assert own.sum() == 3 * take
        assert own.max() - own.min() <= 1  # none again before all others were read
    parts, cursor = result[-1]
    again, after = next(stream(cursor - 1))
    assert after == cursor
    assert all(a.targets.equal(b.targets) for a, b in zip(again, parts, strict=True))


def test_text_repeated_in_an_epoch_is_sampled_twice() -> None:
    one, of = mixture({"a": 2, "b": 30}, sampling_exponent=0.0)
    output = [Example(inputs=np.array([7]), targets=np.array([i])) for i in range(len(of))]
    drawn: list[tuple[int, int]] = []

    def draw(example: Example, rng: np.random.Generator) -> Example:
        drawn.append((int(example.targets[0]), int(rng.integers(1 << 40))))
        return example

    sources = one.make_source_sampling(of)
    stream = make_batch_stream(
        output,
        SPECIAL,
        BatchSize(n_units=4, micro_batch_tokens=100),
        3,
        draw,
        source_sampling=sources,
    )(None)
    for _ in range(count_epoch_steps(output, 4, None, sources)):
        next(stream)
    assert len([i for i, _ in drawn if i == 0]) == 8
    assert len({number for _, number in drawn}) == len(drawn)


def write(folder: Path, **more: str) -> Path:
    """Write a mixture of a task with labels, one with numbers and plain text."""
    folder.mkdir(exist_ok=True)
    toy.write(folder / "a.tsv", toy.texts(40, 1))
    toy.write(folder / "a_dev.tsv", toy.texts(12, 2))
    rows = [(f"one {n}", "two", str(n / 2)) for n in range(9)]
    toy.write(folder / "b.tsv", rows * 3, "sentence1\tsentence2\tscore")
    toy.write(folder / "b_dev.tsv", rows, "sentence1\tsentence2\tscore")
    (folder / "plain.txt").write_text("\n\n".join(text for text, _ in toy.texts(20, 5, 20, 40)))
    path = folder / "mixture.toml"
    lines = [
        *(f"{key} = {value}" for key, value in more.items()),
        '[tasks.words]\ntrain = "a.tsv"\ndev = "a_dev.tsv"',
        f"template = {FORM}",
        '[tasks.stsb]\ntrain = "b.tsv"\ndev = "b_dev.tsv"\nmetric = "spearman"',
        '[text.plain]\ndata = ["plain.txt"]\nsize_limit = 10',
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path, **more: Any) -> read_data.FinetuneData:
    return read_data.read_data(
        FinetuneConfig(base="x", **({"task": "generate", "train": str(path)} | more))
    )


def test_components_are_read_from_the_mixture_file(tmp_path: Path) -> None:
    data = read(write(tmp_path))
    assert [item.component for item in data.train] == ["words"] * 40 + ["stsb"] * 27 + [
        "plain"
    ] * 20
    assert {item.label for item in data.train[:40]} == {("no",), ("yes",)}
    assert data.train[41].label == ("0.4", "0.5")
    assert data.train[67].label is None
    assert len(data.dev) == 21
    assert not data.test
    assert data.task_options["task_templates"]["stsb"]["target"] == "score"
    assert data.task_options["task_templates"]["stsb"]["metric"] == "spearman"
    assert data.task_options["task_templates"]["words"]["metric"] == "accuracy"
    assert data.task_options["plain_text_components"] == ["plain"]
    fewer = read(tmp_path / "mixture.toml", rows=10)
    assert [item.component for item in fewer.train] == ["words"] * 10 + ["stsb"] * 10 + [
        "plain"
    ] * 20


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "size_limit = 10",
            "size_limit = 0",
            r"mixture\.toml: text\.plain\.size_limit must be at least 1, got 0",
        ),
        (
            "size_limit = 10",
            "size_limits = 10",
            r"mixture\.toml: unknown key 'text\.plain\.size_limits'; did you",
        ),
        ("[text.plain]", "[text.stsb]", r"mixture\.toml: text\.stsb has the name of a task"),
        ("[text.plain]", "[texts.plain]", r"mixture\.toml: unknown key 'texts'"),
        ('metric = "spearman"', 'metric = "bleu"', r"toml: tasks\.stsb: metric must be one of pea"),
        (
            "[tasks.stsb]",
            "[tasks.mine]",
            r"toml: tasks\.mine\.template must be one of cola, .* 'mine'",
        ),
        (FORM, '"sst"', r"toml: tasks\.words\.template must be one of cola, .* got 'sst'"),
        ("{text}", "{txt}", r"a\.tsv: no column 'txt' \(columns: 'text', 'label'\)"),
        ('"yes"]', '"maybe"]', r"a\.tsv:\d+: label 'yes' in column 'label' must be one of"),
        ('"b.tsv"', '"c.tsv"', r"c\.tsv: no such file"),
        ('["plain.txt"]', '["p.txt"]', r"p\.txt"),
        ('["plain.txt"]', "[]", r"text\.plain\.data must name a file"),
        ('["plain.txt"]', '[""]', r"toml: text\.plain\.data must not be empty"),
        ('"b.tsv"', '""', r"toml: tasks\.stsb\.train must not be empty, got ''"),
        ("[text.plain]", '[text.""]', r"toml: text: the name of a part must have from 1 to 100 p"),
        ("[text.plain]", f"[text.{'x' * 101}]", "from 1 to 100 printable characters and no space"),
        ("[tasks.words]", r'[tasks."a\nb"]', r"toml: tasks: the name of a part .* got 'a\\nb'"),
        (
            FORM,
            "{source = '{text}{'}",
            r"toml: tasks\.words\.template: source has an unmatched brace",
        ),
        (
            FORM,
            "{target = ''}",
            r"toml: tasks\.words\.template: target must be the name of a column",
        ),
        (
            "[tasks.words]",
            "sampling_exponent = 2.0\n[tasks.words]",
            "sampling_exponent must be from 0 to 1, got 2.0",
        ),
    ],
)
def test_mistake_is_refused_with_file_and_key(tmp_path: Path, old, new, message) -> None:
    path = write(tmp_path)
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read(path)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"task": "classify"},
            "a mixture is learned by task = generate or instruct, got 'classify'",
        ),
        ({"dev": "x.tsv"}, "leave out dev"),
        ({"text": ("a",)}, "leave out text"),
        ({"task_options": {"template": "stsb"}}, r"leave out options\.template"),
        ({"batch_tokens": 100}, "give batch_size in place of batch_tokens"),
    ],
)
def test_options_set_by_the_mixture_are_refused(tmp_path: Path, more, message) -> None:
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path), **more)


def test_mixture_is_recognized_by_suffix_and_named_by_file(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert is_mixture(str(path))
    assert not is_mixture("a.tsv")
    assert read_mixture(path).name == "mixture"


def tune(path: Path, base: Path, **more: Any):
    output = {"out": path.parent / "run", "epochs": 2.0, "learning_rate": 1e-2, "evaluate_every": 5}
    return finetune(
        base,
        task="generate",
        train=path,
        batch_size=16,
        max_length=60,
        precision="float32",
        device="cpu",
        terminal=None,
        task_options={"max_target_length": 6},
        **(output | more),
    )


@pytest.mark.thorough
def test_all_tasks_are_learned_scored_and_predicted(tmp_path: Path, capsys) -> None:
    base = toy.pretrained("t5", tmp_path / "base", dropout=0.0, attention_dropout=0.0)
    tuned = tune(write(tmp_path, sampling_exponent="0.5"), base, epochs=14.0, evaluate_every=40)
    dev = tuned.best_run.dev
    assert dev["words.no_label"] < 0.2
    assert dev["words.accuracy"] >= 0.6
    assert dev["mean"] == pytest.approx((dev["words.accuracy"] + dev["stsb.spearman"]) / 2)
    assert dev["stsb.no_number"] < 1
    assert tuned.task.metric == "mean"
    assert any(line.startswith("plain: ") for line in tuned.notes)
    out = tmp_path / "run"
    last = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert any("words.accuracy" in str(line) for line in last)
    task = read_task(out)
    assert task == tuned.task
    alone = Pipeline(tuned.loaded_model, task).mixture_task("words")
    (by_name,) = alone.predict(["a good cat"])
    assert by_name["label"] == by_name["answer"]
    assert (
        predict(tuned.loaded_model, ["text: a good cat"], task=task)[0]["answer"]
        == by_name["answer"]
    )
    found = score_file(tuned.loaded_model, tmp_path / "a_dev.tsv", task=alone.task)
    assert found["accuracy"] == dev["words.accuracy"]
    words = ["evaluate", str(out), "--mixture-task", "words", "--data", str(tmp_path / "a_dev.tsv")]
    capsys.readouterr()
    assert cli.run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == found["accuracy"]
    (number,) = Pipeline(tuned.loaded_model, task).mixture_task("stsb").predict([("one 3", "two")])
    assert set(number) == {"answer", "number"}
    with pytest.raises(ValueError, match="learned no task 'sst2': it has words, stsb"):
        Pipeline(tuned.loaded_model, task).mixture_task("sst2")


class Killed(Exception):
    """The process is gone."""


@pytest.mark.thorough
def test_killed_and_resumed_run_is_bitwise_equal(tmp_path: Path, monkeypatch) -> None:
    base, path = (
        toy.pretrained("t5", tmp_path / "base"),
        write(tmp_path / "data", sampling_exponent="0.5"),
    )
    whole = tune(path, base, out=tmp_path / "whole")
    save = train_run._save_checkpoint

    def save_and_die(*args: Any, **options: Any) -> None:
        save(*args, **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(train_run, "_save_checkpoint", save_and_die)
        with pytest.raises(Killed):
            tune(path, base, out=tmp_path / "killed")
    content = path.read_text()
    path.write_text(content.replace("0.5", "1.0"))
    with pytest.raises(ValueError, match="the mixture data have changed"):
        resume_finetuning(tmp_path / "killed", device="cpu", terminal=None)
    path.write_text(content)
    again = resume_finetuning(tmp_path / "killed", device="cpu", terminal=None)
    assert again.run_results == whole.run_results
    one, other = (read_tensors(tmp_path / n / "model.safetensors") for n in ("whole", "killed"))
    assert one.keys() == other.keys()
    assert all(tensor.equal(other[name]) for name, tensor in one.items())


def test_plain_text_is_masked_and_pairs_are_unchanged(tmp_path: Path) -> None:
    from unmask.finetuning.formulations.build import formulate
    from unmask.tasks.all_kinds import resolve_options
    from unmask.tasks.task import Task, TaskColumns

    data, preset = read(write(tmp_path)), toy.card("t5")
    task = Task(
        task_kind="generate",
        columns=TaskColumns(texts=("source",), label="target"),
        task_name="generate",
        max_length=30,
        options=resolve_options("generate", {**data.task_options, "max_target_length": 6}),
    )
    one = formulate(task, preset, toy.tokenizer("t5"))
    questions = one.build_inputs(data.train)
    rng = np.random.default_rng(0)
    for question in questions:
        item, drawn = data.train[question.item_index], one.sample_example(question.example, rng)
        assert drawn.source is not None
        assert max(len(drawn.source), len(drawn.inputs)) <= 30
        if item.component != "plain":
            assert drawn is question.example
            continue
        assert (question.example.targets == IGNORE_INDEX).all()
        other = one.sample_example(question.example, rng)
        assert SPECIAL.sentinels[0] in drawn.source
        assert drawn.targets[0] == other.targets[0] == SPECIAL.sentinels[0]
    assert len({q.item_index for q in questions}) == len(data.train)
    assert len(questions) > len(data.train)  # long texts are several rows
    with pytest.raises(ValueError, match=r"plain text \(plain\) is no part of a mixture of unilm"):
        formulate(replace(task, max_length=60), toy.card("unilm"), toy.tokenizer("unilm"))


def test_figures_of_several_tasks_are_prefixed_by_task() -> None:
    from unmask.config import to_dict
    from unmask.tasks.task import Task, TaskColumns, TaskExample
    from unmask.tasks.text_templates import TEXT_TEMPLATES, TextTemplate

    forms = {
        "sst2": TEXT_TEMPLATES["sst2"],
        "mine": TextTemplate(source="x {a}", target="b", metric="exact_match"),
    }
    plain = {name: to_dict(form) for name, form in forms.items()}
    task = Task(task_kind="generate", columns=TaskColumns(texts=("source",), label="target"),
                metric="mean", options={"task_templates": plain})  # fmt: skip
    items = [
        TaskExample(texts=("x",), label=("positive",), component="sst2"),
        TaskExample(texts=("y",), label=("z", "w"), component="mine"),
        TaskExample(texts=("y",), label=("v",), component="mine"),
    ]
    found = compute_metrics(task, items, ["positive", "w", "u"])
    assert found["sst2.accuracy"] == 1
    assert found["mine.exact_match"] == 0.5
    assert found["mean"] == 0.75
    assert list(tasks_of_mixture(task)) == ["sst2", "mine"]
    alone = task_of_mixture(task, "mine")
    assert (alone.columns.texts, alone.columns.label, alone.metric) == (("a",), "b", "exact_match")
    with pytest.raises(ValueError, match="one task, without a name"):
        task_of_mixture(alone, "mine")
