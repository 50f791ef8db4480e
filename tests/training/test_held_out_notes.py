"""A run says when nothing is held out, and how documents are told apart."""

from pathlib import Path

import pytest
from toy_text import corpus

from unmask.objectives.published import MASKED_LM
from unmask.shards.write import write_shards
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.training.config import Recipe
from unmask.training.data.sources import open_documents, resolve_tokenizer_spec
from unmask.training.data.texts import build_training_data
from unmask.zoo.catalogue import MODELS


@pytest.mark.parametrize(("separator", "held_out"), [("blank", False), ("line", True)])
def test_sources_of_one_document_are_named(tmp_path: Path, separator: str, held_out: bool) -> None:
    for seed, name in enumerate(("en", "de")):
        lines = [line for line in corpus(8, seed).replace(". ", ".\n").splitlines() if line]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    recipe = Recipe(
        model="bert-tiny", vocab_size=100, sampling_exponent=0.7, document_separator=separator,
        data=tuple(f"{name}={tmp_path / name}.txt" for name in ("en", "de")),
    )  # fmt: skip
    spec = resolve_tokenizer_spec(recipe, MODELS["bert-tiny"])
    shards = write_shards(
        open_documents(recipe), train_tokenizer(spec, corpus(8).splitlines()), tmp_path / "shards"
    )
    data = build_training_data(shards, recipe, MASKED_LM, 64)
    assert bool(data.dev_batches()) == held_out
    assert any("nothing is held out" in note for note in data.notes()) != held_out
