"""Deterministic training of a unigram vocabulary.

Kudo 2018, "Subword Regularization", arXiv:1804.10959, section 3.2. Start with all frequent
substrings of words, estimate their probabilities by expectation maximization, drop those whose loss
reduces the likelihood least, and repeat until the vocabulary has its size. Details (seeds, the
sparse prior, the approximate loss) follow the description of SentencePiece (Kudo and Richardson
2018, arXiv:1808.06226) and its released program. The trainer of the `tokenizers` library depends on
the order of a hash table, so that the same text gives other ids in each process. This one works on
arrays in a fixed order.

A word is a lattice with a node before each character and one after the last; a piece between two
nodes is an edge. All words are processed in parallel, from first to last character.
"""

import itertools
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

SPACE = "▁"
MAX_TRAINING_CHARACTERS = 2_000_000
"""Total characters of the distinct training words, the most frequent ones."""
MAX_WORD_CHARACTERS = 32
"""Maximum word length; longer words (scripts without spaces) are cut."""
MAX_PIECE_CHARACTERS = 16
"""SentencePiece's max_sentencepiece_length."""
_SEED_FACTOR = 10
"""Seed pieces as a multiple of the requested number."""
_SHRINKING_FACTOR = 0.75
"""Share of the pieces kept in a round (SentencePiece's shrinking_factor)."""
_FINAL_MARGIN = 1.1
"""Pieces of the last round of expectation maximization, as a multiple of the requested number."""
_EM_STEPS = 2
"""Steps of expectation maximization per round."""
_MIN_EXPECTED_COUNT = 0.5
"""Minimum expected count of a piece; others are dropped."""


def learn_unigram(words: Mapping[str, int], n_pieces: int) -> list[tuple[str, float]]:
    """Train at most `n_pieces` pieces with log probabilities, the most probable first.

    Every character of `words` is a piece, even beyond `n_pieces`. There are fewer pieces if the
    words have no more useful substrings.
    """
    corpus = _build_corpus(words)
    letters = np.unique(corpus.text)
    n_pieces = max(n_pieces, len(letters))
    corpus = _Corpus(np.searchsorted(letters, corpus.text), corpus.lengths, corpus.counts)
    trie, pieces = _seed_pieces(corpus, _character_classes(letters), _SEED_FACTOR * n_pieces)
    lattice = _build_lattice(corpus, trie)
    score = np.log(pieces.count / pieces.count.sum())
    while True:
        for _ in range(_EM_STEPS):
            expected = _expectation(lattice, np.exp(score))
            keep = (expected >= _MIN_EXPECTED_COUNT) | (pieces.length == 1)
            pieces, lattice, trie = (
                pieces.keep_only(keep),
                lattice.keep_only(keep),
                trie.keep_only(keep),
            )
            score = _maximization(np.maximum(expected[keep], _MIN_EXPECTED_COUNT))
        n_now = len(pieces.length)
        if n_now <= _FINAL_MARGIN * n_pieces:
            break
        target = max(int(_FINAL_MARGIN * n_pieces), int(_SHRINKING_FACTOR * n_now))
        keep = _prune(
            lattice,
            _build_lattice(_pieces_as_words(pieces), trie, include_whole_words=False),
            pieces,
            score,
            target,
        )
        pieces, lattice, trie, score = (
            pieces.keep_only(keep),
            lattice.keep_only(keep),
            trie.keep_only(keep),
            score[keep],
        )
    return _most_probable_pieces(pieces, score, letters, n_pieces)


@dataclass(frozen=True)
class _Corpus:
    """Concatenated words."""

    text: Int[np.ndarray, "c"]
    lengths: Int[np.ndarray, "w"]
    counts: Float[np.ndarray, "w"]


@dataclass(frozen=True)
class _Pieces:
    """The vocabulary: the position of each piece's letters in `text`."""

    text: Int[np.ndarray, "c"]
    start: Int[np.ndarray, "p"]
    length: Int[np.ndarray, "p"]
    count: Float[np.ndarray, "p"]

    def keep_only(self, keep: Bool[np.ndarray, "p"]) -> "_Pieces":
        return _Pieces(self.text, self.start[keep], self.length[keep], self.count[keep])


