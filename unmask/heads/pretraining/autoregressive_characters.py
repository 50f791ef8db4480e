"""Autoregressive prediction of masked characters (CANINE-C)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.language.linear_cross_entropy import linear_cross_entropy
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.backbones.canine import PAD_CODE_POINT, CanineArchitecture
from unmask.model.layers.attention.attention import Attention, AttentionMask
from unmask.model.layers.embeddings.character_hash import CharacterHashEmbedding
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.model.layers.feed_forward import ACTIVATIONS, FeedForward
from unmask.model.layers.sublayer_connection import SublayerConnection
from unmask.model.positions.module import PositionLayer
from unmask.objectives.features import PredictionOrder


@dataclass(frozen=True, kw_only=True)
class AutoregressiveCharacters(HeadSpec):
    """The head that predicts masked characters, each given those predicted before it.

    Clark et al. 2022, arXiv:2103.06874, section 3.2.1. The embeddings e of the characters are
    concatenated with the hidden states y of their positions and projected back to the size of y.
    They pass through one causal Transformer layer, in a random order, and a softmax over hash
    buckets, code point mod B, instead of a million code points.

    Deviates: as described, each position would see the embedding of its own target. Here the query
    has the embedding of the mask instead, and attends to the characters predicted before it and to
    itself.
    """

    term: str = "characters"
    n_buckets: int | None = None
    """Number of buckets B. None: `n_hash_buckets` of the architecture."""
    mask_id: int = 0xE003
    """Code point whose embedding stands for characters that are not predicted yet."""

    @property
    def loss_description(self) -> str:
        """A bucket of hashes stands for each character."""
        return "cross-entropy of the character's hash bucket, given those of earlier turns"

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "AutoregressiveCharactersHead":
        """Build the head of a network that hashes characters.

        Raises:
            ValueError: it does not.
        """
        if not isinstance(architecture, CanineArchitecture) or not isinstance(
            embedding_table, CharacterHashEmbedding
        ):
            raise ValueError("this head needs a network that hashes characters, as CANINE")
        return AutoregressiveCharactersHead(self, architecture, embedding_table)


class AutoregressiveCharactersHead(nn.Module):
    """Logits of buckets of characters at the targets, and their cross-entropy."""

    def __init__(
        self,
        spec: AutoregressiveCharacters,
        a: CanineArchitecture,
        embedding_table: CharacterHashEmbedding,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.buckets = spec.n_buckets or a.n_hash_buckets
        self.join = nn.Linear(2 * a.d_model, a.d_model, bias="feed_forward" in a.biases)
        self.activation = ACTIVATIONS[a.activation]
        self.join_norm = a.norm.build(a.d_model)
        blocks = a.blocks
        self.attention = Attention(blocks, PositionLayer())
        self.attention_norm = SublayerConnection(blocks)
        self.feed_forward = FeedForward(
            a.d_model,
            a.d_ff,
            activation=a.activation,
            gated=blocks.gated_feed_forward,
            bias="feed_forward" in a.biases,
        )
        self.feed_forward_norm = SublayerConnection(blocks)
        self.out = nn.Linear(a.d_model, self.buckets)
        # in a tuple: parameters of the backbone, not of this module
        self._table = (embedding_table,)

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward FLOPs per token: each target passes through the layer twice."""
        a, forward = self.attention, self.feed_forward
        projections = (a.q, a.o, forward.up, forward.down, forward.gate, self.out)
        weights = sum(m.weight.numel() for m in projections if m is not None)
        weights += 2 * sum(m.weight.numel() for m in (self.join, a.k, a.v))
        attention = 4 * a.q.out_features * 2 * target_fraction * length
        return target_fraction * (2 * weights + attention)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the targets, without reading a tensor."""
        if batch.targets is None:
            return {}
        n = (
            batch.targets.numel()
            if batch.target_positions is None
            else batch.target_positions.numel()
        )
        return {self.spec.term: n}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Predict the bucket of each masked character, in the batch's prediction order.

        Raises:
            ValueError: the batch has no prediction order.
        """
        if batch.targets is None:
            return Prediction()
        if (prediction_order := batch.feature(PredictionOrder)) is None:
            raise ValueError(
                "CANINE-C asks in turns, and this batch has none: let its objective hide "
                "`AutoregressiveMasking`"
            )
        y, targets, order = (
            hidden.flatten(0, 1),
            batch.targets.flatten(),
            prediction_order.order.flatten(),
        )
        positions = batch.target_positions
        if positions is None:
            positions = torch.arange(len(targets), device=targets.device)
        y, targets, order = y[positions], targets[positions], order[positions]
        vectors = self.condition_on_predicted(
            y, targets, order, positions // hidden.shape[1], len(hidden)
        )
        target_buckets = targets % self.buckets
        total, n_correct = linear_cross_entropy(
            vectors, self.out.weight, self.out.bias, target_buckets
        )
        logits = {self.spec.term: self.out(vectors)} if return_logits else {}
        return Prediction(logits, {self.spec.term: Term(total, targets.numel(), n_correct)})

    def condition_on_predicted(
        self,
        y: Float[Tensor, "n d"],
        characters: Int[Tensor, "n"],
        prediction_order: Int[Tensor, "n"],
        row: Int[Tensor, "n"],
        rows: int,
    ) -> Float[Tensor, "n d"]:
        """Return the vector of each target, given the characters earlier in the order.

        Args:
            y: hidden states of the targets, from the backbone.
            characters: the targets.
            prediction_order: rank of each target in its text, from 0.
            row: the text of each target.
            rows: the number of texts.
        """
        if not len(prediction_order):
            return y
        width = int(prediction_order.max()) + 1
        slot = row * width + prediction_order
        states = y.new_zeros(rows * width, y.shape[1]).index_copy(0, slot, y)
        character_rows = characters.new_full((rows * width,), PAD_CODE_POINT).index_copy(
            0, slot, characters
        )
        states, character_rows = states.view(rows, width, -1), character_rows.view(rows, width)
        queries = self._joined(states, torch.full_like(character_rows, self.spec.mask_id))
        context = torch.cat((self._joined(states, character_rows), queries), 1)
        before = torch.ones(width, width, dtype=torch.bool, device=y.device).tril(-1)
        own = torch.eye(width, dtype=torch.bool, device=y.device)
        attention_mask = AttentionMask(torch.cat((before, own), 1)[None, None])
        x = self.attention_norm(queries, lambda z: self.attention(z, context, None, attention_mask))
        return self.feed_forward_norm(x, self.feed_forward).flatten(0, 1)[slot]

    def _joined(
        self, places: Float[Tensor, "b n d"], characters: Int[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        """Combine hidden states and character embeddings."""
        both = torch.cat((self._table[0](characters), places), -1)
        return self.join_norm(self.activation(self.join(both)))
