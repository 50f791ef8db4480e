"""Scores of a vocabulary in clusters: first the frequent tokens and the clusters, then the rest."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.heads.language import Language, LanguageHead
from unmask.model.adaptive import AdaptiveEmbedding
from unmask.model.architecture import Architecture
from unmask.model.canine import Table


@dataclass(frozen=True, kw_only=True)
class AdaptiveLanguage(Language):
    """The head that names tokens whose vectors are in clusters."""

    def build(self, architecture: Architecture, table: Table) -> "AdaptiveHead":
        """Build the head of a stack whose token table is `table`.

        Raises:
            ValueError: the table is not in clusters.
        """
        if not isinstance(table, AdaptiveEmbedding):
            raise ValueError("this head scores clusters of tokens, and the table has none")
        return AdaptiveHead(self, architecture, table)


class AdaptiveHead(LanguageHead):
    """Adaptive softmax (Grave et al. 2017, arXiv:1609.04309, section 4), tied to the tables.

    A token of the first cluster is scored among these and the clusters; a rarer one is as likely as
    its cluster, times its share of that. Vectors and maps are those of the embedding (Baevski and
    Auli 2019, arXiv:1809.10853, section 3; Transformer-XL, released code: but for the first map,
    which is the head's own).
    """

    def __init__(self, spec: Language, a: Architecture, table: AdaptiveEmbedding) -> None:
        super().__init__(spec, a, table.table(0))
        self.bias = None  # one for each cluster in its place
        self.first = nn.Linear(a.d_model, table.table(0).embedding_dim, bias=False)
        n = len(table.tables)
        self.clusters = nn.Linear(table.table(0).embedding_dim, n - 1) if n > 1 else None
        self.biases = nn.ParameterList(
            nn.Parameter(torch.zeros(table.table(i).num_embeddings)) for i in range(n)
        )
        self._tables = (table,)

    def _level(self, hidden: Float[Tensor, "*n d"], i: int) -> Float[Tensor, "*n _"]:
        """Score the tokens of cluster i; after those of the first one, the clusters."""
        table = self._tables[0]
        narrow = self.first(hidden) if i == 0 else hidden @ table.map(i).weight
        own = F.linear(narrow, table.table(i).weight, self.biases[i])
        if i or self.clusters is None:
            return own
        return torch.cat((own, self.clusters(narrow)), -1)

    def scores(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n v"]:
        """Return the logarithm of each token's probability."""
        hidden = self.before_scores(hidden)
        first = self._level(hidden, 0).float().log_softmax(-1)
        n = self._tables[0].ends[1]
        rest = [
            first[..., n + i - 1, None] + self._level(hidden, i).float().log_softmax(-1)
            for i in range(1, len(self.biases))
        ]
        return torch.cat((first[..., :n], *rest), -1)

    def scores_among(
        self, hidden: Float[Tensor, "n d"], tokens: Int[Tensor, "k"]
    ) -> Float[Tensor, "n k"]:
        """Return the logarithm of some tokens' probabilities."""
        return self.scores(hidden)[:, tokens]

    def loss(
        self, hidden: Float[Tensor, "n d"], targets: Int[Tensor, "n"]
    ) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        """Sum the cross-entropy in nats, and count the hits.

        A hit: what scores best on the first level is the token or its cluster, and within that the
        token scores best.
        """
        hidden, ends = self.before_scores(hidden), torch.tensor(self._tables[0].ends)
        cluster = torch.bucketize(targets, ends[1:-1].to(targets.device), right=True)
        first = self._level(hidden, 0).float()
        among = torch.where(cluster > 0, int(ends[1]) + cluster - 1, targets)
        total = F.cross_entropy(first, among, reduction="sum")
        hits = first.argmax(-1) == among
        for i in range(1, len(self.biases)):
            where = torch.nonzero(cluster == i).squeeze(1)
            own, wanted = self._level(hidden[where], i).float(), targets[where] - int(ends[i])
            total = total + F.cross_entropy(own, wanted, reduction="sum")
            hits = hits.index_copy(0, where, hits[where] & (own.argmax(-1) == wanted))
        return total, hits.sum()
