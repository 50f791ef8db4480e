"""The command line: what it prints, what it answers to mistakes, and that nothing is lost."""

import inspect
import io
import json
import os
import pickle
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import load_file
from toy_text import corpus

from unmask import load
from unmask.cli import main as cli
from unmask.cli.inputs import read_texts
from unmask.zoo.catalogue import MODELS

ROOT = Path(__file__).parents[1]
SMALL = """
model = "{model}"
vocab_size = {size}
sequence_length = 32
batch_tokens = 256
dev_fraction = 0.1
log_every = 3
evaluate_every = 6
checkpoint_every = 5
[architecture]
d_model = 32
d_ff = 64
n_layers = 1
n_heads = 2
"""
ROWS = [("the old king saw the gate", "a"), ("her brother loved the sea", "b")] * 12


class Said(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Said]


@pytest.fixture
def unmask(capsys, monkeypatch) -> Run:
    """Give a function that runs a command in this process."""
    monkeypatch.chdir(ROOT)

    def run(*arguments: object, stdin: bytes | None = None) -> Said:
        capsys.readouterr()
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = cli.run([str(a) for a in arguments])
        return Said(status, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Make small models and all kinds of files, good and bad ones."""
    home = tmp_path_factory.mktemp("home")
    (home / "text.txt").write_text(corpus())
    (home / "small.toml").write_text(SMALL.format(model="bert-tiny", size=120))
    (home / "gpt.toml").write_text(SMALL.format(model="gpt2-mini", size=300))
    files = {
        "empty.txt": b"",
        "blank.txt": b"\n \n\t\n",
        "bad.txt": b"hello\nworld \xff there\n",
        "nul.txt": b"hello\nwor\0ld\n",
        "surrogate.jsonl": b'{"text": "ok"}\n{"text": "a \\ud800 b"}\n',
        "fields.jsonl": b'{"body": "ok", "title": "x"}\n',
        "odd.xyz": b"text",
        "rows.tsv": "".join(f"{t}\t{label}\n" for t, label in [("text", "label"), *ROWS]).encode(),
        "unseen.tsv": b"text\tlabel\nthe king\tc\n",
        "one-class.tsv": b"text\tlabel\nthe king\ta\nthe sea\ta\n",
        "few-fields.tsv": b"text\tlabel\nthe king\ta\nthe sea\n",
        "other.tsv": b"x\ty\nthe king\ta\nthe sea\tb\n",
        "header.tsv": b"text\tlabel\n",
        "numbers.tsv": b"text\tscore\nthe king\t1\nthe sea\tmuch\n",
        "unknown.toml": b'model = "bert-tiny"\nsequence_lenght = 3\n',
        "type.toml": b'model = "bert-tiny"\nsequence_length = "x"\n',
        "syntax.toml": b'model = "bert-tiny"\nsequence_length =\n',
        "model.toml": b'model = "bert-tinny"\n',
        "nothing.toml": b"sequence_length = 3\n",
    }
    for name, data in files.items():
        (home / name).write_bytes(data)
    (home / "void").mkdir()
    (home / "thesis").mkdir()
    (home / "thesis" / "thesis.pdf").write_text("mine")
    for model, recipe in (("bert", "small"), ("gpt", "gpt")):
        words = ["pretrain", home / f"{recipe}.toml", home / "text.txt", "--out", home / model]
        words += ["--steps", 6, "--threads", 1, "--quiet"]
        assert cli.run([str(word) for word in words]) == 0
    words = ["finetune", home / "bert", "--task", "classify", "--train", home / "rows.tsv"]
    words += ["--epochs", 1, "--out", home / "tuned", "--quiet"]
    assert cli.run([str(word) for word in words]) == 0
    return home


def check_mistake(said: Said, *words: str) -> None:
    """Check that a mistake is one line that contains some words."""
    assert said.status == 2, said
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith("unmask"), said.err
    for word in words:
        assert word in lines[0]


# Its help and version


TREE = list(vars(typer.main.get_command(cli.make_app(*cli.COMMANDS)))["commands"].items())
COMMANDS = [name for name, _ in TREE]


@pytest.mark.thorough
def test_help_of_every_command_imports_nothing_heavy() -> None:
    code = f"""
import sys
from unmask.cli import main as cli
for name in {COMMANDS}:
    assert cli.run([name, "--help"]) == 0
heavy = {{"torch", "numpy", "tokenizers", "safetensors", "huggingface_hub"}} & set(sys.modules)
sys.exit(f"imported: {{heavy}}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "command"), TREE)
def test_every_command_and_option_has_help(name: str, command: Any) -> None:
    assert command.help
    for parameter in command.params:
        assert parameter.help, f"{name}: {parameter.name}"


@pytest.mark.parametrize(("name", "command"), TREE)
def test_every_command_accepts_json(name: str, command: Any) -> None:
    assert any("--json" in parameter.opts for parameter in command.params)


@pytest.mark.parametrize(
    ("command", "option"), [("study", "study"), ("finetune", "tasks")], ids=["studies", "suites"]
)
def test_help_lists_all_studies_and_suites(command: str, option: str) -> None:
    from unmask.studies.published_studies import ALL_STUDIES
    from unmask.tasks.suites.bundled import SUITES

    (output,) = (one.help for one in dict(TREE)[command].params if one.name == option)
    assert ", ".join(ALL_STUDIES if command == "study" else SUITES) + ", or" in output


def test_choices_equal_those_of_the_library() -> None:
    from unmask.evaluation.likelihood import PseudoLikelihoodMasking
    from unmask.evaluation.sentence_embeddings import EmbeddingPooling
    from unmask.inference.export import MODEL_FORMATS
    from unmask.jobs.options.align import MapName, NormalizationName, SelfLearningName
    from unmask.options import Precision
    from unmask.tasks.kind_names import TaskKindName
    from unmask.text.documents import DocumentSeparator
    from unmask.text.lines import EncodingErrors
    from unmask.word_vectors.evaluation.similarity import CaseHandling
    from unmask.word_vectors.formats.files import Format

    def choices(command: str, name: str) -> tuple[str, ...]:
        annotation = cli.load_command(command).__annotations__[name]
        literal = get_args(annotation)[0]
        return get_args(next((a for a in get_args(literal) if get_args(a)), literal))

    assert choices("embed", "pooling") == get_args(EmbeddingPooling)
    assert choices("evaluate", "pll_masking") == get_args(PseudoLikelihoodMasking)
    assert choices("finetune", "task") == get_args(TaskKindName)
    assert choices("finetune", "precision") == get_args(Precision)
    assert choices("convert", "to") == (*MODEL_FORMATS, *get_args(Format))
    assert choices("evaluate", "case") == get_args(CaseHandling)
    for name, of_align in (
        ("map", MapName),
        ("normalize", NormalizationName),
        ("self_learning", SelfLearningName),
    ):
        assert choices("align", name) == get_args(of_align)
    for command in ("prepare", "pretrain", "evaluate"):
        assert choices(command, "document_separator") == get_args(DocumentSeparator)
        assert choices(command, "encoding_errors") == get_args(EncodingErrors)


@pytest.mark.parametrize("name", ["pretrain", "prepare", "finetune", "demo", "align"])
def test_every_function_argument_has_an_option(name: str) -> None:
    import unmask as package
    from unmask.jobs.demo import demo

    function = demo if name == "demo" else getattr(package, name)
    takes = set(inspect.signature(function).parameters) - {"terminal"}
    known = set(inspect.signature(cli.load_command(name)).parameters)
    known |= {"base"} if name == "finetune" else set()  # there, MODEL
    assert takes <= known


def test_help_is_shown_without_a_command(unmask: Run) -> None:
    result = unmask()
    assert result.status == 0
    assert all(f"  {name} " in result.out for name in COMMANDS)


def test_version_is_printed(unmask: Run) -> None:
    import unmask as package

    assert unmask("--version") == (0, f"{package.__version__}\n", "")


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("pretian", "unmask: no such command 'pretian'. Did you mean 'pretrain'?; see"),
        ("pretrain --stpes 3", "--steps"),
        ("pretrain --steps", "'--steps' requires an argument"),
        ("pretrain --steps many", "'--steps'"),
        (
            "embed x --pooling max",
            "'max' is not one of 'mean', 'first', 'last', 'ends', 'projection', 'none'",
        ),
        ("finetune x --task sing --train y", "'classify', 'pairs', 'regress', 'tag'"),
        ("prepare x --out y --document page", "'blank', 'line', 'file'"),
        ("prepare x --out y --encoding-errors ignore", "'strict', 'replace'"),
        ("convert x y --to onxx", "'huggingface', 'unmask'"),
        ("convert x", "missing argument 'FOLDER'"),
        ("hide", "missing argument 'MODEL'"),
        ("models all", "unexpected extra argument"),
    ],
)
def test_misspelled_command_is_refused_in_one_line(words: str, line: str, unmask: Run) -> None:
    result = unmask(*words.split())
    check_mistake(result)
    assert line.lower() in result.err.lower()
    assert "--help" in result.err


