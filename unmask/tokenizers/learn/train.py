"""Training of a vocabulary: count words, then merge (WordPiece, BPE) or prune (Unigram).

The `tokenizers` library does the merging. Words are counted here, because the library counts in a
hash table with another order in each process, which breaks ties: ids and sometimes pieces would
differ from run to run. Memory is bounded by the number of distinct words, not by the text.
"""

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from unmask.tokenizers import pipeline
from unmask.tokenizers.characters.byte_pipelines import byte_pipeline, lowercase_byte_bpe_pipeline
from unmask.tokenizers.formats.sentencepiece import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    SentencePieceEntry,
    SentencePieceModel,
)
from unmask.tokenizers.learn import unigram
from unmask.tokenizers.learn.count import (
    CHUNK_WITH_LINE_END,
    CHUNK_WITH_SPACE,
    count_words,
    repeat_words,
)
from unmask.tokenizers.spec import TokenizerSpec, special_token_names
from unmask.tokenizers.vocabulary import (
    BPE,
    ByteBPE,
    ByteLevel,
    CharacterLevel,
    CodePoints,
    CodePointsWithSubwords,
    LowercaseByteBPE,
    Patches,
    PreTokenization,
    SentencePieceBPE,
    Unigram,
    WordBytesWithWords,
    WordLevel,
    WordPiece,
)

_log = logging.getLogger(__name__)
_DIGIT_OR_REST = re.compile(r"\d|\D+")


def train_pipeline(spec: TokenizerSpec, texts: Iterable[str]) -> Tokenizer:
    """Train the pipeline of `spec`, special tokens included.

    Raises:
        ValueError: the size is too small for the special tokens and the single characters, or there
            is no text.
    """
    kind, frame = spec.vocabulary, spec.special_tokens
    if isinstance(kind, CodePoints | CodePointsWithSubwords):
        raise ValueError("code points are not trained and have no pipeline")
    if isinstance(kind, WordBytesWithWords | Patches):
        raise ValueError("bytes that mark word starts, and patches of pictures, are not trained")
    special = special_token_names(frame)
    if isinstance(kind, ByteLevel):
        learned = byte_pipeline(_number_pieces(special, pipeline.byte_characters()))
        return pipeline.add_special_tokens(learned, frame, ascending_sentinels=True)
    if isinstance(kind, ByteBPE):
        learned = _train_byte_bpe(kind, special, texts)
    elif frame.unknown is None:
        raise ValueError(f"{type(kind).__name__} needs an unknown token: special_tokens.unknown")
    else:
        learned = _train_with_unknown(kind, special, frame.unknown, texts)
    reached, size = learned.get_vocab_size(), kind.vocab_size
    rare = isinstance(kind, WordLevel) and kind.min_count > 1  # words are left out on purpose
    if reached < size and not rare:
        _log.warning("the text suffices only for a vocabulary of %d, not of %d", reached, size)
    return pipeline.add_special_tokens(learned, frame)


def _train_with_unknown(
    vocabulary_spec: WordPiece
    | LowercaseByteBPE
    | BPE
    | SentencePieceBPE
    | Unigram
    | CharacterLevel
    | WordLevel,
    special_names: tuple[str, ...],
    unknown_token: str,
    texts: Iterable[str],
) -> Tokenizer:
    learn = _LEARNERS[type(vocabulary_spec)]
    return learn(vocabulary_spec, special_names, unknown_token, texts)


def learn_merges(
    words: Mapping[str, int],
    symbols: list[str],
    n_merges: int,
    *,
    prefix: str = "",
    suffix: str = "",
) -> tuple[list[str], list[tuple[str, str]]]:
    """Merge the most frequent pair of adjacent symbols within words, repeatedly.

    Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
    arXiv:1508.07909, algorithm 1, which leaves ties open. Ties go to the pair whose left part is
    first in `symbols`, then by the right part; merged symbols follow, in order of merging. A pair
    must occur twice.

    Args:
        words: word counts.
        symbols: the single characters, with `prefix` if they continue a word, with `suffix` if they
            end one.
        n_merges: maximum number of merges.
        prefix: prefix of continuing pieces (WordPiece: ##).
        suffix: suffix of final pieces (GPT: </w>).

    Returns:
        the merged pieces and the merges, in order.
    """
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(symbols) + n_merges,
        min_frequency=2,
        special_tokens=symbols,  # ids in this order, not in that of a hash table
        show_progress=False,
        continuing_subword_prefix=prefix,
        end_of_word_suffix=suffix,
    )
    trained.train_from_iterator(repeat_words(words), trainer)
    model = json.loads(trained.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)[len(symbols) :]
    return pieces, [(left, right) for left, right in model["merges"]]


