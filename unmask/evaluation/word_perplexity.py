"""Perplexity per word of whole files, counted as is customary for each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from unmask.adapters.prefix import max_text_length
from unmask.evaluation.answer_methods import PromptedModel
from unmask.evaluation.likelihood import (
    ContextContinuation,
    LikelihoodWindows,
    limit_length,
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
"""Characters that a line may have."""
WINDOWS_PER_REPORT = 64
"""Windows that are read between reports of progress."""


@dataclass(frozen=True, kw_only=True)
class WordPerplexityTask:
    """A file that is read as one stream, lines in their order.

    `word_perplexity` is exp of all nats by all words, which are between white space, plus one <eos>
    for each line: as WikiText and the Penn Treebank are counted (Merity et al. 2016,
    arXiv:1609.07843; Mikolov et al. 2010). The model predicts the text as it is written, <unk>
    letter by letter where that is not a token of its own, and each line's end: the newline, or,
    where its tokenizer writes none, the token that ends a text.

    A model with a memory reads the file from its beginning to its end, piece by piece
    (`PromptedModel.memory_length`), as is customary for LSTMs and Transformer-XL; any other in
    windows.
    """

    name: str
    test: str | tuple[str, ...]
    """The file, by its path within the folder of data; of several, the first that is there."""
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
            raise ValueError(f"{self.name}: is of models that only read forward")
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
    """Return whether a model reads and predicts one text, from left to right."""
    return model.predicts_next_token and not model.architecture.is_encoder_decoder


def _perplexity_of(nats: float) -> MetricValue:
    return MetricValue(float(np.exp(np.float64(min(nats, 700.0)))))


def _encode_stream(tokenizer: Tokenizer, text: Sequence[str]) -> Int[np.ndarray, "t"]:
    """Encode lines, with their ends.

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
    """Return how many tokens are read together.

    Raises:
        ValueError: any number.
    """
    length = limit_length(
        max_text_length(model.model, model.model.backbone.decoder_stack), model.sequence_length
    )
    if length is None:
        raise ValueError("this model has any number of positions: give a sequence_length")
    return length


def _nats_with_memory(
    model: PromptedModel, ids: Int[np.ndarray, "t"], prompting_config: PromptingConfig
) -> float:
    """Compute the nats of all tokens in pieces, each of which continues the one before.

    Raises:
        ValueError: there is a stride as well, or the model cannot read a memory.
    """
    if prompting_config.stride is not None:
        raise ValueError(
            f"stride is of windows, and this model remembers {model.memory_length} positions "
            "before each piece; leave out stride, or give memory_length 0"
        )
    try:
        model.model.check_supports_memory()
    except ValueError as error:
        raise ValueError(f"memory_length: {error}; leave it out, or 0") from None
    length = _window_length(model)
    heads = list(model.model.language_heads.values())
    if not heads:
        raise ValueError("this model has no head that predicts tokens")
    memory, total = RecurrenceMemory(model.memory_length), 0.0
    previous = model.tokenizer.special_ids.start
    with evaluation_mode(model.model):
        for at in range(0, len(ids), length):
            piece = ids[at : at + length].astype(np.int64)
            batch = batch_with_memory(previous, piece, piece, memory).to(model.model.device)
            term = model.model(batch).terms[heads[0].spec.term]
            total, previous = total + float(term.total), int(piece[-1])
            if prompting_config.on_progress is not None and at // length % WINDOWS_PER_REPORT == 0:
                prompting_config.on_progress(min(at + length, len(ids)), len(ids))
    return total


def _nats_in_windows(
    model: PromptedModel, ids: Int[np.ndarray, "t"], prompting_config: PromptingConfig
) -> float:
    """Compute the nats of all tokens, some windows at a time."""
    special = model.tokenizer.special_ids
    length = _window_length(model)
    stride = length if prompting_config.stride is None else prompting_config.stride
    windows = LikelihoodWindows(
        sequence_length=model.sequence_length, stride=prompting_config.stride
    )
    total, at = 0.0, 0
    while at < len(ids):
        # Cut where windows are cut, so that the parts have the windows of the whole.
        stop = at + WINDOWS_PER_REPORT * stride if at else length + WINDOWS_PER_REPORT * stride
        pair = ContextContinuation(
            context=tuple(ids[max(0, at - length) : at].tolist()),
            continuation=tuple(ids[at:stop].tolist()),
        )
        one = token_likelihoods(
            model.model,
            special,
            [pair],
            windows=windows,
        )[0]
        total, at = total - one.log_likelihood, min(stop, len(ids))
        if prompting_config.on_progress is not None:
            prompting_config.on_progress(at, len(ids))
    return total
