"""DeBERTa: He et al. 2021, arXiv:2006.03654.

"DeBERTa: Decoding-enhanced BERT with Disentangled Attention", its first version; the second is in
`deberta_v2`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.model.backbones.transformer import Architecture, Block
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import (
    ConfigMapping,
    config_functions,
    read_activation,
    require_key,
)
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.attention.query_stream import EnhancedMaskDecoder
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.disentangled import DisentangledAttention, DisentangledTerm
from unmask.objectives.published import DEBERTA as RUNS_OF_WORDS
from unmask.tokenizers.spec import DEBERTA as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
    authors="He, Liu, Gao, Chen",
    year=2021,
    arxiv="2006.03654",
)

BASE = replace(
    bert.BASE,  # section 5.1.2: L = 12, H = 768, A = 12; table 8
    vocab_size=50_265,  # section 5.1.1: RoBERTa's byte pairs; released code
    n_segments=0,  # released code
    position=DisentangledAttention(512),  # section 3.1.1
    norm=LayerNorm(eps=1e-7),  # released code
    initializer=NormalInit(0.02),  # released code
)
HEADS = {
    "language": LanguageModeling(
        term="masked", transform="gelu", bias=True, query_stream=EnhancedMaskDecoder(512)
    ),
}
CLASSIFICATION_HEAD = SequenceClassification(activation="gelu")  # released code, `ContextPooler`


def remove_key_bias(model: Model) -> None:
    """Remove the biases of keys, the only content projections without them.

    A factorized map would have it in the second factor.
    """
    for layer in cast("list[Block]", list(model.get_submodule("backbone.layers").children())):
        keys = layer.attention.k
        dict(keys.named_modules()).get("widen", keys).register_parameter("bias", None)


NON_ATTENTION_NAMES = """
    backbone.tokens                              deberta.embeddings.word_embeddings
    backbone.position.absolute.table             deberta.embeddings.position_embeddings
    heads.language.decoder.table                 deberta.embeddings.position_embeddings
    backbone.segments                            deberta.embeddings.token_type_embeddings
    backbone.embed_norm                          deberta.embeddings.LayerNorm
    backbone.position.table                      deberta.encoder.rel_embeddings
    backbone.position.norm                       deberta.encoder.LayerNorm
    backbone.convolution.kernel                  deberta.encoder.conv.conv
    backbone.convolution.norm                    deberta.encoder.conv.LayerNorm
    backbone.layers.*.attention.o                deberta.encoder.layer.*.attention.output.dense
    backbone.layers.*.attention_norm.after       deberta.encoder.layer.*.attention.output.LayerNorm
    backbone.layers.*.feed_forward.up            deberta.encoder.layer.*.intermediate.dense
    backbone.layers.*.feed_forward.down          deberta.encoder.layer.*.output.dense
    backbone.layers.*.feed_forward_norm.after    deberta.encoder.layer.*.output.LayerNorm
    heads.language.dense      lm_predictions.lm_head.dense      beside:heads.language.decoder.table
    heads.language.norm       lm_predictions.lm_head.LayerNorm  beside:heads.language.decoder.table
    heads.language.bias       lm_predictions.lm_head.bias       beside:heads.language.decoder.table
    heads.language.dense                         cls.predictions.transform.dense
    heads.language.norm                          cls.predictions.transform.LayerNorm
    heads.language.bias                          cls.predictions.bias
    heads.language.bias                          cls.predictions.decoder.bias             instead
    heads.language.out                           cls.predictions.decoder
    backbone.tokens                              cls.predictions.decoder                  tied
    heads.language.dense                         lm_predictions.lm_head.dense
    heads.language.norm                          lm_predictions.lm_head.LayerNorm
    heads.language.bias                          lm_predictions.lm_head.bias
    heads.label.dense                            pooler.dense
    heads.label.out                              classifier
    heads.choice.dense                           pooler.dense
    heads.choice.out                             classifier
    heads.token_label.out                        classifier
    heads.spans.out                              qa_outputs
    -                                            deberta.embeddings.position_ids
