"""Likelihood of continuations by decoders, encoder-decoders and masked models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.adapters.prefix import max_text_length
from unmask.batch import IGNORE_INDEX, WORD_START, Batch, Example
from unmask.batching.collate import example_length, group_by_length, pad_examples
from unmask.batching.prefix_tree import share_prefixes
from unmask.batching.windows import limit_length, strided_windows
from unmask.config import check_word
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.language.linear_cross_entropy import log_probabilities_at
from unmask.heads.model import Model
from unmask.model.requested_states import RequestedStates
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds

PseudoLikelihoodMasking = Literal["word", "token"]
"""Masking for the pseudo-log-likelihood of a token: the token and those after it in its word, or
the token only."""

CONTINUATIONS_PER_CHUNK = 1024
"""Continuations per batch of preparation."""
MAX_LOGITS = 2**25
"""Maximum number of logits in memory: 128 MiB."""


@dataclass(frozen=True, kw_only=True)
class ContinuationLikelihood:
    """Likelihood of a continuation after its context."""

    log_likelihood: float
    """Log-probability in nats; for masked models the pseudo-log-likelihood."""
    n_tokens: int
    n_bytes: int
    """Bytes of the continuation in UTF-8, without leading white space."""
    is_greedy: bool
    """Whether every token of the continuation is the most likely one."""
    n_truncated_tokens: int = 0
    """Number of context tokens truncated on the left."""

    @property
    def per_token(self) -> float:
        """The mean over tokens."""
        return self.log_likelihood / self.n_tokens

    @property
    def per_byte(self) -> float:
        """The mean over bytes."""
        return self.log_likelihood / max(self.n_bytes, 1)


@dataclass(frozen=True, kw_only=True)
class ContextContinuation:
    """A context and its continuation, in tokens."""

    context: tuple[int, ...]
    continuation: tuple[int, ...]
    word_starts: tuple[bool, ...] = ()
    """Which tokens of the continuation start a word; for masked models only."""
    decoder_context: tuple[int, ...] = ()
    """Tokens that the decoder reads before the continuation; for encoder-decoders only."""
    following: tuple[int, ...] = ()
    """Tokens after the continuation; for masked models only."""


@dataclass(frozen=True, kw_only=True)
class LikelihoodWindows:
    """Window sizes for long texts."""

    sequence_length: int | None = None
    """Maximum window length in tokens, special tokens included. None: the model's number of
    positions."""
    stride: int | None = None
    """Number of targets in a window after the first. None: as many as fit."""
    batch_tokens: int = 8192
    """Number of tokens in a batch."""


def continuation_likelihoods(
    model: Model,
    tokenizer: Tokenizer,
    contexts: Sequence[str],
    continuations: Sequence[str],
    *,
    pll_masking: PseudoLikelihoodMasking = "word",
    windows: LikelihoodWindows = LikelihoodWindows(),
) -> list[ContinuationLikelihood]:
    """Compute the likelihood of each continuation after its context, which may be empty.

    A decoder reads both as one text: a space at the end of the context belongs to the continuation.
    If a token would cross the boundary, each is encoded separately. An empty context is the start
    token. An encoder-decoder reads the context and predicts the continuation, without an end token.
    A masked model reads both and predicts each token of the continuation separately: the
    pseudo-log-likelihood of Salazar et al. 2020, arXiv:1910.14659, section 2.3 (`pll_masking`
    "token"), or its form of Kauf and Ivanova 2023, arXiv:2305.10588, section 3, in which later
    tokens of the same word are masked too ("word").

    The context is truncated on the left. A continuation that does not fit is predicted in windows,
    each token once, given all previous tokens that fit besides the targets of its window. Results
    do not depend on other items, up to rounding.

    Args:
        model: a model with a language head.
        tokenizer: the tokenizer of the model.
        contexts: one context for each continuation.
        continuations: continuations, with a leading space if there is one.
        pll_masking: masking for a masked model.
        windows: window sizes.

    Raises:
        ValueError: a continuation has no token, the model has no language head, or `windows` do not
            fit it.
        FloatingPointError: a logit is not a number.
    """
    tokenizer.check_single_vocabulary("likelihood")
    tokenizer.check_reads_forward("likelihood")
    check_word("pll_masking", pll_masking, PseudoLikelihoodMasking)
    results: list[ContinuationLikelihood] = []
    for start in range(0, len(continuations), CONTINUATIONS_PER_CHUNK):
        some = slice(start, start + CONTINUATIONS_PER_CHUNK)
        texts = continuations[some]
        pairs = _encode_pairs(
            model, tokenizer, contexts[some], texts, mark_word_starts=pll_masking == "word"
        )
        for i, pair in enumerate(pairs):
            if not pair.continuation:
                raise ValueError(f"continuation {start + i + 1} has no token: {texts[i]!r}")
        likelihoods = token_likelihoods(
            model,
            tokenizer.special_ids,
            pairs,
            windows=windows,
        )
        results += [
            replace(likelihood, n_bytes=len(text.lstrip().encode()))
            for likelihood, text in zip(likelihoods, texts, strict=True)
        ]
    return results


def _encode_pairs(
    model: Model,
    tokenizer: Tokenizer,
    contexts: Sequence[str],
    continuations: Sequence[str],
    *,
    mark_word_starts: bool,
) -> list[ContextContinuation]:
    """Encode texts for the kind of model."""
    has_encoder = model.architecture.is_encoder_decoder
    cuts = [len(c) if has_encoder else len(c.rstrip()) for c in contexts]
    after = [c[n:] + t for c, n, t in zip(contexts, cuts, continuations, strict=True)]
    before = [c[:n] for c, n in zip(contexts, cuts, strict=True)]
    first, second = tokenizer.encode_ids_batch(before), tokenizer.encode_ids_batch(after)
    if has_encoder:
        return [_make_pair(a, b) for a, b in zip(first, second, strict=True)]
    texts = [a + b for a, b in zip(before, after, strict=True)]
    if model.predicts_next_token or not mark_word_starts:
        joint = tokenizer.encode_ids_batch(texts)
        joint_starts = [np.ones(len(ids), bool) for ids in joint]
        second_starts = [np.ones(len(ids), bool) for ids in second]
    else:
        encoded = tokenizer.encode_batch(texts)
        joint = [t.ids for t in encoded]
        joint_starts = [(t.boundaries & WORD_START) > 0 for t in encoded]
        second_starts = [(t.boundaries & WORD_START) > 0 for t in tokenizer.encode_batch(after)]
    pairs: list[ContextContinuation] = []
    for ids, a, b, m, n in zip(joint, first, second, joint_starts, second_starts, strict=True):
        together = len(ids) > len(a) and bool((ids[: len(a)] == a).all())
        pairs.append(_make_pair(a, ids[len(a) :], m[len(a) :]) if together else _make_pair(a, b, n))
    return pairs


def _make_pair(
    context: Int[np.ndarray, "_"],
    continuation: Int[np.ndarray, "_"],
    word_starts: "np.ndarray | tuple[bool, ...]" = (),
) -> ContextContinuation:
    return ContextContinuation(
        context=tuple(context.tolist()),
        continuation=tuple(continuation.tolist()),
        word_starts=tuple(map(bool, word_starts)),
    )


@dataclass(frozen=True, kw_only=True)
class _ScoredInput:
    """An input and its targets."""

    inputs: tuple[int, ...]
    source: tuple[int, ...] | None = None
    targets: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """Column, token, and index of the pair."""


@dataclass(kw_only=True)
class _LikelihoodSum:
    """Accumulated likelihood of a pair."""

    log_likelihood: float = 0.0
    is_greedy: bool = True
    n_truncated_tokens: int = 0


class _ScoredInputs:
    """The distinct inputs of pairs: one shared by several pairs is computed once."""

    def __init__(self, n_pairs: int) -> None:
        self.sums = [_LikelihoodSum() for _ in range(n_pairs)]
        self.input_by_ids: dict[tuple[tuple[int, ...], tuple[int, ...] | None], _ScoredInput] = {}

    def add_target(
        self, inputs: tuple[int, ...], column: int, token: int, pair_index: int,
        source: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        """Add a token of a pair as the target of a column of an input."""
        scored_input = self.input_by_ids.setdefault(
            (inputs, source), _ScoredInput(inputs=inputs, source=source)
        )
        scored_input.targets.append((column, token, pair_index))

    def add(
        self,
        targets: Sequence[Sequence[tuple[int, int]]],
        log_probabilities: Sequence[float],
        is_greedy: Sequence[bool],
    ) -> None:
        """Add the log-probabilities of targets, (token, pair), to the sums of their pairs."""
        pairs = (pair for some in targets for _, pair in some)
        for i, log, greedy in zip(pairs, log_probabilities, is_greedy, strict=True):
            self.sums[i].log_likelihood += log
            self.sums[i].is_greedy &= greedy


def token_likelihoods(
    model: Model,
    special_ids: SpecialTokenIds,
    pairs: Sequence[ContextContinuation],
    *,
    windows: LikelihoodWindows = LikelihoodWindows(),
) -> list[ContinuationLikelihood]:
    """Compute the likelihood of continuations in tokens; `n_bytes` is unknown, hence 0.

    Args and errors are those of `continuation_likelihoods`.
    """
    _ = model.language_head  # raises if there is none
    builder = _InputBuilder(model, special_ids, windows.sequence_length, windows.stride)
    scored_inputs = _ScoredInputs(len(pairs))
    for i, pair in enumerate(pairs):
        builder(scored_inputs, i, pair)
    with evaluation_mode(model):
        _score_inputs(model, special_ids, scored_inputs, windows.batch_tokens)
    return [
        ContinuationLikelihood(
            log_likelihood=s.log_likelihood,
            n_tokens=len(pair.continuation),
            n_bytes=0,
            is_greedy=s.is_greedy,
            n_truncated_tokens=s.n_truncated_tokens,
        )
        for s, pair in zip(scored_inputs.sums, pairs, strict=True)
    ]


class _InputBuilder:
    """Builds the inputs of a pair for a kind of model."""

    def __init__(
        self,
        model: Model,
        special_ids: SpecialTokenIds,
        sequence_length: int | None,
        stride: int | None,
    ) -> None:
        self.special_ids, self.stride = special_ids, stride
        self.sequence_length = limit_length(
            max_text_length(model, model.backbone.decoder_stack), sequence_length
        )
        self.max_source_length = limit_length(
            max_text_length(model, model.backbone.encoder_stack), sequence_length
        )
        if model.architecture.is_encoder_decoder:
            self.add_pair = self._add_encoder_decoder
        elif model.predicts_next_token:
            self.add_pair = self._add_causal
        elif special_ids.mask is None:
            raise ValueError("the tokenizer has no mask token, which this model needs")
        else:
            self.add_pair = self._add_masked

    def __call__(
        self, scored_inputs: _ScoredInputs, pair_index: int, pair: ContextContinuation
    ) -> None:
        """Add the inputs of pair `pair_index`."""
        self.add_pair(scored_inputs, pair_index, pair)

    def _max_text_tokens(self, n_tokens_taken: int) -> int:
        """Return the number of text tokens that fit besides special tokens.

        Raises:
            ValueError: fewer than two fit, or fewer than the stride.
        """
        width = 2**31 if self.sequence_length is None else self.sequence_length - n_tokens_taken
        if width < 2:
            raise ValueError(f"sequence_length {self.sequence_length} leaves no room for text")
        if self.stride is not None and not 1 <= self.stride <= width:
            raise ValueError(f"stride must be from 1 to {width}, got {self.stride}")
        return width

    def _add_causal(
        self, scored_inputs: _ScoredInputs, pair_index: int, pair: ContextContinuation
    ) -> None:
        prefix, context = self.special_ids.prefix, pair.context
        if not prefix and not context:
            context = (self.special_ids.start,)
        self._add_autoregressive(
            scored_inputs, pair_index, prefix, context, pair.continuation, None
        )

    def _add_encoder_decoder(
        self, scored_inputs: _ScoredInputs, pair_index: int, pair: ContextContinuation
    ) -> None:
        special = self.special_ids
        n = n_read = len(pair.context)
        if self.max_source_length is not None:
            n_special = len(special.prefix) + len(special.suffix)
            n_read = min(n, max(self.max_source_length - n_special, 0))
        source = (*special.prefix, *pair.context[n - n_read :], *special.suffix)
        source = source or (special.start,)
        prefix = (special.start, *special.decoder_prefix)
        self._add_autoregressive(
            scored_inputs, pair_index, prefix, pair.decoder_context, pair.continuation, source
        )
        scored_inputs.sums[pair_index].n_truncated_tokens = n - n_read

    def _add_autoregressive(
        self,
        scored_inputs: _ScoredInputs,
        pair_index: int,
        prefix: tuple[int, ...],
        context: tuple[int, ...],
        continuation: tuple[int, ...],
        source: tuple[int, ...] | None,
    ) -> None:
        """Predict each token from the previous ones; the last is no input."""
        row, n = (*context, *continuation), len(prefix)
        width = self._max_text_tokens(n) + 1
        for low, a, b in strided_windows(len(context), len(row), width, self.stride or width - 1):
            if a == len(context):
                scored_inputs.sums[pair_index].n_truncated_tokens = low
            inputs = (*prefix, *row[low : b - 1])
            for t in range(a, b):
                scored_inputs.add_target(inputs, n + t - low - 1, row[t], pair_index, source)

    def _add_masked(
        self, scored_inputs: _ScoredInputs, pair_index: int, pair: ContextContinuation
    ) -> None:
        """Predict each token with it and the following ones of its word masked.

        Raises:
            ValueError: tokens follow the continuation, and the whole text does not fit.
        """
        special, n = self.special_ids, len(pair.context)
        assert special.mask is not None
        row = (*pair.context, *pair.continuation)
        word_starts = (*[True] * n, *(pair.word_starts or [True] * len(pair.continuation)))
        width = self._max_text_tokens(len(special.prefix) + len(special.suffix))
        if pair.following and len(row) + len(pair.following) > width:
            raise ValueError(
                f"a text around a continuation must have at most {width:,} tokens, "
                f"got {len(row) + len(pair.following):,}"
            )
        for low, a, b in strided_windows(n, len(row), width, self.stride or width):
            if a == n:
                scored_inputs.sums[pair_index].n_truncated_tokens = low
            for t in range(a, b):
                end = next((u for u in range(t + 1, b) if word_starts[u]), b)
                masked = (*row[low:t], *[special.mask] * (end - t), *row[end:b], *pair.following)
                inputs = (*special.prefix, *masked, *special.suffix)
                scored_inputs.add_target(inputs, len(special.prefix) + t - low, row[t], pair_index)


def _score_inputs(
    model: Model, special_ids: SpecialTokenIds, scored_inputs: _ScoredInputs, batch_tokens: int
) -> None:
    """Run the model over all inputs and sum the log-probabilities of their targets."""
    rows = _make_rows(model, list(scored_inputs.input_by_ids.values()), batch_tokens)
    chunk = max(MAX_LOGITS // model.vocab_size, 1)
    for group in group_by_length([example_length(row.example) for row in rows], batch_tokens):
        some = [rows[i] for i in group]
        batch = model.pad_for_network(pad_examples([row.example for row in some], special_ids)).to(
            model.device
        )
        if special_ids.mask is not None:
            batch = model.mask_two_stream(batch, special_ids.mask)
        places = [(i, column) for i, row in enumerate(some) for column in row.targets]
        row, column = torch.tensor(places).T
        hidden = _hidden_states_at(model, batch, row.to(model.device), column.to(model.device))
        targets = [target for row in some for target in row.targets.values()]
        for k in range(0, len(places), chunk):
            part = slice(k, k + chunk)
            scored_inputs.add(
                targets[part], *_log_probabilities(model, hidden[part], targets[part])
            )


@dataclass(frozen=True, kw_only=True)
class _ScoredRow:
    """A row of the batch, of one input, or of several that begin alike."""

    example: Example
    targets: Mapping[int, Sequence[tuple[int, int]]]
    """Tokens that are targets of a column, and the pair of each."""


def _make_rows(model: Model, inputs: Sequence[_ScoredInput], batch_tokens: int) -> list[_ScoredRow]:
    """Lay inputs in rows: what several of them begin with is computed once, if the network can."""
    backbone = model.backbone
    if model.adapters or backbone.unsupported_reason("prefix_tree") is not None:
        rows = [(_make_example(x, model), [(np.arange(len(x.inputs)), x)]) for x in inputs]
    else:
        shared = share_prefixes([x.inputs for x in inputs], batch_tokens, backbone.width)
        rows = [
            (
                tree.to_example(),
                [(c, inputs[i]) for c, i in zip(tree.columns, tree.texts, strict=True)],
            )
            for tree in shared
        ]
    return [_ScoredRow(example=e, targets=_merge_targets(texts)) for e, texts in rows]


def _merge_targets(
    texts: Sequence[tuple[Int[np.ndarray, "_"], _ScoredInput]],
) -> dict[int, list[tuple[int, int]]]:
    """Gather the targets of each column of a row.

    Args:
        texts: the inputs of the row, and the column of each of their tokens.
    """
    targets: dict[int, list[tuple[int, int]]] = {}
    for columns, scored_input in texts:
        for at, token, pair_index in scored_input.targets:
            targets.setdefault(int(columns[at]), []).append((token, pair_index))
    return targets


def _make_example(scored_input: _ScoredInput, model: Model) -> Example:
    ids = np.array(scored_input.inputs, np.int64)
    return Example(
        inputs=ids,
        targets=np.full(len(ids), IGNORE_INDEX, np.int64),
        rank=np.arange(len(ids)) if model.predicts_next_token else None,
        source=None if scored_input.source is None else np.array(scored_input.source, np.int64),
    )


def _hidden_states_at(
    model: Model, batch: Batch, row: Int[Tensor, "n"], columns: Int[Tensor, "n"]
) -> Float[Tensor, "n d"]:
    """Return hidden states at positions; if one per text, the last layer computes only these."""
    batch = replace(batch, targets=None, target_positions=None)
    if model.supports_last_only and len(row) == len(batch.inputs) and bool((row.diff() == 1).all()):
        requested = RequestedStates(selected_column=columns)
        return model.hidden_states(batch.with_feature(requested))[:, 0]
    return model.hidden_states(batch)[row, columns]


def _log_probabilities(
    model: Model, hidden: Float[Tensor, "n d"], targets: Sequence[Sequence[tuple[int, int]]]
) -> tuple[list[float], list[bool]]:
    """Return the log-probability of each target, and whether it is the most likely token.

    Args:
        model: a model with a language head.
        hidden: hidden states of some positions.
        targets: tokens and pairs of each position, in order.
    """
    at = [(i, token) for i, some in enumerate(targets) for token, _ in some]
    row, token = torch.tensor(at, device=hidden.device).T
    found, is_likeliest = log_probabilities_at(model.language_head.logits(hidden), row, token)
    if bool(found.isnan().any()):
        raise FloatingPointError("the model's logits are not finite: its weights are damaged")
    return found.tolist(), is_likeliest.tolist()
