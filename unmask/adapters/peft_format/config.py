"""Keys of adapter_config.json: each is used, harmless, or rejected by name.

The keys are those of PEFT 0.21's configuration classes; a test enumerates them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from reprlib import Repr
from typing import Any, Literal, TypeVar

from unmask.adapters.peft_format.patterns import name_pattern
from unmask.config import from_dict
from unmask.text.formats.records import format_names

ValueT = TypeVar("ValueT")

SUPPORTED_INITIALIZATIONS = ("gaussian", "eva", "orthogonal", "mica")
"""Values of `init_lora_weights`, besides true and false, that do not change the base model. The
others (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) initialize the two matrices from its weights."""

_HARMLESS_FOR_ALL = frozenset({"peft_version", "inference_mode"})
_BASE_MODEL_KEYS = frozenset(
    {"task_type", "peft_type", "auto_mapping", "base_model_name_or_path", "revision"}
)
"""Keys of the base model and its heads, read by `folder.py`."""
HARMLESS_KEYS: Mapping[str, frozenset[str]] = {
    "LORA": _HARMLESS_FOR_ALL
    | {
        "fan_in_fan_out",  # PEFT corrects it by the kind of layer
        "megatron_core",  # read only with megatron_config
        "loftq_config",
        "eva_config",
        "corda_config",
        "lora_ga_config",  # for initialization only
        "qalora_group_size",  # read only with use_qalora
        "runtime_config",
        "ensure_weight_tying",  # of embeddings, rejected if tied
    },
    "IA3": _HARMLESS_FOR_ALL | {"fan_in_fan_out", "feedforward_modules", "init_ia3_weights"},
    # The vectors are written after reparametrization.
    "PREFIX_TUNING": _HARMLESS_FOR_ALL
    | {"encoder_hidden_size", "prefix_projection", "init_weights"},
    "PROMPT_TUNING": _HARMLESS_FOR_ALL
    | {
        "prompt_tuning_init",
        "prompt_tuning_init_text",
        "tokenizer_name_or_path",
        "tokenizer_kwargs",
    },
}
"""Keys that do not affect a trained adapter."""
FIXED_KEYS: Mapping[str, Mapping[str, Any]] = {
    "LORA": {
        "use_dora": False, "use_qalora": False, "use_bdlora": None, "lora_bias": False,
        "megatron_config": None, "trainable_token_indices": None, "target_parameters": None,
        "layer_replication": None, "alora_invocation_tokens": None, "velora_config": None,
        "monteclora_config": None, "arrow_config": None, "kasa_config": None,
    },
    "IA3": {},
    "PREFIX_TUNING": {},
    "PROMPT_TUNING": {},
}  # fmt: skip
"""Unsupported keys, and their only supported value."""

_repr = Repr()
_repr.maxother = _repr.maxstring = _repr.maxdict = _repr.maxlist = 60


@dataclass(frozen=True, kw_only=True)
class PeftConfig:
    """Settings of an adapter's tensors, with PEFT's names and defaults."""

    peft_type: str
    task_type: str | None = None
    target_modules: str | tuple[str, ...] = ()
    exclude_modules: str | tuple[str, ...] = ()
    modules_to_save: tuple[str, ...] = ()
    layers_to_transform: int | tuple[int, ...] = ()
    layers_pattern: str | tuple[str, ...] = ()
    r: int = 8
    lora_alpha: float = 8.0
    lora_dropout: float = 0.0
    rank_pattern: Mapping[str, int] = field(default_factory=dict[str, int])
    alpha_pattern: Mapping[str, float] = field(default_factory=dict[str, float])
    use_rslora: bool = False
    bias: Literal["none", "all", "lora_only"] = "none"
    init_lora_weights: bool | str = True
    num_layers: int | None = None
    num_virtual_tokens: int | None = None
    num_transformer_submodules: int = 1
    num_attention_heads: int | None = None
    token_dim: int | None = None

    def __post_init__(self) -> None:
        integers = (
            "r", "num_layers", "num_virtual_tokens", "num_transformer_submodules",
            "num_attention_heads", "token_dim",
        )  # fmt: skip
        counts = {name: getattr(self, name) for name in integers}
        for name, n in (*counts.items(), *self.rank_pattern.items()):
            if n is not None and n < 1:
                raise ValueError(f"{name} must be at least 1, got {n}")
        for name, x in (("lora_alpha", self.lora_alpha), *self.alpha_pattern.items()):
            if not math.isfinite(x):
                raise ValueError(f"{name} must be a finite number, got {x}")
        value = self.init_lora_weights
        if isinstance(value, str) and value.lower() not in SUPPORTED_INITIALIZATIONS:
            raise ValueError(
                "init_lora_weights must be true, false or one of "
                f"{', '.join(SUPPORTED_INITIALIZATIONS)}, which "
                f"do not change the base model, got {value!r}: save it again with PEFT, "
                "converted (path_initial_model_for_weight_conversion)"
            )

    def check_targeted(self, module: str) -> None:
        """Reject a module with tensors that PEFT does not adapt.

        Raises:
            ValueError: it is one.
        """
        if self.target_modules and self.targets(module) is False:
            options = {
                "exclude_modules": self.exclude_modules,
                "layers_to_transform": self.layers_to_transform,
            }
            also = "".join(f", {key} {_repr.repr(x)}" for key, x in options.items() if x != ())
            targets = format_names(_as_tuple(self.target_modules))
            raise ValueError(f"{module} has tensors, but target_modules names only {targets}{also}")

    def targets(self, module: str) -> bool | None:
        """Return whether PEFT adapts a linear map of this name; None: a pattern decides.

        Regular expressions are not evaluated: they can take exponential time.
        """
        if isinstance(self.exclude_modules, str) or isinstance(self.target_modules, str):
            return None
        if _ends_with(module, self.exclude_modules) or self._is_saved_module(module):
            return False
        if module in self.target_modules:  # exact match: layers are ignored
            return True
        if not _ends_with(module, self.target_modules):
            return False
        layers = self.layers_to_transform
        if layers == ():
            return True
        layer = self._layer_index(module)
        return layer in (layers if isinstance(layers, tuple) else (layers,))

    def _is_saved_module(self, module: str) -> bool:
        """Return whether a module is fully trained, or inside of one that is."""
        return any(f".{saved}." in f".{module}." for saved in self.modules_to_save)

    def _layer_index(self, module: str) -> int | None:
        """Return a module's layer index, as PEFT finds it."""
        parts = module.split(".")
        numbers = [i for i, part in enumerate(parts[:-1]) if part.isdecimal()]
        if not self.layers_pattern:  # the first one after two components
            return next((int(parts[i]) for i in numbers if i > 1), None)
        for before in _as_tuple(self.layers_pattern):
            for i in numbers:
                if _ends_with(".".join(parts[:i]), (before,)):
                    return int(parts[i])
        return None

    def rank(self, module: str) -> int:
        """Return the rank of a module."""
        return _value_for_pattern(self.rank_pattern, module, self.r)

    def scaling(self, module: str) -> float:
        """Return the scaling of B A, as in PEFT."""
        rank, alpha = (
            self.rank(module),
            _value_for_pattern(self.alpha_pattern, module, self.lora_alpha),
        )
        return alpha / rank**0.5 if self.use_rslora else alpha / rank


