"""Corruption of the selected tokens: the second half of an objective.

Each corruption is a pure function (framed text, selected tokens, special tokens, generator) ->
Example. The position of special tokens differs: BERT masks a text that includes them
(`MaskInPlace.frame`); T5 masks first, then ends both the encoder's input and the decoder's target.
The length of an example is known in advance, so that rows are split and batches planned before any
text is corrupted.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from unmask.batch import IGNORE_INDEX, Example, Tokens
from unmask.objectives.features import PredictionOrder, ShiftedTargets, TwoStream, WeightedTargets
from unmask.objectives.select import TargetSelection
from unmask.objectives.text_units import check_fractions, maskable_tokens, number_words, span_starts
from unmask.tokenizers.spec import SpecialTokenIds


@runtime_checkable
class Corruption(Protocol):
    """Corrupt the selected tokens, which become targets."""

    loss_term: ClassVar[str]
    """Name of the loss term."""

    def causal(self, selection: TargetSelection) -> bool:
        """Return whether the stack with targets is causal."""
        ...

    def add_special_tokens(self, text: Tokens, special_ids: SpecialTokenIds) -> Tokens:
        """Add the special tokens that must be present before tokens are selected."""
        ...

    def max_example_length(
        self,
        text_lengths: Int[np.ndarray, "m"],
        selection: TargetSelection,
        special_ids: SpecialTokenIds,
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens, at most, of examples made of texts of `text_lengths` tokens.

        Of an encoder-decoder, those of the side that has more.
        """
        ...

    def __call__(
        self,
        text: Tokens,
        selected: Bool[np.ndarray, "t"],
        special_ids: SpecialTokenIds,
        rng: np.random.Generator,
    ) -> Example:
        """Hide."""
        ...


