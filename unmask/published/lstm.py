"""LSTM language models and sequence autoencoders: Zaremba et al. 2014, Dai and Le 2015."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.labels import Labels
from unmask.heads.language import AfterSource, Language
from unmask.hiding.denoise import Denoise
from unmask.hiding.objectives import GPT as NEXT_TOKEN
from unmask.hiding.one_stack import InOneStack
from unmask.model.initialize import Uniform
from unmask.model.names import OWN_NAMES, own_fields
from unmask.model.recurrent import RecurrentArchitecture
from unmask.published.bert import SMALL_SCALE
from unmask.published.card import Paper, Published
from unmask.tokens.vocabulary import GPT2 as FRAME
from unmask.tokens.vocabulary import WORDS as WORD_FRAME
from unmask.tokens.vocabulary import ByteBPE, TokenizerSpec, Words

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

FIELDS = own_fields("lstm", RecurrentArchitecture)
LABELS = Labels(pool="last", dense=False, bias=True, dropout=0.0)
AUTOENCODER = InOneStack(Denoise(()))
"""A text is read, and then said as it was, by the same LSTM (Dai and Le 2015, section 2)."""
PTB: Mapping[str, Any] = {"unit": "stream", "memory": 1}
"""Each row goes on where that of the step before ended."""


def _ptb(
    name: str, parameters: int, d: int, length: int, dropout: float, within: float
) -> Published:
    """Return a model of Zaremba et al. 2014, section 4.1; the small one is not regularized."""
    epochs = {200: (4 / 13, 0.5**9), 650: (6 / 39, 1.2**-33), 1500: (14 / 55, 1.15**-41)}
    flat, floor = epochs[d]
    return Published(
        name=name,
        family="lstm",
        paper=PAPER,
        architecture=RecurrentArchitecture(
            vocab_size=10_000, d_model=d, n_layers=2, d_ff=d, causal=True,
            dropout=dropout, input_dropout=dropout, final_dropout=dropout,
            initialize=Uniform(within),
        ),
        heads={"language": Language(term="next_token", bias=True, tied=False)},
        labels=LABELS,
        objective=NEXT_TOKEN,
        tokenizer=TokenizerSpec(Words(10_000), WORD_FRAME),
        length=length,
        batch_tokens=20 * length,
        rate=float(length),  # 1, where the loss is summed over the tokens of a row
        training={
            **PTB,
            "optimizer": {"kind": "Sgd"},
            "schedule": {"kind": "Exponential", "flat": flat, "floor": floor},
            # of the small one: tutorials/rnn/ptb of TensorFlow's models; the paper does not say
            "clip": (10 if d == 1500 else 5) / length,
        },
        parameters=parameters,
        names=OWN_NAMES,
        fields=FIELDS,
    )  # fmt: skip


LSTM_SMALL = _ptb("lstm-small", 4_651_600, 200, 20, 0.0, 0.1)
LSTM_MEDIUM = _ptb("lstm-medium", 19_775_200, 650, 35, 0.5, 0.05)
LSTM_LARGE = _ptb("lstm-large", 66_022_000, 1500, 35, 0.65, 0.04)

LSTM_MINI = replace(
    LSTM_MEDIUM,
    name="lstm-mini",
    paper=SEMI_SUPERVISED,
    architecture=RecurrentArchitecture(
        vocab_size=8_192, d_model=256, n_layers=2, d_ff=512, causal=True,
        dropout=0.0, input_dropout=0.0, final_dropout=0.0,
    ),
    heads={"language": Language(term="next_token", bias=True)},
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
    length=128,
    batch_tokens=4_096,
    rate=3e-3,
    training={**SMALL_SCALE, **PTB},
    parameters=4_467_712,
    note="Not in the paper: for two CPU cores, about as large as gpt2-mini.",
)  # fmt: skip
AUTOENCODER_MINI = replace(
    LSTM_MINI,
    name="sequence-autoencoder-mini",
    heads={"language": Language(term="denoised", bias=True, forward=AfterSource())},
    objective=AUTOENCODER,
    training=SMALL_SCALE,
    note="Not in the paper: for two CPU cores. The text is read, then said by the same weights.",
)

CARDS = (LSTM_MINI, AUTOENCODER_MINI, LSTM_SMALL, LSTM_MEDIUM, LSTM_LARGE)
