"""`hide`, `hide_answers`: what an objective makes of a text, and what a model answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool

from unmask.batch import IGNORE_INDEX
from unmask.batching.collate import pad_examples
from unmask.config import from_dict
from unmask.generation.text_batches import check_logits, evaluation_mode
from unmask.images.drawing import to_png_text
from unmask.inference.pipeline import Pipeline
from unmask.jobs.catalogue.hide import HiddenText, hide_picture_of, hide_text
from unmask.jobs.options.hide import HideOptions
from unmask.objectives.explain import visible_piece
from unmask.objectives.features import TwoStream
from unmask.objectives.reach import reached
from unmask.web.worker.calls.models.learned_tokenizer import tokenizer_from
from unmask.web.worker.calls.tokens import unknown_parts
from unmask.web.worker.objective_settings import objective_settings, setting_changes
from unmask.web.worker.open_models import check_weights, open_models
from unmask.zoo.catalogue import get_preset, is_preset_name

MAX_SHOWN_TOKENS = 48
"""Tokens of which it is shown who sees whom."""
MAX_REACHED_TOKENS = 4 * MAX_SHOWN_TOKENS
"""Tokens through which it is computed, layer by layer."""


@dataclass(frozen=True, kw_only=True)
class _HideArguments:
    model: str
    text: str = ""
    file: str | None = None
    """The picture, of a model that reads pictures alone; a text is never the name of a file."""
    number: int = 0
    """Which picture of a file of several, from 0."""
    objective: str | None = None
    language: str | None = None
    seed: int = 0
    changes: Sequence[str] = ()
    files: Sequence[str] = ()
    """Files from which a preset's tokenizer is learned, instead of the bundled text."""
    vocab_size: int | None = None
    """Its size. None: that of the preset."""
    text_column: str | None = None
    """Column of the text, of files that are tables."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Numbers of the objective by the keys that `hide` answers, after `changes`."""

    @property
    def options(self) -> HideOptions:
        """The options of `unmask.hide`, without the settings."""
        return HideOptions(
            model=self.model,
            text=self.text if self.file is None else self.file,
            objective=self.objective,
            language=self.language,
            seed=self.seed,
            changes=self.changes,
        )

    def pipeline(self) -> Pipeline | None:
        """Open the model; None: it is a preset without weights."""
        return None if is_preset_name(self.model) else open_models().pipeline(self.model)

    def reads_texts(self, pipeline: Pipeline | None) -> bool:
        """Whether a text is hidden, not a picture.

        Raises:
            ValueError: the model reads the other one.
        """
        preset = get_preset(self.model) if pipeline is None else pipeline.preset
        if preset.reads_texts and self.file is not None:
            raise ValueError(f"file: {self.model} learns from texts; give one")
        if not preset.reads_texts and self.file is None:
            raise ValueError(f"file: {self.model} reads pictures; name one")
        return preset.reads_texts

    def hidden(self, pipeline: Pipeline | None) -> tuple[HiddenText, list[str]]:
        """Corrupt the text; return it with all changes, those of the settings among them."""
        learn = None
        if self.files:
            learn = tokenizer_from(self.files, self.vocab_size, self.text_column)
        hidden = hide_text(self.options, pipeline, learn)
        if not self.settings:
            return hidden, [*self.changes]
        new = setting_changes(hidden.preset.objective, self.settings)
        options = replace(self.options, changes=[*self.changes, *new])
        return hide_text(options, pipeline, learn), [*options.changes]


@dataclass(frozen=True, kw_only=True)
class _HideAnswersArguments(_HideArguments):
    n: int = 3
    """Tokens that are shown for each target."""


