"""Tiny random models of the reference library, a few shapes a family.

For the properties parity and round trip.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

V = 99


def _fill(model: Any) -> Any:
    """Give every weight a size at which differences show."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
        else:
            torch.nn.init.normal_(parameter, mean=0.5, std=0.3)
    return model.eval()


def bert(kind: str = "BertForPreTraining", **changes: Any) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 40,
    }  # fmt: skip
    return _fill(getattr(hf, kind)(hf.BertConfig(**(sizes | changes))))


def gpt2(kind: str = "GPT2LMHeadModel", **changes: Any) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40,
        "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip
    return _fill(getattr(hf, kind)(hf.GPT2Config(**(sizes | changes))))


def t5(kind: str = "T5ForConditionalGeneration", **changes: Any) -> Any:
    return _like_t5("T5Config", kind, changes)


def mt5(kind: str = "MT5ForConditionalGeneration", **changes: Any) -> Any:
    usual = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    return _like_t5("MT5Config", kind, usual | changes)


def _like_t5(config: str, kind: str, changes: dict[str, Any]) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 3, "num_heads": 4,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12,
        "decoder_start_token_id": 0,
    }  # fmt: skip
    model = getattr(hf, kind)(getattr(hf, config)(**(sizes | changes)))
    if changes.get("tie_word_embeddings") is False:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    return _fill(model)


def bart(
    kind: str = "BartForConditionalGeneration", config: str = "BartConfig", **changes: Any
) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "d_model": 32, "max_position_embeddings": 40, "encoder_layers": 3,
        "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    }  # fmt: skip
    return _fill(getattr(hf, kind)(getattr(hf, config)(**(sizes | changes))))


def mbart(kind: str = "MBartForConditionalGeneration", **changes: Any) -> Any:
    return bart(kind, "MBartConfig", scale_embedding=True, **changes)


def _biased(model: Any) -> Any:
    """Give the scores the bias that released models of Marian have."""
    model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(1))
    return model


def marian(kind: str = "MarianMTModel", **changes: Any) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "d_model": 32, "max_position_embeddings": 40, "encoder_layers": 3,
        "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "activation_function": "relu",
        "scale_embedding": True, "pad_token_id": 0, "eos_token_id": 1,
        "decoder_start_token_id": 0, "forced_eos_token_id": None,
    }  # fmt: skip
    model = getattr(hf, kind)(hf.MarianConfig(**(sizes | changes)))
    tables = [
        model.get_submodule(f"model.{side}.embed_positions") for side in ("encoder", "decoder")
    ]
    positions = [table.weight.clone() for table in tables]
    _fill(model)
    for table, position in zip(tables, positions, strict=True):  # they are no weights
        table.weight.data = position
    return model


def _like_bert(family: str, name: str, kind: str, changes: dict[str, Any]) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 42, "pad_token_id": 1,
    }  # fmt: skip
    config = getattr(hf, f"{name}Config")(**(sizes | changes))
    return _fill(getattr(hf, f"{name}{kind}")(config))


def roberta(kind: str = "ForMaskedLM", name: str = "Roberta", **changes: Any) -> Any:
    return _like_bert("roberta", name, kind, {"type_vocab_size": 1} | changes)


def albert(kind: str = "ForPreTraining", **changes: Any) -> Any:
    small = {"embedding_size": 16, "pad_token_id": 0}
    return _like_bert("albert", "Albert", kind, small | changes)


def modernbert(kind: str = "ForMaskedLM", **changes: Any) -> Any:
    tokens = ("pad", "bos", "eos", "cls", "sep")
    small = {f"{role}_token_id": 0 for role in tokens} | {"local_attention": 6}
    return _like_bert("modernbert", "ModernBert", kind, small | changes)


def mpnet(kind: str = "ForMaskedLM", **changes: Any) -> Any:
    return _like_bert("mpnet", "MPNet", kind, changes)


def vit(kind: str = "ForImageClassification", name: str = "ViT", **changes: Any) -> Any:
    """Make a model of pictures of 24 x 24, in nine patches."""
    import transformers as hf

    sizes = {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 64, "image_size": 24, "patch_size": 8, "encoder_stride": 8,
    }  # fmt: skip
    return _fill(getattr(hf, f"{name}{kind}")(getattr(hf, f"{name}Config")(**(sizes | changes))))


