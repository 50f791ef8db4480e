"""Hidden states -> labels of words, by a bidirectional LSTM over words and a CRF over labels.

A tagger over contextual vectors; the model below it is frozen (Peters et al. 2018,
arXiv:1802.05365, section 4) or fine-tuned.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.heads.tagging.crf import CRF
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.model.layers.feed_forward import Dropout

BEST_PATH_SUFFIX = "_path"
"""Suffix of the name of logits that hold the most likely label sequence."""


@dataclass(frozen=True, kw_only=True)
class BiLSTMCRF(HeadSpec):
    """The head that labels each word with a BiLSTM-CRF.

    Lample et al. 2016, arXiv:1603.01360, section 2, without character embeddings: the hidden
    states encode the spelling.
    """

    term: str = "token_label"
    n_labels: int = 2
    hidden_size: int = 200
    """Size of the states of each direction (Ma and Hovy 2016, arXiv:1603.01354, table 1)."""
    n_layers: int = 1
    dropout: float = 0.5
    """Dropout probability of the LSTM's inputs and outputs (Ma and Hovy 2016, section 3.2)."""
    crf: bool = True
    """Whether there is a CRF over labels."""
    forbidden_transitions: tuple[tuple[int, int], ...] = ()
    """Pairs of labels of which the second never follows the first; see `CRF`."""

    @property
    def labels_tokens(self) -> bool:
        """True: it scores labels of tokens."""
        return True

    @property
    def has_label_names(self) -> bool:
        """True: its labels have names."""
        return True

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "BiLSTMCRFHead":
        """Build the head of an architecture."""
        return BiLSTMCRFHead(self, architecture)


@dataclass(frozen=True, kw_only=True)
class _WordBatch:
    """The words of each row without gaps, and their logits."""

    logits: Float[Tensor, "b w labels"]
    labels: Int[Tensor, "b w"]
    """IGNORE after the last word."""
    lengths: Int[Tensor, "b"]
    columns: Int[Tensor, "b w"]
    """Column of each word; after the last word, columns of other tokens."""

    def scatter_to(
        self, word_values: Shaped[Tensor, "b w ..."], token_values: Shaped[Tensor, "b t ..."]
    ) -> Tensor:
        """Put values of the words at their columns in `token_values`."""
        is_word, columns = self.labels != IGNORE_INDEX, self.columns
        row = torch.arange(len(columns), device=columns.device)[:, None].expand_as(columns)
        return token_values.index_put((row[is_word], columns[is_word]), word_values[is_word])