"""
"""Names shared by both versions. A language head with an enhanced mask decoder has the layout of
the released weights, `lm_predictions`, others that of transformers, `cls`."""
_SELF = "deberta.encoder.layer.*.attention.self"
_Q, _K, _V = (f"backbone.layers.*.attention.{name}" for name in "qkv")
WEIGHT_NAMES = WeightNames(
    f"""
    {_Q}.bias                                    {_SELF}.q_bias
    {_V}.bias                                    {_SELF}.v_bias
    {_Q} + {_K} + {_V}                           {_SELF}.in_proj                          by_head
    backbone.layers.*.attention.place.k          {_SELF}.pos_proj
    backbone.layers.*.attention.place.q          {_SELF}.pos_q_proj
    {NON_ATTENTION_NAMES}
    """,
    prefix="deberta.",
)

FIELD_TABLE = {
    ours: key for ours, key in bert.FIELD_TABLE.items() if not ours.startswith("position.")
}
_READ_CONFIG, _WRITE_CONFIG = config_functions(FIELD_TABLE, BASE, {"talking_head": False})
_TERMS: Mapping[str, DisentangledTerm] = {
    "c2p": "content_to_position",
    "p2c": "position_to_content",
}


def read_position(config: Mapping[str, Any]) -> DisentangledAttention:
    """Read the position scheme of both versions.

    Raises:
        ValueError: attention is not disentangled, or has unknown terms.
    """
    if not config.get("relative_attention"):
        raise ValueError("relative_attention must be true: there is no DeBERTa without it")
    terms = config.get("pos_att_type") or ()
    words = [x.strip() for x in terms.lower().split("|")] if isinstance(terms, str) else terms
    if not isinstance(words, list | tuple) or not all(isinstance(x, str) for x in words):
        raise ValueError(
            f"pos_att_type must be a list of words, or words with | between, got {terms!r}"
        )
    if unknown := set(words) - _TERMS.keys():
        raise ValueError(f"pos_att_type has {sorted(unknown)}, only {sorted(_TERMS)}")
    if not words:
        raise ValueError(f"pos_att_type must name one or both of {sorted(_TERMS)}, got {terms!r}")
    length = int(require_key(config, "max_position_embeddings"))
    reach = int(config.get("max_relative_positions", -1))
    return DisentangledAttention(
        max_distance=length if reach < 1 else reach,
        max_positions=length,
        terms=tuple(_TERMS[x] for x in words),
        absolute_positions=bool(config.get("position_biased_input", True)),
    )


def write_position(position: DisentangledAttention) -> dict[str, Any]:
    """Write the position scheme of both versions."""
    external = {internal: key for key, internal in _TERMS.items()}
    return {
        "relative_attention": True,
        "max_position_embeddings": position.max_positions,
        "max_relative_positions": -1
        if position.max_distance == position.max_positions
        else position.max_distance,
        "pos_att_type": [external[term] for term in position.terms],
        "position_biased_input": position.absolute_positions,
    }


def _read_config(config: Mapping[str, Any]) -> Architecture:
    return replace(_READ_CONFIG(config), position=read_position(config))


def _write_config(a: Architecture) -> dict[str, Any]:
    position = a.position
    if not isinstance(position, DisentangledAttention) or position != DisentangledAttention(
        position.max_distance,
        position.max_positions,
        position.terms,
        absolute_positions=position.absolute_positions,
    ):
        raise ValueError(
            "DeBERTa's format has Disentangled positions with separate projections and without "
            f"buckets and norm, got {position}"
        )
    return _WRITE_CONFIG(a) | write_position(position)


def read_language(config: Mapping[str, Any]) -> dict[str, Any]:
    """Read the language head of both versions, including its enhanced mask decoder.

    With absolute positions in the input there is none (released code, `EnhancedMaskDecoder`).
    """
    length = int(config.get("max_position_embeddings", 512))
    return {
        "transform": read_activation(config.get("hidden_act", "gelu"), "hidden_act"),
        "query_stream": None
        if config.get("position_biased_input", True)
        else EnhancedMaskDecoder(length),
    }


CONFIG_KEYS = ConfigKeys(
    """
    type_vocab_size          used      count      0
    layer_norm_eps           used      positive   1e-7
    relative_attention       used      flag       false
    max_relative_positions   used      integer    -1
    position_biased_input    used      flag       true
    pos_att_type             used      anything   null
    pooler_hidden_act        used      word       gelu
    pooler_hidden_size       fixed     @hidden_size
    embedding_size           fixed     @hidden_size
    pooler_dropout           harmless  share
    cls_dropout              harmless  share?
    legacy                   harmless
    """,
    bert.CONFIG_KEYS,
)
"""Keys of both versions. The layout of the language head (`legacy`) follows from the names."""


def _labels(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "activation": read_activation(config.get("pooler_hidden_act", "gelu"), "pooler_hidden_act")
    }


def _missing_mask_decoder(a: Architecture, specs: Mapping[str, HeadSpec]) -> str | None:
    language = specs.get("language")
    if not isinstance(language, LanguageModeling) or language.query_stream is None:
        return None
    return (
        "transformers has no enhanced mask decoder (He et al. 2021, section 3.2): its class for "
        "masked tokens omits absolute positions and scores differently; the backbone is "
        "equal; `unmask.load` loads all of it"
    )


def config_mapping(
    model_type: str,
    name: str,
    read_config: Callable[[Mapping[str, Any]], Architecture],
    write: Callable[[Architecture], dict[str, Any]],
    keys: ConfigKeys,
) -> ConfigMapping:
    """Return the mapping of a version with the class prefix `name`."""
    return ConfigMapping(
        model_type=model_type,
        config_keys=keys,
        to_architecture=read_config,
        from_architecture=write,
        class_names={
            ("language",): f"{name}ForMaskedLM",
            ("label",): f"{name}ForSequenceClassification",
            ("token_label",): f"{name}ForTokenClassification",
            ("spans",): f"{name}ForQuestionAnswering",
            (): f"{name}Model",
        },
        read_language_head=read_language,
        read_classification_head=_labels,
        ties_embeddings=lambda theirs: theirs.get("legacy") is False,
        write_language_head=lambda spec: {"legacy": spec.query_stream is None},
        difference=_missing_mask_decoder,
    )


VERSION_1_KEYS = ConfigKeys("talking_head fixed false", CONFIG_KEYS)
DEBERTA_BASE = Published(
    name="deberta-base",
    family="deberta",
    paper=PAPER,
    architecture=BASE,
    heads=HEADS,
    classification_head=CLASSIFICATION_HEAD,
    objective=RUNS_OF_WORDS,
    tokenizer=TokenizerSpec(ByteBPE(50_265), FRAME),  # section 5.1.1
    sequence_length=512,  # section 3.1.1; released code
    batch_tokens=2048 * 512,  # table 8
    learning_rate=2e-4,  # table 8
    training_options={
        "schedule": {"kind": "Linear", "warmup": 10_000},  # table 8
        "steps": 1_000_000,  # table 8
        "optimizer": {
            "kind": "AdamW",
            "betas": [0.9, 0.999],
            "eps": 1e-6,
            "weight_decay": 0.01,  # table 8
        },
    },
    n_parameters=139_637_337,
    weight_names=WEIGHT_NAMES,
    config_mapping=config_mapping(
        "deberta", "Deberta", _read_config, _write_config, VERSION_1_KEYS
    ),
    post_build=remove_key_bias,
    hub_id="microsoft/deberta-base",
)
DEBERTA_LARGE = replace(
    DEBERTA_BASE,
    name="deberta-large",
    architecture=replace(BASE, d_model=1024, n_layers=24, n_heads=16, d_ff=4096),  # table 8
    n_parameters=406_789_209,
    hub_id="microsoft/deberta-large",
)
_MINI = bert.BERT_MINI
DEBERTA_MINI = replace(
    DEBERTA_BASE,
    name="deberta-mini",
    architecture=replace(
        BASE, vocab_size=8_192, d_model=256, n_layers=4, n_heads=4, d_ff=1024,
        position=DisentangledAttention(128), initializer=NormalInit(0.05),
    ),
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
    sequence_length=_MINI.sequence_length,
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options=bert.MINI_TRAINING,
    n_parameters=6_052_096,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini.",
)  # fmt: skip

PRESETS = (DEBERTA_MINI, DEBERTA_BASE, DEBERTA_LARGE)
