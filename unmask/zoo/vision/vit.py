"""ViT: Dosovitskiy et al. 2021, arXiv:2010.11929.

"An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.vision.patch_reconstruction import PatchReconstruction
from unmask.model.architecture import PRE_NORM
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.model.exchange.config_keys import COMMON_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.grid import GridPositions
from unmask.objectives.inputs.pictures import MASKED_PATCHES, PictureLabels
from unmask.tokenizers.spec import PICTURE, TokenizerSpec
from unmask.tokenizers.vocabulary import Patches
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
    authors="Dosovitskiy, Beyer, Kolesnikov, Weissenborn, Zhai, Unterthiner, Dehghani, Minderer, "
    "Heigold, Gelly, Uszkoreit, Houlsby",
    year=2021,
    arxiv="2010.11929",
)
SIMMIM = Paper(
    title="SimMIM: A Simple Framework for Masked Image Modeling",
    authors="Xie, Zhang, Cao, Lin, Bao, Yao, Dai, Hu",
    year=2022,
    arxiv="2111.09886",
)

BASE = VisionArchitecture(
    d_model=768,  # table 1
    n_layers=12,
    n_heads=12,
    d_ff=3072,
    patch_size=16,
    position=GridPositions(14, 14),  # pictures of 224 x 224, section 4.1
    norm=LayerNorm(eps=1e-12),  # transformers' configuration of the released weights
    norm_placement=PRE_NORM,  # equations 2 and 3
    final_norm=True,  # equation 4
    dropout=0.0,  # transformers' configuration; of training, see `training_options`
    attention_dropout=0.0,
    initializer=NormalInit(0.02, truncated=True),
)
CLASSES = 1_000
"""Of ImageNet."""


def classification_head(n_labels: int = 2) -> SequenceClassification:
    """Return a linear map of the class token (section 3.2: zero-initialized in fine-tuning)."""
    return SequenceClassification(n_labels=n_labels, dense_layer=False, dropout=0.0)


def layer_names(ours: str, theirs: str) -> str:
    """Return the lines of a layer."""
    return f"""
    {ours}.attention.q              {theirs}.attention.attention.query
    {ours}.attention.k              {theirs}.attention.attention.key
    {ours}.attention.v              {theirs}.attention.attention.value
    {ours}.attention.o              {theirs}.attention.output.dense
    {ours}.attention_norm.into      {theirs}.layernorm_before
    {ours}.feed_forward.up          {theirs}.intermediate.dense
    {ours}.feed_forward.down        {theirs}.output.dense
    {ours}.feed_forward_norm.into   {theirs}.layernorm_after
    """


def backbone_names(module: str) -> str:
    """Return the lines of the network, whose tensors begin with a word of the family."""
    return (
        f"""
    backbone.tokens.class_token                {module}.embeddings.cls_token
    backbone.tokens.distillation_token         {module}.embeddings.distillation_token
    backbone.tokens.mask_token                 {module}.embeddings.mask_token
    backbone.tokens.projection                 {module}.embeddings.patch_embeddings.projection
    backbone.position.table                    {module}.embeddings.position_embeddings
    """
        + layer_names("backbone.layers.*", f"{module}.encoder.layer.*")
        + f"""
    backbone.final_norm                        {module}.layernorm
    pooler.dense                               {module}.pooler.dense
    heads.patches.out                          decoder.0
    """
    )


WEIGHT_NAMES = WeightNames(
    backbone_names("vit") + "heads.label.out                            classifier", prefix="vit."
)

ENCODER_KEYS = ConfigKeys(
    """
    hidden_size                   used      size       768
    num_hidden_layers             used      layers     12
    num_attention_heads           used      size@hidden_size  12
    intermediate_size             used      size       3072
    hidden_act                    used      word       gelu
    hidden_dropout_prob           used      share      0.0
    attention_probs_dropout_prob  used      share      0.0
    initializer_range             used      number     0.02
    layer_norm_eps                used      positive   1e-12
    image_size                    used      sides      224
    patch_size                    used      sides      16
    num_channels                  used      size       3
    qkv_bias                      used      flag       true
    """,
    COMMON_KEYS,
)
"""Of all families with ViT's encoder."""
CONFIG_KEYS = ConfigKeys(
    """
    encoder_stride                used      size       16
    pooler_output_size            harmless  size?
    pooler_act                    harmless  word
    head_dim                      used      size?      -
    use_mask_token                used      flag       -
    """,
    ENCODER_KEYS,
)
_FIELDS = {
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "norm.eps": "layer_norm_eps",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer.std": "initializer_range",
    "n_channels": "num_channels",
    "head_dim": "head_dim",
}


