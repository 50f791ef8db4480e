"""Attributions equal captum's on the reference library's models, finite differences, and masks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make, texts

from unmask.analysis.saliency.attributions import (
    attention_rollout,
    gradient_x_input,
    integrated_gradients,
    occlusion,
    roll_out,
    unsupported_rollout,
)
from unmask.analysis.saliency.decisions import Decision, EmbeddedDecision
from unmask.analysis.saliency.labels import label_decisions
from unmask.analysis.words import SPECIAL
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.finetuning.formulations.formulation import log_odds
from unmask.finetuning.results.predict import infer_task, make_items
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.model import Model
from unmask.tasks.task import Task, TaskColumns
from unmask.zoo.catalogue import get_preset

SENTENCES = texts(3, most=7)
CLASSIFIERS = {
    "bert": "BertForSequenceClassification",
    "gpt2": "GPT2ForSequenceClassification",
    "bart": "BartForSequenceClassification",
}
STEPS = 20


def recurrent(tmp_path: Path) -> LoadedModel:
    """Return an LSTM with a classification head and the tokenizer of BERT's tests."""
    _, loaded = make("bert", tmp_path, CLASSIFIERS["bert"])
    architecture = get_preset("lstm-mini").architecture.with_vocab_size(loaded.model.vocab_size)
    model = Model(architecture, {"label": SequenceClassification(n_labels=3, pooling="mean")})
    return replace(loaded, model=model.initialize(1))


def words_as_labels(tmp_path: Path) -> tuple[LoadedModel, Task]:
    _, loaded = make("t5", tmp_path)
    columns = TaskColumns(texts=("text",), label="label")
    return loaded, Task(task_kind="classify", columns=columns, labels=("good", "bad"))


def opened(family: str, tmp_path: Path) -> tuple[Any, LoadedModel, list[Decision]]:
    """Return a reference model, ours, and its decisions about some texts."""
    if family == "t5":
        loaded, task = words_as_labels(tmp_path)
        reference = None
    elif family == "lstm":
        loaded, reference = recurrent(tmp_path), None
        task = infer_task(loaded)
    else:
        reference, loaded = make(family, tmp_path, CLASSIFIERS[family], num_labels=3)
        task = infer_task(loaded)
    given: Sequence[Any] = SENTENCES
    if family == "bert":
        given = [(one, other) for one, other in zip(SENTENCES, SENTENCES[::-1], strict=True)]
    decisions = label_decisions(loaded, task, make_items(task, given))
    return reference, loaded, [one for one in decisions if one is not None]


