"""FrozenStates: what the frozen layers of a network compute of a text, once in a job.

A head on frozen features, a mix of frozen layers and the top layers of a network read the same
states of each text in every epoch. They are computed before the first step, of texts of like length
together, so that a run that is resumed has the same; and of dev texts when they are first scored.
Runs with other seeds, or other learning rates in a search, have the same frozen weights and share
them (`StateStore`).
"""

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.adapters.attach import use_adapters
from unmask.adapters.scalar_mix import ScalarMixModule
from unmask.adapters.tuning_method import TuningMethod
from unmask.batch import Batch
from unmask.checkpoints.tensors import tensors_sha256
from unmask.heads.model import Model
from unmask.model.architecture import Backbone
from unmask.model.requested_states import KnownStates, RequestedStates, requested_states
from unmask.training.optimizers.layerwise import parameters_by_layer

MEMORY_BYTES = 2**28
"""States that are held in memory; with more, all lie in a temporary file."""
MAX_DISK_FRACTION = 0.5
"""Fraction of the free disk that states may take; those of other texts are computed each time."""


@runtime_checkable
class FrozenPart(Protocol):
    """The part of a network that is frozen, and what is computed anew with its states."""

    @property
    def name(self) -> str:
        """The name of the part."""
        ...

    def request(self, batch: Batch) -> Batch:
        """Return the batch with a request for the states to remember."""
        ...

    def compute(self, network: Backbone, request: Batch) -> Float[Tensor, "b k _"]:
        """Compute them."""
        ...

    def finish(
        self, network: Backbone, batch: Batch, states: Float[Tensor, "b k _"]
    ) -> Float[Tensor, "b k _"]:
        """Return what the network does, given these states."""
        ...


class WholeNetwork:
    """All of the network is frozen."""

    name = "network"

    def request(self, batch: Batch) -> Batch:
        """Return the batch: the heads' own request."""
        return batch

    def compute(self, network: Backbone, request: Batch) -> Float[Tensor, "b k _"]:
        """Run the network."""
        return network(request)

    def finish(
        self, network: Backbone, batch: Batch, states: Float[Tensor, "b k _"]
    ) -> Float[Tensor, "b k _"]:
        """Return the states."""
        return states


@dataclass(frozen=True)
class FirstLayers:
    """The first layers of a Transformer are frozen."""

    n_layers: int

    @property
    def name(self) -> str:
        """The number of layers."""
        return f"{self.n_layers} layers"

    def request(self, batch: Batch) -> Batch:
        """Ask for all columns of the input of the first other layer."""
        return batch.with_feature(RequestedStates(before_layer=self.n_layers))

    def compute(self, network: Backbone, request: Batch) -> Float[Tensor, "b t _"]:
        """Run these layers."""
        return network(request)

    def finish(
        self, network: Backbone, batch: Batch, states: Float[Tensor, "b t _"]
    ) -> Float[Tensor, "b k _"]:
        """Run the others."""
        return network(batch.with_feature(KnownStates(hidden=states, layer=self.n_layers)))


@dataclass(frozen=True, eq=False)
class MixedLayers:
    """All of the network is frozen, and a mix of its layers is learned."""

    model: Model
    mix: ScalarMixModule
    name: str = "all layers"

    def request(self, batch: Batch) -> Batch:
        """Ask for all layers."""
        return batch.with_feature(replace(requested_states(batch), all_layers=True))

    def compute(self, network: Backbone, request: Batch) -> Float[Tensor, "b t _"]:
        """Run the network without the mix."""
        with use_adapters(self.model, None):
            return network(request)

    def finish(
        self, network: Backbone, batch: Batch, states: Float[Tensor, "b t _"]
    ) -> Float[Tensor, "b t _"]:
        """Mix the layers."""
        return self.mix.mix(states, keep_layers=requested_states(batch).all_layers)


def frozen_part(method: TuningMethod, model: Model) -> FrozenPart | None:
    """Return the part of a model that stays the same in a run. None: there is none.

    Args:
        method: how the model is tuned.
        model: the model, prepared for that.
    """
    if model.architecture.is_encoder_decoder or model.input_quantizers:
        return None
    if method.mixes_layers:
        return MixedLayers(model, cast(ScalarMixModule, model.adapters["default"]))
    if model.adapters or method.unfreezes_gradually:
        return None
    by_name = dict(model.named_parameters())
    if not any(p.requires_grad for name, p in by_name.items() if name.startswith("backbone.")):
        return WholeNetwork()
    groups = parameters_by_layer(model)[:-1]
    trained = [any(by_name[name].requires_grad for name in group) for group in groups]
    n_layers = trained.index(True) - 1 if True in trained else 0
    whole_stack = len(groups) == model.architecture.decoder_stack.n_layers + 1
    can_start = model.backbone.unsupported_reason("known_states") is None
    if n_layers < 1 or not whole_stack or not can_start or model.uses_all_layers:
        return None
    return FirstLayers(n_layers)


