"""What differs between the layers of a stack, and linear maps in two factors.

Models from which parts were removed (`unmask.compression`) have layers of different widths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from jaxtyping import Float, Int
from torch import Tensor, nn

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, kw_only=True)
class LayerWidths:
    """Heads and feed-forward widths of each layer, where some were removed.

    The stack keeps its `n_heads`, of which the position scheme may hold numbers for each.
    """

    heads: tuple[tuple[int, ...], ...] = ()
    """Heads of each layer, as rising indices from 0 to `n_heads` - 1. Empty: all."""
    cross_heads: tuple[tuple[int, ...], ...] = ()
    """The same of attention to the encoder."""
    d_ff: tuple[int, ...] = ()
    """Feed-forward width of each layer. Empty: the stack's."""

    def check(self, n_layers: int, n_heads: int, group_size: int) -> None:
        """Check that there are numbers for all layers, and that key and value heads are whole.

        Args:
            n_layers: layers of the stack.
            n_heads: heads of the stack.
            group_size: query heads of a key and value head; 1: each has its own.

        Raises:
            ValueError: there are not.
        """
        fields = {"heads": self.heads, "cross_heads": self.cross_heads, "d_ff": self.d_ff}
        for name, values in fields.items():
            if values and len(values) != n_layers:
                raise ValueError(
                    f"layers.widths.{name} must have {n_layers} layers, got {len(values)}"
                )
        for heads in (*self.heads, *self.cross_heads):
            if (
                not heads
                or list(heads) != sorted({*heads})
                or not 0 <= heads[0] <= heads[-1] < (n_heads)
            ):
                raise ValueError(
                    "layers.widths: heads of a layer must be rising indices from 0 to "
                    f"{n_heads - 1}, got {list(heads)}"
                )
            whole = {head // group_size for head in heads}
            if group_size < n_heads and len(whole) * group_size != len(heads):
                raise ValueError(
                    f"layers.widths: {group_size} query heads share a key and value head and "
                    f"belong together, got {list(heads)}"
                )
        if self.d_ff and min(self.d_ff) < 1:
            raise ValueError(f"layers.widths.d_ff must be at least 1, got {list(self.d_ff)}")

    def with_layers(self, indices: Sequence[int]) -> "LayerWidths":
        """Return the widths of some layers."""
        return LayerWidths(
            heads=tuple(self.heads[i] for i in indices) if self.heads else (),
            cross_heads=tuple(self.cross_heads[i] for i in indices) if self.cross_heads else (),
            d_ff=tuple(self.d_ff[i] for i in indices) if self.d_ff else (),
        )


TOKEN_TABLE = "tokens"
"""Module of the token embeddings within a stack."""


@dataclass(frozen=True, kw_only=True)
class FactorizedMap:
    """A linear map of a stack, or its table of tokens, that is stored as two factors."""

    name: str
    """Its module within the stack: layers.0.attention.q, or tokens."""
    rank: int
    """Size between the factors."""

    def __post_init__(self) -> None:
        words = self.name.split(".")
        is_map = words[0] == "layers" and len(words) >= 3 and words[1].isdecimal()
        if not (is_map or self.is_table) or self.rank < 1:
            raise ValueError(
                "layers.factorized must name maps such as layers.0.attention.q, or tokens, with "
                f"ranks of at least 1, got {self.name} with {self.rank}"
            )

    @property
    def is_table(self) -> bool:
        """Whether it is the table of tokens."""
        return self.name == TOKEN_TABLE

    @property
    def layer_index(self) -> int | None:
        """The layer of the map. None: it is the table of tokens."""
        return None if self.is_table else int(self.name.split(".")[1])

    def in_layer(self, i: int) -> "FactorizedMap":
        """Return the same map of another layer; the table of tokens is in none."""
        if self.is_table:
            return self
        return FactorizedMap(
            name=".".join(("layers", str(i), *self.name.split(".")[2:])), rank=self.rank
        )

    def factorize(self, stack: nn.Module) -> None:
        """Replace the map by its factors, which are not initialized.

        Raises:
            ValueError: the stack has no such map.
        """
        around, _, last = self.name.rpartition(".")
        try:
            module = stack.get_submodule(around)
            whole = module.get_submodule(last)
        except AttributeError:
            whole = module = None
        if module is not None and self.is_table and type(whole) is nn.Embedding:
            setattr(module, last, FactorizedEmbedding(whole, self.rank))
            return
        if module is None or not isinstance(whole, nn.Linear):
            raise ValueError(f"layers.factorized: there is no linear map {self.name}")
        setattr(module, last, FactorizedLinear(whole, self.rank))


class FactorizedLinear(nn.Module):
    """A linear map as two: x -> rank -> outputs."""

    def __init__(self, whole: nn.Linear, rank: int) -> None:
        super().__init__()
        self.in_features, self.out_features = whole.in_features, whole.out_features
        self.narrow = nn.Linear(whole.in_features, rank, bias=False)
        self.widen = nn.Linear(
            rank, whole.out_features, bias="bias" in dict(whole.named_parameters())
        )

    @property
    def n_saved(self) -> int:
        """How many weights fewer than the whole map the factors have."""
        whole = self.in_features * self.out_features
        return whole - self.narrow.weight.numel() - self.widen.weight.numel()

    def forward(self, x: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        """Apply both factors."""
        return self.widen(self.narrow(x))


class FactorizedEmbedding(nn.Embedding):
    """A table [v d] of tokens as the product of a table [v r] and a map to d.

    Of the rank r it is the factorized embedding of ALBERT (Lan et al. 2020, arXiv:1909.11942,
    section 3.1) without a bias; what follows the table (positions, norms) is d wide as before.
    """

    def __init__(self, whole: nn.Embedding, rank: int) -> None:
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim = whole.num_embeddings, whole.embedding_dim
        self.padding_idx = self.max_norm = None
        self.norm_type, self.scale_grad_by_freq, self.sparse = 2.0, False, False
        self.narrow = nn.Embedding(whole.num_embeddings, rank)
        self.widen = nn.Linear(rank, whole.embedding_dim, bias=False)

    @property
    def weight(self) -> Float[Tensor, "v d"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The whole table, computed; an output layer may be tied to it."""
        return self.widen(self.narrow.weight)

    @property
    def n_saved(self) -> int:
        """How many multiplications a token fewer: looking up the whole table has none."""
        return -self.widen.weight.numel()

    def forward(self, input: Int[Tensor, "..."]) -> Float[Tensor, "... d"]:
        """Look up vectors and map them."""
        return self.widen(self.narrow(input))


def select_cyclic(values: tuple[ValueT, ...], indices: Sequence[int]) -> tuple[ValueT, ...]:
    """Return the values of some layers, where values are repeated cyclically; the shortest cycle.

    >>> select_cyclic((None, 64), (0, 2, 4)), select_cyclic((1, 2, 3), (0, 1, 2, 4))
    ((None,), (1, 2, 3, 2))
    """
    found = tuple(values[i % len(values)] for i in indices) if values else ()
    fits = (n for n in range(1, len(found)) if all(x == found[i % n] for i, x in enumerate(found)))
    return found[: next(fits, len(found))]
