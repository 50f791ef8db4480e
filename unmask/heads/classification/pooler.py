"""The pooler that some published models have without a head that uses it."""

from dataclasses import dataclass

from torch import nn

from unmask.model.architecture import StackArchitecture


@dataclass(frozen=True)
class Pooler:
    """BERT's pooler, a linear map of a text's pooled vector, when no head uses it.

    It is trained by next-sentence prediction (Devlin et al. 2019, arXiv:1810.04805, section 3.1)
    and published with models that have no other head, such as sentence encoders. A classification
    head contains it (`SequenceClassification.dense_layer`); without such a head its weights are
    kept unchanged.
    """

    def build(self, a: StackArchitecture) -> "PoolerModule":
        """Build the map of an architecture."""
        return PoolerModule(a)


class PoolerModule(nn.Module):
    """The linear map; no head uses it, so it is not trained."""

    def __init__(self, a: StackArchitecture) -> None:
        super().__init__()
        self.dense = nn.Linear(a.d_model, a.d_model, bias="feed_forward" in a.biases)
        self.requires_grad_(False)
