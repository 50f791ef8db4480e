"""PaLM: Chowdhery et al. 2022, arXiv:2204.02311.

"PaLM: Scaling Language Modeling with Pathways".
"""

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import NO_BIASES, PRE_NORM
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.model.initialize import FanInInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.rotary import Rotary
from unmask.model.variants import ParallelSublayers
from unmask.objectives.published import CAUSAL_LM as NEXT_TOKEN
from unmask.tokenizers.spec import LLAMA as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import SentencePieceBPE
from unmask.zoo.decoders import llama
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="PaLM: Scaling Language Modeling with Pathways",
    authors="Chowdhery, Narang, Devlin, et al.",
    year=2022,
    arxiv="2204.02311",
)

BASE = Architecture(
    vocab_size=256_000,  # section 2: 256k
    d_model=4096,  # table 1
    n_layers=32,
    n_heads=16,
    n_kv_heads=1,  # section 2: multi-query
    head_dim=256,  # section 2.1
    d_ff=16_384,  # section 2.1: four times d_model
    position=Rotary(10_000.0, 2048),  # section 2
    norm=LayerNorm(eps=1e-6, bias=False),  # section 2; epsilon not stated
    norm_placement=PRE_NORM,
    final_norm=True,
    sublayers=ParallelSublayers(shared_norm=True),  # section 2
    activation="silu",
    gated_feed_forward=True,  # section 2
    biases=NO_BIASES,  # section 2
    causal=True,
    dropout=0.0,  # section 5
    attention_dropout=0.0,
    initializer=FanInInit(scale_queries=False),  # section 5
)

PALM_8B = Published(
    name="palm-8b",
    family="palm",
    paper=PAPER,
    architecture=BASE,
    heads={
        "language": LanguageModeling(term="next_token", scale_hidden=True)
    },  # section 2; section 5
    classification_head=llama.CLASSIFICATION_HEAD,
    objective=NEXT_TOKEN,
    tokenizer=TokenizerSpec(SentencePieceBPE(256_000), FRAME),
    sequence_length=2048,  # section 5
    batch_tokens=256 * 2048,  # table 1: at the start; twice as large later
    learning_rate=1e-2,  # section 5: for 10,000 steps, then 1 / sqrt(step), with Adafactor
    training_options={  # section 5
        "optimizer": {"kind": "Adafactor"},
        "schedule": {"kind": "InverseSquareRoot", "warmup": 10_000, "constant_warmup": True},
        "max_grad_norm": 1.0,
    },
    n_parameters=8_632_012_800,
    weight_names=NATIVE_WEIGHT_NAMES,
    config_mapping=native_config_mapping("palm"),
    note="The weights were not published. The rate is Adafactor's, relative to a matrix's "
    "scale; AdamW needs another.",
)
PALM_62B = llama.with_size(
    PALM_8B, "palm-62b", 62_495_662_080, d_model=8192, n_layers=64, n_heads=32, d_ff=32_768,
    batch_tokens=512 * 2048,  # table 1
)  # fmt: skip
PALM_540B = llama.with_size(
    PALM_62B, "palm-540b", 540_356_474_880, d_model=18_432, n_layers=118, n_heads=48, d_ff=73_728,
)  # fmt: skip
PALM_MINI = llama.mini_preset(
    PALM_8B, "palm-mini", 4_916_480, head_dim=None, d_ff=704,
)  # fmt: skip

PRESETS = (PALM_MINI, PALM_8B, PALM_62B, PALM_540B)
