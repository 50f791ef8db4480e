"""Hidden states -> scores of tokens -> loss, only where something is asked."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.prediction import Prediction, Term
from unmask.model.architecture import Architecture
from unmask.model.backbones.canine import TokenEmbedding, require_embedding_table
from unmask.model.layers.attention.query_stream import (
    EnhancedMaskDecoder,
    QueryStream,
    TwoStreamAttention,
)
from unmask.model.layers.embeddings.adaptive import AdaptiveEmbedding
from unmask.model.layers.feed_forward import ACTIVATIONS, Activation
from unmask.model.positions.scheme import SCHEMES_IN_SCORES

ROWS_PER_CHUNK = 1024
"""Places whose scores are held at the same time: enough for full speed, few enough to stay small
and re-used."""
CPU_CHUNK_LOGITS = 2**19
"""Scores that are turned into probabilities at the same time on a CPU: 2 MiB in float32."""


@dataclass(frozen=True)
class AppendedMaskGeneration:
    """A text is said by putting a mask after it, which is then what the head names (UniLM).

    Dong et al. 2019, arXiv:1905.03197, section 2.5.
    """

    target_segment: int = 0
    """Of all that is said, and, without a source, of all that is read."""
    source_segment: int | None = None
    """Segment of a prompt that is a source: seen as a whole, and answered. None: the text goes on
    where the prompt ends, which is read forward as well."""


@dataclass(frozen=True)
class ShiftedTargetGeneration:
    """Each place names the token after its own, whatever it sees (GPT-BERT).

    Read forward, that is what follows; otherwise, what is hidden there (Charpentier and Samuel
    2024, arXiv:2410.24159, section 2).
    """


@dataclass(frozen=True)
class SourcePrefixGeneration:
    """A prompt is a source, and what follows it in the same stack answers it (T5's table 2).

    Raffel et al. 2020, arXiv:1910.10683, section 3.2.1.
    """

    bidirectional_source: bool = False
    """The source is seen as a whole (a prefix language model), and not read forward."""


@dataclass(frozen=True, kw_only=True)
class LanguageModeling:
    """The head that names tokens."""

    term: str = "next_token"
    transform: Activation | None = None
    """BERT: a linear map, this activation and a norm come before the scores (released code,
    `get_masked_lm_output`)."""
    transform_bias: bool | None = None
    """Of that map. None: as of the feed-forward's."""
    bias: bool = False
    tie_embeddings: bool = True
    """The scores' matrix is the table of token vectors (Press and Wolf 2017)."""
    scale_hidden: bool = False
    """The hidden states are multiplied by d_model^-0.5 first (T5 with tied tables; Mesh
    TensorFlow)."""
    logit_softcapping: float | None = None
    """Scores s become cap tanh(s / cap) (Bello et al. 2017, arXiv:1611.09940)."""
    query_stream: EnhancedMaskDecoder | TwoStreamAttention | None = None
    """What asks layers in place of their input: the last one (He et al. 2021, section 3.2), or all,
    where the batch is blind (Yang et al. 2019, section 2.3)."""
    generation: AppendedMaskGeneration | ShiftedTargetGeneration | SourcePrefixGeneration | None = None
    """How a stack that sees in both directions says text, if it has learned to read forward as
    well, or one that has learned to answer. None: it does not, or sees no other way (`causal`)."""
    weight: float = 1.0
    """Of its loss, beside those of other heads."""
    label_smoothing: float = 0.0
    """While it learns, so much of each target is spread over all tokens alike (Szegedy et al. 2016,
    arXiv:1512.00567, section 7)."""

    def __post_init__(self) -> None:
        """Refuse more than there is to spread."""
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, got {self.label_smoothing}")

    def build(self, architecture: Architecture, embedding_table: TokenEmbedding) -> "LanguageModelingHead":
        """Build the head of a stack whose token table is `embedding_table`.

        Raises:
            ValueError: there is no table, but hashes, and the scores would be of a million tokens;
                tokens in clusters are to be smoothed; or a second stream would not know where it
                stands.
        """
        if isinstance(self.query_stream, TwoStreamAttention):
            _check_second_stream(architecture)
        if isinstance(embedding_table, AdaptiveEmbedding):
            if self.label_smoothing:
                raise ValueError(f"smoothing of tokens in clusters is not made, got {self}")
            return AdaptiveSoftmaxHead(self, architecture, embedding_table)
        return LanguageModelingHead(self, architecture, require_embedding_table(embedding_table))


def _check_second_stream(a: Architecture) -> None:
    """Check that a stream which begins with the same vector everywhere knows where it is.

    Raises:
        ValueError: it does not, or there are no layers that it could go through.
    """
    if not isinstance(a.position, SCHEMES_IN_SCORES):
        known = ", ".join(kind.__name__ for kind in SCHEMES_IN_SCORES)
        raise ValueError(
            "a second stream (permutation language modeling) asks without the vectors of tokens, "
            f"so positions must be in the scores ({known}), got {type(a.position).__name__}"
        )
    if a.depth_weighted_average or any(a.layer_types):
        what = "sublayers that are mixed" if a.depth_weighted_average else "layers with convolutions"
        raise ValueError(f"no second stream goes through {what} (permutation language modeling)")


class _LinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy of `hidden @ weight.T + bias`, perhaps capped, some rows at a time.

    The scores of all rows never exist together: with 30,000 tokens they would be the largest tensor
    of the step, and on a CPU most of the time would go into fetching fresh memory for them. The
    gradients need the scores once more, so they are made while the scores are there (as in Hsu et
    al. 2024, Liger kernels, arXiv:2410.10989, section 3.2).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        softcap: float | None,
        label_smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        right = torch.zeros((), dtype=torch.int64, device=hidden.device)
        wanted = any(ctx.needs_input_grad)
        d_hidden = torch.empty_like(hidden) if wanted else None
        d_weight: Tensor | None = None
        d_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for h, y, d_h in _chunks(hidden, targets, d_hidden):
            scores = F.linear(h, weight, bias)
            steep = None if softcap is None else _softcap_(scores, softcap)
            loss, correct = cross_entropy_gradient_(scores, y, d_bias if steep is None else None, label_smoothing)
            if steep is not None:
                scores *= steep
                d_bias = None if d_bias is None else d_bias + scores.float().sum(0)
            total += loss
            right += correct
            if d_h is None:
                continue
            torch.mm(scores, weight, out=d_h)
            part = scores.T @ h
            d_weight = part if d_weight is None else d_weight.add_(part)
        if wanted:
            ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return total, right

    @staticmethod
    def backward(
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        scale = grads[0]
        return (
            d_hidden * scale.to(d_hidden.dtype),
            None if d_weight is None else d_weight * scale.to(d_weight.dtype),
            None if d_bias is None else (d_bias * scale).to(d_hidden.dtype),
            None,
            None,
            None,
        )


def _softcap_(logits: Float[Tensor, "n v"], softcap: float) -> Float[Tensor, "n v"]:
    """Cap scores in place; return how steep that is at each."""
    share = logits.div_(softcap).tanh_()
    steep = 1 - share.square()
    logits.mul_(softcap)
    return steep


def _chunks(
    hidden: Tensor, targets: Tensor, d_hidden: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    for start in range(0, len(hidden), ROWS_PER_CHUNK):
        rows = slice(start, start + ROWS_PER_CHUNK)
        yield hidden[rows], targets[rows], None if d_hidden is None else d_hidden[rows]


def cross_entropy_gradient_(
    logits: Float[Tensor, "n v"],
    targets: Int[Tensor, "n"],
    over_rows: Float[Tensor, "v"] | None = None,
    label_smoothing: float = 0.0,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Turn scores into the gradient of their summed cross-entropy, in place.

    Return that sum and the hits. The gradients' sum over rows, a bias's gradient, is added to
    `over_rows`. Of each target a share of `label_smoothing` is all tokens alike. On a CPU some rows at a
    time, so that their float32 form stays in the cache.
    """
    total = torch.zeros((), dtype=torch.float32, device=logits.device)
    right = torch.zeros((), dtype=torch.int64, device=logits.device)
    n, v = logits.shape
    step = max(1, CPU_CHUNK_LOGITS // v) if logits.device.type == "cpu" else max(1, n)
    for start in range(0, n, step):
        block, y = logits[start : start + step], targets[start : start + step, None]
        highest, best = block.max(-1, keepdim=True)
        right += (best == y).sum()
        exact = block.float() - highest
        total -= (1 - label_smoothing) * exact.gather(1, y).sum()
        if label_smoothing:
            total -= label_smoothing / v * exact.sum()
        exact.exp_()
        mass = exact.sum(-1, keepdim=True)
        total += mass.log().sum()
        exact.div_(mass).scatter_add_(1, y, torch.full_like(mass, label_smoothing - 1))
        if label_smoothing:
            exact -= label_smoothing / v
        block.copy_(exact)
        if over_rows is not None:
            over_rows += exact.sum(0)
    return total, right


class LanguageModelingHead(nn.Module):
    """Scores of tokens at the places asked, and their cross-entropy."""

    def __init__(self, spec: LanguageModeling, a: Architecture, embedding_table: nn.Embedding) -> None:
        super().__init__()
        self.spec = spec
        self.dense = self.norm = None
        if spec.transform is not None:
            bias = "feed_forward" in a.biases if spec.transform_bias is None else spec.transform_bias
            self.dense = nn.Linear(a.d_model, a.d_embed, bias=bias)
            self.norm = a.norm.build(a.d_embed)
            self.activation = ACTIVATIONS[spec.transform]
        self.decoder = None if spec.query_stream is None else spec.query_stream.build(a)
        self.scale = a.d_model**-0.5 if spec.scale_hidden else 1.0
        self.bias = nn.Parameter(torch.zeros(a.vocab_size)) if spec.bias else None
        self.out = None if spec.tie_embeddings else nn.Linear(a.d_model, a.vocab_size, bias=False)
        # in a tuple: the backbone's parameter, not one more of this module's
        self._table = (embedding_table,)

    @property
    def two_stream(self) -> bool:
        """Whether what asks for a token may not see it, so that no mask need stand there."""
        return self.decoder is not None and self.decoder.excludes_self

    def query_stream_for(self, batch: Batch) -> QueryStream | None:
        """Return what asks the backbone's layers for this batch, if not their own input."""
        return None if self.two_stream and not batch.two_stream else self.decoder

    @property
    def weight(self) -> Float[Tensor, "v d"]:
        """The matrix of the scores."""
        return self._table[0].weight if self.out is None else self.out.weight

    def transform_hidden(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n _"]:
        """Apply what stands between the backbone and the matrix of the scores."""
        if self.dense is not None and self.norm is not None:
            hidden = self.norm(self.activation(self.dense(hidden)))
        return hidden * self.scale if self.scale != 1 else hidden

    def logits(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n v"]:
        """Score every token of the vocabulary."""
        return self._softcapped(F.linear(self.transform_hidden(hidden), self.weight, self.bias))

    def candidate_logits(
        self, hidden: Float[Tensor, "n d"], candidate_ids: Int[Tensor, "k"]
    ) -> Float[Tensor, "n k"]:
        """Score some tokens of the vocabulary."""
        bias = None if self.bias is None else self.bias[candidate_ids]
        return self._softcapped(F.linear(self.transform_hidden(hidden), self.weight[candidate_ids], bias))

    def _softcapped(self, logits: Tensor) -> Tensor:
        cap = self.spec.logit_softcapping
        return logits if cap is None else (logits / cap).tanh() * cap

    def loss(
        self, hidden: Float[Tensor, "n d"], targets: Int[Tensor, "n"]
    ) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        """Sum the cross-entropy of the scores in nats, and count the hits; see `next_loss`."""
        before, cap = self.transform_hidden(hidden), self.spec.logit_softcapping
        smoothing = self.spec.label_smoothing if self.training else 0.0
        return linear_cross_entropy(before, self.weight, self.bias, targets, softcap=cap, label_smoothing=smoothing)

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward's FLOPs a token: of the scores, and of the map before them."""
        before = 0 if self.dense is None else self.dense.weight.numel()
        return target_fraction * 2 * (before + self.weight.numel())

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the places asked, without reading a tensor."""
        if batch.targets is None:
            return {}
        n = batch.targets.numel() if batch.target_positions is None else batch.target_positions.numel()
        return {self.spec.term: n}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Ask at the places where targets are not IGNORE, of all tokens or those of the batch.

        With `return_logits`, also return what was said there.
        """
        if batch.targets is None:
            return Prediction()
        flat, targets = hidden.flatten(0, 1), batch.targets.flatten()
        if batch.target_positions is not None:
            flat, targets = flat[batch.target_positions], targets[batch.target_positions]
        if batch.candidate_ids is not None:
            return self._candidate_prediction(flat, targets, batch.candidate_ids, scores=return_logits)
        total, right = self.loss(flat, targets)
        said = {self.spec.term: self.logits(flat)} if return_logits else {}
        term = Term(total, targets.numel(), right, self.spec.weight)
        return Prediction(said, {self.spec.term: term})

    def _candidate_prediction(
        self,
        hidden: Float[Tensor, "n d"],
        targets: Int[Tensor, "n"],
        candidate_ids: Int[Tensor, "k"],
        *,
        scores: bool,
    ) -> Prediction:
        said = self.candidate_logits(hidden, candidate_ids).float()
        which = (targets[:, None] == candidate_ids).int().argmax(-1)
        total = F.cross_entropy(said, which, reduction="sum")
        term = Term(total, len(which), (said.argmax(-1) == which).sum(), self.spec.weight)
        return Prediction({self.spec.term: said} if scores else {}, {self.spec.term: term})


class AdaptiveSoftmaxHead(LanguageModelingHead):
    """Adaptive softmax (Grave et al. 2017, arXiv:1609.04309, section 4), tied to the tables.

    A token of the first cluster is scored among these and the clusters; a rarer one is as likely as
    its cluster, times its share of that. Vectors and maps, where there are any, are those of the
    embedding (Baevski and Auli 2019, arXiv:1809.10853, section 3; Transformer-XL, released code:
    but for the first map, which is the head's own).
    """

    def __init__(self, spec: LanguageModeling, a: Architecture, embedding_table: AdaptiveEmbedding) -> None:
        super().__init__(spec, a, embedding_table.cluster_table(0))
        self.bias = None  # there is one for each cluster, whatever `spec` says
        width, n = embedding_table.cluster_table(0).embedding_dim, embedding_table.n_clusters
        self.first = nn.Linear(a.d_model, width, bias=False) if len(embedding_table.maps) else None
        self.clusters = nn.Linear(width, n - 1) if n > 1 else None
        self.biases = nn.ParameterList(
            nn.Parameter(torch.zeros(embedding_table.cluster_table(i).num_embeddings))
            for i in range(len(embedding_table.tables))
        )
        self._tables = (embedding_table,)

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward's FLOPs a token: of the first level, which most tokens do not leave."""
        before = 0 if self.first is None else self.first.weight.numel()
        return target_fraction * 2 * (before + self._tables[0].cluster_vectors(0).numel())

    def _cluster_logits(self, hidden: Float[Tensor, "*n d"], i: int) -> Float[Tensor, "*n _"]:
        """Score the tokens of cluster i; after those of the first one, the clusters."""
        table = self._tables[0]
        narrow = hidden
        if self.first is not None:
            narrow = hidden @ table.cluster_projection(i).weight if i else self.first(hidden)
        bias = table.cluster_slice(list(self.biases), i)
        own = F.linear(narrow, table.cluster_vectors(i), bias)
        if i or self.clusters is None:
            return own
        return torch.cat((own, self.clusters(narrow)), -1)

    def logits(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n v"]:
        """Return the logarithm of each token's probability."""
        hidden = self.transform_hidden(hidden)
        first = self._cluster_logits(hidden, 0).float().log_softmax(-1)
        n = self._tables[0].ends[1]
        rest = [
            first[..., n + i - 1, None] + self._cluster_logits(hidden, i).float().log_softmax(-1)
            for i in range(1, self._tables[0].n_clusters)
        ]
        return torch.cat((first[..., :n], *rest), -1)

    def candidate_logits(
        self, hidden: Float[Tensor, "n d"], candidate_ids: Int[Tensor, "k"]
    ) -> Float[Tensor, "n k"]:
        """Return the logarithm of some tokens' probabilities."""
        return self.logits(hidden)[:, candidate_ids]

    def loss(
        self, hidden: Float[Tensor, "n d"], targets: Int[Tensor, "n"]
    ) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        """Sum the cross-entropy in nats, and count the hits.

        A hit: what scores best on the first level is the token or its cluster, and within that the
        token scores best.
        """
        hidden, ends = self.transform_hidden(hidden), torch.tensor(self._tables[0].ends)
        cluster = torch.bucketize(targets, ends[1:-1].to(targets.device), right=True)
        first = self._cluster_logits(hidden, 0).float()
        among = torch.where(cluster > 0, int(ends[1]) + cluster - 1, targets)
        total = F.cross_entropy(first, among, reduction="sum")
        hits = first.argmax(-1) == among
        for i in range(1, self._tables[0].n_clusters):
            where = torch.nonzero(cluster == i).squeeze(1)
            own, wanted = self._cluster_logits(hidden[where], i).float(), targets[where] - int(ends[i])
            total = total + F.cross_entropy(own, wanted, reduction="sum")
            hits = hits.index_copy(0, where, hits[where] & (own.argmax(-1) == wanted))
        return total, hits.sum()


def linear_cross_entropy(
    hidden: Float[Tensor, "n d"],
    weight: Float[Tensor, "v d"],
    bias: Float[Tensor, "v"] | None,
    targets: Int[Tensor, "n"],
    *,
    softcap: float | None = None,
    label_smoothing: float = 0.0,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Sum the cross-entropy of linear scores, perhaps capped, in nats, and count the hits.

    Of each target a share of `label_smoothing` is all tokens alike.

    A hit: the best score is the target's.

    Raises:
        ValueError: a target is IGNORE: such places must not be asked.
    """
    if targets.device.type == "cpu" and targets.numel() and int(targets.min()) == IGNORE_INDEX:
        raise ValueError("a place without a target is asked; `asked` must name the others")
    return _LinearCrossEntropy.apply(hidden, weight, bias, targets, softcap, label_smoothing)  # pyright: ignore[reportReturnType]
