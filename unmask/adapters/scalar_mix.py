"""Scalar mix: a learned weighted mean of all layers in place of the last one."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from unmask.adapters.attach import Attachment, apply_to_rows
from unmask.adapters.tuning_method import TuningMethod
from unmask.batch import Batch
from unmask.heads.model import Model
from unmask.model.architecture import require_support
from unmask.model.backbones.recurrent import Recurrent
from unmask.model.backbones.transformer import Transformer
from unmask.model.requested_states import requested_states


@dataclass(frozen=True)
class ScalarMix(TuningMethod):
    """gamma · Σ softmax(w)_j h_j over the input of the first layer and all layers' outputs.

    Peters et al. 2018, arXiv:1802.05365, section 3.2, equation 1; without the optional norm of each
    layer. In an encoder-decoder, over the decoder's layers. Initial weights are equal, so that
    outputs change before training.

    A final norm is applied to each h_j: otherwise later layers, with longer vectors, would
    dominate. With all weight on the last layer the model is unchanged.
    """

    mixes_layers: ClassVar[bool] = True
    keeps_first_token: ClassVar[bool] = True

    def build(self, model: Model) -> "ScalarMixModule":
        """Build the weights of a model's layers."""
        return ScalarMixModule(self, model)


class ScalarMixModule(nn.Module):
    """A weight for each layer, and one for all."""

    def __init__(self, spec: ScalarMix, model: Model) -> None:
        super().__init__()
        require_support(model.backbone, "layer_mixing")
        self.spec = spec
        self.attachment = Attachment()
        self.supports_row_selection = True
        self.weights = nn.Parameter(torch.zeros(model.decoder_architecture.n_layers + 1))
        """w of the paper, starting with the first layer's input."""
        self.gamma = nn.Parameter(torch.ones(()))
        self._layer_outputs: list[Tensor] = []
        self._all_layers_requested = False

    def summary(self) -> str:
        """Describe the learned weights."""
        shares = ", ".join(f"{share:.2f}" for share in self.weights.float().softmax(0).tolist())
        return (
            f"weights of the first layer's input and of each layer: {shares}; their sum "
            f"is multiplied by {self.gamma.item():.2f}"
        )

    def register_hooks(self, model: Model) -> list[RemovableHandle]:
        """Record the layers, and replace the output of the last one."""
        backbone = model.backbone
        if isinstance(backbone, Recurrent):
            return [
                backbone.register_forward_pre_hook(self._request_all_layers),
                backbone.register_forward_hook(self._replace_last_of_all),
            ]
        stack = cast(Transformer, backbone.decoder_stack)
        return [
            stack.layers[0].register_forward_pre_hook(self._record_input),
            *(layer.register_forward_hook(self._record_output) for layer in stack.layers),
            stack.final_norm.register_forward_hook(self._replace_last),
        ]

    def _record_input(self, layer: nn.Module, args: tuple[Any, ...]) -> None:
        self._layer_outputs = [args[0]]

    def _record_output(self, layer: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
        self._layer_outputs.append(out)

    def _replace_last(self, norm: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> Tensor:
        seen, self._layer_outputs = self._layer_outputs, []
        # forward, not a call: the norm's hooks are running
        return apply_to_rows(
            self.attachment.rows,
            lambda _, *layers: self.weighted_sum([norm.forward(x) for x in layers]),
            out,
            *seen,
        )

    def _request_all_layers(self, network: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        batch: Batch = args[0]
        requested = requested_states(batch)
        self._all_layers_requested = requested.all_layers
        return (batch.with_feature(replace(requested, all_layers=True)), *args[1:])

    def _replace_last_of_all(
        self, network: nn.Module, args: tuple[Any, ...], out: Tensor
    ) -> Tensor:
        return self.mix(out, keep_layers=self._all_layers_requested)

    def mix(
        self, all_layers: Float[Tensor, "b t _"], *, keep_layers: bool
    ) -> Float[Tensor, "b t _"]:
        """Return the weighted sum in place of the last of all layers.

        Args:
            all_layers: the input of the first layer and all layers' outputs, concatenated.
            keep_layers: whether to return the others, too, concatenated.
        """
        *others, last = all_layers.chunk(len(self.weights), -1)

        def change(last: Tensor, *others: Tensor) -> Tensor:
            return self.weighted_sum([*others, last])

        mixed = apply_to_rows(self.attachment.rows, change, last, *others)
        return torch.cat((*others, mixed), -1) if keep_layers else mixed

    def weighted_sum(self, layers: list[Float[Tensor, "b t d"]]) -> Float[Tensor, "b t d"]:
        """Return the weighted sum of layers."""
        shares = (self.gamma.float() * self.weights.float().softmax(0)).to(layers[0].dtype)
        total = layers[0] * shares[0]
        for layer, share in zip(layers[1:], shares[1:], strict=True):
            total = total + layer * share
        return total
