"""The Transformer: Vaswani et al. 2017, arXiv:1706.03762.

"Attention Is All You Need". In the layout of Marian, whose networks are of this kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unmask.heads.language import Language
from unmask.hiding.denoise import Denoise
from unmask.hiding.noise import TokenDeletion
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture, Slot
from unmask.model.initialize import Glorot, Normal
from unmask.model.keys import SEQ2SEQ, Keys
from unmask.model.names import Fields, Names, activation, need, their_activation
from unmask.model.parts import LayerNorm
from unmask.model.positions import Position, Sinusoidal
from unmask.published.bert import SMALL_SCALE
from unmask.published.card import FineTuning, Paper, Published
from unmask.tokens.vocabulary import PAIRS as FRAME
from unmask.tokens.vocabulary import SentencePieceBPE, TokenizerSpec

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
    tokens_scaled=True,  # section 3.4
    position=Sinusoidal(1024),  # section 3.5; the length is Marian's
    norm=LayerNorm(eps=1e-5),  # section 3.1; epsilon of Marian in transformers
    activation="relu",  # section 3.3
    dropout=0.1,  # section 5.4, behind each sublayer and on the sum of tokens and places
    attention_dropout=0.0,
    initialize=Glorot(),
)
SMOOTHING = 0.1  # section 5.4
HEADS = {"language": Language(term="denoised", smoothing=SMOOTHING)}  # section 3.4: one table


def both(encoder: Architecture, **changes: Any) -> EncoderDecoderArchitecture:
    """Return the two stacks of which `encoder` is the first.

    The decoder is the same but causal, reads the encoder, and has these changes.
    """
    decoder = replace(encoder, causal=True, cross=True, **changes)
    return EncoderDecoderArchitecture(encoder=encoder, decoder=decoder)


def _attention(ours: str, theirs: str) -> list[str]:
    return [f"{ours}.{x} {theirs}.{'out' if x == 'o' else x}_proj" for x in "qkvo"]


def names(slot: Slot, side_lines: Sequence[str], more: str = "") -> Names:
    """Return the table of names of Marian's and BART's kin.

    Args:
        slot: where the norms of sublayers stand.
        side_lines: what else a stack has: lines in which `{side}` is the name of the stack.
        more: lines of what both stacks have.
    """
    lines = [_COMMON, more]
    for side in ("encoder", "decoder"):
        ours, theirs = f"backbone.{side}.layers.*", f"model.{side}.layers.*"
        lines += _attention(f"{ours}.attention", f"{theirs}.self_attn")
        lines += [f"{ours}.attention_norm.{slot} {theirs}.self_attn_layer_norm"]
        if side == "decoder":
            lines += _attention(f"{ours}.cross", f"{theirs}.encoder_attn")
            lines += [f"{ours}.cross_norm.{slot} {theirs}.encoder_attn_layer_norm"]
        lines += [
            f"{ours}.feed_forward.up {theirs}.fc1",
            f"{ours}.feed_forward.down {theirs}.fc2",
            f"{ours}.feed_forward_norm.{slot} {theirs}.final_layer_norm",
            f"backbone.tokens model.{side}.embed_tokens tied",
            *(line.format(side=side) for line in side_lines),
        ]
    return Names("\n".join(lines), prefix="model.")


_COMMON = """
    backbone.tokens      model.shared
    heads.language.out   lm_head
    backbone.tokens      lm_head             tied
    heads.language.bias  final_logits_bias   row
    backbone.tokens      final_logits_bias   zeros
