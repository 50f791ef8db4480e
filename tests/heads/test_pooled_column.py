"""Heads that read one column of each row: the last layer computes no other."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import toy_models as toy

from unmask.batch import IGNORE_INDEX, Example
from unmask.batching.collate import pad_examples
from unmask.heads.classification.sequence_classification import SequenceClassification


def batch(family: str, lengths: tuple[int, ...]):
    rng = np.random.default_rng(0)
    examples = [
        Example(
            inputs=rng.integers(5, 40, n),
            targets=np.full(n, IGNORE_INDEX),
            rank=np.arange(n) if family == "gpt2" else None,
            label=int(n % 2),
        )
        for n in lengths
    ]
    return pad_examples(examples, toy.tokenizer(family).special_ids)


@pytest.mark.parametrize("lengths", [(7, 7), (3, 9, 1, 6)])
@pytest.mark.parametrize(
    ("family", "pool"),
    [("bert", "first"), ("bert", "last"), ("gpt2", "first"), ("gpt2", "last"), ("bert", "mean")],
)
def test_computing_only_the_pooled_column_changes_nothing(family: str, pool, lengths) -> None:
    preset = replace(toy.card(family), heads={"label": SequenceClassification(pooling=pool)})
    model = preset.build().initialize(3).eval()
    given = batch(family, lengths)
    seen: list[tuple[int, ...]] = []
    last = model.backbone.layers[-1]
    handle = last.register_forward_hook(lambda m, a, out: seen.append(tuple(out.shape)))
    prediction = model(given, return_logits=True)
    prediction.loss.backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert seen[0][1] == (max(lengths) if pool == "mean" else 1)
    handle.remove()
    model.zero_grad()
    head = model.heads["label"]
    whole = head(model.backbone(given), given, return_logits=True)
    whole.loss.backward()
    torch.testing.assert_close(
        prediction.logits["label"], whole.logits["label"], rtol=1e-5, atol=1e-6
    )
    for name, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(ours[name], p.grad, rtol=1e-4, atol=1e-6)
