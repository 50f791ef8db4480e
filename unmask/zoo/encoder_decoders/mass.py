"""MASS: Song et al. 2019, arXiv:1905.02450.

"MASS: Masked Sequence to Sequence Pre-training for Language Generation"; the network is BART's,
whose format its runs are written in.
"""

from dataclasses import replace

from unmask.model.initialize import NormalInit
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.published import MASS as FRAGMENTS
from unmask.tokenizers.spec import MASS as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import WordPiece
from unmask.zoo.encoder_decoders import bart, transformer
from unmask.zoo.encoders.bert_family import roberta
from unmask.zoo.preset import Paper

PAPER = Paper(
    title="MASS: Masked Sequence to Sequence Pre-training for Language Generation",
    authors="Song, Tan, Qin, Lu, Liu",
    year=2019,
    arxiv="1905.02450",
)
# Released code, `transformer_mass_base`.
ENCODER = replace(
    bart.ENCODER,
    vocab_size=30_522,
    position=LearnedPositions(512, bart.OFFSET),
    scale_embedding=True,
    attention_dropout=0.1,
    activation_dropout=0.1,
)
_UNUSED_WEIGHTS_NOTE = (
    "The released weights, in fairseq's format, cannot be read, and transformers has no class of "
    "this model, so that parity is not tested. "
)

MASS_BASE = replace(
    bart.BART_BASE,
    name="mass-base-uncased",
    paper=PAPER,
    architecture=transformer.encoder_decoder(ENCODER),
    objective=FRAGMENTS,
    tokenizer=TokenizerSpec(WordPiece(30_522, lowercase=True), FRAME),  # released code
    sequence_length=512,  # released code, as what follows
    batch_tokens=4096 * 512,
    learning_rate=5e-4,
    training_options={
        **roberta.TRAINING,
        "schedule": {"kind": "Linear", "warmup": 10_000},
        "steps": 125_000,
        "max_grad_norm": 0.0,
    },
    n_parameters=123_471_360,
    hub_id=None,
    note=_UNUSED_WEIGHTS_NOTE
    + "Settings are those of the released code for English summarization, except for the "
    "masked fragment, half of the text as in the paper: there 15 %, one of each 64 tokens; the "
    "paper's translation model is 1024 wide and bilingual. In released code rows "
    "have no end token, and positions start from the padding id + 1.",
)
MASS_MIDDLE = replace(
    MASS_BASE,
    name="mass-middle-uncased",
    architecture=transformer.encoder_decoder(replace(ENCODER, d_model=1024, n_heads=16, d_ff=4096)),
    n_parameters=208_668_672,
)
MASS_MINI = replace(
    bart.BART_MINI,
    name="mass-mini",
    paper=PAPER,
    architecture=transformer.encoder_decoder(
        replace(
            ENCODER,
            vocab_size=8_192,
            d_model=256,
            n_layers=4,
            n_heads=4,
            d_ff=1024,
            activation_dropout=0.0,
            initializer=NormalInit(0.05),
        )
    ),
    objective=FRAGMENTS,
    tokenizer=TokenizerSpec(WordPiece(8_192, lowercase=True), FRAME),
    n_parameters=9_734_144,
    note="Not in the paper: for two CPU cores, with the width and depth of BERT-mini. "
    + _UNUSED_WEIGHTS_NOTE,
)

PRESETS = (MASS_MINI, MASS_BASE, MASS_MIDDLE)
