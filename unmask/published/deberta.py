"""DeBERTa: He et al. 2021, arXiv:2006.03654.

"DeBERTa: Decoding-enhanced BERT with Disentangled Attention", its first version; the second is in
`deberta_v2`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from unmask.heads.labels import Labels
from unmask.heads.language import Language
from unmask.heads.model import HeadSpec, Model
from unmask.hiding.objectives import DEBERTA as RUNS_OF_WORDS
from unmask.model.architecture import Architecture
from unmask.model.decoder import MaskDecoder
from unmask.model.initialize import Normal
from unmask.model.keys import Keys
from unmask.model.names import Fields, Names, activation, by_table, need
from unmask.model.parts import LayerNorm
from unmask.model.positions import AskedOf, Disentangled
from unmask.model.transformer import Block
from unmask.published import bert
from unmask.published.card import Paper, Published
from unmask.tokens.vocabulary import DEBERTA as FRAME
from unmask.tokens.vocabulary import ByteBPE, TokenizerSpec

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
    position=Disentangled(512),  # section 3.1.1
    norm=LayerNorm(eps=1e-7),  # released code
    initialize=Normal(0.02),  # released code
)
HEADS = {
    "language": Language(term="masked", transform="gelu", bias=True, decoder=MaskDecoder(512)),
}
LABELS = Labels(activation="gelu")  # released code, `ContextPooler`


def without_key_bias(model: Model) -> None:
    """Take the biases of keys away: of content's three maps they alone have none."""
    for layer in cast("list[Block]", list(model.backbone.get_submodule("layers").children())):
        layer.attention.k.register_parameter("bias", None)


OUTSIDE_ATTENTION = """
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
"""What both versions call alike. A language head that asks through a decoder is laid out as in the
released weights, `lm_predictions`, any other as in transformers, `cls`."""
_SELF = "deberta.encoder.layer.*.attention.self"
_Q, _K, _V = (f"backbone.layers.*.attention.{name}" for name in "qkv")
NAMES = Names(
    f"""
    {_Q}.bias                                    {_SELF}.q_bias
    {_V}.bias                                    {_SELF}.v_bias
    {_Q} + {_K} + {_V}                           {_SELF}.in_proj                          by_head
    backbone.layers.*.attention.place.k          {_SELF}.pos_proj
    backbone.layers.*.attention.place.q          {_SELF}.pos_q_proj
    {OUTSIDE_ATTENTION}
    """,
    prefix="deberta.",
)

TABLE = {ours: key for ours, key in bert.TABLE.items() if not ours.startswith("position.")}
_READ, _WRITE = by_table(TABLE, BASE, {"talking_head": False})
_TERMS: Mapping[str, AskedOf] = {"c2p": "content_to_position", "p2c": "position_to_content"}


def read_position(theirs: Mapping[str, Any]) -> Disentangled:
    """Read what both versions say of places.

    Raises:
        ValueError: there is no disentangled attention, or in other terms than the two known.
    """
    if not theirs.get("relative_attention"):
        raise ValueError("relative_attention must be true: there is no DeBERTa without it")
    said = theirs.get("pos_att_type") or ()
    words = [x.strip() for x in said.lower().split("|")] if isinstance(said, str) else said
    if not isinstance(words, list | tuple) or not all(isinstance(x, str) for x in words):
        raise ValueError(
            f"pos_att_type must be a list of words, or words with | between, got {said!r}"
        )
    if strange := set(words) - _TERMS.keys():
        raise ValueError(f"pos_att_type has {sorted(strange)}, only {sorted(_TERMS)}")
    if not words:
        raise ValueError(f"pos_att_type must name one or both of {sorted(_TERMS)}, got {said!r}")
    length = int(need(theirs, "max_position_embeddings"))
    reach = int(theirs.get("max_relative_positions", -1))
    return Disentangled(
        reach=length if reach < 1 else reach,
        length=length,
        terms=tuple(_TERMS[x] for x in words),
        absolute=bool(theirs.get("position_biased_input", True)),
    )


def write_position(position: Disentangled) -> dict[str, Any]:
    """Write what both versions say of places."""
    theirs = {ours: key for key, ours in _TERMS.items()}
    return {
        "relative_attention": True,
        "max_position_embeddings": position.length,
        "max_relative_positions": -1 if position.reach == position.length else position.reach,
        "pos_att_type": [theirs[term] for term in position.terms],
        "position_biased_input": position.absolute,
    }


def _read(theirs: Mapping[str, Any]) -> Architecture:
    return replace(_READ(theirs), position=read_position(theirs))


def _write(a: Architecture) -> dict[str, Any]:
    position = a.position
    if not isinstance(position, Disentangled) or position != Disentangled(
        position.reach, position.length, position.terms, absolute=position.absolute
    ):
        raise ValueError(
            "DeBERTa's format has Disentangled positions with maps of their own and without "
            f"buckets and norm, got {position}"
        )
    return _WRITE(a) | write_position(position)


def read_language(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Read what both versions say of the language head; whether it asks through a decoder, too.

    Where absolute places are in the input there is none (released code, `EnhancedMaskDecoder`).
    """
    length = int(theirs.get("max_position_embeddings", 512))
    return {
        "transform": activation(theirs.get("hidden_act", "gelu"), "hidden_act"),
        "decoder": None if theirs.get("position_biased_input", True) else MaskDecoder(length),
    }


