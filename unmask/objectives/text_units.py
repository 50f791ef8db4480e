"""Units of a text: tokens that can be masked, words, sentences."""

from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Int

from unmask.batch import SENTENCE_START, WORD_START, Tokens
from unmask.tokenizers.spec import SpecialTokenIds


def maskable_tokens(
    ids: Int[np.ndarray, "t"], special_ids: SpecialTokenIds
) -> Bool[np.ndarray, "t"]:
    """Return which tokens are text: all but special tokens. Unknown tokens are text.

    Raises:
        ValueError: an id is not in the vocabulary.
    """
    if len(ids) and not 0 <= ids.min() <= ids.max() < special_ids.vocab_size:
        wrong = int(ids.max()) if ids.max() >= special_ids.vocab_size else int(ids.min())
        raise ValueError(
            f"token id {wrong} is not in the vocabulary of {special_ids.vocab_size} tokens: "
            "was the text prepared with another tokenizer?"
        )
    return _maskable_table(special_ids)[ids]


@lru_cache(maxsize=8)
def _maskable_table(special_ids: SpecialTokenIds) -> Bool[np.ndarray, "v"]:
    table = np.ones(special_ids.vocab_size, bool)
    roles = {special_ids.pad, special_ids.start, special_ids.end, special_ids.mask}
    unknown = {special_ids.unknown} - roles  # GPT-2 has one token for all of these
    table[[i for i in special_ids.all_ids - unknown if i < special_ids.vocab_size]] = False
    return table


def check_fractions(**fractions: float) -> None:
    """Refuse a share of a whole that is none.

    Raises:
        ValueError: it is below 0 or above 1.
    """
    for name, share in fractions.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {share}")


def word_spans(
    text: Tokens, maskable: Bool[np.ndarray, "t"]
) -> tuple[Int[np.ndarray, "w"], Int[np.ndarray, "w"]]:
    """Return the first token of each word, and how many it has."""
    word, sizes = number_words(text, maskable)
    numbers = np.flatnonzero(sizes)
    return np.searchsorted(np.maximum.accumulate(word), numbers), sizes[numbers]


def fitting_words(
    first: int, sizes: Int[np.ndarray, "n"], maskable: Bool[np.ndarray, "t"], budget: int
) -> slice:
    """Return the tokens of as many consecutive words as fit the budget."""
    ends = first + np.cumsum(sizes)
    fits = [end for end in ends.tolist() if end - first <= budget and maskable[first:end].all()]
    return slice(first, fits[-1] if fits else first)


def number_words(
    text: Tokens, maskable: Bool[np.ndarray, "t"]
) -> tuple[Int[np.ndarray, "t"], Int[np.ndarray, "w"]]:
    """Number the word of each token, and count the tokens of each word.

    Special tokens have the number 0, which counts no token. The piece of a word at which a row
    begins is a word as well.
    """
    word = np.cumsum(word_starts(text, maskable))
    word = np.where(maskable, word, 0)
    sizes = np.bincount(word, minlength=1)
    sizes[0] = 0
    return word, sizes


def word_starts(text: Tokens, maskable: Bool[np.ndarray, "t"]) -> Bool[np.ndarray, "t"]:
    """Return where words start; special tokens and the tokens after them start a word, too."""
    return (
        ((text.boundaries & WORD_START) > 0) | ~maskable | ~np.concatenate(([False], maskable[:-1]))
    )


def sentence_starts(text: Tokens) -> Int[np.ndarray, "n"]:
    """Return where sentences begin. One begins with the text, even in the middle of one."""
    starts = np.flatnonzero(text.boundaries & SENTENCE_START)
    return starts if len(starts) and not starts[0] else np.concatenate(([0], starts))


def check_masking_rate(masking_rate: float) -> None:
    """Refuse a share of the tokens that hides none, or is no share.

    Raises:
        ValueError: it is not above 0, or above 1.
    """
    if not 0 < masking_rate <= 1:
        raise ValueError(f"rate must be above 0 and at most 1, got {masking_rate}")


def round_half_even(x: np.ndarray) -> Int[np.ndarray, "m"]:
    """Round to the nearest integer, ties to the even one."""
    return np.rint(x).astype(np.int64)


def draw_split_point(text: Tokens, min_tokens: int, rng: np.random.Generator) -> int:
    """Sample where to cut a text, `min_tokens` tokens or more from its ends.

    At the beginning of a sentence, or where there is none, anywhere in its middle half.
    """
    n = len(text)
    starts = sentence_starts(text)
    starts = starts[(starts >= min_tokens) & (starts <= n - min_tokens)]
    if len(starts):
        return int(rng.choice(starts))
    min_tokens = max(min_tokens, n // 4)
    return int(rng.integers(min_tokens, n - min_tokens, endpoint=True))


def first_sentences(text: Tokens, min_tokens: int) -> Tokens:
    """Keep the first sentences, until they have `min_tokens` tokens or more, or all."""
    ends = np.append(sentence_starts(text)[1:], len(text))
    enough = ends[ends >= min_tokens]
    return text[: int(enough[0])] if len(enough) else text[:]


def sentence_beginnings(text: Tokens) -> Int[np.ndarray, "n"]:
    """Return where sentences begin; only where there is none, the beginning of the text."""
    starts = sentence_starts(text)
    return starts if text.boundaries[0] & SENTENCE_START or len(starts) == 1 else starts[1:]


def span_starts(selected: Bool[np.ndarray, "t"]) -> Bool[np.ndarray, "t"]:
    """Return the first token of each run of selected tokens."""
    return selected & ~np.concatenate(([False], selected[:-1]))


def random_partition(n: int, n_parts: int, rng: np.random.Generator) -> Int[np.ndarray, "parts"]:
    """Cut `n` items at random into `n_parts` runs, none of them empty."""
    cuts = np.sort(rng.choice(n - 1, n_parts - 1, replace=False)) + 1
    return np.diff(np.concatenate(([0], cuts, [n])))
