"""LSTM language models and sequence autoencoders: Zaremba et al. 2014, Dai and Le 2015."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling, SourcePrefixGeneration
from unmask.model.backbones.recurrent import RecurrentArchitecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.model.initialize import UniformInit
from unmask.objectives.denoising.denoise import DenoisingObjective
from unmask.objectives.denoising.single_stack import SingleStackSeq2Seq
from unmask.objectives.published import CAUSAL_LM as NEXT_TOKEN
from unmask.tokenizers.spec import GPT2 as FRAME
from unmask.tokenizers.spec import WORD_LEVEL as WORD_FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE, WordLevel
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="Recurrent Neural Network Regularization",
    authors="Zaremba, Sutskever, Vinyals",
    year=2014,
    arxiv="1409.2329",
)
SEMI_SUPERVISED = Paper(
    title="Semi-supervised Sequence Learning",
    authors="Dai, Le",
    year=2015,
    arxiv="1511.01432",
)

CONFIG_MAPPING = native_config_mapping("lstm", RecurrentArchitecture)
CLASSIFICATION_HEAD = SequenceClassification(
    pooling="last", dense_layer=False, bias=True, dropout=0.0
)
AUTOENCODER = SingleStackSeq2Seq(DenoisingObjective(()))
"""Sequence autoencoder: the same LSTM reads and reproduces a text (Dai and Le 2015, section 2)."""
PTB: Mapping[str, Any] = {"row_unit": "stream", "memory_length": 1}
"""Each row continues that of the previous step."""


def _penn_treebank_model(
    name: str, parameters: int, d_model: int, length: int, dropout: float, init_bound: float
) -> Published:
    """Return a model of Zaremba et al. 2014, section 4.1; the small one is not regularized."""
    epochs = {200: (4 / 13, 0.5**9), 650: (6 / 39, 1.2**-33), 1500: (14 / 55, 1.15**-41)}
    flat, floor = epochs[d_model]
    return Published(
        name=name,
        family="lstm",
        paper=PAPER,
        architecture=RecurrentArchitecture(
            vocab_size=10_000, d_model=d_model, n_layers=2, d_ff=d_model, causal=True,
            dropout=dropout, input_dropout=dropout, final_dropout=dropout,
            initializer=UniformInit(init_bound),
        ),
        heads={"language": LanguageModeling(term="next_token", bias=True, tie_embeddings=False)},
        classification_head=CLASSIFICATION_HEAD,
        objective=NEXT_TOKEN,
        tokenizer=TokenizerSpec(WordLevel(10_000), WORD_FRAME),
        sequence_length=length,
        batch_tokens=20 * length,
        learning_rate=float(length),  # 1, with the loss summed over the tokens of a row
        training_options={
            **PTB,
            "optimizer": {"kind": "SGD"},
            "schedule": {"kind": "Exponential", "constant_steps": flat, "final_fraction": floor},
            # of the small one: tutorials/rnn/ptb of TensorFlow's models; not in the paper
            "max_grad_norm": (10 if d_model == 1500 else 5) / length,
        },
        n_parameters=parameters,
        weight_names=NATIVE_WEIGHT_NAMES,
        config_mapping=CONFIG_MAPPING,
    )  # fmt: skip


LSTM_SMALL = _penn_treebank_model("lstm-small", 4_651_600, 200, 20, 0.0, 0.1)
LSTM_MEDIUM = _penn_treebank_model("lstm-medium", 19_775_200, 650, 35, 0.5, 0.05)
LSTM_LARGE = _penn_treebank_model("lstm-large", 66_022_000, 1500, 35, 0.65, 0.04)

LSTM_MINI = replace(
    LSTM_MEDIUM,
    name="lstm-mini",
    paper=SEMI_SUPERVISED,
    architecture=RecurrentArchitecture(
        vocab_size=8_192, d_model=256, n_layers=2, d_ff=512, causal=True,
        dropout=0.0, input_dropout=0.0, final_dropout=0.0,
    ),
    heads={"language": LanguageModeling(term="next_token", bias=True)},
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options={**MINI_TRAINING, **PTB},
    n_parameters=4_467_712,
    note="Not in the paper: for two CPU cores, about as large as gpt2-mini.",
)  # fmt: skip
AUTOENCODER_MINI = replace(
    LSTM_MINI,
    name="sequence-autoencoder-mini",
    heads={
        "language": LanguageModeling(
            term="denoised", bias=True, generation=SourcePrefixGeneration()
        )
    },
    objective=AUTOENCODER,
    training_options=MINI_TRAINING,
    note="Not in the paper: for two CPU cores. The same weights read and reproduce the text.",
)

PRESETS = (LSTM_MINI, AUTOENCODER_MINI, LSTM_SMALL, LSTM_MEDIUM, LSTM_LARGE)
