"""The logit lens equals the reference's hidden states under its own norm and head."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make, texts, tokenizer

from unmask.analysis.hidden_states.lens import (
    check_lens,
    layer_predictions,
    look_through,
    ranks,
)
from unmask.analysis.saliency.tokens import TokenQuestion
from unmask.batch import Batch, Visibility
from unmask.heads.model import Model
from unmask.zoo.catalogue import get_preset

WORDS = [tuple(text.split()) for text in texts(4, seed=5, most=9)]
KINDS = {"bert": "BertForMaskedLM", "gpt2": None, "t5": None}


def head_of(reference: Any, family: str) -> Any:
    """Return what a reference does to hidden states of a layer before the last."""
    if family == "bert":
        return reference.cls
    if family == "gpt2":
        return lambda x: reference.lm_head(reference.transformer.ln_f(x))
    scale = reference.config.d_model**-0.5
    return lambda x: reference.lm_head(reference.decoder.final_layer_norm(x) * scale)


@pytest.mark.parametrize("family", KINDS)
@torch.no_grad()
def test_layers_equal_the_reference(family: str, tmp_path: Path) -> None:
    reference, loaded = make(family, tmp_path, KINDS[family])
    ids = torch.tensor([[5, 9, 12, 7, 30, 8]])
    if family == "t5":
        decoder = torch.tensor([[0, 6, 11]])
        batch = Batch(inputs=decoder, visibility=Visibility(causal=True), source=ids)
        found = reference(input_ids=ids, decoder_input_ids=decoder, output_hidden_states=True)
        states, logits = found.decoder_hidden_states, found.logits
    else:
        batch = Batch(inputs=ids, visibility=Visibility(causal=family == "gpt2"))
        found = reference(input_ids=ids, output_hidden_states=True)
        states, logits = found.hidden_states, found.logits
    head = head_of(reference, family)
    wanted = [*(head(x) for x in states[:-1]), logits]
    layers = layer_predictions(loaded.model, batch)
    assert len(layers) == len(wanted) == 4
    for ours, theirs in zip(layers, wanted, strict=True):
        torch.testing.assert_close(
            loaded.model.language_head.logits(ours), theirs, atol=2e-4, rtol=1e-4
        )


@pytest.mark.parametrize("family", KINDS)
def test_measures_are_those_of_the_logits(family: str, tmp_path: Path) -> None:
    _, loaded = make(family, tmp_path, KINDS[family])
    known = loaded.tokenizer
    assert known is not None
    hidden = {"gpt2": len}.get(family, lambda words: len(words) // 2)
    questions = [TokenQuestion(words, hidden(words), is_known=True) for words in WORDS]
    found, n, n_skipped = look_through("trained", loaded.model, known, questions, 9, 3)
    assert n_skipped == 0
    assert n == sum(len(view.positions) for view in found.views)
    last = found.layers[-1]
    assert (last.agreement, last.reciprocal_rank) == (1, 1)
    assert last.divergence == pytest.approx(0, abs=1e-9)
    for layer, measured in enumerate(found.layers):
        views = [one for view in found.views for one in view.positions]
        firsts = [one.layers[layer].tokens[0] for one in views]
        same = np.mean(
            [a == one.layers[-1].tokens[0] for a, one in zip(firsts, views, strict=True)]
        )
        assert measured.agreement == pytest.approx(same)
        right = np.mean([a == one.target for a, one in zip(firsts, views, strict=True)])
        assert measured.accuracy == pytest.approx(right)
        mean_rank = np.mean([1 / one.layers[layer].rank for one in views])
        assert measured.reciprocal_rank == pytest.approx(mean_rank)
        assert measured.divergence >= -1e-9
        assert measured.loss > 0


def test_a_decoder_predicts_every_token_and_what_comes_after_given_texts(tmp_path: Path) -> None:
    _, loaded = make("gpt2", tmp_path)
    known = tokenizer("gpt2")
    text = " ".join(WORDS[0])
    ids = known.encode(text).ids
    for is_known, extra in ((True, -1), (False, 0)):
        question = TokenQuestion(WORDS[0], len(WORDS[0]), is_known)
        found, n, _ = look_through("trained", loaded.model, known, [question], 1, 2)
        (view,) = found.views
        n_prefix = len(known.special_ids.prefix)
        assert len(view.positions) == n_prefix + len(ids) + extra
        assert n == (len(view.positions) if is_known else 0)
        assert view.positions[-1].target is None or is_known


def test_ranks() -> None:
    logits = torch.tensor([[[1.0, 3.0, 2.0, 3.0]], [[5.0, 1.0, 1.0, 0.0]]])
    assert ranks(logits, torch.tensor([2])).tolist() == [[3], [2]]


def test_models_without_predictions_of_layers_are_refused(tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path / "bert", "BertModel")
    with pytest.raises(ValueError, match="no language-model head"):
        check_lens(loaded.model)
    architecture = get_preset("xlnet-mini").architecture.with_vocab_size(50)
    model = Model(architecture, get_preset("xlnet-mini").heads)
    with pytest.raises(ValueError, match="stream of queries"):
        check_lens(model)
