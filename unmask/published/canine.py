"""CANINE: Clark et al. 2022, arXiv:2103.06874.

"CANINE: Pre-training an Efficient Tokenization-Free Encoder for Language Representation".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.characters import CharactersInTurn
from unmask.heads.labels import Labels
from unmask.heads.subwords import HiddenSubwords
from unmask.hiding.objectives import CANINE_C as WORDS_IN_TURN
from unmask.hiding.objectives import CANINE_S as SUBWORDS
from unmask.model.canine import CanineArchitecture
from unmask.model.initialize import Normal
from unmask.model.keys import Keys
from unmask.model.names import Fields, Names, by_table
from unmask.model.parts import LayerNorm
from unmask.model.positions import Learned
from unmask.published import bert
from unmask.published.card import Paper, Published
from unmask.tokens.vocabulary import CANINE as FRAME
from unmask.tokens.vocabulary import CodePoints, CodePointsWithSubwords, TokenizerSpec

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
    position=Learned(16_384),  # released code; 2,048 of them are trained, section 4.1.3
    norm=LayerNorm(eps=1e-12),  # released code
    norm_embedding=True,  # released code
    initialize=Normal(0.02, truncated=True),  # released code
    n_hashes=8,  # section 3.1
    n_buckets=16_384,  # section 3.1: 16k
    block=128,  # section 3.1, note 18
    rate=4,  # section 3.1
    kernel=4,  # section 3.1, note 20
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
NAMES = Names(
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

_SAME = ("vocab_size", "position.length")
_READ, _WRITE = by_table(
    {ours: theirs for ours, theirs in bert.TABLE.items() if ours not in _SAME}
    | {
        "n_hashes": "num_hash_functions",
        "n_buckets": "num_hash_buckets",
        "block": "local_transformer_stride",
        "rate": "downsampling_rate",
        "kernel": "upsampling_kernel_size",
    },
    BASE,
    {},
)


def _read(theirs: Mapping[str, Any]) -> CanineArchitecture:
    """Read theirs; its table of places has as many rows as the tables of characters."""
    a = _READ(theirs)
    return replace(a, position=Learned(a.n_buckets))


def _write(a: CanineArchitecture) -> dict[str, Any]:
    if a.position != Learned(a.n_buckets):
        raise ValueError(
            f"CANINE's format has as many places as buckets, {a.n_buckets:,}, got {a.position}"
        )
    return _WRITE(a) | {
        "max_position_embeddings": a.n_buckets,
        "bos_token_id": 0xE000,
        "eos_token_id": 0xE001,
    }


KEYS = Keys(
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
    bert.KEYS,
)
FIELDS = Fields(
    model_type="canine",
    keys=KEYS,
    read=_read,
    write=_write,
    classes={
        ("label",): "CanineForSequenceClassification",
        ("choice",): "CanineForMultipleChoice",
        ("token_label",): "CanineForTokenClassification",
        ("spans",): "CanineForQuestionAnswering",
        (): "CanineModel",
    },
    differs=lambda a, specs: (
        "transformers reads texts of CANINE no wider than they are given: it is equal where they "
        "are padded to a multiple of 128 characters, the longest with at least 12 "
        '(`tokenizer(texts, padding="max_length", max_length=2048)`)'
    ),
)

CANINE_C = Published(
    name="canine-c",
    family="canine",
    paper=PAPER,
    architecture=BASE,
    heads={"characters": CharactersInTurn()},
    labels=Labels(pool="summary"),  # section 3.1: y_cls; the map above it: released code
    objective=WORDS_IN_TURN,
    tokenizer=TokenizerSpec(CodePoints(), FRAME),
    length=2048,  # section 4.1.3
    batch_tokens=4096 * 2048,  # section 4.1.3
    rate=0.018,  # section 4.1.3
    training={
        "optimizer": {"kind": "Lamb"},  # section 4.1.3
        "steps": 124_000,  # section 4.1.3
        "schedule": {"kind": "Linear", "warmup": 0.025},  # section 4.1.3
    },
    parameters=152_361_472,
    names=NAMES,
    fields=FIELDS,
    hub="google/canine-c",
    note="104 languages, smaller ones sampled more often.",
)
CANINE_MINI = replace(
    CANINE_C,
    name="canine-mini",
    architecture=replace(
        BASE, d_model=256, n_layers=4, n_heads=4, d_ff=1024, n_buckets=2048,
        position=Learned(2048), initialize=Normal(0.05, truncated=True),
    ),
    length=512,
    batch_tokens=8_192,
    rate=3e-3,
    training=bert.SMALL_SCALE,
    parameters=8_027_648,
    hub=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini.",
)  # fmt: skip
CANINE_S = replace(
    CANINE_C,
    name="canine-s",
    heads={"subwords": HiddenSubwords(size=119_547)},
    objective=SUBWORDS,
    tokenizer=TokenizerSpec(CodePointsWithSubwords(119_547), FRAME),  # section 3.2.2: mBERT's
    parameters=131_492_352,
    hub="google/canine-s",
    note="Kept without its subwords, which are of the loss alone. 104 languages, as canine-c.",
)
CANINE_S_MINI = replace(
    CANINE_MINI,
    name="canine-s-mini",
    heads={"subwords": HiddenSubwords(size=8_192)},
    objective=SUBWORDS,
    tokenizer=TokenizerSpec(CodePointsWithSubwords(8_192), FRAME),
    parameters=6_579_712,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini, and as many "
    "subwords; it is kept without them.",
)

CARDS = (CANINE_MINI, CANINE_C, CANINE_S_MINI, CANINE_S)
