"""Layers are found from the bottom to the top, and each learns at a rate of its own."""

from dataclasses import replace

import pytest

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.training.config import Recipe
from unmask.training.optimizers.layerwise import (
    default_layerwise_lr_decay,
    layerwise_lr_decay,
    parameters_by_layer,
    parameters_by_layer_with_tied_output,
)
from unmask.zoo.catalogue import MODELS

TABLE = "backbone.tokens.weight"


def lstm(**heads: LanguageModeling | SequenceClassification) -> Model:
    preset = MODELS["ulmfit-mini"]
    a = replace(preset.architecture, d_model=8, d_ff=16, vocab_size=32)
    return replace(preset, architecture=a).build(heads)


def test_tied_embedding_is_grouped_with_the_head() -> None:
    spoken = parameters_by_layer_with_tied_output(lstm(language=LanguageModeling(bias=True)))
    assert [group[0].rpartition(".layers.")[2][:1] for group in spoken[:-1]] == ["0", "1", "2"]
    assert set(spoken[-1]) == {"heads.language.bias", TABLE}
    own = parameters_by_layer_with_tied_output(
        lstm(language=LanguageModeling(tie_embeddings=False))
    )
    assert own[0] == [TABLE]
    labelled = lstm(label=SequenceClassification(pooling="concat"))
    assert parameters_by_layer_with_tied_output(labelled) == parameters_by_layer(labelled)
    assert parameters_by_layer(labelled)[0] == [TABLE]
    assert len(parameters_by_layer(labelled)) == 5


def test_four_groups_have_the_rates_of_the_paper() -> None:
    assert default_layerwise_lr_decay(4) == pytest.approx(1 / 2.6)
    assert default_layerwise_lr_decay(12) ** 12 == pytest.approx(default_layerwise_lr_decay(4) ** 4)
    groups = parameters_by_layer_with_tied_output(lstm(language=LanguageModeling(bias=True)))
    factors = layerwise_lr_decay(groups, default_layerwise_lr_decay(len(groups)))
    assert factors[TABLE] == factors["heads.language.bias"] == 1
    assert factors[groups[0][0]] == pytest.approx(2.6**-3)


@pytest.mark.parametrize("decay", [0.0, 1.5, -1.0])
def test_invalid_decay_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="layerwise_lr_decay must be above 0 and at most 1"):
        Recipe(model="ulmfit-mini", layerwise_lr_decay=decay)
