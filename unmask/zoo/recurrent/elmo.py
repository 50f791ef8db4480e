"""ELMo: Peters et al. 2018, "Deep contextualized word representations", arXiv:1802.05365."""

from dataclasses import replace

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.pretraining.bidirectional_lm import BidirectionalLM
from unmask.model.backbones.elmo import ElmoArchitecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.model.layers.embeddings.character_cnn import CharacterCNN
from unmask.objectives.inputs.characters import BidirectionalWordLM
from unmask.tokenizers.spec import ELMO as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import WordBytesWithWords
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING, NEXT_SENTENCE_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="Deep contextualized word representations",
    authors="Peters, Neumann, Iyyer, Gardner, Clark, Lee, Zettlemoyer",
    year=2018,
    arxiv="1802.05365",
)

ELMO = Published(
    name="elmo",
    family="elmo",
    paper=PAPER,
    architecture=ElmoArchitecture(
        d_model=1024,  # section 3.4: 512 of each direction
        embedding_size=512,  # section 3.4
        n_layers=2,  # section 3.4
        d_ff=8192,  # section 3.4: 4096 of each direction
        cell_clip=3.0,  # released code
        character_cnn=CharacterCNN(
            character_embedding_size=16,  # released code; section 3.4: 2048 filters, two highways
            filters=((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
        ),
        dropout=0.1, input_dropout=0.1, final_dropout=0.1,  # released code
    ),
    heads={"both_sides": BidirectionalLM(output_vocab_size=793_471, cutoffs=(20_000, 200_000))},
    classification_head=SequenceClassification(pooling="max", dense_layer=False),
    objective=BidirectionalWordLM(),
    tokenizer=TokenizerSpec(WordBytesWithWords(793_471), FRAME),  # released code
    sequence_length=512,
    batch_tokens=96 * 512,  # released code: 20 words in 128 rows on each of three devices
    learning_rate=1e-3,
    training_options={
        **NEXT_SENTENCE_TRAINING,
        "optimizer": {"kind": "AdamW", "weight_decay": 0.0},
        "schedule": {"kind": "Constant"},  # released code
        "max_grad_norm": 10 / 20,  # released code: 10, with the loss summed over 20 words
    },
    n_parameters=147_272_625,
    weight_names=NATIVE_WEIGHT_NAMES,
    config_mapping=native_config_mapping("elmo", ElmoArchitecture),
    note="Of these, 93,600,848 are the backbone's, the only ones in the published HDF5 files. The "
    "released code trains with Adagrad at 0.2, and rows of 20 words continue those of the "
    "previous step; Adam and its rate are neither the code's nor the paper's.",
)  # fmt: skip
ELMO_MINI = replace(
    ELMO,
    name="elmo-mini",
    architecture=replace(
        ELMO.architecture,
        d_model=256,
        embedding_size=128,
        d_ff=1024,
        character_cnn=CharacterCNN(
            filters=((1, 32), (2, 32), (3, 64), (4, 128), (5, 128)), n_highway_layers=1
        ),
        dropout=0.0,
        input_dropout=0.0,
        final_dropout=0.0,
    ),
    heads={"both_sides": BidirectionalLM(output_vocab_size=16_384, cutoffs=(2_000,))},
    tokenizer=TokenizerSpec(WordBytesWithWords(16_384), FRAME),
    sequence_length=512,
    batch_tokens=16_384,
    learning_rate=3e-3,
    training_options={**MINI_TRAINING, **NEXT_SENTENCE_TRAINING},
    n_parameters=3_509_713,
    note="Not in the paper: for two CPU cores.",
)

PRESETS = (ELMO_MINI, ELMO)
