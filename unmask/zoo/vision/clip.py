"""CLIP: Radford et al. 2021, arXiv:2103.00020.

"Learning Transferable Visual Models From Natural Language Supervision".
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.vision.picture_text_contrast import PictureTextContrast
from unmask.model.architecture import PRE_NORM
from unmask.model.backbones.captioning.two_towers import TwoTowerArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.model.exchange.config_keys import COMMON_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.grid import GridPositions
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.inputs.pictures import PictureContrast
from unmask.tokenizers.spec import CLIP as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import LowercaseByteBPE
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="Learning Transferable Visual Models From Natural Language Supervision",
    authors="Radford, Kim, Hallacy, Ramesh, Goh, Agarwal, Sastry, Askell, Mishkin, Clark, Krueger, "
    "Sutskever",
    year=2021,
    arxiv="2103.00020",
)

TEXT = Architecture(
    vocab_size=49_408,  # released code; section 2.4 says 49,152 before special tokens
    d_model=512,  # table 20
    n_layers=12,
    n_heads=8,
    d_ff=2048,
    position=LearnedPositions(77),  # released code; section 2.4 says 76
    norm=LayerNorm(eps=1e-5),
    norm_placement=PRE_NORM,  # section 2.4, of GPT-2
    final_norm=True,  # ibid.: the hidden state of the end is normalized, then projected
    activation="quick_gelu",  # released code
    causal=True,
    dropout=0.0,
    attention_dropout=0.0,
    initializer=NormalInit(0.02),
)
VISION = VisionArchitecture(
    d_model=768,  # table 20
    n_layers=12,
    n_heads=12,
    d_ff=3072,
    patch_size=32,
    position=GridPositions(7, 7),
    patch_bias=False,  # released code
    norm=LayerNorm(eps=1e-5),
    embedding_norm=True,  # section 2.4
    norm_placement=PRE_NORM,
    final_norm=True,
    activation="quick_gelu",
    dropout=0.0,
    attention_dropout=0.0,
    initializer=NormalInit(0.02),
)
HEADS = {"contrast": PictureTextContrast()}
BASE_PATCH_32 = TwoTowerArchitecture(text=TEXT, vision=VISION, d_projection=512)
"""Deviates: all weights start from N(0, 0.02), not from widths of their own layers (released code);
published weights do not depend on that."""
BASE_PATCH_16 = replace(
    BASE_PATCH_32, vision=replace(VISION, patch_size=16, position=GridPositions(14, 14))
)
LARGE_PATCH_14 = TwoTowerArchitecture(
    text=replace(TEXT, d_model=768, n_heads=12, d_ff=3072),
    vision=replace(
        VISION, d_model=1024, n_layers=24, n_heads=16, d_ff=4096, patch_size=14,
        position=GridPositions(16, 16),
    ),
    d_projection=768,
)  # fmt: skip
MINI = TwoTowerArchitecture(
    text=replace(
        TEXT, vocab_size=4_096, d_model=192, n_layers=4, n_heads=3, d_ff=768,
        position=LearnedPositions(64), initializer=NormalInit(0.05),
    ),
    vision=replace(
        VISION, d_model=192, n_layers=4, n_heads=3, d_ff=768, patch_size=12,
        position=GridPositions(8, 8), initializer=NormalInit(0.05),
    ),
    d_projection=192,
)  # fmt: skip
"""Not in the paper: for pictures of 96 x 96 and two CPU cores."""


def _tower(ours: str, theirs: str) -> str:
    """Return the lines of the layers of one side."""
    return f"""
    {ours}.layers.*.attention.q           {theirs}.encoder.layers.*.self_attn.q_proj
    {ours}.layers.*.attention.k           {theirs}.encoder.layers.*.self_attn.k_proj
    {ours}.layers.*.attention.v           {theirs}.encoder.layers.*.self_attn.v_proj
    {ours}.layers.*.attention.o           {theirs}.encoder.layers.*.self_attn.out_proj
    {ours}.layers.*.attention_norm.into   {theirs}.encoder.layers.*.layer_norm1
    {ours}.layers.*.feed_forward.up       {theirs}.encoder.layers.*.mlp.fc1
    {ours}.layers.*.feed_forward.down     {theirs}.encoder.layers.*.mlp.fc2
    {ours}.layers.*.feed_forward_norm.into {theirs}.encoder.layers.*.layer_norm2
    -                                     {theirs}.embeddings.position_ids
    """


WEIGHT_NAMES = WeightNames(
    _tower("backbone.text", "text_model")
    + _tower("backbone.vision", "vision_model")
    + """
    backbone.text.tokens                  text_model.embeddings.token_embedding
    backbone.text.position.table          text_model.embeddings.position_embedding
    backbone.text.final_norm              text_model.final_layer_norm
    backbone.vision.tokens.class_token    vision_model.embeddings.class_embedding            unbatched
    backbone.vision.tokens.projection     vision_model.embeddings.patch_embedding
    backbone.vision.position.table        vision_model.embeddings.position_embedding.weight  unbatched
    backbone.vision.embed_norm            vision_model.pre_layrnorm
    backbone.vision.final_norm            vision_model.post_layernorm
    backbone.text_projection              text_projection
    backbone.picture_projection           visual_projection
    heads.contrast.logit_scale            logit_scale
    """  # noqa: E501 - a line is a rule
)

_STACK_KEYS = """
    hidden_size                   used      size       {width}
    intermediate_size             used      size       {inner}
    num_hidden_layers             used      layers     12
    num_attention_heads           used      size@hidden_size  {heads}
    hidden_act                    used      word       quick_gelu
    layer_norm_eps                used      positive   1e-5
    attention_dropout             used      share      0.0
    initializer_range             used      number     0.02
    initializer_factor            harmless  number
    projection_dim                harmless  size?
    pruned_heads                  fixed     {{}}|null"""
TEXT_KEYS = ConfigKeys(
    _STACK_KEYS.format(width=512, inner=2048, heads=8)
    + """
    vocab_size                    used      size       49408
    max_position_embeddings       used      size       77
    eos_token_id                  used      count      49407
    """,
    COMMON_KEYS,
)
VISION_KEYS = ConfigKeys(
    _STACK_KEYS.format(width=768, inner=3072, heads=12)
    + """
    image_size                    used      sides      224
    patch_size                    used      sides      32
    num_channels                  used      size       3
    """,
    COMMON_KEYS,
)
CONFIG_KEYS = ConfigKeys(
    """
    text_config                   used      table
    vision_config                 used      table
    projection_dim                used      size       512
    logit_scale_init_value        used      number     2.6592
    initializer_factor            harmless  number
    pruned_heads                  fixed     {}|null
    tie_word_embeddings           harmless
    """,
    COMMON_KEYS,
)
_FIELDS = {
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "norm.eps": "layer_norm_eps",
    "activation": "hidden_act",
    "attention_dropout": "attention_dropout",
    "initializer.std": "initializer_range",
}
_READ_TEXT, _WRITE_TEXT = config_functions(
    _FIELDS | {"vocab_size": "vocab_size", "position.max_positions": "max_position_embeddings"},
    TEXT,
    {},
)
_READ_VISION, _WRITE_VISION = config_functions(_FIELDS | {"n_channels": "num_channels"}, VISION, {})
GREATEST_ID = 2
"""Their `eos_token_id` with which a text's state is at its greatest id: that of early files."""