# What it prints


def test_models_are_listed_by_family(unmask: Run) -> None:
    names = [line.split()[0] for line in unmask("models", "--family", "gpt2").out.splitlines()]
    assert names == ["gpt2-mini", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"]
    facts = json.loads(unmask("models", "--json").out)
    families = {preset.family for preset in MODELS.values()}
    assert {preset["family"] for preset in facts} == families
    check_mistake(unmask("models", "--family", "lama"), ", ".join(sorted(families)), "'lama'")


@pytest.mark.thorough
def test_preset_and_folder_are_described(unmask: Run, home: Path) -> None:
    assert "110,106,428" in unmask("show", "bert-base").out
    facts = json.loads(unmask("show", home / "bert", "--json").out)
    assert facts["architecture"]["d_model"] == 32
    check_mistake(unmask("show", "bert-bse"), "unknown model 'bert-bse'", "'bert-base'")


@pytest.mark.thorough
def test_run_shows_its_progress(unmask: Run, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["pretrain", home / "small.toml", "--data", home / "text.txt", "--out", out]
    result = unmask(*words, "--steps", 3, "--json")
    facts = json.loads(result.out)
    assert facts["folder"] == str(out)
    assert facts["evaluation"]["masked_loss"] > 0
    assert "tokenizing: 30 documents" in result.err
    assert "3/3  loss" in result.err


@pytest.mark.thorough
def test_quiet_run_prints_only_its_result(unmask: Run, home: Path, tmp_path: Path) -> None:
    words = ["pretrain", home / "small.toml", home / "text.txt", "--out", tmp_path / "run"]
    result = unmask(*words, "--steps", 1, "--quiet")
    assert result.err == ""
    assert result.out == f"{tmp_path}/run: done; report in {tmp_path}/run/report.html\n"


@pytest.mark.thorough
def test_only_the_first_process_prints_the_result(
    unmask: Run, home: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("RANK", "1")  # as torchrun does
    words = ["pretrain", home / "small.toml", home / "text.txt", "--steps", 1, "--quiet"]
    for n, how in enumerate(((), ("--json",))):
        result = unmask(*words, "--out", tmp_path / f"{n}", *how)
        assert (result.status, result.out, result.err) == (0, "", "")


@pytest.mark.thorough
def test_every_command_prints_json_on_request(unmask: Run, home: Path, tmp_path: Path) -> None:
    bert, text = home / "bert", home / "text.txt"
    words: list[list[object]] = [
        ["hide", bert, "the old king saw the gate", "--json"],
        ["prepare", text, "--out", tmp_path / "p", "--tokenizer", bert, "--quiet", "--json"],
        ["evaluate", bert, "--data", text, "--json"],
        ["evaluate", home / "tuned", "--data", home / "rows.tsv", "--json"],
        ["predict", home / "tuned", "the king", "the sea", "--json"],
        ["fill", bert, "the [MASK] king", "--json"],
        ["generate", home / "gpt", "--prompt", "the king", "--max-new-tokens", 3, "--json"],
        ["embed", bert, "the king", "--json"],
        ["convert", bert, tmp_path / "c", "--json"],
        ["report", bert, "--json"],
    ]
    for line in words:
        result = unmask(*line)
        assert result.status == 0, result
        assert all(isinstance(json.loads(row), dict) for row in result.out.splitlines()), line


def test_texts_come_from_arguments_files_and_stdin(unmask: Run, home: Path) -> None:
    tuned, (a, b) = home / "tuned", (text for text, _ in ROWS[:2])
    (home / "two.txt").write_text(f"{a}\n\n{b}\n")

    def answers(*words: object, stdin: bytes | None = None) -> list[tuple[str, str]]:
        result = unmask("predict", tuned, *words, stdin=stdin)
        return [(x["text"], x["label"]) for x in map(json.loads, result.out.splitlines())]

    expected = answers(a, b)
    assert [text for text, _ in expected] == [a, b]
    assert answers("--input", home / "two.txt") == expected
    assert answers(stdin=f"{a}\n\n{b}".encode()) == expected
    assert answers("--input", home / "rows.tsv") == expected * (len(ROWS) // 2)
    check_mistake(unmask("predict", tuned, stdin=b"the\nol\0d\n"), "standard input:2: a NUL")
    replaced = answers("--encoding-errors", "replace", stdin=b"the\nol\0d\n")
    assert [text for text, _ in replaced] == ["the", "ol\ufffdd"]


def test_empty_text_is_noted_once_on_stderr(unmask: Run, home: Path) -> None:
    result = unmask("predict", home / "tuned", "", "the king", " ")
    assert [json.loads(line)["text"] for line in result.out.splitlines()] == ["", "the king", " "]
    assert result.err == "an empty text is answered too; what is said of it rests on no word\n"


def test_many_texts_are_answered_in_order(unmask: Run, home: Path, monkeypatch) -> None:
    texts = [text for text, _ in ROWS[:2]] * 3 + ["the gate"]
    together = unmask("fill", home / "bert", *(f"{text} [MASK]" for text in texts)).out
    monkeypatch.setattr("unmask.cli.inputs.TEXTS_PER_CALL", 2)
    given = "".join(f"{text} [MASK]\n" for text in texts).encode()
    assert unmask("fill", home / "bert", stdin=given).out == together
    result = unmask("fill", home / "bert", stdin=given + b"nothing\n")
    assert result.out == together.rsplit("\n", 3)[0] + "\n"  # what was answered is printed
    check_mistake(result, "after the first 6 texts: text 2 has no blank")


@pytest.mark.parametrize("command", ["embed {}/bert", "predict {}/tuned", "evaluate {}/tuned"])
def test_texts_that_are_cut_or_unknown_are_counted_over_all_parts(
    unmask: Run, home: Path, tmp_path: Path, monkeypatch, command: str
) -> None:
    monkeypatch.setattr("unmask.cli.inputs.TEXTS_PER_CALL", 2)
    texts = ["the king " * 300, "the gate", "жжж жж", "the king " * 300, "the sea жж", "жж", "щ"]
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts) + "\n")
    words = ["--input", path]
    if command.startswith("evaluate"):
        path = tmp_path / "rows.tsv"
        path.write_text("text\tlabel\n" + "".join(f"{text}\ta\n" for text in texts))
        words = [path]
    result = unmask(*command.format(home).split(), *words)
    assert result.status == 0
    assert result.err.splitlines()[-2:] == [
        "2 texts are longer than the model's 512 tokens and were cut",
        "3 texts are unknown tokens by more than half: the vocabulary does not hold them",
    ]


def test_embeddings_are_written_to_an_array(unmask: Run, home: Path, tmp_path: Path) -> None:

    result = unmask(
        "embed", home / "bert", "--input", home / "text.txt", "--out", tmp_path / "v.npy"
    )
    assert result.status == 0
    lines = (home / "text.txt").read_text().splitlines()
    assert np.load(tmp_path / "v.npy", allow_pickle=False).shape == (len(lines), 32)


BLANKS = {
    "lines.txt": "\nthe king\n \t\nthe gate\n\n",
    "lines.jsonl": "".join(f'{{"text": "{t}"}}\n' for t in ("", "the king", " ", "the gate", "")),
    "lines.tsv": "n\ttext\n1\t\n2\tthe king\n3\t \n4\tthe gate\n5\t\n",
    "lines.csv": "n,text\n1,\n2,the king\n3, \n4,the gate\n5,\n",
}


@pytest.mark.thorough
def test_blank_lines_are_skipped_and_reported(unmask: Run, home: Path, tmp_path: Path) -> None:
    read = unmask("embed", home / "bert", "", "the king", "", "the gate", "").out
    expected = np.array([json.loads(line)["vector"] for line in read.splitlines()])
    out = tmp_path / "v.npy"
    for name, text in BLANKS.items():
        path = tmp_path / name
        path.write_text(text)
        result = unmask("embed", home / "bert", "--input", path, "--out", out)
        first = "2, 4, 6" if name in ("lines.tsv", "lines.csv") else "1, 3, 5"
        assert f"{path}: blank lines are answered as the empty text: {first}\n" in result.err
        np.testing.assert_allclose(np.load(out), expected, atol=1e-6)
        assert len(unmask("embed", home / "bert", "--input", path).out.splitlines()) == 5
        result = unmask(
            "generate", home / "gpt", "--input", path, "--max-new-tokens", "1", "--json"
        )
        assert [json.loads(line)["prompt"] for line in result.out.splitlines()] == [
            "the king",
            "the gate",
        ]
        assert result.err == f"{path}: blank lines are skipped: {first}\n"
    path.write_text("n,text\n\n1,the king\n\n\n2,the gate\n\n")  # without a record
    result = unmask("embed", home / "bert", "--input", path, "--out", out)
    assert f"{path}: blank lines, which are no records, are skipped: 2, 4-5 (3 lines)" in result.err
    np.testing.assert_allclose(np.load(out), expected[[1, 3]], atol=1e-6)
    result = unmask("predict", home / "tuned", "--input", path)
    assert [json.loads(line)["text"] for line in result.out.splitlines()] == [
        "the king",
        "the gate",
    ]
    assert result.err == f"{path}: blank lines are skipped: 2, 4-5 (3 lines)\n"
    path = tmp_path / "lines.txt"
    result = unmask("embed", home / "bert", "--out", out, stdin=path.read_bytes())
    assert "standard input: blank lines are answered as the empty text: 1, 3, 5\n" in result.err
    np.testing.assert_allclose(np.load(out), expected, atol=1e-6)
    result = unmask("predict", home / "tuned", "--input", path)
    assert [json.loads(line)["text"] for line in result.out.splitlines()] == [
        "the king",
        "the gate",
    ]
    assert result.err == f"{path}: blank lines are skipped: 1, 3\n"


def test_folder_without_tokenizer_converts_with_a_note(
    unmask: Run, home: Path, tmp_path: Path
) -> None:
    bare = foreign(shutil.copytree(home / "bert", tmp_path / "bare"))
    for path in bare.glob("tokenizer*"):
        path.unlink()
    result = unmask("convert", bare, tmp_path / "new")
    assert result.out == f"{tmp_path}/new\n"
    assert result.err == f"{bare}: has no tokenizer, so {tmp_path}/new has none either\n"
    check_mistake(unmask("fill", tmp_path / "new", "a [MASK]"), "no tokenizer")


def test_missing_weights_are_named(unmask: Run, home: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = foreign(shutil.copytree(home / "bert", tmp_path / "bert"))
    tensors = load_file(folder / "model.safetensors")
    lost = {n: x for n, x in tensors.items() if n != "cls.predictions.transform.dense.weight"}
    save_file(lost, folder / "model.safetensors", {"format": "pt"})
    result = unmask("fill", folder, "the [MASK]")
    assert result.status == 0
    assert "missing weights, randomly initialized: heads.language" in result.err


@pytest.mark.thorough
def test_adapter_hides_notes_about_base_heads(unmask: Run, home: Path, tmp_path: Path) -> None:
    words = ["finetune", home / "bert", "--task", "classify", "--train", home / "rows.tsv"]
    words += ["--tune", "prompt", "--epochs", 1, "--out", tmp_path / "run", "--quiet"]
    assert unmask(*words).status == 0
    result = unmask("predict", tmp_path / "run", "the king")
    assert (result.status, result.err) == (0, "")
    for format in ("huggingface", "unmask"):
        output = unmask("convert", tmp_path / "run", tmp_path / "new", "--to", format)
        check_mistake(
            output, "prompt cannot be merged into", "LoRA, IA3 and BitFit can", "be copied"
        )
        assert not (tmp_path / "new").exists()


def test_average_of_last_checkpoints_equals_hand_computation(
    unmask: Run, home: Path, tmp_path: Path
) -> None:
    locations = sorted((home / "bert" / "checkpoints").iterdir())
    states = [load_file(position / "model.safetensors") for position in locations]
    assert len(states) == 2
    result = unmask("convert", home / "bert", tmp_path / "mean", "--average", 2)
    assert (result.status, result.out, result.err) == (0, f"{tmp_path}/mean\n", "")
    found = load(tmp_path / "mean").model.own_weights()
    one, two = ([state[name] for name in found] for state in states)
    for name, a, b in zip(found, one, two, strict=True):
        assert torch.equal(found[name], ((a.double() + b.double()) / 2).float()), name
    assert any(not torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.trials("mistakes")
def test_impossible_average_is_refused(unmask: Run, home: Path, tmp_path: Path) -> None:
    run, new = tmp_path / "run", tmp_path / "new"
    shutil.copytree(home / "bert", run)
    check_mistake(
        unmask("convert", run, new, "--average", 3),
        f"{run}/checkpoints: has 2 checkpoints, but the average needs 3",
    )
    check_mistake(unmask("convert", run, new, "--average", 1), "2 checkpoints or more, got 1")
    unmask("convert", run, tmp_path / "plain")
    check_mistake(unmask("convert", tmp_path / "plain", new, "--average", 2), "plain")
    first = min((run / "checkpoints").iterdir())
    (first / "model.safetensors").write_bytes(b"short")
    check_mistake(
        unmask("convert", run, new, "--average", 2), f"{first}: damaged, cannot be averaged"
    )
    assert not new.exists()


@pytest.mark.thorough
def test_head_unknown_to_transformers_is_reported_on_convert(
    unmask: Run, home: Path, tmp_path: Path
) -> None:
    words = ["finetune", home / "bert", "--task", "classify", "--train", home / "rows.tsv"]
    words += ["--option", "pooling=mean", "--epochs", 1, "--out", tmp_path / "run", "--quiet"]
    assert unmask(*words).status == 0
    result = unmask("convert", tmp_path / "run", tmp_path / "new")
    assert result.out == f"{tmp_path}/new\n"
    assert result.err.startswith(
        f"{tmp_path}/new: its head is SequenceClassification(pooling='mean'), which transfor"
    )
    assert result.err.count("\n") == 1
    answers = [unmask("predict", tmp_path / name, "the king").out for name in ("run", "new")]
    assert answers[0] == answers[1]


# Mistakes


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("prepare {}/none.txt", "none.txt: no such file"),
        ("prepare {}/empty.txt", "empty.txt: no text"),
        ("prepare {}/blank.txt", "blank.txt: no text"),
        ("prepare {}/bad.txt", "bad.txt:2: invalid UTF-8 at byte offset 12"),
        ("prepare {}/nul.txt", "nul.txt:2: a NUL"),
        ("prepare {}/surrogate.jsonl", "surrogate.jsonl:2: a lone surrogate"),
        ("prepare {}/fields.jsonl", "no column 'text', only 'body', 'title'"),
        ("prepare {}/odd.xyz", "unknown ending; known are .txt"),
        ("prepare {}/void", "void: no file of a known kind"),
        ("prepare {}/*.log", "no file matches this pattern"),
        ("prepare {}/text.txt {}/text.txt", "text.txt: is given twice"),
        ("prepare hf:no/where", "hf:no/where: cannot be reached"),
        ("prepare {}/text.txt --vocab-size 3", "a vocabulary of 3 is too small"),
        ("prepare {}/text.txt --workers 0", "workers must be at least 1, got 0"),
        ("prepare {}/text.txt --tokenizer {}/void", "void has no tokenizer"),
        (
            "prepare {}/text.txt --tokenizer {}/bert --vocab-size 9",
            "--vocab-size is for a new tokenizer",
        ),
        ("prepare {}/text.txt --model bret-mini", "did you mean 'bert-mini'"),
    ],
)
def test_preparation_mistake_is_reported_and_leaves_nothing(
    words: str, line: str, unmask: Run, home: Path, tmp_path: Path
) -> None:
    check_mistake(
        unmask(*words.format(*[home] * 3).split(), "--out", tmp_path / "o", "--quiet"), line
    )
    assert not (tmp_path / "o" / "shards.json").exists()


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["bad.txt", "nul.txt", "surrogate.jsonl"])
def test_invalid_bytes_can_be_replaced(name: str, unmask: Run, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["pretrain", home / "small.toml", "--data", home / name, "--out", out, "--quiet"]
    words += ["--vocab-size", 40, "--steps", 1, "--set", "dev_fraction=0", "--objective", "mlm"]
    check_mistake(unmask(*words), "--encoding-errors replace")
    assert not out.exists()
    assert unmask(*words, "--encoding-errors", "replace").status == 0


@pytest.mark.trials("mistakes")
@pytest.mark.sample(19)
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("{}/none.toml {}/text.txt", "none.toml: no such file"),
        (
            "{}/unknown.toml {}/text.txt",
            "unknown.toml: unknown key 'sequence_lenght'; did you mean 'sequence_length'",
        ),
        ("{}/type.toml {}/text.txt", "type.toml: sequence_length must be int, got 'x'"),
        ("{}/syntax.toml {}/text.txt", "syntax.toml: not TOML: Invalid value (at line 2"),
        ("{}/model.toml {}/text.txt", "unknown model 'bert-tinny'; did you mean 'bert-tiny'"),
        ("{}/nothing.toml {}/text.txt", "nothing.toml: model must be the name of a preset"),
        ("bret-tiny {}/text.txt", "did you mean 'bert-tiny'"),
        ("{}/bert {}/text.txt", "is no preset; to train from its weights, give its preset"),
        ("bert-tiny", "no data: give text files"),
        ("{}/small.toml --data {}/none.txt", "none.txt: no such file"),
        ("{}/small.toml --data {}/fields.jsonl", "no column 'text', only 'body', 'title'"),
        ("{}/small.toml {}/text.txt {}/text.txt", "text.txt: is given twice"),
        ("{}/small.toml hf:no/where", "hf:no/where: cannot be reached"),
        ("{}/small.toml {}/text.txt --steps 0", "steps must be at least 1, got 0"),
        ("{}/small.toml {}/text.txt --tokens 0", "tokens must be at least 1, got 0"),
        ("{}/small.toml {}/text.txt --minutes -1", "minutes must be above 0, got -1"),
        (
            "{}/small.toml {}/text.txt --minutes nan",
            "'--minutes': must be a finite number of at most 64 bits, got nan",
        ),
        ("{}/small.toml {}/text.txt --steps 1 --minutes 1", "got steps and minutes"),
        ("{}/small.toml {}/text.txt --threads 0", "threads must be at least 1, got 0"),
        ("{}/small.toml {}/text.txt --workers -1", "workers must be at least 0, got -1"),
        ("{}/small.toml {}/text.txt --seed -1", "seed must be from 0"),
        ("{}/small.toml {}/text.txt --checkpoint-every 0", "--checkpoint-every must be at least 1"),
        ("{}/small.toml {}/text.txt --device abacus", "device 'abacus' cannot be used here"),
        (
            "{}/small.toml {}/text.txt --set learning_rate=nan",
            "--set learning_rate=nan: learning_rate must be above 0",
        ),
        (
            "{}/small.toml {}/text.txt --set architecture.d_ff=32 --set architecture.x=3",
            "--set architecture.x=3: unknown key 'architecture.x'",
        ),
        (
            "{}/small.toml {}/text.txt --set architecture.d_model=33",
            "--set architecture.d_model=33: d_model 33 is not a multiple of n_heads 2",
        ),
        ("{}/small.toml {}/text.txt --set nonsense", "--set nonsense: must be key=value"),
        ("{}/small.toml {}/text.txt --set sequence_lenght=3", "did you mean 'sequence_length'"),
        (
            "{}/small.toml {}/text.txt --set optimizer=Adam",
            "one of ['Adafactor', 'AdamW', 'LAMB', 'Muon', 'SGD']",
        ),
        (
            "{}/small.toml {}/text.txt --set row_unit=corpus",
            "row_unit = corpus: its rows are of several documents, and next_sentence is asked",
        ),
        (
            "{}/small.toml {}/text.txt --set row_unit=page",
            "row_unit must be one of ['corpus', 'stream', 'document', ",
        ),
        ("{}/small.toml {}/text.txt --sequence-length 3", "a length of 3 leaves no room for text"),
        (
            "{}/small.toml {}/text.txt --sequence-length 600 --set batch_tokens=600",
            "512 positions, got 600",
        ),
        ("{}/small.toml {}/text.txt --vocab-size 3", "a vocabulary of 3 is too small"),
        ("{}/small.toml {}/text.txt --tokenizer {}/none", "none: there is no such folder"),
        ("{}/small.toml {}/text.txt --from {}/none", "none: no such folder"),
        ("{}/small.toml {}/text.txt --from {}/gpt", "is a gpt2 model, but the recipe's is bert"),
        ("{}/small.toml {}/text.txt --from hf:no/where", "hf:no/where: cannot be fetched"),
        ("{}/small.toml --train {}/text.txt", "no such option: --train (here it is --data)"),
        ("{}/small.toml {}/text.txt --lr 1", "--lr (here it is --set learning_rate=X)"),
        ("{}/small.toml {}/text.txt --output_dir x", "--output_dir (here it is --out)"),
    ],
)
def test_pretraining_mistake_is_reported_and_leaves_nothing(
    words: str, line: str, unmask: Run, home: Path, tmp_path: Path
) -> None:
    words = words.format(*[home] * 4)
    check_mistake(unmask("pretrain", *words.split(), "--out", tmp_path / "run", "--quiet"), line)
    assert not (tmp_path / "run").exists()


