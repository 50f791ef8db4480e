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
from unmask.heads.beside import SentencesFound, SentencesSaid
from unmask.heads.both_sides import BothSides
from unmask.heads.boundary import Boundary
from unmask.heads.characters import CharactersInTurn
from unmask.heads.corrected import Corrected
from unmask.heads.generator import Generator
from unmask.heads.labels import Labels, LabelsHead, TokenLabels
from unmask.heads.language import AfterSource, ByMask, ByNext, Language, LanguageHead
from unmask.heads.neighbors import Neighbors
from unmask.heads.pooler import Pooler
from unmask.heads.prediction import Prediction, Term
from unmask.heads.recurrent import RecurrentTags
from unmask.heads.replaced import Replaced
from unmask.heads.spans import Spans
from unmask.heads.steady import Steady
from unmask.heads.subwords import HiddenSubwords
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.attention import copy_to_wide
from unmask.model.canine import Canine, CanineArchitecture
from unmask.model.convolutional import Convolutional, ConvolutionalArchitecture
from unmask.model.decoder import Asker
from unmask.model.elmo import Elmo, ElmoArchitecture
from unmask.model.recurrent import Recurrent, RecurrentArchitecture
from unmask.model.transformer import EncoderDecoder, Transformer
from unmask.tokens.vocabulary import Special

Stack = Transformer | Canine | Recurrent | Convolutional
Backbone = Stack | EncoderDecoder
HeadSpec = (
    Language
    | Labels
    | TokenLabels
    | RecurrentTags
    | Spans
    | Neighbors
    | SentencesSaid
    | SentencesFound
    | Boundary
    | Generator
    | Replaced
    | Corrected
    | CharactersInTurn
    | HiddenSubwords
    | BothSides
    | Steady
)


def kept_with(spec: HeadSpec) -> bool:
    """Say whether a trained model is kept with a head.

    Not with one that serves pretraining alone: a generator, CANINE-S's scores of subwords, a fine,
    or a comparison without weights.
    """
    if isinstance(spec, Neighbors):
        return spec.transform is not None
    return not isinstance(spec, Generator | HiddenSubwords | Steady | SentencesFound)


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


@runtime_checkable
class OfVocabulary(Protocol):
    """A head whose size is that of a vocabulary which the network does not read."""

    def fitted(self, special: Special) -> "HeadSpec":
        """Return the head for another vocabulary."""
        ...


def asked_by(name: str, spec: HeadSpec) -> str:
    """Return what an objective must ask for a head to have something to answer."""
    return getattr(spec, "asked_by", getattr(spec, "term", name))