@dataclass(frozen=True)
class _Trie:
    """All substrings that occur twice, by length; a key is prefix * n_letters + last letter."""

    n_letters: int
    keys: "tuple[Int[np.ndarray, '_'], ...]"
    piece: "tuple[Int[np.ndarray, '_'], ...]"
    """Piece index of each key; -1: none."""

    def keep_only(self, keep: Bool[np.ndarray, "p"]) -> "_Trie":
        new = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)
        return _Trie(self.n_letters, self.keys, tuple(new[p] for p in self.piece))


@dataclass(frozen=True)
class _Lattice:
    """Edges, sorted by the position of their end in the word."""

    start: Int[np.ndarray, "e"]
    end: Int[np.ndarray, "e"]
    piece: Int[np.ndarray, "e"]
    depth: Int[np.ndarray, "e"]
    """Characters from the start of the word to the end of the edge."""
    first: Int[np.ndarray, "w"]
    """First and last node of each word."""
    last: Int[np.ndarray, "w"]
    counts: Float[np.ndarray, "w"]

    def keep_only(self, keep: Bool[np.ndarray, "p"]) -> "_Lattice":
        edges = keep[self.piece]
        piece = (np.cumsum(keep) - 1)[self.piece[edges]]
        return _Lattice(
            self.start[edges], self.end[edges], piece, self.depth[edges],
            self.first, self.last, self.counts,
        )  # fmt: skip

    def depth_slices(self) -> Iterator[slice]:
        """Yield the edges that end after one character, after two, ..."""
        deepest = int(self.depth[-1]) if len(self.depth) else 0
        borders = np.searchsorted(self.depth, np.arange(1, deepest + 2))
        return (slice(a, b) for a, b in itertools.pairwise(borders) if a < b)

    @property
    def n_nodes(self) -> int:
        return int(self.last[-1]) + 1


def _build_corpus(words: Mapping[str, int]) -> _Corpus:
    """Concatenate the most frequent words; ties in alphabetical order."""
    selected: list[tuple[str, int]] = []
    room = MAX_TRAINING_CHARACTERS
    for word, count in sorted(words.items(), key=lambda x: (-x[1], x[0])):
        selected += [
            (word[i : i + MAX_WORD_CHARACTERS], count)
            for i in range(0, len(word), MAX_WORD_CHARACTERS)
        ]
        room -= len(word)
        if room <= 0:
            break
    text = np.frombuffer("".join(w for w, _ in selected).encode("utf-32-le"), "<u4").astype(
        np.int64
    )
    lengths = np.array([len(w) for w, _ in selected], np.int64)
    return _Corpus(text, lengths, np.array([n for _, n in selected], np.float64))


def _character_classes(letters: Int[np.ndarray, "l"]) -> Int[np.ndarray, "l"]:
    """Classify letters (1), digits (2), others (3), which no piece mixes; a space (0) fits all."""
    kinds = {"L": 1, "M": 1, "N": 2}
    return np.array(
        [0 if c == SPACE else kinds.get(unicodedata.category(c)[0], 3) for c in map(chr, letters)]
    )


