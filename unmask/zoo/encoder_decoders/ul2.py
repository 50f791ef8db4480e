"""UL2: Tay et al. 2022, arXiv:2205.05131.

"UL2: Unifying Language Learning Paradigms"; T5's network and format, a mixture of denoisers.
"""

from dataclasses import replace

from unmask.objectives.published import UL2 as DENOISERS
from unmask.tokenizers.spec import UL2 as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram
from unmask.zoo.encoder_decoders import t5
from unmask.zoo.preset import Paper

PAPER = Paper(
    title="UL2: Unifying Language Learning Paradigms",
    authors="Tay, Dehghani, Tran, Garcia, Wei, Wang, Chung, Shakeri, Bahri, Schuster, Zheng, Zhou, "
    "Houlsby, Metzler",
    year=2022,
    arxiv="2205.05131",
)
ENCODER = replace(
    t5.ENCODER, activation="silu", gated_feed_forward=True, dropout=0.0, attention_dropout=0.0,
    activation_dropout=0.0, final_dropout=0.0,
)  # fmt: skip

UL2_20B = replace(
    t5.T5_SMALL,
    name="ul2",
    paper=PAPER,
    architecture=t5.encoder_decoder(
        # released notes: 32 layers on either side, 16 heads of 256 each
        replace(ENCODER, d_model=4096, n_layers=32, n_heads=16, head_dim=256, d_ff=16_384)
    ),
    objective=DENOISERS,
    tokenizer=TokenizerSpec(Unigram(32_000), FRAME),  # released notes: T5's
    batch_tokens=1024 * 512,  # released notes
    training_options=t5.training_options(2_000_000),  # steps: released notes, for 1T tokens
    # tied embeddings, as in its configuration
    n_parameters=19_459_613_696,
    hub_id="google/ul2",
    note="Sizes, batch and steps are those of the notes with the released weights, of which the "
    "last continued to 2,650,000 steps; optimizer and rate, not given there, are T5's. Modes "
    "are special tokens here; in the released weights they are words, [NLU], [S2S] and [NLG], "
    "in T5's pieces, so continuing them by this objective needs a tokenizer with these "
    "tokens.",
)
UL2_MINI = replace(
    t5.T5_MINI,
    name="ul2-mini",
    paper=PAPER,
    architecture=t5.encoder_decoder(
        replace(ENCODER, d_model=256, n_layers=4, n_heads=4, d_ff=704, vocab_size=8_292)
    ),
    objective=DENOISERS,
    tokenizer=TokenizerSpec(Unigram(8_192), FRAME),
    n_parameters=9_599_744,
)

PRESETS = (UL2_MINI, UL2_20B)