@pytest.mark.trials("mistakes")
def test_folders_without_a_run_are_refused(unmask: Run, home: Path, tmp_path: Path) -> None:
    words = ["pretrain", home / "small.toml", home / "text.txt", "--quiet", "--out"]
    check_mistake(unmask(*words, home / "thesis"), "thesis: holds files, but not a run")
    check_mistake(unmask(*words, home / "thesis", "--resume"), "holds files, but not a run")
    check_mistake(unmask(*words, home / "odd.xyz"), "odd.xyz: is a file")
    check_mistake(unmask(*words, home / "bert"), "holds a run already", "--resume")
    check_mistake(unmask(*words, home / "tuned", "--resume"), "is a finetune run")
    words_of = ["pretrain", "--out", home / "bert", "--resume"]
    check_mistake(unmask(*words_of, "--seed", 7), "this run has seed = 0, not 7")
    check_mistake(
        unmask("pretrain", "--out", tmp_path / "none", "--resume"), "has no run to continue"
    )
    check_mistake(unmask("report", home / "void"), "is not a run folder")
    words = ["finetune", home / "bert", "--task", "classify", "--train", home / "rows.tsv"]
    words += ["--quiet", "--out"]
    check_mistake(unmask(*words, home / "thesis"), "thesis: holds files, but not a run")
    check_mistake(unmask(*words, home / "odd.xyz"), "odd.xyz: is a file")
    check_mistake(unmask(*words, home / "bert", "--resume"), "is a run of pretrain")
    check_mistake(unmask("convert", home / "bert", home / "thesis"), "with files in it")
    assert not (tmp_path / "none").exists()
    assert os.listdir(home / "thesis") == ["thesis.pdf"]