def vit_mae(**changes: Any) -> Any:
    """Make a masked autoencoder of pictures of 24 x 24, in nine patches."""
    import transformers as hf

    sizes = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "image_size": 24, "patch_size": 8, "decoder_hidden_size": 24,
        "decoder_num_hidden_layers": 2, "decoder_num_attention_heads": 2,
        "decoder_intermediate_size": 48,
    }  # fmt: skip
    return _fill(hf.ViTMAEForPreTraining(hf.ViTMAEConfig(**(sizes | changes))))


def deit(kind: str = "ForImageClassification", **changes: Any) -> Any:
    return vit(kind, "DeiT", **changes)


_BERT = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 40, "is_decoder": True,
}  # fmt: skip
_WORDS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 40},
    "bert": _BERT,
    "roberta": _BERT | {"pad_token_id": 1},
}


def vision_encoder_decoder(
    kind: str = "VisionEncoderDecoderModel",
    encoder: dict[str, Any] | None = None,
    decoder: dict[str, Any] | None = None,
    **changes: Any,
) -> Any:
    """Make a model that describes pictures of 24 x 24 in texts."""
    import transformers as hf

    pictures = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "image_size": 24, "patch_size": 8, "encoder_stride": 8,
    }  # fmt: skip
    kind_of_words = (decoder or {}).get("model_type", "gpt2")
    words = {
        "vocab_size": V, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
        "add_cross_attention": True, "model_type": kind_of_words,
    } | _WORDS[kind_of_words] | (decoder or {})  # fmt: skip
    pictures |= {"model_type": "vit"} | (encoder or {})
    config = hf.VisionEncoderDecoderConfig(encoder=pictures, decoder=words, **changes)
    return _fill(getattr(hf, kind)(config))


def clip(
    text: dict[str, Any] | None = None, vision: dict[str, Any] | None = None, **changes: Any
) -> Any:
    """Make a CLIP of pictures of 24 x 24, in nine patches."""
    import transformers as hf

    texts = {
        "vocab_size": V, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 40, "eos_token_id": V - 1,
        "bos_token_id": V - 2, "pad_token_id": V - 1,
    }  # fmt: skip
    pictures = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 24, "patch_size": 8,
    }  # fmt: skip
    config = hf.CLIPConfig(
        text_config=texts | (text or {}), vision_config=pictures | (vision or {}),
        **{"projection_dim": 16} | changes,
    )  # fmt: skip
    return _fill(hf.CLIPModel(config))


def electra(kind: str = "ForPreTraining", **changes: Any) -> Any:
    return _like_bert("electra", "Electra", kind, {"embedding_size": 16} | changes)


def longformer(kind: str = "ForMaskedLM", **changes: Any) -> Any:
    small = {"type_vocab_size": 1, "attention_window": [4, 8, 4], "sep_token_id": V - 1}
    return _like_bert("longformer", "Longformer", kind, small | changes)


def xlnet(kind: str = "LMHeadModel", **changes: Any) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 64, "mem_len": 8,
    }  # fmt: skip
    return _fill(getattr(hf, f"XLNet{kind}")(hf.XLNetConfig(**(sizes | changes))))


def distilbert(kind: str = "ForMaskedLM", **changes: Any) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 64,
        "max_position_embeddings": 40, "pad_token_id": 0,
    }  # fmt: skip
    return _fill(getattr(hf, f"DistilBert{kind}")(hf.DistilBertConfig(**(sizes | changes))))


def deberta(kind: str = "ForMaskedLM", **changes: Any) -> Any:
    small = {
        "pad_token_id": 0, "relative_attention": True, "max_relative_positions": 6,
        "pos_att_type": ["c2p", "p2c"], "position_biased_input": False, "type_vocab_size": 0,
    }  # fmt: skip
    return _like_bert("deberta", "Deberta", kind, small | changes)


def deberta_v2(kind: str = "ForMaskedLM", **changes: Any) -> Any:
    small = {
        "pad_token_id": 0, "relative_attention": True, "max_relative_positions": 14,
        "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0,
        "share_att_key": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm",
    }  # fmt: skip
    return _like_bert("deberta_v2", "DebertaV2", kind, small | changes)


_CONVOLVED = {"conv_kernel_size": 3, "conv_act": "gelu"}


class _NoCache:
    """What transformers' attention takes for no cache in a layer."""

    def get_seq_length(self) -> int:
        return 0

    def __getitem__(self, layer: int) -> None:
        return None


def without_cache(_: Any, given: Any, named: Any) -> Any:
    """Hand a model of the reference what it takes for no cache."""
    return given, named | {"cache": _NoCache()}


