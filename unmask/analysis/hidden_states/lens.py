"""The logit lens: what each layer would predict, if it were the last.

nostalgebraist 2020, interpreting GPT: the logit lens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.analysis.saliency.tokens import (
    TokenQuestion,
    batches_of,
    predicts_after_text,
    read_question,
    token_text,
)
from unmask.analysis.words import read_words
from unmask.batch import Batch
from unmask.generation.text_batches import check_logits, evaluation_mode
from unmask.heads.model import Model
from unmask.model.recording import record_layers
from unmask.tokenizers.encode import Tokenizer

_DECIMALS = 6


@dataclass(frozen=True)
class LayerView:
    """What a layer would predict at one position."""

    tokens: tuple[str, ...]
    """The most probable first."""
    probabilities: tuple[float, ...]
    rank: int
    """Of the prediction of the last layer, from 1."""


@dataclass(frozen=True)
class PositionView:
    """What the layers would predict at one position of a text."""

    read: str
    """The token that is read there."""
    target: str | None
    """The token that is to be predicted; None: unknown."""
    layers: tuple[LayerView, ...]


@dataclass(frozen=True)
class LensView:
    """What the layers would predict of a text."""

    text: str
    positions: tuple[PositionView, ...]


@dataclass(frozen=True, kw_only=True)
class LayerLens:
    """What a layer would predict, averaged over positions."""

    layer: int
    """0: the input of the first layer."""
    agreement: float
    """Share of positions where its first token is that of the last layer."""
    probability: float
    """Its probability of the last layer's first token."""
    reciprocal_rank: float
    """Mean of 1 / rank of the last layer's first token."""
    divergence: float
    """KL(last layer || this layer) in nats."""
    accuracy: float
    """Share of positions where its first token is the right one."""
    loss: float
    """Cross-entropy of the right token in nats."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        measures = {name: value for name, value in vars(self).items() if name != "layer"}
        return {"layer": self.layer} | {name: _rounded(x) for name, x in measures.items()}


@dataclass(frozen=True, kw_only=True)
class NetworkLens:
    """The layers of a network through the lens."""

    name: str
    """trained, or random: the same network with random weights."""
    layers: tuple[LayerLens, ...]
    views: tuple[LensView, ...]


@dataclass(frozen=True, kw_only=True)
class LensFindings:
    """The layers of a network and of its control through the lens, on the same texts."""

    model: str
    data: str
    """Name of the file; "" for given texts."""
    predicts: str
    """masked tokens or next tokens."""
    n_texts: int
    n_positions: int
    """Positions with a known token; 0: none, and there are only views."""
    n_skipped: int
    """Texts longer than the model's positions."""
    networks: tuple[NetworkLens, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        facts = {name: value for name, value in vars(self).items() if name != "networks"}
        networks = {
            one.name: {
                "layers": [layer.to_json() for layer in one.layers],
                "texts": [_view_to_json(view) for view in one.views],
            }
            for one in self.networks
        }
        return facts | {"networks": networks}


def check_lens(model: Model) -> None:
    """Check that every layer can be read by the head of the last.

    Raises:
        ValueError: the model has no head of tokens, does not consist of Transformer blocks, or its
            predictions are of a stream of queries.
    """
    _ = model.language_head  # raises if there is none
    if model.query_stream is not None:
        raise ValueError(
            "the logit lens reads hidden states of layers, and this model predicts tokens from a "
            "stream of queries beside them"
        )


def layer_predictions(model: Model, batch: Batch) -> list[Float[Tensor, "b t d"]]:
    """Return the hidden states of every layer of the stack that predicts, as its head reads them.

    The input of the first layer, then the output of each; the final norm is applied to all, which
    the last one has already. Of an encoder-decoder they are the decoder's.

    Raises:
        ValueError: the network does not consist of Transformer blocks, or two stacks share them.
    """
    stack: Any = model.backbone.decoder_stack
    with evaluation_mode(model), record_layers(model.backbone) as records:
        model.hidden_states(batch)
    at = next(i for i, one in enumerate(model.backbone.stacks) if one is stack)
    *before, last = records[at].hidden_states
    if len(before) != len(stack.layers):
        raise ValueError("the logit lens does not tell apart layers that both stacks share")
    with evaluation_mode(model):
        return [*(stack.final_norm(x) for x in before), last]


@dataclass(frozen=True)
class _Asked:
    """A text, the columns that predict, and the tokens that they are to predict."""

    text: str
    batch: Batch
    columns: Int[np.ndarray, "n"]
    targets: Int[np.ndarray, "n"] | None
    read: tuple[str, ...]
    """What is read at each of the columns."""


def look_through(
    name: str,
    model: Model,
    tokenizer: Tokenizer,
    questions: Sequence[TokenQuestion],
    n_shown: int,
    top_k: int,
) -> tuple[NetworkLens, int, int]:
    """Look at the layers of a network through its head.

    Args:
        name: trained or random.
        model: a language model; see `check_lens`.
        tokenizer: its tokenizer.
        questions: texts, each with what is asked. A decoder is asked for every token.
        n_shown: texts that have a view, the first of them.
        top_k: tokens of a view.

    Returns:
        What is found, the number of positions, and of texts that are too long.

    Raises:
        ValueError: the network does not consist of Transformer blocks, or no text fits.
    """
    views: list[LensView] = []
    sums: list[Float[np.ndarray, "layers 6"]] = []
    n_positions, n_read = 0, 0
    for asked in _asked(model, tokenizer, questions):
        n_read += 1
        logits = _layer_logits(model, asked)[:, :, : tokenizer.vocab_size]  # [layers n v]
        if len(views) < n_shown:
            views.append(_view(tokenizer, asked, logits, top_k))
        if asked.targets is not None:
            sums.append(_measure(logits, torch.from_numpy(asked.targets).to(logits.device)))
            n_positions += len(asked.targets)
    if not n_read:
        raise ValueError(f"none of {len(questions):,} texts fits the positions of this model")
    means = np.sum(sums, 0) / n_positions if sums else np.zeros((0, 6))
    layers = [_layer_lens(layer, row) for layer, row in enumerate(means.tolist())]
    found = NetworkLens(name=name, layers=tuple(layers), views=tuple(views))
    return found, n_positions, len(questions) - n_read


def _asked(
    model: Model, tokenizer: Tokenizer, questions: Sequence[TokenQuestion]
) -> Iterator[_Asked]:
    """Yield what a model reads and is to predict, text by text; not of those that are too long."""
    for question, pieces in zip(
        questions, read_words(model, tokenizer, [one.words for one in questions]), strict=True
    ):
        if pieces is None:
            continue
        n_words = len(question.words)
        if predicts_after_text(model):
            reading = read_question(model, tokenizer, n_words, pieces)
            ids = reading.pieces.token_ids
            columns, targets = np.arange(len(ids) - 1), ids[1:]
            if not question.is_known:  # what comes after the text, too
                columns, targets = np.arange(len(ids)), None
            read = ids[columns]
        else:
            reading = read_question(model, tokenizer, question.hidden, pieces)
            hidden = np.flatnonzero(pieces.word_of_token == question.hidden)
            columns = np.array([reading.column])
            targets = pieces.token_ids[hidden[:1]] if question.is_known else None
            ids = reading.pieces.token_ids if reading.decoder is None else reading.decoder
            read = ids[columns]
        if not len(columns):
            continue
        batch = batches_of(model, tokenizer, reading)(1).to(model.device)
        words = list(question.words)
        if question.hidden < n_words and not predicts_after_text(model):
            words[question.hidden] = "[MASK]"
        shown = tuple(token_text(tokenizer, int(token)) for token in read)
        yield _Asked(" ".join(words), batch, columns, targets, shown)


def _layer_logits(model: Model, asked: _Asked) -> Float[Tensor, "layers n v"]:
    columns = torch.from_numpy(asked.columns).to(model.device)
    states = torch.stack([x[0, columns] for x in layer_predictions(model, asked.batch)])
    with torch.no_grad():
        logits = model.language_head.logits(states).float()
    check_logits(logits)
    return logits


def _measure(
    logits: Float[Tensor, "layers n v"], targets: Int[Tensor, "n"]
) -> Float[np.ndarray, "layers 6"]:
    """Return the measures of `LayerLens`, summed over positions."""
    logs = logits.log_softmax(-1).double()
    last, first = logs[-1], logits[-1].argmax(-1)  # [n v], [n]
    at = first.expand(len(logs), -1)[..., None]
    of_last = logs.gather(-1, at)[..., 0]  # [layers n]
    rank = ranks(logits, first)
    own = logits.argmax(-1)
    right = targets.expand(len(logs), -1)
    measures = [
        own == first,
        of_last.exp(),
        1 / rank,
        (last.exp() * (last - logs)).sum(-1),
        own == right,
        -logs.gather(-1, right[..., None])[..., 0],
    ]
    return torch.stack([x.double().sum(-1) for x in measures], -1).cpu().numpy()


def ranks(logits: Float[Tensor, "layers n v"], tokens: Int[Tensor, "n"]) -> Int[Tensor, "layers n"]:
    """Return the rank of a token at each position, from 1; equal logits are not above it."""
    at = tokens.expand(len(logits), -1)[..., None]
    return (logits > logits.gather(-1, at)).sum(-1) + 1


def _layer_lens(layer: int, measures: Sequence[float]) -> LayerLens:
    agreement, probability, reciprocal, divergence, accuracy, loss = measures
    return LayerLens(
        layer=layer, agreement=agreement, probability=probability, reciprocal_rank=reciprocal,
        divergence=divergence, accuracy=accuracy, loss=loss,
    )  # fmt: skip


def _view(
    tokenizer: Tokenizer, asked: _Asked, logits: Float[Tensor, "layers n v"], top_k: int
) -> LensView:
    best = logits.softmax(-1).topk(min(top_k, logits.shape[-1]))
    rank = ranks(logits, logits[-1].argmax(-1)).tolist()
    tokens, probabilities = best.indices.tolist(), best.values.tolist()
    positions: list[PositionView] = []
    for n, read in enumerate(asked.read):
        layers = tuple(
            LayerView(
                tuple(token_text(tokenizer, token) for token in tokens[layer][n]),
                tuple(probabilities[layer][n]),
                int(rank[layer][n]),
            )
            for layer in range(len(logits))
        )
        target = None if asked.targets is None else token_text(tokenizer, int(asked.targets[n]))
        positions.append(PositionView(read, target, layers))
    return LensView(asked.text, tuple(positions))


def _view_to_json(view: LensView) -> dict[str, Any]:
    return {
        "text": view.text,
        "positions": [
            {
                "read": one.read,
                "target": one.target,
                "layers": [
                    {
                        "tokens": list(layer.tokens),
                        "probabilities": [_rounded(p) for p in layer.probabilities],
                        "rank": layer.rank,
                    }
                    for layer in one.layers
                ],
            }
            for one in view.positions
        ],
    }


def _rounded(value: float) -> float:
    return round(float(value), _DECIMALS)
