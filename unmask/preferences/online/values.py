"""The value of a token: the reward that is still to come, as a second network estimates it."""

from copy import deepcopy
from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.model import Model
from unmask.model.architecture import Backbone

VALUE = "value"
"""Name among the modules that training alone uses."""


class ValueNetwork(nn.Module):
    """A linear function of hidden states: its own network's, or those of the policy.

    With a network of its own as in Stiennon et al. 2020, arXiv:2009.01325, section "Models".
    Deviates: there it begins as the reward model; here as a copy of the policy, and all values as
    0, because a reward may be a classifier with another vocabulary.
    """

    def __init__(self, policy: Model, *, shared: bool) -> None:
        super().__init__()
        self.out = nn.Linear(policy.backbone.width, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.backbone = None if shared else deepcopy(cast("nn.Module", policy.backbone))

    def forward(self, batch: Batch, hidden: Float[Tensor, "b t d"]) -> Float[Tensor, "b t"]:
        """Return the value of each column, before its target is written."""
        if self.backbone is not None:
            hidden = cast("Backbone", self.backbone)(batch)
        return self.out(hidden).squeeze(-1).float()


def add_value_network(policy: Model, *, shared: bool) -> None:
    """Add a value network to the modules that training alone uses.

    A policy with an adapter shares its states: a copy would train all weights.
    """
    network = ValueNetwork(policy, shared=shared or len(policy.adapters) > 0)
    policy.training_modules[VALUE] = network.to(next(policy.parameters()).device)


def values_of(policy: Model, batch: Batch, hidden: Float[Tensor, "b t d"]) -> Tensor:
    """Return the value of each column [b t]."""
    return cast("Tensor", policy.training_modules[VALUE](batch, hidden))


def has_values(policy: Model) -> bool:
    """Return whether a policy has a value network."""
    return VALUE in policy.training_modules
