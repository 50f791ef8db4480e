"""Every finished fine-tuning run is opened by every command that accepts a run."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy_models as toy

import unmask
from unmask.checkpoints.huggingface.write import write_folder
from unmask.finetuning.methods.method import METHODS
from unmask.inference.pipeline import Pipeline
from unmask.jobs.finetune import finetune
from unmask.reports.page import write_report
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.zoo.catalogue import MODELS

N = 12


def _lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _classify(path: Path) -> dict[str, Any]:
    return {"train": toy.write(path / "rows.tsv", toy.texts(N, 1))}


def _pairs(path: Path) -> dict[str, Any]:
    rows = [(text, "the cat", label) for text, label in toy.texts(N, 2)]
    return {"train": toy.write(path / "pairs.tsv", rows, "a\tb\tlabel"), "text": ("a", "b")}


def _regress(path: Path) -> dict[str, Any]:
    rows = [(text, len(text) % 7) for text, _ in toy.texts(N, 3)]
    return {"train": toy.write(path / "numbers.tsv", rows, "text\tscore")}


def _tag(path: Path) -> dict[str, Any]:
    rows = ["\n".join(f"{w} {'B-X' if w == 'bad' else 'O'}" for w in text.split())
            for text, _ in [("the bad cat", ""), ("bad dog runs", "")] * (N // 2)]  # fmt: skip
    (path / "words.conll").write_text("\n\n".join(rows) + "\n")
    return {"train": path / "words.conll"}


def _answer(path: Path) -> dict[str, Any]:
    rows = [
        {
            "question": "red cat ?", "context": "the sun very red",
            "answers": {"text": ["sun"], "answer_start": [4]},
        }
    ] * N  # fmt: skip
    return {"train": _lines(path / "answers.jsonl", rows)}


def _generate(path: Path) -> dict[str, Any]:
    rows = [{"source": text, "target": "the " + label} for text, label in toy.texts(N, 4)]
    return {"train": _lines(path / "targets.jsonl", rows), "task_options": {"max_target_length": 6}}


def _multilabel(path: Path) -> dict[str, Any]:
    rows = [{"text": text, "labels": [label, "z"][: i % 3]} for i, (text, label) in
            enumerate(toy.texts(N, 5))]  # fmt: skip
    return {"train": _lines(path / "many.jsonl", rows), "label": "labels"}


def _choose(path: Path) -> dict[str, Any]:
    rows = [
        {"context": text, "question": "very", "choices": ["cat", "dog"], "label": i % 2}
        for i, (text, _) in enumerate(toy.texts(N, 6))
    ]
    return {"train": _lines(path / "choices.jsonl", rows)}


def _prefer(path: Path) -> dict[str, Any]:
    rows = [
        {"prompt": "the cat", "chosen": text, "rejected": f"very {text}"}
        for text, _ in toy.texts(N, 7)
    ]
    return {"train": _lines(path / "preferences.jsonl", rows)}


def _instruct(path: Path) -> dict[str, Any]:
    rows = [{"prompt": text, "response": "the " + label} for text, label in toy.texts(N, 8)]
    return {"train": _lines(path / "responses.jsonl", rows)}


def _cloze(path: Path) -> dict[str, Any]:
    words = {"pattern": "{text} a [MASK]", "label_words": {"no": "cat", "yes": "dog"}}
    return {**_classify(path), "task_options": words}


TASKS: dict[str, tuple[Callable[[Path], dict[str, Any]], Any]] = {
    "classify": (_classify, "the bad cat"),
    "pairs": (_pairs, ("the bad cat", "the dog")),
    "regress": (_regress, "the bad cat"),
    "tag": (_tag, ["the", "bad", "cat"]),
    "answer": (_answer, {"question": "red cat ?", "context": "the sun"}),
    "generate": (_generate, "the bad cat"),
    "multilabel": (_multilabel, "the bad cat"),
    "choose": (_choose, {"context": "cat", "question": "very", "choices": ["cat", "dog"]}),
    "cloze": (_cloze, "the bad cat"),
    "prefer": (_prefer, {"prompt": "the cat", "responses": ["bad cat", "very bad"]}),
    "instruct": (_instruct, "the bad cat"),
}
"""Some rows of each kind of task, and inputs to predict afterwards."""


def _masked(folder: Path) -> Path:
    """Write a BERT of masks alone, for which means over all layers are read."""
    preset = toy.card("bert")
    preset = replace(preset, heads={"language": preset.heads["language"]})
    write_folder(folder, preset.build().initialize(7), preset, toy.tokenizer("bert"))
    return folder


def _lstm(folder: Path) -> Path:
    preset = MODELS["lstm-mini"]
    words = train_tokenizer(
        replace(preset.tokenizer, vocabulary=replace(preset.tokenizer.vocabulary, size=300)),
        [text for text, _ in toy.texts(200, 9)],
    )
    a = replace(preset.architecture, vocab_size=words.vocab_size, d_model=32, d_ff=32, n_layers=2)
    preset = replace(preset, architecture=a)
    write_folder(folder, preset.build().initialize(7), preset, words)
    return folder


BASES: dict[str, Callable[[Path], Path]] = {
    "bert": lambda folder: toy.pretrained("bert", folder),
    "bert of masks alone": _masked,
    "gpt2": lambda folder: toy.pretrained("gpt2", folder),
    "t5": lambda folder: toy.pretrained("t5", folder),
    "bart": lambda folder: toy.pretrained("bart", folder),
    "lstm": _lstm,
}
SHORT: dict[str, Any] = {"epochs": 1.0, "batch_size": 6, "learning_rate": 1e-2, "terminal": None}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            made[name] = BASES[name](tmp_path_factory.mktemp("base"))
        return made[name]

    return of


def same(a: Any, b: Any) -> bool:
    """Say whether answers are alike but for rounding."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a == pytest.approx(b, abs=1e-4)
    return a == b


