"""Evaluation on held-out text: perplexity, bits per byte and accuracy."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.batching.pieces import Piece, corrupt_piece, sorted_batches
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Head, Model
from unmask.heads.prediction import Term
from unmask.objectives.features import Recurrence, RecurrenceMemory
from unmask.objectives.objective import AnyObjective
from unmask.objectives.published import components_of
from unmask.shards.concatenated import document_separator_ids
from unmask.text.documents import Document
from unmask.tokenizers.encode import Tokenizer

PIECES_PER_WINDOW = 256
"""Pieces of text that are corrupted together and sorted by length."""


BATCH_TOKENS = 8192
"""Tokens per forward pass."""


@dataclass(frozen=True, kw_only=True)
class HeldOutEvaluation:
    """The metrics of a model on held-out text."""

    documents: int
    words: int
    """Runs of characters without white space."""
    bytes: int
    """Bytes of the text in UTF-8."""
    tokens: int
    """Tokens of the text, without special tokens."""
    n_targets: Mapping[str, int]
    """Target positions by loss term: "masked", "next_sentence", "next_token", "denoised"; in a
    mixture with named components by term and component: "masked_forward"."""
    loss: Mapping[str, float]
    """Nats per target, by term."""
    accuracy: Mapping[str, float]
    """Accuracy by term."""
    perplexity: Mapping[str, float]
    """exp of the loss, for terms that predict tokens or words."""
    word_perplexity: float | None
    """exp of total nats per word, for causal models, which predict the whole text. None also on
    overflow, in languages with few spaces."""
    bits_per_byte: float | None
    """Total bits per byte, for causal models."""

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as plain data."""
        return {{"n_targets": "asked"}.get(name, name): x for name, x in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class HeldOutConfig:
    """Settings for held-out text."""

    sequence_length: int
    """Maximum length of a piece in tokens, special tokens included."""
    seed: int = 0
    """Random seed of the objective."""
    memory_length: int = 0
    """Memory length of each layer in positions; may exceed that of training."""
    on_progress: Callable[[int], None] | None = None
    """Called after each batch with the number of tokens processed, padding included."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")


def evaluate(
    model: Model,
    tokenizer: Tokenizer,
    objective: AnyObjective,
    documents: Iterable[Document],
    config: HeldOutConfig,
) -> HeldOutEvaluation:
    """Compute the pretraining objective on held-out text, without training.

    Documents are split into consecutive pieces that fit `sequence_length`, without overlap. Each
    piece is processed independently: a causal model predicts every token of the text once, the
    first of each piece from the start token only, and not the end of a document. So perplexity is
    somewhat higher than with the full context (a sliding window would cost a forward pass per
    stride).

    With a memory, documents are concatenated, and each layer attends to the hidden states before
    each piece (Dai et al. 2019, arXiv:1901.02860, section 3.2): each token is predicted from its
    piece and the memory, at the cost of the piece. Document separators are inputs, not targets.

    For masked models, the same seed masks the same tokens. Negative next sentences are from another
    document among the next 256 pieces. Each named component of a mixture is computed on the whole
    text and reported separately.

    Args:
        model: a model with a head for at least one loss term of the objective.
        tokenizer: the tokenizer of the model.
        objective: the pretraining objective.
        documents: read one by one; `source` is the language if there are language tokens.
        config: length of pieces, memory and seed.

    Raises:
        ValueError: the model has no head for any loss term of the objective, there are no targets,
            or there is a memory and the model does not support one or is not causal.
        FloatingPointError: the loss is not finite.
    """
    tokenizer.check_single_vocabulary("the objective of pretraining")
    terms = {spec.objective_term for spec in model.head_specs.values()}
    if not terms & set(objective.loss_terms):
        raise ValueError(
            f"this model has no head for {' or '.join(objective.loss_terms)} "
            f"(it has {', '.join(sorted(terms)) or 'none'})"
        )
    counts = _TextCounts()
    heads = [
        cast(Head, model.heads[name])
        for name, spec in model.head_specs.items()
        if spec.objective_term in objective.loss_terms
    ]
    sums: dict[tuple[str, str], _TermSum] = {}
    n_read = 0
    components: Mapping[str, AnyObjective] = components_of(objective) or {"": objective}
    if config.memory_length:
        _check_memory(model, objective)
        memory = RecurrenceMemory(config.memory_length)
        stream = _batches_with_memory(documents, tokenizer, config.sequence_length, memory, counts)
        batches = (("", batch) for batch in stream)
    else:
        max_text_length = objective.max_text_length(config.sequence_length, tokenizer.special_ids)
        windows = _windows(_split_pieces(documents, tokenizer, max_text_length, counts))
        batches = _independent_batches(windows, components, tokenizer, config.seed)
    with evaluation_mode(model), torch.random.fork_rng():
        torch.manual_seed(config.seed)  # for samples of a generator
        for component, batch in batches:
            terms = {name for head in heads for name in head.count_targets(batch)}
            for name, term in model(batch.to(model.device)).terms.items():
                if name in terms:
                    sums.setdefault((name, component), _TermSum()).add(term)
            n_read += batch.inputs.numel()
            if config.on_progress is not None:
                config.on_progress(n_read)
    sums = {name: s for name, s in sums.items() if s.n_targets}
    if not sums:
        raise ValueError(
            f"no targets: the text has {counts.n_documents} documents and {counts.n_tokens} tokens"
        )
    causal = [name for name, objective in components.items() if objective.causal]
    whole_text_term = next(
        (s for (name, part), s in sums.items() if _covers_whole_text(name, part, causal)), None
    )
    total_nats = None if whole_text_term is None else whole_text_term.total_loss
    return _make_evaluation(sums, counts, _token_terms(model), total_nats)


def _check_memory(model: Model, objective: AnyObjective) -> None:
    if not objective.causal:
        raise ValueError("memory_length: this model is not causal; leave it out, or 0")
    try:
        model.check_supports_memory()
    except ValueError as error:
        raise ValueError(f"memory_length: {error}; leave it out, or 0") from None


def _covers_whole_text(name: str, component: str, causal_components: Sequence[str]) -> bool:
    """Return whether a term covers the whole text."""
    return name in ("next_token", "permuted") and component in causal_components


def _independent_batches(
    windows: Iterable[list[Piece]],
    components: Mapping[str, AnyObjective],
    tokenizer: Tokenizer,
    seed: int,
) -> Iterator[tuple[str, Batch]]:
    """Yield batches of independent pieces for each component of an objective."""
    for pieces in windows:
        for name, objective in components.items():
            examples = [
                corrupt_piece(pieces, i, objective, tokenizer, seed) for i in range(len(pieces))
            ]
            for batch in sorted_batches(examples, tokenizer, BATCH_TOKENS):
                yield name, batch


def _batches_with_memory(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    sequence_length: int,
    memory: RecurrenceMemory,
    counts: "_TextCounts",
) -> Iterator[Batch]:
    """Yield a batch for each piece of a text, continuing with the memory."""
    special = tokenizer.special_ids
    separator = np.array(document_separator_ids(special), np.int64)
    previous, ids, targets = special.start, [separator[:0]], [separator[:0]]

    for document in documents:
        document_ids = tokenizer.encode(document.text).ids.astype(np.int64)
        counts.n_documents += 1
        counts.n_words += len(document.text.split())
        counts.n_bytes += len(document.text.encode())
        text = np.concatenate((*ids, document_ids, separator))
        labels = np.concatenate((*targets, document_ids, np.full(len(separator), IGNORE_INDEX)))
        n_complete = len(text) // sequence_length * sequence_length
        for start in range(0, n_complete, sequence_length):
            piece = slice(start, start + sequence_length)
            counts.n_tokens += int((labels[piece] != IGNORE_INDEX).sum())
            yield batch_with_memory(previous, text[piece], labels[piece], memory)
            previous = int(text[start + sequence_length - 1])
        ids, targets = [text[n_complete:]], [labels[n_complete:]]
    if len(ids[0]):
        counts.n_tokens += int((targets[0] != IGNORE_INDEX).sum())
        yield batch_with_memory(previous, ids[0], targets[0], memory)


def batch_with_memory(
    previous_token: int,
    text: Int[np.ndarray, "t"],
    targets: Int[np.ndarray, "t"],
    memory: RecurrenceMemory,
) -> Batch:
    """Return the batch of a piece that continues a text with a memory."""
    return Batch(
        inputs=torch.from_numpy(np.concatenate(([previous_token], text[:-1])))[None],
        visibility=Visibility(causal=True),
        targets=torch.from_numpy(targets)[None],
        target_positions=torch.from_numpy(np.flatnonzero(targets != IGNORE_INDEX)),
        features=(Recurrence(memory=memory),),
    )


@dataclass
class _TextCounts:
    """Counts of the text."""

    n_documents: int = 0
    n_words: int = 0
    n_bytes: int = 0
    n_tokens: int = 0


@dataclass
class _TermSum:
    """Accumulated values of a term."""

    total_loss: float = 0.0
    n_targets: int = 0
    n_correct: int = 0

    def add(self, term: Term) -> None:
        """Add the term of a batch."""
        self.total_loss += float(term.total)
        self.n_targets += term.count
        self.n_correct += 0 if term.n_correct is None else int(term.n_correct)


def _make_evaluation(
    sums_by_component: Mapping[tuple[str, str], _TermSum],
    counts: _TextCounts,
    token_terms: set[str],
    total_nats: float | None,
) -> HeldOutEvaluation:
    terms = {f"{name}_{part}" if part else name: name for name, part in sums_by_component}
    sums = dict(zip(terms, sums_by_component.values(), strict=True))
    loss = {name: s.total_loss / s.n_targets for name, s in sums.items()}
    for name, value in loss.items():
        if not math.isfinite(value):
            raise FloatingPointError(f"the loss of {name!r} is not finite: the weights are damaged")
    perplexity = {n: _finite_exp(nats) for n, nats in loss.items() if terms[n] in token_terms}
    return HeldOutEvaluation(
        documents=counts.n_documents,
        words=counts.n_words,
        bytes=counts.n_bytes,
        tokens=counts.n_tokens,
        n_targets={name: s.n_targets for name, s in sums.items()},
        loss=loss,
        accuracy={name: s.n_correct / s.n_targets for name, s in sums.items()},
        perplexity={name: value for name, value in perplexity.items() if value is not None},
        word_perplexity=None
        if total_nats is None
        else _finite_exp(total_nats / max(counts.n_words, 1)),
        bits_per_byte=None
        if total_nats is None
        else total_nats / math.log(2) / max(counts.n_bytes, 1),
    )


def _token_terms(model: Model) -> set[str]:
    """Return the terms of heads that predict tokens."""
    specs = model.head_specs.values()
    return {term for spec in specs if spec.gives_perplexity for term in spec.terms}


def _finite_exp(nats: float) -> float | None:
    try:
        return math.exp(nats)
    except OverflowError:
        return None


def _split_pieces(
    documents: Iterable[Document], tokenizer: Tokenizer, max_text_length: int, counts: _TextCounts
) -> Iterator[Piece]:
    number = 0
    for document in documents:
        tokens = tokenizer.encode(document.text)
        for start in range(0, len(tokens), max_text_length):
            text = tokens[start : start + max_text_length]
            counts.n_tokens += len(text)
            yield Piece(number, counts.n_documents, text, document.source)
            number += 1
        counts.n_documents += 1
        counts.n_words += len(document.text.split())
        counts.n_bytes += len(document.text.encode())


def _windows(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    window: list[Piece] = []
    for piece in pieces:
        window.append(piece)
        if len(window) == PIECES_PER_WINDOW:
            yield window
            window = []
    if window:
        yield window
