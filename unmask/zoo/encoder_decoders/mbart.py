"""mBART: Liu et al. 2020, arXiv:2001.08210.

"Multilingual Denoising Pre-training for Neural Machine Translation".
"""

from dataclasses import replace

from unmask.model.architecture import PRE_NORM
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.initialize import NormalInit
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.denoising.denoise import DenoisingObjective
from unmask.objectives.denoising.noise import SentencePermutation, TextInfilling
from unmask.tokenizers.spec import MBART, MBART_50, TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram
from unmask.zoo.encoder_decoders import bart, transformer
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING, NEXT_SENTENCE_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="Multilingual Denoising Pre-training for Neural Machine Translation",
    authors="Liu, Gu, Goyal, Li, Edunov, Ghazvininejad, Lewis, Zettlemoyer",
    year=2020,
    arxiv="2001.08210",
)
MBART_50_PAPER = Paper(
    title="Multilingual Translation with Extensible Multilingual Pretraining and Finetuning",
    authors="Tang, Tran, Li, Chen, Goyal, Chaudhary, Gu, Fan",
    year=2020,
    arxiv="2008.00401",
)

# Section 2.2, "Noise function"; in released code the infilling comes second.
DENOISING = DenoisingObjective(
    (SentencePermutation(), TextInfilling(rate=0.35, mean_span_length=3.5))
)
ENCODER = replace(
    bart.ENCODER,
    vocab_size=250_027,  # section 2.1: 250,000 pieces; with 25 languages and what fairseq adds
    d_model=1024,  # section 2.2
    n_layers=12,
    n_heads=16,
    d_ff=4096,
    norm_placement=PRE_NORM,  # released code
    final_norm=True,  # section 2.2: a norm on top of both stacks
    scale_embedding=True,  # released weights
    attention_dropout=0.0,  # released code, `mbart_large`
)
WEIGHT_NAMES = bart.weight_names("into")
CONFIG_KEYS = ConfigKeys(
    """
    normalize_before            fixed     true
    add_final_layer_norm        fixed     true
    """,
    bart.CONFIG_KEYS,
)
CONFIG_MAPPING = bart.config_mapping("mbart", "MBart", ENCODER, CONFIG_KEYS)

_STATED_TRAINING = (
    "Each source has a language (`--data de_DE=FILE en_XX=FILE`), smaller ones are sampled "
    "more often (equation 1): `--sampling-exponent 0.7`. "
)
_NOT_STATED_NOTE = (
    "Sentences are not separated by a token. Classified texts have no language token. "
)
_OPTIMIZER_OPTIONS = (
    "Dropout stays at 0.1; in the paper it decreases to 0.05 at 250,000 steps and to 0 at 400,000. "
    "Rate, warm-up and clipping, which it does not give, are BART's. So is the batch, said "
    "to match BART's, while its 128K tokens on each of 256 GPUs are eight times as many."
)

MBART_LARGE_CC25 = replace(
    bart.BART_LARGE,
    name="mbart-large-cc25",
    family="mbart",
    paper=PAPER,
    architecture=transformer.encoder_decoder(ENCODER),
    objective=DENOISING,
    tokenizer=TokenizerSpec(Unigram(250_027), MBART),
    sequence_length=512,  # section 2.2, "Instance format"
    training_options={
        **bart.BART_LARGE.training_options,
        "steps": 500_000,
    },  # section 2.2, "Optimization"
    n_parameters=610_851_840,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="facebook/mbart-large-cc25",
    note=_STATED_TRAINING + _NOT_STATED_NOTE + _OPTIMIZER_OPTIONS,
)
MBART_LARGE_50 = replace(
    MBART_LARGE_CC25,
    name="mbart-large-50",
    paper=MBART_50_PAPER,
    architecture=transformer.encoder_decoder(replace(ENCODER, vocab_size=250_054)),
    tokenizer=TokenizerSpec(Unigram(250_054), MBART_50),
    n_parameters=610_879_488,
    hub_id="facebook/mbart-large-50",
    note="The language token precedes a text. Initialized from mbart-large-cc25. "
    + _STATED_TRAINING
    + _NOT_STATED_NOTE
    + "Batch, steps and dropout are those of mbart-large-cc25: its own could not be checked.",
)
MBART_MINI: Published = replace(
    MBART_LARGE_CC25,
    name="mbart-mini",
    architecture=transformer.encoder_decoder(
        replace(
            ENCODER, vocab_size=8_192, d_model=256, n_layers=4, n_heads=4, d_ff=1024,
            position=LearnedPositions(512, bart.OFFSET), initializer=NormalInit(0.05),
        )
    ),
    tokenizer=TokenizerSpec(Unigram(8_192), replace(MBART, languages=MBART_50.languages)),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options={**MINI_TRAINING, **NEXT_SENTENCE_TRAINING},
    n_parameters=9_735_168,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of BERT-mini; it has the "
    "52 languages of mBART-50. " + _STATED_TRAINING + "Sentences are not separated by a token.",
)  # fmt: skip

PRESETS = (MBART_MINI, MBART_LARGE_CC25, MBART_LARGE_50)