def _complete(theirs: Mapping[str, Any], side: str, keys: ConfigKeys) -> dict[str, Any]:
    """Return the configuration of one side with all keys.

    Raises:
        ValueError: a value is not allowed.
    """
    try:
        return keys.complete(theirs.get(side) or {})
    except ValueError as error:
        raise ValueError(f"{side}: {error}") from None


def _read_vision(theirs: Mapping[str, Any]) -> VisionArchitecture:
    image, patch = (
        (x, x) if isinstance(x, int) else tuple(x)
        for x in (theirs["image_size"], theirs["patch_size"])
    )
    if image[0] != image[1] or patch[0] != patch[1] or image[0] % patch[0]:
        raise ValueError(
            f"vision_config: image_size = {theirs['image_size']} and patch_size = "
            f"{theirs['patch_size']} are not supported, only a square of whole square patches"
        )
    if theirs["num_channels"] not in (1, 3):
        raise ValueError(
            f"vision_config: num_channels = {theirs['num_channels']} is not supported, only 1 or 3"
        )
    a = replace(_READ_VISION(theirs), patch_size=patch[0])
    return a.with_image_size(*image)


def _read_config(theirs: Mapping[str, Any]) -> TwoTowerArchitecture:
    text = _complete(theirs, "text_config", TEXT_KEYS)
    vision = _complete(theirs, "vision_config", VISION_KEYS)
    end = text["eos_token_id"]
    return TwoTowerArchitecture(
        text=_READ_TEXT(text),
        vision=_read_vision(vision),
        d_projection=theirs["projection_dim"],
        end_id=None if end == GREATEST_ID else end,
    )


