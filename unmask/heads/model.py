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
from unmask.heads.characters import CharactersInTurn
from unmask.heads.labels import Labels, LabelsHead, TokenLabels
from unmask.heads.language import Language, LanguageHead
from unmask.heads.neighbors import Neighbors
from unmask.heads.prediction import Prediction
from unmask.heads.recurrent import RecurrentTags
from unmask.heads.spans import Spans
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.canine import Canine, CanineArchitecture
from unmask.model.transformer import EncoderDecoder, Transformer

Backbone = Transformer | EncoderDecoder | Canine
HeadSpec = Language | Labels | TokenLabels | RecurrentTags | Spans | Neighbors | CharactersInTurn


@runtime_checkable
class Head(Protocol):
    """What turns hidden states into a Prediction."""

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the places that each term asks of this batch."""
        ...

    def __call__(self, hidden: Tensor, batch: Batch, *, scores: bool = False) -> Prediction:
        """Ask what the batch asks; with `scores`, also return what was said."""
        ...


@runtime_checkable
class Drawn(Protocol):
    """A module whose own weights begin in a way of its own, from torch's generator."""

    def draw(self) -> None:
        """Fill the weights."""
        ...


def backbone(architecture: Architecture | EncoderDecoderArchitecture) -> Backbone:
    """Build the network of an architecture: each kind of architecture has one."""
    if isinstance(architecture, EncoderDecoderArchitecture):
        return EncoderDecoder(architecture)
    if isinstance(architecture, CanineArchitecture):
        return Canine(architecture)
    return Transformer(architecture)


class Model(nn.Module):
    """One backbone, some heads, one Prediction."""

    def __init__(
        self,
        architecture: Architecture | EncoderDecoderArchitecture,
        heads: Mapping[str, HeadSpec],
    ) -> None:
        super().__init__()
        self.architecture = architecture
        self.specs = dict(heads)
        self.backbone: Backbone = backbone(architecture)
        two = isinstance(architecture, EncoderDecoderArchitecture)
        stack = architecture.decoder if two else architecture
        self.stack = stack
        table = self.backbone.table
        self.heads = nn.ModuleDict({name: spec.build(stack, table) for name, spec in heads.items()})
        self.adapters = nn.ModuleDict()
        """What stands beside the model's own weights; see `unmask.adapters.attach`."""

    def add(self, name: str, spec: HeadSpec) -> None:
        """Add a head; the weights of one that has any are not drawn."""
        self.specs[name] = spec
        self.heads[name] = spec.build(self.stack, self.backbone.table)

    @property
    def vocab_size(self) -> int:
        """Rows of the table of tokens."""
        return self.architecture.vocab_size

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.backbone.table.weight.device

    @property
    def language(self) -> LanguageHead:
        """The head that names tokens.

        Raises:
            ValueError: there is none.
        """
        for head in self.heads.values():
            if isinstance(head, LanguageHead):
                return head
        raise ValueError(
            f"this model has no language-model head (heads: {', '.join(self.heads) or 'none'})"
        )

    def parameter_count(self) -> int:
        """Count the model's own numbers that are learned, shared ones once, without adapters."""
        return sum(p.numel() for p in self.weights().values())

    def weights(self) -> dict[str, Tensor]:
        """Return the model's own parameters by name, shared ones once, without adapters."""
        named = self.named_parameters()
        return {name: p.detach() for name, p in named if not name.startswith("adapters.")}

    def initialize(self, seed: int = 0, known: Collection[str] = ()) -> "Model":
        """Fill the model's own weights as the architecture says, but for those that are known.

        A module's numbers follow from the seed and its name alone, so they are the same whatever
        else is drawn: a new head begins alike on a published backbone and on a random one.
        """
        there = {id(p) for name, p in self.named_parameters() if name in known}
        with torch.random.fork_rng(devices=[]):
            for name, module in self.named_modules():
                own = [id(p) for p in module.parameters(recurse=False)]
                if name.split(".", 1)[0] == "adapters" or (own and there.issuperset(own)):
                    continue
                torch.manual_seed(_seed(seed, name))
                self.stack.initialize(name, module, self.stack)
                if isinstance(module, Drawn):
                    module.draw()
        return self

    def hidden(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Run the backbone alone."""
        return self.backbone(batch)

    def roomy(self, batch: Batch) -> Batch:
        """Return the batch with so much padding that no text depends on how long the others are.

        Most networks need none; see `Canine`.
        """
        return self.backbone.roomy(batch) if isinstance(self.backbone, Canine) else batch

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the places that each term asks of this batch, before the forward."""
        counts: dict[str, int] = {}
        for head in self.heads.values():
            counts |= cast(Head, head).count(batch)
        return counts

    def flops(self, length: int, asked: float) -> float:
        """Count a training step's matrix-product FLOPs a token.

        The share `asked` of the tokens is scored over the vocabulary. Backward costs twice the
        forward (Kaplan et al. 2020, section 2.1).
        """
        scores = 2 * self.stack.d_embed * self.vocab_size if any(
            isinstance(head, LanguageHead) for head in self.heads.values()
        ) else 0  # fmt: skip
        return 3 * (self.backbone.flops(length) + asked * scores)

    @property
    def narrows(self) -> bool:
        """Whether its last layer can make `batch.only`; what adapters do may need all columns."""
        plain = isinstance(self.backbone, Transformer | Canine) and self.backbone.narrows
        return plain and not self.adapters

    @property
    def reads_all_layers(self) -> bool:
        """Whether some head reads the hidden states of all layers."""
        return any(reads_all_layers(spec) for spec in self.specs.values())

    @property
    def reads_summary(self) -> bool:
        """Whether some head reads the vector that the network itself makes of a text."""
        return any(reads_summary(spec) for spec in self.specs.values())

    def _only(self, batch: Batch) -> Int[Tensor, "b"] | None:
        """Find the one column of each row that the heads read, if that is all they read."""
        head, *more = list(self.heads.values()) or [None]
        if more or not self.narrows or not isinstance(head, LabelsHead):
            return None
        return head.place(batch)

    def forward(self, batch: Batch, *, scores: bool | Collection[str] = False) -> Prediction:
        """Read a batch; each head answers what the batch asks of it.

        With `scores`, those heads, or all, also return what they said.
        """
        only = self._only(batch)
        read = replace(
            batch,
            only=batch.only if only is None else only,
            all_layers=self.reads_all_layers,
            summary=self.reads_summary,
        )
        hidden = self.backbone(read)
        summary = hidden[:, :1]
        if read.summary and only is None:
            hidden = hidden[:, 1:]
        last = hidden[..., -self.stack.d_model :]
        if only is not None:
            batch = replace(batch, last=None)  # there is but one column
        said: dict[str, Tensor] = {}
        terms = {}
        for name, head in self.heads.items():
            said_too = scores if isinstance(scores, bool) else name in scores
            spec = self.specs[name]
            one = summary if reads_summary(spec) else last
            read = hidden if reads_all_layers(spec) else one
            prediction = cast(Head, head)(read, batch, scores=said_too)
            said |= prediction.scores
            terms |= prediction.terms
        return Prediction(said, terms)


def reads_all_layers(spec: HeadSpec) -> bool:
    """Say whether a head reads the hidden states of all layers, not those of the last one alone."""
    return isinstance(spec, Labels) and spec.layers == "all"


def reads_summary(spec: HeadSpec) -> bool:
    """Say whether a head reads the vector that the network itself makes of the whole text."""
    return isinstance(spec, Labels) and spec.pool == "summary"


def _seed(seed: int, name: str) -> int:
    """Return a seed of a module's own."""
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
