"""The reference model: what the policy was before training, from which it should not go far."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.adapters.attach import use_adapters
from unmask.batch import Batch, Example
from unmask.batching.collate import example_length, group_by_length, pad_examples
from unmask.checkpoints.tensors import read_tensors, write_tensors
from unmask.files import atomic_path
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.preferences.responses import ReferenceScore, ScoredTokens, score_tokens
from unmask.tokenizers.spec import SpecialTokenIds


@runtime_checkable
class Reference(Protocol):
    """A reference model."""

    def score_batch(self, batch: Batch) -> ScoredTokens:
        """Score the targets of a batch, without gradients."""
        ...


@dataclass(frozen=True)
class FrozenCopy:
    """A copy of the model before training: as much memory as its weights."""

    model: Model

    @staticmethod
    def of(model: Model, dtype: torch.dtype) -> "FrozenCopy":
        """Copy a model as it is now, with parameters of a type: that of the model in training."""
        copy = deepcopy(model)
        copy.remove_training_modules()
        for parameter in copy.parameters():
            parameter.data = parameter.data.to(dtype)
        return FrozenCopy(copy.requires_grad_(False).eval())

    @torch.no_grad()
    def score_batch(self, batch: Batch) -> ScoredTokens:
        """Score the targets of a batch."""
        return score_tokens(self.model, batch)


@dataclass(frozen=True)
class WithoutAdapter:
    """The model that is trained, without its adapter: no further memory."""

    model: Model

    @torch.no_grad()
    def score_batch(self, batch: Batch) -> ScoredTokens:
        """Score the targets of a batch."""
        with self._base() as base:
            return score_tokens(base, batch)

    @contextmanager
    def _base(self) -> Generator[Model, None, None]:
        with evaluation_mode(self.model), use_adapters(self.model, None):
            yield self.model


def reference_of(model: Model, dtype: torch.dtype) -> Reference:
    """Return the reference of a model before training: its base, or a copy if it has no adapter.

    Args:
        model: the model.
        dtype: type of its parameters in training.
    """
    return WithoutAdapter(model) if len(model.adapters) else FrozenCopy.of(model, dtype)


def attach_reference_scores(
    examples: Sequence[Example],
    reference: Reference,
    special_ids: SpecialTokenIds,
    batch_tokens: int,
    device: torch.device,
    store: "ReferenceStore | None" = None,
) -> list[Example]:
    """Return responses with the reference's log-probabilities, computed once or read from disk."""
    found = None if store is None else store.read(len(examples))
    if found is None:
        found = torch.zeros(len(examples), dtype=torch.float32)
        for group in group_by_length([example_length(e) for e in examples], batch_tokens):
            batch = pad_examples([examples[i] for i in group], special_ids).to(device)
            scored = reference.score_batch(batch).row_log_probabilities
            found[torch.tensor(group)] = scored.float().cpu()
        if store is not None:
            store.write(found)
    return [
        example.with_feature(ReferenceScore(value))
        for example, value in zip(examples, found.tolist(), strict=True)
    ]


@dataclass(frozen=True)
class ReferenceStore:
    """Reference scores of responses in a file, which names the weights and tokens they are of."""

    path: Path
    key: bytes

    @staticmethod
    def of(path: Path, examples: Sequence[Example], weights_sha256: str) -> "ReferenceStore":
        """Return the store of some responses, scored by a model with such weights."""
        digest = sha256(weights_sha256.encode())
        for example in examples:
            for array in (example.source, example.inputs, example.targets):
                digest.update(b"|" if array is None else array.tobytes() + b"|")
        return ReferenceStore(path, digest.digest())

    def read(self, n: int) -> Float[Tensor, "n"] | None:
        """Read the scores; None: there are none, or they are of other responses or weights."""
        if not self.path.is_file():
            return None
        try:
            found = read_tensors(self.path)
        except ValueError:  # cut by a crash: they are computed again
            return None
        scores, key = found.get("log_probabilities"), found.get("key")
        if scores is None or key is None or bytes(key.tolist()) != self.key:
            return None
        return scores if scores.shape == (n,) else None

    def write(self, scores: Float[Tensor, "n"]) -> None:
        """Write the scores."""
        key = torch.tensor(list(self.key), dtype=torch.uint8)
        with atomic_path(self.path) as beside:
            write_tensors(beside, {"log_probabilities": scores, "key": key})