def _write_config(a: TwoTowerArchitecture) -> dict[str, Any]:
    height, width = a.vision.image_size
    if height != width:
        raise ValueError(f"pictures must be square for transformers' CLIP, got {height} x {width}")
    return {
        "text_config": _WRITE_TEXT(a.text)
        | {
            "eos_token_id": GREATEST_ID if a.end_id is None else a.end_id,
            "projection_dim": a.d_projection,
            "bos_token_id": None,
            "model_type": "clip_text_model",
        },
        "vision_config": _WRITE_VISION(a.vision)
        | {
            "image_size": height,
            "patch_size": a.vision.patch_size,
            "projection_dim": a.d_projection,
            "model_type": "clip_vision_model",
        },
        "projection_dim": a.d_projection,
        "logit_scale_init_value": -math.log(HEADS["contrast"].initial_temperature),
    }


CONFIG_MAPPING = ConfigMapping(
    model_type="clip",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={("contrast",): "CLIPModel"},
)

CLIP_BASE_PATCH_32 = Published(
    name="clip-vit-base-patch32",
    family="clip",
    paper=PAPER,
    architecture=BASE_PATCH_32,
    heads=HEADS,
    classification_head=None,
    pooling="projection",
    objective=PictureContrast(),
    tokenizer=TokenizerSpec(LowercaseByteBPE(49_408), FRAME),
    sequence_length=77,
    batch_tokens=32_768 * 77,  # table 18: rows
    learning_rate=5e-4,  # table 19
    training_options={
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.2},
        "schedule": {"kind": "Cosine", "warmup": 2_000},
    },  # table 18
    n_parameters=151_277_313,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="openai/clip-vit-base-patch32",
    note="32 epochs of 400 million pairs (section 2.5), which were not published; longer texts are "
    "cut.",
)
CLIP_BASE_PATCH_16 = replace(
    CLIP_BASE_PATCH_32,
    name="clip-vit-base-patch16",
    architecture=BASE_PATCH_16,
    n_parameters=149_620_737,
    hub_id="openai/clip-vit-base-patch16",
)
CLIP_LARGE_PATCH_14 = replace(
    CLIP_BASE_PATCH_32,
    name="clip-vit-large-patch14",
    architecture=LARGE_PATCH_14,
    learning_rate=4e-4,  # table 19
    n_parameters=427_616_513,
    hub_id="openai/clip-vit-large-patch14",
)
CLIP_MINI = replace(
    CLIP_BASE_PATCH_32,
    name="clip-mini",
    architecture=MINI,
    tokenizer=TokenizerSpec(LowercaseByteBPE(4_096), FRAME),
    sequence_length=40,
    batch_tokens=128 * 20,
    learning_rate=5e-4,
    training_options=MINI_TRAINING,
    n_parameters=4_528_129,
    hub_id=None,
    note="Not in the paper: for pictures of 96 x 96 and two CPU cores.",
)

PRESETS = (CLIP_MINI, CLIP_BASE_PATCH_32, CLIP_BASE_PATCH_16, CLIP_LARGE_PATCH_14)
