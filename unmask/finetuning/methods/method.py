"""Tuning methods: full, head only, top layers, biases, or small added modules (adapters).

A method is given by name ("lora"), by name with settings ("lora:rank=4"), or as a value
(`LoRA(rank=4)`).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast, get_args

import torch

from unmask.adapters.attach import attach, find_linears, freeze
from unmask.adapters.bottleneck import AdaMix, HoulsbyAdapter, PfeifferAdapter
from unmask.adapters.consistency import ConsistencyTraining
from unmask.adapters.ia3 import IA3
from unmask.adapters.lora import LoRA
from unmask.adapters.prefix import PrefixTuning, PromptTuning, PromptTuningModule
from unmask.adapters.scalar_mix import ScalarMix
from unmask.adapters.specs import Adapter
from unmask.adapters.tuning_method import TuningMethod
from unmask.config import check_number_fields, parse_variant
from unmask.finetuning.options.values import ScheduleShape
from unmask.heads.model import Model
from unmask.model.backbones.encoder_decoder import source_encoder_of
from unmask.tokenizers.encode import Tokenizer
from unmask.training.optimizers.layerwise import (
    default_layerwise_lr_decay,
    layerwise_lr_decay,
    parameters_by_layer,
)
from unmask.training.schedules import (
    Constant,
    InverseSquareRoot,
    Linear,
    Schedule,
    SlantedTriangular,
)

_SCHEDULES = {"linear": Linear, "inverse_square_root": InverseSquareRoot, "constant": Constant}
_FIRST_STAGE_PARAMETERS = re.compile(
    r"^backbone\.(encoder\.source\.|(encoder|decoder)\.position\.|"
    r"encoder\.layers\.0\.attention\.[qkv]\.weight$)"
)
"""Parameters that are trained in the first stage with a new source encoder."""


@dataclass(frozen=True, kw_only=True)
class FullFinetuning(TuningMethod):
    """All parameters are trained."""

    layerwise_lr_decay: float = 1.0
    """Layerwise learning-rate decay: the rate of each layer as a fraction of that of the layer
    above (Howard and Ruder 2018, arXiv:1801.06146, section 3.2: 1 / 2.6; Clark et al. 2020,
    arXiv:2003.10555, appendix B: 0.8 to 0.9)."""
    reinitialize_layers: int = 0
    """Number of top layers to reinitialize (Zhang et al. 2021, arXiv:2006.05987, section 5)."""
    head_learning_rate_factor: float = 6.0
    """Learning rate of a classification head, relative to the layers below. A randomly initialized
    head distorts pretrained features at first (Kumar et al. 2022, arXiv:2202.10054, section 3).
    With 6 and a rate of 5e-4, it is trained at the same rate as a head on frozen features."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        _check_decay(self.layerwise_lr_decay)
        _check_head_factor(self.head_learning_rate_factor)
        _check_at_least(0, reinitialize_layers=self.reinitialize_layers)

    trains_embeddings: ClassVar[bool] = True

    @property
    def layer_decay(self) -> float:
        """The learning rate of a layer, relative to the layer above."""
        return self.layerwise_lr_decay

    @property
    def head_factor(self) -> float:
        """The learning rate of a classification head, relative to the layers below."""
        return self.head_learning_rate_factor


@dataclass(frozen=True, kw_only=True)
class FrozenFeatures(TuningMethod):
    """Only the head is trained, on frozen features of the model."""

    trains_head_alone: ClassVar[bool] = True
    keeps_first_token: ClassVar[bool] = True

    def trainable(self, model: Model) -> frozenset[str]:
        """Return no parameter of the backbone."""
        return frozenset()


