"""AWD-LSTM: Merity et al. 2018; and ULMFiT, which pretrains it: Howard and Ruder 2018."""

from dataclasses import replace

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.pretraining.activation_regularization import ActivationRegularization
from unmask.model.backbones.recurrent import RecurrentArchitecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.objectives.published import CAUSAL_LM as NEXT_TOKEN
from unmask.tokenizers.spec import WORD_LEVEL as WORD_FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import WordLevel
from unmask.zoo.preset import FinetuningDefaults, Paper, Published
from unmask.zoo.recurrent.lstm import LSTM_MINI, PTB

PAPER = Paper(
    title="Regularizing and Optimizing LSTM Language Models",
    authors="Merity, Keskar, Socher",
    year=2018,
    arxiv="1708.02182",
)
ULMFIT_PAPER = Paper(
    title="Universal Language Model Fine-tuning for Text Classification",
    authors="Howard, Ruder",
    year=2018,
    arxiv="1801.06146",
)

ARCHITECTURE = RecurrentArchitecture(
    vocab_size=10_000,
    d_model=400,  # section 5: the last layer has the width of the embeddings
    n_layers=3,  # section 5
    d_ff=1150,  # section 5
    causal=True,
    variational_dropout=True,  # section 4.2
    input_dropout=0.4,  # section 5, of the Penn Treebank
    dropout=0.25,  # between layers: released code, with its 20 rows; section 5: 0.3
    final_dropout=0.4,  # section 5
    embedding_dropout=0.1,  # section 5
    weight_dropout=0.5,  # section 5
)
LANGUAGE = LanguageModeling(term="next_token", bias=True)  # section 4.4: tied
CLASSIFICATION_HEAD = SequenceClassification(
    pooling="concat", dense_layer=True, activation="relu", dropout=0.1
)
"""Howard and Ruder 2018, section 3.3.
Deviates: they have batch norms before both linear layers, a hidden width of 50 (section 4.1), and
dropout of 0.4 before the first layer, too (released code: its `train_clas.py`)."""

AWD_LSTM = Published(
    name="awd-lstm",
    family="awd-lstm",
    paper=PAPER,
    architecture=ARCHITECTURE,
    heads={"language": LANGUAGE, "steady": ActivationRegularization()},
    classification_head=CLASSIFICATION_HEAD,
    objective=NEXT_TOKEN,
    tokenizer=TokenizerSpec(WordLevel(10_000), WORD_FRAME),
    sequence_length=70,  # section 5
    batch_tokens=20 * 70,  # section 5: 40; 20 for the Penn Treebank in the released code
    learning_rate=30.0,  # section 5
    training_options={
        **PTB,
        "sequence_length_jitter": 5 / 70,  # section 5
        "optimizer": {"kind": "SGD", "weight_decay": 1.2e-6, "averaging_patience": 5},  # section 5
        "schedule": {"kind": "Constant"},
        "max_grad_norm": 0.25,  # section 5
    },
    n_parameters=24_210_800,
    weight_names=NATIVE_WEIGHT_NAMES,
    config_mapping=native_config_mapping("awd-lstm", RecurrentArchitecture),
    note="Settings of the released code for the Penn Treebank. Evaluations are its epochs: "
    "set `evaluate_every` to one epoch.",
)
ULMFIT = replace(
    AWD_LSTM,
    name="ulmfit",
    paper=ULMFIT_PAPER,
    architecture=replace(
        ARCHITECTURE, vocab_size=30_000, input_dropout=0.25, dropout=0.15, final_dropout=0.1,
        embedding_dropout=0.02, weight_dropout=0.2,
    ),  # released code, `finetune_lm.py`; section 4.1: 0.4, 0.3, 0.4, 0.05, 0.5, the classifier's
    tokenizer=TokenizerSpec(WordLevel(30_000), WORD_FRAME),  # released code, `tok2id.py`
    batch_tokens=64 * 70,  # section 4.1
    learning_rate=4e-3,  # section 4.1, of fine-tuning on the text of the task
    finetuning=FinetuningDefaults(betas=(0.7, 0.99)),  # section 4.1
    training_options={
        **PTB,
        "sequence_length_jitter": 5 / 70,
        "optimizer": {"kind": "AdamW", "betas": [0.7, 0.99], "weight_decay": 0.0},  # section 4.1
        "schedule": {"kind": "SlantedTriangular"},  # section 3.2; in pretraining: released code
        "max_grad_norm": 0.25,  # section 4.1: as AWD-LSTM
    },
    n_parameters=32_230_800,
    note="The paper pretrains on WikiText-103. It gives no rate: this is the one of fine-tuning "
    "on the text of the task, as are the dropouts, the released code's. It pretrains at 3e-4 "
    "with half the dropouts, betas of 0.8 and 0.99, clipping at 0.3, and an output layer with "
    "no bias.",
)  # fmt: skip
ULMFIT_MINI = replace(
    ULMFIT,
    name="ulmfit-mini",
    architecture=replace(
        LSTM_MINI.architecture, n_layers=3, variational_dropout=True,
    ),
    tokenizer=LSTM_MINI.tokenizer,
    sequence_length=LSTM_MINI.sequence_length,
    batch_tokens=LSTM_MINI.batch_tokens,
    learning_rate=LSTM_MINI.learning_rate,
    training_options=LSTM_MINI.training_options,
    heads={"language": LANGUAGE},
    n_parameters=6_566_912,
    note="Not in the paper: for two CPU cores, about as large as gpt2-mini, and not regularized.",
)  # fmt: skip


def _backward(preset: Published) -> Published:
    """Return the backward model of the paper's ensemble."""
    spec = preset.tokenizer
    return replace(
        preset,
        name=f"{preset.name}-backward",
        tokenizer=replace(spec, special_tokens=replace(spec.special_tokens, backward=True)),
        note="Section 3.3, bidirectional: for an ensemble with the forward model.",
    )


ULMFIT_BACKWARD = _backward(ULMFIT)
ULMFIT_MINI_BACKWARD = _backward(ULMFIT_MINI)

PRESETS = (ULMFIT_MINI, ULMFIT_MINI_BACKWARD, AWD_LSTM, ULMFIT, ULMFIT_BACKWARD)