def _seed_pieces(
    corpus: _Corpus, character_classes: Int[np.ndarray, "l"], limit: int
) -> tuple[_Trie, _Pieces]:
    """Find all repeated substrings; seeds are the letters and those that save most text."""
    text, at, n_letters = corpus.text, np.arange(len(corpus.text)), len(character_classes)
    weight = np.repeat(corpus.counts, corpus.lengths)
    left = _run_lengths(corpus, character_classes[text])
    node = text
    keys: list[np.ndarray] = [np.arange(n_letters)]
    counts: list[np.ndarray] = [np.bincount(text, weight)]
    starts: list[np.ndarray] = [_first_occurrences(text, at)]
    unmatched = [counts[0]]  # count of a substring where no longer one of the trie occurs
    for depth in range(1, MAX_PIECE_CHARACTERS):
        fits = left[at] > depth
        at, parent = at[fits], node[fits]
        keys_found, node = np.unique(parent * n_letters + text[at + depth], return_inverse=True)
        count = np.bincount(node, weight[at], minlength=len(keys_found))
        new = np.where(count >= 2, np.cumsum(count >= 2) - 1, -1)
        frequent = new[node] >= 0
        at, node = at[frequent], new[node[frequent]]
        keys_found, count = keys_found[count >= 2], count[count >= 2]
        if not len(keys_found):
            break
        longest = np.zeros(len(counts[-1]))
        np.maximum.at(longest, keys_found // n_letters, count)
        unmatched[-1] = counts[-1] - longest
        keys, counts = [*keys, keys_found], [*counts, count]
        starts, unmatched = [*starts, _first_occurrences(node, at)], [*unmatched, count]
    depth = np.concatenate([np.full(len(c), d) for d, c in enumerate(counts, 1)])
    count, start, free = np.concatenate(counts), np.concatenate(starts), np.concatenate(unmatched)
    # A substring with only one continuation is no seed: the longer one is better.
    saved = np.where(free > 0, count * depth, -1.0)
    saved[:n_letters] = np.inf
    chosen = np.sort(np.argsort(-saved, kind="stable")[: max(limit, n_letters)])
    chosen = chosen[saved[chosen] > 0]
    piece = np.full(len(depth), -1)
    piece[chosen] = np.arange(len(chosen))
    trie = _Trie(
        n_letters, tuple(keys), tuple(np.split(piece, np.cumsum([len(k) for k in keys])[:-1]))
    )
    return trie, _Pieces(text, start[chosen], depth[chosen], count[chosen])


def _run_lengths(corpus: _Corpus, character_class: Int[np.ndarray, "c"]) -> Int[np.ndarray, "c"]:
    """Count the characters from each to the end of its word or of its character class."""
    other = (character_class[:-1] != character_class[1:]) & (character_class[:-1] > 0)
    ends = np.unique(np.concatenate([np.flatnonzero(other) + 1, np.cumsum(corpus.lengths)]))
    at = np.arange(len(character_class))
    return ends[np.searchsorted(ends, at, side="right")] - at


def _first_occurrences(
    node: Int[np.ndarray, "c"], at: Int[np.ndarray, "c"]
) -> Int[np.ndarray, "_"]:
    """Return the first occurrence of each node."""
    return at[np.unique(node, return_index=True)[1]]


def _pieces_as_words(pieces: _Pieces) -> _Corpus:
    """Return the pieces as a corpus of words."""
    total = int(pieces.length.sum())
    begin = np.cumsum(pieces.length) - pieces.length
    at = np.repeat(pieces.start - begin, pieces.length) + np.arange(total)
    return _Corpus(pieces.text[at], pieces.length, np.ones(len(pieces.length)))


def _build_lattice(corpus: _Corpus, trie: _Trie, *, include_whole_words: bool = True) -> _Lattice:
    """Find every occurrence of every piece in the words.

    Without `include_whole_words`, whole words are not matched as pieces.
    """
    n_words = len(corpus.lengths)
    word = np.repeat(np.arange(n_words), corpus.lengths)
    begin = np.cumsum(corpus.lengths) - corpus.lengths
    place = np.arange(len(corpus.text)) - begin[word]
    left = corpus.lengths[word] - place
    at, node = np.arange(len(corpus.text)), np.zeros(len(corpus.text), np.int64)
    found: list[tuple[np.ndarray, ...]] = []
    for depth, (keys, pieces) in enumerate(zip(trie.keys, trie.piece, strict=True), 1):
        if depth > 1:
            fits = left[at] >= depth
            at, node = at[fits], node[fits]
        key = node * trie.n_letters + corpus.text[at + depth - 1]
        node = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        same = keys[node] == key
        at, node = at[same], node[same]
        here = pieces[node] >= 0
        if not include_whole_words:
            here &= corpus.lengths[word[at]] != depth
        start = at[here] + word[at[here]]  # a word has one node more than characters
        found.append((start, start + depth, pieces[node[here]], place[at[here]] + depth))
    start, end, piece, depths = (np.concatenate(x) for x in zip(*found, strict=True))
    order = np.lexsort((start, end, depths))
    first = begin + np.arange(n_words)
    return _Lattice(
        start[order].astype(np.int32), end[order].astype(np.int32),
        piece[order], depths[order].astype(np.int8),
        first, first + corpus.lengths, corpus.counts,
    )  # fmt: skip


def _expectation(lattice: _Lattice, probability: Float[np.ndarray, "p"]) -> Float[np.ndarray, "p"]:
    """Return the expected count of each piece over all segmentations of each word."""
    forward, backward = np.zeros(lattice.n_nodes), np.zeros(lattice.n_nodes)
    forward[lattice.first] = 1
    steps = list(lattice.depth_slices())
    for step in steps:
        flow = forward[lattice.start[step]] * probability[lattice.piece[step]]
        np.add.at(forward, lattice.end[step], flow)
    # Words whose probability underflows are ignored.
    total = forward[lattice.last]
    backward[lattice.last] = np.divide(
        lattice.counts, total, out=np.zeros_like(total), where=total > 0
    )
    expected = np.zeros(len(probability))
    for step in reversed(steps):
        start, piece = lattice.start[step], lattice.piece[step]
        flow = backward[lattice.end[step]] * probability[piece]
        np.add.at(backward, start, flow)
        np.add.at(expected, piece, forward[start] * flow)
    return expected


def _maximization(expected: Float[np.ndarray, "p"]) -> Float[np.ndarray, "p"]:
    """Return log probabilities under a prior for few pieces: digamma, not the logarithm."""
    return _digamma(expected) - _digamma(expected.sum(keepdims=True))


def _digamma(x: Float[np.ndarray, "p"]) -> Float[np.ndarray, "p"]:
    """Return the derivative of log gamma: by recurrence up to 6, then by an asymptotic series."""
    x, shift = x.copy(), np.zeros_like(x)
    for _ in range(6):
        small = x < 6
        shift[small] -= 1 / x[small]
        x[small] += 1
    inverse = 1 / (x * x)
    return shift + np.log(x) - 0.5 / x - inverse * (1 / 12 - inverse * (1 / 120 - inverse / 252))


def _prune(
    lattice: _Lattice,
    piece_lattice: _Lattice,
    pieces: _Pieces,
    score: Float[np.ndarray, "p"],
    target: int,
) -> Bool[np.ndarray, "p"]:
    """Keep the pieces whose removal would reduce the likelihood most, and all letters.

    The loss of a piece is the log likelihood lost by the best segmentations of all words if it is
    replaced by its own best segmentation.
    """
    n = len(score)
    probability = np.exp(score)
    frequency = np.zeros(n)
    for word, piece in _viterbi_segmentations(lattice, probability):
        np.add.at(frequency, piece, lattice.counts[word])
    total = frequency.sum()
    log_parts, n_parts = np.zeros(n), np.zeros(n)
    with np.errstate(divide="ignore", invalid="ignore"):  # pieces of frequency 0, set below
        for word, piece in _viterbi_segmentations(piece_lattice, probability):
            np.add.at(log_parts, word, np.log(frequency[piece] + frequency[word]))
            np.add.at(n_parts, word, 1)
        loss = frequency * (
            np.log(frequency) - np.log(total)
            - (log_parts - n_parts * np.log(total + frequency * (n_parts - 1)))
        )  # fmt: skip
    loss = np.where(frequency > 0, loss, -np.inf)
    loss[pieces.length == 1] = np.inf
    keep = np.zeros(n, bool)
    keep[np.argsort(-loss, kind="stable")[:target]] = True
    return (keep & (loss > -np.inf)) | (pieces.length == 1)


def _viterbi_segmentations(
    lattice: _Lattice, probability: Float[np.ndarray, "p"]
) -> Iterator[tuple[Int[np.ndarray, "_"], Int[np.ndarray, "_"]]]:
    """Return each word's best segmentation, as (words, pieces): all last pieces first."""
    best, back = np.zeros(lattice.n_nodes), np.full(lattice.n_nodes, -1)
    best[lattice.first] = 1
    for step in lattice.depth_slices():
        end = lattice.end[step]
        value = best[lattice.start[step]] * probability[lattice.piece[step]]
        np.maximum.at(best, end, value)
        winner = np.flatnonzero((value == best[end]) & (value > 0))[
            ::-1
        ]  # ties: the first, written last
        back[end[winner]] = winner + step.start
    word, node = np.arange(len(lattice.last)), lattice.last
    while True:
        going = (node != lattice.first[word]) & (back[node] >= 0)
        word, node = word[going], node[going]
        if not len(word):
            return
        yield word, lattice.piece[back[node]]
        node = lattice.start[back[node]]


def _most_probable_pieces(
    pieces: _Pieces, score: Float[np.ndarray, "p"], letters: Int[np.ndarray, "l"], n_pieces: int
) -> list[tuple[str, float]]:
    """Return the most probable pieces as strings, including all letters."""
    rank = np.where(pieces.length == 1, np.inf, score)
    chosen = np.argsort(-rank, kind="stable")[:n_pieces]
    spelled: list[tuple[str, float]] = []
    for i in chosen.tolist():
        code = letters[pieces.text[pieces.start[i] : pieces.start[i] + pieces.length[i]]]
        spelled.append(("".join(map(chr, code.tolist())), round(float(score[i]), 6)))
    return sorted(spelled, key=lambda x: (-x[1], x[0]))
