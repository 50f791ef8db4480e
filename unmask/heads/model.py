"""Model: a backbone and its heads.

In pretraining there may be several heads, e.g. for masked tokens and the next sentence.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.classification.pooler import Pooler
from unmask.heads.classification.sequence_classification import (
    SequenceClassificationHead,
)
from unmask.heads.language.language_modeling import (
    AppendedMaskGeneration,
    GenerationMode,
    LanguageModelingHead,
)
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import (
    NO_MEMORY,
    Backbone,
    BackboneArchitecture,
    require_support,
)
from unmask.model.cache import DecodingCache
from unmask.model.layers.attention.attention import copy_to_global_attention
from unmask.model.layers.attention.query_stream import QueryStream
from unmask.model.layers.quantized_inputs import InputQuantizer
from unmask.model.requested_states import RequestedStates, requested_states
from unmask.objectives.features import TwoStream


@runtime_checkable
class Head(Protocol):
    """A module from hidden states to a Prediction."""

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the targets of each term in this batch."""
        ...

    def __call__(self, hidden: Tensor, batch: Batch, *, return_logits: bool = False) -> Prediction:
        """Compute the terms of the batch; with `return_logits`, also return logits."""
        ...


@runtime_checkable
class SelfInitializing(Protocol):
    """A module that initializes its own weights, with torch's default generator."""

    def initialize_parameters(self) -> None:
        """Fill the weights."""
        ...