KEYS = Keys(
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
    bert.KEYS,
)
"""Of both versions. How the language head is laid out (`legacy`) is seen from the names."""


def _labels(theirs: Mapping[str, Any]) -> dict[str, Any]:
    return {"activation": activation(theirs.get("pooler_hidden_act", "gelu"), "pooler_hidden_act")}


def _without_decoder(a: Architecture, specs: Mapping[str, HeadSpec]) -> str | None:
    language = specs.get("language")
    if not isinstance(language, Language) or language.decoder is None:
        return None
    return (
        "transformers has no enhanced mask decoder (He et al. 2021, section 3.2): its class for "
        "masked tokens leaves the absolute places out and scores otherwise, below the head it is "
        "equal; `unmask.load` opens all of it"
    )


def fields(
    model_type: str,
    name: str,
    read: Callable[[Mapping[str, Any]], Architecture],
    write: Callable[[Architecture], dict[str, Any]],
    keys: Keys,
) -> Fields:
    """Return the table of a version of theirs whose classes begin with `name`."""
    return Fields(
        model_type=model_type,
        keys=keys,
        read=read,
        write=write,
        classes={
            ("language",): f"{name}ForMaskedLM",
            ("label",): f"{name}ForSequenceClassification",
            ("token_label",): f"{name}ForTokenClassification",
            ("spans",): f"{name}ForQuestionAnswering",
            (): f"{name}Model",
        },
        language=read_language,
        labels=_labels,
        always_tied=lambda theirs: theirs.get("legacy") is False,
        of_language=lambda spec: {"legacy": spec.decoder is None},
        differs=_without_decoder,
    )


FIRST = Keys("talking_head fixed false", KEYS)
DEBERTA_BASE = Published(
    name="deberta-base",
    family="deberta",
    paper=PAPER,
    architecture=BASE,
    heads=HEADS,
    labels=LABELS,
    objective=RUNS_OF_WORDS,
    tokenizer=TokenizerSpec(ByteBPE(50_265), FRAME),  # section 5.1.1
    length=512,  # section 3.1.1; released code
    batch_tokens=2048 * 512,  # table 8
    rate=2e-4,  # table 8
    training={
        "schedule": {"kind": "Linear", "warmup": 10_000},  # table 8
        "steps": 1_000_000,  # table 8
        "optimizer": {
            "kind": "AdamW", "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01,  # table 8
        },
    },
    parameters=139_637_337,
    names=NAMES,
    fields=fields("deberta", "Deberta", _read, _write, FIRST),
    finish=without_key_bias,
    hub="microsoft/deberta-base",
)  # fmt: skip
DEBERTA_LARGE = replace(
    DEBERTA_BASE,
    name="deberta-large",
    architecture=replace(BASE, d_model=1024, n_layers=24, n_heads=16, d_ff=4096),  # table 8
    parameters=406_789_209,
    hub="microsoft/deberta-large",
)
_MINI = bert.BERT_MINI
DEBERTA_MINI = replace(
    DEBERTA_BASE,
    name="deberta-mini",
    architecture=replace(
        BASE, vocab_size=8_192, d_model=256, n_layers=4, n_heads=4, d_ff=1024,
        position=Disentangled(128), initialize=Normal(0.05),
    ),
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
    length=_MINI.length,
    batch_tokens=_MINI.batch_tokens,
    rate=_MINI.rate,
    training=bert.SMALL_SCALE,
    parameters=6_052_096,
    hub=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini.",
)  # fmt: skip

CARDS = (DEBERTA_MINI, DEBERTA_BASE, DEBERTA_LARGE)
