"""T5: Raffel et al. 2020, arXiv:1910.10683.

"Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import NO_BIASES, PRE_NORM
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import SEQ2SEQ_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, read_activation, require_key
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import FanInInit
from unmask.model.layers.feed_forward import RMSNorm
from unmask.model.positions.relative_bias import RelativePositionBias
from unmask.model.variants import AttentionVariant
from unmask.objectives.published import T5 as SPAN_CORRUPTION
from unmask.tokenizers.spec import T5 as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram
from unmask.zoo.encoder_decoders import transformer
from unmask.zoo.encoders.bert_family.bert import MINI_MULTI_LOSS_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    authors="Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li, Liu",
    year=2020,
    arxiv="1910.10683",
)
GLU_PAPER = Paper(
    title="GLU Variants Improve Transformer", authors="Shazeer", year=2020, arxiv="2002.05202"
)

ENCODER = Architecture(
    # section 2.2.3: 32,000 pieces; 100 sentinels, and padded to a multiple of 128
    vocab_size=32_128,
    d_model=512,
    n_layers=6,
    n_heads=8,
    d_ff=2048,
    head_dim=64,
    position=RelativePositionBias(n_buckets=32, max_distance=128),  # section 2.1
    norm=RMSNorm(eps=1e-6),  # section 2.1: no bias, no mean; epsilon from released code
    norm_placement=PRE_NORM,
    final_norm=True,
    activation="relu",
    biases=NO_BIASES,
    attention=AttentionVariant(scale=1.0),  # released code: folded into the initializer
    dropout=0.1,  # section 3.1.1
    attention_dropout=0.1,
    activation_dropout=0.1,
    final_dropout=0.1,
    initializer=FanInInit(),
)
HEADS = {"language": LanguageModeling(term="denoised", scale_hidden=True)}


def encoder_decoder(
    encoder: Architecture, n_decoder_layers: int | None = None
) -> EncoderDecoderArchitecture:
    """Return both stacks for `encoder`; the decoder has its own position table."""
    return transformer.encoder_decoder(
        encoder,
        n_layers=n_decoder_layers or encoder.n_layers,
        position=replace(encoder.position, causal=True),
    )


def _stack_names(side: str, feed_forward_index: int) -> str:
    """Return the lines of one stack, whose feed-forward sublayer is number `feed_forward_index`."""
    internal, external = f"backbone.{side}.layers.*", f"{side}.block.*.layer"
    lines = [f"{internal}.attention.{x} {external}.0.SelfAttention.{x}" for x in "qkvo"]
    lines += [f"{internal}.attention_norm.into {external}.0.layer_norm"]
    if side == "decoder":
        lines += [f"{internal}.cross.{x} {external}.1.EncDecAttention.{x}" for x in "qkvo"]
        lines += [f"{internal}.cross_norm.into {external}.1.layer_norm"]
    lines += [
        f"{internal}.feed_forward_norm.into {external}.{feed_forward_index}.layer_norm",
        f"{internal}.feed_forward.gate {external}.{feed_forward_index}.DenseReluDense.wi_0",
        f"{internal}.feed_forward.up {external}.{feed_forward_index}.DenseReluDense.wi_1"
        f" beside:{internal}.feed_forward.gate",
        f"{internal}.feed_forward.up {external}.{feed_forward_index}.DenseReluDense.wi",
        f"{internal}.feed_forward.down {external}.{feed_forward_index}.DenseReluDense.wo",
        f"backbone.{side}.final_norm {side}.final_layer_norm",
        f"backbone.{side}.position.table"
        f" {side}.block.0.layer.0.SelfAttention.relative_attention_bias",
        f"backbone.tokens {side}.embed_tokens tied",
    ]
    return "\n".join(lines)


_COMMON = """
    backbone.tokens      shared
    heads.language.out   lm_head
    heads.label.out      classification_head.out_proj
    backbone.tokens      lm_head   tied
    - decoder.block.0.layer.1.EncDecAttention.relative_attention_bias
