"""Text-to-text tasks: inputs, targets, scores of texts, and learning."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy

from unmask.batch import IGNORE_INDEX
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import load_folder
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data.read_data import read_data as plan_read
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.formulations.text_to_text.text_to_text import (
    GeneratedText,
    TextToTextFormulation,
)
from unmask.finetuning.job import prepare as jobs
from unmask.finetuning.job.notes import truncation_warnings
from unmask.finetuning.results.predict import predict, predict_scores, read_task
from unmask.finetuning.results.score import score, score_file
from unmask.generation.decode import generate
from unmask.generation.settings import GenerationConfig
from unmask.inference.open_model import load
from unmask.jobs.finetune import finetune
from unmask.tasks.all_kinds import TASK_KINDS, resolve_metric, resolve_options
from unmask.tasks.kinds.generate import GENERATE
from unmask.tasks.metrics.captioning.captions import CAPTION_METRICS
from unmask.tasks.readers.tables import read_table
from unmask.tasks.task import Task, TaskColumns, TaskExample

ONE = TaskColumns(texts=("source",), label="target")
SHORT = {"batch_size": 16, "terminal": None, "precision": "float32", "device": "cpu"}
KIND = TASK_KINDS["generate"]


def task(length: int = 60, columns: TaskColumns = ONE, **given) -> Task:
    return Task(
        task_kind="generate", columns=columns, task_name="generate", max_length=length,
        options=resolve_options("generate", given), metric="exact_match",
    )  # fmt: skip


def make_formulation(family: str, **more) -> TextToTextFormulation:
    found = formulate(task(**more), toy.card(family), toy.tokenizer(family))
    assert isinstance(found, TextToTextFormulation)
    return found


def model_of(family: str, seed: int = 0):
    preset = toy.card(family, dropout=0.0, attention_dropout=0.0)
    return preset.build(heads_for_task(task(), preset)).initialize(seed).eval()


def ids(family: str, text: str) -> list[int]:
    return toy.tokenizer(family).encode(text).ids.tolist()


def make_example(source: str | tuple[str, ...], *targets: str) -> TaskExample:
    texts = (source,) if isinstance(source, str) else source
    return TaskExample(texts=texts, label=targets or None)


def test_encoder_reads_prefix_and_source_decoder_predicts_target() -> None:
    special = toy.tokenizer("t5").special_ids
    (question,) = make_formulation("t5", prefix="text: ").build_inputs(
        [make_example("a cat runs", "red sun", "no")]
    )
    example = question.example
    assert example.source.tolist() == [*ids("t5", "text: a cat runs"), special.end]
    output = [*ids("t5", "red sun"), special.end]
    assert example.targets.tolist() == output
    assert example.inputs.tolist() == [special.start, *output[:-1]]
    assert not question.truncated


def test_bart_source_and_target_have_special_tokens() -> None:
    special = toy.tokenizer("bart").special_ids
    (question,) = make_formulation("bart").build_inputs([make_example("a cat runs", "red sun")])
    example = question.example
    assert example.source.tolist() == [*special.prefix, *ids("bart", "a cat runs"), special.end]
    output = [*ids("bart", "red sun"), special.end]
    assert example.inputs.tolist() == [special.end, *special.prefix, *output[:-1]]
    assert example.targets.tolist() == [IGNORE_INDEX, *output]


def test_languages_of_sources_and_targets_are_set() -> None:
    named = {"source_language": "en_XX", "target_language": "he_IL"}
    (question,) = make_formulation("mbart", **named).build_inputs(
        [make_example("a cat runs", "red sun")]
    )
    special = toy.tokenizer("mbart").special_ids
    english, hebrew = (dict(special.languages)[name] for name in named.values())
    example = question.example
    assert example.source.tolist() == [*ids("mbart", "a cat runs"), special.end, english]
    output = [*ids("mbart", "red sun"), special.end]
    assert example.inputs.tolist() == [hebrew, *output[:-1]]
    assert example.targets.tolist() == output


@pytest.mark.parametrize(
    ("family", "named", "message"),
    [
        ("mbart", {}, r"source_language and .* must name two of ar_AR, cs_CZ"),
        ("mbart", {"source_language": "en_XX"}, "go together"),
        (
            "mbart",
            {"source_language": "en_XX", "target_language": "xx_XX"},
            "must be one of ar_AR, .*, got 'xx_XX'",
        ),
        (
            "bart",
            {"source_language": "en_XX", "target_language": "de_DE"},
            "has no language tokens",
        ),
    ],
)
def test_languages_are_validated(family: str, named: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_formulation(family, **named)


@pytest.mark.parametrize(("between", "parts"), [(None, None), ("\n", "\n"), (" red:", " red:")])
def test_decoder_has_targets_only_after_the_source(between, parts) -> None:
    special = toy.tokenizer("gpt2").special_ids
    (question,) = make_formulation("gpt2", separator=between).build_inputs(
        [make_example("a cat", "the sun")]
    )
    apart = [special.end] if parts is None else ids("gpt2", parts)
    lead, output = [*ids("gpt2", "a cat"), *apart], [*ids("gpt2", "the sun"), special.end]
    assert question.example.inputs.tolist() == [*lead, *output[:-1]]
    assert question.example.targets.tolist() == [IGNORE_INDEX] * (len(lead) - 1) + output


def test_several_columns_are_read_with_their_names() -> None:
    two = TaskColumns(texts=("question", "context"), label="answer")
    (question,) = make_formulation("t5", columns=two).build_inputs(
        [make_example(("one two", "three"), "four")]
    )
    expected = ids("t5", "question: one two context: three")
    assert question.example.source.tolist() == [*expected, toy.tokenizer("t5").special_ids.end]


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_input_does_not_depend_on_the_target(family: str) -> None:
    one = make_formulation(family, length=40, max_target_length=8)
    long = " ".join(toy.WORDS * 3)
    some = [make_example(long), make_example(long, "a"), make_example(long, " ".join(toy.WORDS))]
    unknown, short, cut = (q.example for q in one.build_inputs(some))
    assert all(q.truncated for q in one.build_inputs(some))
    if family == "t5":
        assert len(unknown.source) == 40
        assert unknown.source.tolist() == short.source.tolist() == cut.source.tolist()
        assert unknown.source[-1] == one.end_id
    else:
        n = len(unknown.inputs)
        assert n == 32
        assert unknown.inputs.tolist() == short.inputs[:n].tolist() == cut.inputs[:n].tolist()
        assert len(cut.inputs) == 39
    assert int((cut.targets != IGNORE_INDEX).sum()) == 8
    assert cut.targets[-1] != one.end_id  # it goes on
    assert short.targets[-1] == one.end_id


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_scores_are_greedy_text_and_target_loss(family: str) -> None:
    one, model = make_formulation(family, max_target_length=9), model_of(family)
    some = [
        make_example("a cat runs", "the sun"),
        make_example("", "one two three"),
        make_example("red " * 5),
        make_example("dog", ""),
    ]
    questions = one.build_inputs(some)
    predictions = predict_scores(one, model, questions).scores
    for item, question, written in zip(some, questions, predictions, strict=True):
        example = question.example
        (unknown,) = one.build_inputs([replace(item, label=None)])
        read = unknown.example.source if family == "t5" else unknown.example.inputs
        (expected,) = generate(
            model, [read.tolist()], one.special_ids, GenerationConfig(max_new_tokens=9)
        )
        assert written.token_ids.tolist() == expected
        assert one.prediction_record(item, written) == {
            "answer": toy.tokenizer(family).decode(expected)
        }
        term = model(pad_examples([example], one.special_ids)).terms["next_token"]
        total = pytest.approx(term.total.item(), rel=1e-5)
        assert one.loss(item, written) == (total, term.count)
        n = 0 if item.label is None else min(len(ids(family, item.label[0])) + 1, 9)
        assert term.count == n
    assert (
        one.prediction(some[0], predictions[0])
        == one.prediction_record(some[0], predictions[0])["answer"]
    )


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_prediction_does_not_depend_on_other_texts(family: str) -> None:
    one, model = make_formulation(family, max_target_length=6), model_of(family, 3)
    some = [make_example(text, label) for text, label in toy.texts(12, 5)]
    together = predict_scores(one, model, one.build_inputs(some)).scores
    for item, written in zip(some, together, strict=True):
        (alone,) = predict_scores(one, model, one.build_inputs([item])).scores
        assert alone.token_ids.tolist() == written.token_ids.tolist()
        assert alone.target_loss == pytest.approx(written.target_loss, rel=1e-4)


def test_all_references_are_scored_and_the_first_is_learned(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [
        {"body": "a cat", "subject": "cat", "references": ["a", "the cat", "cat"]},
        {"body": "a dog", "subject": ["dog", "the dog"], "references": []},
        {"body": "one", "subject": 1, "references": ["one"]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    table = read_table(path)
    columns = KIND.reader.find_columns(table, (), None, ())
    assert columns == TaskColumns(texts=("body",), label="subject")
    found = KIND.reader.read_examples(table, columns, "strict", has_labels=True, options={})
    assert [item.label for item in found] == [
        ("cat", "a", "the cat"), ("dog", "the dog"), ("1", "one"),
    ]  # fmt: skip
    other = KIND.reader.read_examples(
        table, columns, "strict", has_labels=True, options={"references_column": "none"}
    )
    assert [item.label for item in other] == [("cat",), ("dog", "the dog"), ("1",)]
    truth = [item.label for item in found if item.label is not None]
    scores = KIND.compute_metrics(task(), truth, ["the cat", "the dog", "two"])
    assert scores["exact_match"] == pytest.approx(2 / 3)
    assert scores["answer_f1"] == pytest.approx(2 / 3)
    assert KIND.majority_baseline(task(), found) == "cat"


def test_references_may_be_in_several_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("body\tsubject\tsecond\tthird\nx\ta cat\tthe cat\tcat\ny\ta dog\t\tdog\n")
    table = read_table(path)
    columns = KIND.reader.find_columns(table, (), None, ())

    def read(*names: str) -> list[object]:
        options = {"references_column": list(names)}
        found = KIND.reader.read_examples(
            table, columns, "strict", has_labels=True, options=options
        )
        return [item.label for item in found]

    assert read("second", "third") == [("a cat", "the cat", "cat"), ("a dog", "dog")]
    assert read("third") == [("a cat", "cat"), ("a dog", "dog")]
    assert read("none", "other") == [("a cat",), ("a dog",)]  # a training file may have none
    message = r"rows.tsv: no column 'other' of options.references_column \(columns: 'body', "
    with pytest.raises(ValueError, match=message):
        read("third", "other")
    with pytest.raises(ValueError, match=r"options.references_column must be str, got 3"):
        KIND.reader.read_examples(
            table, columns, "strict", has_labels=True, options={"references_column": 3}
        )


def test_several_references_have_the_metrics_of_captions() -> None:
    several, single = [("a cat", "the cat"), ("a dog",)], [("a cat",), ("a dog",)]
    scores = KIND.compute_metrics(task(), several, ["the cat", "dog"])
    assert {*CAPTION_METRICS} <= {*scores}
    assert scores["bleu1"] == pytest.approx(100 * np.exp(1 - 4 / 3))
    assert not {*CAPTION_METRICS} & {*KIND.compute_metrics(task(), single, ["cat", "dog"])}
    chosen = KIND.compute_metrics(replace(task(), metric="cider_d"), single, ["a cat", "dog"])
    assert chosen["cider_d"] > 0
    assert {*CAPTION_METRICS} <= {*KIND.metric_names(task())}


def test_invalid_input_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for value, message in (
        (None, "rows.jsonl:1: no target in column 'target'"),
        ([], "rows.jsonl:1: no target in column 'target'"),
        ({"a": 1}, "rows.jsonl:1: 'target' must be a text or a list of texts"),
    ):
        path.write_text(json.dumps({"source": "a", "target": value}))
        with pytest.raises(ValueError, match=message):
            KIND.reader.read_examples(read_table(path), ONE, "strict", has_labels=True, options={})
    with pytest.raises(ValueError, match="bert-tiny reads in both directions"):
        heads_for_task(task(), toy.card("bert"))
    with pytest.raises(ValueError, match="max_length must be at least 34 for targets of 32 tokens"):
        make_formulation("gpt2", length=30, max_target_length=32)
    with pytest.raises(ValueError, match=r"options.max_target_length must be at least 1, got 0"):
        resolve_options("generate", {"max_target_length": 0})
    with pytest.raises(ValueError, match="use the option prefix"):
        GENERATE.complete_task(replace(task(), task_name="sst2"), [])


def read_by(form: dict[str, object] | str, rows: list[tuple[str, ...]], folder: Path, header: str):
    """Read rows in a text form, and generate; also the options that the file decided."""
    asked_for = FinetuneConfig(
        base="x", task="generate", train=str(toy.write(folder / "rows.tsv", rows, header)),
        dev=str(toy.write(folder / "dev.tsv", rows, header)), task_options={"template": form},
    )  # fmt: skip
    return plan_read(asked_for)


def test_text_form_formats_columns_and_targets(tmp_path: Path) -> None:
    rows = [("a cat", "a dog", "2.57"), ("the sun", "the moon", "5")]
    data = read_by("stsb", rows, tmp_path, "sentence1\tsentence2\tscore")
    assert data.columns == TaskColumns(texts=("sentence1", "sentence2"), label="score")
    assert [item.label for item in data.train] == [("2.6", "2.57"), ("5.0",)]
    one = replace(
        task(columns=data.columns), options=resolve_options("generate", data.task_options)
    )
    (question, _) = formulate(one, toy.card("t5"), toy.tokenizer("t5")).build_inputs(data.train)
    end = toy.tokenizer("t5").special_ids.end
    expected = ids("t5", "stsb sentence1: a cat sentence2: a dog")
    assert question.example.source.tolist() == [*expected, end]
    assert question.example.targets.tolist() == [*ids("t5", "2.6"), end]
    assert resolve_metric(one, None) == "pearson"
    found = KIND.compute_metrics(one, [item.label for item in data.train], ["2.6", "5"])
    assert found["pearson"] == pytest.approx(1)
    asking = formulate(one, toy.card("t5"), toy.tokenizer("t5"))
    output = [GeneratedText(token_ids=np.array(ids("t5", text))) for text in ("2.6", "a cat")]
    assert [asking.prediction_record(data.train[0], one) for one in output] == [
        {"answer": "2.6", "number": 2.6},
        {"answer": "a cat", "number": None},
    ]


def test_numeric_labels_are_learned_as_their_words(tmp_path: Path) -> None:
    data = read_by("sst2", [("a cat", "1"), ("the sun", "0")], tmp_path, "sentence\tlabel")
    assert [item.label for item in data.train] == [("positive",), ("negative",)]
    with pytest.raises(ValueError, match=r"rows.tsv:2: label '2' .* must be one of"):
        read_by("sst2", [("a cat", "2"), ("the sun", "0")], tmp_path, "sentence\tlabel")
    with pytest.raises(ValueError, match=r"no column 'sentence' \(columns: 'text', 'label'"):
        read_by("sst2", [("a cat", "1"), ("the sun", "0")], tmp_path, "text\tlabel")


def test_longest_text_is_truncated_and_nothing_around_it() -> None:
    form = {"source": "text: {a} label: {b}", "truncation_keeps": "start"}
    long, short = " ".join(toy.WORDS), "one two"
    columns = TaskColumns(texts=("a", "b"), label="target")
    one = make_formulation("t5", columns=columns, length=40, template=form)
    for texts in ((long, short), (short, long), (long, long)):
        (question,) = one.build_inputs([make_example(texts, "no")])
        text = toy.tokenizer("t5").decode(question.example.source)
        assert question.truncated
        assert 36 <= len(question.example.source) <= 40
        assert text.startswith("text: ")
        assert " label: " in text
        if texts[1] == short:
            assert text.endswith("label: one two")


def test_dialog_drops_its_oldest_turns(tmp_path: Path) -> None:
    turns = [f"{word} a cat runs" for word in ("one", "two", "three", "four", "five", "six")]
    rows = [{"turns": turns, "response": "the dog"}, {"turns": turns[:2], "response": "no"}]
    path = tmp_path / "dialog.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    data = plan_read(
        FinetuneConfig(base="x", task="generate", train=str(path), dev=str(path), text=("turns",))
    )
    assert data.task_options["template"]["truncation_keeps"] == "end"
    assert data.train[0].texts == ("\n".join(turns),)
    one = replace(
        task(length=40, columns=data.columns),
        options=resolve_options("generate", data.task_options),
    )
    formulation = formulate(one, toy.card("t5"), toy.tokenizer("t5"))
    questions = formulation.build_inputs(data.train)
    assert [question.truncated for question in questions] == [True, False]
    text = toy.tokenizer("t5").decode(questions[0].example.source)
    kept = [prediction_order for prediction_order in turns if prediction_order in text]
    assert kept
    assert kept == turns[-len(kept) :]
    assert text.startswith(kept[0])
    assert "lose their beginning" in truncation_warnings(formulation, 1, 0, 2, "training")[0]


def test_list_element_can_be_a_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    answers = [{"text": "the sun", "answer_start": 0}, {"text": "sun", "answer_start": 4}]
    path.write_text(json.dumps({"question": "one?", "context": "the sun", "answers": answers}))
    form = {"source": "{answers[0]} text: {context}", "target": "question"}
    data = plan_read(
        FinetuneConfig(
            base="x",
            task="generate",
            train=str(path),
            dev=str(path),
            task_options={"template": form},
        )
    )
    assert data.columns == TaskColumns(texts=("answers[0]", "context"), label="question")
    assert data.train[0].texts == ("the sun", "the sun")
    assert data.train[0].label == ("one?",)
    with pytest.raises(ValueError, match="no column 'answer' "):
        read_table(path).column("answer[0]")


@pytest.mark.thorough
def test_adafactor_has_a_constant_default_learning_rate(tmp_path: Path) -> None:
    file, out = translated(tmp_path / "train.tsv", 96, 1), tmp_path / "out"
    tuned = finetune(
        toy.pretrained("t5", tmp_path / "base"), task="generate", train=file, dev=file, **SHORT,
        optimizer="adafactor", epochs=2.0, out=out,
        task_options={"max_target_length": 6, "max_dev_items": 4},
    )  # fmt: skip
    assert (tuned.config.learning_rate, tuned.config.schedule) == (1e-3, "constant")
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    rates = [line["rate"] for line in lines if "rate" in line]
    assert rates[-1] == 1e-3


def test_metric_of_missing_library_is_refused_at_once(monkeypatch) -> None:
    from unmask.tasks.kinds import generate as kind

    monkeypatch.setattr(kind, "_is_installed", lambda module: False)
    with pytest.raises(ImportError, match="rougeL needs rouge_score"):
        GENERATE.complete_task(replace(task(), metric="rougeL"), [])
    assert GENERATE.complete_task(task(), []) == task()


SAID = {"cat": "the red sun", "dog": "moon", "house": "a blue tree"}


def translated(path: Path, n: int, seed: int) -> Path:
    """Write sources with one word that has a translation, and that."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(list(SAID), n).tolist()
    rows = [(f"{rng.choice(['one', 'two', 'three'])} {word}", SAID[word]) for word in drawn]
    return toy.write(path, rows, "source\ttarget")


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["t5", "gpt2"])
def test_texts_are_learned_exactly(family: str, tmp_path: Path) -> None:
    base = toy.pretrained(family, tmp_path / "base", dropout=0.0, attention_dropout=0.0)
    files = {
        "train": translated(tmp_path / "train.tsv", 96, 1),
        "dev": translated(tmp_path / "dev.tsv", 20, 2),
    }
    out = tmp_path / "out"
    tuned = finetune(
        base, task="generate", **files, **SHORT, out=out, epochs=14.0, learning_rate=1e-2,
        metric="exact_match", task_options={"max_target_length": 12}, evaluate_every=24,
    )  # fmt: skip
    assert tuned.best_run.dev["exact_match"] == 1
    assert tuned.predict(["one cat", "two dog"]) == [{"answer": "the red sun"}, {"answer": "moon"}]
    again, known = load_folder(out), read_task(out)
    assert known == tuned.task
    assert predict(again, ["one cat"], task=known) == [{"answer": "the red sun"}]
    assert score_file(again, files["dev"], task=known) == pytest.approx(
        tuned.best_run.dev, abs=1e-6
    )
    results = json.loads((out / "results.json").read_text())
    assert results["confusion"] is None
    assert results["errors"] == []
    assert 0 < results["chance"] < 0.6
    content = (out / "README.md").read_text()
    assert "says a label" not in content
    assert {"t5": "text2text-generation", "gpt2": "text-generation"}[family] in content