def test_names_of_other_libraries_lead_to_options_and_keys_that_exist() -> None:
    """A suggestion is an option of a command, and of `--set` a key of the recipe."""
    from unmask.cli import errors
    from unmask.config import to_dict
    from unmask.jobs.pretrain.resolve_options import preset_recipe

    group: Any = typer.main.get_command(cli.make_app(*cli.COMMANDS))
    commands = group.commands.values()
    flags = {flag for command in commands for p in command.params for flag in p.opts}
    recipe = to_dict(preset_recipe("bert-mini"))
    for names in errors._NAMES_ELSEWHERE.values():
        for flag, _, change in (name.partition(" ") for name in names):
            assert flag in flags
            keys, here = change.partition("=")[0].split("."), recipe
            if flag == "--set":
                for key in keys:
                    here = here[key]


@pytest.mark.trials("mistakes")
@pytest.mark.sample(15)
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--task classify --train {}/one-class.tsv", "only one label, 'a'"),
        ("--task classify --train {}/few-fields.tsv", "few-fields.tsv:3: 1 field"),
        ("--task classify --train {}/header.tsv", "has a header but no rows"),
        ("--task classify --train {}/empty.txt", "empty.txt: the file is empty"),
        ("--task classify --train {}/other.tsv", "(columns: 'x', 'y')"),
        ("--task classify --train {}/none.tsv", "none.tsv: no such file"),
        ("--task classify --train {}/rows.tsv --text body", "no column 'body'"),
        ("--task classify --train {}/rows.tsv --dev {}/unseen.tsv", "unseen.tsv:2: label 'c'"),
        ("--task classify --train {}/rows.tsv --test {}/unseen.tsv", "unseen.tsv:2: label 'c'"),
        ("--task classify --train {}/rows.tsv --metric bleu", "metric must be one of accuracy"),
        ("--task classify --train {}/rows.tsv --epochs 0", "epochs must be above 0, got 0"),
        (
            "--task classify --train {}/rows.tsv --learning-rate nan",
            "'--learning-rate': must be a finite number of at most 64 bits, got nan",
        ),
        ("--task classify --train {}/rows.tsv --tune lore", "tune must be one of full, frozen"),
        ("--task classify --train {}/rows.tsv --labels a,a", "labels must be two or more"),
        ("--task classify --train {}/rows.tsv --rows 0", "rows must be at least 1, got 0"),
        (
            "--task classify --train {}/rows.tsv --search 2 --learning-rate 1 --batch-size 8",
            "both are given",
        ),
        (
            "--task classify --train {}/rows.tsv --tune lora:target_modules=nope",
            "matches no linear map",
        ),
        ("--task classify --train=", "train must name a file, got ''"),
        ("--task classify --train /dev/null", "must be a file, not a pipe or a device"),
        ("--task classify --train {}/rows.tsv --device abacus", "it is none of auto, cpu, cuda"),
        ("--resume", "has no run to continue"),
        ("--resume --seeds 3", "leave out --seeds"),
        ("--tasks glue --tune lore", "tune must be one of full, frozen"),
        ("--task classify --train {}/rows.tsv --data {}", "--data is the folder of the files"),
        ("--tasks glue --train {}/rows.tsv", "leave out --train"),
        ("--tasks glue --metric f1", "leave out --metric"),
        ("--tasks glu", "did you mean 'glue'"),
        ("--tasks glue --data {}", "no file of the suite 'glue'"),
        ("--task regress --train {}/numbers.tsv", "numbers.tsv:3: 'score' must be a number"),
        ("--train {}/numbers.tsv", "--task must be given, or a suite"),
        ("--task regress", "--train must be given, or a suite"),
        ("--task regress --train {}/numbers.tsv --lr 1", "--lr (here it is --learning-rate)"),
        ("--task regress --train {}/numbers.tsv --tune lora:r=8", "'lora.r'; did you mean 'rank'"),
    ],
)
def test_fine_tuning_mistake_is_reported_and_leaves_nothing(
    words: str, line: str, unmask: Run, home: Path, tmp_path: Path
) -> None:
    words = words.format(*[home] * 2)
    out = ["--out", tmp_path / "run", "--quiet"]
    check_mistake(unmask("finetune", home / "bert", *words.split(), *out), line)
    assert not (tmp_path / "run").exists()


