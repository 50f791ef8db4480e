"""Learn a vocabulary from texts: count words, then merge (WordPiece, BPE) or prune (Unigram).

The `tokenizers` library does the merging. What it merges is counted here, because its own count is
kept in a hash table with another order in each process, and numbers the forms of characters (##a,
a</w>) by it: ties, and with them ids and sometimes pieces, would differ from run to run. Memory is
bounded by the number of different words, not by the text.
"""

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from unmask.tokens import pipeline, unigram
from unmask.tokens.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, Model, Piece
from unmask.tokens.vocabulary import (
    BPE,
    ByteBPE,
    ByteCut,
    Bytes,
    Characters,
    CodePoints,
    CodePointsWithSubwords,
    SentencePieceBPE,
    SpelledWords,
    TokenizerSpec,
    Unigram,
    WordPiece,
    Words,
    names,
)

N_WORDS = 2**21
"""When more different words than this are counted, the rarest are forgotten."""
N_FED = 2**26
"""Counts are scaled down to add up to about this many words: more of them tell nothing new."""
LONGEST_WORD = 256
"""Longer words are cut before pieces are learned from them."""

_log = logging.getLogger(__name__)
_DIGIT_OR_REST = re.compile(r"\d|\D+")
_N_CHUNKS = 2**20
_CHUNK_WITH_SPACE = re.compile(r"\s*\S+|\s+\Z")
_CHUNK_WITH_LINE_END = re.compile(r"\s*\S+(?:\s*[\r\n]+)?|\s+\Z")


def backend(spec: TokenizerSpec, texts: Iterable[str]) -> Tokenizer:
    """Learn the pipeline of `spec`, special tokens included.

    Raises:
        ValueError: the size is too small for the special tokens and the single characters, or there
            is no text.
    """
    kind, frame = spec.vocabulary, spec.frame
    if isinstance(kind, CodePoints | CodePointsWithSubwords):
        raise ValueError("code points are no pipeline, and nothing of them is learned")
    if isinstance(kind, SpelledWords):
        raise ValueError("bytes that begin words or not are a pipeline that is not learned")
    special = names(frame)
    if isinstance(kind, Bytes):
        learned = pipeline.byte_tokens(_numbered(special, pipeline.byte_characters()))
        return pipeline.finish(learned, frame, rising=True)
    if isinstance(kind, ByteBPE):
        learned = _byte_bpe(kind, special, texts)
    elif frame.unknown is None:
        raise ValueError(
            f"{type(kind).__name__} needs a token for what it does not know: frame.unknown"
        )
    else:
        learned = _learned(kind, special, frame.unknown, texts)
    reached, size = learned.get_vocab_size(), kind.size
    rare = isinstance(kind, Words) and kind.least > 1  # words are left out on purpose
    if reached < size and not rare:
        _log.warning("the text has only enough for a vocabulary of %d, not of %d", reached, size)
    return pipeline.finish(learned, frame)


def _learned(
    kind: WordPiece | BPE | SentencePieceBPE | Unigram | Characters | Words,
    special: tuple[str, ...],
    unknown: str,
    texts: Iterable[str],
) -> Tokenizer:
    if isinstance(kind, WordPiece):
        return _word_piece(kind, special, unknown, texts)
    if isinstance(kind, BPE):
        return _bpe(kind, special, unknown, texts)
    if isinstance(kind, SentencePieceBPE):
        return _sentence_piece_bpe(kind, special, unknown, texts)
    if isinstance(kind, Unigram):
        return _unigram(kind, special, unknown, texts)
    if isinstance(kind, Characters):
        return _characters(kind, special, unknown, texts)
    return _words(kind, special, unknown, texts)


def merges(
    words: Mapping[str, int],
    symbols: list[str],
    n_merges: int,
    *,
    prefix: str = "",
    suffix: str = "",
) -> tuple[list[str], list[tuple[str, str]]]:
    """Merge the most frequent pair of neighbors within words, again and again.

    Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
    arXiv:1508.07909, algorithm 1, which leaves ties open. Among pairs that are equally frequent the
    first is the one whose left part is first in `symbols`, then the one whose right part is; what
    was merged comes after all symbols, in the order of merging. A pair must occur twice.

    Args:
        words: how often each word occurs.
        symbols: the single characters, with `prefix` where they continue a word, with `suffix`
            where they end one.
        n_merges: at most.
        prefix: written before what continues a word (WordPiece: ##).
        suffix: written after what ends a word (GPT: </w>).

    Returns:
        the pieces made, and the merges that made them, in order.
    """
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(symbols) + n_merges,
        min_frequency=2,
        special_tokens=symbols,  # numbered in this order, not in that of a hash table
        show_progress=False,
        continuing_subword_prefix=prefix,
        end_of_word_suffix=suffix,
    )
    trained.train_from_iterator(_repeated(words), trainer)
    model = json.loads(trained.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)[len(symbols) :]
    return pieces, [(left, right) for left, right in model["merges"]]