@dataclass(frozen=True, kw_only=True)
class TopLayers(TuningMethod):
    """The head and the top layers are trained."""

    n_layers: int = 2
    head_learning_rate_factor: float = 6.0
    """As in `FullFinetuning`."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        _check_head_factor(self.head_learning_rate_factor)
        _check_at_least(1, n_layers=self.n_layers)

    @property
    def head_factor(self) -> float:
        """The learning rate of a classification head, relative to the layers below."""
        return self.head_learning_rate_factor

    def trainable(self, model: Model) -> frozenset[str]:
        """Return the names of the parameters of the top layers.

        Raises:
            ValueError: the model has too few layers.
        """
        groups = parameters_by_layer(model)
        n = len(groups) - 2  # without embeddings and head
        if self.n_layers > n:
            raise ValueError(f"top tunes at most {n} layers of this model, got {self.n_layers}")
        return frozenset(name for group in groups[-1 - self.n_layers :] for name in group)


@dataclass(frozen=True, kw_only=True)
class GradualUnfreezing(TuningMethod):
    """Gradual unfreezing from the top, with layerwise rates and a slanted triangular schedule.

    Howard and Ruder 2018, section 3.3.
    Deviates: the paper unfreezes one layer per epoch, for its four layers; here all are unfrozen at
    equal intervals within the first `unfreeze_fraction` of the steps.
    """

    unfreeze_fraction: float = 0.5
    layerwise_lr_decay: float | None = None
    """Layerwise learning-rate decay. None: such that the total over all layers is as in the paper,
    which has 1 / 2.6 with four layers."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        if self.layerwise_lr_decay is not None:
            _check_decay(self.layerwise_lr_decay)
        if not 0 <= self.unfreeze_fraction <= 1:
            raise ValueError(
                f"unfreeze_fraction must be a share from 0 to 1, got {self.unfreeze_fraction}"
            )

    trains_embeddings: ClassVar[bool] = True
    unfreezes_gradually: ClassVar[bool] = True

    @property
    def layer_decay(self) -> float | None:
        """The learning rate of a layer, relative to the layer above."""
        return self.layerwise_lr_decay

    def unfreeze(self, model: Model, step: int, total_steps: int) -> None:
        """Enable the gradients of the layers to train at a step, from the top."""
        groups = parameters_by_layer(model)
        n = len(groups)
        share = step / max(self.unfreeze_fraction * total_steps, 1)
        awake = min(1 + int(share * (n - 1)), n)
        by_name = dict(model.named_parameters())
        for i, group in enumerate(reversed(groups)):
            for name in group:
                by_name[name].requires_grad_(i < awake)


@dataclass(frozen=True, kw_only=True)
class BitFit(TuningMethod):
    """Only the biases and the head are trained (Ben Zaken et al. 2022, arXiv:2106.10199)."""

    is_small_part: ClassVar[bool] = True
    keeps_first_token: ClassVar[bool] = True

    def trainable(self, model: Model) -> frozenset[str]:
        """Return the names of the biases.

        Raises:
            ValueError: the model has none.
        """
        biases = frozenset(name for name, _ in model.named_parameters() if name.endswith(".bias"))
        if not biases:
            raise ValueError("bitfit tunes biases, and this model has none")
        return biases


@dataclass(frozen=True, kw_only=True)
class SourceEncoder(TuningMethod):
    """A new source encoder with its own vocabulary, for translation.

    Its outputs replace the token embeddings of the model's encoder. Training has two stages: first
    only the new encoder, the position embeddings, and the query, key and value projections of the
    model encoder's first layer; then all parameters (Lewis et al. 2020, arXiv:1910.13461, section
    3.4). The paper specifies neither the length of the stages nor the vocabulary size.
    """

    n_layers: int = 6
    """Layers of the new encoder (section 5.4); its other sizes are those of the model's encoder."""
    vocab_size: int = 10_000
    """Vocabulary size, learned from the sources."""
    first_stage_fraction: float = 0.8
    """Fraction of the steps in the first stage; 1: the paper's "Fixed BART"."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        _check_at_least(1, n_layers=self.n_layers, vocab_size=self.vocab_size)
        if not 0 <= self.first_stage_fraction <= 1:
            raise ValueError(
                "first_stage_fraction must be a share of the steps from 0 to 1, got "
                f"{self.first_stage_fraction}"
            )

    trains_embeddings: ClassVar[bool] = True

    def trainable(self, model: Model) -> frozenset[str]:
        """Return the names of all parameters.

        Raises:
            ValueError: the model has no source encoder.
        """
        if source_encoder_of(model.architecture) is None:
            raise ValueError("source_encoder tunes an encoder of sources, and this model has none")
        return super().trainable(model)

    def unfreeze(self, model: Model, step: int, total_steps: int) -> None:
        """Enable the gradients of the first stage's parameters, later of all."""
        alone = step <= round(self.first_stage_fraction * total_steps)
        for name, p in model.named_parameters():
            p.requires_grad_(not alone or _FIRST_STAGE_PARAMETERS.match(name) is not None)


