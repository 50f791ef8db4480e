"""Encoders of sentences before the Transformer: Conneau et al. 2017, Kim 2014."""

from dataclasses import replace

from unmask.heads.labels import Labels
from unmask.heads.language import Language
from unmask.hiding.objectives import MASKED
from unmask.model.convolutional import ConvolutionalArchitecture
from unmask.model.names import OWN_NAMES, own_fields
from unmask.model.recurrent import RecurrentArchitecture
from unmask.published.bert import SENTENCES, SMALL_SCALE
from unmask.published.card import Paper, Published
from unmask.tokens.vocabulary import BERT, TokenizerSpec, WordPiece

INFERSENT = Paper(
    title="Supervised Learning of Universal Sentence Representations from Natural Language "
    "Inference Data",
    authors="Conneau, Kiela, Schwenk, Barrault, Bordes",
    year=2017,
    arxiv="1705.02364",
)
FILTERS = Paper(
    title="Convolutional Neural Networks for Sentence Classification",
    authors="Kim",
    year=2014,
    arxiv="1408.5882",
)
NOTE = (
    "Not in the paper: it is pretrained by the words that BERT is asked for, and small, for two "
    "CPU cores."
)

BILSTM_MINI = Published(
    name="bilstm-mini",
    family="bilstm",
    paper=INFERSENT,
    architecture=RecurrentArchitecture(
        vocab_size=8_192, d_model=256, n_layers=2, d_ff=512, reads="together",
        dropout=0.0, input_dropout=0.0,
    ),
    heads={"language": Language(term="masked", bias=True)},
    labels=Labels(pool="max", dense=False),  # section 3.2.2
    objective=MASKED,
    tokenizer=TokenizerSpec(WordPiece(8_192), BERT),
    length=128,
    batch_tokens=4_096,
    rate=3e-3,
    training={**SMALL_SCALE, **SENTENCES},
    parameters=3_812_352,
    names=OWN_NAMES,
    fields=own_fields("bilstm", RecurrentArchitecture),
    note=NOTE,
)  # fmt: skip
CNN_MINI = replace(
    BILSTM_MINI,
    name="cnn-mini",
    family="cnn",
    paper=FILTERS,
    architecture=ConvolutionalArchitecture(
        vocab_size=8_192, d_model=300, n_layers=1, widths=(3, 4, 5), dropout=0.0, final_dropout=0.0,
    ),
    labels=Labels(pool="max", dense=False, dropout=0.5),  # sections 2 and 3.1
    fields=own_fields("cnn", ConvolutionalArchitecture),
    parameters=2_826_092,
)  # fmt: skip

CARDS = (BILSTM_MINI, CNN_MINI)
