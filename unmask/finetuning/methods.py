"""What is tuned: everything, the head, the top layers, biases, or small parts that are added.

A method is a word ("lora"), a word with differences ("lora:rank=4"), or a value (`LoRA(rank=4)`).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, cast, get_args

import torch

from unmask.adapters.attach import attach, freeze, linears
from unmask.adapters.bottleneck import AdaMix, Houlsby, Pfeiffer
from unmask.adapters.consistency import Consistent
from unmask.adapters.lora import LoRA
from unmask.adapters.mix import Mix
from unmask.adapters.prefix import Prefix, Prompt, PromptModule
from unmask.adapters.scale import IA3
from unmask.adapters.specs import Adapter
from unmask.config import from_dict
from unmask.heads.language import LanguageHead
from unmask.heads.model import Model
from unmask.model.architecture import source_of
from unmask.tokens.tokenizer import Tokenizer
from unmask.training.layers import falling, layers, spread
from unmask.training.recipe import parse
from unmask.training.schedule import Constant, InverseSquareRoot, Linear, Schedule, SlantedTriangle

Shape = Literal["linear", "inverse_square_root", "constant"]
"""How the rate falls after its warm-up: to zero in a line, as 1 / sqrt(step), or not at all."""
_SHAPES = {"linear": Linear, "inverse_square_root": InverseSquareRoot, "constant": Constant}
_ALONE = re.compile(
    r"^backbone\.(encoder\.source\.|(encoder|decoder)\.position\.|"
    r"encoder\.layers\.0\.attention\.[qkv]\.weight$)"
)
"""What is learned in the first step of a new encoder of sources."""
_NEXT = re.compile(r",(?=\s*\w+=)")  # a comma may also stand in the words of a prompt


@dataclass(frozen=True, kw_only=True)
class Full:
    """Everything is tuned."""

    decay: float = 1.0
    """Each layer's rate is this share of the rate of the layer above it (Howard and Ruder 2018,
    arXiv:1801.06146, section 3.2: 1 / 2.6; Clark et al. 2020, arXiv:2003.10555, appendix B: 0.8 to
    0.9)."""
    reinitialize: int = 0
    """So many top layers are drawn anew (Zhang et al. 2021, arXiv:2006.05987, section 5)."""
    head: float = 6.0
    """Rate of a head that labels, in rates of what is below it. It begins with nothing, and as
    long as it is bad it spoils what the layers know (Kumar et al. 2022, arXiv:2202.10054, section
    3). With 6 it learns as one on frozen features does where layers learn at 5e-4."""

    def __post_init__(self) -> None:
        _check_decay(self.decay)
        _check_head(self.head)
        _check_at_least(0, reinitialize=self.reinitialize)


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """The head alone is tuned; the model below it gives features."""


@dataclass(frozen=True, kw_only=True)
class TopLayers:
    """The head and some layers below it are tuned."""

    layers: int = 2
    head: float = 6.0
    """As in `Full`."""

    def __post_init__(self) -> None:
        _check_head(self.head)
        _check_at_least(1, layers=self.layers)


@dataclass(frozen=True, kw_only=True)
class Gradual:
    """Layers are thawed from the top, each slower than the one above, under a slanted triangle.

    Howard and Ruder 2018, section 3.3. Deviates: the paper thaws one layer an epoch, which suits
    its four; here all are thawed, evenly, within the first `over` of the steps.
    """

    over: float = 0.5
    decay: float | None = None
    """None: 1 / 2.6 over four layers as in the paper, the same in all over any other number."""

    def __post_init__(self) -> None:
        if self.decay is not None:
            _check_decay(self.decay)
        if not 0 <= self.over <= 1:
            raise ValueError(f"over must be a share from 0 to 1, got {self.over}")


@dataclass(frozen=True, kw_only=True)
class BitFit:
    """Biases alone are tuned, and the head (Ben Zaken et al. 2022, arXiv:2106.10199)."""


@dataclass(frozen=True, kw_only=True)
class SourceEncoder:
    """A new encoder reads sources in a vocabulary of their own, for translation.

    Its vectors go into the model's encoder in place of those of tokens. It is learned in two steps:
    at first with nothing else but what the model knows of places, and the matrices by which its
    encoder's first layer makes queries, keys and values; then with everything (Lewis et al. 2020,
    arXiv:1910.13461, section 3.4). The paper says neither how long each step is nor how many tokens
    a source's vocabulary has.
    """

    layers: int = 6
    """Of the new encoder (section 5.4); what else it is the model's own encoder says."""
    vocabulary: int = 10_000
    """Tokens that are learned from the sources."""
    alone: float = 0.8
    """So much of all steps is the first step's; 1: the paper's "Fixed BART"."""

    def __post_init__(self) -> None:
        _check_at_least(1, layers=self.layers, vocabulary=self.vocabulary)
        if not 0 <= self.alone <= 1:
            raise ValueError(f"alone must be a share of the steps from 0 to 1, got {self.alone}")


