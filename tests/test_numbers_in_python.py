"""Numbers given in Python are refused in one line that names the parameter."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import typing
import unmask

open("rows.csv", "w").write("text,label\\n" + "the sun,a\\nthe moon,b\\n" * 8)
open("text.txt", "w").write("the sun is good\\n" * 9)
open("a.vec", "w").write("2 2\\nthe 1 0\\nb 0 1\\n")
row = dict(task="classify", train="rows.csv", terminal=None)
calls = [
    (unmask.finetune, ("bert-tiny",), row),
    (unmask.pretrain, ("bert-tiny",), dict(data="text.txt", out="run", quiet=True)),
    (unmask.align, ("a.vec", "a.vec"), dict(identical=True)),
]
n = 0
for call, given, named in calls:
    for name, kind in typing.get_type_hints(call).items():
        kinds = {kind, *typing.get_args(kind)}
        if not kinds & {int, float} or bool in kinds:
            continue
        bad = [-1, float("nan"), float("-inf"), True, "x", [1], *([] if float in kinds else [2.5])]
        for value in bad:
            try:
                call(*given, **named, **{name: value})
                said = "taken"
            except ValueError as error:
                said = str(error)
            except Exception as error:
                said = repr(error)
            n += 1
            if name not in said.replace("-", "_") or "\\n" in said:
                print(call.__name__, name, value, said)
print(n, "tried")
"""


def test_what_is_no_number_of_its_kind_is_refused_by_name(tmp_path: Path) -> None:
    # In a process of its own: here the types of arguments are checked by the tests themselves.
    root = Path(__file__).parents[1]
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    *wrong, tried = said.stdout.splitlines()
    assert not wrong, "\n".join(wrong)
    assert int(tried.split()[0]) > 150
