"""GPT-2: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import PRE_NORM
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import CAUSAL_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.published import CAUSAL_LM as NEXT_TOKEN
from unmask.tokenizers.spec import GPT2 as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="Language Models are Unsupervised Multitask Learners",
    authors="Radford, Wu, Child, Luan, Amodei, Sutskever",
    year=2019,
    url="https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
)

SMALL_ARCHITECTURE = Architecture(
    vocab_size=50_257,  # section 2.3
    d_model=768,  # table 2
    n_layers=12,
    n_heads=12,
    d_ff=3072,
    position=LearnedPositions(1024),  # section 2.3
    norm=LayerNorm(eps=1e-5),  # released code
    norm_placement=PRE_NORM,  # section 2.3
    final_norm=True,  # section 2.3
    activation="gelu_tanh",  # released code
    causal=True,
    dropout=0.1,  # not stated; as the first GPT, and in transformers
    attention_dropout=0.1,
    initializer=NormalInit(
        0.02, n_residual_branches=24
    ),  # section 2.3: 1 / sqrt(residual layers); released code
)
HEADS = {"language": LanguageModeling(term="next_token")}
CLASSIFICATION_HEAD = SequenceClassification(
    pooling="last", dense_layer=False, bias=False, dropout=0.0
)

WEIGHT_NAMES = WeightNames(
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

_READ_CONFIG, _WRITE_CONFIG = config_functions(
    {
        "vocab_size": "vocab_size",
        "d_model": "n_embd",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "d_ff": "n_inner",
        "position.max_positions": "n_positions",
        "norm.eps": "layer_norm_epsilon",
        "activation": "activation_function",
        "dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
        "initializer.std": "initializer_range",
    },
    SMALL_ARCHITECTURE,
    {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a = _READ_CONFIG(config)
    a = replace(a, initializer=NormalInit(a.initializer.std, n_residual_branches=2 * a.n_layers))  # type: ignore[union-attr]
    return a if config.get("n_inner") else replace(a, d_ff=4 * a.d_model)


def _write_config(a: Architecture) -> dict[str, Any]:
    return _WRITE_CONFIG(a) | {"embd_pdrop": a.dropout}


CONFIG_KEYS = ConfigKeys(
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
    CAUSAL_KEYS,
)
"""Also of the first GPT. Summary keys are not used by any head."""
GPT_2_KEYS = ConfigKeys(
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
    CONFIG_KEYS,
)
CONFIG_MAPPING = ConfigMapping(
    model_type="gpt2",
    config_keys=GPT_2_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={
        ("language",): "GPT2LMHeadModel",
        ("label",): "GPT2ForSequenceClassification",
        ("token_label",): "GPT2ForTokenClassification",
        ("spans",): "GPT2ForQuestionAnswering",
        (): "GPT2Model",
    },
)

NOT_STATED_NOTE = (
    "The paper gives no rate (each model had its own), optimizer, schedule or dropout: rate and "
    "dropout are the first GPT's, the rest are the defaults of recipes."
)
GPT2 = Published(
    name="gpt2",
    family="gpt2",
    paper=PAPER,
    architecture=SMALL_ARCHITECTURE,
    heads=HEADS,
    classification_head=CLASSIFICATION_HEAD,
    objective=NEXT_TOKEN,
    tokenizer=TokenizerSpec(ByteBPE(50_257), FRAME),
    sequence_length=1024,  # section 2.3
    batch_tokens=512 * 1024,  # section 2.3
    learning_rate=2.5e-4,  # not stated; the first GPT's
    n_parameters=124_439_808,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="openai-community/gpt2",
    note=f"The paper counts 117M; the released weights have 124M. {NOT_STATED_NOTE}",
)


def _with_size(name: str, parameters: int, d_model: int, n_layers: int, n_heads: int) -> Published:
    """Return another row of the paper's table 2 (heads from the released code)."""
    architecture = replace(
        SMALL_ARCHITECTURE,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_ff=4 * d_model,
        initializer=NormalInit(0.02, n_residual_branches=2 * n_layers),
    )
    return replace(
        GPT2,
        name=name,
        architecture=architecture,
        n_parameters=parameters,
        hub_id=f"openai-community/{name}",
        note=NOT_STATED_NOTE,
    )


GPT2_MEDIUM = _with_size("gpt2-medium", 354_823_168, 1024, 24, 16)
GPT2_LARGE = _with_size("gpt2-large", 774_030_080, 1280, 36, 20)
GPT2_XL = _with_size("gpt2-xl", 1_557_611_200, 1600, 48, 25)

_MINI = _with_size("gpt2-mini", 5_387_776, 256, 4, 4)
GPT2_MINI = replace(
    _MINI,
    architecture=replace(_MINI.architecture, vocab_size=8_192, position=LearnedPositions(512)),  # type: ignore[type-var]
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
    sequence_length=256,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options=MINI_TRAINING,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of BERT-mini.",
)

PRESETS = (GPT2_MINI, GPT2, GPT2_MEDIUM, GPT2_LARGE, GPT2_XL)