def embedded(loaded: LoadedModel, decision: Decision, seed: int = 0) -> EmbeddedDecision:
    width = loaded.model.backbone.encoder_stack.embedding_table.weight.shape[1]
    removed = torch.randn(width, generator=torch.Generator().manual_seed(seed)) / 4
    return EmbeddedDecision(loaded.model, decision, removed)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_integrated_gradients_equal_captum_on_the_reference(family: str, tmp_path: Path) -> None:
    attr = pytest.importorskip("captum.attr")
    reference, loaded, decisions = opened(family, tmp_path)
    for decision in decisions:
        one = embedded(loaded, decision)
        ids = torch.from_numpy(decision.pieces.token_ids)[None]
        batch = decision.make_batch(1)
        kinds = {} if batch.segments is None else {"token_type_ids": batch.segments}
        with torch.no_grad():
            label = int(reference(input_ids=ids, **kinds).logits.argmax())

        def score(x: torch.Tensor, label: int = label, kinds: Any = kinds) -> torch.Tensor:
            more = {name: kind.expand(len(x), -1) for name, kind in kinds.items()}
            logits = reference(inputs_embeds=x, **more).logits
            if family == "gpt2" and logits.dim() == 3:
                logits = logits[:, -1]
            return log_odds(logits, label)

        wanted = attr.IntegratedGradients(score).attribute(
            one.embeddings[0], one.baseline[0], n_steps=STEPS, method="gausslegendre"
        )
        ours = integrated_gradients(one, STEPS)
        theirs = np.zeros(one.n_words)
        for word, x in zip(decision.pieces.word_of_token, wanted[0].sum(-1).tolist(), strict=True):
            if word != SPECIAL:
                theirs[word] += x
        np.testing.assert_allclose(ours.words, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart", "t5", "lstm"])
def test_integrated_gradients_add_up(family: str, tmp_path: Path) -> None:
    attr = pytest.importorskip("captum.attr")
    _, loaded, decisions = opened(family, tmp_path)
    loaded.model.eval()
    one = embedded(loaded, decisions[-1])
    wanted = attr.IntegratedGradients(lambda *x: one.score(x).log_odds).attribute(
        one.embeddings, one.baseline, n_steps=STEPS, method="gausslegendre"
    )
    theirs = one.sum_by_word([x[0].sum(-1) for x in wanted])
    np.testing.assert_allclose(integrated_gradients(one, STEPS).words, theirs, atol=1e-5, rtol=1e-5)
    nothing = one.score_kept(torch.zeros(1, one.n_words, dtype=torch.bool))
    many = integrated_gradients(one, 300)
    assert many.difference == pytest.approx(one.log_odds - float(nothing.log_odds), abs=1e-6)
    assert many.gap < 1e-2 * max(abs(many.difference), 1)
    assert many.gap <= integrated_gradients(one, 4).gap + 1e-6  # both may be rounding alone


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart", "t5", "lstm"])
def test_embeddings_replaced_by_themselves_change_nothing(family: str, tmp_path: Path) -> None:
    _, loaded, decisions = opened(family, tmp_path)
    for decision in decisions:
        one = embedded(loaded, decision)
        kept = torch.ones(3, one.n_words, dtype=torch.bool)
        again = one.score_kept(kept).log_odds
        torch.testing.assert_close(again, torch.full((3,), one.log_odds), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart", "t5", "lstm"])
def test_gradient_x_input_equals_captum(family: str, tmp_path: Path) -> None:
    attr = pytest.importorskip("captum.attr")
    _, loaded, decisions = opened(family, tmp_path)
    loaded.model.eval()
    one = embedded(loaded, decisions[0])
    leaves = tuple(x.clone().requires_grad_() for x in one.embeddings)
    wanted = attr.InputXGradient(lambda *x: one.score(x).log_odds).attribute(leaves)
    theirs = one.sum_by_word([x[0].sum(-1) for x in wanted])
    np.testing.assert_allclose(gradient_x_input(one), theirs, atol=1e-5, rtol=1e-5)


def test_occlusion_is_what_the_reference_says_of_masks(tmp_path: Path) -> None:
    reference, loaded, decisions = opened("bert", tmp_path)
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    mask = tokenizer.special_ids.mask
    table = loaded.model.backbone.embedding_table.weight
    for decision in decisions:
        one = EmbeddedDecision(loaded.model, decision, table[mask].detach())
        ids = torch.from_numpy(decision.pieces.token_ids)[None]
        segments = decision.make_batch(1).segments

        def score(ids: torch.Tensor, segments: Any = segments) -> torch.Tensor:
            with torch.no_grad():
                return reference(input_ids=ids, token_type_ids=segments).logits

        logits = score(ids)
        label = int(logits.argmax())
        whole = float(log_odds(logits, label))
        assert decision.predicted == loaded.label_names[label]
        owner = torch.from_numpy(decision.pieces.word_of_token)
        for word, found in enumerate(occlusion(one)):
            masked = torch.where(owner == word, mask, ids)
            without = float(log_odds(score(masked), label))
            assert found == pytest.approx(whole - without, abs=1e-4)


def test_rollout_by_hand() -> None:
    maps = [
        torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]]),  # mean: all 0.5
        torch.tensor([[[0.2, 0.8], [0.0, 1.0]]]),
    ]
    first = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    second = torch.tensor([[0.6, 0.4], [0.0, 1.0]])
    torch.testing.assert_close(roll_out(maps), second @ first)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_rollout_is_a_share_of_the_words(family: str, tmp_path: Path) -> None:
    _, loaded, decisions = opened(family, tmp_path)
    for decision in decisions:
        words = attention_rollout(embedded(loaded, decision))
        assert (words > 0).all()
        is_all = (decision.pieces.word_of_token != SPECIAL).all()
        assert words.sum() == pytest.approx(1, abs=1e-5) if is_all else words.sum() < 1


def test_where_there_is_no_rollout(tmp_path: Path) -> None:
    for family, part in (("bart", "has several"), ("lstm", "Transformer blocks only")):
        _, loaded, _ = opened(family, tmp_path / family)
        assert part in str(unsupported_rollout(loaded.model))
    _, loaded, _ = opened("gpt2", tmp_path / "gpt2")
    assert unsupported_rollout(loaded.model) is None
