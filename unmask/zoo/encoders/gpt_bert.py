"""GPT-BERT: Charpentier and Samuel 2024, arXiv:2410.24159.

"GPT or BERT: why not both?": one network for masked next-token prediction and causal language
modeling. Its blocks are those of LTG-BERT (Samuel et al. 2023, arXiv:2303.09859) with gates and
depth-weighted averages. "Released code" is github.com/ltgoslo/gpt-bert.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling, ShiftedTargetGeneration
from unmask.model.architecture import SUB_LN
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import COMMON_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions, require_key
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import SmallInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.disentangled import DisentangledAttention
from unmask.model.variants import AttentionVariant, DepthWeightedSublayers
from unmask.objectives.published import GPT_BERT as MASKED_AND_FORWARD
from unmask.tokenizers.spec import GPT_BERT as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="GPT or BERT: why not both?",
    authors="Charpentier, Samuel",
    year=2024,
    arxiv="2410.24159",
)


def disentangled_positions(length: int, buckets: int, eps: float) -> DisentangledAttention:
    """Return DeBERTa's positions with content projections, log buckets and a learned norm."""
    norm = LayerNorm(eps)
    return DisentangledAttention(
        length,
        length,
        n_buckets=buckets,
        share_projections=True,
        distance_norm=norm,
        symmetric=True,
    )


BASE = Architecture(
    vocab_size=16_384,  # released configuration, as all sizes
    d_model=768,
    n_layers=12,
    n_heads=12,
    d_ff=2560,
    position=disentangled_positions(512, 32, 1e-5),  # released configuration
    norm=LayerNorm(eps=1e-5, bias=False, weight=False),  # released code; none has a weight
    norm_placement=SUB_LN,  # released code
    embedding_norm=True,  # released code
    final_norm=True,  # released code: the first step of each head
    attention=AttentionVariant(gate="gelu"),  # released code
    sublayers=DepthWeightedSublayers(),  # released code, `DWAModules`
    activation="gelu_tanh",  # released code
    gated_feed_forward=True,
    biases=frozenset({"read", "write"}),  # released code
    dropout=0.1,  # released configuration
    attention_dropout=0.1,
    initializer=SmallInit(),  # released code
)
HEADS = {
    "language": LanguageModeling(
        transform="gelu", transform_bias=True, bias=True, generation=ShiftedTargetGeneration()
    )  # released code, `MaskClassifier`
}
CLASSIFICATION_HEAD = SequenceClassification(
    activation="gelu"
)  # released code, `ClassifierHead`, but its second norm

_LAYER = "transformer.attention_layers.*"
_QK, _VG = (
    " + ".join(f"backbone.layers.*.attention.{name}" for name in pair)
    for pair in (("q", "k"), ("v", "gate"))
)
_UP = "backbone.layers.*.feed_forward.up + backbone.layers.*.feed_forward.gate"
WEIGHT_NAMES = WeightNames(
    f"""
    backbone.tokens                              embedding.word_embedding
    backbone.position.table.weight               embedding.relative_embedding
    backbone.position.norm                       embedding.relative_layer_norm
    {_QK}                                        {_LAYER}.in_proj_qk
    {_VG}                                        {_LAYER}.in_proj_vg
    backbone.layers.*.attention.o                {_LAYER}.out_proj
    {_UP}                                        transformer.mlp_layers.*.mlp.1
    backbone.layers.*.feed_forward.down          transformer.mlp_layers.*.mlp.4
    backbone.mix.*                               transformer.dwa_modules.alphas.*
    heads.language.dense                         classifier.nonlinearity.1
    heads.language.bias                          classifier.nonlinearity.5.bias
    heads.language.out                           classifier.nonlinearity.5
    backbone.tokens                              classifier.nonlinearity.5                tied
    -                                            {_LAYER}.position_indices
    """,
)
"""As in the released code for pretraining, model_extra.py."""

