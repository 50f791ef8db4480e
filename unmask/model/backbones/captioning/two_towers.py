"""A network of texts and one of pictures, whose embeddings have one space.

Radford et al. 2021, arXiv:2103.00020, section 2.3 and figure 3; the network of transformers' CLIP.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch
from unmask.model.architecture import (
    MAX_SIZE,
    NO_MEMORY,
    NOT_ONE_STACK,
    Ability,
    BackboneArchitecture,
)
from unmask.model.backbones.transformer import Architecture, Transformer
from unmask.model.backbones.vision_transformer import (
    VisionArchitecture,
    VisionTransformer,
    picture_batch,
)
from unmask.model.cache import Cache
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.objectives.inputs.pictures import Pictures
from unmask.tokenizers.spec import SpecialTokenIds

TowersT = TypeVar("TowersT", bound="TwoTowerArchitecture")


@dataclass(frozen=True, kw_only=True)
class TwoTowerArchitecture:
    """A causal stack of texts and a Vision Transformer, as a value."""

    text: Architecture
    vision: VisionArchitecture
    d_projection: int = 512
    """Size of the embeddings of both sides."""
    end_id: int | None = None
    """Id whose first token has the hidden state of a text. None: the greatest id of each text, as
    in the released code."""

    def __post_init__(self) -> None:
        """Check the size, and that the last token of a text can see all of it."""
        if not 1 <= self.d_projection <= MAX_SIZE:
            raise ValueError(
                f"d_projection must be from 1 to {MAX_SIZE:,}, got {self.d_projection}"
            )
        if not self.text.causal or self.text.reads_pictures:
            raise ValueError("text must be a stack of texts with causal = True")

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary of texts."""
        return self.text.vocab_size

    @property
    def d_model(self) -> int:
        """Size of the hidden states of texts."""
        return self.text.d_model

    @property
    def max_positions(self) -> int | None:
        """The length of the longest text. None: there is none."""
        return self.text.max_positions

    @property
    def ignored_fields(self) -> tuple[str, ...]:
        """Fields that have no effect: none."""
        return ()

    @property
    def is_encoder_decoder(self) -> bool:
        """False: neither side attends to the other."""
        return False

    @property
    def is_decoder_only(self) -> bool:
        """False: it has two stacks, and generates nothing."""
        return False

    @property
    def encoder_stack(self) -> Architecture:
        """The stack that reads texts."""
        return self.text

    @property
    def decoder_stack(self) -> Architecture:
        """The same."""
        return self.text

    @property
    def picture_description(self) -> str:
        """Texts and pictures do not see each other."""
        return ""

    @property
    def picture_stack(self) -> VisionArchitecture:
        """The stack that reads pictures."""
        return self.vision

    @property
    def reads_texts(self) -> bool:
        """True: there are texts beside the pictures."""
        return True

    @property
    def stacks(self) -> Mapping[str, Architecture]:
        """Both stacks by the field that holds them."""
        return {"text": self.text, "vision": self.vision}

    def build(self) -> "TwoTowers":
        """Build the network; its weights are not initialized."""
        return TwoTowers(self)

    def with_stacks(self: TowersT, stacks: Mapping[str, Any]) -> TowersT:
        """Return the architecture with other stacks, named as in `stacks`."""
        return replace(self, **stacks)

    def with_vocab_size(self: TowersT, vocab_size: int) -> TowersT:
        """Return a copy with another number of token embeddings."""
        return replace(self, text=self.text.with_vocab_size(vocab_size))

    def with_vocabulary(self: TowersT, special_ids: SpecialTokenIds) -> TowersT:
        """Return a copy for the tokens of a vocabulary, whose end token ends texts."""
        return replace(self.with_vocab_size(special_ids.vocab_size), end_id=special_ids.end)

    def with_dropout(self: TowersT, rate: float) -> TowersT:
        """Return a copy with another dropout in both stacks.

        Raises:
            ValueError: the rate is not from 0 to below 1.
        """
        return replace(
            self, text=self.text.with_dropout(rate), vision=self.vision.with_dropout(rate)
        )

    def activations(self, length: int) -> int:
        """Estimate the activations per token kept for the backward pass, by both stacks."""
        columns = self.vision.position.max_positions
        pictures = self.vision.activations(columns) * columns
        return self.text.activations(length) + pictures // length


