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
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.evaluation import word_perplexity
from unmask.evaluation.answer_methods import PromptedModel
from unmask.evaluation.prompting import PromptingConfig
from unmask.evaluation.word_perplexity import WordPerplexityTask
from unmask.zoo.catalogue import MODELS

LINES = [f" {line} " for line in corpus(4).splitlines()]
TASK = WordPerplexityTask(name="toy", test="toy.txt")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, LoadedModel]]:
    return {f: make(f, tmp_path_factory.mktemp(f)) for f in ("bert", "gpt2", "t5")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "toy.txt").write_text("\n".join(LINES) + "\n")
    return tmp_path


def prompted(loaded: LoadedModel, family: str, length: int | None = None) -> PromptedModel:
    return PromptedModel(model=loaded.model, tokenizer=tokenizer(family), sequence_length=length)


@pytest.mark.sample(1)
@torch.no_grad()
@pytest.mark.parametrize(("length", "stride"), [(None, None), (16, None), (16, 5), (None, 40)])
def test_file_is_scored_as_one_stream(
    length: int | None, stride: int | None, models: dict, folder: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(word_perplexity, "WINDOWS_PER_REPORT", 2)  # several parts
    reference, loaded = models["gpt2"]
    known, most = tokenizer("gpt2"), length or 40
    text = "".join(f"{line}\n" for line in LINES)
    row, at, nats = [known.special_ids.start, *known.encode(text).ids.tolist()], 1, 0.0
    n = len(row) - 1
    while at < len(row):
        stop = min(len(row), most + 1 if at == 1 else at + (stride or most))
        low = max(0, stop - most - 1)
        logits = reference(input_ids=torch.tensor([row[low : stop - 1]])).logits[0].double()
        logs = logits.log_softmax(-1)
        nats -= sum(float(logs[t - low - 1, row[t]]) for t in range(at, stop))
        at = stop
    got = TASK.score(prompted(loaded, "gpt2", length), folder, PromptingConfig(stride=stride))
    words = sum(len(line.split()) for line in LINES)
    assert got.n_examples == words + len(LINES)
    assert got.primary_metric == "word_perplexity"
    assert math.log(got.score.value) == pytest.approx(nats / got.n_examples, rel=1e-5)
    assert math.log(got.metrics["token_perplexity"].value) == pytest.approx(nats / n, rel=1e-5)
    bits = nats / math.log(2) / len(text.encode())
    assert got.metrics["bits_per_byte"].value == pytest.approx(bits, rel=1e-5)
    assert f"{words:,} words and {len(LINES)} ends of lines" in got.notes[0]


@pytest.mark.sample(1)
@torch.no_grad()
@pytest.mark.parametrize("name", ["lstm-mini", "awd-lstm", "transformer-xl-mini"])
def test_model_with_memory_reads_the_file_continuously(name: str, folder: Path) -> None:
    """Pieces are read as one text is: an LSTM's exactly, others where all of it is remembered."""
    known = tokenizer("gpt2")
    preset = MODELS[name].with_vocabulary(known.special_ids)
    small = {"d_model": 16, "n_layers": 2, "d_ff": 16} if name != "transformer-xl-mini" else {}
    preset = replace(preset, architecture=replace(preset.architecture, **small))
    model = preset.build().initialize(0).eval()
    text = "".join(f"{line}\n" for line in LINES)
    ids = torch.tensor([known.special_ids.start, *known.encode(text).ids.tolist()])
    batch = Batch(
        inputs=ids[None, :-1],
        visibility=Visibility(causal=True),
        targets=ids[None, 1:],
        target_positions=torch.arange(len(ids) - 1),
    )
    whole = float(model(batch).terms["next_token"].total)
    prompted_model = PromptedModel(
        model=model, tokenizer=known, sequence_length=16, memory_length=len(ids)
    )
    got = TASK.score(prompted_model, folder, PromptingConfig())
    assert math.log(got.score.value) == pytest.approx(whole / got.n_examples, rel=1e-5)
    apart = TASK.score(replace(prompted_model, memory_length=0), folder, PromptingConfig())
    assert apart.score.value != pytest.approx(got.score.value, rel=1e-5)
    with pytest.raises(ValueError, match="stride needs windows, but this model has a memory of"):
        TASK.score(prompted_model, folder, PromptingConfig(stride=4))


def test_memory_length_is_refused_for_models_without_memory(models: dict, folder: Path) -> None:
    prompted_model = replace(prompted(models["gpt2"][1], "gpt2"), memory_length=8)
    with pytest.raises(ValueError, match=r"memory_length: .*; leave it out, or 0"):
        TASK.score(prompted_model, folder, PromptingConfig())


def test_number_of_lines_can_be_limited(models: dict, folder: Path) -> None:
    got = TASK.score(prompted(models["gpt2"][1], "gpt2"), folder, PromptingConfig(rows=2))
    assert got.n_examples == sum(len(line.split()) for line in LINES[:2]) + 2


def test_lines_end_with_end_token_if_vocabulary_lacks_newline() -> None:
    known = tokenizer("bert")
    ids = word_perplexity._encode_stream(known, ["the gate", "the sea"])
    ends = (ids == known.special_ids.end).nonzero()[0].tolist()
    n = len(known.encode("the gate"))
    assert ends == [n, len(ids) - 1]
    assert "\n" in tokenizer("gpt2").decode(
        word_perplexity._encode_stream(tokenizer("gpt2"), ["a", "b"])
    )


def test_other_models_and_empty_files_are_refused(models: dict, folder: Path) -> None:
    for family in ("bert", "t5"):
        with pytest.raises(ValueError, match="toy: needs a causal model"):
            TASK.score(prompted(models[family][1], family), folder, PromptingConfig())
    (folder / "toy.txt").write_text("\n \n")
    with pytest.raises(ValueError, match=r"toy.txt: has no words"):
        TASK.score(prompted(models["gpt2"][1], "gpt2"), folder, PromptingConfig())
    with pytest.raises(ValueError, match="toy: has no shots, got 1"):
        TASK.score(prompted(models["gpt2"][1], "gpt2"), folder, PromptingConfig(shots=1))
