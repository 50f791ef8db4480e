"""The analysis of saliency: attributions to the words of each text, and how faithful they are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unmask.analysis.saliency.attributions import (
    Method,
    attention_rollout,
    gradient_x_input,
    integrated_gradients,
    occlusion,
    random_attribution,
)
from unmask.analysis.saliency.decisions import Decision, EmbeddedDecision
from unmask.analysis.saliency.faithfulness import (
    RemovalCurve,
    mean_curve,
    removal_curve,
)
from unmask.analysis.saliency.findings import Baseline, ExplainedText, MethodScores
from unmask.heads.model import Model
from unmask.tasks.metrics.intervals import bootstrap_interval
from unmask.tasks.metrics.regression import spearman
from unmask.tokenizers.encode import Tokenizer


@dataclass(frozen=True, kw_only=True)
class SaliencySettings:
    """How decisions are explained."""

    steps: int = 50
    """Gradients of an integrated gradient."""
    baseline: Baseline | None = None
    """What stands for a removed word: mask, pad or zero. None: the mask token if the vocabulary has
    one, otherwise zeros."""
    draws: int = 5
    """Random orders of words, averaged, of the control."""


@dataclass(frozen=True)
class _Explained:
    """A text, and the curve of each method."""

    text: ExplainedText
    curves: Mapping[Method, RemovalCurve]


def resolve_baseline(tokenizer: Tokenizer, baseline: Baseline | None) -> Baseline:
    """Return the baseline: the given one, or the mask if there is one.

    Raises:
        ValueError: it is the mask, and the tokenizer has none.
    """
    has_mask = tokenizer.special_ids.mask is not None
    if baseline is None:
        return "mask" if has_mask else "zero"
    if baseline == "mask" and not has_mask:
        raise ValueError("baseline must be pad or zero for a tokenizer without a mask, got mask")
    return baseline


def baseline_embedding(
    model: Model, tokenizer: Tokenizer, baseline: Baseline
) -> Float[Tensor, "d"]:
    """Return the token embedding of a removed word."""
    special = tokenizer.input_tokenizer.special_ids
    token = special.mask if baseline == "mask" else special.pad
    table = model.backbone.encoder_stack.stacks[-1].embedding_table
    with torch.no_grad():
        embedding = table(torch.tensor([[token]], device=model.device))[0, 0]
    return torch.zeros_like(embedding) if baseline == "zero" else embedding


def explain(
    model: Model,
    tokenizer: Tokenizer,
    decisions: Sequence[Decision],
    methods: Sequence[Method],
    settings: SaliencySettings,
    seed: int,
) -> tuple[list[ExplainedText], list[MethodScores]]:
    """Attribute each decision to words by each method, and measure how faithful that is.

    Args:
        model: the model that decided.
        tokenizer: its tokenizer.
        decisions: at least one.
        methods: methods of attribution; random is added.
        settings: steps, baseline and draws.
        seed: random seed of the control.

    Raises:
        ValueError: the model reads words in another way than by embeddings of tokens.
    """
    baseline = resolve_baseline(tokenizer, settings.baseline)
    removed = baseline_embedding(model, tokenizer, baseline)
    explained: list[_Explained] = []
    for i, decision in enumerate(decisions):
        embedded = EmbeddedDecision(model, decision, removed)
        rng = np.random.default_rng((seed, i))
        explained.append(_explain_one(embedded, tokenizer, methods, settings, rng))
    rng = np.random.default_rng(seed)
    scores = [_scores(method, explained, rng) for method in (*methods, "random")]
    return [one.text for one in explained], scores


def attributions_of(
    embedded: EmbeddedDecision, methods: Sequence[Method], steps: int
) -> dict[Method, Float[np.ndarray, "w"]]:
    """Return the attributions of each method to the words of a decision."""
    functions: Mapping[Method, Callable[[EmbeddedDecision], Float[np.ndarray, "w"]]] = {
        "integrated_gradients": lambda one: integrated_gradients(one, steps).words,
        "gradient_x_input": gradient_x_input,
        "occlusion": occlusion,
        "attention_rollout": attention_rollout,
    }
    return {method: functions[method](embedded) for method in methods}


def rank_correlations(
    texts: Sequence[ExplainedText],
    control: Model,
    decisions: Sequence[Decision],
    removed: Float[Tensor, "d"],
    scores: Sequence[MethodScores],
    steps: int,
) -> list[MethodScores]:
    """Return the scores with the rank correlation to the attributions of random weights.

    A method that attributes alike whatever the weights says nothing of what a model has learned
    (Adebayo et al. 2018, arXiv:1810.03292, section 3). Spearman's, averaged over texts with two
    words or more.
    """
    methods: list[Method] = [one.method for one in scores if one.method != "random"]
    found: dict[Method, list[float]] = {method: [] for method in methods}
    for text, decision in zip(texts, decisions, strict=True):
        if len(decision.pieces.words) < 2:
            continue
        embedded = EmbeddedDecision(control, decision, removed)
        for method, words in attributions_of(embedded, methods, steps).items():
            found[method].append(spearman(np.array(text.attributions[method]), words))
    return [
        replace(one, rank_correlation=float(np.mean(found[one.method])))
        if found.get(one.method)
        else one
        for one in scores
    ]


def _explain_one(
    embedded: EmbeddedDecision,
    tokenizer: Tokenizer,
    methods: Sequence[Method],
    settings: SaliencySettings,
    rng: np.random.Generator,
) -> _Explained:
    gradients = integrated_gradients(embedded, settings.steps)
    others: list[Method] = [method for method in methods if method != "integrated_gradients"]
    words: dict[Method, Float[np.ndarray, "w"]] = {}
    if "integrated_gradients" in methods:
        words["integrated_gradients"] = gradients.words
    words |= attributions_of(embedded, others, settings.steps)
    curves: dict[Method, RemovalCurve] = {}
    attributed: dict[Method, Sequence[float]] = {}
    for method, found in words.items():
        curves[method], attributed[method] = removal_curve(embedded, found), found.tolist()
    draws = [random_attribution(embedded.n_words, rng) for _ in range(settings.draws)]
    curves["random"] = mean_curve([removal_curve(embedded, one) for one in draws])
    pieces, decision = embedded.decision.pieces, embedded.decision
    attributed["random"] = draws[0].tolist()
    text = ExplainedText(
        labels=tuple(pieces.labels(tokenizer.input_tokenizer)),
        word_of_label=tuple(pieces.word_of_group.tolist()),
        predicted=decision.predicted,
        target=decision.target,
        probability=embedded.probability,
        attributions=attributed,
        completeness_gap=gradients.gap,
        difference=gradients.difference,
    )
    return _Explained(text, curves)


def _scores(
    method: Method, explained: Sequence[_Explained], rng: np.random.Generator
) -> MethodScores:
    """Average the curves of a method, beside random."""
    own = [one.curves[method] for one in explained]
    areas = np.array([one.area for one in own])  # [n 2]
    chance = np.array([one.curves["random"].area for one in explained])
    return MethodScores(
        method=method,
        comprehensiveness=tuple(np.mean([one.comprehensiveness for one in own], 0).tolist()),
        sufficiency=tuple(np.mean([one.sufficiency for one in own], 0).tolist()),
        comprehensiveness_area=float(areas[:, 0].mean()),
        sufficiency_area=float(areas[:, 1].mean()),
        above_random=bootstrap_interval(areas[:, 0] - chance[:, 0], rng),
        below_random=bootstrap_interval(chance[:, 1] - areas[:, 1], rng),
        rank_correlation=None,
    )


ALL_METHODS: tuple[Method, ...] = tuple(one for one in get_args(Method) if one != "random")
"""All methods but the control."""
