"""Loops over words, compiled by numba: random numbers, subsampling, phrases, trees, n-grams."""

# pyright: reportMissingParameterType=false, reportUntypedFunctionDecorator=false
from typing import no_type_check

import numpy as np
from numba import njit

# The flags of "fast" without nnan and ninf: infinities and NaNs must be detected.
_MATH = {"reassoc", "contract", "arcp", "nsz", "afn"}
compiled = njit(cache=True, nogil=True)
fast = njit(cache=True, nogil=True, fastmath=_MATH, error_model="numpy")
inline = njit(cache=True, nogil=True, fastmath=_MATH, error_model="numpy", forceinline=True)
GAMMA = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


@inline
@no_type_check
def splitmix64(z):
    """Mix 64 bits (SplitMix64: Steele et al. 2014, doi:10.1145/2660193.2660195)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
@no_type_check
def count_ids(ids, sentences, counts) -> None:
    """Add to `counts` how often each id is seen in the sentences (start, end)."""
    for s in range(len(sentences)):
        for t in range(sentences[s, 0], sentences[s, 1]):
            counts[ids[t]] += 1


@compiled
@no_type_check
def subsample(ids, sentences, place, row_of, keep, key, gaps, rows, bounds, places):
    """Write the rows of the words that survive subsampling; return the number of sentences.

    Args:
        ids: ids of one part of the corpus.
        sentences: (start, end) in `ids`.
        place: position of the part's first id in the corpus.
        row_of: the row of each id; negative for ids that are skipped.
        keep: threshold of each row; a word is dropped if 32 random bits exceed it.
        key: random key.
        gaps: whether a skipped id ends its sentence.
        rows: output, as long as all sentences.
        bounds: output, the start of each sentence in `rows` and the end of the last.
        places: output, the position of each sentence in the corpus.
    """
    n = m = 0
    bounds[0] = 0
    for s in range(len(sentences)):
        places[m] = place + sentences[s, 0]
        for t in range(sentences[s, 0], sentences[s, 1]):
            row = row_of[ids[t]]
            if row < 0:
                if gaps and n > bounds[m]:
                    m += 1
                    bounds[m] = n
                    places[m] = place + t
                continue
            drawn = splitmix64(key + np.uint64(place + t) * GAMMA) >> HALF
            if drawn <= np.uint64(keep[row]):
                rows[n] = row
                n += 1
        if n > bounds[m]:
            m += 1
            bounds[m] = n
    return m


@compiled
@no_type_check
def join_phrases(ids, sentences, keys, names, out, bounds):
    """Write the ids of sentences, with known pairs replaced by one id, greedily from the left.

    Args:
        ids: ids of one part of the corpus.
        sentences: (start, end) in `ids`.
        keys: first << 32 | second of each pair, ascending.
        names: the id of each pair.
        out: output, as long as all sentences.
        bounds: output, the start of each sentence in `out` and the end of the last.
    """
    n = 0
    bounds[0] = 0
    for s in range(len(sentences)):
        t, end = sentences[s, 0], sentences[s, 1]
        while t < end:
            name = np.int64(ids[t])
            if t + 1 < end:
                key = (np.uint64(ids[t]) << HALF) | np.uint64(ids[t + 1])
                at = np.searchsorted(keys, key)
                if at < len(keys) and keys[at] == key:
                    name = names[at]
                    t += 1
            out[n] = name
            n += 1
            t += 1
        bounds[s + 1] = n
    return n


@compiled
@no_type_check
def alias_table(weights):
    """Build the alias table for weighted sampling (Vose 1991, doi:10.1109/32.92917).

    An entry has the probability of its own row in the high 32 bits, and the alias in the low.
    """
    n = len(weights)
    share = weights / weights.sum() * n
    entries = np.empty(n, np.uint64)
    small, large = np.empty(n, np.int64), np.empty(n, np.int64)
    n_small = n_large = 0
    for i in range(n):
        if share[i] < 1:
            small[n_small] = i
            n_small += 1
        else:
            large[n_large] = i
            n_large += 1
    while n_small and n_large:
        n_small -= 1
        i, j = small[n_small], large[n_large - 1]
        chance = np.uint64(min(share[i] * 4294967296.0, 4294967295.0))
        entries[i] = (chance << HALF) | np.uint64(j)
        share[j] -= 1 - share[i]
        if share[j] < 1:
            n_large -= 1
            small[n_small] = j
            n_small += 1
    for i in small[:n_small]:
        entries[i] = (_LOW << HALF) | np.uint64(i)
    for i in large[:n_large]:
        entries[i] = (_LOW << HALF) | np.uint64(i)
    return entries


@inline
@no_type_check
def sample_row(random, entries):
    """Return the row that 64 random bits choose from an alias table."""
    row = ((random >> HALF) * np.uint64(len(entries))) >> HALF
    entry = entries[np.int64(row)]
    if (random & _LOW) >= (entry >> HALF):
        row = entry & _LOW
    return np.int64(row)


@compiled
@no_type_check
def huffman_paths(counts):
    """Return each row's path in the Huffman tree: (offsets, inner nodes, codes).

    `counts` descend. A path leads from the leaf to the root; a code is 1 where a node is its
    parent's second child (Huffman 1952, doi:10.1109/JRPROC.1952.273898).
    """
    n = len(counts)
    weight = np.full(2 * n - 1, np.int64(2**62))
    weight[:n] = counts
    parent, second = np.zeros(2 * n - 1, np.int64), np.zeros(2 * n - 1, np.uint8)
    leaf, inner = n - 1, n  # the least leaf and the least inner node that have no parent
    for new in range(n, 2 * n - 1):
        total = np.int64(0)
        for child in range(2):
            if leaf >= 0 and weight[leaf] < weight[inner]:
                least = leaf
                leaf -= 1
            else:
                least = inner
                inner += 1
            total += weight[least]
            parent[least] = new
            second[least] = child
        weight[new] = total
    offsets = np.zeros(n + 1, np.int64)
    for row in range(n):
        node, length = row, 0
        while node != 2 * n - 2:
            node = parent[node]
            length += 1
        offsets[row + 1] = offsets[row] + length
    nodes, codes = np.empty(offsets[n], np.int32), np.empty(offsets[n], np.uint8)
    for row in range(n):
        node, at = row, offsets[row]
        while node != 2 * n - 2:
            codes[at] = second[node]
            node = parent[node]
            nodes[at] = node - n
            at += 1
    return offsets, nodes, codes


@compiled
@no_type_check
def _hash_of(text, start, end):
    """FNV-1a of 32 bits over bytes taken with a sign, as fastText's released code has it."""
    found = np.uint32(2166136261)
    for i in range(start, end):
        byte = np.uint32(text[i])
        if byte >= 128:
            byte |= np.uint32(0xFFFFFF00)
        found = np.uint32((found ^ byte) * np.uint32(16777619))
    return found