def opened_by_everything(run: Path, task: str, predicted: Any, files: dict[str, Any]) -> None:
    """Give a run to each command that takes one."""
    inputs = TASKS[task][1]
    again = unmask.load(run)
    assert same(again.predict([inputs]), predicted)
    again.score(files["train"], **{k: x for k, x in files.items() if k in ("text", "label")})
    assert np.isfinite(np.asarray(again.embed("the bad cat"))).all()
    used(again)
    converted(again, run.parent / "converted", inputs, predicted)
    assert write_report(run).is_file()
    tuned_on(run, task, files)


IN_WEIGHTS = "cannot be merged into the model's weights; LoRA, IA3 and BitFit can"
"""Message for an adapter that is no change of weights."""


def tuned_on(run: Path, task: str, files: dict[str, Any]) -> None:
    try:
        on = finetune(run, task=task, **files, dev=files["train"], **SHORT)
    except ValueError as error:
        assert IN_WEIGHTS in str(error)  # noqa: PT017
    else:
        on.predict([TASKS[task][1]])


def used(model: Pipeline) -> None:
    """Fill and write with what names tokens."""
    if not model.model.has_language_head:
        return
    if model.model.can_generate:
        model.generate("the bad", max_new_tokens=2)
    elif model.tokenizer is not None and model.tokenizer.special_ids.mask is not None:
        model.fill("the [MASK] cat")


def converted(model: Pipeline, folder: Path, inputs: Any, predicted: Any) -> None:
    try:
        model.save(folder)
    except ValueError as error:
        assert IN_WEIGHTS in str(error)  # noqa: PT017
        return
    assert same(unmask.load(folder).predict([inputs]), predicted)


CUT = [
    ("bert of masks alone", "classify", "ia3"),
    ("bert of masks alone", "regress", "ia3"),
    ("bert of masks alone", "pairs", "lora"),
    ("bert", "multilabel", "bitfit"),
    ("gpt2", "tag", "ia3"),
    ("gpt2", "regress", "lora"),  # the mean of the numbers is in the last norm
    ("gpt2", "regress", "houlsby"),
    ("t5", "generate", "lora"),
    ("bart", "classify", "ia3"),
    ("lstm", "classify", "pfeiffer"),
]
ALL = [(base, task, word) for base in BASES for task in TASKS for word in METHODS]


def check(base: Path, task: str, word: str, folder: Path) -> None:
    files = TASKS[task][0](folder)
    torch.manual_seed(0)
    run = folder / "run"
    tuned = finetune(base, task=task, **files, dev=files["train"], tune=word, out=run, **SHORT)
    opened_by_everything(run, task, tuned.predict([TASKS[task][1]]), files)


@pytest.mark.sample(1)
@pytest.mark.quick("gpt2-tag-ia3", "bert-multilabel-bitfit", "bert of masks alone-pairs-lora")
@pytest.mark.parametrize(("base", "task", "word"), CUT)
def test_finished_run_reloads(
    base: str, task: str, word: str, bases: Callable[[str], Path], tmp_path: Path
) -> None:
    check(bases(base), task, word, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("base", "task", "word"), ALL)
def test_every_finished_run_reloads(
    base: str, task: str, word: str, bases: Callable[[str], Path], tmp_path: Path
) -> None:
    try:
        check(bases(base), task, word, tmp_path)
    except ValueError as error:
        if (tmp_path / "run" / "results.json").exists():
            raise
        pytest.skip(f"refused before it began: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("base", ["bert", "gpt2", "t5", "bart"])
@pytest.mark.parametrize("task", TASKS)
def test_every_run_is_read_again_from_onnx_or_refused(
    base: str, task: Any, bases: Callable[[str], Path], tmp_path: Path
) -> None:
    files = TASKS[task][0](tmp_path)
    try:
        finetune(bases(base), task=task, **files, out=tmp_path / "run", **SHORT)
    except ValueError as error:
        pytest.skip(f"refused before it began: {error}")
    tuned = unmask.load(tmp_path / "run")
    try:
        theirs = unmask.load(tuned.save(tmp_path / "onnx", format="onnx"))
    except ValueError as error:
        assert "ONNX" in str(error)  # noqa: PT017
        assert not (tmp_path / "onnx").exists()
        return
    given = [TASKS[task][1]]
    named = {k: x for k, x in files.items() if k in ("text", "label")}
    assert same(theirs.predict(given), tuned.predict(given))
    assert same(theirs.score(files["train"], **named), tuned.score(files["train"], **named))
    np.testing.assert_allclose(theirs.embed("the bad cat"), tuned.embed("the bad cat"), atol=1e-4)
    if "language" in theirs.model.head_specs and theirs.model.can_generate:
        assert same(theirs.generate("the bad"), tuned.generate("the bad"))
        if tuned.can_chat:
            turns = [{"role": "user", "content": "the bad cat"}]
            assert theirs.chat(turns) == tuned.chat(turns)
