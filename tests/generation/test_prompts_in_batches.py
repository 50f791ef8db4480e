"""Prompts: special tokens, truncation, and batches within the number of tokens."""

from pathlib import Path

import pytest
import torch
from small_models import FAMILIES, make, texts, tokenizer
from torch import nn

from unmask.generation.text_batches import evaluation_mode, text_batches, with_special_tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_text_is_framed_as_reference_tokenizer(family: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    known = tokenizer(family)
    known.save(tmp_path)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    some = texts(20, most=30)
    for most in (None, 12):
        cut = {} if most is None else {"truncation": True, "max_length": most}
        expected = [reference(text, split_special_tokens=True, **cut)["input_ids"] for text in some]
        assert [ids.tolist() for ids in with_special_tokens(known, some, most)] == expected


def test_empty_text_is_start_token_and_too_few_positions_are_refused() -> None:
    for family in FAMILIES:
        special = tokenizer(family).special_ids
        (ids,) = with_special_tokens(tokenizer(family), [""], None)
        assert ids.tolist() == ([*special.prefix, *special.suffix] or [special.start])
    with pytest.raises(ValueError, match="2 special tokens do not fit the model's 1 positions"):
        with_special_tokens(tokenizer("bert"), ["a"], 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_groups_give_texts_and_last_positions(family: str, tmp_path: Path) -> None:
    _, loaded = make(family, tmp_path)
    some = texts(9, most=20)
    read = with_special_tokens(tokenizer(family), some, 40 if family != "t5" else None)
    seen = []
    for group in text_batches(loaded.model, tokenizer(family), some, 60):
        batch = group.batch
        table = batch.source if family == "t5" else batch.inputs
        for row, text, n, last in zip(
            table, group.text_indices, group.lengths, batch.last_token_positions, strict=True
        ):
            assert row[:n].tolist() == read[text].tolist()
            assert int(last) == n - 1
            seen.append(text)
    assert sorted(seen) == list(range(9))


def test_evaluation_mode_is_always_restored() -> None:
    model = nn.Linear(1, 1)
    for training in (True, False):
        model.train(training)
        with evaluation_mode(model):
            assert not model.training
            assert not torch.is_grad_enabled()
        assert model.training is training
        with pytest.raises(TypeError), evaluation_mode(model):
            model(None)
        assert model.training is training
        assert torch.is_grad_enabled()