@runtime_checkable
class InputCorrupter(Protocol):
    """A head whose own network corrupts the inputs of the backbone (ELECTRA's generator)."""

    def own_network(self) -> Backbone:
        """Return the network of the head."""
        ...

    def share_with(self, backbone: Backbone) -> None:
        """Share embeddings with the backbone."""
        ...

    def corrupt(self, batch: Batch, *, return_logits: bool = False) -> tuple[Batch, Prediction]:
        """Return the corrupted batch, and the prediction of the head's own network."""
        ...

    def without_sharing(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a model's weights by name, with sharing with this head resolved."""
        ...


@runtime_checkable
class HasFlops(Protocol):
    """A head that counts its FLOPs."""

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward FLOPs per token in texts of `length` tokens.

        `target_fraction` is the fraction of tokens that have a target.
        """
        ...


_NOT_OWN = ("adapters", "training_modules")
"""First words of the names of modules and weights that are not the model's own."""


class Model(nn.Module):
    """A backbone and its heads; the terms of all heads form one Prediction."""

    def __init__(
        self,
        architecture: BackboneArchitecture,
        heads: Mapping[str, HeadSpec],
        pooler: Pooler | None = None,
    ) -> None:
        super().__init__()
        self.architecture = architecture
        self.unused_pooler = pooler
        self.head_specs = dict(heads)
        self.backbone: Backbone = architecture.build()
        self.decoder_architecture = architecture.decoder_stack
        self.heads = nn.ModuleDict()
        for name, spec in heads.items():
            self.add_head(name, spec)
        self.pooler = None if pooler is None else pooler.build(architecture.encoder_stack)
        """A pooler that no head uses."""
        self.adapters = nn.ModuleDict()
        """Adapters; their weights are not counted as the model's own. See
        `unmask.adapters.attach`."""
        self.training_modules = nn.ModuleDict()
        """Modules that only training uses, such as a projection to a teacher's width; they are
        removed after it, and never counted as the model's own."""
        self.input_quantizers: dict[str, InputQuantizer] = {}
        """Hooks by which linear layers round their inputs, by names of these; see
        `unmask.model.layers.quantized_inputs`."""
        self.computes_all_columns = False
        """Whether the last layer computes all columns, even if the heads use only one."""
        self.frozen_states: Callable[[Backbone, Batch], Tensor] | None = None
        """Runs the backbone in training, remembering what frozen layers compute; see
        `unmask.finetuning.methods.frozen_states`. None: it is run as it is."""

    def remove_training_modules(self) -> None:
        """Remove what only training used."""
        self.training_modules = nn.ModuleDict()
        self.computes_all_columns = False
        self.frozen_states = None

    def add_head(self, name: str, spec: HeadSpec) -> None:
        """Add a head; its weights are not initialized."""
        self.head_specs[name] = spec
        self.heads[name] = head = spec.build(
            self.decoder_architecture, self.backbone.embedding_table
        )
        if isinstance(head, InputCorrupter):
            head.share_with(self.backbone)

    @property
    def networks(self) -> list[Backbone]:
        """The backbone, and the networks of heads."""
        return [self.backbone, *(head.own_network() for head in self._input_corrupters.values())]

    @property
    def _input_corrupters(self) -> dict[str, InputCorrupter]:
        return {n: head for n, head in self.heads.items() if isinstance(head, InputCorrupter)}

    @property
    def language_heads(self) -> dict[str, LanguageModelingHead]:
        """The language-modeling heads, by name."""
        return {n: head for n, head in self.heads.items() if isinstance(head, LanguageModelingHead)}

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary."""
        return self.architecture.vocab_size

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.backbone.embedding_table.parameters()).device

    @property
    def has_language_head(self) -> bool:
        """Whether there is a language-modeling head."""
        return bool(self.language_heads)

    @property
    def language_head(self) -> LanguageModelingHead:
        """The language-modeling head.

        Raises:
            ValueError: there is none.
        """
        for head in self.language_heads.values():
            return head
        raise ValueError(
            f"this model has no language-model head (heads: {', '.join(self.heads) or 'none'})"
        )

    @property
    def _generation(self) -> GenerationMode | None:
        return next((head.spec.generation for head in self.language_heads.values()), None)

    @property
    def appended_mask_generation(self) -> AppendedMaskGeneration | None:
        """The settings of generation by appended masks, if the model supports it."""
        return self._generation if isinstance(self._generation, AppendedMaskGeneration) else None

    def mask_two_stream(self, batch: Batch, mask_id: int) -> Batch:
        """Return a batch with mask tokens in the form for this model.

        With a two-stream model (XLNet), positions of masks are invisible instead.
        """
        if not self.has_language_head or not self.language_head.two_stream:
            return batch
        rank = (batch.inputs == mask_id).long()
        hidden = replace(batch, visibility=replace(batch.visibility, rank=rank))
        return hidden.with_feature(TwoStream())

    @property
    def is_sequence_to_sequence(self) -> bool:
        """Whether a prompt is a source, and generated text its target, not its continuation."""
        answers = self._generation is not None and self._generation.answers_source
        return answers or self.architecture.is_encoder_decoder

    @property
    def bidirectional_prompt(self) -> bool:
        """Whether a single stack attends bidirectionally within a prompt when it generates text."""
        return self._generation is not None and self._generation.bidirectional_prompt

    @property
    def shifted_targets(self) -> bool:
        """Whether it is bidirectional and predicts a masked token at the position before it."""
        return self._generation is not None and self._generation.shifted_targets

    @property
    def predicts_next_token(self) -> bool:
        """Whether it is causal and each position predicts the next token."""
        return self.decoder_architecture.causal or self.shifted_targets

    @property
    def can_generate(self) -> bool:
        """Whether it can generate text token by token."""
        return self.predicts_next_token or self.appended_mask_generation is not None

    def parameter_count(self) -> int:
        """Count the saved parameters: shared ones once, without adapters."""
        return sum(p.numel() for p in self.trained_weights().values())

    def trained_weights(self) -> dict[str, Tensor]:
        """Return the weights to keep after training: without heads that only pretraining uses."""
        weights = self.own_weights()
        for head in self._input_corrupters.values():
            weights = head.without_sharing(weights)
        removed = [n for n, spec in self.head_specs.items() if not spec.is_kept_after_pretraining]
        prefixes = tuple(f"heads.{name}." for name in removed)
        return {name: x for name, x in weights.items() if not name.startswith(prefixes)}

    def own_weights(self) -> dict[str, Tensor]:
        """Return the model's own parameters by name, shared ones once, without adapters."""
        parameters = self.named_parameters()
        return {name: p.detach() for name, p in parameters if not name.startswith(_NOT_OWN)}

    def initialize(self, seed: int = 0, loaded: Collection[str] = ()) -> "Model":
        """Initialize the model's own weights, except those loaded.

        The weights of a module depend only on the seed and its name: a new head has the same
        initial weights on a pretrained backbone and on a random one.
        """
        loaded_ids = {id(p) for name, p in self.named_parameters() if name in loaded}
        with torch.random.fork_rng(devices=[]):
            for name, module in self.named_modules():
                own = [id(p) for p in module.parameters(recurse=False)]
                if name.startswith(_NOT_OWN) or (own and loaded_ids.issuperset(own)):
                    continue
                torch.manual_seed(_module_seed(seed, name))
                self.decoder_architecture.initializer(name, module, self.decoder_architecture)
                if isinstance(module, SelfInitializing):
                    module.initialize_parameters()
        copy_to_global_attention(self, loaded)
        return self

    def check_supports_memory(self) -> None:
        """Check that the network supports a memory of earlier segments.

        Raises:
            ValueError: it does not.
        """
        if len(self.networks) > 1:
            raise ValueError(NO_MEMORY)
        require_support(self.backbone, "memory")

    @property
    def query_stream(self) -> QueryStream | None:
        """The query stream of its language head, if it has one."""
        return next((head.decoder for head in self.language_heads.values()), None)

    def hidden_states(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Run the backbone, with the query stream of the language head if there is one."""
        streams = (head.query_stream_for(batch) for head in self.language_heads.values())
        return self._run_backbone(batch, next(streams, None))

    def logits_at(self, batch: Batch, selected: Bool[Tensor, "b t"]) -> Float[Tensor, "n v"]:
        """Return the language head's logits at selected tokens, row by row.

        Of one token in each row, the last layer computes no other column.
        """
        if self.supports_last_only and bool((selected.sum(1) == 1).all()):
            requested = RequestedStates(selected_column=selected.long().argmax(1))
            hidden = self.hidden_states(batch.with_feature(requested))[:, 0]
        else:
            hidden = self.hidden_states(batch)[selected]
        return self.language_head.logits(hidden)

    def next_token_logits(
        self, batch: Batch, cache: DecodingCache, n_last: int
    ) -> Float[Tensor, "b last v"]:
        """Read a batch after what is in the cache; return the logits after its last tokens."""
        return self.language_head.logits(self.backbone(batch, cache)[:, -n_last:])

    def text_logits(self, batch: Batch, lengths: Sequence[int]) -> Iterator[Float[Tensor, "t v"]]:
        """Yield the language head's logits of each row, which has `lengths` tokens."""
        head, hidden = self.language_head, self.hidden_states(batch)
        yield from (head.logits(x[:n]) for x, n in zip(hidden, lengths, strict=True))

    def answer_logits(
        self, batch: Batch, encoder_hidden_states: Float[Tensor, "b s d"]
    ) -> Float[Tensor, "b t v"]:
        """Return the language head's logits, given the hidden states of the encoder."""
        backbone: Any = self.backbone
        return self.language_head.logits(backbone(batch, None, encoder_hidden_states))

    def target_losses(
        self, batch: Batch, targets: Sequence[Int[Tensor, "t"]]
    ) -> list[Float[Tensor, ""]]:
        """Sum the cross-entropy of the language head in each row, in nats.

        The targets of a row are those of its first columns; some may be IGNORE_INDEX.
        """
        hidden, head = self.hidden_states(batch), self.language_head
        losses: list[Tensor] = []
        for row, own in zip(hidden, targets, strict=True):
            at = torch.nonzero(own != IGNORE_INDEX)[:, 0].to(hidden.device)
            losses.append(head.loss(row[at], own.to(hidden.device)[at])[0])
        return losses

    def _run_backbone(
        self, batch: Batch, query_stream: QueryStream | None
    ) -> Float[Tensor, "b t _"]:
        if query_stream is None:
            run = self.frozen_states
            return self.backbone(batch) if run is None else run(self.backbone, batch)
        return self.backbone(batch, query_stream=query_stream)

    def pad_for_network(self, batch: Batch) -> Batch:
        """Pad the batch so that no text's hidden states depend on the length of another.

        Most networks need none; see `Canine`.
        """
        return self.backbone.pad_for_network(batch)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the targets of each term in this batch, before the forward pass."""
        counts: dict[str, int] = {}
        for head in self.heads.values():
            counts |= cast(Head, head).count_targets(batch)
        return counts

    def flops(self, length: int, target_fraction: float) -> float:
        """Count a training step's matrix-product FLOPs per token.

        `target_fraction` is the fraction of tokens that have a target. Backward costs twice the
        forward (Kaplan et al. 2020, section 2.1).
        """
        heads = [
            h.flops(length, target_fraction) for h in self.heads.values() if isinstance(h, HasFlops)
        ]
        share = self.read_share(target_fraction)
        forward = share * self.backbone.flops(max(round(share * length), 1))
        if (decoder := self.query_stream) is not None:
            forward *= 1 + decoder.extra_cost(self.decoder_architecture.n_layers)
        return 3 * (forward + sum(heads))

    def read_share(self, target_fraction: float) -> float:
        """Return the share of the tokens that the backbone computes in training."""
        return min(
            (one.read_share(target_fraction) for one in self.head_specs.values()), default=1.0
        )

    @property
    def supports_last_only(self) -> bool:
        """Whether the last layer can compute one column only; adapters may need all columns."""
        return self.backbone.supports_last_only and not self.adapters and self.query_stream is None

    @property
    def uses_all_layers(self) -> bool:
        """Whether some head uses the hidden states of all layers."""
        return any(spec.uses_all_layers for spec in self.head_specs.values())

    @property
    def uses_summary(self) -> bool:
        """Whether some head uses the network's own vector of a text."""
        return any(spec.uses_summary for spec in self.head_specs.values())

    def _pooled_column(self, batch: Batch) -> Int[Tensor, "b"] | None:
        """Return the column of each row that the heads use, if they use only one."""
        head, *other_heads = list(self.heads.values()) or [None]
        if (
            other_heads
            or self.computes_all_columns
            or not self.supports_last_only
            or not isinstance(head, SequenceClassificationHead)
        ):
            return None
        return head.pooled_column(batch)

    def forward(self, batch: Batch, *, return_logits: bool | Collection[str] = False) -> Prediction:
        """Run the model over a batch; each head computes its terms.

        With `return_logits`, the named heads, or all, also return logits.
        """
        logits: dict[str, Tensor] = {}
        terms: dict[str, Term] = {}
        for name, head in self._input_corrupters.items():
            with_logits = (
                return_logits if isinstance(return_logits, bool) else name in return_logits
            )
            batch, guesses = head.corrupt(batch, return_logits=with_logits)
            logits |= guesses.logits
            terms |= guesses.terms
        only = self._pooled_column(batch)
        requested = RequestedStates(
            selected_column=requested_states(batch).selected_column if only is None else only,
            all_layers=self.uses_all_layers,
            summary=self.uses_summary,
        )
        request = batch.with_feature(requested)
        if only is not None:
            batch = replace(batch, last_token_positions=None)  # there is only one column
        states: dict[QueryStream | None, Tensor] = {}
        for name, head in self.heads.items():
            decoder = (
                head.query_stream_for(batch) if isinstance(head, LanguageModelingHead) else None
            )
            if decoder not in states:
                states[decoder] = self._run_backbone(request, decoder)
            hidden, spec = states[decoder], self.head_specs[name]
            summary = hidden[:, :1]
            if requested.summary and only is None:
                hidden = hidden[:, 1:]
            if spec.uses_summary:
                hidden = summary
            elif requested.all_layers and not spec.uses_all_layers:
                hidden = hidden[..., -self.decoder_architecture.d_model :]
            said_too = return_logits if isinstance(return_logits, bool) else name in return_logits
            prediction = cast(Head, head)(hidden, batch, return_logits=said_too)
            logits |= prediction.logits
            terms |= prediction.terms
        return Prediction(logits, terms)


def _module_seed(seed: int, name: str) -> int:
    """Return the seed of a module."""
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
