"""Calibration: a few texts on which a model's activations and gradients are measured."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch, Visibility
from unmask.batching.pieces import Piece, corrupt_piece, sorted_batches
from unmask.checkpoints.huggingface.read import LoadedModel, max_text_tokens
from unmask.compression.structure.importance import evaluating
from unmask.heads.model import Model
from unmask.text.documents import Document
from unmask.text.mixtures import read_documents_by_source
from unmask.tokenizers.encode import Tokenizer
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS

BATCH_TOKENS = 4096
"""Tokens that go through the model at once."""


def check_calibration_size(n: int) -> None:
    """Check the number of calibration texts.

    Raises:
        ValueError: it is below 1.
    """
    if n < 1:
        raise ValueError(f"calibration_texts must be at least 1, got {n}")


def calibration_batches(
    loaded_model: LoadedModel, data: str | Path | Sequence[str | Path], n: int, *, seed: int = 0
) -> list[Batch]:
    """Return the first pieces of texts in the form of the model's own pretraining objective.

    Args:
        loaded_model: with a tokenizer and a head for its preset's objective.
        data: files, folders or patterns of text.
        n: number of pieces, each of as many tokens as rows of its pretraining, at most.
        seed: random seed of the objective.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: it cannot be read or holds no text, or the model has no head for the objective,
            or no tokenizer.
    """
    preset, tokenizer = loaded_model.preset, loaded_model.tokenizer
    check_calibration_size(n)
    if tokenizer is None:
        raise ValueError(f"{preset.name} has no tokenizer, which reading text needs")
    tokenizer.check_single_vocabulary("the objective of pretraining")
    objective = preset.objective
    if isinstance(objective, WORD_VECTOR_METHODS):
        raise ValueError("word vectors have no calibration texts: they read no text in order")
    specs = loaded_model.model.head_specs.values()
    terms = {spec.objective_term for spec in specs}
    if not terms & set(objective.loss_terms):
        raise ValueError(
            f"this model has no head for {' or '.join(objective.loss_terms)} "
            f"(it has {', '.join(sorted(terms)) or 'none'})"
        )
    longest = max_text_tokens(preset)
    length = min(preset.sequence_length, longest or preset.sequence_length)
    sources = [data] if isinstance(data, str | Path) else data
    documents = read_documents_by_source([str(one) for one in sources])
    limit = objective.max_text_length(length, tokenizer.special_ids)
    pieces = list(islice(_split(documents, tokenizer, limit), n))
    if not pieces:
        raise ValueError(f"{data}: holds no text to calibrate on")
    examples = [corrupt_piece(pieces, i, objective, tokenizer, seed) for i in range(len(pieces))]
    return list(sorted_batches(examples, tokenizer, BATCH_TOKENS))


def watch_inputs(
    model: Model,
    names: Collection[str],
    batches: Sequence[Batch],
    see: Callable[[str, Float[Tensor, "n i"]], None],
) -> None:
    """Call a function with the inputs of some modules on texts, without padding.

    Args:
        model: computes the predictions of the batches, without dropout.
        names: names of modules with one input.
        batches: the texts.
        see: takes a module's name and its inputs.
    """
    for seed, batch in enumerate(batches):
        handles = [
            model.get_submodule(name).register_forward_pre_hook(_watcher(name, batch, see))
            for name in names
        ]
        try:
            with evaluating(model, seed), torch.no_grad():
                model(batch.to(model.device))
        finally:
            for handle in handles:
                handle.remove()


def _watcher(name: str, batch: Batch, see: Callable[[str, Tensor], None]) -> Callable[..., None]:
    visibility = batch.source_visibility if _reads_source(name) else batch.visibility

    def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        see(name, _without_padding(inputs[0].detach(), visibility))

    return hook


def _reads_source(name: str) -> bool:
    """Return whether a map reads hidden states of an encoder."""
    return name.startswith("backbone.encoder.") or name.endswith(("cross.k", "cross.v"))


def _without_padding(x: Float[Tensor, "*b i"], visibility: Visibility) -> Float[Tensor, "n i"]:
    """Return the vectors of tokens; all of them where x has other columns than the text."""
    document = visibility.document
    if document is None or document.shape != x.shape[:-1]:
        return x.flatten(0, -2)
    return x[document.to(x.device) >= 0]


def _split(documents: Iterable[Document], tokenizer: Tokenizer, max_length: int) -> Iterator[Piece]:
    """Yield consecutive pieces of documents."""
    number = 0
    for index, document in enumerate(documents):
        tokens = tokenizer.encode(document.text)
        for start in range(0, len(tokens), max_length):
            yield Piece(number, index, tokens[start : start + max_length], document.source)
            number += 1
