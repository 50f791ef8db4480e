"""Every network of the catalogue is compressed, and opened again as what was decoded."""

from pathlib import Path

import pytest
import torch

import unmask
from unmask.checkpoints.huggingface.write import write_folder
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.zoo.catalogue import MODELS

CARDS = {
    card.family: card.name
    for card in reversed(MODELS.values())
    if any(word in card.name for word in ("mini", "tiny"))
    and not isinstance(card.objective, WORD_VECTOR_METHODS)
}
QUICK = ("lstm", "elmo", "canine", "gpt2", "bart")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=() if f in QUICK else pytest.mark.slow) for f in CARDS]
)
def test_compressed_network_reloads_close_to_original(family: str, tmp_path: Path) -> None:
    preset = MODELS[CARDS[family]]
    write_folder(tmp_path / "model", preset.build().initialize(0), preset, None)
    before = unmask.load(tmp_path / "model").model.own_weights()
    for method in ("int8", "quantize:bits=3"):
        result = unmask.compress(tmp_path / "model", method=[method], out=tmp_path / method)
        assert result.bytes_after < result.bytes_before / (3.3 if method == "int8" else 3)
        loaded = unmask.load(tmp_path / method)
        assert loaded.loaded_model.missing == ()
        after = loaded.model.own_weights()
        assert before.keys() == after.keys()
        # Half a step of the largest weight, with scales in float32 or float16. Queries, keys and
        # values of some families are one tensor in the file.
        share = (1 / 253 if method == "int8" else 1 / 6) * 1.02
        for name, w in after.items():
            block = name.rsplit(".", 2)[0]
            together = [x for other, x in before.items() if other.rsplit(".", 2)[0] == block]
            largest = max(float(x.abs().max()) for x in together)
            assert float((w - before[name]).abs().max()) <= largest * share, name
    if preset.family != "cnn":  # whose layers have filters and no matrices
        unmask.compress(tmp_path / "model", method=["prune:fraction=0.6"], out=tmp_path / "prune")
        pruned = unmask.load(tmp_path / "prune").model.own_weights()
        kept = {name: w != 0 for name, w in pruned.items()}
        assert all(torch.equal(w[kept[n]], before[n][kept[n]]) for n, w in pruned.items())
