"""Meena: Adiwardana et al. 2020, arXiv:2001.09977.

"Towards a Human-like Open-Domain Chatbot": an Evolved Transformer with one encoder block and many
decoder blocks.
"""

from dataclasses import replace

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.model.positions.sinusoidal import Sinusoidal
from unmask.objectives.published import T5_OBJECTIVES
from unmask.tokenizers.spec import T5 as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import SentencePieceBPE
from unmask.zoo.encoder_decoders import evolved_transformer as evolved
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="Towards a Human-like Open-Domain Chatbot",
    authors="Adiwardana, Luong, So, et al.",
    year=2020,
    arxiv="2001.09977",
)

_DIALOG_NOTE = (
    "The paper trains responses to up to seven turns of a conversation, which is `unmask finetune "
    "--task generate` with the turns as the source and the response as the target, from this "
    "preset or from random weights. Pretraining on plain text is the same without turns: the "
    "prefix of a text is the source and the rest the target. "
)
_STATED_NOTE = (
    "Its sample-and-rank is `--temperature 0.88 --samples 20`. The paper has human "
    "ratings (sensibleness and specificity); here perplexity is measured. "
)

MEENA = Published(
    name="meena",
    family="meena",
    paper=PAPER,
    architecture=evolved.encoder_decoder(
        replace(
            evolved.ENCODER,
            vocab_size=8_292,  # section 3.1: 8K; 100 sentinels for filling blanks
            d_model=2560,  # section 3.2, as the next two
            n_layers=2 * 1,
            n_heads=32,
            d_ff=4 * 2560,
            position=Sinusoidal(128),  # section 3.2: of each side
        ),
        13,  # section 3.2
    ),
    heads={"language": LanguageModeling(term="denoised")},  # section 3.2: one table
    classification_head=None,
    objective=T5_OBJECTIVES["prefix_language_model"],
    tokenizer=TokenizerSpec(SentencePieceBPE(8_192), FRAME),  # section 3.1
    sequence_length=128,
    batch_tokens=2048 * 8 * 128,  # section 3.3: 8 examples on each of 2,048 cores
    learning_rate=1e-2,  # section 3.3: for 10,000 steps, then 1 / sqrt(step), with Adafactor
    training_options={
        "optimizer": {"kind": "Adafactor"},
        "schedule": {"kind": "InverseSquareRoot", "warmup": 10_000, "constant_warmup": True},
        "steps": 4_770_000,
        "max_grad_norm": 0.0,
    },
    n_parameters=2_592_492_800,
    weight_names=NATIVE_WEIGHT_NAMES,
    config_mapping=native_config_mapping("meena", EncoderDecoderArchitecture),
    note="The weights were not published. "
    + _DIALOG_NOTE
    + _STATED_NOTE
    + evolved.DIFFERENCES_NOTE
    + "The tokens of a step and the number of steps, which make 10T tokens, could not be checked.",
)
MEENA_MINI = replace(
    MEENA,
    name="meena-mini",
    architecture=evolved.encoder_decoder(
        replace(
            evolved.ENCODER,
            vocab_size=8_292,
            d_model=256,
            n_layers=2,
            n_heads=4,
            d_ff=1024,
            position=Sinusoidal(256),
        ),
        3,
    ),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options=MINI_TRAINING,
    n_parameters=9_200_512,
    note="Not in the paper: for two CPU cores. "
    + _DIALOG_NOTE
    + _STATED_NOTE
    + evolved.DIFFERENCES_NOTE,
)

PRESETS = (MEENA_MINI, MEENA)
