"""MAE: He et al. 2022, arXiv:2111.06377.

"Masked Autoencoders Are Scalable Vision Learners".
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

from unmask.heads.vision.masked_autoencoding import MaskedAutoencoding
from unmask.model.backbones.vision_transformer import MaskedAutoencoder, PatchDecoder
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.positions.grid_sinusoidal import GridSinusoidal
from unmask.objectives.corrupt import MaskInPlace
from unmask.objectives.objective import Objective
from unmask.objectives.select import TokenMasking
from unmask.zoo.preset import Paper, Published
from unmask.zoo.vision import vit

PAPER = Paper(
    title="Masked Autoencoders Are Scalable Vision Learners",
    authors="He, Chen, Xie, Li, Dollár, Girshick",
    year=2022,
    arxiv="2111.06377",
)
MASK_RATIO = 0.75
"""Share of hidden patches (section 4.1)."""
OBJECTIVE = Objective(
    TokenMasking(rate=MASK_RATIO), MaskInPlace(mask_probability=1.0, random_token_probability=0.0)
)
"""Deviates: the class token counts toward the share: 148 of 196 patches are hidden, not 147. The
class token starts at zero as in ViT, not from N(0, 0.02) as in transformers."""
_ENCODER: dict[str, Any] = {f.name: getattr(vit.BASE, f.name) for f in fields(vit.BASE)}
_ENCODER["position"] = GridSinusoidal(14, 14)
BASE = MaskedAutoencoder(**_ENCODER)

WEIGHT_NAMES = WeightNames(
    vit.backbone_names("vit").replace("heads.patches.out                          decoder.0", "")
    + """
    heads.patches.decoder.tokens.projection       decoder.decoder_embed
    heads.patches.decoder.tokens.mask_token       decoder.mask_token
    heads.patches.decoder.position.table          decoder.decoder_pos_embed
    """
    + vit.layer_names("heads.patches.decoder.layers.*", "decoder.decoder_layers.*")
    # written so by transformers 5, which replaces "layers" in the longer name, too
    + vit.layer_names("heads.patches.decoder.layers.*", "decoder.decoder_encoder.layer.*")
    + """
    heads.patches.decoder.final_norm              decoder.decoder_norm
    heads.patches.out                             decoder.decoder_pred
    """,
    prefix="vit.",
)

_DECODER_KEYS = {
    "d_model": "decoder_hidden_size",
    "n_layers": "decoder_num_hidden_layers",
    "n_heads": "decoder_num_attention_heads",
    "d_ff": "decoder_intermediate_size",
}
CONFIG_KEYS = ConfigKeys(
    """
    head_dim                      fixed     null
    decoder_hidden_size           used      size       512
    decoder_num_hidden_layers     used      layers     8
    decoder_num_attention_heads   used      size@decoder_hidden_size  16
    decoder_intermediate_size     used      size       2048
    mask_ratio                    harmless  share      0.75
    norm_pix_loss                 used      flag       false
    """,
    vit.ENCODER_KEYS,
)
_AS_VIT = vit.config_mapping("vit_mae", BASE, {})


def _read(theirs: Mapping[str, Any]) -> MaskedAutoencoder:
    """Return the architecture of a configuration.

    Raises:
        ValueError: pictures are not squares, as their decoder needs.
    """
    a = cast(MaskedAutoencoder, _AS_VIT.to_architecture({**theirs, "encoder_stride": None}))
    height, width = a.image_size
    if height != width:
        raise ValueError(f"image_size = {theirs['image_size']} is not supported, only squares")
    sizes = {ours: theirs[key] for ours, key in _DECODER_KEYS.items()}
    return replace(
        a,
        mask_token=False,
        decoder=PatchDecoder(**sizes),
        normalize_targets=theirs["norm_pix_loss"],
    )


def _write(a: MaskedAutoencoder) -> dict[str, Any]:
    """Return the configuration of an architecture."""
    plain = _AS_VIT.from_architecture(a)
    kept = {k: v for k, v in plain.items() if k not in ("encoder_stride", "use_mask_token")}
    sizes = {key: getattr(a.decoder, ours) for ours, key in _DECODER_KEYS.items()}
    return kept | sizes | {"norm_pix_loss": a.normalize_targets, "mask_ratio": MASK_RATIO}


CONFIG_MAPPING = ConfigMapping(
    model_type="vit_mae",
    config_keys=CONFIG_KEYS,
    to_architecture=_read,
    from_architecture=_write,
    class_names={("patches",): "ViTMAEForPreTraining", (): "ViTMAEModel"},
    read_classification_head=_AS_VIT.read_classification_head,
)

MAE_BASE = replace(
    vit.VIT_BASE,
    name="vit-mae-base",
    family="mae",
    paper=PAPER,
    architecture=BASE,
    heads={"patches": MaskedAutoencoding()},
    extra_heads={},
    objective=OBJECTIVE,
    batch_tokens=4096 * 197,  # table 8
    learning_rate=2.4e-3,  # table 8: 1.5e-4 x batch / 256
    training_options={  # table 8
        "schedule": {"kind": "Cosine", "warmup": 40 / 800},
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.95], "weight_decay": 0.05},
    },
    n_parameters=111_907_840,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="facebook/vit-mae-base",
)
MAE_LARGE = replace(
    MAE_BASE,
    name="vit-mae-large",
    architecture=replace(BASE, d_model=1024, n_layers=24, n_heads=16, d_ff=4096),
    n_parameters=329_541_888,
    hub_id="facebook/vit-mae-large",
)
MAE_HUGE = replace(
    MAE_BASE,
    name="vit-mae-huge",
    architecture=replace(
        BASE, d_model=1280, n_layers=32, n_heads=16, d_ff=5120, patch_size=14,
        position=GridSinusoidal(16, 16),
    ),
    sequence_length=257,
    batch_tokens=4096 * 257,
    n_parameters=657_074_508,
    hub_id="facebook/vit-mae-huge",
)  # fmt: skip
MAE_MINI = replace(
    MAE_BASE,
    name="mae-mini",
    architecture=replace(
        BASE, d_model=192, n_layers=6, n_heads=3, d_ff=768, patch_size=4,
        position=GridSinusoidal(8, 8), initializer=NormalInit(0.05, truncated=True),
        decoder=PatchDecoder(d_model=96, n_layers=2, n_heads=3, d_ff=384),
    ),
    sequence_length=65,
    batch_tokens=64 * 65,
    learning_rate=1e-3,
    training_options=vit.VIT_MINI.training_options,
    n_parameters=2_945_040,
    hub_id=None,
    note="Not in the paper: the size of vit-mini, for pictures of 32 x 32, with a decoder of half "
    "the width.",
)  # fmt: skip

PRESETS: tuple[Published, ...] = (MAE_MINI, MAE_BASE, MAE_LARGE, MAE_HUGE)
