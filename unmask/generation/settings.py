"""Generation settings: Greedy, Sampling, BestOfN or BeamSearch in a GenerationConfig."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.config import check_number_fields
from unmask.generation.decoding.packed_linear import DecodingPrecision

_TOP_P_CANDIDATES = 2048
"""Likeliest tokens that top-p looks at before it sorts the vocabulary."""


@dataclass(frozen=True)
class Greedy:
    """Always the likeliest token."""

    def probabilities(self, logits: Float[Tensor, "b v"]) -> Float[Tensor, "b v"]:
        """Return the probability with which each token is selected: 1 of the likeliest."""
        best = logits.argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, best, 1.0)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """A token sampled by its probability from those that pass all filters.

    The filters are applied in the order of the fields.
    """

    temperature: float = 1.0
    """The logits are divided by it."""
    top_k: int | None = None
    """The k likeliest, and those as likely as the k-th (Fan et al. 2018, arXiv:1805.04833, section
    5.4)."""
    top_p: float | None = None
    """The fewest that have this probability together (Holtzman et al. 2020, arXiv:1904.09751,
    section 3.1)."""
    min_p: float | None = None
    """Those at least this times as probable as the likeliest (Nguyen et al. 2024, arXiv:2407.01082,
    section 3)."""
    typical_p: float | None = None
    """The fewest that have this probability together, of those whose information is nearest to the
    mean of all (Meister et al. 2023, arXiv:2202.00666, section 4), and those as near as the last of
    them."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        check_number_fields(self)
        if not 1e-6 <= self.temperature <= 1e6:  # logits that are divided by it stay finite
            raise ValueError(f"temperature must be from 1e-6 to 1e6, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        for name in ("top_p", "min_p", "typical_p"):
            p = vars(self)[name]
            if p is not None and not 0 < p <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1, got {p}")

    def probabilities(self, logits: Float[Tensor, "b v"]) -> Float[Tensor, "b v"]:
        """Return the probability of each token, 0 for tokens that a filter removes.

        Probabilities are not renormalized: their sum may be less than 1.
        """
        logits = (logits - logits.amax(-1, keepdim=True)) / self.temperature  # 0 at most
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        probabilities = logits.softmax(-1)
        if self.top_p is not None and self.top_p < 1:
            probabilities = _top_p_filter(probabilities, self.top_p)
        if self.min_p is not None:
            least = self.min_p * probabilities.amax(-1, keepdim=True)
            probabilities = probabilities.masked_fill(probabilities < least, 0)
        if self.typical_p is not None and self.typical_p < 1:
            probabilities = _typical_filter(probabilities, self.typical_p)
        return probabilities


def _top_p_filter(probabilities: Float[Tensor, "b v"], top_p: float) -> Float[Tensor, "b v"]:
    """Keep the likeliest tokens, up to the one with which they reach this probability.

    All are sorted only where the `_TOP_P_CANDIDATES` likeliest do not reach it: that takes five
    times as long. Of equally likely ones the first in the vocabulary are kept.
    """
    n = probabilities.shape[-1]
    ordered = probabilities.topk(min(_TOP_P_CANDIDATES, n)).values
    before = ordered.double().cumsum(-1) - ordered
    if not bool((before[:, -1] >= top_p).all()):
        ordered = probabilities.sort(descending=True).values
        before = ordered.double().cumsum(-1) - ordered
    n_kept = (before < top_p).sum(-1, keepdim=True)
    least = ordered.gather(-1, n_kept - 1)
    n_least = n_kept - (ordered > least).sum(-1, keepdim=True)
    kept, is_least = probabilities >= least, probabilities == least
    if bool((is_least.sum(-1, keepdim=True) > n_least).any()):
        kept &= ~is_least | (is_least.cumsum(-1) <= n_least)
    return probabilities.masked_fill(~kept, 0)


def _typical_filter(probabilities: Float[Tensor, "b v"], typical_p: float) -> Float[Tensor, "b v"]:
    """Keep the tokens whose information is nearest to the entropy, until they reach `typical_p`."""
    exact = probabilities.double() / probabilities.double().sum(-1, keepdim=True)
    information = -exact.log()
    entropy = torch.special.entr(exact).sum(-1, keepdim=True)
    ordered, order = (information - entropy).abs().sort(stable=True)
    reached = exact.gather(-1, order).cumsum(-1) < typical_p
    last = reached.sum(-1, keepdim=True).clamp(max=probabilities.shape[-1] - 1)
    far = (information - entropy).abs() > ordered.gather(-1, last)
    return probabilities.masked_fill(far, 0)


@dataclass(frozen=True, kw_only=True)
class BestOfN:
    """The likeliest of several texts that are sampled independently.

    Adiwardana et al. 2020, arXiv:2001.09977, "sample-and-rank". A text's score is the sum of its
    tokens' log-probabilities, the end token's too, without temperature and filters.
    """

    sampling: Sampling = Sampling()
    """How each is sampled."""
    samples: int = 20
    n_best: int = 1
    """Number of texts to return, the likeliest first; fewer, where fewer differ."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        check_number_fields(self)
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}")
        if not 1 <= self.n_best <= self.samples:
            raise ValueError(
                f"n_best must be from 1 to the {self.samples} samples, got {self.n_best}"
            )


@dataclass(frozen=True, kw_only=True)
class BeamSearch:
    """The best of several texts that are continued side by side.

    A text's score is the sum of its tokens' log-probabilities, the end token's too, divided by the
    number of tokens to the power of the length penalty. Of all continuations of the hypotheses, the
    2 * `beams` best are candidates (more, where there are several end tokens); those of the first
    `beams` that end are finished, and the best that do not end are the next hypotheses (as in
    transformers).
    """

    beams: int = 4
    n_best: int = 1
    """Number of texts to return, the best first."""
    length_penalty: float = 1.0
    """0: none, so that short texts are favored; 1: the mean; above: long texts are favored."""
    early_stopping: bool | Literal["never"] = False
    """When the search ends. True: as soon as `beams` texts have ended. False: when, besides, the
    best hypothesis is worse than each of them at the present length. "never": when it would be
    worse even at the length at which a positive length penalty would help it most."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        check_number_fields(self)
        if self.beams < 1:
            raise ValueError(f"beams must be at least 1, got {self.beams}")
        if not 1 <= self.n_best <= self.beams:
            raise ValueError(f"n_best must be from 1 to the {self.beams} beams, got {self.n_best}")
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty must be a number, got {self.length_penalty}")


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """How text is generated, how long it becomes, and which tokens it may not have."""

    strategy: Greedy | Sampling | BestOfN | BeamSearch = Greedy()
    max_new_tokens: int = 50
    """Maximum; fewer where the model ends its text, or its positions end."""
    min_new_tokens: int = 0
    """The model may not end its text before; a stop string may."""
    max_length: int | None = None
    """Maximum of tokens of a text and what a decoder reads before it: the prompt, or the start of
    an answer."""
    min_length: int = 0
    """Minimum of the same tokens."""
    repetition_penalty: float = 1.0
    """Divisor of a token's logit (factor, if it is negative) after its first occurrence in prompt
    or text: Keskar et al. 2019, arXiv:1909.05858, section 4.1. Beams: factor of its
    log-probability."""
    no_repeat_ngram_size: int | None = None
    """No n-gram of this size occurs twice in prompt and text. An encoder's input does not count."""
    forbidden: tuple[tuple[int, ...], ...] = ()
    """Sequences of tokens that are not completed in the text; of one token: it does not occur."""
    forbidden_first: tuple[int, ...] = ()
    """Tokens with which no text begins."""
    last_token: int | None = None
    """The only token that may come last where a text reaches its maximum length."""
    stop: tuple[str, ...] = ()
    """Stop strings: the text ends before the first that is generated."""
    window: bool = False
    """Of a text that has more tokens than a decoder has positions only the last are read: as many
    as leave room for the remaining new tokens, but at least half of the positions. Where the
    positions end, the last are read again, which costs about one token read for each new one.
    False: such a prompt is an error, and a text ends where the positions do."""
    seed: int = 0
    """Random seed of sampling."""
    precision: DecodingPrecision = "float32"
    """Type of the weights in the matrix products of single tokens: "float32", "bfloat16" or "int8";
    prompts, attention, norms and sums are float32. The others read a half or a fourth of the memory
    for each token, and choose other tokens where two are almost equally likely. bfloat16 is for
    processors that multiply in it; int8, with a scale for each output, is the fastest of few
    texts."""

    @property
    def restricts_tokens(self) -> bool:
        """Whether logits depend on the tokens before them in other ways than by the model."""
        return (
            self.repetition_penalty != 1
            or max(self.min_new_tokens, self.min_length) > 0
            or bool(self.no_repeat_ngram_size or self.forbidden or self.forbidden_first)
            or self.last_token is not None
        )

    @property
    def chooses_text(self) -> bool:
        """Whether a text is one of several, and known when all of them have ended."""
        return isinstance(self.strategy, BeamSearch | BestOfN)

    def _check_counts(self, **minimums: int) -> None:
        for name, minimum in minimums.items():
            if (value := vars(self)[name]) is not None and value < minimum:
                raise ValueError(f"{name} must be at least {minimum}, got {value}")

    def __post_init__(self) -> None:
        """Refuse numbers out of range, and what does not go together."""
        check_number_fields(self)
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        self._check_counts(max_length=1, min_length=0, last_token=0)
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens must be from 0 to the {self.max_new_tokens} new tokens, got "
                f"{self.min_new_tokens}"
            )
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(f"repetition_penalty must be above 0, got {self.repetition_penalty}")
        if self.no_repeat_ngram_size is not None and self.no_repeat_ngram_size < 1:
            raise ValueError(
                f"no_repeat_ngram_size must be at least 1, got {self.no_repeat_ngram_size}"
            )
        if "" in self.stop:
            raise ValueError("a stop string is empty: every text would end before it begins")
        if self.window and isinstance(self.strategy, BeamSearch):
            raise ValueError("beams cannot slide a window: give beams or window, not both")
        if self.precision not in get_args(DecodingPrecision):
            raise ValueError(
                f"precision must be one of {list(get_args(DecodingPrecision))}, got "
                f"{self.precision!r}"
            )
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")


