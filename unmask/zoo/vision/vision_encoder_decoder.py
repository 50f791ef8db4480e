"""Captions of pictures by a Vision Transformer and GPT-2.

The network of TrOCR: Li et al. 2023, arXiv:2109.10282, "TrOCR: Transformer-based Optical Character
Recognition with Pre-trained Models"; in the layout of transformers' VisionEncoderDecoder.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.backbones.captioning.vision_encoder_decoder import (
    VisionEncoderDecoderArchitecture,
)
from unmask.model.backbones.transformer import Architecture
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.model.exchange.config_keys import SEQ2SEQ_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.positions.grid import GridPositions
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.published import CAUSAL_LM
from unmask.tokenizers.spec import GPT2 as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE
from unmask.zoo.decoders.gpt import gpt2
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING
from unmask.zoo.preset import Paper, Published
from unmask.zoo.vision import deit, vit

PAPER = Paper(
    title="TrOCR: Transformer-based Optical Character Recognition with Pre-trained Models",
    authors="Li, Lv, Chen, Cui, Lu, Florencio, Zhang, Li, Wei",
    year=2023,
    arxiv="2109.10282",
)

DECODER = replace(gpt2.SMALL_ARCHITECTURE, cross_attention=True)
"""GPT-2 with attention to an encoder between self-attention and feed-forward layer."""

_CROSS_ATTENTION = """
    backbone.layers.*.cross_norm.into         transformer.h.*.ln_cross_attn
    backbone.layers.*.cross.q                 transformer.h.*.crossattention.q_attn  transposed
    backbone.layers.*.cross.k + backbone.layers.*.cross.v transformer.h.*.crossattention.c_attn transposed
    backbone.layers.*.cross.o                 transformer.h.*.crossattention.c_proj  transposed
    -                                         transformer.h.*.crossattention
    -                                         transformer.h.*.crossattention.masked_bias
    """  # noqa: E501 - a line is a rule


def _weight_names() -> WeightNames:
    """Return the lines of both stacks, each under the name of its side."""
    encoder = [
        line.replace("backbone.", "backbone.encoder.")
        for line in vit.backbone_names("encoder").splitlines()
        if not line.strip().startswith("heads.")
    ]
    decoder = [
        line.replace("backbone.", "backbone.decoder.")
        .replace("backbone.decoder.tokens", "backbone.tokens")
        .replace("transformer.", "decoder.transformer.")
        .replace("lm_head", "decoder.lm_head")
        for line in (gpt2.WEIGHT_NAMES.table + _CROSS_ATTENTION).splitlines()
        if not line.strip().startswith(("heads.label", "heads.token_label", "heads.spans"))
    ]
    return WeightNames("\n".join((*encoder, *decoder, "backbone.projection enc_to_dec_proj")))


WEIGHT_NAMES = _weight_names()

_STACK_KEYS = "pruned_heads fixed {}|null\nuse_mask_token harmless\nis_decoder harmless"
ENCODER_KEYS = ConfigKeys(
    f"{_STACK_KEYS}\npooler_output_size fixed @hidden_size|null", vit.CONFIG_KEYS
)
"""Their encoders have a pooler that nothing reads. A vector for hidden patches is an argument of
their class, no key of a configuration."""
DECODER_KEYS = ConfigKeys(
    f"""{_STACK_KEYS}
    add_cross_attention          fixed     true
    cross_attention_hidden_size  fixed     null
    """,
    gpt2.GPT_2_KEYS,
)
CONFIG_KEYS = ConfigKeys(
    """
    encoder                     used      table
    decoder                     used      table
    tie_word_embeddings         harmless
    vocab_size                  harmless
    hidden_size                 harmless
    """,
    SEQ2SEQ_KEYS,
)
"""Their class reads `tie_word_embeddings` and sizes of the two configurations within this one."""
_ENCODERS = {"vit": vit, "deit": deit}
_ENCODER_CLASSES = {"vit": "ViTModel", "deit": "DeiTModel"}


def _stack_config(
    theirs: Mapping[str, Any], side: str, keys: ConfigKeys, families: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the configuration of one side with all keys.

    Raises:
        ValueError: the family is another one, or a value is not allowed.
    """
    family = theirs[side].get("model_type", "vit" if side == "encoder" else "bert")
    if family not in families:
        raise ValueError(
            f"{side}.model_type = {family!r} is not supported, only "
            + " or ".join(map(repr, families))
        )
    try:
        own = {k: x for k, x in theirs[side].items() if k != "architectures"}
        return keys.complete(own | {"model_type": family})
    except ValueError as error:
        raise ValueError(f"{side}: {error}") from None


