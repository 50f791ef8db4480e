"""PreferConfig: the complete configuration of a run of preference optimization."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from unmask.config import MAX_LEARNING_RATE, check_number_fields, check_value, to_dict
from unmask.finetuning.methods.method import FinetuningMethod, FullFinetuning, parse_method
from unmask.options import keywords
from unmask.preferences.methods import (
    PreferenceMethod,
    online_method,
    pair_loss_of,
    parse_preference_method,
    preference_method_name,
)
from unmask.preferences.options import PreferFields, PreferOptions
from unmask.preferences.pair_losses import DPO

_POSITIVE = ("batch_size", "max_length", "max_response_length", "dev_prompts", "evaluate_every")
_NOT_NEGATIVE = ("weight_decay", "max_grad_norm", "text_weight", "seed", "warmup")


@dataclass(frozen=True, kw_only=True)
class PreferConfig(PreferFields):
    """The complete configuration of a run. None: derived from the model and the data."""

    base: str
    """Model: a folder, `hf:owner/name`, or a bundled model."""
    train: str
    dev: str | None = None
    method: PreferenceMethod = field(default_factory=DPO)
    """Method of preference optimization."""
    tune: FinetuningMethod = field(default_factory=FullFinetuning)
    """Tuning method."""

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        for name, kind in get_type_hints(PreferConfig).items():
            check_value(kind, to_dict(getattr(self, name)), name)
        check_number_fields(self)
        self._check_numbers()
        self._check_method()

    def _check_numbers(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not 0 < self.epochs <= 1e6:
            raise ValueError(f"epochs must be above 0 and at most 1e6, got {self.epochs}")
        rate = self.learning_rate
        if rate is not None and not 0 < rate <= MAX_LEARNING_RATE:
            raise ValueError(
                f"learning_rate must be above 0 and at most {MAX_LEARNING_RATE:g}, got {rate}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be from 0 to below 1, got {self.dropout}")
        if self.warmup >= 1 and self.warmup % 1:
            raise ValueError(
                "warmup must be a share of the steps from 0 to below 1, or a whole number of "
                f"steps, got {self.warmup}"
            )
        if self.cut_reward is not None and not math.isfinite(self.cut_reward):
            raise ValueError(f"cut_reward must be a finite number, got {self.cut_reward}")

    def _check_method(self) -> None:
        """Check that the options are those of the method.

        Raises:
            ValueError: one is missing, or has no effect.
        """
        name, online = preference_method_name(self.method), online_method(self.method)
        if online is not None:
            if self.reward is None:
                raise ValueError(f"method {name} needs a reward: give a reward model (--reward)")
            if self.reference == "cache":
                raise ValueError(
                    f"reference = cache is for responses in a file; {name} writes its own"
                )
        elif self.text is not None:
            raise ValueError(f"text is for ppo, rloo and best_of_n, got method {name}")
        elif self.cut_reward is not None:
            raise ValueError(f"cut_reward is for ppo, rloo and best_of_n, got method {name}")
        loss = pair_loss_of(self.method)
        if loss is not None and not loss.needs_reference and self.reference == "cache":
            raise ValueError(f"reference = cache: {name} has no reference model")


def make_prefer_config(options: PreferOptions) -> PreferConfig:
    """Resolve the options of a run to a config.

    Raises:
        ValueError: an option is invalid.
    """
    resolved: dict[str, Any] = keywords(PreferFields, options) | {
        "base": str(options.base),
        "train": str(options.train),
        "dev": None if options.dev is None else str(options.dev),
        "method": parse_preference_method(options.method),
        "tune": parse_method(options.tune),
    }
    return PreferConfig(**resolved)


def check_same_prefer_config(
    where: object, recorded: Mapping[str, Any], config: PreferConfig, *, is_resolved: bool
) -> None:
    """Check that a config equals the recorded one.

    Args:
        where: folder of the run, for the message.
        recorded: the resolved config of the run.
        config: the config to compare.
        is_resolved: whether it is resolved, too. Otherwise what is derived is not compared.

    Raises:
        ValueError: it does not; the message has the first difference.
    """
    for key, value in json.loads(json.dumps(to_dict(config))).items():
        if not is_resolved and (value is None or key == "evaluate_every"):
            continue
        if recorded.get(key) != value:
            raise ValueError(
                f"{where}: this run has {key} = {recorded.get(key)!r}, got {value!r}; to continue "
                "it, give the same options"
            )