def config_mapping(
    model_type: str, base: VisionArchitecture, class_names: Mapping[tuple[str, ...], str]
) -> ConfigMapping:
    """Return the two-way table of a family with ViT's configuration."""
    read_fields, write_fields = config_functions(_FIELDS, base, {})
    masked = {name for heads, name in class_names.items() if "patches" in heads}

    def read(theirs: Mapping[str, Any]) -> VisionArchitecture:
        (height, width), (patch, patch_width) = (
            _sides(theirs[key]) for key in ("image_size", "patch_size")
        )
        if patch != patch_width:
            raise ValueError(f"patch_size = {theirs['patch_size']} is not supported, only squares")
        if theirs["num_channels"] not in (1, 3):
            raise ValueError(
                f"num_channels = {theirs['num_channels']} is not supported, only 1 or 3"
            )
        is_masked = bool(masked & {*(theirs.get("architectures") or ())})
        if is_masked and theirs["encoder_stride"] != patch:
            raise ValueError(
                f"encoder_stride = {theirs['encoder_stride']} must be patch_size = {patch}"
            )
        a = replace(
            read_fields(theirs),
            patch_size=patch,
            mask_token=theirs.get("use_mask_token", is_masked),
            biases=base.biases if theirs["qkv_bias"] else base.biases - {"read"},
        )
        if height % patch or width % patch:
            raise ValueError(
                f"image_size = {theirs['image_size']} must be a multiple of patch_size = {patch}"
            )
        return a.with_image_size(height, width)

    def write(a: VisionArchitecture) -> dict[str, Any]:
        height, width = a.image_size
        fields = {key: value for key, value in write_fields(a).items() if value is not None}
        return fields | {
            "image_size": height if height == width else [height, width],
            "patch_size": a.patch_size,
            "encoder_stride": a.patch_size,
            "qkv_bias": "read" in a.biases,
            "use_mask_token": a.mask_token,
        }

    return ConfigMapping(
        model_type=model_type,
        config_keys=CONFIG_KEYS,
        to_architecture=read,
        from_architecture=write,
        class_names=class_names,
        read_classification_head=lambda theirs: {"dense_layer": False, "dropout": 0.0},
    )


def _sides(value: int | list[int]) -> tuple[int, int]:
    """Return height and width."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


CONFIG_MAPPING = config_mapping(
    "vit",
    BASE,
    {
        ("label",): "ViTForImageClassification",
        ("patches",): "ViTForMaskedImageModeling",
        (): "ViTModel",
    },
)

VIT_BASE = Published(
    name="vit-base-patch16-224",
    family="vit",
    paper=PAPER,
    architecture=BASE,
    heads={"label": classification_head(CLASSES)},
    extra_heads={"patches": PatchReconstruction()},
    classification_head=classification_head(),
    pooling="first",
    objective=PictureLabels(),
    tokenizer=TokenizerSpec(Patches(), PICTURE),
    sequence_length=197,
    batch_tokens=4096 * 197,  # section 4.1
    learning_rate=1e-3,  # table 3, ImageNet-21k
    training_options={  # the same row
        "schedule": {"kind": "Linear", "warmup": 10_000},
        "dropout": 0.1,
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.999], "weight_decay": 0.03},
        "max_grad_norm": 1.0,
    },
    n_parameters=86_567_656,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="google/vit-base-patch16-224",
)


def _with_size(name: str, parameters: int, **changes: Any) -> Published:
    """Return another size."""
    architecture = replace(BASE, **changes)
    length = architecture.position.max_positions
    return replace(
        VIT_BASE,
        name=name,
        architecture=architecture,
        sequence_length=length,
        batch_tokens=4096 * length,
        n_parameters=parameters,
        hub_id=f"google/{name}",
    )


_LARGE = {"d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096}
VIT_BASE_32 = _with_size(
    "vit-base-patch32-384", 88_297_192, patch_size=32, position=GridPositions(12, 12)
)
VIT_LARGE = _with_size("vit-large-patch16-224", 304_326_632, **_LARGE)
VIT_LARGE_32 = _with_size(
    "vit-large-patch32-384", 306_632_680, **_LARGE, patch_size=32, position=GridPositions(12, 12)
)
VIT_HUGE = replace(
    _with_size(
        "vit-huge-patch14-224-in21k", 632_045_800, d_model=1280, n_layers=32, n_heads=16,
        d_ff=5120, patch_size=14, position=GridPositions(16, 16),
    ),
    note="Here with the head of ImageNet's 1,000 classes; the published weights have none.",
)  # fmt: skip
VIT_MINI = replace(
    VIT_BASE,
    name="vit-mini",
    paper=SIMMIM,
    architecture=replace(
        BASE,
        d_model=192,
        n_layers=6,
        n_heads=3,
        d_ff=768,
        patch_size=4,
        position=GridPositions(8, 8),
        mask_token=True,
        initializer=NormalInit(0.05, truncated=True),
    ),
    heads={"patches": PatchReconstruction()},
    extra_heads={},
    objective=MASKED_PATCHES,
    sequence_length=65,
    batch_tokens=64 * 65,
    learning_rate=1e-3,
    training_options={"schedule": {"kind": "WSD", "warmup": 0.02, "decay": 0.3}, "dropout": 0.0},
    n_parameters=2_701_104,
    hub_id=None,
    note="Not in the paper: the width of DeiT-Ti, half of its layers, for pictures of 32 x 32; "
    "pretrained by hidden patches.",
)

PRESETS = (VIT_MINI, VIT_BASE, VIT_BASE_32, VIT_LARGE, VIT_LARGE_32, VIT_HUGE)
