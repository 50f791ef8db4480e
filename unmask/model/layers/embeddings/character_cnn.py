"""Character CNN: characters of a word -> its vector, by convolutions and highway layers (ELMo)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.model.layers.feed_forward import ACTIVATIONS, Activation

(
    BEGIN_TEXT_CHARACTER,
    END_TEXT_CHARACTER,
    BEGIN_WORD_CHARACTER,
    END_WORD_CHARACTER,
    PAD_CHARACTER,
) = range(256, 261)
"""Ids of special characters, after those of bytes (released code, `UnicodeCharsVocabulary`)."""
N_CHARACTERS = 261


@dataclass(frozen=True, kw_only=True)
class CharacterCNN:
    """The character CNN of words (Kim et al. 2016, arXiv:1508.06615, section 2)."""

    character_embedding_size: int = 16
    """Size of character embeddings."""
    filters: tuple[tuple[int, int], ...] = ((3, 100),)
    """Kernel size and number of filters of each convolution."""
    n_highway_layers: int = 2
    """Number of highway layers between the filters and the projection."""
    activation: Activation = "relu"
    """Activation of the max-pooled filter outputs."""
    max_characters: int = 50
    """Maximum number of characters of a word, its begin and end markers included."""

    def __post_init__(self) -> None:
        for name in ("character_embedding_size", "max_characters"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.n_highway_layers < 0:
            raise ValueError(f"n_highway_layers must be at least 0, got {self.n_highway_layers}")
        if not self.filters or any(w < 1 or n < 1 for w, n in self.filters):
            raise ValueError(
                f"filters must be pairs of widths and counts from 1, got {self.filters}"
            )
        if self.max_filter_width > self.max_characters or self.max_characters < 3:
            raise ValueError(
                f"max_characters must be at least 3 and at least the widest filter's width, "
                f"{self.max_filter_width}, got {self.max_characters}"
            )

    @property
    def max_filter_width(self) -> int:
        """Width of the widest filter."""
        return max(width for width, _ in self.filters)

    @property
    def n_filters(self) -> int:
        """Number of all filters."""
        return sum(n for _, n in self.filters)

    def flops(self, n_characters: int, d: int) -> float:
        """Count the matrix-product FLOPs of a word of `n_characters`."""
        filters = (
            sum(width * n for width, n in self.filters)
            * self.character_embedding_size
            * n_characters
        )
        return 2.0 * (filters + 2 * self.n_highway_layers * self.n_filters**2 + self.n_filters * d)

    def build(self, d: int) -> "CharacterCNNModule":
        """Build the network for vectors of size `d`."""
        return CharacterCNNModule(self, d)


class Highway(nn.Module):
    """A highway layer (Srivastava et al. 2015, arXiv:1505.00387, equation 3)."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.carries = nn.Linear(d, d)
        """The gate; the name is that of the released code."""
        self.transforms = nn.Linear(d, d)

    def forward(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """Mix the transformed and the original input by the gate."""
        gate = torch.sigmoid(self.carries(x))
        return gate * torch.relu(self.transforms(x)) + (1 - gate) * x


class CharacterCNNModule(nn.Module):
    """Characters of words [m c] -> their vectors [m d]."""

    def __init__(self, spec: CharacterCNN, d: int) -> None:
        super().__init__()
        self.spec = spec
        self.characters = nn.Embedding(N_CHARACTERS, spec.character_embedding_size)
        self.filters = nn.ModuleList(
            nn.Conv1d(spec.character_embedding_size, n, w) for w, n in spec.filters
        )
        self.highways = nn.ModuleList(Highway(spec.n_filters) for _ in range(spec.n_highway_layers))
        self.narrows = nn.Linear(spec.n_filters, d)

    @property
    def weight(self) -> Float[Tensor, "v w"]:
        """The character embeddings; all weights have their device and dtype."""
        return self.characters.weight

    def forward(self, character_ids: Int[Tensor, "m c"]) -> Float[Tensor, "m d"]:
        """Encode words, equal ones once."""
        if torch.compiler.is_compiling():  # how many differ is not known then
            return self._encode(character_ids)
        different, which = character_ids.unique(dim=0, return_inverse=True)
        return F.embedding(which, self._encode(different))

    def _encode(self, character_ids: Int[Tensor, "m c"]) -> Float[Tensor, "m d"]:
        x = self.characters(character_ids).mT  # [m w c]
        pooled = [convolve(x).amax(-1) for convolve in self.filters]
        y = ACTIVATIONS[self.spec.activation](torch.cat(pooled, -1))
        for highway in self.highways:
            y = highway(y)
        return self.narrows(y)

    def frame_words(
        self, bytes_: Int[Tensor, "m l"], lengths: Int[Tensor, "m"]
    ) -> Int[Tensor, "m c"]:
        """Put begin and end markers around the characters of each word, and pad.

            Filters also read padding, as in the released code: as much as can change their maximum.

        Args:
            bytes_: bytes of each word; arbitrary after its end.
            lengths: lengths of the words; words that are too long are truncated.
        """
        spec = self.spec
        most = min(bytes_.shape[1], spec.max_characters - 2)
        column = torch.arange(
            min(spec.max_characters, most + 2 + spec.max_filter_width), device=bytes_.device
        )
        end = 1 + lengths.clamp(max=most)[:, None]
        out = bytes_.new_full((len(bytes_), len(column)), PAD_CHARACTER)
        out[:, 1 : 1 + most] = bytes_[:, :most]
        out[:, 0] = BEGIN_WORD_CHARACTER
        out = out.masked_fill(column == end, END_WORD_CHARACTER)
        return out.masked_fill(column > end, PAD_CHARACTER)
