"""Longformer: Beltagy et al. 2020, arXiv:2004.05150.

"Longformer: The Long-Document Transformer": RoBERTa within windows, and tokens that see all.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from unmask.heads.model import Model
from unmask.model.architecture import MOST, Architecture
from unmask.model.attention import copy_to_wide
from unmask.model.initialize import Normal
from unmask.model.keys import Keys
from unmask.model.names import Names
from unmask.model.positions import Learned, LearnedModule
from unmask.published import bert, roberta
from unmask.published.card import Paper
from unmask.tokens.vocabulary import ROBERTA as FRAME
from unmask.tokens.vocabulary import ByteBPE, TokenizerSpec

PAPER = Paper(
    title="Longformer: The Long-Document Transformer",
    authors="Beltagy, Peters, Cohan",
    year=2020,
    arxiv="2004.05150",
)

BASE = replace(
    roberta.BASE,
    position=Learned(4096, roberta.OFFSET),  # section 5, "Position Embeddings"
    window=(256,),  # section 5, "Attention Pattern": 512 tokens, half of them on each side
    global_attention=True,  # section 3.1
)

_WIDE = "\n".join(
    f"backbone.layers.*.attention.wide.{ours}  "
    f"longformer.encoder.layer.*.attention.self.{theirs}_global"
    for ours, theirs in (("q", "query"), ("k", "key"), ("v", "value"))
)
NAMES = Names(
    roberta.NAMES.table.replace(" roberta.", " longformer.") + _WIDE, prefix="longformer."
)


def _read(theirs: Mapping[str, Any]) -> Architecture:
    a = roberta.FIELDS.read(theirs)
    assert isinstance(a, Architecture)
    said = theirs.get("attention_window", 512)  # their default
    both: list[Any] = list(said) if isinstance(said, list) else [said] * a.n_layers  # type: ignore[arg-type]
    if len(both) != a.n_layers or not all(_is_window(w) for w in both):
        raise ValueError(
            f"attention_window must be even, one for all or for each of {a.n_layers} layers "
            f"(num_hidden_layers), got {said}"
        )
    near = tuple(w // 2 for w in both)
    return replace(a, window=near[:1] if len(set(near)) == 1 else near, global_attention=True)


def _is_window(width: Any) -> bool:
    whole = isinstance(width, int) and not isinstance(width, bool)
    return whole and 2 <= width <= MOST and width % 2 == 0


def _write(a: Architecture) -> dict[str, Any]:
    near = a.window or (None,)
    both = [2 * (near[i % len(near)] or 0) for i in range(a.n_layers)]
    if a.causal:
        raise ValueError("Longformer's format is of networks that see texts as a whole")
    if not (a.global_attention and all(both)):
        raise ValueError(
            "Longformer's format has a window in each layer and global attention, "
            f"got window={a.window} and global_attention={a.global_attention}"
        )
    return roberta.FIELDS.write(a) | {"attention_window": both}


KEYS = Keys(
    """
    attention_window   used      anything  512
    sep_token_id       harmless
    onnx_export        harmless
    is_decoder         fixed     false
    """,
    roberta.KEYS,
)


def _seen_by_all(a: Architecture, specs: Mapping[str, Any]) -> str | None:
    if "choice" not in specs:
        return None
    return (
        "transformers lets the tokens of an option alone see all of the text, here the first token "
        "does, too (Beltagy et al. 2020, section 6): it is equal where `global_attention_mask` is "
        "1 at both"
    )


FIELDS = replace(
    roberta.fields("longformer", "Longformer"),
    keys=KEYS,
    read=_read,
    write=_write,
    forward={},
    differs=_seen_by_all,
)


@torch.no_grad()
def from_roberta(short: Model, a: Architecture) -> Model:
    """Return a Longformer with a RoBERTa's weights, of the windows and the length of `a`.

    Positions are copied one after another until all have a vector (section 5, "Position
    Embeddings"), and the projections of wide tokens begin as the others (section 3.1). A text that
    fits into the windows has the hidden states that it had.

    Raises:
        ValueError: `short` or `a` have no table of positions.
    """
    theirs = short.architecture
    assert isinstance(theirs, Architecture)
    if not isinstance(theirs.position, Learned) or not isinstance(a.position, Learned):
        raise ValueError("only a table of positions can be copied, one of the models has none")
    own = replace(
        theirs,
        window=a.window,
        global_attention=True,
        position=replace(theirs.position, length=a.position.length),
    )
    long = Model(own, short.specs, short.pooled)
    weights = short.state_dict()
    table = weights.pop("backbone.position.table.weight")
    long.load_state_dict(weights, strict=False)
    copy_to_wide(long)
    offset = theirs.position.offset
    again = torch.arange(a.position.length) % theirs.position.length
    assert isinstance(long.backbone.position, LearnedModule)
    long.backbone.position.table.weight.copy_(
        torch.cat((table[:offset], table[offset:][again.to(table.device)]))
    )
    return long.train(short.training)


LONGFORMER_BASE = replace(
    roberta.ROBERTA_BASE,
    name="longformer-base-4096",
    family="longformer",
    paper=PAPER,
    architecture=BASE,
    grows={"roberta": from_roberta},
    length=4096,  # section 5, "Continued MLM Pretraining"
    batch_tokens=64 * 4096,  # same section
    rate=3e-5,  # same section
    training={
        **roberta.ROBERTA_BASE.training,  # its rows: released code, `raw_text_to_mmap`
        "schedule": {"kind": "Linear", "warmup": 500},  # same section
        "steps": 65_000,  # same section
    },
    parameters=148_711_257,
    names=NAMES,
    fields=FIELDS,
    hub="allenai/longformer-base-4096",
    note="Begins with RoBERTa's weights (`--from`). The paper's rate falls as the third power of "
    "what is left; here it falls in a line.",
)
LONGFORMER_LARGE = replace(
    LONGFORMER_BASE,
    name="longformer-large-4096",
    architecture=replace(BASE, d_model=1024, n_layers=24, n_heads=16, d_ff=4096),
    parameters=434_653_273,
    hub="allenai/longformer-large-4096",
)
LONGFORMER_MINI = replace(
    LONGFORMER_BASE,
    name="longformer-mini",
    architecture=replace(
        BASE, vocab_size=8_192, d_model=256, n_layers=4, n_heads=4, d_ff=1024,
        position=Learned(1024, roberta.OFFSET), window=(16,), initialize=Normal(0.05),
    ),
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
    length=1024,
    batch_tokens=4_096,
    rate=3e-3,
    training={**bert.SMALL_BESIDE, **roberta.FULL_SENTENCES},
    parameters=6_383_616,
    hub=None,
    note="Not in the paper: for two CPU cores, with a window of 16 tokens on each side; from "
    "scratch, or with roberta-mini's weights.",
)  # fmt: skip

CARDS = (LONGFORMER_MINI, LONGFORMER_BASE, LONGFORMER_LARGE)
