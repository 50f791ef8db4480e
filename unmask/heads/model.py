"""Model: a backbone and its heads.

Pretraining may have two heads (masked tokens and next sentence).
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.classification.pooler import Pooler
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    SequenceClassificationHead,
    TokenClassification,
)
from unmask.heads.language.language_modeling import (
    AppendedMaskGeneration,
    LanguageModeling,
    LanguageModelingHead,
    ShiftedTargetGeneration,
    SourcePrefixGeneration,
)
from unmask.heads.prediction import Prediction, Term
from unmask.heads.pretraining.activation_regularization import ActivationRegularization
from unmask.heads.pretraining.autoregressive_characters import AutoregressiveCharacters
from unmask.heads.pretraining.bidirectional_lm import BidirectionalLM
from unmask.heads.pretraining.contrastive import ContrastiveLoss
from unmask.heads.pretraining.corrective_lm import CorrectiveLM
from unmask.heads.pretraining.generator import Generator
from unmask.heads.pretraining.replaced_token_detection import ReplacedTokenDetection
from unmask.heads.pretraining.sentence_reconstruction import QuickThoughts, SkipThoughts
from unmask.heads.pretraining.span_boundary import SpanBoundaryObjective
from unmask.heads.pretraining.subword_prediction import SubwordPrediction
from unmask.heads.question_answering import QuestionAnswering
from unmask.heads.tagging.bilstm_crf import BiLSTMCRF
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.backbones.canine import Canine, CanineArchitecture
from unmask.model.backbones.convolutional import Convolutional, ConvolutionalArchitecture
from unmask.model.backbones.elmo import Elmo, ElmoArchitecture
from unmask.model.backbones.recurrent import Recurrent, RecurrentArchitecture
from unmask.model.backbones.transformer import EncoderDecoder, Transformer
from unmask.model.layers.attention.attention import copy_to_global_attention
from unmask.model.layers.attention.query_stream import QueryStream
from unmask.tokenizers.spec import SpecialTokenIds

SingleStack = Transformer | Canine | Recurrent | Convolutional
Backbone = SingleStack | EncoderDecoder
HeadSpec = (
    LanguageModeling
    | SequenceClassification
    | TokenClassification
    | BiLSTMCRF
    | QuestionAnswering
    | ContrastiveLoss
    | SkipThoughts
    | QuickThoughts
    | SpanBoundaryObjective
    | Generator
    | ReplacedTokenDetection
    | CorrectiveLM
    | AutoregressiveCharacters
    | SubwordPrediction
    | BidirectionalLM
    | ActivationRegularization
)


def is_kept_after_pretraining(spec: HeadSpec) -> bool:
    """Say whether a trained model is kept with a head.

    Not with one that serves pretraining alone: a generator, CANINE-S's scores of subwords, a fine,
    or a comparison without weights.
    """
    if isinstance(spec, ContrastiveLoss):
        return spec.transform is not None
    return not isinstance(spec, Generator | SubwordPrediction | ActivationRegularization | QuickThoughts)


@runtime_checkable
class Head(Protocol):
    """What turns hidden states into a Prediction."""

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the places that each term asks of this batch."""
        ...

    def __call__(self, hidden: Tensor, batch: Batch, *, return_logits: bool = False) -> Prediction:
        """Ask what the batch asks; with `return_logits`, also return what was said."""
        ...


@runtime_checkable
class SelfInitializing(Protocol):
    """A module whose own weights begin in a way of its own, from torch's generator."""

    def initialize_parameters(self) -> None:
        """Fill the weights."""
        ...


@runtime_checkable
class HasOutputVocabulary(Protocol):
    """A head whose size is that of a vocabulary which the network does not read."""

    def with_vocabulary(self, special: SpecialTokenIds) -> "HeadSpec":
        """Return the head for another vocabulary."""
        ...


def required_term(name: str, spec: HeadSpec) -> str:
    """Return what an objective must ask for a head to have something to answer."""
    return getattr(spec, "asked_by", getattr(spec, "term", name))


