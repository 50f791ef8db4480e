"""Fine-tuning of ELMo, a scalar mix of its layers below a tagger, and saved runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy

import unmask
from unmask.adapters.attach import attach
from unmask.adapters.lora import LoRA
from unmask.adapters.prefix import PrefixTuning
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.jobs.finetune import finetune
from unmask.model.layers.embeddings.character_cnn import CharacterCNN
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.vocabulary import WordBytesWithWords
from unmask.training.optimizers.layerwise import parameters_by_layer
from unmask.zoo.recurrent.elmo import ELMO_MINI

SMALL = replace(
    ELMO_MINI.architecture,
    d_model=32,
    embedding_size=16,
    d_ff=48,
    character_cnn=CharacterCNN(
        character_embedding_size=8, filters=((1, 8), (3, 16)), n_highway_layers=1
    ),
)
TOKENIZER = train_tokenizer(
    replace(ELMO_MINI.tokenizer, vocabulary=WordBytesWithWords(12)), ["the red cat runs"]
)
CARD = replace(ELMO_MINI, architecture=SMALL).with_vocabulary(TOKENIZER.special_ids)
SHORT = {
    "epochs": 6.0, "batch_size": 16, "terminal": None, "precision": "float32", "device": "cpu",
}  # fmt: skip
NOUNS, VERBS = ("cat", "dog", "tree"), ("runs", "sees", "is")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_folder(tmp_path / "base", CARD.build().initialize(7), CARD, TOKENIZER)
    return tmp_path / "base"


def tagged(path: Path, n: int, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        words = [str(rng.choice(NOUNS + VERBS)) for _ in range(rng.integers(2, 6))]
        rows.append("\n".join(f"{w} {'N' if w in NOUNS else 'V'}" for w in words))
    path.write_text("\n\n".join(rows) + "\n")
    return path


def test_folder_keeps_words_and_their_scores(base: Path) -> None:
    loaded = load_folder(base)
    assert (loaded.missing, loaded.unexpected) == ((), ())
    assert loaded.model.head_specs == CARD.heads
    assert loaded.tokenizer.special_ids.output_vocabulary.vocabulary[3:] == (
        "cat",
        "red",
        "runs",
        "the",
    )
    model = unmask.load(base)
    (base.parent / "text.txt").write_text("the red cat runs")
    result = model.evaluate(base.parent / "text.txt")
    assert result.n_targets == {"both_sides": 8}
    assert result.perplexity["both_sides"] == pytest.approx(7, rel=0.1)  # nothing is learned
    for ask, why in (
        (model.logits, "its heads are for pretraining only"),
        (model.fill, "no language-model head"),
        (model.generate, "does not generate"),
    ):
        with pytest.raises(ValueError, match=why):
            ask("the [MASK] cat")


@pytest.mark.thorough
def test_tagger_uses_the_scalar_mix_of_frozen_layers(base: Path, tmp_path: Path) -> None:
    files = {
        "train": tagged(tmp_path / "a.conll", 64, 1),
        "dev": tagged(tmp_path / "b.conll", 16, 2),
    }
    tuned = finetune(
        base,
        task="tag",
        tune="scalar_mix",
        task_options={"head": "recurrent", "hidden_size": 16, "use_crf": False},
        out=tmp_path / "out",
        learning_rate=3e-2,
        **files,
        **(SHORT | {"epochs": 12.0}),
    )
    assert tuned.best_run.dev["token_accuracy"] > 0.9
    (note,) = (
        note for note in tuned.notes if note.startswith("weights of the first layer's input")
    )
    assert note.count("0.") >= 3
    predictions = tuned.predict([["the", "U.S.", "cat"]])
    assert len(predictions[0]["labels"]) == 3  # one of them is two words to the network
    again = unmask.load(tmp_path / "out")
    assert again.predict([["the", "U.S.", "cat"]]) == predictions
    kept, before = again.model.own_weights(), load_folder(base).model.own_weights()
    assert all(torch.equal(x, kept[n]) for n, x in before.items() if n.startswith("backbone."))


@pytest.mark.sample(1)
@pytest.mark.parametrize("tune", ["full", "gradual"])
def test_classifier_trains_all_of_elmo(tune: str, base: Path, tmp_path: Path) -> None:
    files = {
        "train": toy.write(tmp_path / "train.tsv", toy.texts(64, 1, 1, 3)),
        "dev": toy.write(tmp_path / "dev.tsv", toy.texts(32, 2, 1, 3)),
    }
    tuned = finetune(
        base, task="classify", tune=tune, out=tmp_path / "out", learning_rate=3e-3,
        **files, **(SHORT | {"epochs": 2.0}),
    )  # fmt: skip
    texts = ["red cat", "a dog runs"]
    assert unmask.load(tmp_path / "out").predict(texts) == tuned.predict(texts)
    kept, before = tuned.loaded_model.model.own_weights(), load_folder(base).model.own_weights()
    moved = {n.split(".")[1] for n in before if n in kept and not torch.equal(before[n], kept[n])}
    assert moved == {"tokens", "layers", "backward_layers"}


def test_layers_of_both_directions_are_grouped_together() -> None:
    groups = [
        {".".join(n.split(".")[1:3]) for n in group} for group in parameters_by_layer(CARD.build())
    ]
    assert {name.split(".")[0] for name in groups[0]} == {"tokens"}
    assert groups[1:3] == [{f"layers.{i}", f"backward_layers.{i}"} for i in range(2)]


@pytest.mark.parametrize("spec", [PrefixTuning(n_virtual_tokens=2), LoRA()])
def test_attention_adapters_are_refused(spec) -> None:
    with pytest.raises(ValueError, match=r"without attention|matches no linear map"):
        attach(CARD.build().initialize(0), spec, "one")