def _read_config(theirs: Mapping[str, Any]) -> VisionEncoderDecoderArchitecture:
    config = _stack_config(theirs, "encoder", ENCODER_KEYS, _ENCODERS)
    mapping = _ENCODERS[config["model_type"]].CONFIG_MAPPING
    encoder = cast(VisionArchitecture, mapping.to_architecture(config | {"use_mask_token": False}))
    config = _stack_config(theirs, "decoder", DECODER_KEYS, {"gpt2": gpt2})
    if not config.get("add_cross_attention"):
        raise ValueError("decoder: lacks add_cross_attention = true, without which it sees nothing")
    decoder = gpt2.CONFIG_MAPPING.to_architecture(config | {"add_cross_attention": False})
    return VisionEncoderDecoderArchitecture(
        encoder=encoder, decoder=replace(cast(Architecture, decoder), cross_attention=True)
    )


def _write_config(a: VisionEncoderDecoderArchitecture) -> dict[str, Any]:
    if a.encoder.hides_patches:
        raise ValueError("mask_token must be False: transformers' class of encoders has none")
    family = "deit" if a.encoder.has_distillation_token else "vit"
    encoder = _ENCODERS[family].CONFIG_MAPPING.from_architecture(a.encoder)
    decoder = gpt2.CONFIG_MAPPING.from_architecture(a.decoder)
    return {
        "encoder": encoder | {"model_type": family, "architectures": [_ENCODER_CLASSES[family]]},
        "decoder": decoder
        | {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "add_cross_attention": True,
            "is_decoder": True,
        },
        "is_encoder_decoder": True,
    }


_DECODER_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def _to_decoder(config: Mapping[str, Any]) -> dict[str, Any]:
    """Put what a whole configuration says of the decoder into the decoder's own, too."""
    own = {key: config[key] for key in ("tie_word_embeddings", *_DECODER_IDS) if key in config}
    return {
        **config,
        "decoder": {**config["decoder"], **own},
        "tie_word_embeddings": False,
    }


CONFIG_MAPPING = ConfigMapping(
    model_type="vision-encoder-decoder",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={
        ("language",): "VisionEncoderDecoderModel",
        (): "VisionEncoderDecoderModel",
    },
    arrange_config=_to_decoder,
    ties_embeddings=lambda theirs: theirs.get("decoder", {}).get("tie_word_embeddings", True),
)

VIT_GPT2 = Published(
    name="vit-gpt2-image-captioning",
    family="vision-encoder-decoder",
    paper=PAPER,
    architecture=VisionEncoderDecoderArchitecture(encoder=vit.BASE, decoder=DECODER),
    heads={"language": LanguageModeling(term="next_token")},
    classification_head=None,
    pooling="first",
    objective=CAUSAL_LM,
    tokenizer=TokenizerSpec(ByteBPE(50_257), FRAME),
    sequence_length=128,
    batch_tokens=64 * 128,
    learning_rate=5e-5,
    n_parameters=238_605_312,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="nlpconnect/vit-gpt2-image-captioning",
    note="The paper reads lines of text with other encoders and decoders; this captioner is of the "
    "same kind, ViT and GPT-2 as they are published, and has no paper: batch, rate and length are "
    "not stated.",
)
MINI_ENCODER = replace(
    vit.BASE,
    d_model=192,
    n_layers=4,
    n_heads=3,
    d_ff=768,
    patch_size=12,
    position=GridPositions(8, 8),
    initializer=NormalInit(0.05, truncated=True),
)
"""For pictures of 96 x 96."""
_MINI = VisionEncoderDecoderArchitecture(
    encoder=MINI_ENCODER,
    decoder=replace(
        DECODER,
        vocab_size=4_096,
        d_model=192,
        n_layers=4,
        n_heads=3,
        d_ff=768,
        position=LearnedPositions(64),
        initializer=NormalInit(0.05, n_residual_branches=8),
    ),
)
VIT_GPT2_MINI = replace(
    VIT_GPT2,
    name="vit-gpt2-mini",
    architecture=_MINI,
    tokenizer=TokenizerSpec(ByteBPE(4_096), FRAME),
    sequence_length=64,
    batch_tokens=1_024,
    learning_rate=1e-3,
    training_options=MINI_TRAINING,
    n_parameters=5_048_640,
    hub_id=None,
    note="Not in the paper: for pictures of 96 x 96 and two CPU cores.",
)

PRESETS = (VIT_GPT2_MINI, VIT_GPT2)