def _train_wordpiece(
    vocabulary_spec: WordPiece,
    special_names: tuple[str, ...],
    unknown_token: str,
    texts: Iterable[str],
) -> Tokenizer:
    def build(vocab: dict[str, int]) -> Tokenizer:
        return pipeline.wordpiece_pipeline(
            vocab, unknown_token, lowercase=vocabulary_spec.lowercase
        )

    counted = count_words(texts, build({unknown_token: 0}), special_names)

    def covered(coverage: float) -> tuple[dict[str, int], list[str]]:
        words, letters = _apply_coverage(counted, coverage)
        return words, _initial_symbols(words, letters, prefix="##")

    words, symbols = covered(vocabulary_spec.character_coverage)
    n_merges = _remaining_ids(vocabulary_spec.vocab_size, special_names, symbols, covered)
    pieces, _ = learn_merges(words, symbols, n_merges, prefix="##")
    return build(_number_pieces(special_names, [*sorted(symbols), *pieces]))


def _train_bpe(
    vocabulary_spec: BPE, special_names: tuple[str, ...], unknown_token: str, texts: Iterable[str]
) -> Tokenizer:
    def build(vocab: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
        return pipeline.bpe_pipeline(
            vocab,
            merges,
            unknown_token,
            end_of_word=vocabulary_spec.end_of_word,
            lowercase=vocabulary_spec.lowercase,
            separate_end_of_word=vocabulary_spec.separate_end_of_word,
        )

    counted = count_words(texts, build({unknown_token: 0}, []), special_names)
    suffix = "" if vocabulary_spec.separate_end_of_word else vocabulary_spec.end_of_word

    def covered(coverage: float) -> tuple[dict[str, int], list[str]]:
        words, letters = _apply_coverage(counted, coverage)
        return words, _initial_symbols(words, letters, suffix=suffix)

    words, symbols = covered(vocabulary_spec.character_coverage)
    n_merges = _remaining_ids(vocabulary_spec.vocab_size, special_names, symbols, covered)
    pieces, merges = learn_merges(words, symbols, n_merges, suffix=suffix)
    return build(_number_pieces(special_names, [*sorted(symbols), *pieces]), merges)


def _train_byte_bpe(
    vocabulary_spec: ByteBPE, special_names: tuple[str, ...], texts: Iterable[str]
) -> Tokenizer:
    alphabet = sorted(pipeline.byte_characters())
    n_merges = _remaining_ids(vocabulary_spec.vocab_size, special_names, alphabet)
    shell = pipeline.byte_bpe_pipeline(
        _number_pieces((), alphabet),
        [],
        pre_tokenization=vocabulary_spec.pre_tokenization,
        nfc=vocabulary_spec.nfc_normalization,
    )
    words = count_words(
        texts, shell, special_names, chunks=chunker_for(vocabulary_spec.pre_tokenization)
    )
    pieces, merges = learn_merges(words, _initial_symbols(words, alphabet), n_merges)
    vocab = _number_pieces(special_names, [*alphabet, *pieces])
    return pipeline.byte_bpe_pipeline(
        vocab,
        merges,
        pre_tokenization=vocabulary_spec.pre_tokenization,
        nfc=vocabulary_spec.nfc_normalization,
    )


def _train_lowercase_byte_bpe(
    vocabulary_spec: LowercaseByteBPE,
    special_names: tuple[str, ...],
    unknown_token: str,
    texts: Iterable[str],
) -> Tokenizer:
    mark = vocabulary_spec.end_of_word
    alphabet = sorted(pipeline.byte_characters())
    symbols = [*alphabet, *(character + mark for character in alphabet)]

    def build(vocab: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
        return lowercase_byte_bpe_pipeline(vocab, merges, unknown_token, end_of_word=mark)

    n_merges = _remaining_ids(vocabulary_spec.vocab_size, special_names, symbols)
    words = count_words(texts, build({unknown_token: 0}, []), special_names)
    ordered = _initial_symbols(words, alphabet, suffix=mark)
    absent = [symbol for symbol in symbols if symbol not in set(ordered)]
    pieces, merges = learn_merges(words, [*ordered, *absent], n_merges, suffix=mark)
    return build(_number_pieces(special_names, [*symbols, *pieces]), merges)


def chunker_for(pre_tokenization: PreTokenization) -> Callable[[str], list[str]]:
    """Return a function that splits a text into chunks with unchanged pre-tokenization."""
    return (CHUNK_WITH_SPACE if pre_tokenization == "gpt2" else CHUNK_WITH_LINE_END).findall


def _train_sentencepiece_bpe(
    vocabulary_spec: SentencePieceBPE,
    special_names: tuple[str, ...],
    unknown_token: str,
    texts: Iterable[str],
) -> Tokenizer:
    def build(made: list[str], letters: list[str], *, prefix: bool = True) -> Tokenizer:
        named = [
            SentencePieceEntry(n, 0.0, UNKNOWN if n == unknown_token else CONTROL)
            for n in special_names
        ]
        coded = [SentencePieceEntry(f"<0x{i:02X}>", 0.0, BYTE) for i in range(256)]
        merged = [SentencePieceEntry(p, -float(i), NORMAL) for i, p in enumerate([*made, *letters])]
        return pipeline.sentencepiece_pipeline(
            SentencePieceModel(
                pieces=(*named, *coded, *merged),
                algorithm="bpe",
                charsmap=b"",
                add_dummy_prefix=prefix,
                remove_extra_whitespaces=False,
                escape_whitespaces=True,
                whitespace_as_suffix=False,
                byte_fallback=True,
                unk_id=special_names.index(unknown_token),
                bos_id=None,
                eos_id=None,
                pad_id=None,
            )
        )

    counted, words = count_words(texts, build([], []), special_names), Counter[str]()
    for word, n in counted.items():
        for part in _DIGIT_OR_REST.findall(word):
            words[part] += n

    def covered(coverage: float) -> tuple[dict[str, int], list[str]]:
        kept, letters = _apply_coverage(words, coverage)
        return kept, _initial_symbols(kept, letters)

    kept, symbols = covered(vocabulary_spec.character_coverage)
    room = _remaining_ids(vocabulary_spec.vocab_size, special_names, symbols, covered, n_bytes=256)
    made, _ = learn_merges(kept, symbols, room)
    return build(
        [p for p in made if p not in symbols],
        sorted(symbols),
        prefix=vocabulary_spec.add_dummy_prefix,
    )


def _train_unigram(
    vocabulary_spec: Unigram,
    special_names: tuple[str, ...],
    unknown_token: str,
    texts: Iterable[str],
) -> Tokenizer:
    at = special_names.index(unknown_token)
    first = (
        pipeline.plain_text_normalizers(keep_accents=False, lowercase=vocabulary_spec.lowercase)
        if vocabulary_spec.normalize_quotes_and_accents
        else []
    )
    shell = pipeline.unigram_pipeline([(name, 0.0) for name in special_names], at, first)
    counted = count_words(texts, shell, special_names)

    def covered(coverage: float) -> tuple[dict[str, int], list[str]]:
        return _apply_coverage(counted, coverage)

    words, letters = covered(vocabulary_spec.character_coverage)
    _remaining_ids(vocabulary_spec.vocab_size, special_names, letters, covered)
    pieces = unigram.learn_unigram(words, vocabulary_spec.vocab_size - len(special_names))
    return pipeline.unigram_pipeline([*((name, 0.0) for name in special_names), *pieces], at, first)


def _train_characters(
    vocabulary_spec: CharacterLevel,
    special_names: tuple[str, ...],
    unknown_token: str,
    texts: Iterable[str],
) -> Tokenizer:
    frequency = Counter[str]()
    for text in texts:
        pipeline.check_unicode(text)
        frequency.update(text)
    if not frequency:
        raise ValueError("there is no text to train a vocabulary on")
    room = _remaining_ids(vocabulary_spec.vocab_size, special_names, [])
    frequent = sorted(frequency, key=lambda c: (-frequency[c], c))[:room]
    return pipeline.character_pipeline(
        _number_pieces(special_names, sorted(frequent)), unknown_token
    )


def _train_word_level(
    vocabulary_spec: WordLevel,
    special_names: tuple[str, ...],
    unknown_token: str,
    texts: Iterable[str],
) -> Tokenizer:
    how = {
        "lowercase": vocabulary_spec.lowercase,
        "split_punctuation": vocabulary_spec.split_punctuation,
    }
    shell = pipeline.word_level_pipeline(_number_pieces(special_names, []), unknown_token, **how)
    words = most_frequent_words(
        vocabulary_spec.vocab_size, special_names, shell, texts, vocabulary_spec.min_count
    )
    return pipeline.word_level_pipeline(_number_pieces(special_names, words), unknown_token, **how)


def most_frequent_words(
    vocab_size: int,
    special_names: tuple[str, ...],
    word_splitter: Tokenizer,
    texts: Iterable[str],
    min_count: int = 1,
) -> list[str]:
    """Return the most frequent words of texts, as split by the pipeline `word_splitter`.

    Words with a count of at least `min_count`; with the special tokens at most `vocab_size`.

    Raises:
        ValueError: `vocab_size` is too small for the special tokens, or there is no text.
    """
    frequency = count_words(texts, word_splitter, special_names)
    room = _remaining_ids(vocab_size, special_names, [])
    counts = [w for w, n in frequency.items() if n >= min_count and w not in special_names]
    if not counts:
        raise ValueError(f"there is no text to train on: no word occurs {min_count} times or more")
    return sorted(counts, key=lambda w: (-frequency[w], w))[:room]


def _number_pieces(special_names: tuple[str, ...], pieces: Iterable[str]) -> dict[str, int]:
    """Number the special tokens, then the pieces."""
    every = [*special_names, *pieces]
    if both := set(special_names).intersection(every[len(special_names) :]):
        raise ValueError(f"{min(both)!r} cannot be a special token: it is a character of the text")
    return {piece: i for i, piece in enumerate(every)}


_CoverageFunction = Callable[[float], tuple[dict[str, int], list[str]]]
"""Maps a character coverage to the words of these characters, and their symbols."""


def _remaining_ids(
    vocab_size: int,
    special_names: tuple[str, ...],
    symbols: list[str],
    symbols_at_coverage: _CoverageFunction | None = None,
    n_bytes: int = 0,
) -> int:
    """Return the number of ids left after special tokens, bytes and single characters.

    Args:
        vocab_size: size of the vocabulary.
        special_names: special tokens.
        symbols: the single characters.
        symbols_at_coverage: symbols for another coverage, to suggest one if there are too many;
            None: coverage is not an option.
        n_bytes: number of byte tokens.

    Raises:
        ValueError: none is left.
    """
    own = len(special_names) + n_bytes
    least = own + len(symbols)
    if vocab_size < least or vocab_size == len(special_names):
        bytes_too = f", {n_bytes} bytes" if n_bytes else ""
        other = (
            None
            if symbols_at_coverage is None
            else _fitting_coverage(vocab_size - own, symbols_at_coverage)
        )
        rest = "read byte by byte" if n_bytes else "unknown"
        choice = (
            "" if other is None
            else f"; or set character_coverage to {other:g}, so that the rarest ones are {rest}"
        )  # fmt: skip
        raise ValueError(
            f"a vocabulary of {vocab_size} is too small: {len(special_names)} special "
            f"tokens{bytes_too} and "
            f"{len(symbols)} single characters must be in it; "
            f"ask for {max(least, len(special_names) + 1)} or more{choice}"
        )
    return vocab_size - least


def _fitting_coverage(n_free_ids: int, symbols_at_coverage: _CoverageFunction) -> float | None:
    """Find the largest round coverage whose characters fit; None: there is none."""
    for other in _COVERAGE_STEPS:
        with suppress(ValueError):  # no word is left
            words, symbols = symbols_at_coverage(other)
            if words and len(symbols) <= n_free_ids:
                return other
    return None


_COVERAGE_STEPS = (0.9995, 0.999, 0.998, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)


def _apply_coverage(words: Mapping[str, int], coverage: float) -> tuple[dict[str, int], list[str]]:
    """Keep the most frequent characters up to a share of the text, and the words of these."""
    code, _, _, count = _character_table(words)
    letters, place = np.unique(code, return_inverse=True)
    frequency = np.bincount(place, count)
    rising = np.lexsort((letters, frequency))
    rare = np.cumsum(frequency[rising]) <= (1 - coverage) * frequency.sum()
    out = {chr(c) for c in letters[rising[rare]]}
    kept_words = words if not out else {w: n for w, n in words.items() if out.isdisjoint(w)}
    return dict(kept_words), sorted({chr(c) for c in letters} - out)


def _initial_symbols(
    words: Mapping[str, int], letters: list[str], *, prefix: str = "", suffix: str = ""
) -> list[str]:
    """List the letters, plain and as in words (##a, a</w>), by mean position in words.

    So ties between pairs go to the one that is further left on average.
    """
    code, place, left, count = _character_table(words)
    known, letter = np.unique(code, return_inverse=True)
    form = 4 * letter + 2 * (place > 0) * bool(prefix) + (left == 1) * bool(suffix)
    total, moment = np.bincount(form, count), np.bincount(form, count * place)
    mean: dict[str, float] = dict.fromkeys(letters, math.inf)
    for i in np.flatnonzero(total).tolist():
        symbol = chr(known[i // 4])
        mean[prefix * (i // 2 % 2) + symbol + suffix * (i % 2)] = moment[i] / total[i]
    return sorted(mean, key=lambda symbol: (mean[symbol], symbol))


def _character_table(words: Mapping[str, int]) -> tuple[np.ndarray, ...]:
    """Return for each character of each word: code, position, remaining length, count."""
    code = np.frombuffer("".join(words).encode("utf-32-le"), "<u4")
    lengths = np.array([len(word) for word in words])
    count = np.repeat(np.array([*words.values()], np.float64), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(code))
    return code, np.repeat(lengths, lengths) - left, left, count


_LEARNERS: Mapping[type, Callable[..., Tokenizer]] = {
    WordPiece: _train_wordpiece,
    LowercaseByteBPE: _train_lowercase_byte_bpe,
    BPE: _train_bpe,
    SentencePieceBPE: _train_sentencepiece_bpe,
    Unigram: _train_unigram,
    CharacterLevel: _train_characters,
    WordLevel: _train_word_level,
}