class TwoTowers(nn.Module):
    """Texts with their pictures -> embeddings of both [b 2 p]; texts alone -> theirs [b 1 p]."""

    def __init__(self, a: TwoTowerArchitecture) -> None:
        super().__init__()
        self.a = a
        self.text = Transformer(a.text)
        self.vision = VisionTransformer(a.vision)
        self.text_projection = nn.Linear(a.text.d_model, a.d_projection, bias=False)
        self.picture_projection = nn.Linear(a.vision.d_model, a.d_projection, bias=False)

    @property
    def width(self) -> int:
        """Size of the embeddings."""
        return self.a.d_projection

    @property
    def embedding_table(self) -> TokenEmbedding:
        """The token embeddings of texts."""
        return self.text.embedding_table

    @property
    def supports_last_only(self) -> bool:
        """False: a text's embedding is that of its end."""
        return False

    @property
    def encoder_stack(self) -> Transformer:
        """The network that reads texts."""
        return self.text

    @property
    def decoder_stack(self) -> Transformer:
        """The same."""
        return self.text

    @property
    def stacks(self) -> tuple[Transformer, ...]:
        """Both networks."""
        return (*self.text.stacks, *self.vision.stacks)

    @property
    def n_token_layers(self) -> int:
        """All layers of texts have a hidden state for each token."""
        return self.text.n_token_layers

    def unsupported_reason(self, ability: Ability) -> str | None:
        """Return why an ability is not supported: what is of one stack alone."""
        reasons = {
            "memory": NO_MEMORY,
            **NOT_ONE_STACK,
        }
        return reasons.get(ability)

    def pad_for_network(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding after it."""
        return batch

    def new_cache(self, max_rollback: int = 0) -> Cache:
        """Refuse to generate.

        Raises:
            ValueError: always.
        """
        raise ValueError("a network that compares texts and pictures generates no text")

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token, those of a text's picture included."""
        columns = self.a.vision.position.max_positions
        return self.text.flops(length) + self.vision.flops(columns) * columns / length

    def encode(self, batch: Batch) -> Float[Tensor, "b t d"]:
        """Run the network of texts."""
        seen = replace(batch.visibility, causal=True)
        return self.text(replace(batch, visibility=seen, features=()))

    def layer_states(self, batch: Batch, layer: int) -> Float[Tensor, "b t d"]:
        """Return the input of a layer of the texts' network, or its output."""
        return self.text.layer_states(replace(batch, features=()), layer)

    def text_embeddings(self, batch: Batch) -> Float[Tensor, "b p"]:
        """Project the hidden state of each text's end; the embeddings are not normalized."""
        hidden, at = self.encode(batch), self.end_columns(batch.inputs)
        return self.text_projection(hidden[torch.arange(len(at), device=at.device), at])

    def end_columns(self, ids: Int[Tensor, "b t"]) -> Int[Tensor, "b"]:
        """Return the column of each text's end.

        Raises:
            ValueError: a text has none.
        """
        if self.a.end_id is None:
            return ids.argmax(1)
        is_end = ids == self.a.end_id
        if not bool(is_end.any(1).all()):
            raise ValueError(f"each text must have the end token {self.a.end_id}, and one has not")
        return is_end.int().argmax(1)

    def picture_embeddings(self, pixels: Float[Tensor, "b c height width"]) -> Float[Tensor, "b p"]:
        """Project the class token of each picture; the embeddings are not normalized."""
        return self.picture_projection(self.vision(picture_batch(pixels, self.a.vision))[:, 0])

    def forward(self, batch: Batch) -> Float[Tensor, "b n p"]:
        """Embed the texts of a batch and, if it has them, their pictures."""
        embeddings = [self.text_embeddings(batch)]
        if (pictures := batch.feature(Pictures)) is not None:
            embeddings.append(self.picture_embeddings(pictures.pixels))
        return torch.stack(embeddings, 1)


def check_joint_space(architecture: BackboneArchitecture) -> None:
    """Check that a network has one space for pictures and texts.

    Raises:
        ValueError: it has none.
    """
    if not has_joint_space(architecture):
        raise ValueError(
            "this model has no space in which pictures and texts are compared, as CLIP has"
        )


def has_joint_space(architecture: BackboneArchitecture) -> bool:
    """Return whether a network has one space for pictures and texts."""
    return isinstance(architecture, TwoTowerArchitecture)


def zero_shot_weights(
    class_embeddings: Float[Tensor, "classes templates p"],
) -> Float[Tensor, "classes p"]:
    """Return a direction for each class from its name in several templates.

    The mean of the normalized embeddings, normalized: Radford et al. 2021, section 3.1.4.
    """
    return F.normalize(F.normalize(class_embeddings, dim=-1).mean(1), dim=-1)
