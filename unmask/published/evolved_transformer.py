"""The Evolved Transformer: So et al. 2019, "The Evolved Transformer", arXiv:1901.11117.

What evolution made of the Transformer of 2017 by mutating its blocks; in the form of the released
code (tensor2tensor, `evolved_transformer`).
"""

from dataclasses import replace

from unmask.model.architecture import Architecture, EncoderDecoderArchitecture, Slot
from unmask.model.evolved import AttendedConvolutions, GatedConvolutions
from unmask.model.names import OWN_NAMES, own_fields
from unmask.model.parts import LayerNorm
from unmask.model.positions import Sinusoidal
from unmask.published import transformer
from unmask.published.card import Paper
from unmask.tokens.vocabulary import PAIRS as FRAME
from unmask.tokens.vocabulary import SentencePieceBPE, TokenizerSpec

PAPER = Paper(
    title="The Evolved Transformer", authors="So, Liang, Le", year=2019, arxiv="1901.11117"
)

_DECODER_NORMS: frozenset[Slot] = frozenset({"into", "inside_feed_forward"})
ENCODER = Architecture(
    vocab_size=32_768,  # released code, as what follows: 2 to the power of 15
    d_model=512,
    n_layers=2 * 3,
    n_heads=8,
    d_ff=2048,
    kinds=(GatedConvolutions(), None),  # figure 3
    tokens_scaled=True,
    position=Sinusoidal(256),
    norm=LayerNorm(eps=1e-6),
    norm_at=frozenset({"into"}),
    norm_final=True,
    activation="relu",  # figure 3
    bias=frozenset({"feed_forward"}),
    dropout=0.1,
    attention_dropout=0.1,
    feed_forward_dropout=0.1,
    initialize=transformer.ENCODER.initialize,
)


def both(encoder: Architecture, n_decoder_blocks: int) -> EncoderDecoderArchitecture:
    """Return the two stacks of which `encoder` is the first; a block is two layers."""
    decoder = replace(
        encoder,
        n_layers=2 * n_decoder_blocks,
        kinds=(AttendedConvolutions(), None),
        activation="silu",  # figure 3: swish
        norm_at=_DECODER_NORMS,  # released code
        causal=True,
        cross=True,
    )
    return EncoderDecoderArchitecture(encoder=encoder, decoder=decoder)


UNLIKE = (
    "A block of the paper is two layers here. Norms, widths and dropout are those of the released "
    "code, which was read. Sines are spaced as in Vaswani et al., there a little wider. "
)
WARMUP = 8_000
"""Released code, `transformer_base_v2`, as what follows, of `transformer_base_v3` and
`add_evolved_transformer_hparams`: the rate is twice that of Vaswani et al. at the warm-up's end,
then falls as a cosine."""

EVOLVED_TRANSFORMER_BASE = replace(
    transformer.TRANSFORMER_BASE,
    name="evolved-transformer-base",
    family="evolved-transformer",
    paper=PAPER,
    architecture=both(ENCODER, 4),
    tokenizer=TokenizerSpec(SentencePieceBPE(32_768), FRAME),
    rate=2 * transformer.peak(512, WARMUP),
    training={
        **transformer.TRANSFORMER_BASE.training,
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.997], "eps": 1e-9, "weight_decay": 0.0},
        "schedule": {"kind": "Cosine", "warmup": WARMUP, "floor": 0.0},
    },
    parameters=63_798_272,
    names=OWN_NAMES,
    fields=own_fields("evolved-transformer", EncoderDecoderArchitecture),
    note=transformer.OF_PAIRS
    + UNLIKE
    + "The paper, whose tables were not seen, trains with Adafactor; optimizer, rate and warm-up "
    "here are the released code's, which has Adam, steps and batch those of Vaswani et al.",
)
EVOLVED_TRANSFORMER_BIG = replace(
    EVOLVED_TRANSFORMER_BASE,
    name="evolved-transformer-big",
    architecture=both(
        replace(  # released code, `transformer_big`
            ENCODER, d_model=1024, n_heads=16, d_ff=4096, dropout=0.3, feed_forward_dropout=0.3
        ),
        4,
    ),
    rate=2 * transformer.peak(1024, WARMUP),
    training={**EVOLVED_TRANSFORMER_BASE.training, "steps": 300_000},
    parameters=221_181_952,
)  # fmt: skip
_MINI = transformer.TRANSFORMER_MINI
EVOLVED_TRANSFORMER_MINI = replace(
    EVOLVED_TRANSFORMER_BASE,
    name="evolved-transformer-mini",
    architecture=both(
        replace(
            ENCODER, vocab_size=8_192, d_model=256, n_layers=2 * 2, n_heads=4, d_ff=1024,
            position=Sinusoidal(512), dropout=0.3, feed_forward_dropout=0.3,
        ),
        2,
    ),
    tokenizer=_MINI.tokenizer,
    length=_MINI.length,
    batch_tokens=_MINI.batch_tokens,
    rate=_MINI.rate,
    training=_MINI.training,
    parameters=8_716_544,
    note="Not in the paper: for tens of thousands of pairs and two CPU cores, with the width of "
    "transformer-mini and two blocks a stack. " + transformer.OF_PAIRS + UNLIKE,
)  # fmt: skip

CARDS = (EVOLVED_TRANSFORMER_MINI, EVOLVED_TRANSFORMER_BASE, EVOLVED_TRANSFORMER_BIG)
