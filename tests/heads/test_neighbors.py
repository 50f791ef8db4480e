"""The head that finds the other part of a text: its formula, what it counts, what it depends on."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.batch import Batch, Visibility
from unmask.heads.model import Model
from unmask.heads.prediction import Prediction
from unmask.heads.pretraining.contrastive import ContrastiveHead, ContrastiveLoss
from unmask.zoo.catalogue import get_preset

PARTS = torch.tensor(
    [
        [0, 0, 0, 1, 1, 1, 1, -1],  # a text in two parts
        [0, 0, 0, 0, 0, 0, 0, 0],  # one that is whole: not asked
        [0, 0, 1, 3, 3, 4, 4, 4],  # two texts in a row
        [0, 0, 0, 2, 2, 3, -1, -1],  # a whole one, and one in two parts
    ]
)


def head_of(spec: ContrastiveLoss) -> ContrastiveHead:
    architecture = get_preset("bert-tiny").architecture.with_vocab_size(50)
    return spec.build(architecture, torch.nn.Embedding(50, 128))


def predict_parts(hidden: torch.Tensor, temperature: float = 0.05) -> Prediction:
    head = head_of(ContrastiveLoss(temperature=temperature))
    batch = Batch(inputs=torch.zeros(PARTS.shape, dtype=torch.int64), part_ids=PARTS)
    assert head.count_targets(batch) == {"neighbor": 4}
    return head(hidden, batch, return_logits=True)


def test_contrastive_loss_equals_formula() -> None:
    hidden = torch.randn((4, 8, 5), generator=torch.Generator().manual_seed(0))
    output = predict_parts(hidden, 0.2)
    x = hidden.double().numpy()
    first = [x[0, :3].mean(0), x[2, :2].mean(0), x[2, 3:5].mean(0), x[3, 3:5].mean(0)]
    second = [x[0, 3:7].mean(0), x[2, 2], x[2, 5:8].mean(0), x[3, 5]]
    unit = np.linalg.norm
    s = np.array([[a @ b / unit(a) / unit(b) / 0.2 for b in second] for a in first])
    lost = sum(
        2 * -s[i, i]
        + math.log(sum(math.exp(v) for v in s[i]))
        + math.log(sum(math.exp(v) for v in s[:, i]))
        for i in range(4)
    )
    term = output.terms["neighbor"]
    np.testing.assert_allclose(output.logits["neighbor"].numpy(), s, rtol=1e-5, atol=1e-5)
    assert float(term.total) == pytest.approx(lost / 2, rel=1e-5)
    assert term.count == 4
    assert term.n_correct is not None
    assert int(term.n_correct) == int((s.argmax(1) == np.arange(4)).sum())


def test_aligned_pairs_are_found_with_zero_loss() -> None:
    hidden = torch.zeros((4, 8, 8))
    for row, parts in enumerate(PARTS):
        for column, part in enumerate(parts.tolist()):
            hidden[row, column, 2 * row + (part >= 2)] = 1.0 + column
    term = predict_parts(hidden).terms["neighbor"]
    assert term.n_correct is not None
    assert int(term.n_correct) == 4
    assert float(term.loss) < 1e-7


def test_padding_and_unsplit_texts_change_nothing() -> None:
    hidden = torch.randn((4, 8, 5), generator=torch.Generator().manual_seed(0))
    other = hidden.clone()
    other[1], other[0, 7], other[3, :3], other[3, 6:] = 9.0, 7.0, -3.0, math.pi
    assert predict_parts(other).loss.equal(predict_parts(hidden).loss)


def test_unsplit_texts_have_no_targets() -> None:
    head = head_of(ContrastiveLoss())
    inputs, hidden = torch.zeros((2, 3), dtype=torch.int64), torch.ones((2, 3, 4))
    whole = Batch(inputs=inputs)
    assert head.count_targets(whole) == {}
    assert head(hidden, whole).terms == {}
    one_part = replace(whole, part_ids=torch.zeros((2, 3), dtype=torch.int64))
    assert head.count_targets(one_part) == {"neighbor": 0}
    assert float(head(hidden, one_part).loss) == 0.0


def test_zero_temperature_is_refused() -> None:
    with pytest.raises(ValueError, match=r"temperature must be above 0, got 0\.0"):
        ContrastiveLoss(temperature=0.0)


def test_part_equals_that_text_alone() -> None:
    preset = get_preset("bert-tiny")
    model = (
        Model(preset.architecture.with_vocab_size(50), {"neighbor": ContrastiveLoss()})
        .initialize()
        .eval()
    )
    ids = torch.randint(0, 50, (1, 8), generator=torch.Generator().manual_seed(0))
    parts = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    position = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]])
    both = model.hidden_states(
        Batch(
            inputs=ids, visibility=Visibility(document=parts), part_ids=parts, position_ids=position
        )
    )
    first, second = (
        model.hidden_states(Batch(inputs=ids[:, :3])),
        model.hidden_states(Batch(inputs=ids[:, 3:])),
    )
    torch.testing.assert_close(both, torch.cat((first, second), 1), rtol=0, atol=1e-5)