"""
NAMES = names("after", ["- model.{side}.embed_positions"])

_OF_BOTH = ("vocab_size", "d_model", "position", "tokens_scaled", "activation")


def read_both(
    theirs: Mapping[str, Any], base: Architecture, place: Callable[[int], Position]
) -> EncoderDecoderArchitecture:
    """Return the two stacks that a configuration of Marian's and BART's kin says.

    Args:
        theirs: it.
        base: the encoder, but for what is read.
        place: gives the places of so many tokens.
    """

    def stack(side: str) -> Architecture:
        return replace(
            base,
            vocab_size=need(theirs, "vocab_size"),
            d_model=need(theirs, "d_model"),
            n_layers=need(theirs, f"{side}_layers"),
            n_heads=need(theirs, f"{side}_attention_heads"),
            d_ff=need(theirs, f"{side}_ffn_dim"),
            position=place(theirs.get("max_position_embeddings", 1024)),
            tokens_scaled=theirs.get("scale_embedding", False),
            activation=activation(theirs.get("activation_function", "gelu"), "activation_function"),
            dropout=float(theirs.get("dropout", 0.1)),
            attention_dropout=float(theirs.get("attention_dropout", 0.0)),
            feed_forward_dropout=float(theirs.get("activation_dropout", 0.0)),
            layer_dropout=float(theirs.get(f"{side}_layerdrop", 0.0)),
            initialize=Normal(theirs.get("init_std", 0.02)),
        )

    decoder = replace(stack("decoder"), causal=True, cross=True)
    return EncoderDecoderArchitecture(encoder=stack("encoder"), decoder=decoder)


def write_both(
    a: EncoderDecoderArchitecture, family: str, places: str, length: int | None
) -> dict[str, Any]:
    """Return the configuration that `read_both` reads.

    Args:
        a: the two stacks.
        family: whose format it is.
        places: the places that it has, in words.
        length: how many of those these are; None: they are others.

    Raises:
        ValueError: the stacks differ where the format has one value, or their places do not fit.
    """
    e = a.encoder
    other = [name for name in _OF_BOTH if getattr(e, name) != getattr(a.decoder, name)]
    if other or length is None:
        raise ValueError(
            f"{family}'s format has one {', '.join(_OF_BOTH)} for encoder and decoder, and "
            f"{places}; got {other or e.position}"
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
        "scale_embedding": e.tokens_scaled,
        "activation_function": their_activation(e.activation),
        "dropout": e.dropout,
        "attention_dropout": e.attention_dropout,
        "activation_dropout": e.feed_forward_dropout,
        "init_std": e.initialize.std if isinstance(e.initialize, Normal) else e.d_model**-0.5,
        "is_encoder_decoder": True,
    }


def _read(theirs: Mapping[str, Any]) -> EncoderDecoderArchitecture:
    return read_both(theirs, ENCODER, Sinusoidal)


def _write(a: EncoderDecoderArchitecture) -> dict[str, Any]:
    places = a.encoder.position
    length = places.length if isinstance(places, Sinusoidal) and places.order == "halves" else None
    return {
        **write_both(a, "Marian", "sines before cosines for places", length),
        "decoder_vocab_size": a.encoder.vocab_size,
        "share_encoder_decoder_embeddings": True,
        # Ids of the frame, unless a tokenizer says others: Marian's own are of 58,101 tokens.
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "forced_eos_token_id": None,
    }


KIN = Keys(
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
    SEQ2SEQ,
)
"""Of Marian's and BART's kin."""
KEYS = Keys(
    """
    decoder_vocab_size                fixed     @vocab_size|null
    share_encoder_decoder_embeddings  fixed     true
    normalize_before                  fixed     false
    normalize_embedding               fixed     false
    add_final_layer_norm              fixed     false
    static_position_embeddings        fixed     true
    """,
    KIN,
)
FIELDS = Fields(
    model_type="marian",
    keys=KEYS,
    read=_read,
    write=_write,
    classes={("language",): "MarianMTModel", (): "MarianMTModel"},
)


def peak(d_model: int, warmup: int) -> float:
    """Return the rate at the end of the warm-up (section 5.3, equation 3)."""
    return (d_model * warmup) ** -0.5


def _training(steps: int) -> dict[str, Any]:
    return {
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.98], "eps": 1e-9, "weight_decay": 0.0},
        "schedule": {"kind": "InverseSquareRoot", "warmup": 4000},  # section 5.3, as the line above
        "clip": 0.0,  # released code
        "steps": steps,
    }


OF_PAIRS = (
    "The paper learns pairs alone, which is fine-tuning from random weights here, and its token "
    "vectors are those of words cut by byte pairs; here pieces hold the spaces, so that what is "
    "said is plain text. Pretraining restores a text of which tokens are gone, which is not in the "
    "paper. "
)
_UNLIKE = (
    "Sines stand before cosines, as in Marian (the paper has them in turn: `Sinusoidal(order = "
    '"pairs")`, which Marian has no word for). The paper\'s beams divide by ((5 + n) / 6) to the '
    "power of 0.6, here by n to the power of a penalty, as in transformers. "
)

TRANSFORMER_BASE = Published(
    name="transformer-base",
    family="transformer",
    paper=PAPER,
    architecture=both(ENCODER),
    heads=HEADS,
    labels=None,
    finetuning=FineTuning(schedule="inverse_square_root", betas=(0.9, 0.98)),  # section 5.3
    objective=Denoise((TokenDeletion(),)),
    tokenizer=TokenizerSpec(SentencePieceBPE(37_000), FRAME),  # section 5.1
    length=256,  # released code
    batch_tokens=25_000,  # section 5.1, of each side
    rate=peak(512, 4000),
    training=_training(100_000),  # section 5.2
    parameters=63_082_496,
    names=NAMES,
    fields=FIELDS,
    note=OF_PAIRS + _UNLIKE + "The paper counts 65 million parameters.",
)
TRANSFORMER_BIG = replace(
    TRANSFORMER_BASE,
    name="transformer-big",
    architecture=both(
        replace(ENCODER, d_model=1024, n_heads=16, d_ff=4096, dropout=0.3)  # table 3
    ),
    rate=peak(1024, 4000),
    training=_training(300_000),  # section 5.2
    parameters=214_245_376,
    note=OF_PAIRS
    + _UNLIKE
    + "The paper counts 213 million parameters, and has a dropout of 0.1 for French.",
)
TRANSFORMER_MINI = replace(
    TRANSFORMER_BASE,
    name="transformer-mini",
    architecture=both(
        replace(
            ENCODER, vocab_size=8_192, d_model=256, n_layers=3, n_heads=4, d_ff=1024, dropout=0.3,
            position=Sinusoidal(512),
        )
    ),
    tokenizer=TokenizerSpec(SentencePieceBPE(8_192), FRAME),
    length=128,
    batch_tokens=4_096,
    rate=3e-3,
    training=SMALL_SCALE,
    parameters=7_626_752,
    note="Not in the paper: for tens of thousands of pairs and two CPU cores. "
    + OF_PAIRS
    + _UNLIKE,
)  # fmt: skip
TRANSFORMER_TINY = replace(
    TRANSFORMER_MINI,
    name="transformer-tiny",
    architecture=both(
        replace(
            ENCODER, vocab_size=8_192, d_model=128, n_layers=3, n_heads=4, d_ff=512,
            position=Sinusoidal(512),
        )
    ),
    parameters=2_437_120,
    note="Not in the paper: for a hundred thousand pairs of few different words, and "
    "minutes on one CPU core (`examples/`). " + OF_PAIRS + _UNLIKE,
)  # fmt: skip

CARDS = (TRANSFORMER_TINY, TRANSFORMER_MINI, TRANSFORMER_BASE, TRANSFORMER_BIG)
