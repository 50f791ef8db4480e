"""How text is said: Greedy, Sample, Ranked or Beam, and what holds for all of them (Decoding)."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Greedy:
    """Always the likeliest token."""

    def probabilities(self, logits: Float[Tensor, "b v"]) -> Float[Tensor, "b v"]:
        """Return the probability with which each token is said: 1 of the likeliest."""
        best = logits.argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, best, 1.0)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """A token drawn by its probability, among those that all filters leave.

    They act in the order in which they stand here, each on what those before it left.
    """

    temperature: float = 1.0
    """The scores are divided by it."""
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
        if not 1e-6 <= self.temperature <= 1e6:  # scores that are divided by it stay numbers
            raise ValueError(f"temperature must be from 1e-6 to 1e6, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        for name in ("top_p", "min_p", "typical_p"):
            share = vars(self)[name]
            if share is not None and not 0 < share <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1, got {share}")

    def probabilities(self, logits: Float[Tensor, "b v"]) -> Float[Tensor, "b v"]:
        """Return the probability of each token, 0 of those that a filter takes away.

        They are not normalized again: what is left may have less than 1 together.
        """
        logits = (logits - logits.amax(-1, keepdim=True)) / self.temperature  # 0 at most
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        share = logits.softmax(-1)
        if self.top_p is not None and self.top_p < 1:
            share = _top_p_filter(share, self.top_p)
        if self.min_p is not None:
            least = self.min_p * share.amax(-1, keepdim=True)
            share = share.masked_fill(share < least, 0)
        if self.typical_p is not None and self.typical_p < 1:
            share = _typical_filter(share, self.typical_p)
        return share


def _top_p_filter(probabilities: Float[Tensor, "b v"], top_p: float) -> Float[Tensor, "b v"]:
    """Keep the likeliest tokens, up to the one with which they reach this probability."""
    ordered, order = probabilities.sort(descending=True, stable=True)
    before = ordered.double().cumsum(-1) - ordered
    gone = torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, before >= top_p)
    return probabilities.masked_fill(gone, 0)


def _typical_filter(probabilities: Float[Tensor, "b v"], typical_p: float) -> Float[Tensor, "b v"]:
    """Keep the tokens whose information is nearest to the entropy, until they reach this share."""
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
    """The likeliest of several texts that are drawn, each on its own.

    Adiwardana et al. 2020, arXiv:2001.09977, "sample-and-rank". A text's score is the sum of its
    tokens' log-probabilities, the end token's too, without temperature and filters.
    """

    sampling: Sampling = Sampling()
    """How each is drawn."""
    samples: int = 20
    n_best: int = 1
    """How many texts are wanted, the likeliest first; fewer, where fewer differ."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}")
        if not 1 <= self.n_best <= self.samples:
            raise ValueError(f"n_best must be from 1 to the {self.samples} samples, got {self.n_best}")