class StateStore:
    """States of rows, in memory or in a temporary file, of one part of one network."""

    def __init__(self) -> None:
        self._fingerprint = ""
        self._start()

    def _start(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._places: dict[bytes, tuple[int, int]] = {}
        self._end = 0
        self._max_bytes = MAX_DISK_FRACTION * shutil.disk_usage(tempfile.gettempdir()).free

    def keep_only(self, fingerprint: str) -> None:
        """Drop the states unless they are of the part with this fingerprint."""
        if fingerprint != self._fingerprint:
            self._fingerprint = fingerprint
            self._file.close()
            self._start()

    def __len__(self) -> int:
        return len(self._places)

    def has(self, keys: Iterable[bytes]) -> bool:
        """Return whether there are states of all rows."""
        return all(key in self._places for key in keys)

    def add(self, keys: list[bytes], lengths: list[int], states: Float[Tensor, "b k _"]) -> bool:
        """Remember the states of each row, without padding; return whether there is room."""
        self._dtype, self._width = states.dtype, states.shape[-1]
        lengths = [min(n, states.shape[1]) for n in lengths]
        if self._end + sum(lengths) * self._width * states.itemsize > self._max_bytes:
            return False
        rows = states.detach().cpu().view(torch.uint8).numpy()
        self._file.seek(self._end)
        for key, row, n in zip(keys, rows, lengths, strict=True):
            if key not in self._places:
                self._places[key] = self._end, n
                self._end += self._file.write(row[:n].tobytes())
        return True

    def read(self, keys: list[bytes], n_columns: int) -> Float[Tensor, "b k _"]:
        """Lay out the states of each row; padding has zeros."""
        states = torch.zeros(len(keys), n_columns, self._width, dtype=self._dtype)
        bytes_of_state = self._width * states.itemsize
        for row, (start, n) in zip(states, map(self._places.__getitem__, keys), strict=True):
            self._file.seek(start)
            found = bytearray(self._file.read(n * bytes_of_state))
            row[:n] = torch.frombuffer(found, dtype=self._dtype).view(n, self._width)
        return states


class FrozenStates:
    """Runs a network whose frozen states are remembered, by the text of a row.

    Where the frozen part draws random numbers in training, as for dropout, it is run each time;
    evaluation has no dropout.
    """

    def __init__(self, part: FrozenPart, store: StateStore) -> None:
        """Remember the states of a part.

        Args:
            part: what is frozen.
            store: where they are; what it has is of this part.
        """
        self.part, self.store = part, store
        self.draws_in_training = False
        """Whether the frozen part draws random numbers in training."""
        self._is_filling = False

    @torch.no_grad()
    def fill(self, model: Model, batches: Iterable[Batch]) -> None:
        """Compute the states of training texts, unless they are drawn.

        Args:
            model: the model of the network, whose heads say what is read of it.
            batches: the texts, on its device; only those before the first that is no plain text,
                or whose network looks at padding (CANINE).
        """
        training = model.training
        model.train()
        with torch.random.fork_rng(), self._filling():
            for batch in batches:
                plain = _row_keys(batch) is not None and model.pad_for_network(batch) is batch
                if self.draws_in_training or not plain:
                    break
                model(batch)
        model.train(training)

    @contextmanager
    def _filling(self) -> Generator[None, None, None]:
        self._is_filling = True
        try:
            yield
        finally:
            self._is_filling = False

    def __call__(self, network: Backbone, batch: Batch) -> Float[Tensor, "b k _"]:
        """Run the network, with remembered states where there are some.

        States are remembered of texts that are evaluated or filled in, not of those that an epoch
        of training has for the first time: such texts are drawn anew.
        """
        training = cast(torch.nn.Module, network).training
        request = self.part.request(batch)
        keys = None if training and self.draws_in_training else _row_keys(request)
        if keys is None:
            return network(batch)
        if not self.store.has(keys):
            if training and not self._is_filling:
                return network(batch)
            before = _random_state(batch)
            with torch.no_grad():
                states = self.part.compute(network, request)
            self.draws_in_training |= training and not torch.equal(before, _random_state(batch))
            is_drawn = training and self.draws_in_training
            if is_drawn or not self.store.add(keys, _lengths(request).tolist(), states):
                return self.part.finish(network, batch, states)
        one_column = requested_states(request).selected_column is not None
        states = self.store.read(keys, 1 if one_column else request.inputs.shape[1])
        return self.part.finish(network, batch, states.to(batch.inputs.device))


def fingerprint(part: FrozenPart, model: Model) -> str:
    """Return the name of a frozen part and a SHA-256 of its weights, on which states depend."""
    frozen = {
        name: p
        for name, p in model.named_parameters()
        if name.startswith("backbone.") and not p.requires_grad
    }
    return f"{part.name} {tensors_sha256(frozen)}"


def _random_state(batch: Batch) -> Tensor:
    """Return the state of the random generators that a network may draw from."""
    if not batch.inputs.is_cuda:
        return torch.get_rng_state()
    return torch.cat((torch.get_rng_state(), torch.cuda.get_rng_state(batch.inputs.device)))


def _lengths(batch: Batch) -> Int[np.ndarray, "b"]:
    return batch.is_token().sum(1).cpu().numpy()


def _row_keys(batch: Batch) -> list[bytes] | None:
    """Return what the states of each row depend on, hashed. None: on more than is known here."""
    requested = requested_states(batch)
    others = [f for f in batch.features if f is not batch.feature(RequestedStates)]
    if batch.source is not None or others or requested.summary:
        return None
    zeros = torch.zeros_like(batch.inputs)
    place = torch.arange(batch.inputs.shape[1], device=zeros.device).expand_as(zeros)
    visibility, selected = batch.visibility, requested.selected_column
    columns = (
        batch.inputs,
        zeros if visibility.document is None else visibility.document,
        zeros if visibility.rank is None else visibility.rank,
        place if batch.position_ids is None else batch.position_ids,
        zeros if batch.segments is None else batch.segments,
        zeros if batch.part_ids is None else batch.part_ids,
        zeros - 1 if selected is None else selected[:, None].expand_as(zeros),
    )
    rows = torch.stack(columns, 1).cpu().numpy()
    said = f"{visibility.causal} {requested.all_layers}".encode()
    return [
        hashlib.blake2b(row[:, :n].tobytes() + said, digest_size=16).digest()
        for row, n in zip(rows, _lengths(batch).tolist(), strict=True)
    ]
