"""GPT-NeoX: Black et al. 2022, arXiv:2204.06745; Pythia: Biderman et al. 2023, arXiv:2304.01373.

"GPT-NeoX-20B: An Open-Source Autoregressive Language Model", "Pythia: A Suite for Analyzing Large
Language Models Across Training and Scaling". "Released configuration" are `configs/20B.yml` of
github.com/EleutherAI/gpt-neox and `models/*/*.yml` of github.com/EleutherAI/pythia.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.language import Language
from unmask.hiding.objectives import GPT as NEXT_TOKEN
from unmask.model.architecture import BIASED, PRE, Architecture, Biased
from unmask.model.initialize import Normal
from unmask.model.keys import CAUSAL, Keys
from unmask.model.names import Fields, Names, by_table, refuse
from unmask.model.parts import LayerNorm
from unmask.model.positions import Rotary
from unmask.published import llama, rotary
from unmask.published.card import Paper, Published
from unmask.tokens.vocabulary import QWEN as FRAME
from unmask.tokens.vocabulary import ByteBPE, TokenizerSpec

PAPER = Paper(
    title="GPT-NeoX-20B: An Open-Source Autoregressive Language Model",
    authors="Black, Biderman, Hallahan, Anthony, Gao, Golding, He, Leahy, McDonell, Phang, Pieler, "
    "Prashanth, Purohit, Reynolds, Tow, Wang, Weinbach",
    year=2022,
    arxiv="2204.06745",
)
PYTHIA = Paper(
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
    position=Rotary(10_000.0, 2048, share=0.25),  # section 2.1
    norm=LayerNorm(eps=1e-5),  # released code
    norm_at=PRE,
    norm_final=True,
    parallel="own_norms",  # section 2.1: two norms, by an oversight
    activation="gelu",
    bias=BIASED,
    causal=True,
    dropout=0.0,  # released configuration
    attention_dropout=0.0,
    initialize=Normal(0.02),  # transformers; section 2.1 has others (`small_init`, `wang_init`)
)

NAMES = Names(
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

_READ, _WRITE = by_table(
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
        "initialize.std": "initializer_range",
    },
    BASE,
    {},
)


def _read(theirs: Mapping[str, Any]) -> Architecture:
    beside = {
        "rope_theta": theirs.get("rotary_emb_base", 10_000.0),
        "partial_rotary_factor": theirs.get("rotary_pct", 0.25),
    }  # where other families have these two names: they are not read here
    said = rotary.one_for_all({**theirs, **beside})
    attention: frozenset[Biased] = frozenset({"read", "write"})
    a = _READ(theirs)
    refuse(theirs, {"head_dim": a.d_head})
    position = rotary.scheme(said, theirs.get("max_position_embeddings") or 2048, partial=True)
    return replace(
        a,
        position=rotary.paired(position, a.d_head),
        parallel="own_norms" if theirs.get("use_parallel_residual", True) else None,
        bias=BIASED if theirs.get("attention_bias", True) else BIASED - attention,
    )


def _write(a: Architecture) -> dict[str, Any]:
    if a.parallel == "one_norm" or "feed_forward" not in a.bias:
        raise ValueError("GPT-NeoX's format has two norms a layer, and biases in its feed-forward")
    position = rotary.angles(a)
    return _WRITE(a) | {
        "max_position_embeddings": position.length,
        "rope_parameters": {"partial_rotary_factor": 1.0} | rotary.their_table(position),
        "use_parallel_residual": a.parallel is not None,
        "attention_bias": "read" in a.bias,
    }


KEYS = Keys(
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
    CAUSAL,
    rotary.KEYS,
)
FIELDS = Fields(
    model_type="gpt_neox",
    keys=KEYS,
    read=_read,
    write=_write,
    classes=llama.classes("GPTNeoX") | {("spans",): "GPTNeoXForQuestionAnswering"},
)

GPT_NEOX_20B = Published(
    name="gpt-neox-20b",
    family="gpt_neox",
    paper=PAPER,
    architecture=BASE,
    heads={"language": Language(term="next_token", tied=False)},
    labels=llama.LABELS,
    objective=NEXT_TOKEN,
    tokenizer=TokenizerSpec(ByteBPE(50_257, nfc=True), FRAME),
    length=2048,  # section 3
    batch_tokens=1538 * 2048,  # section 3: about 3.15M
    rate=0.97e-4,  # released configuration; section 3 prints 0.97e-5
    training={
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.01},
        "schedule": {"kind": "Cosine", "warmup": 0.01, "floor": 0.1},  # section 3; warm-up: below
        "clip": 1.0,  # released configuration, as the warm-up
        "steps": 150_000,  # section 3
    },
    parameters=20_554_567_680,
    names=NAMES,
    fields=FIELDS,
    hub="EleutherAI/gpt-neox-20b",
)


def _pythia(name: str, parameters: int, rate: float, **changes: Any) -> Published:
    """Return a row of Pythia's table 1; the rest is the released configuration's."""
    vocab_size = changes.pop("vocab_size", 50_304)
    optimizer = {**GPT_NEOX_20B.training["optimizer"], "weight_decay": 0.1}
    return llama.sized(
        GPT_NEOX_20B, f"pythia-{name}", parameters,
        paper=PYTHIA, rate=rate, batch_tokens=1024 * 2048, hub=f"EleutherAI/pythia-{name}",
        training={**GPT_NEOX_20B.training, "optimizer": optimizer, "steps": 143_000},
        vocab_size=vocab_size, d_ff=4 * changes["d_model"], **changes,
    )  # fmt: skip


RATE_OF_1B = "Rate of table 1; 2.5e-4 in the released configuration."
PYTHIAS = (
    _pythia("70m", 70_426_624, 1e-3, d_model=512, n_layers=6, n_heads=8),
    _pythia("160m", 162_322_944, 6e-4, d_model=768, n_layers=12, n_heads=12),
    _pythia("410m", 405_334_016, 3e-4, d_model=1024, n_layers=24, n_heads=16),
    _pythia("1b", 1_011_781_632, 3e-4, d_model=2048, n_layers=16, n_heads=8, note=RATE_OF_1B),
    _pythia("1.4b", 1_414_647_808, 2e-4, d_model=2048, n_layers=24, n_heads=16),
    _pythia("2.8b", 2_775_208_960, 1.6e-4, d_model=2560, n_layers=32, n_heads=32),
    _pythia(
        "6.9b", 6_857_302_016, 1.2e-4, d_model=4096, n_layers=32, n_heads=32, vocab_size=50_432
    ),
    _pythia(
        "12b", 11_846_072_320, 1.2e-4, d_model=5120, n_layers=36, n_heads=40, vocab_size=50_688
    ),
)
GPT_NEOX_MINI = llama.mini(
    GPT_NEOX_20B, "gpt-neox-mini", 5_256_704, d_ff=1024, position=Rotary(10_000.0, 512, share=0.25),
    heads=llama.TIED,
)  # fmt: skip

CARDS = (GPT_NEOX_MINI, GPT_NEOX_20B, *PYTHIAS)