@runtime_checkable
class InputCorrupter(Protocol):
    """A head with a network of its own, which changes what the backbone reads."""

    @property
    def network(self) -> nn.Module:
        """That network."""
        ...

    def share_with(self, backbone: Transformer) -> None:
        """Have in common with the backbone what is shared."""
        ...

    def corrupt(self, batch: Batch, *, return_logits: bool = False) -> tuple[Batch, Prediction]:
        """Return the batch that the backbone reads, and what was said on the way."""
        ...

    def without_sharing(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a model's weights by name as they are without this head beside it."""
        ...


@runtime_checkable
class HasFlops(Protocol):
    """A head whose matrix products are worth counting beside the backbone's."""

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward's FLOPs a token in texts of `length`, the share `target_fraction` of it asked."""
        ...


def build_backbone(architecture: Architecture | EncoderDecoderArchitecture) -> Backbone:
    """Build the network of an architecture: each kind of architecture has one."""
    if isinstance(architecture, EncoderDecoderArchitecture):
        return EncoderDecoder(architecture)
    if isinstance(architecture, CanineArchitecture):
        return Canine(architecture)
    if isinstance(architecture, ElmoArchitecture):
        return Elmo(architecture)
    if isinstance(architecture, RecurrentArchitecture):
        return Recurrent(architecture)
    if isinstance(architecture, ConvolutionalArchitecture):
        return Convolutional(architecture)
    return Transformer(architecture)


class Model(nn.Module):
    """One backbone, some heads, one Prediction."""

    def __init__(
        self,
        architecture: Architecture | EncoderDecoderArchitecture,
        heads: Mapping[str, HeadSpec],
        pooler: Pooler | None = None,
    ) -> None:
        super().__init__()
        self.architecture = architecture
        self.unused_pooler = pooler
        self.head_specs = dict(heads)
        self.backbone: Backbone = build_backbone(architecture)
        two = isinstance(architecture, EncoderDecoderArchitecture)
        stack = architecture.decoder if two else architecture
        self.decoder_architecture = stack
        self.heads = nn.ModuleDict()
        for name, spec in heads.items():
            self.add_head(name, spec)
        self.pooler = None if pooler is None else pooler.build(stack)
        """A map of its own that no head reads."""
        self.adapters = nn.ModuleDict()
        """What stands beside the model's own weights; see `unmask.adapters.attach`."""

    def add_head(self, name: str, spec: HeadSpec) -> None:
        """Add a head; the weights of one that has any are not drawn."""
        self.head_specs[name] = spec
        self.heads[name] = head = spec.build(self.decoder_architecture, self.backbone.embedding_table)
        if isinstance(head, InputCorrupter) and isinstance(self.backbone, Transformer):
            head.share_with(self.backbone)

    @property
    def networks(self) -> list[nn.Module]:
        """The backbone, and the networks that heads have of their own."""
        own = (h.network for h in self.heads.values() if isinstance(h, InputCorrupter))
        return [self.backbone, *own]

    @property
    def vocab_size(self) -> int:
        """Rows of the table of tokens."""
        return self.architecture.vocab_size

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.backbone.embedding_table.weight.device

    @property
    def has_language_head(self) -> bool:
        """Whether some head names tokens."""
        return any(isinstance(head, LanguageModelingHead) for head in self.heads.values())

    @property
    def language_head(self) -> LanguageModelingHead:
        """The head that names tokens.

        Raises:
            ValueError: there is none.
        """
        for head in self.heads.values():
            if isinstance(head, LanguageModelingHead):
                return head
        raise ValueError(
            f"this model has no language-model head (heads: {', '.join(self.heads) or 'none'})"
        )

    @property
    def _generation(self) -> AppendedMaskGeneration | ShiftedTargetGeneration | SourcePrefixGeneration | None:
        found = (h.spec.generation for h in self.heads.values() if isinstance(h, LanguageModelingHead))
        return next(found, None)

    @property
    def appended_mask_generation(self) -> AppendedMaskGeneration | None:
        """How it says text by masks, if it does."""
        return self._generation if isinstance(self._generation, AppendedMaskGeneration) else None

    def mask_two_stream(self, batch: Batch, mask_id: int) -> Batch:
        """Return the batch whose masked places are asked, as this model asks for what is hidden.

        One whose second stream asks (XLNet) reads no masks: their places are seen by nobody.
        """
        if not self.has_language_head or not self.language_head.two_stream:
            return batch
        rank = (batch.inputs == mask_id).long()
        return replace(batch, visibility=replace(batch.visibility, rank=rank), two_stream=True)

    @property
    def is_sequence_to_sequence(self) -> bool:
        """Whether a prompt is a source, which what is said answers and does not go on with."""
        one = isinstance(self._generation, SourcePrefixGeneration)
        return one or self.bidirectional_prompt or isinstance(self.backbone, EncoderDecoder)

    @property
    def bidirectional_prompt(self) -> bool:
        """Whether a stack that says text sees a prompt as a whole."""
        if isinstance(self._generation, AppendedMaskGeneration):
            return self._generation.source_segment is not None
        return isinstance(self._generation, SourcePrefixGeneration) and self._generation.bidirectional_source

    @property
    def shifted_targets(self) -> bool:
        """Whether it sees in both directions and names what is hidden one place before it."""
        return isinstance(self._generation, ShiftedTargetGeneration)

    @property
    def predicts_next_token(self) -> bool:
        """Whether each place, which sees those before it, names the token after its own."""
        return self.decoder_architecture.causal or self.shifted_targets

    @property
    def can_generate(self) -> bool:
        """Whether it says text, token by token."""
        return self.predicts_next_token or self.appended_mask_generation is not None

    def parameter_count(self) -> int:
        """Count the numbers that the model is kept with, shared ones once, without adapters."""
        return sum(p.numel() for p in self.trained_weights().values())

    def trained_weights(self) -> dict[str, Tensor]:
        """Return the weights of a trained model: those without heads of pretraining alone."""
        weights = self.own_weights()
        for head in self.heads.values():
            if isinstance(head, InputCorrupter):
                weights = head.without_sharing(weights)
        gone = [n for n, spec in self.head_specs.items() if not is_kept_after_pretraining(spec)]
        left = tuple(f"heads.{name}." for name in gone)
        return {name: x for name, x in weights.items() if not name.startswith(left)}

    def own_weights(self) -> dict[str, Tensor]:
        """Return the model's own parameters by name, shared ones once, without adapters."""
        named = self.named_parameters()
        return {name: p.detach() for name, p in named if not name.startswith("adapters.")}

    def initialize(self, seed: int = 0, loaded: Collection[str] = ()) -> "Model":
        """Fill the model's own weights as the architecture says, but for those that are known.

        A module's numbers follow from the seed and its name alone, so they are the same whatever
        else is drawn: a new head begins alike on a published backbone and on a random one.
        """
        there = {id(p) for name, p in self.named_parameters() if name in loaded}
        with torch.random.fork_rng(devices=[]):
            for name, module in self.named_modules():
                own = [id(p) for p in module.parameters(recurse=False)]
                if name.split(".", 1)[0] == "adapters" or (own and there.issuperset(own)):
                    continue
                torch.manual_seed(_module_seed(seed, name))
                self.decoder_architecture.initializer(name, module, self.decoder_architecture)
                if isinstance(module, SelfInitializing):
                    module.initialize_parameters()
        copy_to_global_attention(self, loaded)
        return self

    def check_supports_memory(self) -> None:
        """Check that the network can read a memory of what stood before a text.

        Raises:
            ValueError: it cannot.
        """
        if not isinstance(self.backbone, Transformer | Recurrent) or len(self.networks) > 1:
            raise ValueError("only a model of one stack reads a memory of what stood before")
        self.backbone.check_supports_memory()

    @property
    def query_stream(self) -> QueryStream | None:
        """What its language head, if it has one, lets ask the backbone's layers."""
        found = (h.decoder for h in self.heads.values() if isinstance(h, LanguageModelingHead))
        return next(found, None)

    def hidden_states(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Run the backbone, as the language head reads it if there is one."""
        found = (h.query_stream_for(batch) for h in self.heads.values() if isinstance(h, LanguageModelingHead))
        return self._run_backbone(batch, next(found, None))

    def _run_backbone(self, batch: Batch, query_stream: QueryStream | None) -> Float[Tensor, "b t _"]:
        if query_stream is None:
            return self.backbone(batch)
        return self.backbone(batch, decoder=query_stream)

    def pad_for_network(self, batch: Batch) -> Batch:
        """Return the batch with so much padding that no text depends on how long the others are.

        Most networks need none; see `Canine`.
        """
        return self.backbone.pad_for_network(batch)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the places that each term asks of this batch, before the forward."""
        counts: dict[str, int] = {}
        for head in self.heads.values():
            counts |= cast(Head, head).count_targets(batch)
        return counts

    def flops(self, length: int, target_fraction: float) -> float:
        """Count a training step's matrix-product FLOPs a token.

        The share `target_fraction` of the tokens is asked for. Backward costs twice the forward (Kaplan et
        al. 2020, section 2.1).
        """
        heads = [h.flops(length, target_fraction) for h in self.heads.values() if isinstance(h, HasFlops)]
        forward = self.backbone.flops(length)
        if (decoder := self.query_stream) is not None:
            forward *= 1 + decoder.extra_cost(self.decoder_architecture.n_layers)
        return 3 * (forward + sum(heads))

    @property
    def supports_last_only(self) -> bool:
        """Whether its last layer can make `batch.only`; what adapters do may need all columns."""
        return self.backbone.supports_last_only and not self.adapters and self.query_stream is None

    @property
    def uses_all_layers(self) -> bool:
        """Whether some head reads the hidden states of all layers."""
        return any(uses_all_layers(spec) for spec in self.head_specs.values())

    @property
    def uses_summary(self) -> bool:
        """Whether some head reads the vector that the network itself makes of a text."""
        return any(uses_summary(spec) for spec in self.head_specs.values())

    def _pooled_column(self, batch: Batch) -> Int[Tensor, "b"] | None:
        """Find the one column of each row that the heads read, if that is all they read."""
        head, *more = list(self.heads.values()) or [None]
        if more or not self.supports_last_only or not isinstance(head, SequenceClassificationHead):
            return None
        return head.pooled_column(batch)

    def forward(self, batch: Batch, *, return_logits: bool | Collection[str] = False) -> Prediction:
        """Read a batch; each head answers what the batch asks of it.

        With `return_logits`, those heads, or all, also return what they said.
        """
        said: dict[str, Tensor] = {}
        terms: dict[str, Term] = {}
        for name, head in self.heads.items():
            if isinstance(head, InputCorrupter):
                told = return_logits if isinstance(return_logits, bool) else name in return_logits
                batch, guesses = head.corrupt(batch, return_logits=told)
                said |= guesses.logits
                terms |= guesses.terms
        only = self._pooled_column(batch)
        read = replace(
            batch,
            selected_column=batch.selected_column if only is None else only,
            all_layers=self.uses_all_layers,
            summary=self.uses_summary,
        )
        if only is not None:
            batch = replace(batch, last_token_positions=None)  # there is but one column
        states: dict[QueryStream | None, Tensor] = {}
        for name, head in self.heads.items():
            decoder = head.query_stream_for(batch) if isinstance(head, LanguageModelingHead) else None
            if decoder not in states:
                states[decoder] = self._run_backbone(read, decoder)
            hidden, spec = states[decoder], self.head_specs[name]
            summary = hidden[:, :1]
            if read.summary and only is None:
                hidden = hidden[:, 1:]
            if uses_summary(spec):
                hidden = summary
            elif not uses_all_layers(spec):
                hidden = hidden[..., -self.decoder_architecture.d_model :]
            said_too = return_logits if isinstance(return_logits, bool) else name in return_logits
            prediction = cast(Head, head)(hidden, batch, return_logits=said_too)
            said |= prediction.logits
            terms |= prediction.terms
        return Prediction(said, terms)


def uses_all_layers(spec: HeadSpec) -> bool:
    """Say whether a head reads the hidden states of all layers, not those of the last one alone."""
    return isinstance(spec, SequenceClassification) and spec.pooled_layers == "all"


def uses_summary(spec: HeadSpec) -> bool:
    """Say whether a head reads the vector that the network itself makes of the whole text."""
    return isinstance(spec, SequenceClassification) and spec.pooling == "summary"


def _module_seed(seed: int, name: str) -> int:
    """Return a seed of a module's own."""
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
