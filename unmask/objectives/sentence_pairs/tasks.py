"""Questions about two parts of a document: does one follow the other, or which one does?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unmask.batch import IGNORE_INDEX, Tokens
from unmask.objectives.text_units import (
    check_fractions,
    draw_split_point,
    first_sentences,
    sentence_beginnings,
    sentence_starts,
)


@dataclass(frozen=True)
class NextSentencePrediction:
    """Next-sentence prediction: B follows A (label 0) or is from elsewhere (label 1).

    Devlin et al. 2019, section 3.1, task 2, and appendix A.2; `create_instances_from_document` in
    the released code. The text is split at a random sentence boundary into A and B; for half of the
    texts, B is replaced by text from elsewhere that starts with a sentence. Of 10 % of the texts
    only the first sentences are used, at least two, up to a random length (`short_seq_prob`).

    Deviates: a random B ends at the end of its row, as the true one does, and A starts where both
    together are as long as the text. The released code truncates the longer of the two at either
    end; with packed rows, lengths and ends would then reveal the label (docs/log.md).
    Deviates: a text of one sentence has no label; in the released code, B is then always random.
    Deviates: unused sentences are not returned to the next example, as a text depends on its
    position only; later epochs use them.
    Deviates: B is sampled uniformly from all rows of other documents, in the paper from all
    documents.
    """

    random_probability: float = 0.5
    short_probability: float = 0.1
    single_sentences: bool = False
    """A and B are one sentence each: SENTENCE-PAIR of Liu et al. 2019, section 4.2."""
    loss_term: ClassVar[str] = "next_sentence"

    def __post_init__(self) -> None:
        check_fractions(
            random_probability=self.random_probability, short_probability=self.short_probability
        )

    @property
    def needs_other_text(self) -> bool:
        """It needs a text from elsewhere."""
        return True

    def __call__(self, text: Tokens, rng: np.random.Generator) -> tuple[Tokens, Tokens, int]:
        """Split the text; return A, B and the label.

        For a single sentence, B is empty and the label IGNORE. Without a second text, B is the true
        one.
        """
        used = text
        if rng.random() < self.short_probability:
            some = first_sentences(text, int(rng.integers(2, max(len(text), 2), endpoint=True)))
            used = some if len(sentence_starts(some)) > 1 else text
        starts = sentence_starts(used)
        if len(starts) < 2:
            return text, text[len(text) :], IGNORE_INDEX
        cut = int(rng.choice(starts[1:]))
        a, b = used[:cut], used[cut:]
        if self.single_sentences:
            a, b = a[int(starts[starts < cut][-1]) :], first_sentences(b, 1)
        other = text.other_text
        if rng.random() >= self.random_probability or other is None or not len(other):
            return a, b, 0
        begins = sentence_beginnings(other)
        if self.single_sentences or len(used) < len(text):
            b = first_sentences(
                other[int(rng.choice(begins)) :], 1 if self.single_sentences else len(b)
            )
            b = b[: len(text) - 1]
            return a[max(0, len(a) + len(b) - len(text)) :], b, 1
        fit = begins[
            (len(other) - begins >= len(text) - starts[-1]) & (begins > len(other) - len(text))
        ]
        if not len(fit):
            return a, other[int(rng.choice(begins)) :][: len(b)], 1
        b = other[int(rng.choice(fit)) :]
        n = len(text) - len(b)
        cut = int(starts[starts >= n][0])
        return text[cut - n : cut], b, 1


@dataclass(frozen=True)
class SentenceOrderPrediction:
    """Sentence-order prediction: consecutive A and B are in order (label 0) or swapped (label 1).

    Lan et al. 2020, arXiv:1909.11942, section 3.1. The text is split at a random sentence boundary,
    or if it is one sentence, anywhere in its middle half; half of the pairs are swapped. Of 10 % of
    the texts only the first sentences are used, up to a random length (`short_seq_prob` of the
    released code).
    """

    swap_probability: float = 0.5
    short_probability: float = 0.1
    loss_term: ClassVar[str] = "sentence_order"

    def __post_init__(self) -> None:
        check_fractions(
            swap_probability=self.swap_probability, short_probability=self.short_probability
        )

    @property
    def needs_other_text(self) -> bool:
        """Both texts are of one."""
        return False

    def __call__(self, text: Tokens, rng: np.random.Generator) -> tuple[Tokens, Tokens, int]:
        """Cut the text; return A, B and the label, which is IGNORE where there is no B."""
        if rng.random() < self.short_probability:
            text = first_sentences(text, int(rng.integers(2, max(len(text), 2), endpoint=True)))
        if len(text) < 2:
            return text, text[len(text) :], IGNORE_INDEX
        cut = draw_split_point(text, 1, rng)
        a, b = text[:cut], text[cut:]
        return (b, a, 1) if rng.random() < self.swap_probability else (a, b, 0)


@dataclass(frozen=True)
class NextTextDiscrimination:
    """Classification of the B that follows A among the B of the batch.

    Logeswaran and Lee 2018, arXiv:1803.02893, section 3: a classifier instead of a decoder. The
    text is split at a random sentence boundary, or if there is none far enough from its ends,
    anywhere in its middle half. The candidates depend on the batch; see
    `unmask.heads.pretraining.contrastive`.

    Deviates: A and B are several sentences each; in the paper, one sentence predicts its neighbors.
    """

    min_tokens: int = 4
    """Minimum number of tokens of A and of B; a text too short for both is A alone, without a
    label."""
    loss_term: ClassVar[str] = "neighbor"

    def __post_init__(self) -> None:
        if self.min_tokens < 1:
            raise ValueError(f"min_tokens must be at least 1, got {self.min_tokens}")

    def __call__(self, text: Tokens, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Cut the text; B is empty where it is too short."""
        if len(text) < 2 * self.min_tokens:
            return text, text[len(text) :]
        cut = draw_split_point(text, self.min_tokens, rng)
        return text[:cut], text[cut:]


SENTENCE_TASKS = (NextSentencePrediction, SentenceOrderPrediction, NextTextDiscrimination)
"""Tasks on two parts of a document."""


ADJACENT_SENTENCE_TERMS = ("sentences_said", "sentences_found")
"""Tasks on each sentence of a document and its neighbors."""


SINGLE_DOCUMENT_TERMS = (
    *(question.loss_term for question in SENTENCE_TASKS),
    *ADJACENT_SENTENCE_TERMS,
)
"""Tasks on parts of one document."""
