"""What llama.cpp calls the networks of our families, and how it orders their weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.heads.model import Model
from unmask.model.backbones.block_architecture import BlockArchitecture
from unmask.model.positions.learned import LearnedPositions
from unmask.model.positions.relative_bias import RelativePositionBias
from unmask.model.positions.rotary import LinearScaling, Llama3Scaling, Rotary
from unmask.model.positions.scheme import PositionScheme
from unmask.zoo.preset import Published


@dataclass(frozen=True, kw_only=True)
class GgufFamily:
    """A family that llama.cpp has a network of.

    What llama.cpp does not read from a file, a model must have as its network does.
    """

    architecture: str
    """`general.architecture`, the prefix of its keys."""
    activations: tuple[str, ...]
    positions: type[PositionScheme]
    causal: bool = True
    """Whether it predicts the next token; otherwise it embeds texts."""
    interleaves_rotary: bool = False
    """Whether the pairs that rotary positions rotate are neighbors, and not halves of a head."""
    needs_output: bool = False
    """Whether the output matrix must be written where it is the token table, too."""


def _llama_like(architecture: str, **differences: bool) -> GgufFamily:
    return GgufFamily(
        architecture=architecture, activations=("silu",), positions=Rotary, **differences
    )


def _bert_like() -> GgufFamily:
    return GgufFamily(
        architecture="bert", activations=("gelu",), positions=LearnedPositions, causal=False
    )


def _t5_like(*activations: str) -> GgufFamily:
    return GgufFamily(architecture="t5", activations=activations, positions=RelativePositionBias)


FAMILIES: Mapping[str, GgufFamily] = {
    "llama": _llama_like("llama", interleaves_rotary=True),
    "mistral": _llama_like("llama", interleaves_rotary=True),
    "qwen2": _llama_like("qwen2"),
    "qwen3": _llama_like("qwen3"),
    "olmo2": _llama_like("olmo2", needs_output=True),
    "gpt2": GgufFamily(architecture="gpt2", activations=("gelu_tanh",), positions=LearnedPositions),
    "bert": _bert_like(),
    "roberta": _bert_like(),
    "t5": _t5_like("relu", "gelu_tanh"),
    "mt5": _t5_like("gelu_tanh"),
}
"""By the `model_type` of transformers."""


def resolve_family(preset: Published, model: Model, model_type: str) -> GgufFamily:
    """Return llama.cpp's family of a model.

    Raises:
        ValueError: it has none, or not for a network like this one.
    """
    name, stack = preset.name, cast(Any, model.architecture.encoder_stack)
    family = FAMILIES.get(model_type)
    if family is None:
        raise ValueError(
            f"{name}: GGUF is written of {', '.join(sorted(FAMILIES))}; got {model_type}"
        )
    theirs = f"{name}: llama.cpp's {family.architecture}"
    if stack.activation not in family.activations:
        allowed = " or ".join(family.activations)
        raise ValueError(f"{theirs} has the activation {allowed}, got {stack.activation}")
    if type(stack.position) is not family.positions:
        allowed, got = family.positions.__name__, type(stack.position).__name__
        raise ValueError(f"{theirs} has the positions {allowed}, got {got}")
    if model.decoder_architecture.causal != family.causal:
        sees = "forward only" if family.causal else "in both directions"
        raise ValueError(f"{theirs} reads {sees}, and this model does not")
    if family.causal and not model.has_language_head:
        heads = ", ".join(model.head_specs) or "none"
        raise ValueError(f"{theirs} generates text, and this model does not (heads: {heads})")
    return family


def hyperparameters(preset: Published, family: GgufFamily) -> dict[str, Any]:
    """Return the keys of a network without their prefix."""
    a: Any = preset.architecture.decoder_stack
    found: dict[str, Any] = {
        "vocab_size": preset.architecture.vocab_size,
        "context_length": context_length(preset, family),
        "embedding_length": a.d_model,
        "feed_forward_length": a.d_ff,
        "block_count": preset.architecture.encoder_stack.n_layers,
        "attention.head_count": a.n_heads,
    }
    norm = "layer_norm" if family.positions is LearnedPositions else "layer_norm_rms"
    found[f"attention.{norm}_epsilon"] = float(a.norm.eps)
    if family.architecture == "t5":
        return found | _t5_parameters(preset)
    found["attention.head_count_kv"] = a.n_key_value_heads
    if family.positions is Rotary:
        found |= _rotary_parameters(a.position, a)
    if not family.causal:
        found["attention.causal"] = False
    return found


def context_length(preset: Published, family: GgufFamily) -> int:
    """Return the positions of a model; of one without an end, the length of pretraining."""
    a: Any = preset.architecture.encoder_stack
    if family.positions is Rotary:
        return a.position.max_positions
    return preset.architecture.max_positions or preset.sequence_length


def _rotary_parameters(rotary: Rotary, a: BlockArchitecture) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rope.freq_base": float(rotary.theta),
        "rope.dimension_count": int(a.d_head * rotary.partial_rotary_factor),
        "attention.key_length": a.d_head,
        "attention.value_length": a.d_head,
    }
    if isinstance(rotary.scaling, LinearScaling):
        found |= {"rope.scaling.type": "linear", "rope.scaling.factor": rotary.scaling.factor}
    return found


def _t5_parameters(preset: Published) -> dict[str, Any]:
    encoder: Any = preset.architecture.encoder_stack
    decoder: Any = preset.architecture.decoder_stack
    return {
        "attention.layer_norm_epsilon": float(encoder.norm.eps),
        "attention.key_length": encoder.d_head,
        "attention.value_length": encoder.d_head,
        "attention.relative_buckets_count": encoder.position.n_buckets,
        "decoder_block_count": decoder.n_layers,
    }


def extra_tensors(preset: Published, family: GgufFamily) -> dict[str, Tensor]:
    """Return tensors that only llama.cpp has: the factors by which Llama 3 divides frequencies."""
    a: Any = preset.architecture.decoder_stack
    if family.positions is not Rotary or not isinstance(a.position.scaling, Llama3Scaling):
        return {}
    width = int(a.d_head * a.position.partial_rotary_factor)
    frequencies = a.position.theta ** -(torch.arange(0, width, 2).float() / width)
    return {"rope_freqs.weight": frequencies / a.position.scaling(frequencies)}


def interleave_halves(weight: Float[Tensor, "rows ..."], n_heads: int) -> Tensor:
    """Reorder the rows of each head: row i of the first half is followed by row i of the second.

    transformers rotates the halves of a head, Llama's own code, and llama.cpp after it, pairs of
    neighbors.
    """
    halves = weight.unflatten(0, (n_heads, 2, -1))
    return halves.transpose(1, 2).reshape(weight.shape)


def reorder(preset: Published, family: GgufFamily) -> Callable[[str, Tensor], Tensor]:
    """Return what makes a tensor of transformers, by its name, one of llama.cpp."""
    a: Any = preset.architecture.decoder_stack

    def apply(name: str, tensor: Tensor) -> Tensor:
        kind = name.rpartition(".")[0].rpartition(".")[2]
        if family.interleaves_rotary and kind in ("q_proj", "k_proj"):
            n_heads = a.n_heads if kind == "q_proj" else a.n_key_value_heads
            return interleave_halves(tensor, n_heads)
        if family.architecture == "gpt2" and kind in ("c_attn", "c_proj", "c_fc"):
            return (
                tensor.T if tensor.dim() == 2 else tensor
            )  # Conv1D keeps its matrix the other way round
        if kind == "position_embeddings":  # RoBERTa's rows before the first position
            return tensor[a.position.offset :]
        return tensor

    return apply