def test_fewer_examples_are_scored_during_training_and_all_once_at_its_end(
    tmp_path: Path, monkeypatch
) -> None:
    from unmask.finetuning import run, train_run

    seen: list[int] = []

    def scoring(one, model, items, questions, *more):
        seen.append(len(items))
        assert {q.item_index for q in questions} <= set(range(40))
        return score(one, model, items, questions, *more)

    def predicting(one, model, questions, *more):
        seen.append(len(questions))
        return predict_scores(one, model, questions, *more)

    monkeypatch.setattr(train_run, "score", scoring)
    monkeypatch.setattr(run, "predict_scores", predicting)
    finetune(
        toy.pretrained("gpt2", tmp_path / "base"), task="generate",
        train=translated(tmp_path / "train.tsv", 32, 1),
        dev=translated(tmp_path / "dev.tsv", 40, 2),
        **SHORT, epochs=1.0, learning_rate=1e-3,
        task_options={"max_target_length": 4, "max_dev_items": 7},
    )  # fmt: skip
    assert seen == [7, 40]


@pytest.mark.thorough
def test_truncated_targets_are_counted_without_progress(tmp_path: Path, caplog) -> None:
    base, out = toy.pretrained("t5", tmp_path / "base"), tmp_path / "out"
    rows = [("one cat", "the red sun " * 9), *[("two dog", "moon")] * 7]
    train = toy.write(tmp_path / "train.tsv", rows, "source\ttarget")
    dev = toy.write(tmp_path / "dev.tsv", rows[:2], "source\ttarget")
    files = {"train": train, "dev": dev}
    tuned = finetune(
        base,
        task="generate",
        **files,
        **SHORT,
        out=out,
        epochs=1.0,
        task_options={"max_target_length": 12},
    )
    for which, n in (("training", 8), ("dev", 2)):
        output = f"1 of {n} {which} targets have more than 12 tokens, and are learned up to there"
        assert output in caplog.text
        assert sum(output in note for note in tuned.notes) == 1
        assert output in (out / "README.md").read_text()


