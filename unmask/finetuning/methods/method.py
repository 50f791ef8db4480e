"""What is tuned: everything, the head, the top layers, biases, or small parts that are added.

A method is a word ("lora"), a word with differences ("lora:rank=4"), or a value (`LoRA(rank=4)`).
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
from unmask.config import check_number_fields
from unmask.finetuning.options.values import ScheduleShape
from unmask.heads.model import Model
from unmask.model.backbones.encoder_decoder import source_encoder_of
from unmask.tokenizers.encode import Tokenizer
from unmask.training.config import parse_variant
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
"""What is learned in the first step of a new encoder of sources."""


@dataclass(frozen=True, kw_only=True)
class FullFinetuning(TuningMethod):
    """Everything is tuned."""

    layerwise_lr_decay: float = 1.0
    """Each layer's rate is this share of the rate of the layer above it (Howard and Ruder 2018,
    arXiv:1801.06146, section 3.2: 1 / 2.6; Clark et al. 2020, arXiv:2003.10555, appendix B: 0.8 to
    0.9)."""
    reinitialize_layers: int = 0
    """So many top layers are drawn anew (Zhang et al. 2021, arXiv:2006.05987, section 5)."""
    head_learning_rate_factor: float = 6.0
    """Rate of a head that labels, in rates of what is below it. It begins with nothing, and as
    long as it is bad it spoils what the layers know (Kumar et al. 2022, arXiv:2202.10054, section
    3). With 6 it learns as one on frozen features does where layers learn at 5e-4."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        _check_decay(self.layerwise_lr_decay)
        _check_head_factor(self.head_learning_rate_factor)
        _check_at_least(0, reinitialize_layers=self.reinitialize_layers)

    trains_embeddings: ClassVar[bool] = True

    @property
    def layer_decay(self) -> float:
        """The learning rate of a layer, in that of the layer above it."""
        return self.layerwise_lr_decay

    @property
    def head_factor(self) -> float:
        """The learning rate of a head of labels, in that of what is below it."""
        return self.head_learning_rate_factor


@dataclass(frozen=True, kw_only=True)
class FrozenFeatures(TuningMethod):
    """The head alone is tuned; the model below it gives features."""

    trains_head_alone: ClassVar[bool] = True

    def trainable(self, model: Model) -> frozenset[str]:
        """Name no parameter of the backbone."""
        return frozenset()


@dataclass(frozen=True, kw_only=True)
class TopLayers(TuningMethod):
    """The head and some layers below it are tuned."""

    n_layers: int = 2
    head_learning_rate_factor: float = 6.0
    """As in `FullFinetuning`."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        _check_head_factor(self.head_learning_rate_factor)
        _check_at_least(1, n_layers=self.n_layers)

    @property
    def head_factor(self) -> float:
        """The learning rate of a head of labels, in that of what is below it."""
        return self.head_learning_rate_factor

    def trainable(self, model: Model) -> frozenset[str]:
        """Name the parameters of the top layers.

        Raises:
            ValueError: the model has not so many layers.
        """
        groups = parameters_by_layer(model)
        n = len(groups) - 2  # without embeddings and head
        if self.n_layers > n:
            raise ValueError(f"top tunes at most {n} layers of this model, got {self.n_layers}")
        return frozenset(name for group in groups[-1 - self.n_layers :] for name in group)


@dataclass(frozen=True, kw_only=True)
class GradualUnfreezing(TuningMethod):
    """Layers are thawed from the top, each slower than the one above, under a slanted triangle.

    Howard and Ruder 2018, section 3.3.
    Deviates: the paper thaws one layer an epoch, which suits its four; here all are thawed, evenly,
    within the first `unfreeze_fraction` of the steps.
    """

    unfreeze_fraction: float = 0.5
    layerwise_lr_decay: float | None = None
    """None: 1 / 2.6 over four layers as in the paper, the same in all over any other number."""

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
        """The learning rate of a layer, in that of the layer above it."""
        return self.layerwise_lr_decay

    def unfreeze(self, model: Model, step: int, total_steps: int) -> None:
        """Let the layers from the top on have gradients, more of them from step to step."""
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
    """Biases alone are tuned, and the head (Ben Zaken et al. 2022, arXiv:2106.10199)."""

    is_small_part: ClassVar[bool] = True

    def trainable(self, model: Model) -> frozenset[str]:
        """Name the biases.

        Raises:
            ValueError: there are none.
        """
        found = frozenset(name for name, _ in model.named_parameters() if name.endswith(".bias"))
        if not found:
            raise ValueError("bitfit tunes biases, and this model has none")
        return found


@dataclass(frozen=True, kw_only=True)
class SourceEncoder(TuningMethod):
    """A new encoder reads sources in a vocabulary of their own, for translation.

    Its vectors go into the model's encoder in place of those of tokens. It is learned in two steps:
    at first with nothing else but what the model knows of places, and the matrices by which its
    encoder's first layer makes queries, keys and values; then with everything (Lewis et al. 2020,
    arXiv:1910.13461, section 3.4). The paper says neither how long each step is nor how many tokens
    a source's vocabulary has.
    """

    n_layers: int = 6
    """Of the new encoder (section 5.4); what else it is the model's own encoder says."""
    vocab_size: int = 10_000
    """Tokens that are learned from the sources."""
    first_stage_fraction: float = 0.8
    """So much of all steps is the first step's; 1: the paper's "Fixed BART"."""

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
        """Name all parameters.

        Raises:
            ValueError: the model has no encoder of sources.
        """
        if source_encoder_of(model.architecture) is None:
            raise ValueError("source_encoder tunes an encoder of sources, and this model has none")
        return super().trainable(model)

    def unfreeze(self, model: Model, step: int, total_steps: int) -> None:
        """Let what the first step of learning tunes have gradients, and then everything."""
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
"""What is tuned."""
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

