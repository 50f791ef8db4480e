"""The Transformer: Vaswani et al. 2017, arXiv:1706.03762.

"Attention Is All You Need". In the layout of Marian, whose networks are of this kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import NormSlot
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import SEQ2SEQ_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import (
    ConfigMapping,
    read_activation,
    require_key,
    write_activation,
)
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import GlorotInit, NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.scheme import PositionScheme
from unmask.model.positions.sinusoidal import Sinusoidal
from unmask.objectives.denoising.denoise import DenoisingObjective
from unmask.objectives.denoising.noise import TokenDeletion
from unmask.tokenizers.spec import T5_WITHOUT_SENTINELS as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import SentencePieceBPE
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING
from unmask.zoo.preset import FinetuningDefaults, Paper, Published

PAPER = Paper(
    title="Attention Is All You Need",
    authors="Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin",
    year=2017,
    arxiv="1706.03762",
)

ENCODER = Architecture(
    vocab_size=37_000,  # section 5.1, English and German together: about 37,000
    d_model=512,  # table 3, base, as the next three
    n_layers=6,
    n_heads=8,
    d_ff=2048,
    scale_embedding=True,  # section 3.4
    position=Sinusoidal(1024),  # section 3.5; the length is Marian's
    norm=LayerNorm(eps=1e-5),  # section 3.1; epsilon of Marian in transformers
    activation="relu",  # section 3.3
    dropout=0.1,  # section 5.4, after each sublayer and on the sum of embeddings and positions
    attention_dropout=0.0,
    initializer=GlorotInit(),
)
SMOOTHING = 0.1  # section 5.4
HEADS = {
    "language": LanguageModeling(term="denoised", label_smoothing=SMOOTHING)
}  # section 3.4: one table


def encoder_decoder(encoder: Architecture, **changes: Any) -> EncoderDecoderArchitecture:
    """Return both stacks for `encoder`.

    The decoder is the same, with causal attention, cross-attention and these changes.
    """
    decoder = replace(encoder, causal=True, cross_attention=True, **changes)
    return EncoderDecoderArchitecture(encoder=encoder, decoder=decoder)


def _attention_names(internal: str, config: str) -> list[str]:
    return [f"{internal}.{x} {config}.{'out' if x == 'o' else x}_proj" for x in "qkvo"]


def weight_names(
    norm_slot: NormSlot, side_lines: Sequence[str], common_lines: str = ""
) -> WeightNames:
    """Return the name table of families like Marian and BART.

    Args:
        norm_slot: norm placement of sublayers.
        side_lines: further lines of a stack, with `{side}` for its name.
        common_lines: lines for both stacks.
    """
    lines = [_COMMON, common_lines]
    for side in ("encoder", "decoder"):
        internal, external = f"backbone.{side}.layers.*", f"model.{side}.layers.*"
        lines += _attention_names(f"{internal}.attention", f"{external}.self_attn")
        lines += [f"{internal}.attention_norm.{norm_slot} {external}.self_attn_layer_norm"]
        if side == "decoder":
            lines += _attention_names(f"{internal}.cross", f"{external}.encoder_attn")
            lines += [f"{internal}.cross_norm.{norm_slot} {external}.encoder_attn_layer_norm"]
        lines += [
            f"{internal}.feed_forward.up {external}.fc1",
            f"{internal}.feed_forward.down {external}.fc2",
            f"{internal}.feed_forward_norm.{norm_slot} {external}.final_layer_norm",
            f"backbone.tokens model.{side}.embed_tokens tied",
            *(line.format(side=side) for line in side_lines),
        ]
    return WeightNames("\n".join(lines), prefix="model.")


_COMMON = """
    backbone.tokens      model.shared
    heads.language.out   lm_head
    backbone.tokens      lm_head             tied
    heads.language.bias  final_logits_bias   row
    backbone.tokens      final_logits_bias   zeros
