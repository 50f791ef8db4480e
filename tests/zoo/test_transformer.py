"""The Transformer of 2017: its rate, and what its layout refuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from reference import marian, saved

from unmask.checkpoints.huggingface.read import load_folder
from unmask.model.positions.sinusoidal import Sinusoidal
from unmask.training.schedules import InverseSquareRoot
from unmask.zoo.catalogue import MODELS

BASE = MODELS["transformer-base"]


@pytest.mark.parametrize("step", [1, 100, 3999, 4000, 4001, 100_000])
@pytest.mark.parametrize(
    ("name", "d_model"), [("transformer-base", 512), ("transformer-big", 1024)]
)
def test_learning_rate_equals_the_paper(name: str, d_model: int, step: int) -> None:
    preset = MODELS[name]
    schedule = InverseSquareRoot(warmup=preset.training_options["schedule"]["warmup"])
    paper = d_model**-0.5 * min(step**-0.5, step * 4000**-1.5)  # section 5.3, equation 3
    assert preset.learning_rate * schedule.factor(step, 100_000) == pytest.approx(paper, rel=1e-12)


def test_marian_layout_puts_sines_before_cosines() -> None:
    def paper(a):
        return replace(a, position=Sinusoidal(layout="pairs"))

    a = BASE.architecture
    a = replace(a, encoder=paper(a.encoder), decoder=paper(a.decoder))
    with pytest.raises(ValueError, match="sines before cosines"):
        BASE.config_mapping.from_architecture(a)


@pytest.mark.parametrize(
    ("change", "output"),
    [
        ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings = False"),
        ({"decoder_vocab_size": 7}, "decoder_vocab_size = 7"),
        ({"normalize_before": True}, "normalize_before = True"),
    ],
)
def test_other_marian_networks_are_refused(change: dict, output: str, tmp_path: Path) -> None:
    saved(marian(), tmp_path)
    theirs = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(theirs | change))
    with pytest.raises(ValueError, match=output):
        load_folder(tmp_path)
