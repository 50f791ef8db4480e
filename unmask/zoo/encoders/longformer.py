"""Longformer: Beltagy et al. 2020, arXiv:2004.05150.

"Longformer: The Long-Document Transformer": RoBERTa with local windows and global tokens.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from unmask.heads.model import Model
from unmask.model.architecture import MAX_SIZE
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.attention.attention import copy_to_global_attention
from unmask.model.positions.learned import LearnedPositions
from unmask.model.variants import AttentionVariant
from unmask.tokenizers.spec import ROBERTA as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE
from unmask.zoo.encoders.bert_family import bert, roberta
from unmask.zoo.preset import Paper

PAPER = Paper(
    title="Longformer: The Long-Document Transformer",
    authors="Beltagy, Peters, Cohan",
    year=2020,
    arxiv="2004.05150",
)

BASE = replace(
    roberta.BASE,
    position=LearnedPositions(4096, roberta.OFFSET),  # section 5, "Position Embeddings"
    attention_window=(
        256,
    ),  # section 5, "Attention Pattern": 512 tokens, half of them on each side
    attention=AttentionVariant(global_tokens=True),  # section 3.1
)

_GLOBAL_NAMES = "\n".join(
    f"backbone.layers.*.attention.wide.{ours}  "
    f"longformer.encoder.layer.*.attention.self.{theirs}_global"
    for ours, theirs in (("q", "query"), ("k", "key"), ("v", "value"))
)
WEIGHT_NAMES = WeightNames(
    roberta.WEIGHT_NAMES.table.replace(" roberta.", " longformer.") + _GLOBAL_NAMES,
    prefix="longformer.",
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a = roberta.CONFIG_MAPPING.to_architecture(config)
    assert isinstance(a, Architecture)
    windows = config.get("attention_window", 512)  # default there
    widths: list[Any] = list(windows) if isinstance(windows, list) else [windows] * a.n_layers  # type: ignore[arg-type]
    if len(widths) != a.n_layers or not all(_is_window_size(w) for w in widths):
        raise ValueError(
            f"attention_window must be even, one for all or for each of {a.n_layers} layers "
            f"(num_hidden_layers), got {windows}"
        )
    half_widths = tuple(w // 2 for w in widths)
    return replace(
        a,
        attention_window=half_widths[:1] if len(set(half_widths)) == 1 else half_widths,
        attention=AttentionVariant(global_tokens=True),
    )


def _is_window_size(width: Any) -> bool:
    is_integer = isinstance(width, int) and not isinstance(width, bool)
    return is_integer and 2 <= width <= MAX_SIZE and width % 2 == 0


def _write_config(a: Architecture) -> dict[str, Any]:
    half_widths = a.attention_window or (None,)
    both = [2 * (half_widths[i % len(half_widths)] or 0) for i in range(a.n_layers)]
    if a.causal:
        raise ValueError("Longformer's format needs bidirectional attention")
    if not (a.attention.global_tokens and all(both)):
        raise ValueError(
            "Longformer's format has a window in each layer and global attention, "
            f"got window={a.attention_window} and global_tokens={a.attention.global_tokens}"
        )
    return roberta.CONFIG_MAPPING.from_architecture(a) | {"attention_window": both}


CONFIG_KEYS = ConfigKeys(
    """
    attention_window   used      anything  512
    sep_token_id       harmless
    onnx_export        harmless
    is_decoder         fixed     false
    """,
    roberta.CONFIG_KEYS,
)


def _global_tokens_difference(a: Architecture, specs: Mapping[str, Any]) -> str | None:
    if "choice" not in specs:
        return None
    return (
        "transformers has global attention only for tokens of an option, here also for the first "
        "token (Beltagy et al. 2020, section 6): outputs are equal if `global_attention_mask` is "
        "1 at both"
    )


CONFIG_MAPPING = replace(
    roberta.config_mapping("longformer", "Longformer"),
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    causal_class_names={},
    difference=_global_tokens_difference,
)


@torch.no_grad()
def from_roberta(short: Model, a: Architecture) -> Model:
    """Return a Longformer with RoBERTa's weights and the windows and length of `a`.

    Position embeddings are tiled (section 5, "Position Embeddings"), and the global projections are
    initialized from the local ones (section 3.1). Hidden states of texts within the windows are
    unchanged.

    Raises:
        ValueError: `short` or `a` has no position table.
    """
    theirs = short.architecture
    assert isinstance(theirs, Architecture)
    if not isinstance(theirs.position, LearnedPositions) or not isinstance(
        a.position, LearnedPositions
    ):
        raise ValueError("both models need a position table")
    length = replace(
        theirs,
        attention_window=a.attention_window,
        attention=replace(theirs.attention, global_tokens=True),
        position=replace(theirs.position, max_positions=a.position.max_positions),
    )
    long = Model(length, short.head_specs, short.unused_pooler)
    weights = short.state_dict()
    table = weights.pop("backbone.position.table.weight")
    long.load_state_dict(weights, strict=False)
    copy_to_global_attention(long)
    offset = theirs.position.offset
    again = torch.arange(a.position.max_positions) % theirs.position.max_positions
    long.get_parameter("backbone.position.table.weight").copy_(
        torch.cat((table[:offset], table[offset:][again.to(table.device)]))
    )
    return long.train(short.training)


LONGFORMER_BASE = replace(
    roberta.ROBERTA_BASE,
    name="longformer-base-4096",
    family="longformer",
    paper=PAPER,
    architecture=BASE,
    weight_converters={"roberta": from_roberta},
    sequence_length=4096,  # section 5, "Continued MLM Pretraining"
    batch_tokens=64 * 4096,  # same section
    learning_rate=3e-5,  # same section
    training_options={
        **roberta.ROBERTA_BASE.training_options,  # its rows: released code, `raw_text_to_mmap`
        "schedule": {"kind": "Linear", "warmup": 500},  # same section
        "steps": 65_000,  # same section
    },
    n_parameters=148_711_257,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="allenai/longformer-base-4096",
    note="Initialized from RoBERTa (`--from`). The paper's rate decays as the third power of "
    "the remaining steps, here linearly.",
)
LONGFORMER_LARGE = replace(
    LONGFORMER_BASE,
    name="longformer-large-4096",
    architecture=replace(BASE, d_model=1024, n_layers=24, n_heads=16, d_ff=4096),
    n_parameters=434_653_273,
    hub_id="allenai/longformer-large-4096",
)
LONGFORMER_MINI = replace(
    LONGFORMER_BASE,
    name="longformer-mini",
    architecture=replace(
        BASE,
        vocab_size=8_192,
        d_model=256,
        n_layers=4,
        n_heads=4,
        d_ff=1024,
        position=LearnedPositions(1024, roberta.OFFSET),
        attention_window=(16,),
        initializer=NormalInit(0.05),
    ),
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
    sequence_length=1024,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options={**bert.MINI_MULTI_LOSS_TRAINING, **roberta.FULL_SENTENCES},
    n_parameters=6_383_616,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with a window of 16 tokens on each side; from "
    "scratch, or with roberta-mini's weights.",
)

PRESETS = (LONGFORMER_MINI, LONGFORMER_BASE, LONGFORMER_LARGE)