"""
_TABLE = "\n".join((_COMMON, _stack_names("encoder", 1), _stack_names("decoder", 2)))


WEIGHT_NAMES = WeightNames(_TABLE)


def _read_config(config: Mapping[str, Any]) -> EncoderDecoderArchitecture:
    name = config.get("feed_forward_proj", "relu")
    gated = name.startswith("gated-")
    # "gated-gelu" means the tanh form there: the released Mesh TensorFlow code's gelu.
    plain = name.removeprefix("gated-")
    act = "gelu_tanh" if name == "gated-gelu" else read_activation(plain, "feed_forward_proj")
    # redundant keys, which take precedence there
    derived = "gelu_new" if name == "gated-gelu" else plain
    for key, value in (("is_gated_act", gated), ("dense_act_fn", derived)):
        if config.get(key, value) != value:
            raise ValueError(
                f"feed_forward_proj = {name!r} needs {key} = {value!r}, got {config[key]!r}"
            )
    rate = float(config.get("dropout_rate", 0.1))
    encoder = replace(
        ENCODER,
        vocab_size=require_key(config, "vocab_size"),
        d_model=require_key(config, "d_model"),
        n_layers=require_key(config, "num_layers"),
        n_heads=require_key(config, "num_heads"),
        d_ff=require_key(config, "d_ff"),
        head_dim=require_key(config, "d_kv"),
        position=_read_position(config),
        norm=RMSNorm(eps=config.get("layer_norm_epsilon", 1e-6)),
        activation=act,
        gated_feed_forward=gated,
        dropout=rate,
        attention_dropout=rate,
        activation_dropout=rate,
        final_dropout=rate,
    )
    return encoder_decoder(encoder, config.get("num_decoder_layers"))


def _read_position(config: Mapping[str, Any]) -> RelativePositionBias:
    """Read the relative position buckets, which must be valid for the decoder, too."""
    n_buckets = config.get("relative_attention_num_buckets", 32)
    max_distance = config.get("relative_attention_max_distance", 128)
    if n_buckets < 4 or max_distance <= n_buckets // 2:
        raise ValueError(
            "relative_attention_num_buckets must be at least 4, and "
            "relative_attention_max_distance above half of it, "
            f"got {n_buckets} and {max_distance}"
        )
    return RelativePositionBias(n_buckets=n_buckets, max_distance=max_distance)


def _write_config(a: EncoderDecoderArchitecture) -> dict[str, Any]:
    e = a.encoder
    position = e.position
    if not isinstance(position, RelativePositionBias):
        raise ValueError(
            f"T5's format has RelativePositionBias positions only, got {type(position).__name__}"
        )
    names = {
        ("relu", False): "relu",
        ("gelu_tanh", True): "gated-gelu",
        ("silu", True): "gated-silu",
    }
    if (e.activation, e.gated_feed_forward) not in names:
        raise ValueError(
            f"T5's format has no name for activation {e.activation}, gated={e.gated_feed_forward}"
        )
    return {
        "vocab_size": e.vocab_size,
        "d_model": e.d_model,
        "d_kv": e.d_head,
        "d_ff": e.d_ff,
        "num_layers": e.n_layers,
        "num_decoder_layers": a.decoder.n_layers,
        "num_heads": e.n_heads,
        "relative_attention_num_buckets": position.n_buckets,
        "relative_attention_max_distance": position.max_distance,
        "dropout_rate": e.dropout,
        "layer_norm_epsilon": e.norm.eps,
        "feed_forward_proj": names[e.activation, e.gated_feed_forward],
        "is_encoder_decoder": True,
    }


def _read_language_head(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the head scales: a key of new files, implied by tying in old ones."""
    if "scale_decoder_outputs" in config:
        return {"scale_hidden": bool(config["scale_decoder_outputs"])}
    return {"scale_hidden": config.get("tie_word_embeddings") is not False}


CONFIG_KEYS = ConfigKeys(
    """
    vocab_size                       used      size
    d_model                          used      size
    num_layers                       used      layers
    num_heads                        used      size
    d_kv                             used      size       64
    hidden_size                      alias     d_model
    num_hidden_layers                alias     num_layers
    num_attention_heads              alias     num_heads
    head_dim                         alias     d_kv
    num_decoder_layers               used      layers?    null
    d_ff                             used      size       2048
    relative_attention_num_buckets   used      size       32
    relative_attention_max_distance  used      size       128
    dropout_rate                     used      share      0.1
    layer_norm_epsilon               used      positive   1e-6
    initializer_factor               harmless  number
    feed_forward_proj                used      word       relu
    is_gated_act                     used      flag       -
    dense_act_fn                     used      word       -
    classifier_dropout               harmless  share
    tie_word_embeddings              used      flag       -
    scale_decoder_outputs            used      flag       -
    is_decoder                       fixed     false
    """,
    SEQ2SEQ_KEYS,
)
CONFIG_MAPPING = ConfigMapping(
    model_type="t5",
    config_keys=CONFIG_KEYS,
    ties_embeddings=lambda theirs: True,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={("language",): "T5ForConditionalGeneration", (): "T5Model"},
    read_language_head=_read_language_head,
)


def training_options(steps: int) -> dict[str, Any]:
    """Return the rest of the recipe (section 3.1.2): the rate is constant for 10,000 steps.

    As a share of the steps, so that a shorter run has the same schedule shape.
    """
    flat = {"kind": "InverseSquareRoot", "warmup": 10_000 / steps, "constant_warmup": True}
    # No gradient clipping: the paper has none, and the optimizer clips updates.
    return {
        "optimizer": {"kind": "Adafactor"},
        "schedule": flat,
        "steps": steps,
        "max_grad_norm": 0.0,
    }


BASELINE_TRAINING: Mapping[str, Any] = {
    "batch_tokens": 128 * 512,
    "training_options": training_options(2**19),
}
"""Training of section 3.1.2, for the comparisons of sections 3.2 to 3.6."""
_BASELINE = "The comparisons before section 3.7 are trained for 2**19 steps of 128 rows."

