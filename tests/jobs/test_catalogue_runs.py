"""Every small card of the catalogue, end to end, by the commands that people type."""

import json
from pathlib import Path

import pytest
from toy_text import corpus

from unmask.cli.main import run
from unmask.generation.fill_mask import unsupported_reason
from unmask.inference.open_model import load
from unmask.word_vectors.train.trainer import WordVectorMethod
from unmask.zoo.catalogue import MODELS, TEXT_MODELS

MINI = [name for name in TEXT_MODELS if name.endswith(("-mini", "-tiny"))]
QUICK = ("transformer-tiny",)
LANGUAGES = {"mbart-mini": "en_XX="}
"""Languages for presets that read the language of each text."""
NARROW = {"lsa-mini": "8", "svd-ppmi-mini": "8"}
"""Factors of so few words are fewer than the card has."""

slow = pytest.mark.slow
cards = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else slow) for name in MINI]
)


def end(*arguments: object) -> int:
    return run([str(one) for one in arguments])


@cards
@pytest.mark.filterwarnings("ignore")  # of two steps on a small text much may be said
def test_small_preset_passes_all_commands(name: str, tmp_path: Path) -> None:
    text, held_out = tmp_path / "small.txt", tmp_path / "held-out.txt"
    text.write_text(corpus(60))
    held_out.write_text(corpus(4, seed=1))
    rows = [f"{w} saw the gate\t{x}" for w, x in (("the old king", "A"), ("my friend", "B")) * 8]
    labelled = tmp_path / "labelled.tsv"
    labelled.write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    made, tuned = tmp_path / "run", tmp_path / "tuned"
    words = isinstance(MODELS[name].objective, WordVectorMethod)
    length = (
        []
        if words
        else ["--steps", 2, "--set", f"batch_tokens={max(512, MODELS[name].sequence_length)}"]
    )
    if name in NARROW:
        length += ["--set", f"architecture.d_model={NARROW[name]}"]
    data = f"{LANGUAGES.get(name, '')}{text}"
    assert end("pretrain", name, "--data", data, "--out", made, "--quiet", *length) == 0
    assert end("report", made) == 0
    assert end("show", made) == 0
    if words:
        assert end("neighbors", made, "the") == 0
    elif name in LANGUAGES:  # what it says has to be told in which language, each time
        assert end("evaluate", made, "--data", f"{LANGUAGES[name]}{held_out}") == 0
    else:
        _asked(made, str(held_out), tmp_path)
    task = ("--task", "classify", "--train", labelled, "--epochs", 1)
    assert end("finetune", made, *task, "--out", tuned, "--quiet") == 0
    assert end("predict", tuned, "my friend") == 0
    assert end("evaluate", tuned, "--data", labelled) == 0
    assert end("report", tuned) == 0


def _asked(made: Path, held_out: str, folder: Path) -> None:
    """Use a pretrained model for everything that it can do."""
    pipeline = load(made)
    model, tokenizer = pipeline.model, pipeline.tokenizer
    backward = tokenizer.special_tokens.backward
    fills = unsupported_reason(model, tokenizer) is None and not backward
    generates = model.has_language_head and model.can_generate and not backward
    if model.decoder_architecture.cross_attention and not fills:
        assert "neither a mask nor sentinels" in str(unsupported_reason(model, tokenizer))
    assert end("fill", made, "the old [MASK] saw him") == (0 if fills else 2)
    assert end("generate", made, "--prompt", "the", "--max-new-tokens", 3) == (
        0 if generates else 2
    )
    assert end("evaluate", made, "--data", held_out) == 0
    assert end("embed", made, "the old king") == 0
    assert end("convert", made, folder / "theirs") == 0
    output = made / "samples.json"
    if output.is_file() and json.loads(output.read_text()):
        assert fills or generates


@pytest.mark.thorough
def test_subword_scores_are_saved_and_verified(tmp_path: Path) -> None:
    text = tmp_path / "small.txt"
    text.write_text(corpus(30))
    made = tmp_path / "run"
    rest = ["--data", text, "--out", made, "--quiet", "--steps", 1, "--set", "batch_tokens=512"]
    rest += [
        x for k in ("d_model=32", "d_ff=64", "n_layers=1") for x in ("--set", f"architecture.{k}")
    ]
    assert end("pretrain", "canine-s-mini", *rest) == 0
    loaded = load(made)
    first = loaded.evaluate(text)
    assert first == load(loaded.save(tmp_path / "again")).evaluate(text)
    file = made / "subwords.safetensors"
    file.write_bytes((made / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"subwords\.safetensors: truncated or damaged"):
        load(made)
    facts = json.loads((made / "unmask.json").read_text())
    del facts["files"]
    (made / "unmask.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=r"subwords\.safetensors: must have out\.weight \[n 32\]"):
        load(made)
