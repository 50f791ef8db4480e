"""Rows of a stream with a memory segment and a following pair of texts (XLNet)."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from unmask.batch import Example, Tokens
from unmask.objectives.corrupt import PermutationLM, concatenate
from unmask.objectives.features import Recurrence
from unmask.objectives.objective import Objective, max_fitting_text_length
from unmask.objectives.text_units import check_fractions, draw_split_point, sentence_starts
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True)
class TwoSegments:
    """A piece of a stream: a part that becomes memory, followed by a pair of texts.

    Yang et al. 2019, arXiv:1906.08237, section 2.5; `_split_a_and_b`, `reuse_len` and `_local_perm`
    in the released code: memory part + before + A + between + B + after, where B follows A or is
    from elsewhere. Tokens are selected in both parts separately. The first part does not attend to
    the second, so that its memory does not reveal targets of the next piece, which starts where it
    ends; the second attends to all of the first. There is no task on the pair itself.

    Deviates: if no sentence starts in the pair, it is split anywhere in its middle half; in the
    released code, A is all but one token, and B is random. B ends at the row's end; there, both end
    with a sentence, and the longer one is truncated. A random B is from another document, if there
    is one; there, from any.
    """

    objective: Objective
    random_probability: float = 0.5
    """So often B is from elsewhere."""
    reuse_fraction: float = 0.5
    """Of a row, the first part. 0: there is none, rows follow each other as a whole."""

    def __post_init__(self) -> None:
        check_fractions(random_probability=self.random_probability)
        if not 0 <= self.reuse_fraction < 1:
            raise ValueError(
                f"reuse_fraction must be at least 0 and below 1, got {self.reuse_fraction}"
            )
        if not isinstance(self.objective.corrupt, PermutationLM):
            raise ValueError(
                "two parts of which one sees nothing of the other come in an order: "
                "objective.corrupt must be PermutationLM, got "
                f"{type(self.objective.corrupt).__name__}"
            )

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.loss_terms

    @property
    def needs_second_text(self) -> bool:
        """Some of the second texts are from elsewhere."""
        return self.random_probability > 0

    @property
    def causal(self) -> bool:
        """Shown tokens see each other."""
        return False

    @property
    def n_variants(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the text, and the special ones."""
        return (
            np.asarray(text_lengths)
            + len(special_ids.prefix)
            + len(special_ids.separator)
            + len(special_ids.suffix)
        )

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have: `max_length` without the special ones."""
        return max_fitting_text_length(self, max_length, special_ids)

    def reuse_len(self, text_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens of a text's first part; two of `text_length` are left for A and B."""
        row = int(self.max_example_length(np.array([text_length]), special_ids)[0])
        return max(0, min(int(self.reuse_fraction * row), text_length - 2))

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Cut a text in three (or in two, and take the third from `text.other`), and hide."""
        n = self.reuse_len(len(text), special_ids)
        a, b = self._split(text[n:], text.other_text, rng)
        between = special_ids.separator if len(b) else ()
        parts = (
            concatenate(text[:n]),
            concatenate(special_ids.prefix, a, between, b, special_ids.suffix),
        )
        first, second = (self.objective.corrupt_framed(part, special_ids, rng) for part in parts)
        assert first.rank is not None
        assert second.rank is not None
        both = ((first.inputs, second.inputs), (first.targets, second.targets))
        inputs, targets = (np.concatenate(arrays) for arrays in both)
        end = n + len(special_ids.prefix) + len(a) + len(between) if len(b) else len(inputs)
        example = replace(
            second,
            inputs=inputs,
            targets=targets,
            rank=np.concatenate((first.rank, second.rank + first.rank.max(initial=-1) + 1)),
            segments=(np.arange(len(inputs)) >= end).astype(np.int64),
        )
        return example.with_feature(Recurrence(reuse_len=n)) if n else example

    def _split(
        self, text: Tokens, other: Tokens | None, rng: np.random.Generator
    ) -> tuple[Tokens, Tokens]:
        """Return A and B; a text of one token is A alone."""
        cut = draw_split_point(text, 1, rng) if len(text) > 1 else len(text)
        a, b = text[:cut], text[cut:]
        if rng.random() >= self.random_probability or not len(b) or other is None or not len(other):
            return a, b
        starts = sentence_starts(other)
        starts = starts[starts + len(b) <= len(other)]
        begin = int(rng.choice(starts)) if len(starts) else 0
        return a, other[begin : begin + len(b)]
