"""GPT-NeoX: Black et al. 2022, arXiv:2204.06745; Pythia: Biderman et al. 2023, arXiv:2304.01373.

"GPT-NeoX-20B: An Open-Source Autoregressive Language Model", "Pythia: A Suite for Analyzing Large
Language Models Across Training and Scaling". "Released configuration" are `configs/20B.yml` of
github.com/EleutherAI/gpt-neox and `models/*/*.yml` of github.com/EleutherAI/pythia.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import ALL_BIASES, PRE_NORM, BiasLocation
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import CAUSAL_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, check_fixed_keys, config_functions
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.rotary import Rotary
from unmask.model.variants import ParallelSublayers, SequentialSublayers
from unmask.objectives.published import CAUSAL_LM as NEXT_TOKEN
from unmask.tokenizers.spec import QWEN as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE
from unmask.zoo import rope_parameters
from unmask.zoo.decoders import llama
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="GPT-NeoX-20B: An Open-Source Autoregressive Language Model",
    authors="Black, Biderman, Hallahan, Anthony, Gao, Golding, He, Leahy, McDonell, Phang, Pieler, "
    "Prashanth, Purohit, Reynolds, Tow, Wang, Weinbach",
    year=2022,
    arxiv="2204.06745",
)
PYTHIA_PAPER = Paper(
    title="Pythia: A Suite for Analyzing Large Language Models Across Training and Scaling",
    authors="Biderman, Schoelkopf, Anthony, Bradley, O'Brien, Hallahan, Khan, Purohit, Prashanth, "
    "Raff, Skowron, Sutawika, van der Wal",
    year=2023,
    arxiv="2304.01373",
)

BASE = Architecture(
    vocab_size=50_432,  # section 3.2: 50,257, padded to a multiple of 128 (released code)
    d_model=6144,  # section 2
    n_layers=44,
    n_heads=64,
    d_ff=24_576,  # released code
    position=Rotary(10_000.0, 2048, partial_rotary_factor=0.25),  # section 2.1
    norm=LayerNorm(eps=1e-5),  # released code
    norm_placement=PRE_NORM,
    final_norm=True,
    sublayers=ParallelSublayers(),  # section 2.1: two norms, by an oversight
    activation="gelu",
    biases=ALL_BIASES,
    causal=True,
    dropout=0.0,  # released configuration
    attention_dropout=0.0,
    initializer=NormalInit(
        0.02
    ),  # transformers; section 2.1 has others (`small_init`, `wang_init`)
)

WEIGHT_NAMES = WeightNames(
    """
    backbone.tokens                           gpt_neox.embed_in
    backbone.layers.*.attention_norm.into     gpt_neox.layers.*.input_layernorm
    backbone.layers.*.feed_forward_norm.into  gpt_neox.layers.*.post_attention_layernorm
    backbone.layers.*.attention.q + backbone.layers.*.attention.k + backbone.layers.*.attention.v gpt_neox.layers.*.attention.query_key_value by_head
    backbone.layers.*.attention.o             gpt_neox.layers.*.attention.dense
    backbone.layers.*.feed_forward.up         gpt_neox.layers.*.mlp.dense_h_to_4h
    backbone.layers.*.feed_forward.down       gpt_neox.layers.*.mlp.dense_4h_to_h
    backbone.final_norm                       gpt_neox.final_layer_norm
    heads.language.out                        embed_out
    heads.language.out                        lm_head
    backbone.tokens                           embed_out                    tied
    backbone.tokens                           lm_head                      tied
    heads.label.out                           score
    heads.token_label.out                     classifier
    heads.spans.out                           qa_outputs
    -                                         gpt_neox.layers.*.attention
    -                                         gpt_neox.layers.*.attention.masked_bias
    -                                         gpt_neox.layers.*.attention.rotary_emb.inv_freq
    """,  # noqa: E501 - a line is a rule
    prefix="gpt_neox.",
)

_READ_CONFIG, _WRITE_CONFIG = config_functions(
    {
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "d_ff": "intermediate_size",
        "norm.eps": "layer_norm_eps",
        "activation": "hidden_act",
        "dropout": "hidden_dropout",
        "attention_dropout": "attention_dropout",
        "initializer.std": "initializer_range",
    },
    BASE,
    {},
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    beside = {
        "rope_theta": config.get("rotary_emb_base", 10_000.0),
        "partial_rotary_factor": config.get("rotary_pct", 0.25),
    }  # names of other families, not read here
    values = rope_parameters.rope_parameters({**config, **beside})
    attention: frozenset[BiasLocation] = frozenset({"read", "write"})
    a = _READ_CONFIG(config)
    check_fixed_keys(config, {"head_dim": a.d_head})
    position = rope_parameters.rotary_from_parameters(
        values, config.get("max_position_embeddings") or 2048, partial=True
    )
    return replace(
        a,
        position=rope_parameters.check_rotary_pairs(position, a.d_head),
        sublayers=ParallelSublayers()
        if config.get("use_parallel_residual", True)
        else SequentialSublayers(),
        biases=ALL_BIASES if config.get("attention_bias", True) else ALL_BIASES - attention,
    )


def _write_config(a: Architecture) -> dict[str, Any]:
    if a.sublayers == ParallelSublayers(shared_norm=True) or "feed_forward" not in a.biases:
        raise ValueError("GPT-NeoX's format has two norms a layer, and biases in its feed-forward")
    position = rope_parameters.rotary_of(a)
    return _WRITE_CONFIG(a) | {
        "max_position_embeddings": position.max_positions,
        "rope_parameters": {"partial_rotary_factor": 1.0}
        | rope_parameters.parameters_from_rotary(position),
        "use_parallel_residual": isinstance(a.sublayers, ParallelSublayers),
        "attention_bias": "read" in a.biases,
    }


CONFIG_KEYS = ConfigKeys(
    """
    vocab_size                used      size
    hidden_size               used      size
    num_hidden_layers         used      layers
    num_attention_heads       used      size@hidden_size
    head_dim                  used      size       -
    intermediate_size         used      size       24576
    hidden_act                used      word       gelu
    attention_dropout         used      share      0.0
    hidden_dropout            used      share      0.0
    classifier_dropout        harmless  share
    max_position_embeddings   used      size       2048
    initializer_range         used      number     0.02
    layer_norm_eps            used      positive   1e-5
    tie_word_embeddings       used      flag       false
    use_parallel_residual     used      flag       true
    attention_bias            used      flag       true
    is_decoder                harmless
    rope_theta                harmless
    partial_rotary_factor     harmless
    rotary_emb_base           used      positive   -
    rotary_pct                used      positive   -
    """,
    CAUSAL_KEYS,
    rope_parameters.CONFIG_KEYS,
)
CONFIG_MAPPING = ConfigMapping(
    model_type="gpt_neox",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names=llama.class_names("GPTNeoX") | {("spans",): "GPTNeoXForQuestionAnswering"},
)

GPT_NEOX_20B = Published(
    name="gpt-neox-20b",
    family="gpt_neox",
    paper=PAPER,
    architecture=BASE,
    heads={"language": LanguageModeling(term="next_token", tie_embeddings=False)},
    classification_head=llama.CLASSIFICATION_HEAD,
    objective=NEXT_TOKEN,
    tokenizer=TokenizerSpec(ByteBPE(50_257, nfc_normalization=True), FRAME),
    sequence_length=2048,  # section 3
    batch_tokens=1538 * 2048,  # section 3: about 3.15M
    learning_rate=0.97e-4,  # released configuration; section 3 prints 0.97e-5
    training_options={
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.01},
        "schedule": {
            "kind": "Cosine",
            "warmup": 0.01,
            "final_fraction": 0.1,
        },  # section 3; warm-up: below
        "max_grad_norm": 1.0,  # released configuration, as the warm-up
        "steps": 150_000,  # section 3
    },
    n_parameters=20_554_567_680,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="EleutherAI/gpt-neox-20b",
)


def _pythia(name: str, parameters: int, rate: float, **changes: Any) -> Published:
    """Return a row of Pythia's table 1; the rest is the released configuration's."""
    vocab_size = changes.pop("vocab_size", 50_304)
    optimizer = {**GPT_NEOX_20B.training_options["optimizer"], "weight_decay": 0.1}
    return llama.with_size(
        GPT_NEOX_20B,
        f"pythia-{name}",
        parameters,
        paper=PYTHIA_PAPER,
        learning_rate=rate,
        batch_tokens=1024 * 2048,
        hub_id=f"EleutherAI/pythia-{name}",
        training_options={
            **GPT_NEOX_20B.training_options,
            "optimizer": optimizer,
            "steps": 143_000,
        },
        vocab_size=vocab_size,
        d_ff=4 * changes["d_model"],
        **changes,
    )


LEARNING_RATE_1B = "Rate of table 1; 2.5e-4 in the released configuration."
PYTHIA_PRESETS = (
    _pythia("70m", 70_426_624, 1e-3, d_model=512, n_layers=6, n_heads=8),
    _pythia("160m", 162_322_944, 6e-4, d_model=768, n_layers=12, n_heads=12),
    _pythia("410m", 405_334_016, 3e-4, d_model=1024, n_layers=24, n_heads=16),
    _pythia("1b", 1_011_781_632, 3e-4, d_model=2048, n_layers=16, n_heads=8, note=LEARNING_RATE_1B),
    _pythia("1.4b", 1_414_647_808, 2e-4, d_model=2048, n_layers=24, n_heads=16),
    _pythia("2.8b", 2_775_208_960, 1.6e-4, d_model=2560, n_layers=32, n_heads=32),
    _pythia(
        "6.9b", 6_857_302_016, 1.2e-4, d_model=4096, n_layers=32, n_heads=32, vocab_size=50_432
    ),
    _pythia(
        "12b", 11_846_072_320, 1.2e-4, d_model=5120, n_layers=36, n_heads=40, vocab_size=50_688
    ),
)
GPT_NEOX_MINI = llama.mini_preset(
    GPT_NEOX_20B,
    "gpt-neox-mini",
    5_256_704,
    d_ff=1024,
    position=Rotary(10_000.0, 512, partial_rotary_factor=0.25),
    heads=llama.TIED_HEADS,
)

PRESETS = (GPT_NEOX_MINI, GPT_NEOX_20B, *PYTHIA_PRESETS)