Method = Full | Frozen | TopLayers | Gradual | BitFit | SourceEncoder | Adapter
"""What is tuned."""
ADAPTERS: tuple[type, ...] = get_args(Adapter)
METHODS: Mapping[str, type] = {
    "full": Full,
    "frozen": Frozen,
    "top": TopLayers,
    "mix": Mix,
    "gradual": Gradual,
    "bitfit": BitFit,
    "houlsby": Houlsby,
    "pfeiffer": Pfeiffer,
    "adamix": AdaMix,
    "lora": LoRA,
    "ia3": IA3,
    "prefix": Prefix,
    "prompt": Prompt,
    "source": SourceEncoder,
}

# Rates of small parts of a model that is itself tuned at 5e-4 (one of 3 million parameters, one
# task: docs/log.md, 2026-11-21). Models that are tuned more slowly want slower parts too, but less
# so: with 22 million parameters, tuned at 1e-4, rates of 1e-3 and 3e-3 were better than a fifth of
# these. The square root is a guess between. AdaMix was not measured and has Pfeiffer's.
_SMALL: Mapping[type, float] = {
    BitFit: 4e-3, Houlsby: 4e-3, Pfeiffer: 5e-3, AdaMix: 5e-3, LoRA: 2.5e-3, IA3: 1e-2,
    Prefix: 1e-2, Prompt: 1e-2,
}  # fmt: skip
_MEASURED_AT = 5e-4
_GRADUAL = 4.0
_MOST = 3e-2


def method_of(said: "str | Method") -> Method:
    """Return a method by its word: "lora", "lora:rank=4,where=attention.*+feed_forward.up".

    Raises:
        ValueError: there is no such method, or it has no such number.
    """
    if not isinstance(said, str):
        return said
    word, _, rest = said.partition(":")
    if word not in METHODS:
        raise ValueError(f"tune must be one of {', '.join(METHODS)}, got {word!r}")
    kind = METHODS[word]
    lists = {f.name for f in fields(kind) if "tuple" in str(f.type)}
    plain: dict[str, Any] = {}
    for part in _NEXT.split(rest) if rest else ():
        try:
            plain |= parse(part)
        except ValueError:
            raise ValueError(
                f"tune must be a word, or word:name=value,name=value, got {said!r}"
            ) from None
    plain |= {k: str(plain[k]).split("+") for k in lists & set(plain)}
    try:
        return from_dict(kind, plain, word)
    except ValueError as error:
        raise ValueError(f"tune: {said}: {error}") from None


def word_of(method: Method) -> str:
    """Return the word of a method."""
    return next(word for word, kind in METHODS.items() if isinstance(method, kind))


def is_added(method: Method) -> bool:
    """Say whether a method adds parts to a model that stays as it is."""
    return isinstance(method, ADAPTERS)


def is_small(method: Method) -> bool:
    """Say whether what is tuned is a small part, saved by itself."""
    return is_added(method) or isinstance(method, BitFit)


def tunes_tokens(method: Method) -> bool:
    """Say whether a method tunes the vectors of tokens, at some time."""
    return isinstance(method, Full | Gradual | SourceEncoder)


def begin_method(
    method: Method, model: Model, seed: int, tokenizer: Tokenizer | None = None
) -> None:
    """Make a model ready: add what is added, and let only what is tuned have gradients.

    Args:
        method: what is tuned.
        model: with the heads of the task.
        seed: of what is drawn.
        tokenizer: reads the words with which a prompt begins.

    Raises:
        ValueError: the model has not what the method tunes.
    """
    if isinstance(method, ADAPTERS):
        _add(cast(Adapter, method), model, seed, tokenizer)
        return
    if isinstance(method, SourceEncoder) and source_of(model.architecture) is None:
        raise ValueError("source tunes an encoder of sources, and this model has none")
    tuned = _tuned(method, model)
    for name, p in model.named_parameters():
        p.requires_grad_(name.startswith("heads.") or name in tuned)
    if isinstance(method, Full) and method.reinitialize:
        _draw_top(model, method.reinitialize, seed)


