"""Wrong rows, options and rewards of `unmask prefer`: one line, status 2, and no folder."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make
from tiny_runs import (
    LABELED,
    PAIRS,
    PROMPTS,
    WORDS,
    make_base,
    make_classifier,
    make_reward_model,
    prefer,
    write_rows,
)

from unmask.conversations.messages import Message
from unmask.preferences.online.reward import open_reward

Rows = Sequence[dict[str, Any]]
PROMPT = (Message("user", "the cat"),)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    for family in ("gpt2", "t5", "bert"):
        make_base(family, folder / "base" / family)
    make_classifier(folder)
    make_reward_model(folder)
    for name, rows in (("pairs", PAIRS), ("labeled", LABELED), ("prompts", PROMPTS)):
        write_rows(folder / f"{name}.jsonl", rows)
    return folder


def refused(
    capsys: pytest.CaptureFixture[str], out: Path, base: object, *words: object
) -> str:  # fmt: skip
    """Run a command that is refused; return its one line."""
    status = prefer(
        base,
        *words,
        "--max-length",
        96,
        "--max-response-length",
        6,
        "--batch-size",
        4,
        "--out",
        out,
    )
    err = capsys.readouterr().err
    assert status == 2, err
    assert err.count("\n") == 1, err
    assert not out.exists()
    return err


def pair(**more: Any) -> dict[str, Any]:
    return {"prompt": "the cat", "chosen": "runs", "rejected": "sees"} | more


def labeled(label: Any) -> dict[str, Any]:
    return {"prompt": "a", "completion": "b", "label": label}


ROWS: dict[str, tuple[str, Rows, str]] = {
    "no chosen": ("dpo", [{"prompt": "a", "better": "b"}], "no 'chosen', only 'prompt', 'better'"),
    "null": ("dpo", [pair(chosen=None)], "x.jsonl:1: 'chosen' is empty"),
    "no prompt": ("dpo", [{"chosen": "a", "rejected": "b"}], "no prompt before 'chosen'"),
    "empty file": ("ppo", [], "the file is empty"),
    "number": ("dpo", [pair(prompt=5)], "'prompt' must be a list of messages, got int 5"),
    "one prompt": ("dpo", [pair()] * 12, "has one prompt alone, of which none can be held out"),
    "no response": ("dpo", [pair(prompt=w, chosen=" ") for w in WORDS], "3 without a response"),
    "equal": ("dpo", [pair(prompt=w, chosen="sees") for w in WORDS], "3 whose responses are equal"),
    "long": ("dpo", [pair(prompt=f"{w} " * 200) for w in WORDS], "longer than 96 tokens"),
    "special": ("dpo", [pair(chosen="<|endoftext|>"), pair(prompt="a")], "a special token of this"),
    "surrogate": ("dpo", [pair(chosen="\ud800")], "a lone surrogate"),
    "role": ("dpo", [pair(prompt=[{"role": "robot", "content": "a"}])], "role must be one of"),
    "ranking": ("dpo", [{"prompt": "a", "responses": ["b"]}], "a list of 2 to 64 responses"),
    "label word": ("kto", [labeled("good")], "'label' must be true or false, got str 'good'"),
    "label number": ("kto", [labeled(2)], "'label' must be true or false, got int 2"),
    "label share": ("kto", [labeled(1.0)], "'label' must be true or false, got float 1.0"),
    "label null": ("kto", [labeled(None)], "'label' must be true or false, got NoneType"),
    "kto without completion": ("kto", [{"prompt": "a", "label": True}], "must be in one of output"),
    "empty prompts": ("ppo", [{"prompt": " "}] * 12, "x.jsonl:1: there is no prompt"),
    "long prompts": ("ppo", [{"prompt": f"{w} " * 200} for w in WORDS], "longer than 90 tokens"),
    "special prompts": ("ppo", [{"prompt": f"<|endoftext|>{w}"} for w in WORDS], "a special token"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_are_refused(
    name: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    method, rows, message = ROWS[name]
    data = write_rows(tmp_path / "x.jsonl", rows)
    more = ("--reward", f"{home / 'classifier'}:good") if method == "ppo" else ()
    given = ("--method", method, "--train", data, *more)
    assert message in refused(capsys, tmp_path / "run", home / "base" / "gpt2", *given)


OPTIONS: dict[str, tuple[str, str]] = {
    "--method dpoo": ("pairs", "--method must be one of dpo, robust_dpo, hinge"),
    "--method dpo:gamma=1": ("pairs", "unknown key 'dpo.gamma' (known: beta, flip_probability)"),
    "--method dpo:beta=0": ("pairs", "beta must be above 0, got 0.0"),
    "--method dpo:beta=nan": ("pairs", "beta must be above 0, got nan"),
    "--method dpo:flip_probability=0.5": ("pairs", "from 0 to below 0.5, got 0.5"),
    "--method kto:desirable_weight=0,undesirable_weight=0": ("labeled", "are both 0"),
    "--method ppo": ("prompts", "method ppo needs a reward"),
    "--method ppo --reward {base}": ("prompts", "has no head that labels texts"),
    "--method ppo --reward {classifier}": ("prompts", "one of bad, good; got no label"),
    "--method ppo --reward {classifier}:best": ("prompts", "one of bad, good; got 'best'"),
    "--method ppo --reward {reward}:good": ("prompts", "is a reward model, which has no label"),
    "--method ppo --reward nothing": ("prompts", "nothing: no such folder"),
    "--method ppo --reward :good": ("prompts", "--reward must be MODEL or MODEL:LABEL"),
    "--method ppo --reward {reward} --reference cache": ("prompts", "ppo writes its own"),
    "--method ppo:minibatches=5 --reward {reward}": ("prompts", "the responses of a batch, 4, got"),
    "--method ppo --reward {reward} --max-response-length 96": ("prompts", "must be below max_len"),
    "--method ppo --reward {reward} --text nothing.txt": ("prompts", "nothing.txt: no such file"),
    "--method rloo:responses=1 --reward {reward}": ("prompts", "responses must be at least 2"),
    "--method orpo --reference cache": ("pairs", "orpo has no reference model"),
    "--text x": ("pairs", "text is for ppo, rloo and best_of_n, got method dpo"),
    "--cut-reward -1": ("pairs", "cut-reward is for ppo, rloo and best_of_n, got method dpo"),
    "--judge {reward} --max-response-length 90": ("pairs", "all prompts of dev are empty or too"),
    "--max-length 1000": ("pairs", "must be at most 128, the positions of gpt2, got 1000"),
    "--warmup 100": ("pairs", "warm-up and decay take 100 steps"),
    "--learning-rate nan": ("pairs", "must be a finite number"),
    "--tune nothing": ("pairs", "--tune must be one of full, frozen"),
    "--chat-template {% for": ("pairs", "chat template: unexpected 'end of template'"),
    "--chat-template x.jinja": ("pairs", "x.jinja: no such file"),
    "--dev-prompts 0": ("pairs", "--dev-prompts must be at least 1, got 0"),
}  # fmt: skip


@pytest.mark.parametrize("words", OPTIONS)
def test_options_that_are_refused(
    words: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, message = OPTIONS[words]
    places = {
        "{base}": home / "base" / "gpt2", "{classifier}": home / "classifier",
        "{reward}": home / "reward",
    }  # fmt: skip
    for name, path in places.items():
        words = words.replace(name, str(path))
    given = words.split(" ", 1) if "{%" in words else words.split()
    data = home / f"{rows}.jsonl"
    status = prefer(
        places["{base}"], "--train", data, "--max-length", 96, "--max-response-length", 6,
        "--batch-size", 4, "--out", tmp_path / "run", *given,
    )  # fmt: skip
    err = capsys.readouterr().err
    assert status == 2, err
    assert message in err
    assert err.count("\n") == 1, err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("bert", "does not write from left to right"), ("gpt2-mini", "has no weights; pretrain it"),
        ("nothing", "no such folder, and no model of the catalogue"),
    ],
)  # fmt: skip
def test_models_that_are_refused(
    base: str, message: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = home / "base" / base
    model = folder if folder.is_dir() else base
    given = ("--train", home / "pairs.jsonl")
    assert message in refused(capsys, tmp_path / "run", model, *given)


def test_a_way_of_tuning_that_does_not_fit_leaves_no_folder(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--train", home / "pairs.jsonl", "--tune", "bitfit")
    found = refused(capsys, tmp_path / "run", home / "base" / "t5", *given)
    assert "bitfit tunes biases, and this model has none" in found


def test_optimizer_that_does_not_fit_into_memory_is_refused(
    home: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(
        "unmask.training.device.activation_memory.free_memory_bytes", lambda _: 10_000
    )
    words = (home / "base" / "gpt2", "--train", home / "pairs.jsonl")
    for tune, advice in (
        ("full", "take --tune lora or a smaller model"),
        ("lora", "take a smaller"),
    ):
        found = refused(capsys, tmp_path / "out", *words, "--tune", tune)
        assert f"GiB are free; {advice}" in found
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_not_used(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, data, out = home / "base" / "gpt2", home / "pairs.jsonl", tmp_path / "run"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert prefer(base, "--train", data, "--out", out) == 2
    assert "holds files, but not a run; name a new folder" in capsys.readouterr().err
    assert prefer(base, "--train", data, "--out", home / "reward", "--resume") == 2
    assert "is a run of finetune, not of prefer" in capsys.readouterr().err
    assert prefer(base, "--train", data, "--out", out / "notes.txt") == 2
    assert "is a file; a run needs a folder" in capsys.readouterr().err
    assert [p.name for p in out.iterdir()] == ["notes.txt"]


def test_a_reward_that_cannot_read_a_prompt_is_refused_before_the_first_step(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, reward, data = home / "base" / "t5", home / "reward", tmp_path / "x.jsonl"
    given = ("--method", "ppo", "--train", data, "--reward", reward)
    write_rows(data, [{"prompt": f"{w} " * 20} for w in WORDS])  # pieces of t5 are longer
    found = refused(capsys, tmp_path / "run", base, *given)
    assert "reads at most 96 tokens, which this prompt and a response of 6 exceed" in found
    write_rows(data, [{"prompt": f"{w} <|endoftext|>"} for w in WORDS])
    found = refused(capsys, tmp_path / "run", base, *given)
    assert "--reward: " in found
    assert "x.jsonl:" in found
    assert "has '<|endoftext|>', a special token" in found


def test_rewards_read_whatever_is_written(home: Path) -> None:
    reward = open_reward(str(home / "reward"), "reward", torch.device("cpu"))
    plain, cleaned, nested, long, none, blank = reward(
        [PROMPT] * 6,
        ["a dog", "a <|endoftext|>dog", "a <|end<|endoftext|>oftext|>dog", "a dog " * 400, "", " "],
    )
    assert plain == pytest.approx(cleaned) == pytest.approx(nested)
    assert none == pytest.approx(blank)
    assert np.isfinite(long)
    emoji, other = reward([PROMPT] * 2, ["\U0001f600\U0001f468\u200d\U0001f469", "\x00\ufffd\n"])
    assert np.isfinite([emoji, other]).all()


def test_a_classifier_reads_a_response_or_all(home: Path) -> None:
    source, device = f"{home / 'classifier'}:good", torch.device("cpu")
    alone = open_reward(source, "reward", device)
    together = open_reward(source, "reward", device, reads="all")
    other = (Message("user", "a fox runs"),)
    assert alone([PROMPT], ["a dog"]) == alone([other], ["a dog"])
    assert together([PROMPT], ["a dog"]) == alone([PROMPT], ["the cata dog"])
    assert together([PROMPT], ["a dog"]) != together([other], ["a dog"])
    bad = open_reward(source.replace("good", "bad"), "reward", device)
    np.testing.assert_allclose(bad([PROMPT], ["a dog"]), -alone([PROMPT], ["a dog"]), rtol=1e-6)


def test_rewards_that_are_no_numbers_are_refused(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, _ = make(
        "gpt2", tmp_path / "reward", "GPT2ForSequenceClassification", num_labels=1, n_positions=128
    )
    reference.score.weight.data.fill_(3e38)  # a sum of such numbers is infinite
    reference.save_pretrained(tmp_path / "reward")
    capsys.readouterr()
    given = ("--method", "ppo", "--train", home / "prompts.jsonl", "--reward", tmp_path / "reward")
    found = refused(capsys, tmp_path / "run", home / "base" / "gpt2", *given)
    assert "--reward: what the model says is not finite" in found


def test_rows_that_are_left_out_are_counted_in_a_warning(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = [pair(chosen=""), pair(rejected="runs"), pair(prompt="a " * 200)]
    data = write_rows(tmp_path / "x.jsonl", [*PAIRS, *odd])
    dev, out = home / "pairs.jsonl", tmp_path / "run"
    base = home / "base" / "gpt2"
    given = ("--train", data, "--dev", dev, "--max-length", 96, "--out", out)
    assert prefer(base, *given, "--quiet") == 0  # warnings are still shown
    err = capsys.readouterr().err
    assert (
        "train: left out of 15 rows: 1 without a response to learn; 1 whose last turns are longer "
        "than 96 "
        "tokens; 1 whose responses are equal" in err
    )
    assert "batch_size = 32: a step holds all there is to learn from, 12 items" in err
    assert "left out of 15 rows" in (out / "README.md").read_text()
    facts = json.loads((out / "unmask.json").read_text())
    assert facts["finished"]