_FIELD_NAMES = {
    part: frozenset(f.name for f in fields(part))
    for part in (Sampling, BestOfN, BeamSearch, GenerationConfig)
}


def chooses_strategy(settings: Iterable[str]) -> bool:
    """Return whether settings of these names choose a strategy: drawing, none of it, or beams."""
    return not {"temperature", "beams"}.isdisjoint(settings)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check settings whose strategy may be that of a model not yet read.

    Raises:
        ValueError: they suit no strategy.
    """
    assumed: dict[str, Any] = {}
    if not chooses_strategy(settings):
        drawn = _FIELD_NAMES[Sampling] | {"samples"}
        if not drawn.isdisjoint(settings):
            assumed = {"temperature": 1.0}
        elif not _FIELD_NAMES[BeamSearch].isdisjoint(settings):
            assumed = {"beams": max(1, settings.get("n_best", 1))}
    generation_config(**assumed, **settings)


def generation_config(**settings: Any) -> GenerationConfig:
    """Make a GenerationConfig of fields of GenerationConfig, Sampling, BestOfN and BeamSearch.

    `temperature` above 0 samples, with `samples` several texts of which the likeliest is returned,
    `beams` searches, and without all of them the likeliest token is selected.

    Raises:
        ValueError: there is no such setting, or two do not go together.
    """
    known = frozenset[str]().union(*_FIELD_NAMES.values()) - {"strategy", "sampling"}
    if unknown := sorted(settings.keys() - known):
        raise ValueError(f"no setting {unknown[0]!r}; there are {', '.join(sorted(known))}")
    sampling = {name: settings[name] for name in _FIELD_NAMES[Sampling] & settings.keys()}
    best_of_n = {name: settings[name] for name in _FIELD_NAMES[BestOfN] & settings.keys()}
    best_of_n = best_of_n if "samples" in best_of_n else {}
    beams = {
        name: settings[name]
        for name in (_FIELD_NAMES[BeamSearch] & settings.keys()) - best_of_n.keys()
    }
    rest = {name: settings[name] for name in _FIELD_NAMES[GenerationConfig] & settings.keys()}
    if "stop" in rest:
        rest["stop"] = (rest["stop"],) if isinstance(rest["stop"], str) else tuple(rest["stop"])
    if sampling.get("temperature", 0) == 0:
        sampling.pop("temperature", None)
        if sampling:
            raise ValueError(
                f"{', '.join(sorted(sampling))}: says among which tokens one is drawn, but at "
                "temperature 0 none is: give a temperature above 0"
            )
    if best_of_n and not sampling:
        raise ValueError("samples are drawn: give a temperature above 0")
    if beams and "beams" not in beams:
        also = ", or samples of what is drawn" if beams.keys() == {"n_best"} else ""
        raise ValueError(f"{', '.join(sorted(beams))}: for a search with beams: give beams{also}")
    if sampling and beams:
        raise ValueError("beams search and temperature draws: give beams or temperature, not both")
    strategy = Sampling(**sampling) if sampling else BeamSearch(**beams) if beams else Greedy()
    if isinstance(strategy, Sampling) and best_of_n:
        strategy = BestOfN(sampling=strategy, **best_of_n)
    return GenerationConfig(strategy=strategy, **rest)
