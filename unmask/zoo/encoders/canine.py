"""CANINE: Clark et al. 2022, arXiv:2103.06874.

"CANINE: Pre-training an Efficient Tokenization-Free Encoder for Language Representation".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.pretraining.autoregressive_characters import AutoregressiveCharacters
from unmask.heads.pretraining.subword_prediction import SubwordPrediction
from unmask.model.backbones.canine import CanineArchitecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.published import CANINE_C as WORDS_IN_TURN
from unmask.objectives.published import CANINE_S as SUBWORDS
from unmask.tokenizers.spec import CANINE as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import CodePoints, CodePointsWithSubwords
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="CANINE: Pre-training an Efficient Tokenization-Free Encoder for Language Representation",
    authors="Clark, Garrette, Turc, Wieting",
    year=2022,
    arxiv="2103.06874",
)

BASE = CanineArchitecture(
    vocab_size=0x110000,  # section 3.1: the code points of Unicode; there is no table of them
    d_model=768,  # section 3.1
    n_layers=12,  # section 3.1: as mBERT
    n_heads=12,
    d_ff=3072,
    n_segments=16,  # released code
    position=LearnedPositions(16_384),  # released code; 2,048 of them are trained, section 4.1.3
    norm=LayerNorm(eps=1e-12),  # released code
    embedding_norm=True,  # released code
    initializer=NormalInit(0.02, truncated=True),  # released code
    n_hash_functions=8,  # section 3.1
    n_hash_buckets=16_384,  # section 3.1: 16k
    local_attention_block=128,  # section 3.1, note 18
    downsampling_rate=4,  # section 3.1
    upsampling_kernel_size=4,  # section 3.1, note 20
)

_BLOCK = (
    ("attention.q", "attention.self.query"),
    ("attention.k", "attention.self.key"),
    ("attention.v", "attention.self.value"),
    ("attention.o", "attention.output.dense"),
    ("attention_norm.after", "attention.output.LayerNorm"),
    ("feed_forward.up", "intermediate.dense"),
    ("feed_forward.down", "output.dense"),
    ("feed_forward_norm.after", "output.LayerNorm"),
)
_STACKS = (
    ("backbone.first", "canine.initial_char_encoder.layer.0"),
    ("backbone.layers.*", "canine.encoder.layer.*"),
    ("backbone.last", "canine.final_char_encoder.layer.0"),
)
WEIGHT_NAMES = WeightNames(
    "\n".join(f"{a}.{x} {b}.{y}" for a, b in _STACKS for x, y in _BLOCK)
    + """
    backbone.tokens.*            canine.char_embeddings.HashBucketCodepointEmbedder_*
    backbone.position.table      canine.char_embeddings.char_position_embeddings
    backbone.segments            canine.char_embeddings.token_type_embeddings
    backbone.embed_norm          canine.char_embeddings.LayerNorm
    backbone.down.conv           canine.chars_to_molecules.conv
    backbone.down.norm           canine.chars_to_molecules.LayerNorm
    backbone.up.conv             canine.projection.conv
    backbone.up.norm             canine.projection.LayerNorm
    heads.label.dense            canine.pooler.dense
    heads.choice.dense           canine.pooler.dense
    pooler.dense                 canine.pooler.dense
    heads.label.out              classifier
    heads.choice.out             classifier
    heads.token_label.out        classifier
    heads.spans.out              qa_outputs
    -                            canine.char_embeddings.position_ids
    """,
    prefix="canine.",
)

_EXCLUDED_FIELDS = ("vocab_size", "position.max_positions")
_READ_CONFIG, _WRITE_CONFIG = config_functions(
    {ours: theirs for ours, theirs in bert.FIELD_TABLE.items() if ours not in _EXCLUDED_FIELDS}
    | {
        "n_hash_functions": "num_hash_functions",
        "n_hash_buckets": "num_hash_buckets",
        "local_attention_block": "local_transformer_stride",
        "downsampling_rate": "downsampling_rate",
        "upsampling_kernel_size": "upsampling_kernel_size",
    },
    BASE,
    {},
)


def _read_config(config: Mapping[str, Any]) -> CanineArchitecture:
    """Read the configuration; the position table has as many rows as the character tables."""
    a = _READ_CONFIG(config)
    return replace(a, position=LearnedPositions(a.n_hash_buckets))


def _write_config(a: CanineArchitecture) -> dict[str, Any]:
    if a.position != LearnedPositions(a.n_hash_buckets):
        raise ValueError(
            f"CANINE's format has one position per bucket, {a.n_hash_buckets:,}, got {a.position}"
        )
    return _WRITE_CONFIG(a) | {
        "max_position_embeddings": a.n_hash_buckets,
        "bos_token_id": 0xE000,
        "eos_token_id": 0xE001,
    }


CONFIG_KEYS = ConfigKeys(
    """
    vocab_size                    harmless
    type_vocab_size               used      size       16
    max_position_embeddings       harmless  size
    num_hash_functions            used      size@hidden_size 8
    num_hash_buckets              used      size       16384
    local_transformer_stride      used      size       128
    downsampling_rate             used      size       4
    upsampling_kernel_size        used      size       4
    """,
    bert.CONFIG_KEYS,
)
CONFIG_MAPPING = ConfigMapping(
    model_type="canine",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={
        ("label",): "CanineForSequenceClassification",
        ("choice",): "CanineForMultipleChoice",
        ("token_label",): "CanineForTokenClassification",
        ("spans",): "CanineForQuestionAnswering",
        (): "CanineModel",
    },
    difference=lambda a, specs: (
        "transformers does not pad texts of CANINE: outputs are equal if they "
        "are padded to a multiple of 128 characters, the longest with at least 12 "
        '(`tokenizer(texts, padding="max_length", max_length=2048)`)'
    ),
)

CANINE_C = Published(
    name="canine-c",
    family="canine",
    paper=PAPER,
    architecture=BASE,
    heads={"characters": AutoregressiveCharacters()},
    classification_head=SequenceClassification(
        pooling="summary"
    ),  # section 3.1: y_cls; its dense layer: released code
    objective=WORDS_IN_TURN,
    tokenizer=TokenizerSpec(CodePoints(), FRAME),
    sequence_length=2048,  # section 4.1.3
    batch_tokens=4096 * 2048,  # section 4.1.3
    learning_rate=0.018,  # section 4.1.3
    training_options={
        "optimizer": {"kind": "LAMB"},  # section 4.1.3
        "steps": 124_000,  # section 4.1.3
        "schedule": {"kind": "Linear", "warmup": 0.025},  # section 4.1.3
    },
    n_parameters=152_361_472,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="google/canine-c",
    note="104 languages, smaller ones sampled more often.",
)
CANINE_MINI = replace(
    CANINE_C,
    name="canine-mini",
    architecture=replace(
        BASE, d_model=256, n_layers=4, n_heads=4, d_ff=1024, n_hash_buckets=2048,
        position=LearnedPositions(2048), initializer=NormalInit(0.05, truncated=True),
    ),
    sequence_length=512,
    batch_tokens=8_192,
    learning_rate=3e-3,
    training_options=bert.MINI_TRAINING,
    n_parameters=8_027_648,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini.",
)  # fmt: skip
CANINE_S = replace(
    CANINE_C,
    name="canine-s",
    heads={"subwords": SubwordPrediction(output_vocab_size=119_547)},
    objective=SUBWORDS,
    tokenizer=TokenizerSpec(CodePointsWithSubwords(119_547), FRAME),  # section 3.2.2: mBERT's
    n_parameters=131_492_352,
    hub_id="google/canine-s",
    note="Saved without its subwords, which are for the loss only. 104 languages, as canine-c.",
)
CANINE_S_MINI = replace(
    CANINE_MINI,
    name="canine-s-mini",
    heads={"subwords": SubwordPrediction(output_vocab_size=8_192)},
    objective=SUBWORDS,
    tokenizer=TokenizerSpec(CodePointsWithSubwords(8_192), FRAME),
    n_parameters=6_579_712,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini, and as many "
    "subwords; saved without them.",
)

PRESETS = (CANINE_MINI, CANINE_C, CANINE_S_MINI, CANINE_S)
