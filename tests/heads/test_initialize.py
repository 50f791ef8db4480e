"""A model's first numbers: from the seed and the module's name, and only where none are known."""

import torch

from unmask.heads.labels import Labels
from unmask.heads.language import Language
from unmask.heads.model import Model
from unmask.published.bert import BERT_TINY
from unmask.published.card import resized


def architecture():
    return resized(BERT_TINY.architecture, 50)


def test_a_head_begins_alike_whatever_stands_beside_it() -> None:
    alone = Model(architecture(), {"label": Labels()}).initialize(3)
    beside = Model(architecture(), {"language": Language(), "label": Labels()}).initialize(3)
    other = Model(architecture(), {"label": Labels()}).initialize(4)
    assert torch.equal(
        alone.weights()["heads.label.out.weight"], beside.weights()["heads.label.out.weight"]
    )
    assert not torch.equal(
        alone.weights()["heads.label.out.weight"], other.weights()["heads.label.out.weight"]
    )


def test_modules_of_one_shape_begin_differently() -> None:
    weights = Model(architecture(), {}).initialize(3).weights()
    assert not torch.equal(
        weights["backbone.layers.0.attention.q.weight"],
        weights["backbone.layers.1.attention.q.weight"],
    )


def test_what_is_known_is_left_alone_and_the_rest_is_as_without_it() -> None:
    full = Model(architecture(), {"label": Labels()}).initialize(3).weights()
    known = [name for name in full if name.startswith("backbone.")]
    model = Model(architecture(), {"label": Labels()})
    with torch.no_grad():
        for name in known:
            model.weights()[name].fill_(7.0)
    model.initialize(3, known)
    for name, tensor in model.weights().items():
        if name in known:
            assert (tensor == 7.0).all(), name
        else:
            assert torch.equal(tensor, full[name]), name


def test_torch_goes_on_as_if_nothing_had_been_drawn() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    model = Model(architecture(), {})
    torch.manual_seed(5)
    model.initialize(3)
    assert torch.equal(torch.rand(3), expected)
