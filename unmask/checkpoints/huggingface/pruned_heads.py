"""`pruned_heads` of a configuration: heads that the reference library removed from a network."""

from collections.abc import Mapping
from typing import Any

from unmask.model.architecture import BackboneArchitecture


def without_pruned_heads(
    architecture: BackboneArchitecture, config: Mapping[str, Any]
) -> BackboneArchitecture:
    """Return the network without the heads that their library removed from it.

    Its version 4 removes those of `pruned_heads`, {layer: heads}, before it reads weights.

    Raises:
        ValueError: they are not heads of one stack of Transformer blocks.
    """
    if not (said := config.get("pruned_heads")):
        return architecture
    try:
        removed = {int(i): [int(head) for head in heads] for i, heads in said.items()}
    except (TypeError, ValueError):
        raise ValueError(
            f"pruned_heads must be lists of heads by layer, got {str(said)[:80]}"
        ) from None
    if len(architecture.stacks) > 1:
        raise ValueError("pruned_heads is not supported for an encoder and a decoder")
    try:
        return architecture.with_stacks(
            {side: a.without_heads(removed) for side, a in architecture.stacks.items()}
        )
    except ValueError as error:
        raise ValueError(f"pruned_heads: {error}") from None
