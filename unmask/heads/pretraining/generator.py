"""A smaller masked language model whose samples corrupt the model's inputs (ELECTRA)."""

from dataclasses import dataclass, replace
from math import gcd
from typing import Any, Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch
from unmask.heads.language.language_modeling import LanguageModeling, LanguageModelingHead
from unmask.heads.language.linear_cross_entropy import ROWS_PER_CHUNK
from unmask.heads.prediction import Prediction
from unmask.heads.pretraining.generator_inputs import GeneratorInputs
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import Backbone, StackArchitecture
from unmask.model.backbones.transformer import Architecture, Transformer
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding, require_embedding_table
from unmask.model.layers.feed_forward import Activation

EmbeddingSharing = Literal["all", "tokens", "none", "disentangled"]
"""Embeddings that the two networks share: all input embeddings, those of tokens, or none.
"disentangled": the model uses the generator's token embeddings, without a gradient from its own
loss, plus a difference that only its own loss trains (He et al. 2021, arXiv:2111.09543, section
3.2)."""


@dataclass(frozen=True, kw_only=True)
class Generator(HeadSpec):
    """A generator: a smaller network whose samples replace masked tokens.

    Clark et al. 2020, arXiv:2003.10555, section 2. Both networks are trained together; there is no
    gradient through the samples. A sample equal to the original token does not count as replaced.
    """

    term: str = "masked"
    width_factor: float = 0.25
    """Size of d_model, n_heads and d_ff, as a fraction of the model's (section 3.2)."""
    n_layers: int | None = None
    """Number of layers. None: as many as the model has."""
    transform: Activation = "gelu"
    embedding_sharing: EmbeddingSharing = "all"
    weight: float = 1.0
    sample_with_dropout: bool = True
    """Whether tokens are sampled from the training forward pass, with dropout. If not, from a
    second forward pass without dropout (Meng et al. 2021, arXiv:2102.08473, section 4, "Model
    Architecture"; released code, `generator_sample_mode`)."""

    def __post_init__(self) -> None:
        if not 0 < self.width_factor <= 1:
            raise ValueError(f"width_factor must be above 0 and at most 1, got {self.width_factor}")
        if self.n_layers is not None and self.n_layers < 1:
            raise ValueError(f"n_layers must be at least 1, got {self.n_layers}")

    @property
    def loss_description(self) -> str:
        """The generator's loss."""
        return "cross-entropy of the token, by the generator"

    @property
    def reader(self) -> str:
        """The smaller network."""
        return "the generator"

    @property
    def draws_inputs(self) -> bool:
        """True."""
        return True

    @property
    def language_head(self) -> LanguageModeling:
        """The head of the smaller network."""
        return LanguageModeling(
            term=self.term, transform=self.transform, bias=True, weight=self.weight
        )

    def generator_architecture(self, a: Architecture) -> Architecture:
        """Return the smaller network of a model."""
        heads = max(1, round(a.n_heads * self.width_factor))
        width, groups = round(a.d_model * self.width_factor), a.n_kv_heads
        return replace(
            a,
            d_model=width - width % heads,
            n_heads=heads,
            n_kv_heads=None if groups is None else gcd(heads, groups),
            d_ff=round(a.d_ff * self.width_factor),
            head_dim=None,
            embedding_size=a.d_embed if width - width % heads != a.d_embed else None,
            n_layers=a.n_layers if self.n_layers is None else self.n_layers,
            layers=a.layers.undivided(),
        )

    @property
    def is_kept_after_pretraining(self) -> bool:
        """False: it is used for pretraining only."""
        return False

    @property
    def gives_perplexity(self) -> bool:
        """True: its loss is that of a language model."""
        return True

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "GeneratorHead":
        """Build the smaller network of an architecture with token embeddings `embedding_table`.

        Raises:
            ValueError: the model is not a Transformer, or has no token embeddings.
        """
        if type(architecture) is not Architecture:
            raise ValueError(
                "a generator is a smaller Transformer beside a Transformer: got "
                f"{type(architecture).__name__}"
            )
        return GeneratorHead(self, architecture, require_embedding_table(embedding_table))