@compiled
@no_type_check
def _ngrams_of(text, begin, stop, least, most, buckets, first, rows, at):
    """Write the rows of a word's n-grams from `at` on, where there is room; return their end."""
    for i in range(begin, stop):
        if text[i] & 0xC0 == 0x80:  # within a character
            continue
        end = i
        for length in range(1, most + 1):
            if end == stop:
                break
            end += 1
            while end < stop and text[end] & 0xC0 == 0x80:
                end += 1
            mark = length == 1 and (i == begin or end == stop)
            if length >= least and not mark:
                if at < len(rows):
                    rows[at] = first + np.int64(_hash_of(text, i, end)) % buckets
                at += 1
    return at


@compiled
@no_type_check
def ngram_rows(text, offsets, least, most, buckets, first, own):
    """Return the rows of each word: its own, if it has one, and those of its n-grams.

    Args:
        text: the words in UTF-8 with boundary marks, concatenated.
        offsets: start of each word, and the end of the last.
        least: minimum length of an n-gram; a boundary mark alone is none.
        most: maximum length of an n-gram.
        buckets: number of n-gram rows.
        first: first n-gram row.
        own: whether word i also has row i.

    Returns:
        (start of each word's rows and end of the last; the rows).
    """
    n = len(offsets) - 1
    found = np.zeros(n + 1, np.int64)
    rows = np.empty(0, np.int32)
    for word in range(n):
        at = found[word] + own
        found[word + 1] = _ngrams_of(
            text, offsets[word], offsets[word + 1], least, most, buckets, first, rows, at
        )
    rows = np.empty(found[n], np.int32)
    for word in range(n):
        if own:
            rows[found[word]] = word
        at = found[word] + own
        _ngrams_of(text, offsets[word], offsets[word + 1], least, most, buckets, first, rows, at)
    return found, rows


@fast
@no_type_check
def row_means(offsets, pieces, inputs):
    """Return the mean of each word's rows."""
    found = np.zeros((len(offsets) - 1, inputs.shape[1]), np.float32)
    for word in range(len(found)):
        sum_rows(offsets, pieces, word, inputs, found[word])
        for k in range(inputs.shape[1]):
            found[word, k] /= max(offsets[word + 1] - offsets[word], 1)
    return found


@compiled
@no_type_check
def row_shares(offsets, pieces):
    """Return the change of each word's mean when 1 is added to each of its row occurrences.

    1 if the rows are distinct; two n-grams of a word may share a row.
    """
    n = len(offsets) - 1
    shares = np.empty(n, np.float32)
    for word in range(n):
        total = 0
        for i in range(offsets[word], offsets[word + 1]):
            for j in range(offsets[word], offsets[word + 1]):
                total += pieces[i] == pieces[j]
        shares[word] = total / max(offsets[word + 1] - offsets[word], 1)
    return shares


@inline
@no_type_check
def sum_rows(offsets, pieces, row, inputs, vector) -> None:
    """Add all rows of a word to a vector."""
    for i in range(offsets[row], offsets[row + 1]):
        at = pieces[i]
        for k in range(len(vector)):
            vector[k] += inputs[at, k]
