"""Prefixes and prompts in PEFT's layout."""

from typing import Any

import torch
from torch import Tensor

from unmask.adapters.peft_format.config import PeftConfig
from unmask.adapters.peft_format.tensors import (
    PREFIX_TUNING,
    PROMPT_EMBEDDINGS,
    PROMPT_TUNING,
    ReadAdapter,
    Tensors,
    check_shape,
    prompt_vectors,
)
from unmask.adapters.prefix import (
    PrefixTuning,
    PrefixTuningModule,
    PromptTuning,
    PromptTuningModule,
    require_attention,
)
from unmask.heads.model import Model
from unmask.model.backbones.transformer import Architecture


def prefix_to_peft(
    module: PrefixTuningModule, model: Model
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the computed prefix; its reparametrization is dropped."""
    a, vectors = module.a, module.keys_values().detach()
    n, width = a.n_layers, a.n_key_value_heads * a.d_head
    if two := model.architecture.is_encoder_decoder:
        # PEFT 0.21 splits the prefix of an encoder-decoder in fours instead of pairs: layer i gets
        # pair 2i, modulo their number. So every other pair is left empty.
        pairs = vectors.unflatten(1, (n, 1, -1))
        vectors, n = torch.cat((pairs, torch.zeros_like(pairs)), 2).flatten(1), 2 * n
    config = {
        "peft_type": PREFIX_TUNING,
        "num_layers": n,
        "token_dim": width,
        "num_attention_heads": a.n_key_value_heads,
        "num_transformer_submodules": 1 + two,
        "num_virtual_tokens": module.spec.n_virtual_tokens,
        "encoder_hidden_size": module.spec.projection_size or width,
        "prefix_projection": False,
    }
    return config, {PROMPT_EMBEDDINGS: vectors}


def prefix_from_peft(
    settings: PeftConfig, tensors: Tensors, model: Model
) -> tuple[ReadAdapter, dict[str, Tensor]]:
    """Read a prefix and the other tensors."""
    vectors, left = prompt_vectors(tensors)
    a = require_attention(model.backbone.decoder_stack).a
    n = settings.num_layers or a.n_layers
    two = model.architecture.is_encoder_decoder
    length = settings.num_virtual_tokens or len(vectors)
    check_shape(PROMPT_EMBEDDINGS, vectors, (length, 2 * n * a.n_key_value_heads * a.d_head))
    settings_values = {
        "num_attention_heads": (settings.num_attention_heads, a.n_key_value_heads),
        "token_dim": (settings.token_dim, a.n_key_value_heads * a.d_head),
        "num_transformer_submodules": (settings.num_transformer_submodules, 1 + two),
    }
    for key, (given, expected) in settings_values.items():
        if given is not None and given != expected:
            raise ValueError(f"{key} is {given}, but a prefix of this model has {expected}")
    if n < a.n_layers or (n > a.n_layers and not two):
        raise ValueError(
            f"tensor {PROMPT_EMBEDDINGS} is a prefix for {n} layers, the model has {a.n_layers}"
        )
    pairs = [2 * i % n if two else i for i in range(a.n_layers)]  # see `prefix_to_peft`
    vectors = vectors.unflatten(1, (n, -1))[:, pairs].flatten(1)
    return (PrefixTuning(n_virtual_tokens=len(vectors)), {"vectors": vectors}), left


def prompt_to_peft(
    module: PromptTuningModule, model: Model
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the settings and tensors of a prompt in PEFT's layout."""
    a = module.a
    config = {
        "peft_type": PROMPT_TUNING,
        "num_layers": a.n_layers,
        "token_dim": a.d_embed,
        "num_attention_heads": a.n_heads,
        "num_transformer_submodules": 1,
        "num_virtual_tokens": module.spec.n_virtual_tokens,
        "prompt_tuning_init": "RANDOM",
    }
    # Scaled embeddings: prompts are scaled here, but not in PEFT.
    return config, {PROMPT_EMBEDDINGS: module.vectors.detach() * _embedding_scale(a)}


def prompt_from_peft(
    settings: PeftConfig, tensors: Tensors, model: Model
) -> tuple[ReadAdapter, dict[str, Tensor]]:
    """Read a prompt and the other tensors.

    Raises:
        ValueError: it has vectors for two stacks, which PEFT's class of the task prepends to one
            text.
    """
    vectors, left = prompt_vectors(tensors)
    times = settings.num_transformer_submodules
    if times > (most := 2 if settings.task_type == "SEQ_2_SEQ_LM" else 1):
        raise ValueError(
            f"num_transformer_submodules must be at most {most} for the prompt of task_type "
            f"{settings.task_type}, got {times}: PEFT prepends the vectors of all to a text, and "
            "masks as many tokens as num_virtual_tokens says"
        )
    length = settings.num_virtual_tokens or len(vectors) // times
    check_shape(
        PROMPT_EMBEDDINGS, vectors, (length * times, model.architecture.encoder_stack.d_embed)
    )
    # PEFT saves vectors for the decoder, too, without using them.
    stack = require_attention(model.backbone.encoder_stack)
    vectors = vectors[:length] / _embedding_scale(stack.a)  # see `prompt_to_peft`
    return (PromptTuning(n_virtual_tokens=length), {"vectors": vectors}), left


def _embedding_scale(a: Architecture) -> float:
    """Return the scale of embeddings."""
    return a.d_embed**0.5 if a.scale_embedding else 1.0
