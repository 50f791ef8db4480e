"""Perplexity per word of whole files, with the customary counts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from unmask.adapters.prefix import max_text_length
from unmask.batching.windows import limit_length
from unmask.evaluation.answer_methods import PromptedModel
from unmask.evaluation.likelihood import (
    ContextContinuation,
    LikelihoodWindows,
    token_likelihoods,
)
from unmask.evaluation.perplexity import batch_with_memory
from unmask.evaluation.prompting import MetricValue, PromptingConfig, TaskScore, find_task_file
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.objectives.features import RecurrenceMemory
from unmask.text.lines import read_lines
from unmask.tokenizers.encode import Tokenizer

MAX_LINE_CHARACTERS = 2**22
"""Maximum characters of a line."""
WINDOWS_PER_REPORT = 64
"""Windows between progress reports."""


@dataclass(frozen=True, kw_only=True)
class WordPerplexityTask:
    """A file that is read as one stream of lines.

    `word_perplexity` is exp of total nats per word, where words are separated by white space and
    each line adds an <eos>, as for WikiText and the Penn Treebank (Merity et al. 2016,
    arXiv:1609.07843; Mikolov et al. 2010). The model predicts the text as written, <unk> as letters
    if it is no token, and each line's end: the newline, or the end token if the tokenizer has no
    newline.

    A model with a memory reads the file piece by piece (`PromptedModel.memory_length`), as
    customary for LSTMs and Transformer-XL; others in windows.
    """

    name: str
    test: str | tuple[str, ...]
    """Test file, a path within the data folder; of several, the first that exists."""
    paper: str = ""

    def score(
        self, model: PromptedModel, folder: Path, prompting_config: PromptingConfig
    ) -> TaskScore:
        """Score a causal model on the whole file; `rows` counts its first lines.

        Raises:
            FileNotFoundError: the file is not in the folder.
            ValueError: the model is not causal, or the file has no words.
        """
        if not is_causal_model(model.model):
            raise ValueError(f"{self.name}: needs a causal model")
        if prompting_config.shots:
            raise ValueError(f"{self.name}: has no shots, got {prompting_config.shots}")
        path = find_task_file(folder, self.test, self.name)
        text = [line for _, line, _ in read_lines(path, MAX_LINE_CHARACTERS)][
            : prompting_config.rows
        ]
        words = sum(len(line.split()) for line in text)
        if not words:
            raise ValueError(f"{path}: has no words")
        ids = _encode_stream(model.tokenizer, text)
        nats = (
            _nats_with_memory(model, ids, prompting_config)
            if model.memory_length
            else _nats_in_windows(model, ids, prompting_config)
        )
        n_bytes = sum(len(line.encode()) + 1 for line in text)
        return TaskScore(
            task=self.name,
            shots=0,
            primary_metric="word_perplexity",
            metrics={
                "word_perplexity": _perplexity_of(nats / (words + len(text))),
                "token_perplexity": _perplexity_of(nats / len(ids)),
                "bits_per_byte": MetricValue(nats / math.log(2) / n_bytes),
            },
            n_examples=words + len(text),
            notes=(
                f"{self.name}: {words:,} words and {len(text):,} ends of lines are counted; "
                f"{len(ids):,} tokens were predicted",
            ),
        )


def is_causal_model(model: Model) -> bool:
    """Return whether a model is a causal language model."""
    return model.predicts_next_token and not model.architecture.is_encoder_decoder


def _perplexity_of(nats: float) -> MetricValue:
    return MetricValue(float(np.exp(np.float64(min(nats, 700.0)))))


def _encode_stream(tokenizer: Tokenizer, text: Sequence[str]) -> Int[np.ndarray, "t"]:
    """Encode lines with their ends.

    Raises:
        ValueError: there is no token for an end.
    """
    if "\n" in tokenizer.decode(tokenizer.encode_ids_batch(["a\na"])[0]):
        return tokenizer.encode_ids_batch(["".join(f"{line}\n" for line in text)])[0]
    end = tokenizer.special_ids.end
    if end is None:
        raise ValueError("this tokenizer has no token for the end of a line, or of a text")
    return np.concatenate([np.append(ids, end) for ids in tokenizer.encode_ids_batch(text)])


def _window_length(model: PromptedModel) -> int:
    """Return the window length in tokens.

    Raises:
        ValueError: it is unlimited.
    """
    length = limit_length(
        max_text_length(model.model, model.model.backbone.decoder_stack), model.sequence_length
    )
    if length is None:
        raise ValueError("this model has no limit of positions: give a sequence_length")
    return length


def _nats_with_memory(
    model: PromptedModel, ids: Int[np.ndarray, "t"], prompting_config: PromptingConfig
) -> float:
    """Compute the nats of all tokens in pieces that continue each other.

    Raises:
        ValueError: there is a stride as well, or the model does not support a memory.
    """
    if prompting_config.stride is not None:
        raise ValueError(
            f"stride needs windows, but this model has a memory of {model.memory_length} positions "
            "for each piece; leave out stride, or set memory_length to 0"
        )
    try:
        model.model.check_supports_memory()
    except ValueError as error:
        raise ValueError(f"memory_length: {error}; leave it out, or 0") from None
    length = _window_length(model)
    heads = list(model.model.language_heads.values())
    if not heads:
        raise ValueError("this model has no language head")
    memory, total = RecurrenceMemory(model.memory_length), 0.0
    previous = model.tokenizer.special_ids.start
    with evaluation_mode(model.model):
        for start in range(0, len(ids), length):
            piece = ids[start : start + length].astype(np.int64)
            batch = batch_with_memory(previous, piece, piece, memory).to(model.model.device)
            term = model.model(batch).terms[heads[0].spec.term]
            total, previous = total + float(term.total), int(piece[-1])
            if (
                prompting_config.on_progress is not None
                and start // length % WINDOWS_PER_REPORT == 0
            ):
                prompting_config.on_progress(min(start + length, len(ids)), len(ids))
    return total


def _nats_in_windows(
    model: PromptedModel, ids: Int[np.ndarray, "t"], prompting_config: PromptingConfig
) -> float:
    """Compute the nats of all tokens, in batches of windows."""
    special = model.tokenizer.special_ids
    length = _window_length(model)
    stride = length if prompting_config.stride is None else prompting_config.stride
    windows = LikelihoodWindows(
        sequence_length=model.sequence_length, stride=prompting_config.stride
    )
    total, start = 0.0, 0
    while start < len(ids):
        # Split at windows, so that the parts have the same windows as the whole.
        stop = (
            start + WINDOWS_PER_REPORT * stride if start else length + WINDOWS_PER_REPORT * stride
        )
        pair = ContextContinuation(
            context=tuple(ids[max(0, start - length) : start].tolist()),
            continuation=tuple(ids[start:stop].tolist()),
        )
        likelihood = token_likelihoods(
            model.model,
            special,
            [pair],
            windows=windows,
        )[0]
        total, start = total - likelihood.log_likelihood, min(stop, len(ids))
        if prompting_config.on_progress is not None:
            prompting_config.on_progress(start, len(ids))
    return total