T5_SMALL = Published(
    name="t5-small",
    family="t5",
    paper=PAPER,
    architecture=encoder_decoder(ENCODER),
    heads=HEADS,
    classification_head=None,
    objective=SPAN_CORRUPTION,
    tokenizer=TokenizerSpec(Unigram(32_000), FRAME),
    sequence_length=512,  # section 3.1.2
    batch_tokens=2**11 * 512,  # section 3.7
    learning_rate=1e-2,  # section 3.1.2: 1 / sqrt(max(step, 10,000)), which is relative
    training_options=training_options(1_000_000),  # section 3.7
    n_parameters=60_506_624,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="google-t5/t5-small",
    note=f"The released weights are also trained on the paper's tasks. {_BASELINE}",
)


def _with_size(base: Published, name: str, parameters: int, **changes: int) -> Published:
    """Return another size (section 3.7)."""
    assert isinstance(base.architecture, EncoderDecoderArchitecture)
    encoder = replace(base.architecture.encoder, **changes)
    owner = str(base.hub_id).split("/")[0]
    return replace(
        base,
        name=name,
        architecture=encoder_decoder(encoder),
        n_parameters=parameters,
        hub_id=f"{owner}/{name}",
    )


T5_BASE = _with_size(
    T5_SMALL, "t5-base", 222_903_552, d_model=768, n_layers=12, n_heads=12, d_ff=3072
)
T5_LARGE = _with_size(
    T5_SMALL, "t5-large", 737_668_096, d_model=1024, n_layers=24, n_heads=16, d_ff=4096
)
T5_3B = _with_size(
    T5_SMALL, "t5-3b", 2_851_598_336,
    d_model=1024, n_layers=24, n_heads=32, d_ff=16_384, head_dim=128,
)  # fmt: skip
T5_11B = _with_size(
    T5_SMALL, "t5-11b", 11_307_321_344,
    d_model=1024, n_layers=24, n_heads=128, d_ff=65_536, head_dim=128,
)  # fmt: skip

V1_1_SMALL = replace(
    T5_SMALL,
    name="t5-v1_1-small",
    paper=GLU_PAPER,
    architecture=encoder_decoder(
        replace(
            ENCODER,
            n_layers=8,
            n_heads=6,
            d_ff=1024,
            activation="gelu_tanh",
            gated_feed_forward=True,
            dropout=0.0,
            attention_dropout=0.0,
            activation_dropout=0.0,
            final_dropout=0.0,
        )
    ),
    heads={"language": LanguageModeling(term="denoised", tie_embeddings=False)},
    n_parameters=76_961_152,
    hub_id="google/t5-v1_1-small",
    note="Released notes: GeGLU, no dropout in pretraining, untied output, C4 only; steps and "
    "batch, not given there, are T5's.",
)
V1_1_BASE = _with_size(
    V1_1_SMALL, "t5-v1_1-base", 247_577_856, d_model=768, n_layers=12, n_heads=12, d_ff=2048
)
V1_1_LARGE = _with_size(
    V1_1_SMALL, "t5-v1_1-large", 783_150_080, d_model=1024, n_layers=24, n_heads=16, d_ff=2816
)
V1_1_XL = _with_size(
    V1_1_SMALL, "t5-v1_1-xl", 2_849_757_184, d_model=2048, n_layers=24, n_heads=32, d_ff=5120
)
V1_1_XXL = _with_size(
    V1_1_SMALL, "t5-v1_1-xxl", 11_135_332_352, d_model=4096, n_layers=24, n_heads=64, d_ff=10_240
)

MINI_OPTIONS: Mapping[str, Any] = {**MINI_MULTI_LOSS_TRAINING, "optimizer": {"kind": "Adafactor"}}
"""Not in the paper: the fastest settings for small models (docs/log.md, 2026-11-23)."""

T5_MINI = replace(
    _with_size(
        T5_SMALL,
        "t5-mini",
        9_468_672,
        d_model=256,
        n_layers=4,
        n_heads=4,
        d_ff=1024,
        vocab_size=8_292,
    ),
    tokenizer=TokenizerSpec(Unigram(8_192), FRAME),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=2e-2,
    training_options=MINI_OPTIONS,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of BERT-mini.",
)
_V1_1 = _with_size(
    V1_1_SMALL, "t5-v1_1-mini", 11593472,
    d_model=256, n_layers=4, n_heads=4, d_ff=683, vocab_size=8_292,
)  # fmt: skip
V1_1_MINI = replace(
    T5_MINI,
    name="t5-v1_1-mini",
    paper=GLU_PAPER,
    architecture=_V1_1.architecture,
    heads=V1_1_SMALL.heads,
    n_parameters=11_593_472,
    note=f"{T5_MINI.note} GeGLU with as many weights as T5's feed-forward has, no dropout, an "
    "untied output embeddings.",
)

PRESETS = (
    T5_MINI, T5_SMALL, T5_BASE, T5_LARGE, T5_3B, T5_11B,
    V1_1_MINI, V1_1_SMALL, V1_1_BASE, V1_1_LARGE, V1_1_XL, V1_1_XXL,
)  # fmt: skip
