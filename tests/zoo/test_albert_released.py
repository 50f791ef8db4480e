"""Released ALBERT weights, pickled years ago: they open, and name hidden tokens as they did."""

from pathlib import Path

import pytest
import torch

from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import load_folder

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "checkpoints" / "rxnmapper-albert"
REACTION = (
    "12 16 16 17 16 18 34 24 16 23 17 16 18 16 22 19 24 27 15 20 15 15 15 25 15 20 27 24 19 22 16 "
    "17 36 18 36 24 51 24 51 29 16 16 17 16 18 34 15 20 25 15 15 15 15 20 27 13"
)
"""A chemical reaction; the weights' predictions stand in the folder's README, by another
implementation."""

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"there is no {FOLDER.name} here")


@torch.no_grad()
def test_released_albert_fills_masked_tokens_of_a_reaction() -> None:
    loaded = load_folder(FOLDER)
    assert loaded.missing == ()
    assert loaded.tokenizer is not None
    ids = torch.tensor([[int(x) for x in REACTION.split()]])
    positions = range(1, ids.shape[1] - 1)
    hidden = ids.repeat(len(positions), 1)
    for row, position in enumerate(positions):
        hidden[row, position] = loaded.tokenizer.special_ids.mask
    states = loaded.model.hidden_states(Batch(inputs=hidden))
    scores = loaded.model.language_head.logits(states)[
        torch.arange(len(positions)), torch.tensor(positions)
    ]
    right = scores.argmax(-1) == ids[0, 1:-1]
    assert int(right.sum()) == 53  # 98.1 % of 54
    expected = torch.tensor([-11.621652, -16.191179, -15.104384, -14.502679, -13.687809])
    torch.testing.assert_close(scores[43, :5], expected, atol=2e-5, rtol=0)
    assert float(scores[43].softmax(-1).max()) == pytest.approx(0.999984, abs=2e-6)