class GeneratorHead(nn.Module):
    """Predicts the masked tokens, before the model runs."""

    def __init__(self, spec: Generator, a: Architecture, embedding_table: nn.Embedding) -> None:
        super().__init__()
        self.spec, own = spec, spec.generator_architecture(a)
        shared = spec.embedding_sharing in ("all", "tokens")
        self.network = Transformer(own, embedding_table if shared else None)
        self.language: LanguageModelingHead = spec.language_head.build(own, self._own_table)
        # in a tuple: parameters of the backbone, not of this module
        self._table = (embedding_table,)

    def own_network(self) -> Transformer:
        """Return the generator's network."""
        return self.network

    def share_with(self, backbone: Backbone) -> None:
        """Share embeddings with the model, if it is a single Transformer."""
        if not isinstance(backbone, Transformer):
            return
        if self.spec.embedding_sharing == "all":
            self.network.segments, self.network.embed_norm = backbone.segments, backbone.embed_norm
            self.network.position.share_embeddings(backbone.position)
        if self.spec.embedding_sharing == "disentangled":
            backbone.tokens.register_forward_hook(self._add_shared_embedding)

    def _add_shared_embedding(
        self, embedding_table: nn.Module, args: tuple[Any, ...], out: Tensor
    ) -> Tensor:
        return out + F.embedding(args[0], self._own_table.weight.detach())

    def initialize_parameters(self) -> None:
        """Initialize the difference from the generator's token embeddings, if any, to zero."""
        if self.spec.embedding_sharing == "disentangled":
            nn.init.zeros_(self._table[0].weight)

    @property
    def _own_table(self) -> nn.Embedding:
        """The token embeddings of the generator's own network."""
        return cast(nn.Embedding, self.network.tokens)

    def without_sharing(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add the generator's token embeddings to the model's, if these are a difference."""
        if self.spec.embedding_sharing != "disentangled":
            return weights
        name = "backbone.tokens.weight"
        return weights | {name: weights[name] + self._own_table.weight.detach()}

    def to_embedding_difference(self) -> None:
        """Convert the model's token embeddings into the difference from the generator's."""
        if self.spec.embedding_sharing == "disentangled":
            with torch.no_grad():
                self._table[0].weight -= self._own_table.weight

    @property
    def needs_second_forward(self) -> bool:
        """Whether it samples from a second forward pass."""
        a = self.network.a
        drops = a.dropout or a.attention_dropout or a.activation_dropout or a.final_dropout
        return not self.spec.sample_with_dropout and bool(drops)

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward FLOPs per token, of which `target_fraction` have targets.

        A second forward pass has no backward pass, so it costs a third of a training pass.
        """
        times = 4 / 3 if self.needs_second_forward else 1
        return times * self.network.flops(length) + self.language.flops(length, target_fraction)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the targets."""
        return self.language.count_targets(batch)

    def corrupt(self, batch: Batch, *, return_logits: bool = False) -> tuple[Batch, Prediction]:
        """Return the corrupted batch, and the prediction of the generator."""
        if batch.targets is None:
            return batch, Prediction()
        hidden = self.network(batch)
        prediction = self.language(hidden, batch, return_logits=return_logits)
        if self.training and self.needs_second_forward:
            hidden = self._without_dropout(batch)
        flat, inputs, targets = (
            hidden.flatten(0, 1),
            batch.inputs.flatten(),
            batch.targets.flatten(),
        )
        target_positions = (
            torch.arange(len(inputs)) if batch.target_positions is None else batch.target_positions
        )
        target_positions = target_positions.to(inputs.device)
        corrupted = inputs.index_put(
            (target_positions,), self._sample_tokens(flat[target_positions])
        )
        original = inputs.index_put((target_positions,), targets[target_positions])
        corrupted_batch = replace(batch, inputs=corrupted.view_as(batch.inputs))
        return corrupted_batch.with_feature(
            GeneratorInputs(original.view_as(batch.inputs))
        ), prediction

    @torch.no_grad()
    def _without_dropout(self, batch: Batch) -> Float[Tensor, "b t d"]:
        self.network.eval()
        hidden = self.network(batch)
        self.network.train()
        return hidden

    @torch.no_grad()
    def _sample_tokens(self, hidden: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
        """Sample a token for each target, from torch's default generator."""
        samples = [
            self._sample_rows(hidden[i : i + ROWS_PER_CHUNK])
            for i in range(0, len(hidden), ROWS_PER_CHUNK)
        ]
        return torch.cat(samples) if samples else hidden.new_empty(0, dtype=torch.int64)

    def _sample_rows(self, hidden: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
        sums = self.language.logits(hidden).float().softmax(-1).cumsum(-1)
        dice = torch.rand(len(sums), 1, device=sums.device) * sums[:, -1:]
        return torch.searchsorted(sums, dice).squeeze(1).clamp(max=sums.shape[1] - 1)

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Return an empty prediction: `corrupt` computes the terms."""
        return Prediction()
