"""Options of preference optimization, in Python and on the command line.

`PreferFields` are also the fields of `PreferConfig`, which is saved with a run.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from unmask.finetuning.options.values import ScheduleShape
from unmask.options import DeviceOptions, EncodingOptions, Precision, TerminalOptions, flag

if TYPE_CHECKING:
    from unmask.finetuning.methods.method import FinetuningMethod
    from unmask.preferences.methods import PreferenceMethod


@dataclass(frozen=True, kw_only=True)
class PreferFields(EncodingOptions):
    """How a model learns from preferences."""

    reward: str | None = field(default=None, metadata=flag(metavar="MODEL[:LABEL]"))
    """Reward of responses, for ppo, rloo and best_of_n: a reward model (finetune --task prefer), or
    a classifier of texts and the label whose log-odds are the reward."""
    judge: str | None = field(default=None, metadata=flag(metavar="MODEL[:LABEL]"))
    """Second reward, of a model that was trained on other rows: it rates responses to development
    prompts and is not learned from."""
    reads: Literal["response", "all"] = "response"
    """Text that a classifier reads as reward or judge: the response, or prompt and response joined
    (all)."""
    chat_template: str | None = field(
        default=None, metadata=flag(metavar="FILE", shown_default="the model's own")
    )
    """Chat template: a file, a Jinja text, or none: prompt and response are joined as they are."""
    epochs: float = field(default=1.0, metadata=flag(metavar="N"))
    """Number of passes over the training data."""
    batch_size: int = 32
    """Batch size in pairs, in single responses (kto), or in prompts (ppo, rloo, best_of_n)."""
    learning_rate: float | None = field(
        default=None,
        metadata=flag(metavar="R", shown_default="a tenth of that of fine-tuning"),
    )
    """Peak learning rate."""
    warmup: float = field(default=0.1, metadata=flag(metavar="R"))
    """Length of the linear learning-rate warmup: a fraction of all steps if below 1, else a number
    of steps."""
    schedule: ScheduleShape = "linear"
    """Learning-rate decay after the warmup: to zero, as 1 / sqrt(step), or none."""
    weight_decay: float = field(default=0.0, metadata=flag(metavar="R"))
    """Decoupled weight decay of weight matrices, multiplied by the learning rate."""
    max_grad_norm: float = field(default=1.0, metadata=flag(metavar="R"))
    """Maximum norm of gradients; larger ones are scaled down."""
    dropout: float = field(default=0.0, metadata=flag(metavar="R"))
    """Dropout probability, instead of the model's."""
    max_length: int | None = field(
        default=None, metadata=flag(shown_default="512, or the model's maximum if smaller")
    )
    """Maximum length of a prompt with its response in tokens."""
    max_response_length: int = 64
    """Maximum length of a written response in tokens."""
    cut_reward: float | None = field(
        default=None, metadata=flag(metavar="R", shown_default="as others")
    )
    """Reward of responses that are cut at their maximum length (the EOS trick
    of Huang et al. 2024, arXiv:2403.17031)."""
    reference: Literal["compute", "cache"] = "compute"
    """Log-probabilities of the reference model: computed in each step, by the model without its
    adapter or by a frozen copy; or computed once and kept on disk, which needs no copy."""
    text: str | None = field(default=None, metadata=flag(metavar="FILE"))
    """Plain text of which each step reads as many rows as responses, for ppo, rloo and best_of_n,
    so that the model keeps what it knows (Ouyang et al. 2022, equation 2)."""
    text_weight: float = field(default=1.0, metadata=flag(metavar="R"))
    """Weight of the language-model loss on `text`."""
    dev_prompts: int = 100
    """Number of development prompts, evenly spaced, that are answered in an evaluation."""
    evaluate_every: int | None = field(default=None, metadata=flag(shown_default="a fifth of all"))
    """Interval between evaluations, in steps."""
    seed: int = 0
    """Random seed of the data order, of new weights and of written responses."""
    precision: Precision = "float32"
    """Floating-point precision of training; sums of log-probabilities are compared, which bfloat16
    rounds by about 0.1 nats."""


@dataclass(frozen=True)
class PreferOptions(PreferFields, DeviceOptions, TerminalOptions):
    """A model, preferences or prompts, and how the model learns from them."""

    base: str | Path = field(metadata=flag(metavar="MODEL", is_argument=True))
    """Model: a run folder, a folder in the Hugging Face layout, hf:owner/name; usually one that
    was fine-tuned with --task instruct."""
    _: KW_ONLY
    train: str | Path = field(metadata=flag(metavar="FILE"))
    """Training data: pairs of responses (chosen, rejected), responses with a label (kto), or
    prompts (ppo, rloo, best_of_n): .jsonl, .json, .csv, .parquet."""
    dev: str | Path | None = field(
        default=None, metadata=flag(metavar="FILE", shown_default="a tenth of --train")
    )
    """Development data of the same form."""
    out: str | Path = field(metadata=flag(metavar="FOLDER"))
    """Output folder of the run."""
    method: str | PreferenceMethod = field(default="dpo", metadata=flag(metavar="NAME"))
    """Method: dpo, robust_dpo, hinge, ipo or orpo (pairs), kto (single responses), ppo, rloo or
    best_of_n (the model writes the responses); with settings: dpo:beta=0.2,flip_probability=0.1."""
    tune: str | FinetuningMethod = field(default="full", metadata=flag(metavar="METHOD"))
    """Tuning method, as of finetune: full, lora, ...; with settings: lora:rank=4."""
    resume: bool = False
    """Continue the run in `out` from its last checkpoint."""
