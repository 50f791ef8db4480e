"""LaMDA: Thoppilan et al. 2022, "LaMDA: Language Models for Dialog Applications", arXiv:2201.08239.

The paper describes parts of its Transformer as T5's; unspecified parts (norms, biases, the scale of
scores) are T5's here, too.
"""

from dataclasses import replace

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.model.positions.relative_bias import RelativePositionBias
from unmask.objectives.published import CAUSAL_LM as NEXT_TOKEN
from unmask.tokenizers.spec import LLAMA as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import SentencePieceBPE
from unmask.zoo.decoders import llama
from unmask.zoo.encoder_decoders.t5 import ENCODER
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="LaMDA: Language Models for Dialog Applications",
    authors="Thoppilan, De Freitas, Hall, et al.",
    year=2022,
    arxiv="2201.08239",
)

BASE = replace(
    ENCODER,
    vocab_size=32_000,  # section 3: 32K
    d_model=8192,  # section 3
    n_layers=64,
    n_heads=128,
    head_dim=128,
    d_ff=65_536,
    position=RelativePositionBias(causal=True),  # section 3: relative attention as in T5
    activation="gelu_tanh",
    gated_feed_forward=True,  # section 3
    causal=True,
    dropout=0.0,
    attention_dropout=0.0,
    activation_dropout=0.0,
    final_dropout=0.0,
)

LAMDA_137B = Published(
    name="lamda-137b",
    family="lamda",
    paper=PAPER,
    architecture=BASE,
    heads={"language": LanguageModeling(term="next_token", scale_hidden=True)},
    classification_head=llama.CLASSIFICATION_HEAD,
    objective=NEXT_TOKEN,
    tokenizer=TokenizerSpec(SentencePieceBPE(32_000), FRAME),
    sequence_length=2048,
    batch_tokens=256 * 1024,  # section 3: 256K tokens
    learning_rate=1e-2,
    training_options={"steps": 3_000_000},  # table 27
    n_parameters=137_702_158_336,
    weight_names=NATIVE_WEIGHT_NAMES,
    config_mapping=native_config_mapping("lamda"),
    note="The weights were not published. Rate, optimizer and length are not stated; the rate is "
    "T5's, for Adafactor; AdamW needs another.",
)
LAMDA_8B = llama.with_size(  # table 27; d_ff in proportion to the largest: not stated
    LAMDA_137B, "lamda-8b", 8_721_143_808, d_model=4096, n_layers=16, n_heads=64, d_ff=32_768,
    training_options={"steps": 521_000},
    note=f"{LAMDA_137B.note} The widths of heads and feed-forward are not stated for this size.",
)  # fmt: skip
LAMDA_2B = llama.with_size(
    LAMDA_8B, "lamda-2b", 2_179_127_040, d_model=2560, n_layers=10, n_heads=40, d_ff=20_480,
    training_options={"steps": 501_000},
)  # fmt: skip
LAMDA_MINI = llama.mini_preset(
    LAMDA_137B, "lamda-mini", 5_310_848,
    head_dim=None, d_ff=704, position=RelativePositionBias(causal=True),
)  # fmt: skip

PRESETS = (LAMDA_MINI, LAMDA_2B, LAMDA_8B, LAMDA_137B)
