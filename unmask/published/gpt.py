"""GPT-2: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.labels import Labels
from unmask.heads.language import Language
from unmask.hiding.objectives import GPT as NEXT_TOKEN
from unmask.model.architecture import PRE, Architecture
from unmask.model.initialize import Normal
from unmask.model.keys import CAUSAL, Keys
from unmask.model.names import Fields, Names, by_table
from unmask.model.parts import LayerNorm
from unmask.model.positions import Learned
from unmask.published.bert import SMALL_SCALE
from unmask.published.card import Paper, Published
from unmask.tokens.vocabulary import GPT2 as FRAME
from unmask.tokens.vocabulary import ByteBPE, TokenizerSpec

PAPER = Paper(
    title="Language Models are Unsupervised Multitask Learners",
    authors="Radford, Wu, Child, Luan, Amodei, Sutskever",
    year=2019,
    url="https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
)

SMALL = Architecture(
    vocab_size=50_257,  # section 2.3
    d_model=768,  # table 2
    n_layers=12,
    n_heads=12,
    d_ff=3072,
    position=Learned(1024),  # section 2.3
    norm=LayerNorm(eps=1e-5),  # released code
    norm_at=PRE,  # section 2.3
    norm_final=True,  # section 2.3
    activation="gelu_tanh",  # released code
    causal=True,
    dropout=0.1,  # not stated; as the first GPT, and in transformers
    attention_dropout=0.1,
    initialize=Normal(0.02, residual=24),  # section 2.3: 1 / sqrt(residual layers); released code
)
HEADS = {"language": Language(term="next_token")}
LABELS = Labels(pool="last", dense=False, bias=False, dropout=0.0)

NAMES = Names(
    """
    backbone.tokens                           transformer.wte
    backbone.position.table                   transformer.wpe
    backbone.layers.*.attention_norm.into     transformer.h.*.ln_1
    backbone.layers.*.attention.q + backbone.layers.*.attention.k + backbone.layers.*.attention.v transformer.h.*.attn.c_attn transposed
    backbone.layers.*.attention.o             transformer.h.*.attn.c_proj  transposed
    backbone.layers.*.feed_forward_norm.into  transformer.h.*.ln_2
    backbone.layers.*.feed_forward.up         transformer.h.*.mlp.c_fc     transposed
    backbone.layers.*.feed_forward.down       transformer.h.*.mlp.c_proj   transposed
    backbone.final_norm                       transformer.ln_f
    heads.language.out                        lm_head
    backbone.tokens                           lm_head                      tied
    heads.label.out                           score
    heads.token_label.out                     classifier
    heads.spans.out                           qa_outputs
    -                                         transformer.h.*.attn
    -                                         transformer.h.*.attn.masked_bias
    """,  # noqa: E501 - a line is a rule
    prefix="transformer.",
)

_READ, _WRITE = by_table(
    {
        "vocab_size": "vocab_size",
        "d_model": "n_embd",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "d_ff": "n_inner",
        "position.length": "n_positions",
        "norm.eps": "layer_norm_epsilon",
        "activation": "activation_function",
        "dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
        "initialize.std": "initializer_range",
    },
    SMALL,
    {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
)


def _read(theirs: Mapping[str, Any]) -> Architecture:
    a = _READ(theirs)
    a = replace(a, initialize=Normal(a.initialize.std, residual=2 * a.n_layers))  # type: ignore[union-attr]
    return a if theirs.get("n_inner") else replace(a, d_ff=4 * a.d_model)


def _write(a: Architecture) -> dict[str, Any]:
    return _WRITE(a) | {"embd_pdrop": a.dropout}


KEYS = Keys(
    """
    vocab_size                       used      size
    n_embd                           used      size
    n_layer                          used      layers
    n_head                           used      size@n_embd
    hidden_size                      alias     n_embd
    num_hidden_layers                alias     n_layer
    num_attention_heads              alias     n_head
    n_positions                      used      size       1024
    max_position_embeddings          alias     n_positions
    resid_pdrop                      used      share      0.1
    embd_pdrop                       harmless  share
    attn_pdrop                       used      share      0.1
    layer_norm_epsilon               used      positive   1e-5
    initializer_range                used      number     0.02
    summary_type                     harmless
    summary_use_proj                 harmless
    summary_activation               harmless
    summary_proj_to_labels           harmless
    summary_first_dropout            harmless  share
    summary_last_dropout             harmless  share
    tie_word_embeddings              used      flag       true
    """,
    CAUSAL,
)
"""Also of the first GPT. No head of ours reads summaries."""
SECOND = Keys(
    """
    n_inner                          used      size?      null
    activation_function              used      word       gelu_new
    scale_attn_weights               fixed     true
    scale_attn_by_inverse_layer_idx  fixed     false
    reorder_and_upcast_attn          harmless
    add_cross_attention              fixed     false
    classifier_dropout               harmless  share?
    hidden_dropout                   harmless  share?
    """,
    KEYS,
)
FIELDS = Fields(
    model_type="gpt2",
    keys=SECOND,
    read=_read,
    write=_write,
    classes={
        ("language",): "GPT2LMHeadModel",
        ("label",): "GPT2ForSequenceClassification",
        ("token_label",): "GPT2ForTokenClassification",
        ("spans",): "GPT2ForQuestionAnswering",
        (): "GPT2Model",
    },
)

UNSAID = (
    "The paper says no rate (each model had its own), optimizer, schedule or dropout: rate and "
    "dropout are the first GPT's, the rest is what every recipe begins with."
)
GPT2 = Published(
    name="gpt2",
    family="gpt2",
    paper=PAPER,
    architecture=SMALL,
    heads=HEADS,
    labels=LABELS,
    objective=NEXT_TOKEN,
    tokenizer=TokenizerSpec(ByteBPE(50_257), FRAME),
    length=1024,  # section 2.3
    batch_tokens=512 * 1024,  # section 2.3
    rate=2.5e-4,  # not stated; the first GPT's
    parameters=124_439_808,
    names=NAMES,
    fields=FIELDS,
    hub="openai-community/gpt2",
    note=f"The paper counts 117M; the released weights have 124M. {UNSAID}",
)


def _sized(name: str, parameters: int, d_model: int, n_layers: int, n_heads: int) -> Published:
    """Return another row of the paper's table 2 (heads from the released code)."""
    architecture = replace(
        SMALL,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_ff=4 * d_model,
        initialize=Normal(0.02, residual=2 * n_layers),
    )
    return replace(
        GPT2,
        name=name,
        architecture=architecture,
        parameters=parameters,
        hub=f"openai-community/{name}",
        note=UNSAID,
    )


GPT2_MEDIUM = _sized("gpt2-medium", 354_823_168, 1024, 24, 16)
GPT2_LARGE = _sized("gpt2-large", 774_030_080, 1280, 36, 20)
GPT2_XL = _sized("gpt2-xl", 1_557_611_200, 1600, 48, 25)

_MINI = _sized("gpt2-mini", 5_387_776, 256, 4, 4)
GPT2_MINI = replace(
    _MINI,
    architecture=replace(_MINI.architecture, vocab_size=8_192, position=Learned(512)),  # type: ignore[type-var]
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
    length=256,
    batch_tokens=4_096,
    rate=3e-3,
    training=SMALL_SCALE,
    hub=None,
    note="Not in the paper: for two CPU cores, with the width and depth of BERT-mini.",
)

CARDS = (GPT2_MINI, GPT2, GPT2_MEDIUM, GPT2_LARGE, GPT2_XL)
