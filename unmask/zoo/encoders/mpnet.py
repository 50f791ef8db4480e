"""MPNet: Song et al. 2020, arXiv:2004.09297.

Deviates: pretrained by masked language modeling; section 2.2's permuted prediction of the masked
tokens, with position compensation, is not implemented.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import config_functions
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.positions.relative_bias import LearnedPositionsAndT5Bias
from unmask.objectives.corrupt import MaskInPlace
from unmask.objectives.objective import Objective
from unmask.objectives.select import WholeWordMasking
from unmask.tokenizers.spec import ROBERTA, TokenizerSpec
from unmask.tokenizers.vocabulary import WordPiece
from unmask.zoo.encoders.bert_family import bert, roberta
from unmask.zoo.preset import Paper

PAPER = Paper(
    title="MPNet: Masked and Permuted Pre-training for Language Understanding",
    authors="Song, Tan, Qin, Lu, Liu",
    year=2020,
    arxiv="2004.09297",
)
FRAME = replace(ROBERTA, unknown="[UNK]", first_in_vocabulary=("<s>", "<pad>", "</s>", "[UNK]"))
BASE = replace(
    bert.BASE,  # section 3.1
    vocab_size=30_527,  # BERT's, and five more: released weights
    n_segments=0,
    position=LearnedPositionsAndT5Bias(512, roberta.OFFSET),  # section 3.1; released code
    norm=roberta.BASE.norm,  # released configuration
    initializer=roberta.BASE.initializer,
)
_RENAMED = {
    "roberta.": "mpnet.", "position.table": "position.absolute.table",
    "self.query": "attn.q", "self.key": "attn.k", "self.value": "attn.v",
    "attention.output.dense": "attention.attn.o", "attention.output.": "attention.",
}  # fmt: skip
_TABLE = "backbone.position.table  mpnet.encoder.relative_attention_bias\n" + reduce(
    lambda table, names: table.replace(*names), _RENAMED.items(), roberta.WEIGHT_NAMES.table
)
_READ_CONFIG, _WRITE_CONFIG = config_functions(
    {ours: key for ours, key in bert.FIELD_TABLE.items() if ours != "n_segments"},
    BASE,
    {"relative_attention_num_buckets": 32},  # fixed in transformers for any table size
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a = _READ_CONFIG(config)
    length = (a.max_positions or 0) - roberta.OFFSET
    return replace(a, position=LearnedPositionsAndT5Bias(length, roberta.OFFSET))


def _write_config(a: Architecture) -> dict[str, Any]:
    length = a.max_positions or 0
    if a.position != LearnedPositionsAndT5Bias(length, roberta.OFFSET):
        raise ValueError(f"MPNet's format has 32 buckets and offset 2, got {a.position}")
    return _WRITE_CONFIG(a) | {"max_position_embeddings": length + roberta.OFFSET}


MPNET_BASE = replace(
    roberta.ROBERTA_BASE,
    name="mpnet-base",
    family="mpnet",
    paper=PAPER,
    architecture=BASE,
    objective=Objective(WholeWordMasking(rate=0.15), MaskInPlace()),  # section 3.1
    tokenizer=TokenizerSpec(WordPiece(30_527, lowercase=True), FRAME),
    n_parameters=109_518_527,
    weight_names=WeightNames(_TABLE, prefix="mpnet."),
    config_mapping=replace(
        roberta.config_mapping("mpnet", "MPNet"),
        config_keys=ConfigKeys(
            "type_vocab_size harmless\nrelative_attention_num_buckets fixed 32", bert.CONFIG_KEYS
        ),
        to_architecture=_read_config,
        from_architecture=_write_config,
        causal_class_names={},
    ),
    hub_id="microsoft/mpnet-base",
    note="Masked language modeling, not the paper's masked and permuted one. Rate, warm-up, batch "
    "and steps are RoBERTa's: the paper's could not be verified.",
)
MPNET_MINI = replace(
    MPNET_BASE,
    name="mpnet-mini",
    architecture=replace(
        BASE,
        vocab_size=8_192,
        d_model=256,
        n_layers=4,
        n_heads=4,
        d_ff=1024,
        initializer=NormalInit(0.05),
    ),
    tokenizer=TokenizerSpec(WordPiece(8_192, lowercase=True), FRAME),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options=roberta.ROBERTA_MINI.training_options,
    n_parameters=5_462_912,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini. "
    + MPNET_BASE.note,
)

PRESETS = (MPNET_MINI, MPNET_BASE)