@pytest.mark.thorough
def test_folder_records_the_learned_languages(tmp_path: Path) -> None:
    import transformers as hf

    base, out = toy.pretrained("mbart", tmp_path / "base"), tmp_path / "out"
    languages = {"source_language": "de_DE", "target_language": "en_XX"}
    tuned = finetune(
        base,
        task="generate",
        train=translated(tmp_path / "train.tsv", 32, 1),
        dev=translated(tmp_path / "dev.tsv", 4, 2),
        **SHORT,
        out=out,
        epochs=2.0,
        learning_rate=1e-2,
        task_options={"max_target_length": 8, **languages},
    )
    loaded, text = load(out), "one cat"
    generated = loaded.generate(text, beams=2, max_new_tokens=8)
    assert generated == loaded.with_languages("de_DE", "en_XX").generate(
        text, beams=2, max_new_tokens=8
    )
    assert loaded.predict([text]) == tuned.predict([text])
    untold = load(base)
    with pytest.raises(ValueError, match="in one: name them"):
        untold.generate(text)
    for folder in (out, loaded.save(tmp_path / "again")):
        reader = hf.AutoTokenizer.from_pretrained(folder)
        ids = reader(text, return_tensors="pt")
        german, english = reader.convert_tokens_to_ids(["de_DE", "en_XX"])
        assert ids["input_ids"][0, -2:].tolist() == [reader.eos_token_id, german]
        theirs = hf.MBartForConditionalGeneration.from_pretrained(folder)
        assert theirs.generation_config.decoder_start_token_id == english
        new = theirs.generate(**ids, num_beams=2, max_new_tokens=8, length_penalty=1.0)
        assert reader.decode(new[0], skip_special_tokens=True) == generated
    french = loaded.with_languages("fr_XX", "en_XX").tokenizer.special_ids
    assert french.suffix == untold.with_languages("fr_XX", "en_XX").tokenizer.special_ids.suffix


