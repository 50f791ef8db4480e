"""Transformer-XL against numbers of the last transformers that had it."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.model.backbones.transformer import Architecture
from unmask.objectives.features import Recurrence, RecurrenceMemory
from unmask.zoo.catalogue import MODELS
from unmask.zoo.decoders.transformer_xl import TRANSFORMER_XL

REFERENCE = json.loads((Path(__file__).parent / "transformer_xl.json").read_text())
"""Made by scripts/transformer_xl_reference.py."""
IDS = torch.tensor(REFERENCE["ids"])


def opened(case: str) -> Model:
    """The network of a case, in float64, with the numbers that the script gives it."""
    a = TRANSFORMER_XL.config_mapping.to_architecture(REFERENCE["cases"][case]["config"])
    model = Model(a, {"language": LanguageModeling(term="next_token", bias=True)}).double().eval()
    theirs = TRANSFORMER_XL.weight_names.to_external(model.own_weights())
    names = REFERENCE["cases"][case]["names"]
    assert set(theirs) == set(names)
    for k, name in enumerate(names):
        numbers = 0.4 * torch.sin(torch.arange(theirs[name].numel(), dtype=torch.float64) + k)
        theirs[name] = numbers.view_as(theirs[name]) + name.endswith("layer_norm.weight")
    read = TRANSFORMER_XL.weight_names.from_external(
        theirs, {name: x.shape for name, x in model.own_weights().items()}
    )
    assert (read.missing, read.unexpected) == ((), ())
    model.load_state_dict(dict(read.tensors))
    return model


@pytest.mark.parametrize("case", REFERENCE["cases"])
@torch.no_grad()
def test_hidden_states_and_scores_equal_reference(case: str) -> None:
    model, memory = opened(case), RecurrenceMemory(REFERENCE["cases"][case]["config"]["mem_len"])
    parts = [
        model.hidden_states(
            Batch(
                inputs=ids,
                visibility=Visibility(causal=True),
                features=(Recurrence(memory=memory),),
            )
        )
        for ids in IDS.split(6, 1)
    ]
    hidden = torch.cat(parts, 1)
    scores = model.language_head.logits(hidden).log_softmax(-1).float()
    expected = REFERENCE["cases"][case]
    assert torch.allclose(hidden[:, :, :4], torch.tensor(expected["hidden"]).double(), atol=1e-4)
    assert torch.allclose(scores[:, ::3], torch.tensor(expected["scores"]), atol=1e-4)


@pytest.mark.parametrize("case", REFERENCE["cases"])
def test_config_round_trips(case: str) -> None:
    theirs = REFERENCE["cases"][case]["config"]
    fields = TRANSFORMER_XL.config_mapping
    a = fields.to_architecture(theirs)
    assert fields.to_architecture(fields.from_architecture(a)) == a
    same = {
        k: v
        for k, v in fields.from_architecture(a).items()
        if k in theirs and k not in ("mem_len",)
    }
    assert same == {k: v for k, v in theirs.items() if k in same}


def test_published_config_has_its_memory_length() -> None:
    a = TRANSFORMER_XL.config_mapping.to_architecture(
        TRANSFORMER_XL.config_mapping.from_architecture(TRANSFORMER_XL.architecture)
    )
    assert a == TRANSFORMER_XL.architecture
    assert TRANSFORMER_XL.config_mapping.from_architecture(a)["mem_len"] == 1600


@pytest.mark.parametrize(
    "name", ["transformer-xl-mini", "transformer-xl-words-mini", "transformer-xl-base"]
)
def test_saved_model_round_trips(name: str, tmp_path: Path) -> None:
    """In the reference's format, whichever of the family's cards it is."""
    preset = MODELS[name]
    a = preset.architecture
    assert isinstance(a, Architecture)
    if a.adaptive_input:
        a = replace(a, vocab_size=60, adaptive_input=replace(a.adaptive_input, cutoffs=(20, 40)))
    sizes = {"d_model": 32, "n_layers": 1, "n_heads": 4, "d_ff": 32}
    small = replace(preset, architecture=replace(a, vocab_size=60, **sizes))
    model = small.build().initialize(0).eval()
    write_folder(tmp_path, model, small, None)
    again = load_folder(tmp_path)
    assert (again.missing, again.unexpected) == ((), ())
    assert again.preset.architecture == small.architecture
    batch = Batch(inputs=IDS, visibility=Visibility(causal=True), targets=IDS)
    assert torch.equal(again.model(batch).loss, model(batch).loss)
    alone = load_folder(
        tmp_path, {"label": SequenceClassification(n_labels=3)}
    )  # as fine-tuning opens it
    theirs = model.backbone.state_dict()
    assert all(torch.equal(x, theirs[n]) for n, x in alone.model.backbone.state_dict().items())


@pytest.mark.parametrize("case", ["adaptive", "one table, clusters"])
@torch.no_grad()
def test_adaptive_softmax_likelihood_is_cluster_times_within(case: str) -> None:
    model = opened(case)
    head = model.language_head
    hidden = torch.randn(40, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logs = head.logits(hidden)
    assert torch.allclose(logs.exp().sum(-1), torch.ones(40), atol=1e-5)
    total, right = head.loss(hidden, torch.arange(40))
    assert float(total) == pytest.approx(-float(logs.diagonal().sum()), rel=1e-5)
    assert int(right) < 40
    ends, likeliest = (0, 12, 25, 40), logs.argmax(-1)
    found = 0
    for row, likely in enumerate(likeliest.tolist()):
        # through the clusters: the best of the first level, then the best of its cluster
        mass = [logs[row, a:b].logsumexp(-1) for a, b in pairwise(ends[1:])]
        level = torch.cat((logs[row, : ends[1]], torch.stack(mass)))
        best = int(level.argmax())
        if best >= ends[1]:
            a, b = ends[best - ends[1] + 1 : best - ends[1] + 3]
            best = a + int(logs[row, a:b].argmax())
        (_, hit) = head.loss(hidden[row : row + 1], torch.tensor([best]))
        found += int(hit)
        assert best == likely or logs[row, best] < logs[row, likely]
    assert found == 40
    some = torch.tensor([3, 14, 39])
    assert torch.equal(head.candidate_logits(hidden, some), logs[:, some])