"""
WEIGHT_NAMES = weight_names("after", ["- model.{side}.embed_positions"])

_TWO_STACK_NAMES = ("vocab_size", "d_model", "position", "scale_embedding", "activation")


def read_encoder_decoder(
    config: Mapping[str, Any], base: Architecture, make_position: Callable[[int], PositionScheme]
) -> EncoderDecoderArchitecture:
    """Return both stacks of a configuration of families like Marian and BART.

    Args:
        config: the configuration.
        base: default values of the encoder.
        make_position: returns the position scheme for a length.
    """

    def stack(side: str) -> Architecture:
        return replace(
            base,
            vocab_size=require_key(config, "vocab_size"),
            d_model=require_key(config, "d_model"),
            n_layers=require_key(config, f"{side}_layers"),
            n_heads=require_key(config, f"{side}_attention_heads"),
            d_ff=require_key(config, f"{side}_ffn_dim"),
            position=make_position(config.get("max_position_embeddings", 1024)),
            scale_embedding=config.get("scale_embedding", False),
            activation=read_activation(
                config.get("activation_function", "gelu"), "activation_function"
            ),
            dropout=float(config.get("dropout", 0.1)),
            attention_dropout=float(config.get("attention_dropout", 0.0)),
            activation_dropout=float(config.get("activation_dropout", 0.0)),
            layer_dropout=float(config.get(f"{side}_layerdrop", 0.0)),
            initializer=NormalInit(config.get("init_std", 0.02)),
        )

    decoder = replace(stack("decoder"), causal=True, cross_attention=True)
    return EncoderDecoderArchitecture(encoder=stack("encoder"), decoder=decoder)


def write_encoder_decoder(
    a: EncoderDecoderArchitecture, family: str, position_description: str, length: int | None
) -> dict[str, Any]:
    """Return the configuration for `read_encoder_decoder`.

    Args:
        a: the two stacks.
        family: the family of the format.
        position_description: its position scheme, for messages.
        length: number of positions; None: the scheme is another one.

    Raises:
        ValueError: the stacks differ where the format has one value, or in position scheme.
    """
    e = a.encoder
    differing = [name for name in _TWO_STACK_NAMES if getattr(e, name) != getattr(a.decoder, name)]
    if differing or length is None:
        raise ValueError(
            f"{family}'s format has one {', '.join(_TWO_STACK_NAMES)} for encoder and decoder, and "
            f"{position_description}; got {differing or e.position}"
        )
    sides = {
        f"{side}_{key}": value
        for side, stack in (("encoder", e), ("decoder", a.decoder))
        for key, value in (
            ("layers", stack.n_layers),
            ("attention_heads", stack.n_heads),
            ("ffn_dim", stack.d_ff),
            ("layerdrop", stack.layer_dropout),
        )
    }
    return {
        "vocab_size": e.vocab_size,
        "d_model": e.d_model,
        **sides,
        "max_position_embeddings": length,
        "scale_embedding": e.scale_embedding,
        "activation_function": write_activation(e.activation),
        "dropout": e.dropout,
        "attention_dropout": e.attention_dropout,
        "activation_dropout": e.activation_dropout,
        "init_std": e.initializer.std if isinstance(e.initializer, NormalInit) else e.d_model**-0.5,
        "is_encoder_decoder": True,
    }


def _read_config(config: Mapping[str, Any]) -> EncoderDecoderArchitecture:
    return read_encoder_decoder(config, ENCODER, Sinusoidal)


def _write_config(a: EncoderDecoderArchitecture) -> dict[str, Any]:
    position = a.encoder.position
    length = (
        position.max_positions
        if isinstance(position, Sinusoidal) and position.layout == "halves"
        else None
    )
    return {
        **write_encoder_decoder(a, "Marian", "sines before cosines for places", length),
        "decoder_vocab_size": a.encoder.vocab_size,
        "share_encoder_decoder_embeddings": True,
        # Special ids, unless a tokenizer has others: Marian's defaults are for 58,101 tokens.
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "forced_eos_token_id": None,
    }


SHARED_CONFIG_KEYS = ConfigKeys(
    """
    vocab_size                used      size
    d_model                   used      size
    hidden_size               alias     d_model
    encoder_layers            used      layers
    decoder_layers            used      layers
    encoder_attention_heads   used      size@d_model
    decoder_attention_heads   used      size@d_model
    num_hidden_layers         alias     encoder_layers
    num_attention_heads       alias     encoder_attention_heads
    encoder_ffn_dim           used      size       4096
    decoder_ffn_dim           used      size       4096
    max_position_embeddings   used      size       1024
    encoder_layerdrop         used      share      0.0
    decoder_layerdrop         used      share      0.0
    activation_function       used      word       gelu
    dropout                   used      share      0.1
    attention_dropout         used      share      0.0
    activation_dropout        used      share      0.0
    init_std                  used      number     0.02
    scale_embedding           used      flag       false
    tie_word_embeddings       used      flag       true
    """,
    SEQ2SEQ_KEYS,
)
"""Keys of families like Marian and BART."""
CONFIG_KEYS = ConfigKeys(
    """
    decoder_vocab_size                fixed     @vocab_size|null
    share_encoder_decoder_embeddings  fixed     true
    normalize_before                  fixed     false
    normalize_embedding               fixed     false
    add_final_layer_norm              fixed     false
    static_position_embeddings        fixed     true
    """,
    SHARED_CONFIG_KEYS,
)
CONFIG_MAPPING = ConfigMapping(
    model_type="marian",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={("language",): "MarianMTModel", (): "MarianMTModel"},
)


def peak_learning_rate(d_model: int, warmup: int) -> float:
    """Return the rate at the end of the warm-up (section 5.3, equation 3)."""
    return (d_model * warmup) ** -0.5


def _training(steps: int) -> dict[str, Any]:
    return {
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.98], "eps": 1e-9, "weight_decay": 0.0},
        "schedule": {"kind": "InverseSquareRoot", "warmup": 4000},  # section 5.3, as the line above
        "max_grad_norm": 0.0,  # released code
        "steps": steps,
    }


PAIR_DATA_NOTE = (
    "The paper trains on pairs only, which is fine-tuning from random weights here, and its "
    "tokens are byte pairs within words; here pieces include spaces, so that the output "
    "is plain text. Pretraining restores deleted tokens, which is not in the "
    "paper. "
)
_DIFFERENCES_NOTE = (
    "Sines precede cosines, as in Marian (the paper interleaves them: `Sinusoidal(order = "
    "\"pairs\")`, which Marian's format cannot express). The paper's beams divide by "
    "((5 + n) / 6) to the power of 0.6, here by n to the power of a penalty, as in transformers. "
)

TRANSFORMER_BASE = Published(
    name="transformer-base",
    family="transformer",
    paper=PAPER,
    architecture=encoder_decoder(ENCODER),
    heads=HEADS,
    classification_head=None,
    finetuning=FinetuningDefaults(schedule="inverse_square_root", betas=(0.9, 0.98)),  # section 5.3
    objective=DenoisingObjective((TokenDeletion(),)),
    tokenizer=TokenizerSpec(SentencePieceBPE(37_000), FRAME),  # section 5.1
    sequence_length=256,  # released code
    batch_tokens=25_000,  # section 5.1, of each side
    learning_rate=peak_learning_rate(512, 4000),
    training_options=_training(100_000),  # section 5.2
    n_parameters=63_082_496,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    note=PAIR_DATA_NOTE + _DIFFERENCES_NOTE + "The paper counts 65 million parameters.",
)
TRANSFORMER_BIG = replace(
    TRANSFORMER_BASE,
    name="transformer-big",
    architecture=encoder_decoder(
        replace(ENCODER, d_model=1024, n_heads=16, d_ff=4096, dropout=0.3)  # table 3
    ),
    learning_rate=peak_learning_rate(1024, 4000),
    training_options=_training(300_000),  # section 5.2
    n_parameters=214_245_376,
    note=PAIR_DATA_NOTE
    + _DIFFERENCES_NOTE
    + "The paper counts 213 million parameters, and has a dropout of 0.1 for French.",
)
TRANSFORMER_MINI = replace(
    TRANSFORMER_BASE,
    name="transformer-mini",
    architecture=encoder_decoder(
        replace(
            ENCODER, vocab_size=8_192, d_model=256, n_layers=3, n_heads=4, d_ff=1024, dropout=0.3,
            position=Sinusoidal(512),
        )
    ),
    tokenizer=TokenizerSpec(SentencePieceBPE(8_192), FRAME),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options=MINI_TRAINING,
    n_parameters=7_626_752,
    note="Not in the paper: for tens of thousands of pairs and two CPU cores. "
    + PAIR_DATA_NOTE
    + _DIFFERENCES_NOTE,
)  # fmt: skip
TRANSFORMER_TINY = replace(
    TRANSFORMER_MINI,
    name="transformer-tiny",
    architecture=encoder_decoder(
        replace(
            ENCODER, vocab_size=8_192, d_model=128, n_layers=3, n_heads=4, d_ff=512,
            position=Sinusoidal(512),
        )
    ),
    n_parameters=2_437_120,
    note="Not in the paper: for a hundred thousand pairs with a small vocabulary, and "
    "minutes on one CPU core (`examples/`). " + PAIR_DATA_NOTE + _DIFFERENCES_NOTE,
)  # fmt: skip

PRESETS = (TRANSFORMER_TINY, TRANSFORMER_MINI, TRANSFORMER_BASE, TRANSFORMER_BIG)
