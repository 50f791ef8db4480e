"""Numbers given in Python are refused in one line that names the parameter."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unmask.config import check_number_arguments, check_value

SCRIPT = """
import re
import typing
import unmask
from unmask.generation.settings import BeamSearch, BestOfN, GenerationConfig, Sampling
from unmask.jobs.demo import demo

open("rows.csv", "w").write("text,label\\n" + "the sun,a\\nthe moon,b\\n" * 8)
open("text.txt", "w").write("the sun is good\\n" * 9)
open("a.vec", "w").write("2 2\\nthe 1 0\\nb 0 1\\n")
open("who.toml", "w").write(
    "test = 'rows.csv'\\nquery = '{text}'\\n[answer]\\nkind = 'MultipleChoiceScoring'\\n"
    "choices = ['a', 'b']\\ntarget = '{label}'\\n"
)
model = unmask.load("unmask-mini-en")
row = dict(task="classify", train="rows.csv", terminal=None)
quiet = dict(terminal=None)


def generate(**settings):
    model.generate("the sun", **{"temperature": 0.5} | settings)


def generate_beams(**settings):
    model.generate("the sun", **{"beams": 3} | settings)


def generate_samples(**settings):
    model.generate("the sun", **{"samples": 3, "temperature": 0.5} | settings)


calls = [
    (unmask.finetune, unmask.finetune, ("bert-tiny",), row),
    (unmask.finetune_suite, unmask.finetune_suite, ("bert-tiny",), dict(tasks="glue", out="s")),
    (unmask.pretrain, unmask.pretrain, ("bert-tiny",), dict(data="text.txt", out="r", quiet=True)),
    (unmask.prepare, unmask.prepare, ("text.txt",), dict(out="p", quiet=True)),
    (unmask.align, unmask.align, ("a.vec", "a.vec"), dict(identical=True)),
    (unmask.evaluate_tasks, unmask.evaluate_tasks, (model, "who.toml"), quiet),
    (unmask.run_study, unmask.run_study, ("bart-noises",), dict(data="text.txt", out="t")),
    (demo, demo, ("d",), dict(quiet=True)),
    (model.evaluate, model.evaluate, ("text.txt",), {}),
    (generate, GenerationConfig, (), {}),
    (generate, Sampling, (), {}),
    (generate_beams, BeamSearch, (), {}),
    (generate_samples, BestOfN, (), {}),
] + [
    (part, part, (), {})
    for part in (
        unmask.LoRA, unmask.PfeifferAdapter, unmask.HoulsbyAdapter, unmask.AdaMix,
        unmask.PrefixTuning, unmask.PromptTuning, unmask.TopLayers, unmask.GradualUnfreezing,
        unmask.TaskAdaptivePretraining,
    )
]
NEGATIVE = ("length_penalty",)  # may be below 0
n = 0
for call, annotated, given, named in calls:
    for name, kind in typing.get_type_hints(annotated).items():
        kinds = {kind, *typing.get_args(kind)}
        if not kinds & {int, float} or bool in kinds:
            continue
        bad = [10**30, -(10**30), 10**5000, float("nan"), float("-inf"), True, "x", [2.5]]
        bad += [] if float in kinds else [2.5]
        bad += [] if name in NEGATIVE else [-1]
        for value in bad:
            try:
                call(*given, **named, **{name: value})
                message = "taken"
            except ValueError as error:
                message = str(error)
            except Exception as error:
                message = repr(error)
            n += 1
            # "seed" is not named by a message about "seeds"
            words = re.findall("[a-z]+(?:_[a-z]+)*", message.replace("-", "_"))
            if name not in words or "\\n" in message:
                print(annotated.__name__, name, repr(value)[:9], message)
print(n, "tried")
"""


@pytest.mark.thorough
def test_non_number_argument_is_refused_by_name(tmp_path: Path) -> None:
    # In a process of its own: here the types of arguments are checked by the tests themselves.
    root = Path(__file__).parents[1]
    result = subprocess.run(
        [sys.executable, "-X", "int_max_str_digits=0", "-c", SCRIPT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    *wrong, tried = result.stdout.splitlines()
    assert not wrong, "\n".join(wrong)
    assert int(tried.split()[0]) > 800


@pytest.mark.parametrize("kind", [int, float, int | None, list[int], dict[str, float]])
def test_integer_beyond_64_bits_is_refused(kind: Any) -> None:
    for number in (-(2**63) - 1, 2**63, 10**30, 10**5000):
        data = {list[int]: [number], dict[str, float]: {"a": number}}.get(kind, number)
        with pytest.raises(ValueError, match=r"^steps.* must be a number of at most 64 bits, got"):
            check_value(kind, data, "steps")


def test_largest_64_bit_integers_are_allowed() -> None:
    for number in (-(2**63), 2**63 - 1):
        check_value(int, number, "steps")


def test_positional_and_keyword_arguments_are_checked() -> None:
    @check_number_arguments
    def last(steps: int, *others: str, rate: float | None = None) -> tuple[int, float | None]:
        return steps, rate

    assert last(1, "a", "b") == (1, None)
    assert last(1, rate=2.5) == last(rate=2.5, steps=1) == (1, 2.5)
    for call in (lambda: last("x"), lambda: last(steps="x")):  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match="steps must be int, got 'x'"):
            call()
