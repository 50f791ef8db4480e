"""Token embeddings of a forward pass: recorded, and replaced by others, from outside."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from unmask.heads.model import Model


@contextmanager
def record_embeddings(model: Model) -> Generator[list[Tensor]]:
    """Record what the tables of token embeddings return in the forward pass within, in order."""
    outputs: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        outputs.append(output)

    with _hooked(model, keep):
        yield outputs


@contextmanager
def replace_embeddings(model: Model, replacements: Sequence[Tensor]) -> Generator[None]:
    """Replace what the tables return in the forward pass within, call by call.

    Modules take token ids, not embeddings; so the pass begins as usual, and each call of a table
    returns a replacement, with a gradient if it has one. Calls after those replaced return what
    they do otherwise.
    """
    waiting = list(replacements)

    def exchange(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        if not waiting:
            return output
        replacement = waiting.pop(0)
        assert replacement.shape == output.shape, "replacements are of the same batch"
        return replacement

    with _hooked(model, exchange):
        yield


@contextmanager
def _hooked(model: Model, hook: Callable[..., Any]) -> Generator[None]:
    """Call a hook after each call of a table; a table that both stacks share has one."""
    tables = dict.fromkeys(stack.embedding_table for stack in model.backbone.stacks)
    handles = [table.register_forward_hook(hook) for table in tables]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
