"""Perplexity per word: all nats by words and ends of lines, as customary."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import make, tokenizer
from toy_text import corpus

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface import Opened
from unmask.evaluation import word_perplexity
from unmask.evaluation.answers import Prompted
from unmask.evaluation.prompts import Asking
from unmask.evaluation.word_perplexity import TextTask
from unmask.published.catalogue import MODELS

LINES = [f" {line} " for line in corpus(4).splitlines()]
TASK = TextTask(name="toy", test="toy.txt")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Opened]]:
    return {f: make(f, tmp_path_factory.mktemp(f)) for f in ("bert", "gpt2", "t5")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "toy.txt").write_text("\n".join(LINES) + "\n")
    return tmp_path


def prompted(opened: Opened, family: str, length: int | None = None) -> Prompted:
    return Prompted(model=opened.model, tokenizer=tokenizer(family), length=length)


@torch.no_grad()
@pytest.mark.parametrize(("length", "stride"), [(None, None), (16, None), (16, 5), (None, 40)])
def test_a_file_is_one_stream(
    length: int | None, stride: int | None, models: dict, folder: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(word_perplexity, "WINDOWS", 2)  # several parts
    reference, opened = models["gpt2"]
    known, most = tokenizer("gpt2"), length or 40
    text = "".join(f"{line}\n" for line in LINES)
    row, at, nats = [known.special.start, *known.encode(text).ids.tolist()], 1, 0.0
    n = len(row) - 1
    while at < len(row):
        stop = min(len(row), most + 1 if at == 1 else at + (stride or most))
        low = max(0, stop - most - 1)
        logits = reference(input_ids=torch.tensor([row[low : stop - 1]])).logits[0].double()
        logs = logits.log_softmax(-1)
        nats -= sum(float(logs[t - low - 1, row[t]]) for t in range(at, stop))
        at = stop
    got = TASK.score(prompted(opened, "gpt2", length), folder, Asking(stride=stride))
    words = sum(len(line.split()) for line in LINES)
    assert got.items == words + len(LINES)
    assert got.measure == "word_perplexity"
    assert math.log(got.score.value) == pytest.approx(nats / got.items, rel=1e-5)
    assert math.log(got.figures["token_perplexity"].value) == pytest.approx(nats / n, rel=1e-5)
    bits = nats / math.log(2) / len(text.encode())
    assert got.figures["bits_per_byte"].value == pytest.approx(bits, rel=1e-5)
    assert f"{words:,} words and {len(LINES)} ends of lines" in got.notes[0]


@torch.no_grad()
@pytest.mark.parametrize("name", ["lstm-mini", "awd-lstm", "transformer-xl-mini"])
def test_what_remembers_reads_a_file_from_its_beginning_to_its_end(name: str, folder: Path) -> None:
    """Pieces are read as one text is: an LSTM's exactly, others where all of it is remembered."""
    known = tokenizer("gpt2")
    card = MODELS[name].with_vocabulary(known.special)
    small = {"d_model": 16, "n_layers": 2, "d_ff": 16} if name != "transformer-xl-mini" else {}
    card = replace(card, architecture=replace(card.architecture, **small))
    model = card.build().initialize(0).eval()
    text = "".join(f"{line}\n" for line in LINES)
    ids = torch.tensor([known.special.start, *known.encode(text).ids.tolist()])
    batch = Batch(
        inputs=ids[None, :-1],
        visibility=Visibility(causal=True),
        targets=ids[None, 1:],
        asked=torch.arange(len(ids) - 1),
    )
    whole = float(model(batch).terms["next_token"].total)
    asked = Prompted(model=model, tokenizer=known, length=16, memory=len(ids))
    got = TASK.score(asked, folder, Asking())
    assert math.log(got.score.value) == pytest.approx(whole / got.items, rel=1e-5)
    apart = TASK.score(replace(asked, memory=0), folder, Asking())
    assert apart.score.value != pytest.approx(got.score.value, rel=1e-5)
    with pytest.raises(ValueError, match="stride is of windows, and this model remembers"):
        TASK.score(asked, folder, Asking(stride=4))


def test_what_cannot_remember_is_told(models: dict, folder: Path) -> None:
    asked = replace(prompted(models["gpt2"][1], "gpt2"), memory=8)
    with pytest.raises(ValueError, match=r"memory: .*; leave it out, or 0"):
        TASK.score(asked, folder, Asking())


def test_some_lines_are_asked(models: dict, folder: Path) -> None:
    got = TASK.score(prompted(models["gpt2"][1], "gpt2"), folder, Asking(rows=2))
    assert got.items == sum(len(line.split()) for line in LINES[:2]) + 2


def test_lines_end_with_the_end_token_where_there_is_no_newline() -> None:
    known = tokenizer("bert")
    ids = word_perplexity._stream(known, ["the gate", "the sea"])
    ends = (ids == known.special.end).nonzero()[0].tolist()
    n = len(known.encode("the gate"))
    assert ends == [n, len(ids) - 1]
    assert "\n" in tokenizer("gpt2").decode(word_perplexity._stream(tokenizer("gpt2"), ["a", "b"]))


def test_other_models_and_empty_files_are_told(models: dict, folder: Path) -> None:
    for family in ("bert", "t5"):
        with pytest.raises(ValueError, match="toy: is of models that only read forward"):
            TASK.score(prompted(models[family][1], family), folder, Asking())
    (folder / "toy.txt").write_text("\n \n")
    with pytest.raises(ValueError, match=r"toy.txt: has no words"):
        TASK.score(prompted(models["gpt2"][1], "gpt2"), folder, Asking())
    with pytest.raises(ValueError, match="toy: has no shots, got 1"):
        TASK.score(prompted(models["gpt2"][1], "gpt2"), folder, Asking(shots=1))
