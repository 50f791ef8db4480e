"""Decisions of language models: what is read, what is asked, and what the reference predicts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make, texts

from unmask.analysis.saliency.analyze import SaliencySettings, explain
from unmask.analysis.saliency.decisions import Decision
from unmask.analysis.saliency.tokens import (
    TokenQuestion,
    drawn_question,
    given_question,
    token_decisions,
)
from unmask.analysis.words import SPECIAL
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.finetuning.formulations.formulation import log_odds

WORDS = tuple(texts(1, seed=3, most=12)[0].split())
KINDS = {"bert": "BertForMaskedLM", "gpt2": None, "t5": None, "bart": None}


def decided(family: str, tmp_path: Path, hidden: int) -> tuple[Any, LoadedModel, Decision]:
    reference, loaded = make(family, tmp_path, KINDS[family])
    assert loaded.tokenizer is not None
    question = TokenQuestion(WORDS[: hidden + 1] if family == "gpt2" else WORDS, hidden, True)
    (decision,) = token_decisions(loaded.model, loaded.tokenizer, [question])
    assert decision is not None
    return reference, loaded, decision


@pytest.mark.parametrize("family", KINDS)
@torch.no_grad()
def test_predictions_equal_the_reference(family: str, tmp_path: Path) -> None:
    reference, loaded, decision = decided(family, tmp_path, 4)
    known = loaded.tokenizer
    assert known is not None
    special, pieces = known.special_ids, decision.pieces
    ids = torch.from_numpy(pieces.token_ids)[None]
    if family == "bert":
        logits = reference(input_ids=ids).logits[0, (ids[0] == special.mask).nonzero()[0, 0]]
    elif family == "gpt2":
        logits = reference(input_ids=ids).logits[0, -1]
    else:
        read = [special.start]
        if family == "t5":
            read += [special.sentinels[0]]
        else:
            read += [*special.decoder_prefix, *known.encode(" ".join(WORDS[:4])).ids.tolist()]
        given = torch.tensor([read])
        logits = reference(input_ids=ids, decoder_input_ids=given).logits[0, -1]
    allowed = logits[: known.vocab_size].clone()
    allowed[sorted(special.all_ids)] = -torch.inf
    best = int(allowed.argmax())
    piece = known.pieces([best])[0]
    assert decision.predicted == (piece.strip() or piece)
    found = decision.score(loaded.model.eval(), decision.make_batch(2))
    wanted = log_odds(logits[None], best).expand(2)
    torch.testing.assert_close(found.log_odds, wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.probability, logits.softmax(-1)[best].expand(2))


@pytest.mark.parametrize("family", KINDS)
def test_the_hidden_word_is_not_read(family: str, tmp_path: Path) -> None:
    _, loaded, decision = decided(family, tmp_path, 4)
    known, pieces = loaded.tokenizer, decision.pieces
    assert known is not None
    rest = WORDS[:4] if family == "gpt2" else (*WORDS[:4], *WORDS[5:])
    assert pieces.words == rest
    first = known.encode(" ".join(WORDS)).ids[len(known.encode(" ".join(WORDS[:4])).ids)]
    assert decision.target == known.pieces([first])[0].strip()
    n_special = int((pieces.word_of_token == SPECIAL).sum())
    frame = len(known.special_ids.prefix) + len(known.special_ids.suffix)
    assert n_special == (len(known.special_ids.prefix) if family == "gpt2" else frame + 1)


@pytest.mark.parametrize("family", KINDS)
def test_tokens_are_explained(family: str, tmp_path: Path) -> None:
    _, loaded, decision = decided(family, tmp_path, 4)
    assert loaded.tokenizer is not None
    with torch.no_grad():  # random weights of the reference's tests make steep functions
        for weights in loaded.model.parameters():
            weights.mul_(0.5 if weights.dim() > 1 else 1)
    settings = SaliencySettings(steps=100, draws=1)
    methods = ("integrated_gradients", "gradient_x_input", "occlusion")
    (text,), _ = explain(loaded.model, loaded.tokenizer, [decision], methods, settings, 0)
    assert text.completeness_gap < 0.02 * max(abs(text.difference), 1)
    assert all(len(x) == len(decision.pieces.words) for x in text.attributions.values())


def test_questions(tmp_path: Path) -> None:
    models = {family: make(family, tmp_path / family, KINDS[family])[1].model for family in KINDS}
    assert given_question(models["gpt2"], "the cat").hidden == 2
    assert given_question(models["t5"], "the [MASK] sees").hidden == 1
    asked = given_question(models["bert"], "the cat is “[MASK]”.")
    assert (asked.words[asked.hidden], asked.words[-1]) == ("[MASK]", "”.")
    for family, text, message in (
        ("gpt2", "the [MASK]", r"must have words and no \[MASK\]"),
        ("gpt2", " ", "must have words"),
        ("bert", "the cat", r"must have one \[MASK\]"),
        ("bart", "[MASK] [MASK] cat", r"must have one \[MASK\]"),
        ("bert", "[MASK]", r"must have one \[MASK\]"),
    ):
        with pytest.raises(ValueError, match=message):
            given_question(models[family], text)
    rng = np.random.default_rng(0)
    drawn = [drawn_question(models["bert"], WORDS, rng) for _ in range(200)]
    assert {one.hidden for one in drawn if one} == set(range(len(WORDS)))
    drawn = [drawn_question(models["gpt2"], WORDS, rng) for _ in range(200)]
    assert {one.hidden for one in drawn if one} == set(range(3, len(WORDS)))
    assert all(one and len(one.words) == one.hidden + 1 for one in drawn)
    assert drawn_question(models["gpt2"], WORDS[:3], rng) is None
