"""The positions of texts in a batch, for networks that process each text separately."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.batch import Batch


def document_ids(batch: Batch) -> Int[Tensor, "b t"] | None:
    """Return the document of each token, -1 in padding; None: each row is one document."""
    document = batch.visibility.document
    if document is None and batch.last_token_positions is not None:
        return torch.where(batch.is_token(), 0, -1)
    return document


@dataclass(frozen=True)
class TextLayout:
    """The positions of texts in a batch, so that each text can be processed separately."""

    index: Int[Tensor, "n l"] | None
    """The index of each token of each text in the flattened batch; 0 after its end. None: each row
    is one text."""
    is_token: Bool[Tensor, "n l"] | None
    shape: torch.Size

    @classmethod
    def from_batch(cls, batch: Batch) -> "TextLayout":
        """Find the texts of a batch: the runs of one document in a row, without padding."""
        document = document_ids(batch)
        if document is None:
            return cls(None, None, batch.inputs.shape)
        begins = torch.ones_like(document, dtype=torch.bool)
        begins[:, 1:] = document[:, 1:] != document[:, :-1]
        number = begins.flatten().cumsum(0) - 1
        index = torch.arange(len(number), device=number.device)
        first = index[begins.flatten()]
        ends = torch.cat((first[1:], first.new_tensor([len(number)])))
        is_text = document.flatten()[first] >= 0
        first, lengths = first[is_text], (ends - first)[is_text]
        column = torch.arange(int(lengths.max()) if len(lengths) else 0, device=number.device)
        is_token = column < lengths[:, None]
        return cls((first[:, None] + column) * is_token, is_token, batch.inputs.shape)

    def to_texts(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "n l d"]:
        """Put each text in a row of its own."""
        return x if self.index is None else x.flatten(0, 1)[self.index]

    def to_batch(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "b t d"]:
        """Put texts back in the batch's rows; padding is zeros."""
        if self.index is None or self.is_token is None:
            return x
        flat = x.new_zeros(self.shape.numel(), x.shape[-1])
        flat = flat.index_put((self.index[self.is_token],), x[self.is_token])
        return flat.unflatten(0, self.shape)

    def zero_padding(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "n l d"]:
        """Set the states after the end of each text to zero."""
        return x if self.is_token is None else x * self.is_token[..., None]

    def reverse_texts(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "n l d"]:
        """Reverse each text, without the padding after it."""
        if self.is_token is None:
            return x.flip(1)
        column = torch.arange(x.shape[1], device=x.device)
        reversed_column = (self.is_token.sum(1, keepdim=True) - 1 - column).clamp(min=0)
        return x.gather(1, reversed_column[..., None].expand_as(x))