@pytest.mark.trials("mistakes")
@pytest.mark.sample(22)
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("fill {}/bert nothing", "has no blank: 'nothing'"),
        ("fill {}/bert a[MASK] --top-k 0", "--top-k must be at least 1"),
        ("fill {}/gpt a[MASK]", "does not fill blanks; use `generate`"),
        ("fill bert-mini a[MASK]", "bert-mini is a preset, which has no weights"),
        ("fill {}/none a[MASK]", "none: no such folder"),
        ("fill {}/text.txt a[MASK]", "is a file; a model is a folder"),
        ("fill {}/void a[MASK]", "not a model: it has no config.json"),
        ("fill hf:no/where a[MASK]", "hf:no/where: cannot be fetched"),
        ("fill {}/bert a[MASK] --input {}/text.txt", "give texts or --input, not both"),
        ("fill {}/bert --input {}/none.txt", "none.txt: no such file"),
        ("fill {}/bert --input {}/bad.txt", "bad.txt:2: invalid UTF-8"),
        ("fill {}/bert a[MASK] --device abacus", "device 'abacus'"),
        ("generate {}/bert --prompt a", "does not generate; use `fill`"),
        (
            "generate {}/gpt --prompt a --temperature nan",
            "'--temperature': must be a finite number of at most 64 bits, got nan",
        ),
        ("generate {}/gpt --prompt a --temperature 1 --beams 2", "give beams or temperature"),
        ("generate {}/gpt --prompt a --top-k 2", "give a temperature above 0"),
        ("generate {}/gpt --prompt a --beams 9999", "9999 beams are more than the"),
        (
            "generate {}/gpt --prompt a --beams 2 --n-best 3",
            "--n-best must be from 1 to the 2 beams",
        ),
        ("generate {}/gpt --prompt a --n-best 3", "--n-best: for a search with beams: give beams"),
        (
            "generate {}/gpt --prompt a --beams 2 --stream",
            "--stream cannot be combined with --beams",
        ),
        ("generate {}/gpt --prompt a --json --stream", "--stream cannot be combined with --json"),
        (
            "generate {}/gpt --prompt a --prompt b --stream",
            "--stream needs exactly one prompt, got 2",
        ),
        (
            "generate {}/gpt --prompt a --choice b --top-k 2 --temperature 1",
            "got --temperature",
        ),
        ("generate {}/gpt --prompt a --choice b --output-prefix c", "got --output-prefix"),
        ("generate {}/gpt --prompt a --choice b --choice b", "choices 1 and 2 are the same"),
        ("generate {}/gpt --prompt a --draft-tokens 2", "--draft-tokens needs --draft"),
        ("generate {}/gpt --prompt a --draft {}/bert", "bert has another vocabulary"),
        ("generate {}/gpt --prompt a --draft {}/gpt --beams 2", "give beams or a draft"),
        ("generate {}/gpt --prompt a --early-stopping maybe", "'maybe' is not one of"),
        (
            "generate {}/gpt --prompt a --temperature 1 --top-p 2",
            "--top-p must be above 0 and at most 1",
        ),
        ("generate {}/gpt --prompt a --seed -1", "seed must be at least 0"),
        ("embed {}/bert a --layer 9", "layer must be from -2 to 1, got 9"),
        ("embed {}/bert a --pooling none --out x.npy", "--pooling none gives one per token"),
        ("embed {}/bert a --out {}/none/x.npy", "x.npy: there is no folder"),
        ("embed {}/bert --input {}/fields.jsonl", "no column 'text', only 'body', 'title'"),
        ("predict {}/bert a", "no head that labels texts"),
        ("predict {}/tuned --input {}/other.tsv", "(columns: 'x', 'y')"),
        ("evaluate {}/bert", "no data"),
        ("evaluate {}/bert {}/empty.txt", "empty.txt: no text"),
        ("evaluate {}/bert {}/text.txt --sequence-length 600", "512 positions, got 600"),
        ("evaluate {}/bert {}/text.txt --seed -1", "seed must be at least 0, got -1"),
        ("evaluate {}/tuned {}/unseen.tsv", "unseen.tsv:2: label 'c'"),
        ("evaluate {}/tuned {}/rows.tsv {}/rows.tsv", "each file needs a name of its own, got"),
        ("hide {}/bert the --set select.rat=1", "did you mean 'rate'"),
        ("hide {}/bert the --seed -1", "seed must be at least 0, got -1"),
        ("fill gpt2 the", "gpt2 is a preset, which has no weights: hf:openai-community/gpt2 has"),
        ("embed bert-mini the", "which has no weights: pretrain it (`unmask pretrain bert-mini"),
        ("show bert", "did you mean 'bert-"),
        ("models --family brt", "did you mean 'bert'"),
        (
            "compress {}/bert --method int5 --out x",
            "must be one of int8, int4, int3, int2, quantize, ",
        ),
    ],
)
def test_inference_mistake_is_reported(words: str, line: str, unmask: Run, home: Path) -> None:
    check_mistake(unmask(*words.format(*[home] * 3).split()), line)


def test_prompt_beyond_the_positions_is_refused(unmask: Run, home: Path) -> None:
    result = unmask("generate", home / "gpt", "--prompt", "the king " * 600)
    check_mistake(result, "512 positions")


@pytest.mark.thorough
def test_generation_options_equal_the_library(unmask: Run, home: Path) -> None:
    import unmask as library

    model = library.load(home / "gpt")
    words = ["generate", home / "gpt", "--max-new-tokens", 6]
    words += ["--prompt", "the king", "--prompt", ""]

    def texts(*more: object) -> list[str]:
        result = unmask(*words, *more, "--json")
        assert result.status == 0, result
        return [json.loads(line)["text"] for line in result.out.splitlines()]

    for options, how in (
        (
            "--beams 3 --length-penalty 0 --early-stopping never",
            {"beams": 3, "length_penalty": 0.0, "early_stopping": "never"},
        ),
        (
            "--temperature 1 --min-p .01 --typical-p .9 --seed 3",
            {"temperature": 1.0, "min_p": 0.01, "typical_p": 0.9, "seed": 3},
        ),
        (
            "--repetition-penalty 2 --no-repeat-ngram-size 2 --min-new-tokens 6",
            {"repetition_penalty": 2.0, "no_repeat_ngram_size": 2, "min_new_tokens": 6},
        ),
        ("--stop e --stop a --output-prefix x", {"stop": ["e", "a"], "output_prefix": "x"}),
    ):
        assert texts(*options.split()) == model.generate(["the king", ""], max_new_tokens=6, **how)
    long = unmask("generate", home / "gpt", "--prompt", "the king " * 600, "--window")
    assert long.status == 0
    assert long.out.startswith("the king " * 600)


@pytest.mark.thorough
def test_several_generations_are_shown_with_scores(unmask: Run, home: Path) -> None:
    words = ["generate", home / "gpt", "--prompt", "the"]
    for more in (["--beams", 3, "--n-best", 2], ["--choice", " king", "--choice", " sea"]):
        lines = unmask(*words, *more).out.splitlines()
        assert len(lines) == 2
        scores = [float(line.split("\t")[0]) for line in lines]
        assert scores[0] >= scores[1]
        assert all(line.split("\t")[1].startswith("the") for line in lines)
        facts = json.loads(unmask(*words, *more, "--json").out)
        assert [f"{one['score']:.4f}" for one in facts["best"]] == [
            line.split("\t")[0] for line in lines
        ]
        assert facts["text"] == facts["best"][0]["text"]


