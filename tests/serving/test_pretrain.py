import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from toy_text import corpus

from unmask.serving.pipeline import load
from unmask.serving.pretrain import pretrain

SMALL = {
    "bert-tiny": ["architecture={d_model=32,d_ff=64,n_layers=2,n_heads=2}"],
    "gpt2-mini": ["architecture={d_model=32,d_ff=64,n_layers=2,n_heads=2}"],
    "t5-mini": [
        "architecture={encoder={d_model=32,d_ff=64,n_layers=1,n_heads=2,head_width=16},"
        "decoder={d_model=32,d_ff=64,n_layers=1,n_heads=2,head_width=16}}"
    ],
}
COMMON = [
    "vocab_size=300",
    "length=32",
    "batch_tokens=256",
    "log_every=3",
    "evaluate_every=6",
    "dev=0.1",
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(corpus())
    return path


def run(name: str, text: Path, out: Path, steps: int = 12, **more):
    more.setdefault("checkpoint_every", 5)
    return pretrain(
        name,
        data=text,
        out=out,
        steps=steps,
        quiet=True,
        changes=[*COMMON, *SMALL[name]],
        threads=1,
        **more,
    )


def learned(out: Path) -> dict[str, bytes]:
    """Give all that must be equal bit for bit: weights, optimizer, log."""
    newest = max((out / "checkpoints").iterdir())
    files = [
        newest / "model.safetensors",
        newest / "optimizer.safetensors",
        out / "model.safetensors",
        out / "log.jsonl",
    ]
    return {f.name + f.parent.name * (f.parent != out): f.read_bytes() for f in files}


@pytest.mark.parametrize("name", SMALL)
def test_a_run_makes_a_folder_that_opens_and_is_used(name: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    made = run(name, text, out)
    opened = load(out)
    assert opened.opened.missing == ()
    assert opened.opened.extra == ()
    mine, theirs = made.model.weights(), opened.model.weights()
    assert all(np.array_equal(mine[n].numpy(), theirs[n].numpy()) for n in mine)
    for file in (
        "config.json",
        "tokenizer.json",
        "README.md",
        "unmask.json",
        "log.jsonl",
        "timing.jsonl",
        "report.html",
    ):
        assert (out / file).stat().st_size > 0
    assert json.loads((out / "unmask.json").read_text())["finished"] is True
    assert opened.embed(["the old king", "her brother saw the sea"]).shape[0] == 2
    result = opened.evaluate(text)
    assert np.isfinite(list(result.loss.values())).all()


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_run_broken_off_and_resumed_equals_one_that_was_not(
    name: str, workers: int, text: Path, tmp_path: Path, monkeypatch
) -> None:
    if workers and name != "bert-tiny":
        pytest.skip("the workers are the same for every model")
    run(name, text, tmp_path / "whole")
    broken = tmp_path / "broken"

    class Killed(Exception):
        pass

    from unmask.training import log

    original = log.Log.__call__

    def call(self, report):
        original(self, report)
        if report.step in (7, 11):
            raise Killed

    monkeypatch.setattr(log.Log, "__call__", call)
    for i in range(2):
        with pytest.raises(Killed):
            run(name, text, broken, resume=i > 0, workers=workers)
        monkeypatch.setattr(
            log.Log,
            "__call__",
            lambda self, report, i=i: (
                call(self, report) if report.step != 7 else original(self, report)
            ),
        )
    monkeypatch.setattr(log.Log, "__call__", original)
    run(name, text, broken, resume=True, workers=workers)
    assert learned(broken) == learned(tmp_path / "whole")


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from test_pretrain import run
run("bert-tiny", Path(sys.argv[1]), Path(sys.argv[2]), steps=400, resume=True, checkpoint_every=20, workers=int(sys.argv[3]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_run_killed_at_random_instants_equals_one_that_was_not(
    workers: int, text: Path, tmp_path: Path
) -> None:
    run("bert-tiny", text, tmp_path / "whole", steps=400, checkpoint_every=20)
    killed = tmp_path / "killed"
    draw = np.random.default_rng(workers)
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    arguments = [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n" + PROGRAM]
    arguments += [str(text), str(killed), str(workers), paths[0]]
    deaths = 0
    while True:
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            _, said = process.communicate(
                timeout=2.5 + draw.random() * 3 + (5 if deaths > 18 else 0)
            )
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            deaths += 1
            time.sleep(0.05)
            continue
        assert process.returncode == 0, said.decode()
        break
    assert deaths > 0
    assert learned(killed) == learned(tmp_path / "whole")


def test_the_same_seed_gives_the_same_run_and_another_seed_another(
    text: Path, tmp_path: Path
) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run("bert-tiny", text, tmp_path / name, seed=seed)
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in "abc"]
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


def test_micro_batches_do_not_change_the_loss(text: Path, tmp_path: Path) -> None:
    losses = []
    for name, micro in (("whole", 256), ("parts", 64)):
        out = tmp_path / name
        changes = [
            *COMMON,
            *SMALL["bert-tiny"],
            f"micro_tokens={micro}",
            "dropout=0.0",
            "precision=float32",
        ]
        pretrain("bert-tiny", data=text, out=out, steps=6, quiet=True, changes=changes, threads=1)
        said = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        losses.append([x["loss"] for x in said if "loss" in x])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_minutes_fix_the_number_of_steps_before_the_first(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    changes = [*COMMON, *SMALL["bert-tiny"]]
    pretrain("bert-tiny", data=text, out=out, minutes=0.03, quiet=True, changes=changes, threads=1)
    recipe = json.loads((out / "unmask.json").read_text())["recipe"]
    assert recipe["steps"] >= 1
    last = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()][-1]
    assert last["step"] == recipe["steps"]


def test_training_goes_on_from_given_weights(text: Path, tmp_path: Path) -> None:
    first = run("bert-tiny", text, tmp_path / "first")
    second = pretrain(
        "bert-tiny", data=text, out=tmp_path / "second", begin=tmp_path / "first", steps=1, quiet=True,
        changes=[*COMMON, "rate=1e-9"], threads=1,
    )  # fmt: skip
    a, b = first.model.weights(), second.model.weights()
    assert all(np.allclose(a[n].numpy(), b[n].numpy(), atol=1e-5) for n in a)
    assert second.model.stack.d_model == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("lenght=3", "did you mean 'length'"),
        ("length=1024", "at most the model's 512 positions"),
        ("architecture={d_modle=3}", "did you mean 'd_model'"),
        ("architecture={n_heads=3}", "not a multiple"),
        ("rate=fast", "rate"),
        (
            "objective={kind='Hide', choose={kind='Everything'}, conceal={kind='Future'}}",
            "no head for next_token",
        ),
    ],
)
def test_a_wrong_recipe_is_one_clear_error_and_leaves_nothing(
    change: str, message: str, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        pretrain(
            "bert-tiny",
            data=text,
            out=tmp_path / "run",
            steps=1,
            changes=["batch_tokens=2048", change],
            quiet=True,
        )
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_folders_that_are_not_what_they_should_be_are_refused(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run("bert-tiny", text, out, steps=2)
    before = learned(out)
    with pytest.raises(ValueError, match="holds a run already"):
        run("bert-tiny", text, out, steps=2)
    with pytest.raises(ValueError, match=r"this run has seed = 0, not 5"):
        run("bert-tiny", text, out, steps=2, resume=True, seed=5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds files, but not a run"):
        run("bert-tiny", text, tmp_path / "other", steps=2)
    with pytest.raises(ValueError, match="is a file"):
        run("bert-tiny", text, text, steps=2)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run("bert-tiny", tmp_path / "nowhere.txt", tmp_path / "new", steps=2)
    assert learned(out) == before