FIELD_TABLE = {
    ours: bert.FIELD_TABLE[ours]
    for ours in (
        "vocab_size", "d_model", "n_layers", "n_heads", "d_ff", "norm.eps", "dropout",
        "attention_dropout",
    )
}  # fmt: skip
_READ_CONFIG, _WRITE_CONFIG = config_functions(FIELD_TABLE, BASE, {})


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a = _READ_CONFIG(config)
    length = int(config.get("max_position_embeddings", 512))
    buckets = int(require_key(config, "position_bucket_size"))
    return replace(a, position=disentangled_positions(length, buckets, a.norm.eps))


def _write_config(a: Architecture) -> dict[str, Any]:
    position = a.position
    if not isinstance(position, DisentangledAttention) or position != disentangled_positions(
        position.max_positions, position.n_buckets_per_side, a.norm.eps
    ):
        raise ValueError(f"GPT-BERT's format has only GPT-BERT's positions, got {position}")
    return _WRITE_CONFIG(a) | {
        "max_position_embeddings": position.max_positions,
        "position_bucket_size": position.n_buckets_per_side,
    }


CONFIG_KEYS = ConfigKeys(
    """
    vocab_size                    used      size
    hidden_size                   used      size
    num_hidden_layers             used      layers
    num_attention_heads           used      size@hidden_size
    intermediate_size             used      size       2560
    max_position_embeddings       used      size       512
    position_bucket_size          used      size
    layer_norm_eps                used      positive   -
    hidden_dropout_prob           used      share      -
    attention_probs_dropout_prob  used      share      -
    """,
    COMMON_KEYS,
)
CONFIG_MAPPING = ConfigMapping(
    model_type="gpt_bert",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={("language",): "GPTBERTForMaskedLM", (): "GPTBERT"},
    in_transformers=False,
    identifying_keys=frozenset({"position_bucket_size"}),
)

GPT_BERT_BASE = Published(
    name="gpt-bert-base",
    family="gpt-bert",
    paper=PAPER,
    architecture=BASE,
    heads=HEADS,
    classification_head=CLASSIFICATION_HEAD,
    objective=MASKED_AND_FORWARD,
    tokenizer=TokenizerSpec(ByteBPE(16_384), FRAME),  # released configuration
    sequence_length=128,  # released code, for 70 % of the steps
    batch_tokens=32_768 * 128,  # released code, at the end
    learning_rate=1e-2,  # released code
    training_options={  # released code
        "schedule": {"kind": "Cosine", "warmup": 0.016, "final_fraction": 0.1},
        "steps": 15_625,
        "optimizer": {"kind": "LAMB", "betas": [0.9, 0.98], "eps": 1e-8, "weight_decay": 0.1},
        "max_grad_norm": 2.0,
    },
    n_parameters=119_454_532,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="ltg/gpt-bert-babylm-base",
    note="Settings are those of the released code for 100 million words. There rows become four "
    "times as long and the batch grows, the last steps cool down, weights are averaged, and "
    "a z-loss keeps scores near 0: not here. Weights are read in the layout of that code.",
)
GPT_BERT_SMALL = replace(
    GPT_BERT_BASE,
    name="gpt-bert-small",
    architecture=replace(BASE, vocab_size=8_192, d_model=384, n_heads=6, d_ff=1280),
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),  # released configuration
    learning_rate=1.41e-2,
    training_options={**GPT_BERT_BASE.training_options, "steps": 7_812},
    n_parameters=29_892_164,
    hub_id="ltg/gpt-bert-babylm-small",
    note=GPT_BERT_BASE.note.replace("100 million", "10 million"),
)
_MINI = bert.BERT_MINI
GPT_BERT_MINI = replace(
    GPT_BERT_SMALL,
    name="gpt-bert-mini",
    architecture=replace(
        GPT_BERT_SMALL.architecture, d_model=256, n_layers=4, n_heads=4, d_ff=768,
    ),
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options=bert.MINI_TRAINING,
    n_parameters=5_862_956,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini.",
)  # fmt: skip

PRESETS = (GPT_BERT_MINI, GPT_BERT_SMALL, GPT_BERT_BASE)
