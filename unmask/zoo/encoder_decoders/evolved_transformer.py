"""The Evolved Transformer: So et al. 2019, "The Evolved Transformer", arXiv:1901.11117.

The Transformer of 2017 with blocks found by evolutionary search, as in the released code
(tensor2tensor, `evolved_transformer`).
"""

from dataclasses import replace

from unmask.model.architecture import NormSlot
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.evolved.parts import (
    EvolvedDecoderConvolutions,
    EvolvedEncoderConvolutions,
)
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.sinusoidal import Sinusoidal
from unmask.model.variants import LayerVariants
from unmask.tokenizers.spec import T5_WITHOUT_SENTINELS as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import SentencePieceBPE
from unmask.zoo.encoder_decoders import transformer
from unmask.zoo.preset import Paper

PAPER = Paper(
    title="The Evolved Transformer", authors="So, Liang, Le", year=2019, arxiv="1901.11117"
)

_DECODER_NORMS: frozenset[NormSlot] = frozenset({"into", "inside_feed_forward"})
ENCODER = Architecture(
    vocab_size=32_768,  # released code, as what follows: 2 to the power of 15
    d_model=512,
    n_layers=2 * 3,
    n_heads=8,
    d_ff=2048,
    layers=LayerVariants(types=(EvolvedEncoderConvolutions(), None)),  # figure 3
    scale_embedding=True,
    position=Sinusoidal(256),
    norm=LayerNorm(eps=1e-6),
    norm_placement=frozenset({"into"}),
    final_norm=True,
    activation="relu",  # figure 3
    biases=frozenset({"feed_forward"}),
    dropout=0.1,
    attention_dropout=0.1,
    activation_dropout=0.1,
    initializer=transformer.ENCODER.initializer,
)


def encoder_decoder(encoder: Architecture, n_decoder_blocks: int) -> EncoderDecoderArchitecture:
    """Return both stacks for `encoder`; a block is two layers."""
    decoder = replace(
        encoder,
        n_layers=2 * n_decoder_blocks,
        layers=LayerVariants(types=(EvolvedDecoderConvolutions(), None)),
        activation="silu",  # figure 3: swish
        norm_placement=_DECODER_NORMS,  # released code
        causal=True,
        cross_attention=True,
    )
    return EncoderDecoderArchitecture(encoder=encoder, decoder=decoder)


DIFFERENCES_NOTE = (
    "A block of the paper is two layers here. Norms, widths and dropout are those of the released "
    "code. Sinusoids are spaced as in Vaswani et al., there slightly wider. "
)
WARMUP = 8_000
"""Released code, `transformer_base_v2`, as what follows, of `transformer_base_v3` and
`add_evolved_transformer_hparams`: the rate is twice that of Vaswani et al. at the end of warm-up,
then decays as a cosine."""

EVOLVED_TRANSFORMER_BASE = replace(
    transformer.TRANSFORMER_BASE,
    name="evolved-transformer-base",
    family="evolved-transformer",
    paper=PAPER,
    architecture=encoder_decoder(ENCODER, 4),
    tokenizer=TokenizerSpec(SentencePieceBPE(32_768), FRAME),
    learning_rate=2 * transformer.peak_learning_rate(512, WARMUP),
    training_options={
        **transformer.TRANSFORMER_BASE.training_options,
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.997], "eps": 1e-9, "weight_decay": 0.0},
        "schedule": {"kind": "Cosine", "warmup": WARMUP, "final_fraction": 0.0},
    },
    n_parameters=63_798_272,
    weight_names=NATIVE_WEIGHT_NAMES,
    config_mapping=native_config_mapping("evolved-transformer", EncoderDecoderArchitecture),
    note=transformer.PAIR_DATA_NOTE
    + DIFFERENCES_NOTE
    + "The paper, whose tables were not available, uses Adafactor; optimizer, rate and warm-up "
    "here are the released code's, with Adam; steps and batch are those of Vaswani et al.",
)
EVOLVED_TRANSFORMER_BIG = replace(
    EVOLVED_TRANSFORMER_BASE,
    name="evolved-transformer-big",
    architecture=encoder_decoder(
        replace(  # released code, `transformer_big`
            ENCODER, d_model=1024, n_heads=16, d_ff=4096, dropout=0.3, activation_dropout=0.3
        ),
        4,
    ),
    learning_rate=2 * transformer.peak_learning_rate(1024, WARMUP),
    training_options={**EVOLVED_TRANSFORMER_BASE.training_options, "steps": 300_000},
    n_parameters=221_181_952,
)  # fmt: skip
_MINI = transformer.TRANSFORMER_MINI
EVOLVED_TRANSFORMER_MINI = replace(
    EVOLVED_TRANSFORMER_BASE,
    name="evolved-transformer-mini",
    architecture=encoder_decoder(
        replace(
            ENCODER, vocab_size=8_192, d_model=256, n_layers=2 * 2, n_heads=4, d_ff=1024,
            position=Sinusoidal(512), dropout=0.3, activation_dropout=0.3,
        ),
        2,
    ),
    tokenizer=_MINI.tokenizer,
    sequence_length=_MINI.sequence_length,
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options=_MINI.training_options,
    n_parameters=8_716_544,
    note="Not in the paper: for tens of thousands of pairs and two CPU cores, with the width of "
    "transformer-mini and two blocks a stack. " + transformer.PAIR_DATA_NOTE + DIFFERENCES_NOTE,
)  # fmt: skip

PRESETS = (EVOLVED_TRANSFORMER_MINI, EVOLVED_TRANSFORMER_BASE, EVOLVED_TRANSFORMER_BIG)