def flaubert(kind: str = "WithLMHeadModel", **changes: Any) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "emb_dim": 32, "n_layers": 3, "n_heads": 4, "max_position_embeddings": 40,
    }  # fmt: skip
    model = _fill(getattr(hf, f"Flaubert{kind}")(hf.FlaubertConfig(**(sizes | changes))))
    if (
        model.config.pre_norm
    ):  # transformers 5.23 asks its own cache for a layer that it cannot give
        model.transformer.register_forward_pre_hook(without_cache, with_kwargs=True)
    return model


def xlm(kind: str = "WithLMHeadModel", **changes: Any) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "emb_dim": 32, "n_layers": 3, "n_heads": 4, "max_position_embeddings": 40,
    }  # fmt: skip
    return _fill(getattr(hf, f"XLM{kind}")(hf.XLMConfig(**(sizes | changes))))


def llama(kind: str = "ForCausalLM", name: str = "Llama", **changes: Any) -> Any:
    """Make a model of Llama's kin: they have the same words for their sizes."""
    import transformers as hf

    sizes = {
        "vocab_size": V, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 40,
        "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip
    output = {"Gemma3": "Gemma3Text"}.get(name, name)
    config = getattr(hf, f"{output}Config")(**(sizes | changes))
    return _fill(getattr(hf, f"{name}{kind}")(config))


def gemma2(kind: str = "ForCausalLM", **changes: Any) -> Any:
    small = {
        "head_dim": 12, "sliding_window": 6, "query_pre_attn_scalar": 20,
        "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0,
    }  # fmt: skip
    return llama(kind, "Gemma2", **(small | changes))


def gemma3(kind: str = "ForCausalLM", **changes: Any) -> Any:
    small = {
        "head_dim": 12, "sliding_window": 6, "query_pre_attn_scalar": 20,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 8.0},
        },
    }  # fmt: skip
    return llama(kind, "Gemma3", **(small | changes))


def neox(kind: str = "ForCausalLM", **changes: Any) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 40,
        "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip
    return _fill(getattr(hf, f"GPTNeoX{kind}")(hf.GPTNeoXConfig(**(sizes | changes))))


def gpt(kind: str = "OpenAIGPTLMHeadModel", **changes: Any) -> Any:
    import transformers as hf

    sizes = {
        "vocab_size": V, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40,
        "pad_token_id": 0,
    }  # fmt: skip
    return _fill(getattr(hf, kind)(hf.OpenAIGPTConfig(**(sizes | changes))))


def canine(kind: str = "Model", **changes: Any) -> Any:
    import transformers as hf

    sizes = {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 64, "num_hash_buckets": 512, "max_position_embeddings": 512,
        "local_transformer_stride": 8,
    }  # fmt: skip
    return _fill(getattr(hf, f"Canine{kind}")(hf.CanineConfig(**(sizes | changes))))


_LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 20,
}  # fmt: skip
_ALTERNATING = ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"]

