"""`attention`, `saliency`: what a model looks at, and what a decision rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from unmask.analysis.attention.sentences import head_names, sentence_maps
from unmask.analysis.saliency.analyze import (
    attributions_of,
    baseline_embedding,
    resolve_baseline,
)
from unmask.analysis.saliency.attributions import Method, unsupported_rollout
from unmask.analysis.saliency.decisions import Decision, EmbeddedDecision
from unmask.analysis.saliency.findings import Baseline
from unmask.analysis.saliency.labels import check_explained, label_decisions
from unmask.analysis.saliency.tokens import given_question, token_decisions
from unmask.analysis.words import SPECIAL, WordPieces, split_words
from unmask.config import from_dict
from unmask.finetuning.results.predict import make_items
from unmask.generation.text_batches import max_read_length
from unmask.inference.pipeline import Pipeline
from unmask.objectives.explain import visible_piece
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.web.worker.open_models import check_weights, open_models

MAX_TOKENS = 64
"""Tokens whose maps are sent."""
STEPS = 20
"""Gradients of an integrated gradient."""


@dataclass(frozen=True, kw_only=True)
class _AttentionArguments:
    model: str
    text: str
    layer: int | None = None
    """Counted from 1. None: all."""
    language: str | None = None


@dataclass(frozen=True, kw_only=True)
class _SaliencyArguments:
    model: str
    text: Any
    """A line, as for `predict`; of a language model, a text with one [MASK], or to go on from."""
    method: Method = "integrated_gradients"
    baseline: Baseline | None = None
    steps: int = STEPS
    language: str | None = None

    def __post_init__(self) -> None:
        if self.method == "random":
            raise ValueError("method random says nothing of a text: it is a control")
        if not 1 <= self.steps <= 500:
            raise ValueError(f"steps must be from 1 to 500, got {self.steps}")


def attention(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return tokens, heads, and the weights of each head: "weights"[head][row][column].

    "heads" are {"layer", "head"} from 1. Words beyond `MAX_TOKENS` tokens are not read: "cut" is
    how many.
    """
    given = from_dict(_AttentionArguments, arguments)
    pipeline = open_models().pipeline(given.model, given.language)
    heads = head_names(pipeline.model)
    pieces, n_cut = _read(pipeline, given.text)
    (maps,) = sentence_maps(pipeline.model, pipeline.tokenizer, [pieces])
    layers = {one.layer for one in heads}
    if given.layer is not None and given.layer not in layers:
        raise ValueError(f"layer must be from 1 to {max(layers)}, got {given.layer}")
    shown = [i for i, one in enumerate(heads) if given.layer in (None, one.layer)]
    tokens = pipeline.tokenizer.input_tokenizer.pieces(pieces.token_ids.tolist())
    weights = np.round(maps.tokens.numpy()[shown].astype(np.float64), 3)
    return {
        "tokens": [visible_piece(token) for token in tokens],
        "words": list(pieces.words),
        "word_of_token": pieces.word_of_token.tolist(),
        "heads": [vars(heads[i]) for i in shown],
        "weights": weights.tolist(),
        "cut": n_cut,
    }


def _read(pipeline: Pipeline, text: str) -> tuple[WordPieces, int]:
    """Return as many words as have room, and the number of the others."""
    words = text.split()
    if not words:
        raise ValueError("text must have a word, got none")
    model, tokenizer = pipeline.model, pipeline.tokenizer.input_tokenizer
    most = max_read_length(model, model.backbone.encoder_stack)
    room = MAX_TOKENS if most is None else min(MAX_TOKENS, most)
    (whole,) = split_words(tokenizer, [words[:MAX_TOKENS]], None)
    assert whole is not None, "there is no limit"
    end = room - len(tokenizer.special_ids.suffix)
    beyond = whole.word_of_token[end:]
    beyond = beyond[beyond != SPECIAL]
    n = int(beyond.min()) if len(beyond) else len(whole.words)
    if not n:
        raise ValueError(f"text: its first word has more than {room} tokens")
    (kept,) = split_words(tokenizer, [words[:n]], None)
    assert kept is not None, "there is no limit"
    return kept, len(words) - n


def saliency(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is attributed to each word of a text, and what was predicted.

    "labels" are words and special tokens, "values" theirs (null for special ones): positive speaks
    for what is predicted. Integrated gradients add up to "difference", in log-odds.
    """
    given = from_dict(_SaliencyArguments, arguments)
    pipeline = open_models().pipeline(given.model, given.language)
    check_weights(pipeline)
    model, tokenizer = pipeline.model, pipeline.tokenizer
    if given.method == "attention_rollout" and (reason := unsupported_rollout(model)) is not None:
        raise ValueError(f"method: {reason}")
    decision = _decision(pipeline, given.text)
    baseline = resolve_baseline(tokenizer, given.baseline)
    removed = baseline_embedding(model, tokenizer, baseline)
    embedded = EmbeddedDecision(model, decision, removed)
    values = attributions_of(embedded, [given.method], given.steps)[given.method]
    with torch.no_grad():
        without = embedded.score(embedded.baseline)
    words = decision.pieces.word_of_group.tolist()
    return {
        "labels": decision.pieces.labels(tokenizer.input_tokenizer),
        "values": [None if i == SPECIAL else round(float(values[i]), 6) for i in words],
        "predicted": decision.predicted,
        "probability": embedded.probability,
        "difference": embedded.log_odds - float(without.log_odds),
        "method": given.method,
        "baseline": baseline,
    }


def _decision(pipeline: Pipeline, text: Any) -> Decision:
    """Return the decision of a model about a text."""
    if pipeline.can_predict:
        task = pipeline.required_task()
        check_explained(task)
        reader = TASK_KINDS[task.task_kind].reader
        line = reader.parse_line(task, text) if isinstance(text, str) else text
        (found,) = label_decisions(pipeline.loaded_model, task, make_items(task, [line]))
    else:
        question = given_question(pipeline.model, cast(str, text))
        (found,) = token_decisions(pipeline.model, pipeline.tokenizer, [question])
    if found is None:
        raise ValueError("text must have a word, and fit the model's positions")
    return found
