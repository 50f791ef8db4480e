"""The pooler of published models that no head uses."""

from dataclasses import dataclass

from torch import nn

from unmask.model.architecture import StackArchitecture


@dataclass(frozen=True)
class Pooler:
    """A linear map of a text's pooled vector: BERT's pooler, where no head uses it.

    It is learned from the next sentence (Devlin et al. 2019, arXiv:1810.04805, section 3.1), and
    published with models that have no other head, sentence encoders among them. A classification
    head holds it itself (`SequenceClassification.dense_layer`); without one it is kept as it is.
    """

    def build(self, a: StackArchitecture) -> "PoolerModule":
        """Build the map of an architecture."""
        return PoolerModule(a)


class PoolerModule(nn.Module):
    """The map; no head uses it, and so it is not trained."""

    def __init__(self, a: StackArchitecture) -> None:
        super().__init__()
        self.dense = nn.Linear(a.d_model, a.d_model, bias="feed_forward" in a.biases)
        self.requires_grad_(False)
