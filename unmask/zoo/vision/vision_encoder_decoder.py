"""Captions of pictures by a Vision Transformer and GPT-2, BERT or RoBERTa.

The network of TrOCR: Li et al. 2023, arXiv:2109.10282, "TrOCR: Transformer-based Optical Character
Recognition with Pre-trained Models"; in the layout of transformers' VisionEncoderDecoder.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.backbones.captioning.vision_encoder_decoder import (
    VisionEncoderDecoderArchitecture,
)
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.model.exchange.config_keys import SEQ2SEQ_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping
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
from unmask.zoo.vision.caption_decoders import DECODERS, CaptionerNames, decoder_family

PAPER = Paper(
    title="TrOCR: Transformer-based Optical Character Recognition with Pre-trained Models",
    authors="Li, Lv, Chen, Cui, Lu, Florencio, Zhang, Li, Wei",
    year=2023,
    arxiv="2109.10282",
)

DECODER = replace(gpt2.SMALL_ARCHITECTURE, cross_attention=True)
"""GPT-2 with attention to an encoder between self-attention and feed-forward layer."""

WEIGHT_NAMES = CaptionerNames(
    "\n".join(
        line.replace("backbone.", "backbone.encoder.")
        for line in vit.backbone_names("encoder").splitlines()
        if not line.strip().startswith("heads.")
    )
)

ENCODER_KEYS = ConfigKeys(
    """
    pruned_heads        fixed     {}|null
    use_mask_token      harmless
    is_decoder          harmless
    pooler_output_size  fixed     @hidden_size|null
    """,
    vit.CONFIG_KEYS,
)
"""Their encoders have a pooler that nothing reads. A vector for hidden patches is an argument of
their class, no key of a configuration."""
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


def _family(theirs: Mapping[str, Any], side: str, families: Collection[str]) -> str:
    """Return the family of one side.

    Raises:
        ValueError: it is another one.
    """
    family = theirs[side].get("model_type", "vit" if side == "encoder" else "bert")
    if family not in families:
        raise ValueError(
            f"{side}.model_type = {family!r} is not supported, only "
            + " or ".join(map(repr, families))
        )
    return family


def _complete(theirs: Mapping[str, Any], side: str, keys: ConfigKeys) -> dict[str, Any]:
    """Return the configuration of one side with all keys.

    Raises:
        ValueError: a value is not allowed.
    """
    try:
        return keys.complete({k: x for k, x in theirs[side].items() if k != "architectures"})
    except ValueError as error:
        raise ValueError(f"{side}: {error}") from None


def _read_config(theirs: Mapping[str, Any]) -> VisionEncoderDecoderArchitecture:
    mapping = _ENCODERS[_family(theirs, "encoder", _ENCODERS)].CONFIG_MAPPING
    config = _complete(theirs, "encoder", ENCODER_KEYS)
    encoder = cast(VisionArchitecture, mapping.to_architecture(config | {"use_mask_token": False}))
    family = DECODERS[_family(theirs, "decoder", DECODERS)]
    config = _complete(theirs, "decoder", family.config_keys)
    try:
        decoder = family.read(config)
    except ValueError as error:
        raise ValueError(f"decoder: {error}") from None
    return VisionEncoderDecoderArchitecture(encoder=encoder, decoder=decoder)


def _read_language_head(theirs: Mapping[str, Any]) -> dict[str, Any]:
    decoder = theirs.get("decoder", {"model_type": "gpt2"})
    return DECODERS[decoder.get("model_type", "bert")].language_head(decoder)


def _write_config(a: VisionEncoderDecoderArchitecture) -> dict[str, Any]:
    if a.encoder.hides_patches:
        raise ValueError("mask_token must be False: transformers' class of encoders has none")
    family = "deit" if a.encoder.has_distillation_token else "vit"
    encoder = _ENCODERS[family].CONFIG_MAPPING.from_architecture(a.encoder)
    return {
        "encoder": encoder | {"model_type": family, "architectures": [_ENCODER_CLASSES[family]]},
        "decoder": decoder_family(a.decoder).write(a.decoder),
        "is_encoder_decoder": True,
    }


_DECODER_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def _to_decoder(config: Mapping[str, Any]) -> dict[str, Any]:
    """Put what a whole configuration says of the decoder into the decoder's own, too."""
    own = {key: config[key] for key in ("tie_word_embeddings", *_DECODER_IDS) if key in config}
    return {
        **config,
        "decoder": {**own, **config["decoder"]},
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
    read_language_head=_read_language_head,
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