def _word_piece(
    kind: WordPiece, special: tuple[str, ...], unknown: str, texts: Iterable[str]
) -> Tokenizer:
    def build(vocab: dict[str, int]) -> Tokenizer:
        return pipeline.word_piece(vocab, unknown, lowercase=kind.lowercase)

    counted = count_words(texts, build({unknown: 0}), special)

    def covered(coverage: float) -> tuple[dict[str, int], list[str]]:
        words, letters = _covered(counted, coverage)
        return words, _symbols(words, letters, prefix="##")

    words, symbols = covered(kind.character_coverage)
    n_merges = _room(kind.size, special, symbols, covered)
    pieces, _ = merges(words, symbols, n_merges, prefix="##")
    return build(_numbered(special, [*sorted(symbols), *pieces]))


def _bpe(kind: BPE, special: tuple[str, ...], unknown: str, texts: Iterable[str]) -> Tokenizer:
    def build(vocab: dict[str, int], made: list[tuple[str, str]]) -> Tokenizer:
        return pipeline.marked_bpe(
            vocab,
            made,
            unknown,
            end_of_word=kind.end_of_word,
            lowercase=kind.lowercase,
            apart=kind.apart,
        )

    counted = count_words(texts, build({unknown: 0}, []), special)
    suffix = "" if kind.apart else kind.end_of_word

    def covered(coverage: float) -> tuple[dict[str, int], list[str]]:
        words, letters = _covered(counted, coverage)
        return words, _symbols(words, letters, suffix=suffix)

    words, symbols = covered(kind.character_coverage)
    n_merges = _room(kind.size, special, symbols, covered)
    pieces, made = merges(words, symbols, n_merges, suffix=suffix)
    return build(_numbered(special, [*sorted(symbols), *pieces]), made)


def _byte_bpe(kind: ByteBPE, special: tuple[str, ...], texts: Iterable[str]) -> Tokenizer:
    alphabet = sorted(pipeline.byte_characters())
    n_merges = _room(kind.size, special, alphabet)
    shell = pipeline.byte_bpe(_numbered((), alphabet), [], cut=kind.cut, nfc=kind.nfc)
    words = count_words(texts, shell, special, chunks=byte_chunks(kind.cut))
    pieces, made = merges(words, _symbols(words, alphabet), n_merges)
    vocab = _numbered(special, [*alphabet, *pieces])
    return pipeline.byte_bpe(vocab, made, cut=kind.cut, nfc=kind.nfc)


def byte_chunks(cut: ByteCut) -> Callable[[str], list[str]]:
    """Return what parts a text so that each part is cut as it would be in the whole."""
    return (_CHUNK_WITH_SPACE if cut == "gpt2" else _CHUNK_WITH_LINE_END).findall


def _sentence_piece_bpe(
    kind: SentencePieceBPE, special: tuple[str, ...], unknown: str, texts: Iterable[str]
) -> Tokenizer:
    def build(made: list[str], letters: list[str], *, prefix: bool = True) -> Tokenizer:
        named = [Piece(n, 0.0, UNKNOWN if n == unknown else CONTROL) for n in special]
        coded = [Piece(f"<0x{i:02X}>", 0.0, BYTE) for i in range(256)]
        merged = [Piece(p, -float(i), NORMAL) for i, p in enumerate([*made, *letters])]
        return pipeline.sentence_piece(
            Model(
                pieces=(*named, *coded, *merged),
                algorithm="bpe",
                charsmap=b"",
                add_dummy_prefix=prefix,
                remove_extra_whitespaces=False,
                escape_whitespaces=True,
                whitespace_as_suffix=False,
                byte_fallback=True,
                unknown=special.index(unknown),
                begin=None,
                end=None,
                pad=None,
            )
        )

    counted, words = count_words(texts, build([], []), special), Counter[str]()
    for word, n in counted.items():
        for part in _DIGIT_OR_REST.findall(word):
            words[part] += n

    def covered(coverage: float) -> tuple[dict[str, int], list[str]]:
        kept, letters = _covered(words, coverage)
        return kept, _symbols(kept, letters)

    kept, symbols = covered(kind.character_coverage)
    room = _room(kind.size, special, symbols, covered, n_bytes=256)
    made, _ = merges(kept, symbols, room)
    return build([p for p in made if p not in symbols], sorted(symbols), prefix=kind.prefix)


