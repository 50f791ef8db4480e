"""Hidden states of characters -> the characters that are hidden, one after another (CANINE-C)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.language import next_loss
from unmask.heads.prediction import Prediction, Term
from unmask.model.architecture import Architecture
from unmask.model.attention import Attention, Sight
from unmask.model.canine import PAD, CanineArchitecture, HashEmbedding, Table
from unmask.model.norms import Norms
from unmask.model.parts import ACTIVATIONS, FeedForward
from unmask.model.positions import Place


@dataclass(frozen=True, kw_only=True)
class CharactersInTurn:
    """The head that names hidden characters, each knowing those that were asked before it.

    Clark et al. 2022, arXiv:2103.06874, section 3.2.1: the vectors e of the characters (the
    embedding's) beside those y of their places, through a small network back to the width of y, in
    a random order, through one layer of a Transformer that sees what comes before; and then a
    softmax over buckets, code point mod B, not over a million code points.

    Deviates: as written, each place would see the vector of the character that it is asked for.
    Here a place asks with the mask's vector in that place, and reads those that were asked before
    it, and itself.
    """

    term: str = "characters"
    buckets: int | None = None
    """B. None: as many as the embedding's tables have rows."""
    mask: int = 0xE003
    """The code point of what is not yet known."""

    def build(self, architecture: Architecture, table: Table) -> "CharactersInTurnHead":
        """Build the head of a network that hashes characters.

        Raises:
            ValueError: it does not.
        """
        if not isinstance(architecture, CanineArchitecture) or not isinstance(table, HashEmbedding):
            raise ValueError("this head is of a network that hashes characters, as CANINE")
        return CharactersInTurnHead(self, architecture, table)


class CharactersInTurnHead(nn.Module):
    """Scores of buckets of characters at the places asked, and their cross-entropy."""

    def __init__(self, spec: CharactersInTurn, a: CanineArchitecture, table: HashEmbedding) -> None:
        super().__init__()
        self.spec = spec
        self.buckets = spec.buckets or a.n_buckets
        self.join = nn.Linear(2 * a.d_model, a.d_model, bias="feed_forward" in a.bias)
        self.activation = ACTIVATIONS[a.activation]
        self.join_norm = a.norm.build(a.d_model)
        self.attention, self.attention_norm = Attention(a, Place()), Norms(a)
        self.feed_forward = FeedForward(
            a.d_model, a.d_ff, activation=a.activation, gated=a.gated, bias="feed_forward" in a.bias
        )
        self.feed_forward_norm = Norms(a)
        self.out = nn.Linear(a.d_model, self.buckets)
        # in a tuple: the backbone's parameters, not some more of this module's
        self._table = (table,)

    def flops(self, length: int, asked: float) -> float:
        """Count the forward's FLOPs a token: each place asked is joined and read twice."""
        a, forward = self.attention, self.feed_forward
        once = (a.q, a.o, forward.up, forward.down, forward.gate, self.out)
        weights = sum(m.weight.numel() for m in once if m is not None)
        weights += 2 * sum(m.weight.numel() for m in (self.join, a.k, a.v))
        seen = 4 * a.q.out_features * 2 * asked * length
        return asked * (2 * weights + seen)

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the places asked, without reading a tensor."""
        if batch.targets is None:
            return {}
        n = batch.targets.numel() if batch.asked is None else batch.asked.numel()
        return {self.spec.term: n}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Ask for the bucket of each hidden character, in the turns that the batch says.

        Raises:
            ValueError: it says none.
        """
        if batch.targets is None:
            return Prediction()
        if batch.turn is None:
            raise ValueError(
                "CANINE-C asks in turns, and this batch has none: let its objective hide `InTurn`"
            )
        y, targets, turn = hidden.flatten(0, 1), batch.targets.flatten(), batch.turn.flatten()
        asked = batch.asked
        if asked is None:
            asked = torch.arange(len(targets), device=targets.device)
        y, targets, turn = y[asked], targets[asked], turn[asked]
        told = self.told(y, targets, turn, asked // hidden.shape[1], len(hidden))
        wanted = targets % self.buckets
        total, right = next_loss(told, self.out.weight, self.out.bias, wanted)
        said = {self.spec.term: self.out(told)} if scores else {}
        return Prediction(said, {self.spec.term: Term(total, targets.numel(), right)})

    def told(
        self,
        y: Float[Tensor, "n d"],
        characters: Int[Tensor, "n"],
        turn: Int[Tensor, "n"],
        row: Int[Tensor, "n"],
        rows: int,
    ) -> Float[Tensor, "n d"]:
        """Return the vector of each place asked, knowing the characters of earlier turns.

        Args:
            y: of the places asked, from the backbone.
            characters: that stand there.
            turn: of each place in its text, from 0.
            row: the text of each place.
            rows: how many texts there are.
        """
        if not len(turn):
            return y
        width = int(turn.max()) + 1
        slot = row * width + turn
        places = y.new_zeros(rows * width, y.shape[1]).index_copy(0, slot, y)
        known = characters.new_full((rows * width,), PAD).index_copy(0, slot, characters)
        places, known = places.view(rows, width, -1), known.view(rows, width)
        asking = self._joined(places, torch.full_like(known, self.spec.mask))
        context = torch.cat((self._joined(places, known), asking), 1)
        before = torch.ones(width, width, dtype=torch.bool, device=y.device).tril(-1)
        own = torch.eye(width, dtype=torch.bool, device=y.device)
        sight = Sight(torch.cat((before, own), 1)[None, None])
        x = self.attention_norm(asking, lambda z: self.attention(z, context, None, sight))
        return self.feed_forward_norm(x, self.feed_forward).flatten(0, 1)[slot]

    def _joined(
        self, places: Float[Tensor, "b n d"], characters: Int[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        """Put the vectors of places and of characters together."""
        both = torch.cat((self._table[0](characters), places), -1)
        return self.join_norm(self.activation(self.join(both)))