def hide(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return tokens, targets and who sees whom: the JSON of `unmask hide`, with matrices.

    "visible" has "inputs" [t t] (row i sees column j), of two streams also "queries", and of an
    encoder "source": lists of 0 and 1 of the first `shown` tokens; null where the objective has no
    such relation. A decoder sees all of its source. "settings" are the numbers of the objective
    that the argument of this name changes, "changes" the same as `--set` takes them; "unknown" are
    the parts of the text that the vocabulary lacks.
    """
    given = from_dict(_HideArguments, arguments)
    pipeline = given.pipeline()
    if not given.reads_texts(pipeline):
        picture = hide_picture_of(given.options, pipeline, max(given.number, 0))
        assert picture is not None, "it reads no texts"
        views = [
            {"title": one.title, "png": to_png_text(one.with_alpha())} for one in picture.views
        ]
        return {"picture": json.loads(picture.to_json()) | {"views": views}}
    hidden, changes = given.hidden(pipeline)
    explained = hidden.explain()
    facts: dict[str, Any] = json.loads(explained.to_json())
    visible = _visible(hidden, has_ranks=explained.has_ranks)
    settings = [asdict(one) for one in objective_settings(hidden.preset.objective)]
    return facts | {
        "visible": visible,
        "shown": MAX_SHOWN_TOKENS,
        "settings": settings,
        "changes": changes,
        "unknown": unknown_parts(hidden.tokenizer.input_tokenizer, given.text),
    }


def hide_answers(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model with weights answers at each target of `hide` with the same arguments.

    "answers" has for each target "position" (in the inputs), "target", its "probability", and "top"
    [[piece, probability]], the most probable tokens; "loss" is their mean in nats.
    """
    given = from_dict(_HideAnswersArguments, arguments)
    if given.n < 1:
        raise ValueError(f"n must be at least 1, got {given.n}")
    pipeline = given.pipeline()
    if pipeline is None:
        raise ValueError(f"model: {given.model} is a preset without weights, and answers nothing")
    if not given.reads_texts(pipeline):
        raise ValueError("model: it reads pictures, and answers in `hide`")
    hidden, _ = given.hidden(pipeline)
    logits = _target_logits(pipeline, hidden)
    targets = hidden.example.targets
    positions = np.flatnonzero(targets != IGNORE_INDEX)
    ids = targets[positions]
    if len(ids) != len(logits):
        raise ValueError(f"model: {given.model} does not answer each target with one token")
    shares = logits.float().softmax(-1)
    right = shares[torch.arange(len(ids)), torch.from_numpy(ids)]
    best = shares.topk(min(given.n, shares.shape[-1]))
    pieces = hidden.tokenizer.pieces
    answers = [
        {
            "position": position,
            "target": visible_piece(target),
            "probability": round(probability, 6),
            "top": [
                [visible_piece(piece), round(p, 6)]
                for piece, p in zip(pieces(tokens), some, strict=True)
            ],
        }
        for position, target, probability, tokens, some in zip(
            positions.tolist(),
            pieces(ids.tolist()),
            right.tolist(),
            best.indices.tolist(),
            best.values.tolist(),
            strict=True,
        )
    ]
    loss = float(-right.log().mean()) if len(ids) else None
    return {"answers": answers, "loss": loss}


def check_answers(pipeline: Pipeline) -> None:
    """Check that a model answers what its objective asks, token by token.

    Raises:
        ValueError: it predicts no tokens, or has no weights.
    """
    check_weights(pipeline)
    if not pipeline.model.language_heads:
        names = ", ".join(pipeline.model.head_specs) or "none"
        raise ValueError(f"model: it predicts no tokens of the vocabulary (heads: {names})")


def _target_logits(pipeline: Pipeline, hidden: HiddenText) -> torch.Tensor:
    """Return the logits of tokens at the targets of a text.

    Raises:
        ValueError: the model predicts no tokens, or the text is longer than its positions.
    """
    check_answers(pipeline)
    model, heads = pipeline.model, pipeline.model.language_heads
    longest, n = pipeline.resolve_sequence_length(), len(hidden.example.inputs)
    if n > longest:
        raise ValueError(f"text has {n:,} tokens, but the model reads at most {longest:,}")
    batch = pad_examples([hidden.example], hidden.tokenizer.special_ids)
    with evaluation_mode(model):
        found = model(model.pad_for_network(batch).to(model.device), return_logits=[*heads])
    terms = [head.spec.term for head in heads.values()]
    logits = next(found.logits[term] for term in terms if term in found.logits)
    check_logits(logits)
    return logits.cpu()


def _visible(hidden: HiddenText, *, has_ranks: bool) -> dict[str, Any]:
    example, about = hidden.example, hidden.about
    two_stream = has_ranks and example.has(TwoStream)
    return {
        "inputs": _cut(about.visible(example, MAX_REACHED_TOKENS)) if has_ranks else None,
        "queries": _cut(example.visible(excluding_self=True)) if two_stream else None,
        "source": _source_rows(hidden),
    }


def _source_rows(hidden: HiddenText) -> list[list[int]] | None:
    if hidden.example.source is None:
        return None
    n = min(len(hidden.example.source), MAX_REACHED_TOKENS)
    return _cut(reached(np.ones((n, n), bool), hidden.about.source_reaches))


def _cut(visible: Bool[np.ndarray, "t t"]) -> list[list[int]]:
    return visible[:MAX_SHOWN_TOKENS, :MAX_SHOWN_TOKENS].astype(int).tolist()
