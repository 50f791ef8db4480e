"""GPT-3: Brown et al. 2020, "Language Models are Few-Shot Learners", arXiv:2005.14165."""

from dataclasses import replace
from typing import Any

from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.model.initialize import NormalInit
from unmask.model.positions.learned import LearnedPositions
from unmask.zoo.decoders import llama
from unmask.zoo.decoders.gpt import gpt2
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="Language Models are Few-Shot Learners",
    authors="Brown, Mann, Ryder, Subbiah, Kaplan, Dhariwal, et al.",
    year=2020,
    arxiv="2005.14165",
)
LOCAL_ATTENTION_WINDOW = 255
"""How far every other layer sees. The paper says "alternating dense and locally banded sparse
attention", as in Child et al. 2019, arXiv:1904.10509, and no width; this is that of GPT-Neo's
released models (256 tokens, the token itself among them)."""

_FIRST = replace(
    gpt2.GPT2,
    name="",
    family="gpt3",
    paper=PAPER,
    architecture=replace(
        gpt2.SMALL_ARCHITECTURE,
        position=LearnedPositions(2048),
        attention_window=(None, LOCAL_ATTENTION_WINDOW),
    ),  # section 2.1
    sequence_length=2048,  # section 2.1
    weight_names=NATIVE_WEIGHT_NAMES,
    config_mapping=native_config_mapping("gpt3"),
    hub_id=None,
    note="The weights were not published. How wide its bands are is not stated (here 256 tokens), "
    "nor which layers have them, nor the dropout (here GPT-2's).",
)


def _with_size(
    name: str, parameters: int, shape: tuple[int, int, int, int], batch: float, rate: float
) -> Published:
    """Return a row of table 2.1: layers, width, heads, width of a head; millions of tokens, rate.

    The rest of the recipe is appendix B's.
    """
    n_layers, d_model, n_heads, head_width = shape
    # row 13B is printed with heads that are narrower together than its hidden states
    of_head = None if n_heads * head_width == d_model else head_width
    training: dict[str, Any] = {
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        "schedule": {"kind": "Cosine", "warmup": int(375 / batch), "final_fraction": 0.1},
        "max_grad_norm": 1.0,
    }
    return llama.with_size(
        _FIRST, f"gpt3-{name}", parameters,
        n_layers=n_layers, d_model=d_model, n_heads=n_heads, head_dim=of_head, d_ff=4 * d_model,
        initializer=NormalInit(0.02, n_residual_branches=2 * n_layers),
        batch_tokens=int(batch * 1e6), learning_rate=rate, training_options=training,
    )  # fmt: skip


GPT3_PRESETS = (
    _with_size("small", 125_226_240, (12, 768, 12, 64), 0.5, 6e-4),
    _with_size("medium", 355_871_744, (24, 1024, 16, 64), 0.5, 3e-4),
    _with_size("large", 760_300_032, (24, 1536, 16, 96), 0.5, 2.5e-4),
    replace(
        _with_size("xl", 1_315_723_264, (24, 2048, 16, 128), 1.0, 2e-4),
        note=_FIRST.note + " Table 2.1 prints 24 heads of 128 beside a width of 2,048 and 1.3 "
        "billion parameters: these would be 1.52 billion, and 16 heads, as wide together as the "
        "hidden states like those of the other sizes, are the 1.32 billion here.",
    ),
    _with_size("2.7b", 2_651_553_280, (32, 2560, 32, 80), 1.0, 1.6e-4),
    _with_size("6.7b", 6_658_404_352, (32, 4096, 32, 128), 2.0, 1.2e-4),
    replace(
        _with_size("13b", 12_936_488_380, (40, 5140, 40, 128), 2.0, 1e-4),
        note=_FIRST.note + " Width and heads are as printed, 5,140 and 40 of 128; the paper counts "
        "13.0 billion parameters, and these are 12.94 billion (12.85 with a width of 5,120).",
    ),
    _with_size("175b", 174_604_259_328, (96, 12_288, 96, 128), 3.2, 0.6e-4),
)
GPT3_MINI = llama.mini_preset(
    GPT3_PRESETS[0],
    "gpt3-mini",
    5_387_776,
    d_ff=1024,
    position=LearnedPositions(512),
    attention_window=(None, 63),
    initializer=NormalInit(0.02, n_residual_branches=8),
    note="Not in the paper: for two CPU cores, with bands of 64 tokens.",
)

PRESETS = (GPT3_MINI, *GPT3_PRESETS)
