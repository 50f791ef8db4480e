"""Encoders of sentences before the Transformer: Conneau et al. 2017, Kim 2014."""

from dataclasses import replace

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.backbones.convolutional import ConvolutionalArchitecture
from unmask.model.backbones.recurrent import RecurrentArchitecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.objectives.published import MASKED_LM
from unmask.tokenizers.spec import BERT, TokenizerSpec
from unmask.tokenizers.vocabulary import WordPiece
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING, NEXT_SENTENCE_TRAINING
from unmask.zoo.preset import Paper, Published

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
NOTE = "Not in the paper: pretrained by masked language modeling, and small, for two CPU cores."

BILSTM_MINI = Published(
    name="bilstm-mini",
    family="bilstm",
    paper=INFERSENT,
    architecture=RecurrentArchitecture(
        vocab_size=8_192, d_model=256, n_layers=2, d_ff=512, direction="together",
        dropout=0.0, input_dropout=0.0,
    ),
    heads={"language": LanguageModeling(term="masked", bias=True)},
    classification_head=SequenceClassification(pooling="max", dense_layer=False),  # section 3.2.2
    objective=MASKED_LM,
    tokenizer=TokenizerSpec(WordPiece(8_192), BERT),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options={**MINI_TRAINING, **NEXT_SENTENCE_TRAINING},
    n_parameters=3_812_352,
    weight_names=NATIVE_WEIGHT_NAMES,
    config_mapping=native_config_mapping("bilstm", RecurrentArchitecture),
    note=NOTE,
)  # fmt: skip
CNN_MINI = replace(
    BILSTM_MINI,
    name="cnn-mini",
    family="cnn",
    paper=FILTERS,
    architecture=ConvolutionalArchitecture(
        vocab_size=8_192,
        d_model=300,
        n_layers=1,
        filter_widths=(3, 4, 5),
        dropout=0.0,
        final_dropout=0.0,
    ),
    classification_head=SequenceClassification(
        pooling="max", dense_layer=False, dropout=0.5
    ),  # sections 2 and 3.1
    config_mapping=native_config_mapping("cnn", ConvolutionalArchitecture),
    n_parameters=2_826_092,
)

PRESETS = (BILSTM_MINI, CNN_MINI)
