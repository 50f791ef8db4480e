"""Weights, gradients and optimizer state divided among the processes of a run, by torch's FSDP2.

Each process holds one part of every tensor, cut along the first dimension (ZeRO stage 3,
Rajbhandari et al. 2020, arXiv:1910.02054; Zhao et al. 2023, arXiv:2304.11277). The weights of a
layer are gathered when it computes, and let go of after it; its gradients are summed and scattered
in its backward. A divided tensor is a DTensor, whose operations are those of the whole.

All processes must run the same layers in the same order, also one that has no text or no target in
a step: see `ShardedModel`.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from unmask.batch import Batch
from unmask.training.device.distributed import World
from unmask.training.device.divided_tensors import whole_tensor
from unmask.training.device.gathered_layers import backbone, separate_layers


class ShardedModel:
    """A copy of a model whose weights are divided among the processes of a run.

    The layers of the backbone are gathered one by one, where their weights are their own; all else
    (embeddings, heads, networks of heads, layers that share weights or are skipped at random) once
    per forward pass.
    """

    def __init__(self, model: nn.Module, world: World, dtype: torch.dtype) -> None:
        self.whole_model, self._world = model, world
        shared = {id(p): nn.Parameter(p.data, p.requires_grad) for p in model.parameters()}
        self.model = copy.deepcopy(model, shared)  # its weights are copied part by part, below
        """The copy, which computes."""
        self.mesh = mesh = init_device_mesh(world.device.type, (world.size,))
        # Gradients are summed in float32: each term is a mean over the targets of all processes.
        policy = MixedPrecisionPolicy(
            param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
        for layer in separate_layers(self.model):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(self.model, mesh=mesh, mp_policy=policy)
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(enable=True)
                module.set_reduce_scatter_unused_params(True, recurse=False)
        self._some_batch: Batch | None = None
        self._hidden: list[Tensor] = []
        backbone(self.model).register_forward_hook(self._keep_hidden_states)

    def _keep_hidden_states(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if torch.is_grad_enabled() and isinstance(output, Tensor):
            self._hidden.append(output)

    def reaching_all_layers(self, loss: Tensor) -> Tensor:
        """Return the loss of the last forward pass plus zero times all hidden states.

        Its backward passes through all layers, also if no target, or not all heads, did.
        """
        hidden, self._hidden = self._hidden, []
        return loss + sum((0.0 * x.float().sum() for x in hidden), torch.zeros_like(loss))

    def missing_batches(self, micro_batches: Sequence[Batch]) -> list[Batch]:
        """Return as many batches as this process has fewer in a step than another one.

        It must compute them, without counting them, since weights are gathered together.

        Raises:
            ValueError: it has not had any batch yet.
        """
        n_missing = max(self._world.all_gather_object(len(micro_batches))) - len(micro_batches)
        if micro_batches:
            self._some_batch = micro_batches[-1]
        if n_missing and self._some_batch is None:
            raise ValueError(
                f"batch_tokens: the first step has fewer rows than the {self._world.size} processes"
                " of fsdp; raise it, or use fewer"
            )
        return [] if self._some_batch is None else [self._some_batch] * n_missing

    def release_whole_model(self) -> None:
        """Free the weights of the model that this one is a copy of, until they are restored."""
        for p in self.whole_model.parameters():
            p.data = p.data.new_empty(0)

    def restore_whole_model(self) -> None:
        """Give the model that this one is a copy of the weights and buffers of today."""
        parameters, buffers = (
            dict(self.whole_model.named_parameters()),
            dict(self.whole_model.named_buffers()),
        )
        for name, source in self.model.named_parameters():
            parameters[name].data = whole_tensor(source.detach()).to(parameters[name].device)
        for name, source in self.model.named_buffers():
            buffers[name].copy_(source)
