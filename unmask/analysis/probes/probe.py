"""A probe: a small classifier of frozen features, linear or with one hidden layer."""

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.analysis.probes.spans.pooling import RowFeatures, SpanFeatures, SpanPooling

_SMALLEST_DEVIATION = 1e-6
"""Numbers of less deviation are constants and are not scaled."""


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """How a probe is built and trained.

    Raises:
        ValueError: a number is out of its range.
    """

    hidden_size: int | None = None
    """Size of the hidden layer. None: the probe is linear."""
    projection_size: int = 256
    """Size to which the tokens of spans are projected (Tenney et al. 2019, arXiv:1905.06316,
    appendix C)."""
    learning_rate: float = 1e-2
    """Of Adam (Kingma and Ba 2015, arXiv:1412.6980)."""
    span_learning_rate: float = 1e-3
    """The same of the projections and classifiers of spans, which learn a product of weights: at
    ten times the rate their labels have longer codes."""
    weight_decay: float = 0.0
    """L2 penalty of Adam."""
    batch_size: int | None = None
    """Words in each step. None: all."""
    max_epochs: int = 200
    """Passes over the training words, at most."""
    patience: int = 10
    """Epochs without a lower loss on dev after which training stops."""
    seed: int = 0
    """Random seed of initial weights and of the order of words."""

    def __post_init__(self) -> None:
        for name in ("max_epochs", "patience", "hidden_size", "projection_size", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if min(self.learning_rate, self.span_learning_rate) <= 0 or self.weight_decay < 0:
            raise ValueError(
                "learning rates must be above 0 and weight_decay not below, got "
                f"{self.learning_rate}, {self.span_learning_rate} and {self.weight_decay}"
            )


@dataclass(frozen=True)
class LabeledFeatures:
    """Features of words, and their labels.

    Raises:
        ValueError: there are no words, or other numbers of words and labels.
    """

    features: RowFeatures
    """Of one layer (l = 1), or of the layers that a scalar mix weighs."""
    labels: Int[Tensor, "n"]
    """From 0."""

    def __post_init__(self) -> None:
        if not len(self.labels) or self.features.shape[1] != len(self.labels):
            raise ValueError(
                f"each word needs a label, got {self.features.shape[1]} words and "
                f"{len(self.labels)} labels"
            )


def standardize(parts: Sequence[Float[Tensor, "l _ d"]]) -> list[Float[Tensor, "l _ d"]]:
    """Scale features of each layer to mean 0 and deviation 1 over the words of the first part.

    Layers differ in scale, and steps of Adam do not. Numbers that are constant become about zero.
    Deviates: the papers on probes read features as they are.
    """
    deviation, mean = torch.std_mean(parts[0], 1, keepdim=True, correction=0)
    scale = torch.where(deviation > _SMALLEST_DEVIATION, 1 / deviation, 1.0)
    return [(part - mean) * scale for part in parts]


class ProbeNetwork(nn.Module):
    """softmax(W h), or softmax(W_2 relu(W_1 h)): Hewitt and Liang 2019, arXiv:1909.03368.

    Of several layers h = gamma · Σ softmax(s)_l h_l (Tenney et al. 2019, arXiv:1905.05950, section
    3.1).
    """

    def __init__(self, n_layers: int, width: int, n_labels: int, hidden_size: int | None) -> None:
        super().__init__()
        is_mix = n_layers > 1
        self.mix = nn.Parameter(torch.zeros(n_layers), requires_grad=is_mix)
        self.gamma = nn.Parameter(torch.ones(()), requires_grad=is_mix)
        self.classifier = _classifier(width, n_labels, hidden_size)

    def forward(self, features: Float[Tensor, "l n d"]) -> Float[Tensor, "n k"]:
        """Return the logits."""
        return self.classifier(_mix_layers(features, self.mix, self.gamma))


class SpanProbeNetwork(nn.Module):
    """The classifier of `ProbeNetwork`, of the pooled vectors of one span or two, [r_1; r_2].

    Each span has a projection and an attention of its own (Tenney et al. 2019, arXiv:1905.06316,
    appendix C).

    Deviates: the paper's probe has a sigmoid for each label, since some of its tasks have several
    labels for a span, and always a hidden layer, with tanh, layer normalization and dropout.
    """

    def __init__(self, features: SpanFeatures, n_labels: int, settings: ProbeSettings) -> None:
        super().__init__()
        n_layers, _, width = features.shape
        size, n_spans = settings.projection_size, len(features.spans)
        self.mix = nn.Parameter(torch.zeros(n_layers), requires_grad=n_layers > 1)
        self.gamma = nn.Parameter(torch.ones(()), requires_grad=n_layers > 1)
        self.pooling = nn.ModuleList(SpanPooling(width, size) for _ in range(n_spans))
        self.classifier = _classifier(n_spans * size, n_labels, settings.hidden_size)

    def forward(self, features: SpanFeatures) -> Float[Tensor, "n k"]:
        """Return the logits."""
        vectors = [
            pool(_mix_layers(one.tokens, self.mix, self.gamma), one.row_of_token, len(one.lengths))
            for pool, one in zip(self.pooling, features.spans, strict=True)
        ]
        return self.classifier(torch.cat(vectors, 1))


def _mix_layers(
    states: Float[Tensor, "l n d"], mix: Float[Tensor, "l"], gamma: Float[Tensor, ""]
) -> Float[Tensor, "n d"]:
    if len(states) == 1:  # the weight of a single layer is 1
        return states[0]
    return torch.einsum("l,lnd->nd", gamma * mix.softmax(0), states)


def _classifier(width: int, n_labels: int, hidden_size: int | None) -> nn.Sequential:
    if hidden_size is None:
        return nn.Sequential(nn.Linear(width, n_labels))
    return nn.Sequential(nn.Linear(width, hidden_size), nn.ReLU(), nn.Linear(hidden_size, n_labels))


@dataclass(frozen=True, eq=False)
class TrainedProbe:
    """A probe after training."""

    network: ProbeNetwork | SpanProbeNetwork
    best_epoch: int
    """Epoch of the lowest loss on dev, from 1; the probe's weights are those after it."""
    dev_losses: tuple[float, ...]
    """Mean cross-entropy on dev in nats after each epoch; of the training words without dev."""

    @torch.no_grad()
    def log_probabilities(self, features: RowFeatures) -> Float[Tensor, "n k"]:
        """Return the natural logarithms of the probabilities of all labels."""
        return self.network(features).log_softmax(-1)

    def accuracy(self, data: LabeledFeatures) -> float:
        """Return the share of words whose most likely label is right."""
        predicted = self.log_probabilities(data.features).argmax(-1)
        return float((predicted == data.labels).double().mean())

    @property
    def layer_weights(self) -> Float[Tensor, "l"]:
        """Weights softmax(s) of the layers."""
        return self.network.mix.detach().double().softmax(0)


def train_probe(
    train: LabeledFeatures,
    dev: LabeledFeatures | None,
    n_labels: int,
    settings: ProbeSettings | None = None,
) -> TrainedProbe:
    """Train a probe by Adam; features stay as they are.

    Args:
        train: training words.
        dev: words whose loss stops training. None: `max_epochs` epochs.
        n_labels: number of labels.
        settings: how; None: the defaults.

    Raises:
        ValueError: features of dev have another shape.
    """
    settings = settings or ProbeSettings()
    if dev is not None and dev.features.shape[::2] != train.features.shape[::2]:
        raise ValueError(
            f"features of dev have layers and widths {tuple(dev.features.shape[::2])}, those of "
            f"training {tuple(train.features.shape[::2])}"
        )
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(settings.seed)
        network = _new_network(train.features, n_labels, settings)
        return _train(network, train, dev, settings)


def _new_network(
    features: RowFeatures, n_labels: int, settings: ProbeSettings
) -> ProbeNetwork | SpanProbeNetwork:
    if isinstance(features, Tensor):
        n_layers, _, width = features.shape
        return ProbeNetwork(n_layers, width, n_labels, settings.hidden_size)
    return SpanProbeNetwork(features, n_labels, settings)


def _train(
    network: ProbeNetwork | SpanProbeNetwork,
    train: LabeledFeatures,
    dev: LabeledFeatures | None,
    settings: ProbeSettings,
) -> TrainedProbe:
    is_spans = not isinstance(train.features, Tensor)
    mix = [network.mix, network.gamma]
    optimizer = torch.optim.Adam(
        [
            {"params": mix if mix[0].requires_grad else [], "lr": settings.learning_rate},
            {
                "params": [*network.parameters()][len(mix) :],
                "lr": settings.span_learning_rate if is_spans else settings.learning_rate,
            },
        ],
        weight_decay=settings.weight_decay,
    )
    x, y = train.features, train.labels
    dev_x, dev_y = (x, y) if dev is None else (dev.features, dev.labels)
    n = len(y)
    losses: list[float] = []
    best_epoch, best = 0, copy.deepcopy(network.state_dict())
    for epoch in range(1, settings.max_epochs + 1):
        whole = settings.batch_size is None or settings.batch_size >= n
        batches = [None] if whole else torch.randperm(n).split(settings.batch_size or n)
        for rows in batches:
            optimizer.zero_grad()
            seen, wanted = (x, y) if rows is None else (x[:, rows], y[rows])
            F.cross_entropy(network(seen), wanted).backward()
            optimizer.step()
        with torch.no_grad():
            losses.append(float(F.cross_entropy(network(dev_x), dev_y)))
        if dev is None or losses[-1] < min(losses[:-1], default=float("inf")):
            best_epoch, best = epoch, copy.deepcopy(network.state_dict())
        elif epoch - best_epoch >= settings.patience:
            break
    network.load_state_dict(best)
    return TrainedProbe(network.requires_grad_(False), best_epoch, tuple(losses))


def center_of_gravity(layer_weights: Float[Tensor, "l"]) -> float:
    """Return Σ_l l · s_l, from layer 0: Tenney et al. 2019, arXiv:1905.05950, section 3.1."""
    layers = torch.arange(len(layer_weights), dtype=torch.float64)
    return float(layers @ layer_weights.double())


def expected_layer(scores: Sequence[float]) -> float:
    """Return the expected layer of cumulative scores: Tenney et al. 2019, section 3.2.

    arXiv:1905.05950. Σ_l l Δ_l / Σ_l Δ_l over l = 1 .. L, where Δ_l is the score of layers 0 .. l
    minus that of layers 0 .. l - 1.

    Args:
        scores: score of a probe on a mix of layers 0 .. l, for each l.

    Raises:
        ValueError: the last score is that of layer 0 alone: no layer adds anything.
    """
    gains = [after - before for before, after in itertools.pairwise(scores)]
    total = scores[-1] - scores[0]
    if total == 0:
        raise ValueError("the layers add nothing to the score of layer 0")
    return sum(layer * gain for layer, gain in enumerate(gains, 1)) / total
