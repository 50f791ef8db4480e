"""ByT5: Xue et al. 2022, arXiv:2105.13626.

"ByT5: Towards a Token-Free Future with Pre-trained Byte-to-Byte Models".
"""

from dataclasses import replace

from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.objectives.denoising.replace_spans import ReplaceSpans
from unmask.objectives.objective import Objective
from unmask.objectives.select import RandomSpanMasking
from unmask.tokenizers.spec import BYT5 as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteLevel
from unmask.zoo.encoder_decoders import mt5, t5
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="ByT5: Towards a Token-Free Future with Pre-trained Byte-to-Byte Models",
    authors="Xue, Barua, Constant, Al-Rfou, Narang, Kale, Roberts, Raffel",
    year=2022,
    arxiv="2105.13626",
)

VOCAB_SIZE = 384
"""Embedding rows: three special tokens and 256 bytes, padded to a multiple of 128."""
OBJECTIVE = Objective(RandomSpanMasking(rate=0.15, mean_span_length=20.0), ReplaceSpans())
"""Section 3.1: spans of 20 bytes on average."""


def _with_size(
    name: str,
    parameters: int,
    base_preset: Published,
    n_decoder_layers: int,
    d_model: int,
    d_ff: int,
) -> Published:
    """Return a size: the heads of mT5's, other widths, an encoder three times as deep (3.1).

    Widths and depths are table 1's; the number of heads and their width, 64, are the released
    code's.
    """
    a = base_preset.architecture
    assert isinstance(a, EncoderDecoderArchitecture)
    encoder = replace(
        a.encoder,
        vocab_size=VOCAB_SIZE,
        d_model=d_model,
        d_ff=d_ff,
        n_layers=3 * n_decoder_layers,
    )
    return replace(
        base_preset,
        name=name,
        family="t5",
        paper=PAPER,
        architecture=t5.encoder_decoder(encoder, n_decoder_layers),
        objective=OBJECTIVE,
        tokenizer=TokenizerSpec(ByteLevel(n_unused_ids=125), FRAME),
        n_parameters=parameters,
        config_mapping=t5.CONFIG_MAPPING,
        hub_id=f"google/{name}",
        note="101 languages, sampled as for mT5: `--sampling-exponent 0.3`. Of the sentinels, "
        "which count down from the byte 0xFF, only the eleven that never occur in UTF-8 are used: "
        "rows of 1,024 need nine.",
    )


BYT5_SMALL = _with_size("byt5-small", 299_637_760, mt5.MT5_SMALL, 4, 1472, 3584)
BYT5_BASE = _with_size("byt5-base", 581_653_248, mt5.MT5_BASE, 6, 1536, 3968)
BYT5_LARGE = _with_size("byt5-large", 1_228_183_552, mt5.MT5_LARGE, 12, 1536, 3840)
BYT5_XL = _with_size("byt5-xl", 3_737_801_728, mt5.MT5_XL, 12, 2560, 6720)
BYT5_XXL = _with_size("byt5-xxl", 12_906_899_328, mt5.MT5_XXL, 12, 4672, 12_352)
BYT5_MINI = replace(
    mt5.mini_preset(BYT5_SMALL, "byt5-mini", 5_969_152, n_layers=6, n_decoder_layers=2),
    sequence_length=512,
    note="Not in the paper: for two CPU cores, with the width of BERT-mini.",
)

PRESETS = (BYT5_MINI, BYT5_SMALL, BYT5_BASE, BYT5_LARGE, BYT5_XL, BYT5_XXL)
