"""Options are written once: Python's keywords, the command line and the docs are made of fields."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pytest
import typer

import unmask
from unmask.cli import main as cli
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.options.finetune import FinetuneOptions, FinetuneSuiteOptions
from unmask.generation.settings import (
    BeamSearch,
    BestOfN,
    GenerationConfig,
    Sampling,
    generation_config,
)
from unmask.jobs.demo import demo
from unmask.jobs.options.align import AlignOptions
from unmask.jobs.options.demo import DemoOptions
from unmask.jobs.options.evaluate import EvaluateTasksOptions
from unmask.jobs.options.hide import HideOptions
from unmask.jobs.options.prepare import PrepareOptions
from unmask.jobs.options.pretrain import PretrainOptions
from unmask.jobs.options.shell.from_dataclass import command
from unmask.jobs.options.shell.generate import GenerationSettings
from unmask.options import JobOptions, flag, keywords, option_docs, option_types, takes_options
from unmask.studies.options import StudyOptions
from unmask.training.config import Recipe

JOBS: dict[Callable[..., Any], type[Any]] = {
    unmask.align: AlignOptions,
    demo: DemoOptions,
    unmask.evaluate_tasks: EvaluateTasksOptions,
    unmask.finetune: FinetuneOptions,
    unmask.finetune_suite: FinetuneSuiteOptions,
    unmask.hide: HideOptions,
    unmask.prepare: PrepareOptions,
    unmask.pretrain: PretrainOptions,
    unmask.run_study: StudyOptions,
}
COMMANDS = vars(typer.main.get_command(cli.make_app(*cli.COMMANDS)))["commands"]


@dataclass(frozen=True)
class Small(JobOptions):
    """Options of a job that there is not."""

    name: str = field(metadata=flag(is_argument=True))
    """Name of it."""
    _: KW_ONLY
    n_words: int = 3
    """Number of words; see `is_short`. None: half, 0.5. More."""
    kinds: Sequence[str] = ()
    """Kind of it."""
    parts: Sequence[str] = field(default=(), metadata=flag(separator=","))
    stop: "bool | Literal['never'] | None" = None
    changes: dict[str, Any] | None = field(default=None, metadata=flag(is_assignments=True))
    network: "str | Nowhere" = "none"
    only: "Nowhere | None" = None
    is_short: bool = False


@takes_options(Small)
def small(options: Small) -> Small:
    """Return the options.

    Raises:
        ValueError: never.
    """
    return options


def test_function_takes_fields_as_documented_keywords() -> None:
    assert small("x", n_words=5) == Small("x", n_words=5)
    assert list(inspect.signature(small).parameters) == [f.name for f in fields(Small)]
    docs = inspect.getdoc(small) or ""
    assert docs.index("n_words:") < docs.index("Raises:")
    with pytest.raises(TypeError, match=r"small\(\): .*'word'"):
        small("x", word=3)  # pyright: ignore
    with pytest.raises(TypeError, match=r"small\(\): .*'name'"):
        small()  # pyright: ignore


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("name", "value"), [("n_words", "3"), ("n_words", True), ("kinds", 3), ("is_short", 1)]
)
def test_value_of_wrong_type_is_refused_by_option_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        Small("x", **{name: value})


def test_types_of_other_rooms_are_left_out() -> None:
    known = option_types(Small)
    assert known["network"].type is str
    assert not known["network"].is_complete
    assert known["only"].type is None
    assert known["n_words"].is_complete
    Small("x", network=[])  # pyright: ignore  # the job that knows the other type checks it


def test_command_is_built_from_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    got: list[Any] = []

    @command(Small)
    def run(options: dict[str, Any]) -> None:
        """Do it."""
        got.append(options)

    app = typer.Typer(add_completion=False)
    app.command()(run)
    words = "x --kinds a --kinds b --parts c,d --stop true --changes a.b=1 --changes c=x"
    typer.main.get_command(app)(words.split(), standalone_mode=False)
    typer.main.get_command(app)(["y"], standalone_mode=False)
    assert got[0] == {
        "name": "x", "n_words": 3, "kinds": ("a", "b"), "parts": ("c", "d"), "stop": True,
        "changes": {"a": {"b": 1}, "c": "x"}, "network": "none", "is_short": False,
    }  # fmt: skip
    assert Small(**got[1]) == Small("y")
    typer.main.get_command(app)(["--help"], standalone_mode=False)
    help_text = " ".join(capsys.readouterr().out.split())
    assert "only" not in help_text
    assert "Number of words; see --is-short. More. [default: 3]" in help_text.replace("│ ", "")
    assert "Kind of it. Repeatable." in help_text


def test_help_names_flags_and_hides_meaning_of_none() -> None:
    @command(PrepareOptions)
    def run(options: dict[str, Any]) -> None:
        """Do it."""

    hints = get_type_hints(run, include_extras=True)
    assert hints["vocab_size"].__metadata__[0].help == (
        "Vocabulary size of the trained tokenizer, in tokens."
    )
    every = [p.help for one in COMMANDS.values() for p in one.params if p.name != "help"]
    assert [one for one in every if one is None or "`" in one or "None:" in one] == []


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_keywords_of_a_job_are_its_option_fields(job: Callable[..., Any]) -> None:
    names = {f.name for f in fields(JOBS[job])}
    assert set(inspect.signature(job).parameters) == names
    docs = option_docs(JOBS[job])
    lacking = [n for n in names if not docs.get(n)]
    assert lacking == []


@pytest.mark.parametrize(
    ("name", "options_type"),
    [
        ("align", AlignOptions), ("demo", DemoOptions), ("finetune", FinetuneOptions),
        ("hide", HideOptions), ("prepare", PrepareOptions), ("pretrain", PretrainOptions),
        ("study", StudyOptions),
    ],
)  # fmt: skip
def test_command_has_all_plain_options_of_its_job(name: str, options_type: type[Any]) -> None:
    plain = {n for n, known in option_types(options_type).items() if known.type is not None}
    assert plain <= {one.name for one in COMMANDS[name].params}


def test_summary_is_the_first_sentence_of_its_command() -> None:
    for name, (_, summary) in cli.COMMANDS.items():
        paragraph = (inspect.getdoc(cli.load_command(name)) or "").split("\n\n")[0]
        assert " ".join(paragraph.split()) == summary


def test_help_texts_start_with_a_noun() -> None:
    for name, one in COMMANDS.items():
        for parameter in one.params:
            first = (parameter.help or "").split(" ", 1)[0]
            assert first[:1].isupper(), (name, parameter.name)
            assert first not in {"Of", "That", "So", "Those", "What", "Where"}, parameter.name


def test_prepared_folders_are_offered_by_pretraining_alone() -> None:
    offering = {
        name
        for name, one in COMMANDS.items()
        for parameter in one.params
        if "folder written by unmask prepare" in " ".join((parameter.help or "").split())
    }
    assert offering == {"pretrain"}


def test_run_config_repeats_no_option_type() -> None:
    own = vars(FinetuneConfig)["__annotations__"].keys()
    resolved = {n for n, known in option_types(FinetuneOptions).items()} & set(own)
    changed = {n: option_types(FinetuneOptions)[n] for n in resolved}
    hints = get_type_hints(FinetuneConfig)
    assert [n for n, known in changed.items() if known.is_complete and known.type == hints[n]] == []


def test_pretraining_options_share_docs_with_recipe_keys() -> None:
    keys = {f.name for f in fields(Recipe)} & {f.name for f in fields(PretrainOptions)}
    recipe = option_docs(Recipe)
    assert all(recipe.values())
    own = {
        "model",
        "data",
        "steps",
        "init_from",
        "tokenizer",
        "objective",
        "compression",
    }  # more forms
    docs = option_docs(PretrainOptions)
    assert {n for n in keys if docs[n] != recipe[n]} <= own


def test_generation_settings_are_all_on_the_command_line() -> None:
    parts = (GenerationConfig, Sampling, BestOfN, BeamSearch)
    known = {f.name for part in parts for f in fields(part)} - {"strategy", "sampling"}
    of_folders = {"max_length", "min_length", "forbidden", "forbidden_first", "last_token"}
    assert {f.name for f in fields(GenerationSettings)} == known - of_folders
    assert generation_config(**{"beams": 2, "early_stopping": "never"}).strategy == BeamSearch(
        beams=2, early_stopping="never"
    )


def test_keywords_are_the_values_of_shared_options() -> None:
    given = FinetuneSuiteOptions("m", tasks="glue", out="o", seeds=4)
    assert keywords(DemoOptions, given)["seeds"] == 4
    assert "minutes" not in keywords(DemoOptions, given)


def test_option_files_import_nothing_heavy() -> None:
    root = Path(unmask.__file__).parent
    files = [*root.glob("*/options.py"), *root.glob("*/options/*.py")]
    light = [p for p in files if p.name != "derived.py"]
    names = [".".join(p.relative_to(root.parent).with_suffix("").parts) for p in light]
    assert len(names) > 8
    code = (
        f"import sys, {', '.join(names)}\n"
        "sys.exit(','.join({'torch', 'numpy', 'tokenizers', 'scipy'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
