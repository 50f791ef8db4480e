"""A model's first numbers: from the seed and the module's name, and only where none are known."""

import torch

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.zoo.encoders.bert_family.bert import BERT_TINY


def architecture():
    return BERT_TINY.architecture.with_vocab_size(50)


def test_head_initialization_does_not_depend_on_other_modules() -> None:
    alone = Model(architecture(), {"label": SequenceClassification()}).initialize(3)
    beside = Model(
        architecture(), {"language": LanguageModeling(), "label": SequenceClassification()}
    ).initialize(3)
    other = Model(architecture(), {"label": SequenceClassification()}).initialize(4)
    assert torch.equal(
        alone.own_weights()["heads.label.out.weight"],
        beside.own_weights()["heads.label.out.weight"],
    )
    assert not torch.equal(
        alone.own_weights()["heads.label.out.weight"], other.own_weights()["heads.label.out.weight"]
    )


def test_modules_of_equal_shape_start_differently() -> None:
    weights = Model(architecture(), {}).initialize(3).own_weights()
    assert not torch.equal(
        weights["backbone.layers.0.attention.q.weight"],
        weights["backbone.layers.1.attention.q.weight"],
    )


def test_given_weights_are_kept_and_the_rest_is_unchanged() -> None:
    full = Model(architecture(), {"label": SequenceClassification()}).initialize(3).own_weights()
    known = [name for name in full if name.startswith("backbone.")]
    model = Model(architecture(), {"label": SequenceClassification()})
    with torch.no_grad():
        for name in known:
            model.own_weights()[name].fill_(7.0)
    model.initialize(3, known)
    for name, tensor in model.own_weights().items():
        if name in known:
            assert (tensor == 7.0).all(), name
        else:
            assert torch.equal(tensor, full[name]), name


def test_global_generator_is_left_unchanged() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    model = Model(architecture(), {})
    torch.manual_seed(5)
    model.initialize(3)
    assert torch.equal(torch.rand(3), expected)