@dataclass(frozen=True, kw_only=True)
class BeamSearch:
    """The best of several texts that are followed side by side.

    A text's score is the sum of its tokens' log-probabilities, the end token's too, divided by the
    number of tokens to the power of the length penalty. Of all continuations of the texts followed,
    the 2 * `beams` best are looked at; those of the first half that end are kept, and the best that
    do not end are followed (as in transformers).
    """

    beams: int = 4
    n_best: int = 1
    """How many texts are wanted, the best first."""
    length_penalty: float = 1.0
    """0: none, so that short texts are favored; 1: the mean; above: long texts are favored."""
    early_stopping: bool | Literal["never"] = False
    """When it is over. True: as soon as `beams` texts have ended. False: when, besides, the best
    that goes on is worse than each of them at the present length. "never": when it would be worse
    even at the length at which a positive length penalty would help it most."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if self.beams < 1:
            raise ValueError(f"beams must be at least 1, got {self.beams}")
        if not 1 <= self.n_best <= self.beams:
            raise ValueError(f"n_best must be from 1 to the {self.beams} beams, got {self.n_best}")
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty must be a number, got {self.length_penalty}")


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """How a text is said, how long it becomes, and which tokens it may not have."""

    strategy: Greedy | Sampling | BestOfN | BeamSearch = Greedy()
    max_new_tokens: int = 50
    """At most so many; fewer where the model ends its text, or its positions end."""
    min_new_tokens: int = 0
    """The model may not end its text before; a stop string may."""
    repetition_penalty: float = 1.0
    """What a token's score is divided by (multiplied, if it is negative) once it was read or said:
    Keskar et al. 2019, arXiv:1909.05858, section 4.1. Beams: its log-probability is multiplied."""
    no_repeat_ngram_size: int | None = None
    """No n tokens, n this number, that were read or said one after another are said again. An
    encoder's text does not count."""
    stop: tuple[str, ...] = ()
    """The text ends before the one of these that is said first; what never comes never ends it."""
    window: bool = False
    """Of a text that has more tokens than a decoder has positions only the last are read: as many
    as leave room for what is yet to be said, but at least half of the positions. Where the
    positions end, the last are read again, which costs about a token read for each that is said.
    False: such a prompt is an error, and a text ends where the positions do."""
    seed: int = 0
    """Of what is drawn."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range, and what does not go together."""
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens must be from 0 to the {self.max_new_tokens} new tokens, got "
                f"{self.min_new_tokens}"
            )
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(f"repetition_penalty must be above 0, got {self.repetition_penalty}")
        if self.no_repeat_ngram_size is not None and self.no_repeat_ngram_size < 1:
            raise ValueError(f"no_repeat_ngram_size must be at least 1, got {self.no_repeat_ngram_size}")
        if "" in self.stop:
            raise ValueError("a stop string is empty: every text would end before it begins")
        if self.window and isinstance(self.strategy, BeamSearch):
            raise ValueError("beams cannot slide a window: give beams or window, not both")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")


_FIELD_NAMES = {part: frozenset(f.name for f in fields(part)) for part in (Sampling, BestOfN, BeamSearch, GenerationConfig)}


def generation_config(**settings: Any) -> GenerationConfig:
    """Make a Decoding of the fields of Decoding, Sample, Ranked and Beam, by name.

    `temperature` above 0 draws, with `samples` several texts of which the likeliest is said,
    `beams` searches, and without all of them the likeliest token is said.

    Raises:
        ValueError: there is no such setting, or two do not go together.
    """
    known = frozenset[str]().union(*_FIELD_NAMES.values()) - {"strategy", "sampling"}
    if strange := sorted(settings.keys() - known):
        raise ValueError(f"no setting {strange[0]!r}; there are {', '.join(sorted(known))}")
    drawn = {name: settings[name] for name in _FIELD_NAMES[Sampling] & settings.keys()}
    ranked = {name: settings[name] for name in _FIELD_NAMES[BestOfN] & settings.keys()}
    ranked = ranked if "samples" in ranked else {}
    searched = {name: settings[name] for name in (_FIELD_NAMES[BeamSearch] & settings.keys()) - ranked.keys()}
    rest = {name: settings[name] for name in _FIELD_NAMES[GenerationConfig] & settings.keys()}
    if "stop" in rest:
        rest["stop"] = (rest["stop"],) if isinstance(rest["stop"], str) else tuple(rest["stop"])
    if drawn.get("temperature", 0) == 0:
        drawn.pop("temperature", None)
        if drawn:
            raise ValueError(
                f"{', '.join(sorted(drawn))}: says among which tokens one is drawn, but at "
                "temperature 0 none is: give a temperature above 0"
            )
    if ranked and not drawn:
        raise ValueError("samples are drawn: give a temperature above 0")
    if searched and "beams" not in searched:
        also = ", or samples of what is drawn" if searched.keys() == {"n_best"} else ""
        raise ValueError(
            f"{', '.join(sorted(searched))}: for a search with beams: give beams{also}"
        )
    if drawn and searched:
        raise ValueError("beams search and temperature draws: give beams or temperature, not both")
    by = Sampling(**drawn) if drawn else BeamSearch(**searched) if searched else Greedy()
    by = BestOfN(sampling=by, **ranked) if isinstance(by, Sampling) and ranked else by
    return GenerationConfig(strategy=by, **rest)