def test_draft_gives_equal_text_and_reports_acceptance(unmask: Run, home: Path) -> None:
    words = ["generate", home / "gpt", "--prompt", "the king", "--max-new-tokens", 8]
    result = unmask(*words, "--draft", home / "gpt", "--draft-tokens", 3)
    assert result.out == unmask(*words).out
    assert result.err.startswith("draft: 100% of ")


class Watched(io.StringIO):
    """Standard output that notes what was there at each flush, and may be a terminal."""

    def __init__(self, terminal: bool, until: int = 10**9) -> None:
        super().__init__()
        self.terminal, self.until, self.flushed = terminal, until, list[str]()

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.flushed.append(self.getvalue())
        if len(self.flushed) == self.until:
            raise KeyboardInterrupt


@pytest.mark.thorough
def test_text_is_streamed_to_a_terminal(unmask: Run, home: Path, monkeypatch) -> None:
    words = ["generate", home / "gpt", "--prompt", "the king", "--max-new-tokens", 8]
    expected = unmask(*words).out
    for terminal, more, streams in (
        (True, [], True),
        (False, [], False),
        (False, ["--stream"], True),
        (True, ["--no-stream"], False),
        (True, ["--prompt", "a"], False),
        (True, ["--beams", 1], False),
    ):
        out = Watched(terminal)
        monkeypatch.setattr(sys, "stdout", out)
        assert cli.run([str(word) for word in [*words, *more]]) == 0
        assert (len(set(out.flushed)) > 4) == streams
        if not more or more[0].endswith("stream"):
            assert out.getvalue() == expected


def test_interrupted_stream_keeps_its_text(unmask: Run, home: Path, monkeypatch) -> None:
    words = ["generate", home / "gpt", "--prompt", "the king", "--max-new-tokens", 20]
    expected = unmask(*words).out
    out = Watched(terminal=True, until=4)
    monkeypatch.setattr(sys, "stdout", out)
    assert cli.run([str(word) for word in words]) == 130
    output = out.getvalue()
    assert output.endswith("\n")
    assert len("the king") < len(output) < len(expected)
    assert expected.startswith(output[:-1])


LACKING = """
import numpy as np, torch
import unmask.jobs.catalogue.describe as describe
from unmask.cli.main import run
for allocate in (lambda: torch.empty(2**45), lambda: np.empty(2**46), lambda: bytearray(2**46)):
    describe.describe = lambda *_, **__: allocate()
    assert run(["show", "bert-tiny"]) == 1
"""
"""A process that was refused memory gets it from elsewhere from then on: one of its own."""


@pytest.mark.thorough
def test_out_of_memory_is_reported_in_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", LACKING], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    more = "; use shorter texts, smaller batches or a smaller model"
    assert done.stderr.splitlines() == [
        f"unmask: out of memory: cannot allocate 140,737.5 GB{more}",
        f"unmask: out of memory: cannot allocate 512 TiB{more}",
        f"unmask: out of memory{more}",
    ]


def test_program_error_is_not_reported_as_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object, **__: object) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr("unmask.jobs.catalogue.describe.describe", fault)
    with pytest.raises(RuntimeError, match="mat1"):
        cli.run(["show", "bert-tiny"])


def test_line_is_one_text_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.txt"
    path.write_text("a b " * 2**20 + "c d\nshort\n")
    assert [len(text) for text in read_texts(None, path, None, "strict")] == [2**22 + 3, 5]
    monkeypatch.setattr("unmask.text.formats.records.MAX_RECORD_CHARACTERS", 100)
    with pytest.raises(ValueError, match=r"long\.txt:1: a line of more than 100 characters"):
        list(read_texts(None, path, None, "strict"))


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize("command", ["fill", "predict", "embed", "generate"])
def test_invalid_stdin_is_refused(command: str, unmask: Run, home: Path, monkeypatch) -> None:
    model = home / {"predict": "tuned", "generate": "gpt"}.get(command, "bert")
    check_mistake(unmask(command, model, stdin=b""), "standard input: no text;")
    check_mistake(unmask(command, model, stdin=b"\n \n"), "standard input: no text;")
    check_mistake(unmask(command, model, stdin=b"\na\xff\n"), "standard input:2: invalid UTF-8")
    monkeypatch.setattr(sys, "stdin", None)
    check_mistake(unmask(command, model), "standard input is closed")


def test_invalid_argument_text_is_refused(unmask: Run, home: Path) -> None:
    check_mistake(unmask("fill", home / "bert", "a [MASK] \udcff"), "not UTF-8 at character 10")


def foreign(folder: Path) -> Path:
    """Remove the record of the run's files, as in a folder that somebody else has made."""
    path = folder / "unmask.json"
    facts = json.loads(path.read_text())
    del facts["files"]
    path.write_text(json.dumps(facts))
    return folder


def damage_weights(folder: Path) -> str:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    return "model.safetensors: truncated or damaged"


def lose_weights(folder: Path) -> str:
    (folder / "model.safetensors").unlink()
    return "no weights (looked for model.safetensors"


def change_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def another_family(folder: Path) -> str:
    change_config(folder, model_type="mamba")
    known = sorted({preset.config_mapping.model_type for preset in MODELS.values()})
    return f"config.json: model_type 'mamba' is not one of {known}"


def another_shape(folder: Path) -> str:
    change_config(folder, hidden_size=64)
    return "the configuration says"


def no_heads(folder: Path) -> str:
    change_config(folder, num_attention_heads=0)
    return "config.json: num_attention_heads must be an integer from 1 to 16,777,216, got 0"


def no_json(folder: Path) -> str:
    (folder / "config.json").write_text("{")
    return "config.json: not JSON"


def large_tokenizer(folder: Path) -> str:
    path = folder / "tokenizer.json"
    facts = json.loads(path.read_text())
    vocabulary = facts["model"]["vocab"]
    n = len(vocabulary)
    vocabulary |= {f"word{i}": n + i for i in range(50)}
    path.write_text(json.dumps(facts))
    return f"the tokenizer has {n + 50} ids, but the model only {n} token vectors"


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("pwned",)


def evil_weights(folder: Path) -> str:
    lose_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Evil()}))
    return "pytorch_model.bin: refused or damaged (only a file with nothing but tensors is read)"


def no_pickle(folder: Path) -> str:
    lose_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(b"abc")
    return "pytorch_model.bin: refused or damaged"


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    "damage",
    [
        damage_weights, lose_weights, another_family, another_shape, no_heads, no_json,
        large_tokenizer, evil_weights, no_pickle,
    ],
)  # fmt: skip
def test_damaged_model_is_refused(
    damage: Callable[[Path], str], unmask: Run, home: Path, tmp_path: Path, monkeypatch
) -> None:
    ignored = shutil.ignore_patterns("checkpoints", "data")
    folder = shutil.copytree(home / "bert", tmp_path / "m", ignore=ignored)
    line = damage(foreign(folder))
    check_mistake(unmask("fill", folder, "the [MASK]"), str(folder), line)
    assert not (ROOT / "pwned").exists()


def test_code_in_a_model_folder_is_not_run(unmask: Run, home: Path, tmp_path: Path) -> None:
    folder = foreign(shutil.copytree(home / "bert", tmp_path / "m"))
    change_config(folder, auto_map={"AutoModel": "evil.Model"})
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')")
    assert unmask("fill", folder, "the [MASK]").status == 0
    assert not (tmp_path / "pwned").exists()


@pytest.mark.trials("mistakes")
def test_damaged_run_is_refused(unmask: Run, home: Path, tmp_path: Path) -> None:
    def resumed() -> Said:
        return unmask("pretrain", "--out", tmp_path / "run", "--resume", "--quiet")

    def fresh() -> Path:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        return shutil.copytree(home / "bert", tmp_path / "run")

    path = fresh() / "data" / "00000.tokens"
    path.write_bytes(path.read_bytes()[:-2])
    check_mistake(resumed(), "00000.tokens is truncated or damaged")
    (fresh() / "data" / "00000.marks").unlink()
    check_mistake(resumed(), "00000.marks is missing")
    (fresh() / "unmask.json").write_text("{")
    check_mistake(resumed(), "unmask.json: not JSON")
    facts = fresh() / "unmask.json"
    record = json.loads(facts.read_text())
    record["recipe"]["lenght"] = 3
    facts.write_text(json.dumps(record))
    check_mistake(resumed(), "unmask.json: recipe: unknown key 'lenght'")