SHAPES: dict[str, Callable[[], Any]] = {
    "bert": bert,
    "bert, relu, one layer, wide heads": lambda: bert(
        num_hidden_layers=1, num_attention_heads=2, hidden_act="relu", hidden_size=48
    ),
    "bert, tanh gelu, four segments": lambda: bert(hidden_act="gelu_new", type_vocab_size=4),
    "bert, masked LM only": lambda: bert("BertForMaskedLM"),
    "roberta": roberta,
    "xlm-roberta": lambda: roberta(name="XLMRoberta"),
    "camembert": lambda: roberta(name="Camembert"),
    "albert": albert,
    "albert, nothing shared, masked LM only": lambda: albert("ForMaskedLM", num_hidden_groups=3),
    "electra, discriminator": electra,
    "electra, generator, wide token vectors": lambda: electra("ForMaskedLM", embedding_size=48),
    "electra, token vectors as wide as the rest": lambda: electra(embedding_size=32),
    "distilbert": distilbert,
    "deberta": deberta,
    "deberta, content to position": lambda: deberta(pos_att_type=["c2p"]),
    "deberta, position to content, places and two segments in the input": lambda: deberta(
        pos_att_type=["p2c"], position_biased_input=True, type_vocab_size=2
    ),
    "deberta, distances up to the length": lambda: deberta(max_relative_positions=-1),
    "deberta-v2": deberta_v2,
    "deberta-v2, convolution": lambda: deberta_v2(**_CONVOLVED),
    "deberta-v2, no buckets, no norm, places and two segments in the input": lambda: deberta_v2(
        position_buckets=-1,
        norm_rel_ebd="none",
        position_biased_input=True,
        type_vocab_size=2,
        pos_att_type=["c2p"],
        conv_kernel_size=5,
        conv_groups=4,
    ),
    "flaubert": flaubert,
    "flaubert, norms before, relu": lambda: flaubert(
        pre_norm=True, gelu_activation=False, layer_norm_eps=1e-6
    ),
    "xlm": xlm,
    "xlm, five languages": lambda: xlm(n_langs=5),
    "xlm, five languages without embeddings, relu": lambda: xlm(
        n_langs=5, use_lang_emb=False, gelu_activation=False
    ),
    "modernbert": modernbert,
    "modernbert, five layers, other windows": lambda: modernbert(
        num_hidden_layers=5, local_attention=4, layer_types=_ALTERNATING
    ),
    "mpnet": mpnet,
    "mpnet, one layer, relu": lambda: mpnet(num_hidden_layers=1, hidden_act="relu"),
    "longformer": longformer,
    "longformer, one window wider than the text": lambda: longformer(attention_window=40),
    "longformer, other windows, two segments": lambda: longformer(
        attention_window=[12, 6], type_vocab_size=2, num_hidden_layers=2
    ),
    "xlnet": xlnet,
    "xlnet, distances clamped, relu": lambda: xlnet(clamp_len=5, ff_activation="relu"),
    "gpt": gpt,
    "gpt, relu": lambda: gpt(afn="relu"),
    "gpt2": gpt2,
    "gpt2, narrow inner layer, relu": lambda: gpt2(n_inner=20, activation_function="relu"),
    "neox": neox,
    "neox, one after the other, all of a head turns, no biases of attention": lambda: neox(
        use_parallel_residual=False,
        attention_bias=False,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 100.0,
            "partial_rotary_factor": 1.0,
        },
    ),
    "llama": llama,
    "llama, no groups, shared tables": lambda: llama(
        num_key_value_heads=4, tie_word_embeddings=True
    ),
    "llama, one group, wide heads, biases, slow angles slower": lambda: llama(
        num_key_value_heads=1,
        head_dim=12,
        attention_bias=True,
        mlp_bias=True,
        rope_parameters=_LLAMA_3,
    ),
    "mistral": lambda: llama(name="Mistral", sliding_window=6),
    "mistral, no window, wide heads": lambda: llama(
        name="Mistral", sliding_window=None, head_dim=12
    ),
    "qwen2": lambda: llama(name="Qwen2"),
    "qwen3": lambda: llama(name="Qwen3", head_dim=12),
    "gemma": lambda: llama(name="Gemma", head_dim=12),
    "gemma2": gemma2,
    "gemma2, no caps": lambda: gemma2(
        attn_logit_softcapping=None, final_logit_softcapping=None, query_pre_attn_scalar=12
    ),
    "gemma3": gemma3,
    "gemma3, windows alone": lambda: gemma3(
        layer_types=["sliding_attention"] * 3, rope_parameters=None
    ),
    "olmo2": lambda: llama(name="Olmo2"),
    "t5": t5,
    "t5 v1.1": lambda: t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "mt5": mt5,
    "byt5: t5 1.1 with an encoder three times as deep": lambda: t5(
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        num_decoder_layers=1,
    ),
    "bart": bart,
    "bart, two layers and one, wide tokens, relu": lambda: bart(
        encoder_layers=2,
        decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=48,
        scale_embedding=True,
        activation_function="relu",
        encoder_layerdrop=0.1,
        activation_dropout=0.1,
    ),
    "bart, scores with a bias": lambda: _biased(bart()),
    "mbart": mbart,
    "mbart, scores with a bias": lambda: _biased(mbart()),
    "mbart, one layer and two": lambda: mbart(encoder_layers=1, decoder_layers=2),
    "marian": marian,
    "marian, scores with a bias": lambda: _biased(marian()),
    "marian, one layer and two, tokens not scaled, silu": lambda: marian(
        encoder_layers=1,
        decoder_layers=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=48,
        scale_embedding=False,
        activation_function="silu",
        decoder_layerdrop=0.1,
        activation_dropout=0.1,
        attention_dropout=0.1,
    ),
    "t5, shallow decoder, wide heads": lambda: t5(num_decoder_layers=1, d_kv=16, num_heads=3),
}


def saved(model: Any, folder: Path) -> Path:
    """Save a reference model as its library does."""
    model.save_pretrained(folder)
    return folder