@dataclass(frozen=True)
class _InPlaceCorruption:
    """Hidden tokens stay where they stood, in a text that has its frame and is seen as a whole."""

    def causal(self, selection: TargetSelection) -> bool:
        """Everything sees everything."""
        return False

    def add_special_tokens(self, text: Tokens, special_ids: SpecialTokenIds) -> Tokens:
        """Put the special tokens around the text: they are counted, but never hidden."""
        return concatenate(special_ids.prefix, text, special_ids.suffix)

    def max_example_length(
        self,
        text_lengths: Int[np.ndarray, "m"],
        selection: TargetSelection,
        special_ids: SpecialTokenIds,
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens, which stay as many as they are."""
        return text_lengths + len(special_ids.prefix) + len(special_ids.suffix)


@dataclass(frozen=True)
class MaskInPlace(_InPlaceCorruption):
    """Replace most selected tokens by [MASK], some by random tokens, and keep the others.

    Devlin et al. 2019, section 3.1, task 1 and appendix A.1: 80 %, 10 %, 10 %, independently for
    each token, also within whole words (released code, `create_masked_lm_predictions`).
    Deviates: the released code samples random tokens from the whole vocabulary, here without
    special tokens.
    """

    mask_probability: float = 0.8
    random_token_probability: float = 0.1
    whole_spans: bool = False
    """Treat all tokens of a span alike: masked, replaced or kept (Joshi et al. 2020, section
    3.1)."""
    loss_term: ClassVar[str] = "masked"

    def __post_init__(self) -> None:
        check_fractions(
            mask_probability=self.mask_probability,
            random_token_probability=self.random_token_probability,
        )
        # 0.7 + 0.3 may be above 1 by a rounding error
        if self.mask_probability + self.random_token_probability > 1 + 1e-9:
            raise ValueError(
                "mask_probability + random_token_probability must be at most 1, got "
                f"{self.mask_probability} + {self.random_token_probability}"
            )

    def __call__(
        self,
        text: Tokens,
        selected: Bool[np.ndarray, "t"],
        special_ids: SpecialTokenIds,
        rng: np.random.Generator,
    ) -> Example:
        """Hide in place.

        Raises:
            ValueError: the vocabulary has no token for a mask.
        """
        selected = selected & maskable_tokens(text.ids, special_ids)
        inputs = self.mask_tokens(text.ids, selected, special_ids, rng)
        return Example(inputs=inputs, targets=np.where(selected, text.ids, IGNORE_INDEX))

    def mask_tokens(
        self,
        ids: Int[np.ndarray, "t"],
        selected: Bool[np.ndarray, "t"],
        special_ids: SpecialTokenIds,
        rng: np.random.Generator,
    ) -> Int[np.ndarray, "t"]:
        """Return the tokens with something in the place of the hidden ones, special ones or not.

        Raises:
            ValueError: the vocabulary has neither a mask nor sentinels.
        """
        if special_ids.mask_or_sentinel is None:
            raise ValueError("masking in place needs a mask token, and this vocabulary has none")
        dice = rng.random(len(ids))
        if self.whole_spans:
            dice = dice[np.cumsum(span_starts(selected)) - 1]
        inputs = ids.copy()
        inputs[selected & (dice < self.mask_probability)] = special_ids.mask_or_sentinel
        other = (
            selected
            & (self.mask_probability <= dice)
            & (dice < self.mask_probability + self.random_token_probability)
        )
        inputs[other] = _draw_random_tokens(int(other.sum()), special_ids, rng)
        return inputs


@dataclass(frozen=True)
class DiffusionMasking(_InPlaceCorruption):
    """Replace each selected token by [MASK] with probability t, sampled for each text.

    Nie et al. 2025, arXiv:2502.09992, equation 3; Sahoo et al. 2024, arXiv:2406.07524, with the
    log-linear schedule in continuous time. t is uniform; each target's loss is divided by t, and
    the mean is over all selected tokens, masked or not (`WeightedTargets`).
    """

    min_rate: float = 1e-3
    """t is uniform from here to 1 (Nie et al., released code), so that weights are bounded."""
    loss_term: ClassVar[str] = "masked"

    def __post_init__(self) -> None:
        if not 0 < self.min_rate < 1:
            raise ValueError(f"min_rate must be above 0 and below 1, got {self.min_rate}")

    def __call__(
        self,
        text: Tokens,
        selected: Bool[np.ndarray, "t"],
        special_ids: SpecialTokenIds,
        rng: np.random.Generator,
    ) -> Example:
        """Sample the rate, and mask.

        Raises:
            ValueError: the vocabulary has no token for a mask.
        """
        selected = selected & maskable_tokens(text.ids, special_ids)
        rate = rng.uniform(self.min_rate, 1.0)
        masked = selected & (rng.random(len(text)) < rate)
        example = MaskInPlace(1.0, 0.0)(text, masked, special_ids, rng)
        weighted = WeightedTargets(np.full(len(text), 1 / rate), int(selected.sum()))
        return replace(example, features=(weighted,))


@dataclass(frozen=True)
class MaskedNextToken:
    """Mask as `MaskInPlace`, and predict each selected token at the preceding position.

    Charpentier and Samuel 2024, arXiv:2410.24159, section 2, masked next-token prediction: as in a
    causal language model, each position predicts the next token, so that both share one head.
    """

    mask_probability: float = 0.8
    random_token_probability: float = 0.1
    whole_spans: bool = False
    """All tokens of a run fare alike."""
    loss_term: ClassVar[str] = "next_token"

    def __post_init__(self) -> None:
        _ = self._mask_in_place  # which refuses shares that are none

    @property
    def _mask_in_place(self) -> MaskInPlace:
        return MaskInPlace(self.mask_probability, self.random_token_probability, self.whole_spans)

    def causal(self, selection: TargetSelection) -> bool:
        """Everything sees everything."""
        return False

    def add_special_tokens(self, text: Tokens, special_ids: SpecialTokenIds) -> Tokens:
        """Put the special tokens around the text: where nothing is before it, the start token."""
        return concatenate(special_ids.prefix or (special_ids.start,), text, special_ids.suffix)

    def max_example_length(
        self,
        text_lengths: Int[np.ndarray, "m"],
        selection: TargetSelection,
        special_ids: SpecialTokenIds,
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens, which stay as many as they are."""
        return text_lengths + max(len(special_ids.prefix), 1) + len(special_ids.suffix)

    def __call__(
        self,
        text: Tokens,
        selected: Bool[np.ndarray, "t"],
        special_ids: SpecialTokenIds,
        rng: np.random.Generator,
    ) -> Example:
        """Mask in place, and shift the targets.

        Raises:
            ValueError: the vocabulary has no token for a mask.
        """
        example = self._mask_in_place(text, selected, special_ids, rng)
        targets = np.append(example.targets[1:], IGNORE_INDEX)
        return replace(example, targets=targets, features=(ShiftedTargets(),))


@dataclass(frozen=True)
class AutoregressiveMasking(_InPlaceCorruption):
    """Put [MASK] in the place of most hidden words, and ask for their tokens in a random order.

    Clark et al. 2022, arXiv:2103.06874, section 3.2.1 and figure 2: all characters of a word are
    masked, of 10 % of the words none; nothing is replaced. Each place is answered knowing the
    answers before it (`PredictionOrder`).
    """

    mask_probability: float = 0.9
    loss_term: ClassVar[str] = "characters"

    def __post_init__(self) -> None:
        check_fractions(mask_probability=self.mask_probability)

    def __call__(
        self,
        text: Tokens,
        selected: Bool[np.ndarray, "t"],
        special_ids: SpecialTokenIds,
        rng: np.random.Generator,
    ) -> Example:
        """Mask word by word, and sample the order.

        Raises:
            ValueError: the vocabulary has no token for a mask.
        """
        if special_ids.mask is None:
            raise ValueError(
                "autoregressive masking needs a mask token, and this vocabulary has none"
            )
        free = maskable_tokens(text.ids, special_ids)
        selected = selected & free
        word, sizes = number_words(text, free)
        masked = (rng.random(len(sizes)) < self.mask_probability)[word]
        turn = np.zeros(len(text), np.int64)
        turn[selected] = rng.permutation(int(selected.sum()))
        return Example(
            inputs=np.where(selected & masked, special_ids.mask, text.ids),
            targets=np.where(selected, text.ids, IGNORE_INDEX),
            features=(PredictionOrder(turn),),
        )


@dataclass(frozen=True)
class PermutationLM(_InPlaceCorruption):
    """Predict the selected tokens in a random order, each given those before it in the order.

    Yang et al. 2019, arXiv:1906.08237, sections 2.2 and 2.3 (partial prediction): the input is the
    uncorrupted text; visible tokens have rank 0, selected ones their index in the order, from 1.
    Queries attend to lower ranks only, so not to their own token (`TwoStream`).
    Deviates: special tokens are visible to all; in the released code they have an index in the
    order, too.
    """

    random_order: bool = True
    """Whether the factorization order is random; else it is the order of the text."""
    loss_term: ClassVar[str] = "permuted"

    def causal(self, selection: TargetSelection) -> bool:
        """Where all are hidden, and come in the order of the text."""
        return selection.selects_all and not self.random_order

    def __call__(
        self,
        text: Tokens,
        selected: Bool[np.ndarray, "t"],
        special_ids: SpecialTokenIds,
        rng: np.random.Generator,
    ) -> Example:
        """Sample the order."""
        selected = selected & maskable_tokens(text.ids, special_ids)
        rank, n = np.zeros(len(text), np.int64), int(selected.sum())
        rank[selected] = 1 + (rng.permutation(n) if self.random_order else np.arange(n))
        targets = np.where(selected, text.ids, IGNORE_INDEX)
        features = (TwoStream(),)
        return Example(inputs=text.ids, targets=targets, rank=rank, features=features)


@dataclass(frozen=True)
class MaskedSeq2Seq(_InPlaceCorruption):
    """Mask the encoder's input as `MaskInPlace`; the decoder predicts the selected tokens.

    Song et al. 2019, arXiv:1905.02450, sections 3.2 and 4.1. Each is predicted given the preceding
    token, at its position in the text: the decoder's input is what the encoder does not see
    (released code, `MaskedLanguagePairDataset` of `MASS-fairseq`; that of `MASS-summarization` has
    positions one lower). There is no end token.
    """

    mask_probability: float = 0.8
    random_token_probability: float = 0.1
    loss_term: ClassVar[str] = "denoised"

    def __post_init__(self) -> None:
        _ = self._mask_in_place  # which refuses shares that are none

    @property
    def _mask_in_place(self) -> MaskInPlace:
        return MaskInPlace(self.mask_probability, self.random_token_probability)

    def causal(self, selection: TargetSelection) -> bool:
        """True: the decoder is causal."""
        return True

    def max_example_length(
        self,
        text_lengths: Int[np.ndarray, "m"],
        selection: TargetSelection,
        special_ids: SpecialTokenIds,
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of what the encoder reads, which stay as many as they are."""
        return np.maximum(super().max_example_length(text_lengths, selection, special_ids), 1)

    def __call__(
        self,
        text: Tokens,
        selected: Bool[np.ndarray, "t"],
        special_ids: SpecialTokenIds,
        rng: np.random.Generator,
    ) -> Example:
        """Mask in place; special tokens between selected ones become targets, too.

        Raises:
            ValueError: the vocabulary has neither a mask nor sentinels.
        """
        if not selected.any():
            return empty_example(
                special_ids, text.ids if len(text) else np.array([special_ids.start])
            )
        masked = selected & maskable_tokens(text.ids, special_ids)
        place = np.flatnonzero(selected)
        return Example(
            inputs=np.concatenate(([special_ids.start], text.ids[:-1]))[place],
            targets=text.ids[place],
            rank=np.arange(len(place)),
            position_ids=place,
            source=self._mask_in_place.mask_tokens(text.ids, masked, special_ids, rng),
            features=(ShiftedTargets(),),
        )


@dataclass(frozen=True)
class CausalLM:
    """Shift the inputs by one, and predict each token from those before it.

    With all tokens selected this is GPT (Radford et al. 2018, equation 1): position i reads token i
    - 1 (`start` at first) and predicts token i. With a selected tail it is a prefix language model
    (Raffel et al. 2020, section 3.2.1), whose prefix is bidirectional. The rank of a position is
    the number of selected tokens in its input so far, so that its target is visible only at higher
    ranks. A piece of a stream has no special tokens, and starts with the token before it.
    """

    loss_term: ClassVar[str] = "next_token"

    def causal(self, selection: TargetSelection) -> bool:
        """Where nothing is shown as a prefix, which is seen as a whole."""
        return selection.selects_all

    def add_special_tokens(self, text: Tokens, special_ids: SpecialTokenIds) -> Tokens:
        """Add the special tokens, except `start`, which is an input and never a target."""
        if text.previous_token is not None:
            return replace(concatenate(text), previous_token=text.previous_token)
        return concatenate(special_ids.decoder_prefix, text, special_ids.suffix)

    def max_example_length(
        self,
        text_lengths: Int[np.ndarray, "m"],
        selection: TargetSelection,
        special_ids: SpecialTokenIds,
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens: `start` comes in, the last one is not read."""
        return np.maximum(
            text_lengths + len(special_ids.decoder_prefix) + len(special_ids.suffix), 1
        )

    def __call__(
        self,
        text: Tokens,
        selected: Bool[np.ndarray, "t"],
        special_ids: SpecialTokenIds,
        rng: np.random.Generator,
    ) -> Example:
        """Shift."""
        if not len(text):
            return empty_example(special_ids)
        first = special_ids.start if text.previous_token is None else text.previous_token
        inputs = np.concatenate(([first], text.ids[:-1]))
        read = np.concatenate(([False], selected[:-1]))
        targets = np.where(selected, text.ids, IGNORE_INDEX)
        features = (ShiftedTargets(),)
        return Example(inputs=inputs, targets=targets, rank=np.cumsum(read), features=features)


def concatenate(*parts: Tokens | tuple[int, ...]) -> Tokens:
    """Put texts and special tokens one after the other; ids become int64, however stored."""
    ids = [np.asarray(p.ids if isinstance(p, Tokens) else p, np.int64) for p in parts]
    marks = [p.boundaries if isinstance(p, Tokens) else np.zeros(len(p), np.int64) for p in parts]
    return Tokens(np.concatenate(ids), np.concatenate(marks))


def seq2seq_example(
    targets: Int[np.ndarray, "t"], source: Int[np.ndarray, "s"], special_ids: SpecialTokenIds
) -> Example:
    """Have a decoder say `targets`, of which it reads each one place late, from `start` on."""
    return Example(
        inputs=np.concatenate(([special_ids.start], targets[:-1])),
        targets=targets,
        rank=np.arange(len(targets)),
        source=source,
        features=(ShiftedTargets(),),
    )


def empty_example(
    special_ids: SpecialTokenIds, source: Int[np.ndarray, "s"] | None = None
) -> Example:
    """Read the start token, and beside it a source if there is one."""
    nothing = np.full(1, IGNORE_INDEX)
    return Example(
        inputs=np.array([special_ids.start]),
        targets=nothing,
        rank=np.zeros(1, int),
        source=source,
        features=(ShiftedTargets(),),
    )


def _draw_random_tokens(
    n: int, special_ids: SpecialTokenIds, rng: np.random.Generator
) -> Int[np.ndarray, "n"]:
    """Sample `n` tokens that are not special, all equally likely."""
    taken = np.array(sorted(i for i in special_ids.all_ids if i < special_ids.vocab_size), np.int64)
    if len(taken) >= special_ids.vocab_size:
        raise ValueError("the vocabulary has nothing but special tokens")
    drawn = rng.integers(special_ids.vocab_size - len(taken), size=n)
    return drawn + np.searchsorted(taken - np.arange(len(taken)), drawn, side="right")