def _unigram(
    kind: Unigram, special: tuple[str, ...], unknown: str, texts: Iterable[str]
) -> Tokenizer:
    at = special.index(unknown)
    first = pipeline.as_plain(accents=False, lowercase=kind.lowercase) if kind.plain else []
    shell = pipeline.unigram([(name, 0.0) for name in special], at, first)
    counted = count_words(texts, shell, special)

    def covered(coverage: float) -> tuple[dict[str, int], list[str]]:
        return _covered(counted, coverage)

    words, letters = covered(kind.character_coverage)
    _room(kind.size, special, letters, covered)
    pieces = unigram.learn(words, kind.size - len(special))
    return pipeline.unigram([*((name, 0.0) for name in special), *pieces], at, first)


def _characters(
    kind: Characters, special: tuple[str, ...], unknown: str, texts: Iterable[str]
) -> Tokenizer:
    frequency = Counter[str]()
    for text in texts:
        pipeline.check_unicode(text)
        frequency.update(text)
    if not frequency:
        raise ValueError("there is no text to learn a vocabulary from")
    room = _room(kind.size, special, [])
    kept = sorted(frequency, key=lambda c: (-frequency[c], c))[:room]
    return pipeline.characters(_numbered(special, sorted(kept)), unknown)


def _words(kind: Words, special: tuple[str, ...], unknown: str, texts: Iterable[str]) -> Tokenizer:
    how = {"lowercase": kind.lowercase, "punctuation": kind.punctuation}
    shell = pipeline.words(_numbered(special, []), unknown, **how)
    words = frequent(kind.size, special, shell, texts, kind.least)
    return pipeline.words(_numbered(special, words), unknown, **how)


def frequent(
    size: int, special: tuple[str, ...], shell: Tokenizer, texts: Iterable[str], least: int = 1
) -> list[str]:
    """Return the most frequent words of texts, as the pipeline `shell` cuts them.

    Those that are there `least` times; with the special tokens `size`, or fewer where the texts
    have no more.

    Raises:
        ValueError: the special tokens leave no room, or there is no text.
    """
    frequency = count_words(texts, shell, special)
    room = _room(size, special, [])
    seen = [w for w, n in frequency.items() if n >= least and w not in special]
    if not seen:
        raise ValueError(
            f"there is no text to learn from: no word stands there {least} times or more"
        )
    return sorted(seen, key=lambda w: (-frequency[w], w))[:room]


def _numbered(special: tuple[str, ...], pieces: Iterable[str]) -> dict[str, int]:
    """Number the special tokens, then the pieces."""
    every = [*special, *pieces]
    if both := set(special).intersection(every[len(special) :]):
        raise ValueError(f"{min(both)!r} cannot be a special token: it is a character of the text")
    return {piece: i for i, piece in enumerate(every)}


_Covered = Callable[[float], tuple[dict[str, int], list[str]]]
"""Words of the characters that make up a share of a text, and the symbols that they are made of."""


def _room(
    size: int,
    special: tuple[str, ...],
    symbols: list[str],
    covered: _Covered | None = None,
    n_bytes: int = 0,
) -> int:
    """Return how many ids are left beside the special tokens, bytes and single characters.

    Args:
        size: of the vocabulary.
        special: its special tokens.
        symbols: the single characters.
        covered: what they would be with another coverage, which is then named where they are too
            many; None: there is no such choice.
        n_bytes: tokens for bytes.

    Raises:
        ValueError: none is left.
    """
    own = len(special) + n_bytes
    least = own + len(symbols)
    if size < least or size == len(special):
        bytes_too = f", {n_bytes} bytes" if n_bytes else ""
        other = None if covered is None else _coverage(size - own, covered)
        rest = "read byte by byte" if n_bytes else "unknown"
        choice = (
            "" if other is None
            else f"; or set character_coverage to {other:g}, so that the rarest ones are {rest}"
        )  # fmt: skip
        raise ValueError(
            f"a vocabulary of {size} is too small: {len(special)} special tokens{bytes_too} and "
            f"{len(symbols)} single characters must be in it; "
            f"ask for {max(least, len(special) + 1)} or more{choice}"
        )
    return size - least


