"""Several adapters on one model: each text is predicted as by its adapter alone."""

import sys
from pathlib import Path

import pytest

import unmask

sys.path.insert(0, str(Path(__file__).parents[1] / "finetuning"))
import toy_models as toy


def parts(folder: Path, words: dict[str, str], family: str = "bert") -> dict[str, Path]:
    base = toy.pretrained(family, folder / "base")
    train = toy.write(folder / "train.tsv", toy.texts(32, 1))
    for name, word in words.items():
        unmask.finetune(
            str(base), task="classify", train=train, dev=train, tune=word, out=folder / name,
            epochs=2.0, batch_size=16, learning_rate=1e-2, seed=len(name), terminal=None,
        )  # fmt: skip
    return {name: folder / name for name in words}


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_each_text_is_predicted_as_by_its_adapter_alone(family: str, tmp_path: Path) -> None:
    words = {
        "low": "lora",
        "after": "pfeiffer",
        "scaled": "ia3",
        "asked": "prompt:n_virtual_tokens=3",
    }
    folders = parts(tmp_path, words, family)
    several = unmask.MultiAdapter(folders)
    assert several.adapter_names == tuple(words)
    texts = [text for text, _ in toy.texts(24, 5, 1, 30)]
    names = [list(words)[i % 4] for i in range(24)]
    expected = {name: unmask.load(folder) for name, folder in folders.items()}
    for batch_tokens in (60, 10_000):
        answers = several.predict(texts, names, batch_tokens=batch_tokens)
        for text, name, answer in zip(texts, names, answers, strict=True):
            alone = expected[name].predict([text])[0]
            assert answer["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-4)


@pytest.mark.thorough
def test_adapter_that_changes_base_weights_is_refused(tmp_path: Path) -> None:
    folders = parts(tmp_path, {"low": "lora", "biases": "bitfit"})
    with pytest.raises(ValueError, match="changes base weights"):
        unmask.MultiAdapter(folders)


@pytest.mark.thorough
def test_invalid_adapters_are_named(tmp_path: Path) -> None:
    folders = parts(tmp_path, {"low": "lora"})
    several = unmask.MultiAdapter(folders)
    with pytest.raises(ValueError, match=r"adapter must be one of low, got 'high'"):
        several.predict(["a"], ["high"])
    with pytest.raises(ValueError, match="1 texts, but 2 names"):
        several.predict(["a"], ["low", "low"])
    with pytest.raises(ValueError, match="no adapters to load"):
        unmask.MultiAdapter({})
    with pytest.raises(ValueError, match="base: not an adapter"):
        unmask.MultiAdapter({"x": tmp_path / "base"})
