"""The map above a text's first token that published models have, whatever heads they have."""

from dataclasses import dataclass

from torch import nn

from unmask.model.architecture import Architecture


@dataclass(frozen=True)
class Pooler:
    """A linear map of the vector that stands for a text: BERT's pooler, with no head that reads it.

    It is learned from the next sentence (Devlin et al. 2019, arXiv:1810.04805, section 3.1), and
    published with models that have no other head, sentence encoders among them. A head of labels
    that reads it holds it itself (`Labels.dense`); without one it is kept as it is.
    """

    def build(self, a: Architecture) -> "PoolerModule":
        """Build the map of a stack."""
        return PoolerModule(a)


class PoolerModule(nn.Module):
    """The map; nothing of ours reads it, and so it is not learned."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.dense = nn.Linear(a.d_model, a.d_model, bias="feed_forward" in a.biases)
        self.requires_grad_(False)
