"""The residual connection and norms around a sublayer."""

from collections.abc import Callable

from torch import Tensor, nn

from unmask.model.backbones.block_architecture import BlockArchitecture
from unmask.model.layers.feed_forward import Dropout


class SublayerConnection(nn.Module):
    """after(x + out(f(into(x)))): every published placement of norms fills some of these slots."""

    into: nn.Module
    out: nn.Module
    after: nn.Module

    def __init__(self, a: BlockArchitecture) -> None:
        super().__init__()
        for slot in ("into", "out", "after"):
            self.add_module(
                slot, a.norm.build(a.d_model) if slot in a.norm_placement else nn.Identity()
            )
        self.dropout = Dropout(a.dropout)

    def forward(
        self, x: Tensor, sublayer: Callable[[Tensor], Tensor], sublayer_input: Tensor | None = None
    ) -> Tensor:
        """Wrap the sublayer f, with dropout of its output (Vaswani et al. 2017, section 5.4).

        Its input is x, unless another is given.
        """
        sublayer_input = x if sublayer_input is None else sublayer_input
        return self.after(x + self.dropout(self.out(sublayer(self.into(sublayer_input)))))