def _coverage(room: int, covered: _Covered) -> float | None:
    """Find the largest round coverage whose single characters fit; None: there is none."""
    for other in _COVERAGES:
        with suppress(ValueError):  # no word is left
            words, symbols = covered(other)
            if words and len(symbols) <= room:
                return other
    return None


_COVERAGES = (0.9995, 0.999, 0.998, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)


def count_words(
    texts: Iterable[str],
    shell: Tokenizer,
    special: tuple[str, ...],
    chunks: Callable[[str], list[str]] = str.split,
) -> dict[str, int]:
    """Count the words of texts as the pipeline `shell` cuts them, but those with a special name.

    Texts are cut at spaces first, and what stands between is counted, so that the pipeline sees
    each only once.
    """
    seen, words = Counter[str](), Counter[str]()
    for text in texts:
        pipeline.check_unicode(text)
        seen.update(chunks(text))
        if len(seen) > _N_CHUNKS:
            _split(seen, shell, words)
    _split(seen, shell, words)
    # A piece is a part of a word: so none is called as a special token is.
    named = [word for word in words if any(name in word for name in special)]
    for word in named:
        del words[word]
    if not words:
        raise ValueError("there is no text to learn a vocabulary from")
    return words


def _split(seen: Counter[str], shell: Tokenizer, words: Counter[str]) -> None:
    """Add the words of the chunks `seen` to `words`; both stay small."""
    normalizer, splitter = shell.normalizer, shell.pre_tokenizer
    for chunk, count in seen.items():
        text = chunk if normalizer is None else normalizer.normalize_str(chunk)
        for word, _ in splitter.pre_tokenize_str(text):
            for i in range(0, len(word), LONGEST_WORD):
                words[word[i : i + LONGEST_WORD]] += count
    seen.clear()
    least = 1
    while len(words) > N_WORDS:
        for word in [w for w, count in words.items() if count <= least]:
            del words[word]
        least *= 2


def _covered(words: Mapping[str, int], coverage: float) -> tuple[dict[str, int], list[str]]:
    """Keep the characters that make up a share of the text, and the words made of them."""
    code, _, _, count = _laid_out(words)
    letters, place = np.unique(code, return_inverse=True)
    frequency = np.bincount(place, count)
    rising = np.lexsort((letters, frequency))
    rare = np.cumsum(frequency[rising]) <= (1 - coverage) * frequency.sum()
    out = {chr(c) for c in letters[rising[rare]]}
    kept = words if not out else {w: n for w, n in words.items() if out.isdisjoint(w)}
    return dict(kept), sorted({chr(c) for c in letters} - out)


def _symbols(
    words: Mapping[str, int], letters: list[str], *, prefix: str = "", suffix: str = ""
) -> list[str]:
    """List the letters, bare and as they stand in words (##a, a</w>), leftmost in words first.

    So ties between pairs go to the one further to the left, on average over all words.
    """
    code, place, left, count = _laid_out(words)
    known, letter = np.unique(code, return_inverse=True)
    form = 4 * letter + 2 * (place > 0) * bool(prefix) + (left == 1) * bool(suffix)
    total, moment = np.bincount(form, count), np.bincount(form, count * place)
    mean: dict[str, float] = dict.fromkeys(letters, math.inf)
    for i in np.flatnonzero(total).tolist():
        symbol = chr(known[i // 4])
        mean[prefix * (i // 2 % 2) + symbol + suffix * (i % 2)] = moment[i] / total[i]
    return sorted(mean, key=lambda symbol: (mean[symbol], symbol))


def _laid_out(words: Mapping[str, int]) -> tuple[np.ndarray, ...]:
    """Give of every character of every word: code, place, how many are left, how often."""
    code = np.frombuffer("".join(words).encode("utf-32-le"), "<u4")
    lengths = np.array([len(word) for word in words])
    count = np.repeat(np.array([*words.values()], np.float64), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(code))
    return code, np.repeat(lengths, lengths) - left, left, count


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Write every word as often as it counts, with spaces between: the library counts again."""
    share = max(1, -(-sum(words.values()) // N_FED))
    batch: list[str] = []
    room = 2**16
    for word, count in words.items():
        count //= share
        while count > 0:
            times = min(count, max(1, room // (len(word) + 1)))
            batch.append((word + " ") * times)
            count -= times
            room -= times * (len(word) + 1)
            if room <= len(word):
                yield "".join(batch)
                batch, room = [], 2**16
    yield "".join(batch)