USED_KEYS = frozenset(f.name for f in fields(PeftConfig)) | _BASE_MODEL_KEYS


def read_peft_config(config: Mapping[str, Any]) -> PeftConfig:
    """Read the settings of tensors in PEFT's configuration, without those of training.

    Raises:
        ValueError: a key is unsupported or unknown.
    """
    kind = str(config["peft_type"])
    for key, value in config.items():
        if key in USED_KEYS or key in HARMLESS_KEYS[kind] or _is_empty(value):
            continue
        if key not in FIXED_KEYS[kind]:
            raise ValueError(
                f"{key} = {_repr.repr(value)} is an unknown key of {kind}: it may change what PEFT "
                "computes, so it must be empty, null or false"
            )
        if value != (only := FIXED_KEYS[kind][key]):
            raise ValueError(f"{key} = {_repr.repr(value)} is not supported, only {only!r}")
    known = {f.name for f in fields(PeftConfig)}
    values = {key: x for key, x in config.items() if key in known and x is not None}
    if config.get("task_type") == "SEQ_2_SEQ_LM":
        values = {"num_transformer_submodules": 2} | values  # PEFT's default
    return from_dict(PeftConfig, values)


def _is_empty(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


def _ends_with(module: str, suffixes: tuple[str, ...]) -> bool:
    return any(module == end or module.endswith(f".{end}") for end in suffixes)


def _as_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _value_for_pattern(patterns: Mapping[str, ValueT], module: str, default: ValueT) -> ValueT:
    """Return the value of the first pattern that matches a module's name or its end."""
    for pattern, value in patterns.items():
        if name_pattern(pattern).match(module):
            return value
    return default
