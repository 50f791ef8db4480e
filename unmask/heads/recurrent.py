"""Hidden states -> labels of words by a bidirectional LSTM over words, and a CRF over their labels.

The tagger that reads contextual vectors as features, the model below it frozen (Peters et al. 2018,
arXiv:1802.05365, section 4) or not.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from unmask.batch import IGNORE, Batch
from unmask.heads.crf import CRF
from unmask.heads.prediction import Prediction, Term
from unmask.model.architecture import Architecture
from unmask.model.canine import Table
from unmask.model.parts import Dropout

PATH = "_path"
"""After the name of a term: the labels that are likeliest together."""


@dataclass(frozen=True, kw_only=True)
class RecurrentTags:
    """The head that labels each word, knowing the labels of the others.

    Lample et al. 2016, arXiv:1603.01360, section 2, without vectors of characters: the hidden
    states know the spelling.
    """

    term: str = "token_label"
    n_labels: int = 2
    width: int = 200
    """Of each direction's states (Ma and Hovy 2016, arXiv:1603.01354, table 1)."""
    layers: int = 1
    dropout: float = 0.5
    """Of what the LSTM reads and says (Ma and Hovy 2016, section 3.2)."""
    crf: bool = True
    """Whether labels know of each other beyond what the LSTM does."""
    impossible: tuple[tuple[int, int], ...] = ()
    """Pairs of labels that never follow each other; see `CRF`."""

    def build(self, architecture: Architecture, table: Table) -> "RecurrentTagsHead":
        """Build the head of a stack."""
        return RecurrentTagsHead(self, architecture)


@dataclass(frozen=True, kw_only=True)
class _Words:
    """The words of each row side by side, and what is said of them."""

    scores: Float[Tensor, "b w labels"]
    labels: Int[Tensor, "b w"]
    """IGNORE behind the last word."""
    lengths: Int[Tensor, "b"]
    place: Int[Tensor, "b w"]
    """The column of each; behind the last word, of some tokens that are none."""

    def spread(self, said: Shaped[Tensor, "b w ..."], to: Shaped[Tensor, "b t ..."]) -> Tensor:
        """Put what is said of the words where these are in `to`."""
        real, place = self.labels != IGNORE, self.place
        row = torch.arange(len(place), device=place.device)[:, None].expand_as(place)
        return to.index_put((row[real], place[real]), said[real])


class RecurrentTagsHead(nn.Module):
    """Scores of each word's labels, and the negative log-likelihood of all labels of a sentence.

    A word is a token whose label is not IGNORE: the tokens between are not read. So the labels must
    be there when nothing is learned too; any that is not IGNORE marks a word.

    The loss is summed over sentences, in nats, and counted by words: it is then as large as that of
    labels which are asked one by one, and the same however a step is cut into micro-batches.
    """

    def __init__(self, spec: RecurrentTags, a: Architecture) -> None:
        super().__init__()
        self.spec = spec
        self.dropout = Dropout(spec.dropout)
        self.lstm = nn.LSTM(
            a.d_model, spec.width, spec.layers, batch_first=True, bidirectional=True,
            dropout=spec.dropout if spec.layers > 1 else 0.0,
        )  # fmt: skip
        self.out = nn.Linear(2 * spec.width, spec.n_labels)
        self.crf = CRF(spec.n_labels, spec.impossible) if spec.crf else None

    def draw(self) -> None:
        """Begin as in Ma and Hovy 2016, section 3.1: forget gates open, all other biases zero.

        Each gate's matrix is uniform between -sqrt(6 / (r + c)) and that.
        """
        for name, p in self.lstm.named_parameters():
            if name.startswith("weight"):
                for gate in p.detach().chunk(4):
                    nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(p)
                if name.startswith("bias_ih"):
                    nn.init.ones_(p.detach().chunk(4)[1])  # torch's order: input, forget, ...

    def scores(self, hidden: Float[Tensor, "b t d"], batch: Batch) -> Float[Tensor, "b t labels"]:
        """Compute the log-probability of each word's labels, over all labels of the others.

        Zero where there is no word.

        Raises:
            ValueError: the batch does not say where words are.
        """
        return self._spread(self._words(hidden, _marked(batch)), batch)

    def decode(self, hidden: Float[Tensor, "b t d"], batch: Batch) -> list[list[int]]:
        """Find the likeliest labels of the words of each row, taken together.

        Raises:
            ValueError: the batch does not say where words are.
        """
        words = self._words(hidden, _marked(batch))
        rows = zip(self._best(words).tolist(), words.lengths.tolist(), strict=True)
        return [path[:n] for path, n in rows]

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the words: the tokens whose label is not IGNORE."""
        if batch.labels is None:
            return {}
        return {self.spec.term: int((batch.labels != IGNORE).sum())}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Ask for the labels of each row's words.

        With `scores`, also return the log-probabilities of each word's labels under the name of the
        term, and the likeliest labels taken together as `..._path` [b t], IGNORE between words.

        Raises:
            ValueError: there should be scores, and the batch does not say where words are.
        """
        if batch.labels is None and not scores:
            return Prediction()
        words = self._words(hidden, _marked(batch))
        best = self._best(words)
        kept: dict[str, Tensor] = {}
        if scores:
            nowhere = torch.full_like(batch.inputs, IGNORE)
            kept = {
                self.spec.term: self._spread(words, batch),
                f"{self.spec.term}{PATH}": words.spread(best, nowhere),
            }
        right = (best == words.labels).sum()
        term = Term(self._loss(words), int(words.lengths.sum()), right)
        return Prediction(kept, {self.spec.term: term})

    def _words(self, hidden: Float[Tensor, "b t d"], labels: Int[Tensor, "b t"]) -> _Words:
        """Run the LSTM over the words alone, in both directions from end to end."""
        asked = labels != IGNORE
        lengths = asked.sum(1)
        most = max(int(lengths.max()), 1)
        place = (~asked).byte().argsort(dim=1, stable=True)[:, :most]  # words first, in order
        x = hidden.gather(1, place[..., None].expand(-1, -1, hidden.shape[-1]))  # [b w d]
        packed = pack_padded_sequence(
            self.dropout(x), lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        y, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=most)
        return _Words(
            scores=self.out(self.dropout(y)).float(), labels=labels.gather(1, place),
            lengths=lengths, place=place,
        )  # fmt: skip

    def _loss(self, words: _Words) -> Float[Tensor, ""]:
        if self.crf is None:
            return F.cross_entropy(
                words.scores.mT, words.labels, reduction="sum", ignore_index=IGNORE
            )
        return -self.crf.log_likelihood(words.scores, words.labels, words.lengths).sum()

    def _spread(self, words: _Words, batch: Batch) -> Float[Tensor, "b t labels"]:
        if self.crf is None:
            said = words.scores.log_softmax(-1)
        else:
            said = self.crf.log_marginals(words.scores, words.lengths)
        return words.spread(said, said.new_zeros(*batch.inputs.shape, said.shape[-1]))

    def _best(self, words: _Words) -> Int[Tensor, "b w"]:
        if self.crf is None:
            return words.scores.argmax(-1)
        return self.crf.decode(words.scores, words.lengths)


def _marked(batch: Batch) -> Int[Tensor, "b t"]:
    """Return the labels, which say where words are.

    Raises:
        ValueError: there are none.
    """
    if batch.labels is None:
        raise ValueError(
            "this head reads words, and batch.labels is None: it must mark the token of each word "
            f"with a label (0 if it is not known) and hold {IGNORE} elsewhere"
        )
    return batch.labels
