"""COCO-LM: Meng et al. 2021, arXiv:2102.08473.

"COCO-LM: Correcting and Contrasting Text Sequences for Language Model Pretraining": a generator
corrupts a text, the model detects and corrects the replaced tokens, and matches crops of texts
contrastively. "Released code" is that of github.com/microsoft/COCO-LM, "released configuration" the
config.json of the weights.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.pretraining.contrastive import ContrastiveLoss
from unmask.heads.pretraining.corrective_lm import CorrectiveLM
from unmask.heads.pretraining.generator import Generator
from unmask.heads.spec import HeadSpec
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.learned import LearnedPositions
from unmask.model.positions.relative_bias import LearnedPositionsAndRelativeBias
from unmask.objectives.published import COCO_LM as BESIDE_A_CROP
from unmask.tokenizers.spec import SpecialTokens, TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram
from unmask.zoo.encoders import electra
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="COCO-LM: Correcting and Contrasting Text Sequences for Language Model Pretraining",
    authors="Meng, Xiong, Bajaj, Tiwary, Bennett, Han, Song",
    year=2021,
    arxiv="2102.08473",
)

FRAME = SpecialTokens(
    pad="[PAD]", start="[CLS]", end="[SEP]", mask="[MASK]", unknown="[UNK]",
    prefix=("[CLS]",), separator=("[SEP]", "[SEP]"), suffix=("[SEP]",),
    first_in_vocabulary=("[CLS]", "[PAD]", "[SEP]", "[UNK]"),
)  # fmt: skip
"""BERT's names, fairseq's order of ids and RoBERTa's pairs (released code, `Dictionary` and
`COCOLMTokenizer`)."""

BASE = replace(
    bert.BASE,  # section 4, "Model Architecture"
    vocab_size=64_000,  # section 4, "Pretraining Settings": base++, cased
    n_segments=0,  # released configuration
    position=LearnedPositionsAndRelativeBias(
        512, n_buckets=64, max_distance=128
    ),  # released configuration
    norm=LayerNorm(eps=1e-5),  # released configuration
    initializer=NormalInit(0.02),  # released code, `init_bert_params`
)
CONTRAST = ContrastiveLoss(
    term="crop", temperature=1.0, pooling="first", candidates="all", transform="gelu"
)
"""Section 3.3; released code, `SCLHead`, and its default temperature."""
CLASSIFICATION_HEAD = SequenceClassification(
    activation="gelu"
)  # released code, `COCOLMClassificationHead`


def heads(n_layers: int) -> dict[str, HeadSpec]:
    """Return the pretraining heads, with a generator of `n_layers`."""
    beside = Generator(width_factor=1.0, n_layers=n_layers, sample_with_dropout=False)
    return {"generator": beside, "corrected": CorrectiveLM(), "crop": CONTRAST}


_LAYER = "cocolm.encoder.layer.*"
_QKV = " + ".join(f"backbone.layers.*.attention.{name}" for name in "qkv")
WEIGHT_NAMES = WeightNames(
    f"""
    backbone.tokens                              cocolm.embeddings.word_embeddings
    backbone.position.absolute.table             cocolm.embeddings.position_embeddings
    backbone.position.table  cocolm.relative_attention_bias  beside:backbone.position.absolute.table
    backbone.position.table                      cocolm.embeddings.position_embeddings
    backbone.segments                            cocolm.embeddings.token_type_embeddings
    backbone.embed_norm                          cocolm.embeddings.LayerNorm
    {_QKV}                                       {_LAYER}.attention.self_attn.in_proj
    backbone.layers.*.attention.o                {_LAYER}.attention.self_attn.out_proj
    backbone.layers.*.attention_norm.after       {_LAYER}.attention.LayerNorm
    backbone.layers.*.feed_forward.up            {_LAYER}.intermediate.dense
    backbone.layers.*.feed_forward.down          {_LAYER}.output.dense
    backbone.layers.*.feed_forward_norm.after    {_LAYER}.output.LayerNorm
    heads.crop.dense                             cocolm.scl_head.dense
    heads.crop.norm                              cocolm.scl_head.LayerNorm
    heads.corrected.language.bias                clm_head.bias
    heads.language.bias                          clm_head.bias
    heads.corrected.language.bias                clm_head.decoder.bias                    tied
    heads.language.bias                          clm_head.decoder.bias                    tied
    backbone.tokens                              clm_head.decoder                         tied
    heads.label.dense                            classifier.dense
    heads.label.out                              classifier.out_proj
    """,
    prefix="cocolm.",
)
"""As in the released code, huggingface/cocolm/modeling_cocolm.py. No class there has the corrective
head; its scores are `clm_head` in the authors' github.com/yumeng5/SuperGen, the name of the copy
probability is unknown: they are saved under internal names."""

FIELD_TABLE = {
    ours: key for ours, key in bert.FIELD_TABLE.items() if not ours.startswith("position.")
}
_READ_CONFIG, _WRITE_CONFIG = config_functions(FIELD_TABLE, BASE, {"layer_norm_type": "post"})


def _read_config(config: Mapping[str, Any]) -> Architecture:
    length = int(config.get("max_position_embeddings", 512))  # default there, as the next two
    buckets, reach = int(config.get("rel_pos_bins", 0)), int(config.get("max_rel_pos", 0))
    biased = LearnedPositionsAndRelativeBias(length, buckets, reach) if buckets else None
    return replace(_READ_CONFIG(config), position=biased or LearnedPositions(length))


def _write_config(a: Architecture) -> dict[str, Any]:
    position = a.position
    if isinstance(position, LearnedPositions) and not position.offset:
        buckets = reach = 0
    elif isinstance(position, LearnedPositionsAndRelativeBias):
        buckets, reach = position.n_buckets, position.max_distance
    else:
        raise ValueError(
            "COCO-LM's format has learned positions, with or without relative biases in its "
            f"buckets, got {position}"
        )
    return _WRITE_CONFIG(a) | {
        "max_position_embeddings": position.max_positions,
        "rel_pos_bins": buckets,
        "max_rel_pos": reach,
        "cls_dropout_prob": CLASSIFICATION_HEAD.dropout,
    }


CONFIG_KEYS = ConfigKeys(
    """
    layer_norm_type               fixed     post
    layer_norm_eps                used      positive   -
    rel_pos_bins                  used      count      -
    max_rel_pos                   used      count      -
    cls_dropout_prob              harmless  share
    type_vocab_size               used      count      -
    """,
    bert.CONFIG_KEYS,
)
CONFIG_MAPPING = ConfigMapping(
    model_type="cocolm",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={("label",): "COCOLMForSequenceClassification", (): "COCOLMModel"},
    in_transformers=False,
    identifying_keys=frozenset({"rel_pos_bins", "max_rel_pos", "layer_norm_type"}),
)

COCO_LM_BASE = Published(
    name="coco-lm-base",
    family="coco-lm",
    paper=PAPER,
    architecture=BASE,
    heads=heads(4),  # section 4, "Model Architecture"
    extra_heads={
        "language": LanguageModeling(term="masked", bias=True)
    },  # section 5.3: prompt-based fine-tuning
    classification_head=CLASSIFICATION_HEAD,
    objective=BESIDE_A_CROP,
    # SentencePiece (released code), BPE in the paper; trained here as T5's
    tokenizer=TokenizerSpec(Unigram(64_000), FRAME),
    sequence_length=512,  # section 4, "Pretraining Settings"
    batch_tokens=2048 * 512,  # same section
    learning_rate=electra.ELECTRA_BASE.learning_rate,  # not COCO-LM's: see the note
    training_options={
        **electra.ELECTRA_BASE.training_options,  # not COCO-LM's
        "steps": 1_953_125,  # same section: base++ reads 4 billion sequences
    },
    n_parameters=135_258_881,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="microsoft/cocolm-base",
    note="Base++ in the paper. Rate, warm-up and optimizer are ELECTRA's: those of the paper's "
    "appendix could not be verified. A row of 512 tokens has a text and its crop; in the paper "
    "the text alone has 512. The generator is in the folder `generator` of a run. Of released "
    "folders the weights are read, not the tokenizer: sp.model, with ids of its own in dict.txt, "
    "and spaces and quotes normalized by code.",
)
COCO_LM_LARGE = replace(
    COCO_LM_BASE,
    name="coco-lm-large",
    architecture=replace(
        BASE,
        d_model=1024,
        n_layers=24,
        n_heads=16,
        d_ff=4096,
        position=LearnedPositionsAndRelativeBias(
            512, n_buckets=128, max_distance=256
        ),  # released configuration
    ),
    heads=heads(6),  # section 4, "Model Architecture"; 4 by default in the released code
    learning_rate=electra.ELECTRA_LARGE.learning_rate,
    n_parameters=369_490_433,
    hub_id="microsoft/cocolm-large",
    note=COCO_LM_BASE.note.replace("Base++", "Large++"),
)
_MINI = bert.BERT_MINI
COCO_LM_MINI = replace(
    COCO_LM_BASE,
    name="coco-lm-mini",
    architecture=replace(
        BASE,
        vocab_size=8_192,
        d_model=256,
        n_layers=4,
        n_heads=4,
        d_ff=1024,
        position=LearnedPositionsAndRelativeBias(128, n_buckets=32, max_distance=64),
        initializer=NormalInit(0.05),
    ),
    heads=heads(2),  # released code, `cocolm_small`
    tokenizer=TokenizerSpec(Unigram(8_192), FRAME),
    sequence_length=_MINI.sequence_length,
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options=bert.MINI_TRAINING,
    n_parameters=5_364_353,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini. A row has "
    "a text and its crop.",
)

PRESETS = (COCO_LM_MINI, COCO_LM_BASE, COCO_LM_LARGE)