# Rates of small parts of a model that is itself tuned at 5e-4 (one of 3 million parameters, one
# task: docs/log.md, 2026-11-21). Models that are tuned more slowly want slower parts too, but less
# so: with 22 million parameters, tuned at 1e-4, rates of 1e-3 and 3e-3 were better than a fifth of
# these. The square root is a guess between. AdaMix was not measured and has Pfeiffer's.
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
    """Return a method by its word: "lora", or "lora:rank=4,target_modules=attention.*".

    Raises:
        ValueError: there is no such method, or it has no such number.
    """
    if not isinstance(text_or_method, str):
        return text_or_method
    return parse_variant(METHODS, text_or_method, "tune")


def method_name(method: FinetuningMethod) -> str:
    """Return the word of a method."""
    return next(word for word, kind in METHODS.items() if isinstance(method, kind))


def adds_modules(method: FinetuningMethod) -> bool:
    """Return whether a method adds parts to a model that stays as it is."""
    return isinstance(method, ADAPTER_METHODS)


def is_parameter_efficient(method: FinetuningMethod) -> bool:
    """Return whether what is tuned is a small part, saved by itself."""
    return adds_modules(method) or method.is_small_part


def apply_method(
    method: FinetuningMethod, model: Model, seed: int, tokenizer: Tokenizer | None = None
) -> None:
    """Make a model ready: add what is added, and let only what is tuned have gradients.

    Args:
        method: what is tuned.
        model: with the heads of the task.
        seed: random seed.
        tokenizer: reads the words with which a prompt begins.

    Raises:
        ValueError: the model has not what the method tunes.
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
    """Attach an adapter; it learns, and heads that label, but not a head that was pretrained."""
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
    """Refuse matrices that are larger than the one that they are beside."""
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
    """Return the factor of each parameter's rate; None where all are 1."""
    groups = parameters_by_layer(model)
    decay = method.layer_decay
    found = layerwise_lr_decay(
        groups, default_layerwise_lr_decay(len(groups)) if decay is None else decay
    )
    for head in model.heads.keys() - model.language_heads.keys():
        of_head = [name for name in found if name.startswith(f"heads.{head}.")]
        found |= {name: method.head_factor * found[name] for name in of_head}
    return None if set(found.values()) == {1.0} else found


def make_schedule(
    method: FinetuningMethod, warmup: float, shape: ScheduleShape = "linear"
) -> Schedule:
    """Return how the rate changes: up in a line, and down as the word says; or a slanted triangle.

    A warm-up below 1 is a share of the steps, any other a number of them.
    """
    steps = warmup if warmup < 1 else int(warmup)
    return SlantedTriangular(steps) if method.unfreezes_gradually else _SCHEDULES[shape](steps)


def training_forward(method: FinetuningMethod, model: Model) -> ConsistencyTraining | None:
    """Return what answers in place of the model in training; None: the model itself."""
    if isinstance(method, AdaMix) and method.consistency_weight:
        return ConsistencyTraining(model, method.consistency_weight)
    return None


def method_learning_rate(method: FinetuningMethod, full_learning_rate: float) -> float:
    """Return the peak rate that is customary for a method, from that of tuning everything."""
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