@pytest.mark.thorough
def test_names_may_contain_spaces_and_any_letters(unmask: Run, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "Märchen  und 物語 😀"
    folder.mkdir()
    shutil.copy(home / "text.txt", folder / "ein Text.txt")
    words = ["--tokenizer", home / "bert", "--quiet"]
    assert unmask("prepare", folder, "--out", folder / "in Zahlen", *words).status == 0
    words = ["bert-tiny", "--data", folder / "in Zahlen", "--sequence-length", 32, "--steps", 1]
    words += ["--set", "batch_tokens=64", "--quiet"]
    result = unmask("pretrain", *words, "--out", folder / "ein Lauf")
    assert result.status == 0, result
    assert str(folder / "ein Lauf") in result.out
    result = unmask("prepare", f"{folder}/no\n\x1b[31mfile", "--out", tmp_path / "x")
    check_mistake(result, "no\\n\\x1b[31mfile: no file matches")


# What is nobody's mistake


def test_internal_error_is_not_hidden(unmask: Run, monkeypatch) -> None:
    import unmask as package

    def fail(name: str) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(package, "load", fail, raising=False)
    with pytest.raises(KeyError, match="ours"):
        unmask("fill", "bert-mini", "[MASK]")


def test_traceback_is_shown_on_request(unmask: Run) -> None:
    with pytest.raises(ValueError, match="unknown model"):
        unmask("--traceback", "show", "nothing")


@pytest.mark.trials("numbers")
@pytest.mark.parametrize("steps", [1, 2, 20])
def test_non_finite_loss_exits_with_status_1(
    steps: int, unmask: Run, home: Path, tmp_path: Path, monkeypatch
) -> None:
    from unmask.training.config import Recipe

    words = ["pretrain", home / "small.toml", home / "text.txt", "--out", tmp_path / "run"]
    words += ["--set", "max_skipped_steps=1", "--set", "max_grad_norm=0", "--quiet"]
    words += ["--set", "schedule=Constant", "--set", "optimizer=AdamW", "--steps", steps]
    wrong = "learning_rate must be above 0 and at most 1000"
    check_mistake(unmask(*words, "--set", "learning_rate=1e30"), wrong)
    monkeypatch.setattr(Recipe, "learning_rate_at", lambda recipe, step: 1e30)
    result = unmask(*words)
    assert result.status == 1
    assert len(result.err.splitlines()) == 1
    assert "not finite" in result.err
    assert not (tmp_path / "run" / "config.json").exists()
    assert not list(tmp_path.glob("run/checkpoints/step-*"))


@pytest.mark.trials("numbers")
@pytest.mark.parametrize("words", ["fill {} a_[MASK]", "embed {} a", "evaluate {} --data {}/t.txt"])
def test_model_with_non_finite_outputs_is_refused(
    words: str, unmask: Run, home: Path, tmp_path: Path
) -> None:
    import torch

    import unmask as library

    model = library.load(home / "bert")
    with torch.no_grad():
        for name, x in model.model.own_weights().items():
            if "layers.0" in name and x.ndim == 2:
                x.fill_(1e30)
    model.save(tmp_path / "ruined")
    (tmp_path / "ruined" / "t.txt").write_text("a fox saw the gate at night.\n" * 9)
    result = unmask(
        *(w.replace("_", " ").format(*[tmp_path / "ruined"] * 2) for w in words.split())
    )
    assert result.status == 2
    assert result.out == ""
    assert "not finite" in result.err.splitlines()[-1]


def in_shell(words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    line = f"{sys.executable} -m unmask.cli {words}"
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, cwd=ROOT, **more
    )


@pytest.mark.thorough
def test_closed_output_pipe_is_no_error() -> None:
    done = in_shell("models --json | head -c 1; exit ${PIPESTATUS[0]}")
    assert done.stdout == "["
    assert done.stderr == ""
    assert done.returncode in (0, 1)  # 0: all was written before it closed


@pytest.mark.trials("full disk")
@pytest.mark.thorough
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_full_output_device_is_reported() -> None:
    done = in_shell("models > /dev/full")
    assert (done.returncode, done.stderr) == (2, "unmask: no space left on device\n")


def drop_privileges() -> None:
    """Let a child of root be held to the permissions of files, as everyone else is."""
    import ctypes

    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.trials("mistakes")
@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="permissions are tested on Linux")
def test_permission_errors_are_reported(home: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("text")
    (tmp_path / "secret.txt").chmod(0)
    (tmp_path / "fixed").mkdir(mode=0o555)
    commands = {
        f"prepare {tmp_path}/secret.txt --quiet --out {tmp_path}/o": "secret.txt",
        f"pretrain {home}/small.toml {home}/text.txt --out {tmp_path}/fixed/run": "fixed/run",
        f"embed {home}/bert a --out {tmp_path}/fixed/a.npy": "fixed",
    }
    code = f"from unmask.cli.main import run\nprint(*(run(w.split()) for w in {list(commands)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        preexec_fn=drop_privileges,
    )
    assert done.stdout == "2 2 2\n"
    for line, path in zip(done.stderr.splitlines(), commands.values(), strict=True):
        check_mistake(Said(2, "", f"{line}\n"), f"{path}: permission denied")
    (tmp_path / "fixed").chmod(0o755)


# Nothing is lost


def start(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "unmask.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        cwd=ROOT,
    )


def learned(out: Path) -> list[bytes]:
    newest = max((out / "checkpoints").glob("step-*"))
    files = [newest / "model.safetensors", newest / "optimizer.safetensors"]
    return [p.read_bytes() for p in [*files, out / "model.safetensors", out / "log.jsonl"]]


@pytest.mark.trials("signals and clocks")
def test_stopped_run_resumes_to_the_same_result(
    unmask: Run, home: Path, tmp_path: Path, monkeypatch
) -> None:
    from unmask.training.log import TrainingLog

    words = ["pretrain", home / "small.toml", home / "text.txt", "--steps", 12, "--threads", 1]
    assert unmask(*words, "--quiet", "--out", tmp_path / "whole").status == 0
    log = TrainingLog.__call__

    def press_ctrl_c(self: TrainingLog, report: Any) -> None:
        log(self, report)
        if report.step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainingLog, "__call__", press_ctrl_c)
    out = tmp_path / "run"
    result = unmask(*words, "--out", out, "--quiet")
    assert result == (
        130,
        "",
        f"unmask: {out}: stopped after step 7 of 12; continue with --resume\n",
    )
    check_mistake(unmask("fill", out, "a [MASK]"), "has not ended")
    assert unmask("pretrain", "--out", out, "--resume", "--quiet").status == 0
    assert learned(out) == learned(tmp_path / "whole")


@pytest.mark.trials("signals and clocks")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["prepare", "pretrain"])
def test_each_signal_ends_preparation_with_a_hint(
    command: str, number: int, unmask: Run, home: Path, tmp_path: Path, monkeypatch
) -> None:
    def stopped(*_: object) -> None:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number if number != signal.SIGINT else signal.SIGHUP)  # often two

    out = tmp_path / "out"
    monkeypatch.setattr("unmask.jobs.corpus.prepare.load_or_train_tokenizer", stopped)
    monkeypatch.setattr("unmask.jobs.pretrain.data.corpus.load_or_train_tokenizer", stopped)
    words = {"prepare": ["prepare", home / "text.txt"], "pretrain": [
        "pretrain", home / "small.toml", home / "text.txt", "--steps", 3]}  # fmt: skip
    result = unmask(*words[command], "--out", out, "--quiet")
    hint = {"prepare": "the same command continues", "pretrain": "continue with --resume"}[command]
    assert result == (128 + number, "", f"unmask: {out}: interrupted; {hint}\n")