def test_held_out_sources_are_named_by_language(tmp_path: Path) -> None:
    model = load(toy.pretrained("mbart", tmp_path / "base"))
    text = tmp_path / "text.txt"
    text.write_text("the cat runs .\n\ntwo dog walks .\n" * 8)
    german, both = f"de_DE={text}", [f"de_DE={text}", f"en_XX={text}"]
    one, other = (model.evaluate(f"{name}={text}") for name in ("de_DE", "en_XX"))
    assert one.loss["denoised"] != other.loss["denoised"]
    assert model.with_languages("fr_XX", "en_XX").evaluate(german).loss == one.loss
    assert model.evaluate(both).documents == 2 * one.documents
    for wrong in (str(text), f"xx_XX={text}"):
        with pytest.raises(ValueError, match="name each source as LANGUAGE=PATH"):
            model.evaluate(wrong)


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_non_numeric_target_counts_as_missing(value: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"source": "a", "target": "b"}}\n{{"source": "c", "target": {value}}}\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl:2: no label in column 'target', but"):
        plan_read(FinetuneConfig(base="x", task="generate", train=str(path), dev=str(path)))


def test_vocabulary_is_learned_from_targets_too() -> None:
    some = [make_example("a", "b", "c")]
    assert list(jobs._vocabulary_texts(some, tagged=False)) == ["a", "b", "c"]
    assert list(
        jobs._vocabulary_texts([TaskExample(texts=("a", "b"), label=("X", "Y"))], tagged=True)
    ) == ["a b"]


@pytest.mark.parametrize("family", ["t5", "gpt2", "unilm"])
def test_label_smoothing_applies_in_training_only(family: str) -> None:
    preset = toy.card(family)
    assert heads_for_task(task(), preset)["language"].label_smoothing == 0
    model = preset.build(heads_for_task(task(label_smoothing=0.1), preset)).initialize(0)
    hidden, targets = torch.randn(3, model.backbone.width), torch.tensor([5, 6, 7])
    with torch.no_grad():
        scores = model.language_head.logits(hidden).float()
        for learns in (False, True):
            total, _ = model.language_head.train(learns).loss(hidden, targets)
            smoothing = 0.1 * learns
            torch.testing.assert_close(
                total,
                torch.nn.functional.cross_entropy(
                    scores, targets, reduction="sum", label_smoothing=smoothing
                ),
            )
    with pytest.raises(
        ValueError, match=r"options\.label_smoothing must be at least 0 and below 1"
    ):
        task(label_smoothing=1.0)
