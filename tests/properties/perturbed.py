"""Other legal values of the keys of a configuration, by the kinds in our tables."""

import copy
from typing import Any

from unmask.model.exchange.config_keys import ConfigKey

ACTIVATIONS = (
    "hidden_act", "hidden_activation", "activation_function", "activation", "ff_activation", "afn",
    "classifier_activation", "pooler_hidden_act", "conv_act",
)  # fmt: skip
OTHER: dict[str, list[Any]] = {
    **{key: [64] for key in ("hidden_size", "d_model", "n_embd", "emb_dim", "dim")},
    **{key: [2] for key in ("num_attention_heads", "n_head", "n_heads", "num_heads")},
    **{key: [2] for key in ("encoder_attention_heads", "decoder_attention_heads")},
    **{key: [12] for key in ("head_dim", "d_kv", "d_head")},
    **{key: ["relu", "silu", "gelu", "gelu_new", "mish"] for key in ACTIVATIONS},
    "attention_head_size": [6],
    "vocab_size": [103], "embedding_size": [24], "type_vocab_size": [3],
    "num_key_value_heads": [1, 4], "pad_token_id": [0, 3, None],
    "num_hidden_groups": [2, 3], "num_labels": [3], "num_hash_functions": [4],
    "max_position_embeddings": [56], "n_positions": [56],
    "attention_window": [4, [4, 8, 8], [4, 8]],
    "pos_att_type": [["c2p"], "p2c|c2p", ["p2p"], None], "norm_rel_ebd": ["layer_norm", "none"],
    "relative_attention": [False], "max_relative_positions": [9, -1],
    "position_buckets": [6, -1], "conv_kernel_size": [3], "conv_groups": [2],
    "feed_forward_proj": ["gated-gelu", "gated-silu", "silu", "relu", "gated-mish"],
    "dense_act_fn": ["silu"], "is_gated_act": [True, False],
    "layer_types": [["full_attention"] * 3, ["sliding_attention", "full_attention"] * 1
                    + ["sliding_attention"], ["chunked_attention"] * 3],
    "clamp_len": [4], "mem_len": [0, 4, None], "query_pre_attn_scalar": [7],
    "sliding_window": [4, None], "local_attention": [4], "sliding_window_pattern": [2],
    "global_attn_every_n_layers": [2], "num_decoder_layers": [1], "downsampling_rate": [2],
    "upsampling_kernel_size": [3], "local_transformer_stride": [4],
    "rotary_pct": [0.5], "partial_rotary_factor": [0.5], "original_max_position_embeddings": [10],
    "rope_parameters": [{"rope_type": "default", "rope_theta": 50.0}],
    "rope_scaling": [{"rope_type": "linear", "factor": 2.0}],
    "quantization_config": [{"quant_method": "bitsandbytes", "load_in_4bit": True}],
    "per_layer_config": [{"0": {"num_attention_heads": 2}}],
    "encoder": [{}], "pruned_heads": [{"0": [1]}],
    "text_config": [{}], "text_encoder": [{}], "decoder": [{}],
    "generator": [{}], "compression_config": [{"x": 1}],
    "architectures": [], "id2label": [{"0": "a", "1": "b"}],
    "label2id": [{"a": 0}], "problem_type": ["multi_label_classification"],
    "dtype": ["float32"], "torch_dtype": ["float32"], "chunk_size_feed_forward": [1],
    "attn_implementation": ["eager"], "_attn_implementation": ["eager"],
    "auto_map": [{"AutoModel": "code.Model"}], "return_dict": [False],
    "sep_token_id": [7], "reuse_len": [3], "asm_cutoffs": [[2]], "id2lang": [{"0": "fr"}],
    "lang2id": [{"fr": 0}], "initializer_factor": [0.5], "model_type": [],
}  # fmt: skip
"""Values for keys whose kind does not determine what else is legal in a tiny model."""
BY_KIND: dict[str, list[Any]] = {
    "size": [40], "size?": [40, None], "layers": [2], "layers?": [2, None], "count": [3],
    "count?": [3, None], "integer": [3], "share": [0.3], "share?": [0.3, None], "positive": [0.01],
    "positive?": [0.5, None], "number": [0.7], "number?": [0.7, None], "flag": [True, False],
    "word": ["other"], "words?": [["other"]], "table?": [{}], "labels?": [3],
    "sides": [16, [24, 16], [24, 24], 25],
}  # fmt: skip


def values(key: ConfigKey) -> list[Any]:
    """Return what to try for a key."""
    if key.name in OTHER:
        return copy.deepcopy(OTHER[key.name])  # the reference writes into what it is given
    if key.use == "fixed":
        return [_another(x) for x in key.allowed] or [True, False]
    if key.use == "alias":
        return OTHER.get(key.alias_of, [5])
    if key.value_type == "anything":  # ids of tokens and the like
        return [True, 3] if not key.name.endswith(("_id", "_index")) else [3]
    if "|" in key.value_type:
        return key.value_type.split("|")
    return BY_KIND[key.value_type + "?" * key.optional]


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return 5 if value.startswith("@") else "mean"
    return True