def _add(spec: Adapter, model: Model, seed: int, tokenizer: Tokenizer | None) -> None:
    """Attach an adapter; it learns, and heads that label, but not a head that was pretrained."""
    if isinstance(spec, LoRA):
        _check_rank(spec, model)
    module = attach(model, spec, seed=seed)
    if isinstance(spec, Prompt) and spec.words is not None:
        if tokenizer is None:
            raise ValueError("a prompt that begins with words needs a tokenizer to read them")
        cast(PromptModule, module).begin(model, tokenizer.encode(spec.words).ids.tolist())
    freeze(model)
    for head in model.heads.values():
        if isinstance(head, LanguageHead):
            head.requires_grad_(False)


def _check_rank(spec: LoRA, model: Model) -> None:
    """Refuse matrices that are larger than the one that they stand beside."""
    for name, linear in linears(model, spec.where).items():
        most = max(linear.in_features, linear.out_features)
        if spec.rank > most:
            raise ValueError(f"rank must be at most {most}, as {name} is, got {spec.rank}")


def _tuned(method: Method, model: Model) -> frozenset[str]:
    """Name the parameters of the backbone that are tuned."""
    names = [name for name, _ in model.named_parameters()]
    if isinstance(method, Frozen):
        return frozenset()
    if isinstance(method, BitFit):
        found = frozenset(name for name in names if name.endswith(".bias"))
        if not found:
            raise ValueError("bitfit tunes biases, and this model has none")
        return found
    if isinstance(method, TopLayers):
        groups = layers(model)
        n = len(groups) - 2  # without embeddings and head
        if method.layers > n:
            raise ValueError(f"top tunes at most {n} layers of this model, got {method.layers}")
        return frozenset(name for group in groups[-1 - method.layers :] for name in group)
    return frozenset(names)


def _draw_top(model: Model, n: int, seed: int) -> None:
    groups = layers(model)
    most = len(groups) - 2
    if n > most:
        raise ValueError(f"reinitialize must be at most {most}, the layers of this model, got {n}")
    top = {name.rsplit(".", 1)[0] for group in groups[-1 - n : -1] for name in group}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, module in model.named_modules():
            if name in top:
                model.stack.initialize(name, module, model.stack)


def rates(method: Method, model: Model) -> dict[str, float] | None:
    """Return the factor of each parameter's rate; None where all are 1."""
    groups = layers(model)
    decay = method.decay if isinstance(method, Full | Gradual) else 1.0
    found = falling(groups, spread(len(groups)) if decay is None else decay)
    if isinstance(method, Full | TopLayers):
        for head in (h for h in model.heads if not isinstance(model.heads[h], LanguageHead)):
            of_head = [name for name in found if name.startswith(f"heads.{head}.")]
            found |= {name: method.head * found[name] for name in of_head}
    return None if set(found.values()) == {1.0} else found


def schedule(method: Method, warmup: float, word: Shape = "linear") -> Schedule:
    """Return how the rate changes: up in a line, and down as the word says; or a slanted triangle.

    A warm-up below 1 is a share of the steps, any other a number of them.
    """
    steps = warmup if warmup < 1 else int(warmup)
    return SlantedTriangle(steps) if isinstance(method, Gradual) else _SHAPES[word](steps)


def reading(method: Method, model: Model) -> Consistent | None:
    """Return what answers in place of the model in training; None: the model itself."""
    if isinstance(method, AdaMix) and method.consistency:
        return Consistent(model, method.consistency)
    return None


def thaw(method: Method, model: Model, step: int, steps: int) -> None:
    """Let what is tuned at a step have gradients; a function of the step alone.

    Gradual thawing changes from step to step, and a new encoder of sources has two steps of its
    own.
    """
    if isinstance(method, SourceEncoder):
        alone = step <= round(method.alone * steps)
        for name, p in model.named_parameters():
            p.requires_grad_(not alone or _ALONE.match(name) is not None)
    if not isinstance(method, Gradual):
        return
    groups = layers(model)
    n = len(groups)
    share = step / max(method.over * steps, 1)
    awake = min(1 + int(share * (n - 1)), n)
    by_name = dict(model.named_parameters())
    for i, group in enumerate(reversed(groups)):
        for name in group:
            by_name[name].requires_grad_(i < awake)


def rate_of(method: Method, full: float) -> float:
    """Return the peak rate that is customary for a method, from that of tuning everything."""
    if isinstance(method, Frozen | Mix):
        return max(full, 3e-3)
    if type(method) in _SMALL:
        return min(_SMALL[type(method)] * math.sqrt(full / _MEASURED_AT), _MOST)
    return full * (_GRADUAL if isinstance(method, Gradual) else 1.0)


def _check_decay(decay: float) -> None:
    if not 0 < decay <= 1:
        raise ValueError(f"decay must be above 0 and at most 1, got {decay}")


def _check_head(head: float) -> None:
    if not head > 0:
        raise ValueError(f"head must be above 0, got {head}")


def _check_at_least(least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}")