class BiLSTMCRFHead(nn.Module):
    """Logits of each word's labels, and the negative log-likelihood of all labels of a sentence.

    A word is a token whose label is not IGNORE; other tokens are skipped. So the batch must have
    labels at inference, too; any label but IGNORE marks a word.

    The loss is summed over sentences, in nats, and its mean is per word. It is then comparable with
    the loss of independent labels, and does not depend on the micro-batch size.
    """

    def __init__(self, spec: BiLSTMCRF, a: StackArchitecture) -> None:
        super().__init__()
        self.spec = spec
        self.dropout = Dropout(spec.dropout)
        self.lstm = nn.LSTM(
            a.d_model, spec.hidden_size, spec.n_layers, batch_first=True, bidirectional=True,
            dropout=spec.dropout if spec.n_layers > 1 else 0.0,
        )  # fmt: skip
        self.out = nn.Linear(2 * spec.hidden_size, spec.n_labels)
        self.crf = CRF(spec.n_labels, spec.forbidden_transitions) if spec.crf else None

    def initialize_parameters(self) -> None:
        """Initialize as in Ma and Hovy 2016, section 3.1: forget gate biases 1, all others 0.

        The r x c matrix of each gate is uniform between -sqrt(6 / (r + c)) and sqrt(6 / (r + c)).
        """
        for name, p in self.lstm.named_parameters():
            if name.startswith("weight"):
                for gate in p.detach().chunk(4):
                    nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(p)
                if name.startswith("bias_ih"):
                    nn.init.ones_(p.detach().chunk(4)[1])  # torch's order: input, forget, ...

    def logits(self, hidden: Float[Tensor, "b t d"], batch: Batch) -> Float[Tensor, "b t labels"]:
        """Compute the marginal log-probabilities of each word's labels.

        They are zero where there is no word.

        Raises:
            ValueError: the batch does not mark words.
        """
        return self._scatter_words(self._run_lstm(hidden, _require_labels(batch)), batch)

    def decode(self, hidden: Float[Tensor, "b t d"], batch: Batch) -> list[list[int]]:
        """Find the most likely label sequence of the words of each row.

        Raises:
            ValueError: the batch does not mark words.
        """
        words = self._run_lstm(hidden, _require_labels(batch))
        rows = zip(self._best_path(words).tolist(), words.lengths.tolist(), strict=True)
        return [path[:n] for path, n in rows]

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the words: the tokens whose label is not IGNORE."""
        if batch.labels is None:
            return {}
        return {self.spec.term: int((batch.labels != IGNORE_INDEX).sum())}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the loss of each row's words.

        With `return_logits`, also return the marginal log-probabilities of each word's labels under
        the name of the term, and the most likely label sequence as `..._path` [b t], with IGNORE
        between words.

        Raises:
            ValueError: logits are needed, and the batch does not mark words.
        """
        if batch.labels is None and not return_logits:
            return Prediction()
        words = self._run_lstm(hidden, _require_labels(batch))
        best = self._best_path(words)
        logits: dict[str, Tensor] = {}
        if return_logits:
            nowhere = torch.full_like(batch.inputs, IGNORE_INDEX)
            logits = {
                self.spec.term: self._scatter_words(words, batch),
                f"{self.spec.term}{BEST_PATH_SUFFIX}": words.scatter_to(best, nowhere),
            }
        n_correct = (best == words.labels).sum()
        term = Term(self._loss(words), int(words.lengths.sum()), n_correct)
        return Prediction(logits, {self.spec.term: term})

    def _run_lstm(self, hidden: Float[Tensor, "b t d"], labels: Int[Tensor, "b t"]) -> _WordBatch:
        """Run the LSTM over the words only, in both directions."""
        has_label = labels != IGNORE_INDEX
        lengths = has_label.sum(1)
        most = max(int(lengths.max()), 1)
        columns = (~has_label).byte().argsort(dim=1, stable=True)[:, :most]  # words first, in order
        x = hidden.gather(1, columns[..., None].expand(-1, -1, hidden.shape[-1]))  # [b w d]
        packed = pack_padded_sequence(
            self.dropout(x), lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        y, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=most)
        return _WordBatch(
            logits=self.out(self.dropout(y)).float(), labels=labels.gather(1, columns),
            lengths=lengths, columns=columns,
        )  # fmt: skip

    def _loss(self, words: _WordBatch) -> Float[Tensor, ""]:
        if self.crf is None:
            return F.cross_entropy(
                words.logits.mT, words.labels, reduction="sum", ignore_index=IGNORE_INDEX
            )
        return -self.crf.log_likelihood(words.logits, words.labels, words.lengths).sum()

    def _scatter_words(self, words: _WordBatch, batch: Batch) -> Float[Tensor, "b t labels"]:
        if self.crf is None:
            log_probabilities = words.logits.log_softmax(-1)
        else:
            log_probabilities = self.crf.log_marginals(words.logits, words.lengths)
        return words.scatter_to(
            log_probabilities,
            log_probabilities.new_zeros(*batch.inputs.shape, log_probabilities.shape[-1]),
        )

    def _best_path(self, words: _WordBatch) -> Int[Tensor, "b w"]:
        if self.crf is None:
            return words.logits.argmax(-1)
        return self.crf.decode(words.logits, words.lengths)


def _require_labels(batch: Batch) -> Int[Tensor, "b t"]:
    """Return the labels, which mark words.

    Raises:
        ValueError: there are none.
    """
    if batch.labels is None:
        raise ValueError(
            "this head labels words, and batch.labels is None: it must mark the token of each word "
            f"with a label (0 if it is not known) and hold {IGNORE_INDEX} elsewhere"
        )
    return batch.labels