@runtime_checkable
class Corrupting(Protocol):
    """A head with a network of its own, which changes what the backbone reads."""

    @property
    def network(self) -> nn.Module:
        """That network."""
        ...

    def join(self, backbone: Transformer) -> None:
        """Have in common with the backbone what is shared."""
        ...

    def corrupt(self, batch: Batch, *, scores: bool = False) -> tuple[Batch, Prediction]:
        """Return the batch that the backbone reads, and what was said on the way."""
        ...

    def apart(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a model's weights by name as they are without this head beside it."""
        ...


@runtime_checkable
class Costly(Protocol):
    """A head whose matrix products are worth counting beside the backbone's."""

    def flops(self, length: int, asked: float) -> float:
        """Count the forward's FLOPs a token in texts of `length`, the share `asked` of it asked."""
        ...


def backbone(architecture: Architecture | EncoderDecoderArchitecture) -> Backbone:
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
        pooled: Pooler | None = None,
    ) -> None:
        super().__init__()
        self.architecture = architecture
        self.pooled = pooled
        self.specs = dict(heads)
        self.backbone: Backbone = backbone(architecture)
        two = isinstance(architecture, EncoderDecoderArchitecture)
        stack = architecture.decoder if two else architecture
        self.stack = stack
        self.heads = nn.ModuleDict()
        for name, spec in heads.items():
            self.add(name, spec)
        self.pooler = None if pooled is None else pooled.build(stack)
        """A map of its own that no head reads."""
        self.adapters = nn.ModuleDict()
        """What stands beside the model's own weights; see `unmask.adapters.attach`."""

    def add(self, name: str, spec: HeadSpec) -> None:
        """Add a head; the weights of one that has any are not drawn."""
        self.specs[name] = spec
        self.heads[name] = head = spec.build(self.stack, self.backbone.table)
        if isinstance(head, Corrupting) and isinstance(self.backbone, Transformer):
            head.join(self.backbone)

    @property
    def stacks(self) -> list[nn.Module]:
        """The backbone, and the networks that heads have of their own."""
        own = (h.network for h in self.heads.values() if isinstance(h, Corrupting))
        return [self.backbone, *own]

    @property
    def vocab_size(self) -> int:
        """Rows of the table of tokens."""
        return self.architecture.vocab_size

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.backbone.table.weight.device

    @property
    def names_tokens(self) -> bool:
        """Whether some head names tokens."""
        return any(isinstance(head, LanguageHead) for head in self.heads.values())

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

    @property
    def _forward(self) -> ByMask | ByNext | AfterSource | None:
        found = (h.spec.forward for h in self.heads.values() if isinstance(h, LanguageHead))
        return next(found, None)

    @property
    def by_mask(self) -> ByMask | None:
        """How it says text by masks, if it does."""
        return self._forward if isinstance(self._forward, ByMask) else None

    def unseen(self, batch: Batch, mask: int) -> Batch:
        """Return the batch whose masked places are asked, as this model asks for what is hidden.

        One whose second stream asks (XLNet) reads no masks: their places are seen by nobody.
        """
        if not self.names_tokens or not self.language.blind:
            return batch
        rank = (batch.inputs == mask).long()
        return replace(batch, visibility=replace(batch.visibility, rank=rank), blind=True)

    @property
    def answers(self) -> bool:
        """Whether a prompt is a source, which what is said answers and does not go on with."""
        one = isinstance(self._forward, AfterSource)
        return one or self.whole or isinstance(self.backbone, EncoderDecoder)

    @property
    def whole(self) -> bool:
        """Whether a stack that says text sees a prompt as a whole."""
        if isinstance(self._forward, ByMask):
            return self._forward.source is not None
        return isinstance(self._forward, AfterSource) and self._forward.whole

    @property
    def ahead(self) -> bool:
        """Whether it sees in both directions and names what is hidden one place before it."""
        return isinstance(self._forward, ByNext)

    @property
    def reads_forward(self) -> bool:
        """Whether each place, which sees those before it, names the token after its own."""
        return self.stack.causal or self.ahead

    @property
    def writes(self) -> bool:
        """Whether it says text, token by token."""
        return self.reads_forward or self.by_mask is not None

    def parameter_count(self) -> int:
        """Count the numbers that the model is kept with, shared ones once, without adapters."""
        return sum(p.numel() for p in self.kept().values())

    def kept(self) -> dict[str, Tensor]:
        """Return the weights of a trained model: those without heads of pretraining alone."""
        weights = self.weights()
        for head in self.heads.values():
            if isinstance(head, Corrupting):
                weights = head.apart(weights)
        gone = [n for n, spec in self.specs.items() if not kept_with(spec)]
        left = tuple(f"heads.{name}." for name in gone)
        return {name: x for name, x in weights.items() if not name.startswith(left)}

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
        copy_to_wide(self, known)
        return self

    def check_recalls(self) -> None:
        """Check that the network can read a memory of what stood before a text.

        Raises:
            ValueError: it cannot.
        """
        if not isinstance(self.backbone, Transformer | Recurrent) or len(self.stacks) > 1:
            raise ValueError("only a model of one stack reads a memory of what stood before")
        self.backbone.check_recalls()

    @property
    def decoder(self) -> Asker | None:
        """What its language head, if it has one, lets ask the backbone's layers."""
        found = (h.decoder for h in self.heads.values() if isinstance(h, LanguageHead))
        return next(found, None)

    def hidden(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Run the backbone, as the language head reads it if there is one."""
        found = (h.asker(batch) for h in self.heads.values() if isinstance(h, LanguageHead))
        return self._read(batch, next(found, None))

    def _read(self, batch: Batch, decoder: Asker | None) -> Float[Tensor, "b t _"]:
        if decoder is None:
            return self.backbone(batch)
        return self.backbone(batch, decoder=decoder)

    def roomy(self, batch: Batch) -> Batch:
        """Return the batch with so much padding that no text depends on how long the others are.

        Most networks need none; see `Canine`.
        """
        return self.backbone.roomy(batch)

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the places that each term asks of this batch, before the forward."""
        counts: dict[str, int] = {}
        for head in self.heads.values():
            counts |= cast(Head, head).count(batch)
        return counts

    def flops(self, length: int, asked: float) -> float:
        """Count a training step's matrix-product FLOPs a token.

        The share `asked` of the tokens is asked for. Backward costs twice the forward (Kaplan et
        al. 2020, section 2.1).
        """
        heads = [h.flops(length, asked) for h in self.heads.values() if isinstance(h, Costly)]
        forward = self.backbone.flops(length)
        if (decoder := self.decoder) is not None:
            forward *= 1 + decoder.more(self.stack.n_layers)
        return 3 * (forward + sum(heads))

    @property
    def narrows(self) -> bool:
        """Whether its last layer can make `batch.only`; what adapters do may need all columns."""
        return self.backbone.narrows and not self.adapters and self.decoder is None

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
        said: dict[str, Tensor] = {}
        terms: dict[str, Term] = {}
        for name, head in self.heads.items():
            if isinstance(head, Corrupting):
                told = scores if isinstance(scores, bool) else name in scores
                batch, guesses = head.corrupt(batch, scores=told)
                said |= guesses.scores
                terms |= guesses.terms
        only = self._only(batch)
        read = replace(
            batch,
            only=batch.only if only is None else only,
            all_layers=self.reads_all_layers,
            summary=self.reads_summary,
        )
        if only is not None:
            batch = replace(batch, last=None)  # there is but one column
        states: dict[Asker | None, Tensor] = {}
        for name, head in self.heads.items():
            decoder = head.asker(batch) if isinstance(head, LanguageHead) else None
            if decoder not in states:
                states[decoder] = self._read(read, decoder)
            hidden, spec = states[decoder], self.specs[name]
            summary = hidden[:, :1]
            if read.summary and only is None:
                hidden = hidden[:, 1:]
            if reads_summary(spec):
                hidden = summary
            elif not reads_all_layers(spec):
                hidden = hidden[..., -self.stack.d_model :]
            said_too = scores if isinstance(scores, bool) else name in scores
            prediction = cast(Head, head)(hidden, batch, scores=said_too)
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
