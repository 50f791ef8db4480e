"""Transformer-XL against numbers of the last transformers that had it."""

import json
from pathlib import Path

import pytest
import torch

from unmask.batch import Batch, Memory, Visibility
from unmask.heads.adaptive import AdaptiveLanguage
from unmask.heads.language import Language
from unmask.heads.model import Model
from unmask.published.transformer_xl import TRANSFORMER_XL

REFERENCE = json.loads((Path(__file__).parent / "transformer_xl.json").read_text())
"""Made by scripts/transformer_xl_reference.py."""
IDS = torch.tensor(REFERENCE["ids"])


def opened(case: str) -> Model:
    """The network of a case, in float64, with the numbers that the script gives it."""
    a = TRANSFORMER_XL.fields.read(REFERENCE["cases"][case]["config"])
    kind = AdaptiveLanguage if a.adaptive else Language
    model = Model(a, {"language": kind(term="next_token", bias=not a.adaptive)}).double().eval()
    theirs = TRANSFORMER_XL.names.to_theirs(model.weights())
    names = REFERENCE["cases"][case]["names"]
    assert set(theirs) == set(names)
    for k, name in enumerate(names):
        numbers = 0.4 * torch.sin(torch.arange(theirs[name].numel(), dtype=torch.float64) + k)
        theirs[name] = numbers.view_as(theirs[name]) + name.endswith("layer_norm.weight")
    read = TRANSFORMER_XL.names.from_theirs(
        theirs, {name: x.shape for name, x in model.weights().items()}
    )
    assert (read.missing, read.extra) == ((), ())
    model.load_state_dict(dict(read.tensors))
    return model


@pytest.mark.parametrize("case", REFERENCE["cases"])
@torch.no_grad()
def test_hidden_states_and_scores_are_those_of_the_reference(case: str) -> None:
    model, memory = opened(case), Memory(REFERENCE["cases"][case]["config"]["mem_len"])
    parts = [
        model.hidden(Batch(inputs=ids, visibility=Visibility(causal=True), memory=memory))
        for ids in IDS.split(6, 1)
    ]
    hidden = torch.cat(parts, 1)
    scores = model.language.scores(hidden).log_softmax(-1).float()
    wanted = REFERENCE["cases"][case]
    assert torch.allclose(hidden[:, :, :4], torch.tensor(wanted["hidden"]).double(), atol=1e-4)
    assert torch.allclose(scores[:, ::3], torch.tensor(wanted["scores"]), atol=1e-4)


@pytest.mark.parametrize("case", REFERENCE["cases"])
def test_a_configuration_comes_back(case: str) -> None:
    theirs = REFERENCE["cases"][case]["config"]
    fields = TRANSFORMER_XL.fields
    a = fields.read(theirs)
    assert fields.read(fields.write(a)) == a
    same = {k: v for k, v in fields.write(a).items() if k in theirs and k not in ("mem_len",)}
    assert same == {k: v for k, v in theirs.items() if k in same}


def test_the_published_configuration_has_its_window() -> None:
    a = TRANSFORMER_XL.fields.read(TRANSFORMER_XL.fields.write(TRANSFORMER_XL.architecture))
    assert a == TRANSFORMER_XL.architecture
    assert TRANSFORMER_XL.fields.write(a)["mem_len"] == 1600
