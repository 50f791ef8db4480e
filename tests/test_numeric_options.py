"""Every option of every command that is a number refuses what no number can be, in one line."""

from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from typer.models import OptionInfo

from unmask.cli.main import COMMANDS, make_app, run
from unmask.studies.read_study import read_study
from unmask.tasks.suites.benchmark import read_suite

OPTIONS = [
    (command.callback.__name__, (option.default, *option.param_decls)[-1])
    for command in make_app(*COMMANDS).registered_commands
    for hint in get_type_hints(command.callback, include_extras=True).values()
    for kind, option in [(*get_args(hint), None, None)[:2]]
    if isinstance(option, OptionInfo) and {int, float} & {kind, *get_args(kind)}
]
BAD = ("nan", "inf", "-inf", "1e400", "1" + "0" * 30, "x", "", "1" * 5000)


def test_numeric_options_are_found() -> None:
    assert len(OPTIONS) > 50
    assert len({command for command, _ in OPTIONS}) > 8


def check(command: str, option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, option, value]) == 2, (command, option)
    err = capsys.readouterr().err
    assert err.count("\n") == 1, (command, option)
    assert option in err, (command, option, err)


@pytest.mark.thorough
def test_non_number_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for i, (command, option) in enumerate(OPTIONS):
        check(command, option, BAD[i % len(BAD)], capsys)


@pytest.mark.slow
@pytest.mark.parametrize("value", BAD)
def test_no_option_accepts_a_non_number(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command, option in OPTIONS:
        check(command, option, value, capsys)


PAIR = ("a.vec", "b.vec", "--dictionary", "pairs.txt")
BEGUN = {
    "pretrain": ("bert-tiny", "--data", "text.txt", "--out", "run", "--quiet"),
    "generate": ("no-such-model", "--prompt", "the"),
    "prepare": ("text.txt", "--out", "run", "--quiet"),
    "finetune": ("bert-tiny", "--task", "classify", "--train", "rows.csv", "--out", "run"),
    "demo": ("--out", "run", "--quiet"),
    "study": ("bart-noises", "--data", "text.txt", "--out", "run", "--quiet"),
    "align": (*PAIR, "--semantic-shift", "3", "--out", "run", "--quiet"),
}
"""Words with which a command is complete."""
ZERO = {
    ("pretrain", "--sampling-exponent"), ("pretrain", "--seed"), ("pretrain", "--workers"),
    ("pretrain", "--data-retries"),
    ("prepare", "--sampling-exponent"), ("prepare", "--workers"), ("study", "--workers"),
    ("finetune", "--warmup"), ("finetune", "--average"), ("finetune", "--weight-decay"),
    ("finetune", "--lm-loss-weight"), ("finetune", "--dropout"), ("finetune", "--seed"),
    ("finetune", "--search"), ("align", "--refine"), ("align", "--seed"),
}  # fmt: skip
"""Options for which zero has a meaning; `generate` has more, in its own tests."""


def refused(arguments: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that it is a mistake, one line that contains the name; nothing is written."""
    assert run(arguments) == 2, arguments
    err = capsys.readouterr().err
    assert err.count("\n") == 1, (arguments, err)
    assert name in err, (arguments, err)
    assert "no such folder" not in err, (arguments, err)


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize("command", BEGUN)
def test_negative_value_is_refused_before_anything_is_written(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the sun is good\n" * 9)
    for option in (option for name, option in OPTIONS if name == command):
        if option == "--length-penalty":  # favors short texts
            continue
        refused([command, *BEGUN[command], f"{option}=-1"], option, capsys)
        if command != "generate" and (command, option) not in ZERO:
            refused([command, *BEGUN[command], f"{option}=0"], option, capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_option_is_named_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.vec").write_text("2 2\nthe 1 0\nb 0 1\n")
    near = ["neighbors", "a.vec", "the"]
    refused([*near, "--top-k=0"], "unmask: --top-k must", capsys)
    refused([*near, "--top-k", "0"], "unmask: --top-k must", capsys)
    refused([*near, "-k", "0"], "unmask: -k must", capsys)
    refused([*near, "-k0"], "unmask: -k must", capsys)
    refused([*near, "--limit=0"], "unmask: --limit must", capsys)
    refused(["convert", "no-such-model", "new", "--average=1"], "unmask: --average must", capsys)
    given = ["finetune", *BEGUN["finetune"]]
    refused([*given, "--weight-decay=-1"], "unmask: --weight-decay must", capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["a.vec"]


WRONG_TUNING = (
    "lora:rank=0",
    "lora:alpha=nan",
    "lora:dropout=1",
    "houlsby:bottleneck_size=0",
    "pfeiffer:bottleneck_size=-3",
    "adamix:n_experts=0",
    "prefix:n_virtual_tokens=0",
    "prompt:n_virtual_tokens=0",
    "top:n_layers=0",
    "gradual:layerwise_lr_decay=0",
)


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    "words",
    [
        *([f"--tune={tune}"] for tune in WRONG_TUNING),
        *(
            ["--adapt-first", f"--adapt-set={number}"]
            for number in ("epochs=0", "epochs=-1", "epochs=nan", "epochs=1e30")
        ),
    ],
    ids=lambda words: words[-1],
)
def test_number_within_an_option_is_refused_by_option_name(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "--tune: " if words[0].startswith("--tune") else "adapt_first.epochs must"
    given = ["finetune", *BEGUN["finetune"], "--max-length=16", *words]
    refused(given, f"unmask: {name}", capsys)
    assert list(tmp_path.iterdir()) == []


SUITE = """
[[benchmarks]]
name = "x"
task = "classify"
rows = {}
files = [{{train = "rows.csv"}}]
"""
STUDY = """
question = "which?"
tasks = "nli"
{}
[[cells]]
name = "one"
model = "bert-tiny"
{}
"""
STUDY_NUMBERS = {"tokens": 512, "rows": 10, "epochs": 1.0, "seeds": 1}
WRONG = ("0", "-1", "nan", "inf", "-inf", "1e999", "'1'")


def test_numbers_of_a_suite_file_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    path.write_text(SUITE.format(3))
    assert read_suite(path).benchmarks[0].rows == 3
    for value in (*WRONG, "1.5", "true"):
        path.write_text(SUITE.format(value))
        with pytest.raises(ValueError, match=r"suite\.toml: .*rows") as output:
            read_suite(path)
        assert "\n" not in str(output.value)


def test_numbers_of_a_study_file_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"

    def write(own: str = "", **other: str) -> None:
        lines = [f"{name} = {value}" for name, value in {**STUDY_NUMBERS, **other}.items()]
        path.write_text(STUDY.format("\n".join(lines), own))

    write("token_factor = 0")
    assert read_study(path).cells[0].token_factor == 0
    for name in STUDY_NUMBERS:
        for value in WRONG:
            write(**{name: value})
            with pytest.raises(ValueError, match=rf"study\.toml: .*{name}") as output:
                read_study(path)
            assert "\n" not in str(output.value)
    for value in WRONG[1:]:
        write(f"token_factor = {value}")
        with pytest.raises(ValueError, match=r"study\.toml: .*token_factor"):
            read_study(path)
