"""AlephBERT: Seker et al. 2021, arXiv:2104.04052.

"AlephBERT: A Hebrew Large Pre-Trained Language Model to Start-off your Hebrew NLP Application
With": BERT-base for Hebrew.
"""

from dataclasses import replace

from unmask.model.initialize import NormalInit
from unmask.objectives.published import MASKED_LM
from unmask.tokenizers.spec import BERT as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import WordPiece
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper

PAPER = Paper(
    title="AlephBERT: A Hebrew Large Pre-Trained Language Model to Start-off your Hebrew NLP "
    "Application With",
    authors="Seker, Bandel, Bareket, Brusilovsky, Greenfeld, Tsarfaty",
    year=2021,
    arxiv="2104.04052",
)

ALEPHBERT_BASE = replace(
    bert.BERT_BASE_UNCASED,
    name="alephbert-base",
    paper=PAPER,
    architecture=replace(
        bert.BASE,
        vocab_size=52_000,  # released configuration
        n_segments=1,  # released configuration
        initializer=NormalInit(0.02),  # released code: transformers'
    ),
    heads={"language": bert.HEADS["language"]},
    pooler_head=None,
    objective=MASKED_LM,  # released notes: masked tokens only
    tokenizer=TokenizerSpec(WordPiece(52_000, lowercase=True), FRAME),
    n_parameters=126_030_112,
    hub_id="onlplab/alephbert-base",
    learning_rate=1e-4,  # released notes: then again at 1e-5
    note="Hebrew. Texts of up to 32 tokens first, then up to 64, 128, 512 (released notes).",
)

PRESETS = (ALEPHBERT_BASE,)