FinetuningMethod = (
    FullFinetuning
    | FrozenFeatures
    | TopLayers
    | GradualUnfreezing
    | BitFit
    | SourceEncoder
    | Adapter
)
"""A tuning method."""
ADAPTER_METHODS: tuple[type, ...] = get_args(Adapter)
METHODS: Mapping[str, type] = {
    "full": FullFinetuning,
    "frozen": FrozenFeatures,
    "top": TopLayers,
    "scalar_mix": ScalarMix,
    "gradual": GradualUnfreezing,
    "bitfit": BitFit,
    "houlsby": HoulsbyAdapter,
    "pfeiffer": PfeifferAdapter,
    "adamix": AdaMix,
    "lora": LoRA,
    "ia3": IA3,
    "prefix": PrefixTuning,
    "prompt": PromptTuning,
    "source_encoder": SourceEncoder,
}

# Learning rates of adapters for a model with a full fine-tuning rate of 5e-4 (measured with 3
# million # parameters on one task: docs/log.md, 2026-11-21). Models with lower rates need lower
# adapter rates, # but not proportionally: with 22 million parameters and a full rate of 1e-4, rates
# of 1e-3 and 3e-3 # were better than a fifth of these. The square root is a guess. AdaMix was not
# measured; it has the # rate of Pfeiffer's adapters.
_PARAMETER_EFFICIENT_LEARNING_RATES: Mapping[type, float] = {
    BitFit: 4e-3,
    HoulsbyAdapter: 4e-3,
    PfeifferAdapter: 5e-3,
    AdaMix: 5e-3,
    LoRA: 2.5e-3,
    IA3: 1e-2,
    PrefixTuning: 1e-2,
    PromptTuning: 1e-2,
}
_REFERENCE_LEARNING_RATE = 5e-4
_GRADUAL_FACTOR = 4.0
_MAX_LEARNING_RATE = 3e-2


def parse_method(text_or_method: "str | FinetuningMethod") -> FinetuningMethod:
    """Parse a method: "lora", or "lora:rank=4,target_modules=attention.*".

    Raises:
        ValueError: there is no such method, or it has no such setting.
    """
    if not isinstance(text_or_method, str):
        return text_or_method
    return parse_variant(METHODS, text_or_method, "tune")


def method_name(method: FinetuningMethod) -> str:
    """Return the name of a method."""
    return next(word for word, kind in METHODS.items() if isinstance(method, kind))


def adds_modules(method: FinetuningMethod) -> bool:
    """Return whether a method adds modules to a frozen model."""
    return isinstance(method, ADAPTER_METHODS)


def is_parameter_efficient(method: FinetuningMethod) -> bool:
    """Return whether the trained part is small and saved separately."""
    return adds_modules(method) or method.is_small_part


def apply_method(
    method: FinetuningMethod, model: Model, seed: int, tokenizer: Tokenizer | None = None
) -> None:
    """Prepare a model for a method: add its modules, and enable gradients of trained parameters.

    Args:
        method: the tuning method.
        model: the model, with the heads of the task.
        seed: random seed.
        tokenizer: tokenizer for the initial words of a prompt.

    Raises:
        ValueError: the model lacks the parameters that the method trains.
    """
    if isinstance(method, ADAPTER_METHODS):
        _attach_adapter(cast(Adapter, method), model, seed, tokenizer)
        return
    tuned = method.trainable(model)
    for name, p in model.named_parameters():
        p.requires_grad_(name.startswith("heads.") or name in tuned)
    if isinstance(method, FullFinetuning) and method.reinitialize_layers:
        _reinitialize_top_layers(model, method.reinitialize_layers, seed)