def test_signal_status_is_returned_from_anywhere_in_python(tmp_path: Path) -> None:
    lines = (
        "import os, signal",
        "from unmask.cli import errors, main as cli",
        "def broken(given):",
        "    with cli.interrupt_on_signal():",
        "        try: exec('os.kill(os.getpid(), signal.SIGTERM)\\nfor _ in range(9): pass')",
        "        except KeyboardInterrupt: return errors.stop_exit_status()",
        "cli.run = broken",
        "cli.main()",
    )
    (tmp_path / "broken.py").write_text("\n".join(lines))
    path = os.pathsep.join([str(tmp_path), *sys.path])
    made = subprocess.run(
        [sys.executable, "-m", "broken"], env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert made.returncode == 128 + signal.SIGTERM


@pytest.mark.trials("signals and clocks")
@pytest.mark.thorough
def test_what_runs_in_the_background_ignores_ctrl_c_and_hears_sigterm(
    home: Path, tmp_path: Path
) -> None:
    """A script that starts a command with `&` has it ignore SIGINT."""
    words = ["pretrain", home / "small.toml", home / "text.txt", "--steps", 5000]
    words += ["--out", tmp_path / "run"]
    command = shlex.join([sys.executable, "-m", "unmask.cli", *map(str, words)])
    shell = subprocess.Popen(
        ["sh", "-c", f"{command} & echo $!; wait $!"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    assert shell.stdout is not None
    pid = int(shell.stdout.readline())
    log, end = tmp_path / "run" / "log.jsonl", time.monotonic() + 60

    def wait_for_more_than(n_bytes: int) -> int:
        while not (log.exists() and log.stat().st_size > n_bytes):
            assert time.monotonic() < end
            time.sleep(0.01)
        return log.stat().st_size

    n_bytes = wait_for_more_than(0)
    os.kill(pid, signal.SIGINT)
    wait_for_more_than(n_bytes)
    os.kill(pid, signal.SIGTERM)
    assert "continue with --resume" in shell.communicate(timeout=60)[1].splitlines()[-1]
    assert shell.returncode == 128 + signal.SIGTERM


@pytest.mark.trials("signals and clocks")
@pytest.mark.thorough
def test_ctrl_c_at_a_terminal_ends_all_processes_of_a_run(home: Path, tmp_path: Path) -> None:
    from unmask.checkpoints.folder import newest_checkpoint

    out = tmp_path / "run"
    words = ["pretrain", home / "small.toml", home / "text.txt", "--steps", 5000, "--workers", 1]
    process = start(*words, "--out", out)
    end = time.monotonic() + 60
    while not ((out / "log.jsonl").exists() and (out / "log.jsonl").stat().st_size):
        assert time.monotonic() < end
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    last = err.splitlines()[-1]
    checkpoint, damaged = newest_checkpoint(out)
    assert checkpoint is not None
    assert damaged == []
    step = checkpoint.step
    assert last == f"unmask: {out}: stopped after step {step:,} of 5,000; continue with --resume"
    assert "Traceback" not in err


@pytest.mark.thorough
def test_interrupted_command_says_so(unmask: Run, home: Path, tmp_path, monkeypatch) -> None:
    from unmask.evaluation import sentence_embeddings
    from unmask.jobs.corpus import prepare

    def stop(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "write_shards", stop)
    words = ["prepare", home / "text.txt", "--tokenizer", home / "bert", "--quiet"]
    result = unmask(*words, "--out", tmp_path / "p")
    assert result == (130, "", f"unmask: {tmp_path}/p: interrupted; the same command continues\n")
    words = ["pretrain", home / "small.toml", home / "text.txt", "--quiet"]
    result = unmask(*words, "--out", tmp_path / "r")
    assert result == (130, "", f"unmask: {tmp_path}/r: interrupted; continue with --resume\n")
    monkeypatch.undo()
    assert unmask("pretrain", "--out", tmp_path / "r", "--resume", "--steps", 6).status == 2
    words = ["pretrain", home / "small.toml", home / "text.txt", "--quiet"]
    assert unmask(*words, "--out", tmp_path / "q", "--steps", 1).status == 0
    monkeypatch.setattr(sentence_embeddings, "pool_hidden_states", stop)
    assert unmask("embed", home / "bert", "a") == (130, "", "unmask: interrupted\n")


@pytest.mark.parametrize("raises", ["RecursionError", "ImportError", "TypeError"])
def test_interrupted_import_says_so_whatever_it_raises(
    raises: str, unmask: Run, home: Path, tmp_path, monkeypatch
) -> None:
    from unmask.evaluation import sentence_embeddings

    module = f"""
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    while True: pass
except KeyboardInterrupt:
    raise {raises}("something else") from None
"""
    (tmp_path / "interrupted_module.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        sentence_embeddings,
        "pool_hidden_states",
        lambda *a, **k: import_module("interrupted_module"),
    )
    assert unmask("embed", home / "bert", "a") == (130, "", "unmask: interrupted\n")


class Disk:
    """A small disk of its own."""

    def __init__(self, position: Path) -> None:
        self.place = position

    def resize(self, size: str, how: str = "remount,") -> None:
        options = ["-t", "tmpfs", "-o", f"{how}size={size}", "tmpfs", str(self.place)]
        done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if sys.platform != "linux" or not shutil.which("mount"):
        pytest.skip("a disk to fill is mounted on Linux only")
    location = tmp_path / "disk"
    location.mkdir()
    disk = Disk(location)
    disk.resize("8k", how="")
    yield disk
    subprocess.run(["umount", "-l", location], check=True)


FULL = "no space left on device"


@pytest.mark.trials("full disk")
@pytest.mark.thorough
def test_preparation_resumes_after_a_full_disk(unmask: Run, home: Path, disk: Disk) -> None:
    disk.resize("60k")
    words = ["prepare", home / "text.txt", "--tokenizer", home / "bert", "--quiet"]
    big = home / "big.txt"
    big.write_text(corpus(600))
    words[1] = big
    check_mistake(unmask(*words, "--out", disk.place / "p"), FULL)
    result = unmask("pretrain", "bert-tiny", "--data", disk.place / "p", "--out", home / "zz")
    check_mistake(result, "is unfinished", "prepare it again")
    disk.resize("20m")
    assert unmask(*words, "--out", disk.place / "p").status == 0


@pytest.mark.trials("full disk")
# In turn, no room is left: for the tokens, for the first checkpoint, for the third.
@pytest.mark.thorough
@pytest.mark.parametrize("size", ["16k", "100k", "500k"])
def test_pretraining_resumes_after_a_full_disk(
    size: str, unmask: Run, home: Path, disk: Disk
) -> None:
    words = ["pretrain", home / "small.toml", home / "text.txt", "--steps", 12, "--quiet"]
    words += ["--threads", 1]
    whole, out = home / "whole", disk.place / "run"
    if not whole.exists():
        assert unmask(*words, "--out", whole).status == 0
    disk.resize(size)
    check_mistake(unmask(*words, "--out", out), FULL.removeprefix("no "), str(disk.place))
    assert not (out / "config.json").exists()
    disk.resize("20m")
    assert unmask(*words, "--out", out, "--resume").status == 0
    assert learned(out) == learned(whole)


@pytest.mark.trials("full disk")
def test_trained_model_is_saved_after_a_full_disk(unmask: Run, home: Path, disk: Disk) -> None:
    disk.resize("20m")
    out = Path(shutil.copytree(home / "bert", disk.place / "run"))
    (out / "config.json").unlink()
    (out / "model.safetensors").unlink()
    free = os.statvfs(disk.place).f_bavail * os.statvfs(disk.place).f_frsize
    (disk.place / "ballast").write_bytes(bytes(free - 50_000))
    check_mistake(unmask("pretrain", "--out", out, "--resume", "--quiet"), FULL)
    check_mistake(unmask("fill", out, "a [MASK]"), "has not ended")
    (disk.place / "ballast").unlink()
    assert unmask("pretrain", "--out", out, "--resume", "--quiet").status == 0
    assert learned(out) == learned(home / "bert")


@pytest.mark.trials("full disk")
def test_unwritable_output_is_absent(unmask: Run, home: Path, disk: Disk) -> None:
    check_mistake(unmask("convert", home / "bert", disk.place / "c"), FULL)
    (home / "no_blanks.txt").write_text("the old king saw\n" * 60)
    words = ["embed", home / "bert", "--input", home / "no_blanks.txt", "--out"]
    (disk.place / "ballast").write_bytes(b"x" * 4096)
    check_mistake(unmask(*words, disk.place / "v.npy"), FULL)
    assert os.listdir(disk.place) == ["ballast"]


# Recipes in the repository


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda p: p.stem)
def test_recipes_of_the_repository_are_readable(path: Path) -> None:
    from unmask.jobs.pretrain.apply_recipe import apply_recipe
    from unmask.jobs.pretrain.resolve_options import preset_recipe
    from unmask.training import config as recipes
    from unmask.zoo.catalogue import get_preset

    recipe = recipes.read_recipe(path, base=preset_recipe)
    apply_recipe(get_preset(recipe.model), recipe)
    assert recipe != preset_recipe(recipe.model)


def test_common_mistakes_are_reported_with_their_place(unmask: Run, home: Path) -> None:
    (home / "ab.vec").write_text("3 2\na 1 0\nb 0 1\nc 1 1\n")
    check_mistake(unmask("embed", home / "bert", "x", "--out", home / "void"), f"{home / 'void'}")
    check_mistake(
        unmask("evaluate", home / "bert", home / "text.txt", "--sequence-length", 0),
        "at least 1, got 0",
    )
    words = ["picture", home / "ab.vec", "--out", home / "ab.svg", "--seed", -1]
    check_mistake(unmask(*words), "seed must be from 0 to 2^32 - 1, got -1")
    result = unmask("embed", home / "ab.vec", "a", "zzz")
    assert result.status == 0
    assert "a text contains no word with a vector" in result.err
    assert unmask("embed", home / "ab.vec", "a").err == ""