def _attach_adapter(adapter: Adapter, model: Model, seed: int, tokenizer: Tokenizer | None) -> None:
    """Attach an adapter. It is trained with classification heads, but not with pretrained heads."""
    if isinstance(adapter, LoRA):
        _check_rank(adapter, model)
    module = attach(model, adapter, seed=seed)
    if isinstance(adapter, PromptTuning) and adapter.init_text is not None:
        if tokenizer is None:
            raise ValueError("a prompt that begins with words needs a tokenizer to read them")
        cast(PromptTuningModule, module).initialize_from(
            model, tokenizer.encode(adapter.init_text).ids.tolist()
        )
    freeze(model)
    for head in model.language_heads.values():
        head.requires_grad_(False)


def _check_rank(adapter: LoRA, model: Model) -> None:
    """Refuse a rank that exceeds the size of an adapted matrix."""
    for name, linear in find_linears(model, adapter.target_modules).items():
        most = max(linear.in_features, linear.out_features)
        if adapter.rank > most:
            raise ValueError(f"rank must be at most {most}, as {name} is, got {adapter.rank}")


def _reinitialize_top_layers(model: Model, n_layers: int, seed: int) -> None:
    groups = parameters_by_layer(model)
    most = len(groups) - 2
    if n_layers > most:
        raise ValueError(
            f"reinitialize_layers must be at most {most}, the layers of this model, got {n_layers}"
        )
    top = {name.rsplit(".", 1)[0] for group in groups[-1 - n_layers : -1] for name in group}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, module in model.named_modules():
            if name in top:
                model.decoder_architecture.initializer(name, module, model.decoder_architecture)


def learning_rate_factors(method: FinetuningMethod, model: Model) -> dict[str, float] | None:
    """Return the factor of each parameter's learning rate; None if all are 1."""
    groups = parameters_by_layer(model)
    decay = method.layer_decay
    factors = layerwise_lr_decay(
        groups, default_layerwise_lr_decay(len(groups)) if decay is None else decay
    )
    for head in model.heads.keys() - model.language_heads.keys():
        of_head = [name for name in factors if name.startswith(f"heads.{head}.")]
        factors |= {name: method.head_factor * factors[name] for name in of_head}
    return None if set(factors.values()) == {1.0} else factors


def make_schedule(
    method: FinetuningMethod, warmup: float, shape: ScheduleShape = "linear"
) -> Schedule:
    """Return the learning-rate schedule: a linear warmup and a decay, or a slanted triangle.

    A warmup below 1 is a fraction of the steps, otherwise a number of steps.
    """
    steps = warmup if warmup < 1 else int(warmup)
    return SlantedTriangular(steps) if method.unfreezes_gradually else _SCHEDULES[shape](steps)


def training_forward(method: FinetuningMethod, model: Model) -> ConsistencyTraining | None:
    """Return the wrapper that replaces the model in training; None: the model itself."""
    if isinstance(method, AdaMix) and method.consistency_weight:
        return ConsistencyTraining(model, method.consistency_weight)
    return None


def method_learning_rate(method: FinetuningMethod, full_learning_rate: float) -> float:
    """Return the default peak learning rate of a method, given that of full fine-tuning."""
    if isinstance(method, FrozenFeatures | ScalarMix):
        return max(full_learning_rate, 3e-3)
    if type(method) in _PARAMETER_EFFICIENT_LEARNING_RATES:
        return min(
            _PARAMETER_EFFICIENT_LEARNING_RATES[type(method)]
            * math.sqrt(full_learning_rate / _REFERENCE_LEARNING_RATE),
            _MAX_LEARNING_RATE,
        )
    return full_learning_rate * (_GRADUAL_FACTOR if method.unfreezes_gradually else 1.0)


def _check_decay(decay: float) -> None:
    if not 0 < decay <= 1:
        raise ValueError(f"layerwise_lr_decay must be above 0 and at most 1, got {decay}")


def _check_head_factor(factor: float) -> None:
    if not factor > 0:
        raise ValueError(f"head_learning_rate_factor must be above 0, got {factor}")


def _check_at_least(minimum: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < minimum:
            raise ValueError(f"{name} must be at least {minimum}, got {number}")
