"""The loops over words and pairs, compiled by numba: what is drawn, asked and moved.

Nothing here has a state. What is drawn at a place of the corpus is a function of a key (of the seed
and the epoch) and that place, so that training can begin anywhere. All release the interpreter's
lock: several threads may move the same rows, unguarded (Hogwild, Niu et al. 2011, arXiv:1106.5730).
"""

# pyright: reportMissingParameterType=false, reportUntypedFunctionDecorator=false
import math
from typing import no_type_check

import numpy as np
from numba import njit

# All that "fast" may reorder, but not the promises that nothing is infinite or no number, which
# must be seen where it happens.
_MATH = {"reassoc", "contract", "arcp", "nsz", "afn"}
_compiled = njit(cache=True, nogil=True)
_fast = njit(cache=True, nogil=True, fastmath=_MATH, error_model="numpy")
_inline = njit(cache=True, nogil=True, fastmath=_MATH, error_model="numpy", forceinline=True)
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE, _NONE = np.float32(1), np.float32(0)
MAX_SCORE = 6.0
"""Beyond a score of this size a probability counts as 0 or 1 (MAX_EXP of the released code)."""
SIGMOID_STEPS = 1000
"""Probabilities in the table (EXP_TABLE_SIZE of the released code)."""
_LIMIT, _PER_SCORE = np.float32(MAX_SCORE), np.float32(SIGMOID_STEPS / (2 * MAX_SCORE))
_LOSS_EVERY = 32  # the loss is estimated from one center in so many
_MAX_CODE_LENGTH = (
    96  # no path of the tree is longer: counts of 64 bits end before the 96th Fibonacci number
)


@_inline
@no_type_check
def splitmix64(z):
    """Mix 64 bits (SplitMix64: Steele et al. 2014, doi:10.1145/2660193.2660195)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@_compiled
@no_type_check
def count_ids(ids, sentences, counts) -> None:
    """Add to `counts` how often each id is seen in the sentences (start, end)."""
    for s in range(len(sentences)):
        for t in range(sentences[s, 0], sentences[s, 1]):
            counts[ids[t]] += 1


@_compiled
@no_type_check
def subsample(ids, sentences, place, row_of, keep, key, gaps, rows, bounds, places):
    """Write the rows of words that are not left out, by sentences; return how many of these.

    Args:
        ids: of one part of the corpus.
        sentences: (start, end) in `ids`.
        place: of the part's first id in the corpus.
        row_of: the row of each id; below 0: it is left out.
        keep: a word is drawn out where 32 random bits are above this, of its row.
        key: of what is drawn.
        gaps: a word that is left out for its id ends its sentence; else its neighbors join.
        rows: as long as the sentences together; filled.
        bounds: where each sentence starts in `rows`, and the end of the last; filled.
        places: of each sentence in the corpus; filled.
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
            drawn = splitmix64(key + np.uint64(place + t) * _GAMMA) >> _HALF
            if drawn <= np.uint64(keep[row]):
                rows[n] = row
                n += 1
        if n > bounds[m]:
            m += 1
            bounds[m] = n
    return m


@_compiled
@no_type_check
def join_phrases(ids, sentences, keys, names, out, bounds):
    """Write the ids of sentences with known pairs of neighbors, first come, as one id each.

    Args:
        ids: of one part of the corpus.
        sentences: (start, end) in `ids`.
        keys: first << 32 | second, of each pair to be joined, in ascending order.
        names: the id of each pair.
        out: as long as the sentences together; filled.
        bounds: where each sentence starts in `out`, and the end of the last; filled.
    """
    n = 0
    bounds[0] = 0
    for s in range(len(sentences)):
        t, end = sentences[s, 0], sentences[s, 1]
        while t < end:
            name = np.int64(ids[t])
            if t + 1 < end:
                key = (np.uint64(ids[t]) << _HALF) | np.uint64(ids[t + 1])
                at = np.searchsorted(keys, key)
                if at < len(keys) and keys[at] == key:
                    name = names[at]
                    t += 1
            out[n] = name
            n += 1
            t += 1
        bounds[s + 1] = n
    return n


@_compiled
@no_type_check
def alias_table(weights):
    """Make the table from which rows are drawn by weights (Vose 1991, doi:10.1109/32.92917).

    An entry has the chance of its own row in the high 32 bits, the row drawn otherwise in the low.
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
        entries[i] = (chance << _HALF) | np.uint64(j)
        share[j] -= 1 - share[i]
        if share[j] < 1:
            n_large -= 1
            small[n_small] = j
            n_small += 1
    for i in small[:n_small]:
        entries[i] = (_LOW << _HALF) | np.uint64(i)
    for i in large[:n_large]:
        entries[i] = (_LOW << _HALF) | np.uint64(i)
    return entries


@_inline
@no_type_check
def sample_row(random, entries):
    """Return the row that 64 random bits choose from an alias table."""
    row = ((random >> _HALF) * np.uint64(len(entries))) >> _HALF
    entry = entries[np.int64(row)]
    if (random & _LOW) >= (entry >> _HALF):
        row = entry & _LOW
    return np.int64(row)


@_compiled
@no_type_check
def huffman_paths(counts):
    """Give each row's path in the tree of the shortest codes: (offsets, inner nodes, codes).

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


@_compiled
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


@_compiled
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


@_compiled
@no_type_check
def ngram_rows(text, offsets, least, most, buckets, first, own):
    """Give the rows of each word: its own, if it has one, and those of its n-grams.

    Args:
        text: UTF-8 of the words, each within its marks, one after another.
        offsets: where each word starts, and the end of the last.
        least: characters of an n-gram; one that is nothing but a mark is none.
        most: of these, at most.
        buckets: so many rows do the n-grams have together.
        first: the first of these rows.
        own: word i has the row i too.

    Returns:
        (where each word's rows begin, and the last end; the rows).
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


@_fast
@no_type_check
def row_means(offsets, pieces, inputs):
    """Give the mean of each word's rows."""
    found = np.zeros((len(offsets) - 1, inputs.shape[1]), np.float32)
    for word in range(len(found)):
        _sum(offsets, pieces, word, inputs, found[word])
        for k in range(inputs.shape[1]):
            found[word, k] /= max(offsets[word + 1] - offsets[word], 1)
    return found


@_compiled
@no_type_check
def row_shares(offsets, pieces):
    """Say how far each word's mean moves when each row moves by 1 as often as it is there.

    1 where the rows are distinct: two n-grams of a word may share a row.
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


@_inline
@no_type_check
def _output_targets(
    row, state, alias_entries, n_negatives, offsets, nodes, codes, output_rows, labels
):
    """Write which output rows are asked of a word, and the answers; return (how many, state)."""
    if n_negatives == 0:
        n = 0
        for i in range(offsets[row], offsets[row + 1]):
            output_rows[n] = nodes[i]
            labels[n] = _ONE - np.float32(codes[i])
            n += 1
        return n, state
    output_rows[0], labels[0] = row, _ONE
    n = 1
    for _ in range(n_negatives):
        state += _GAMMA
        other = sample_row(splitmix64(state), alias_entries)
        if other != row:
            output_rows[n], labels[n] = other, _NONE
            n += 1
    return n, state


@_inline
@no_type_check
def _sigmoid(score, table):
    if score >= _LIMIT:
        return _ONE
    if score <= -_LIMIT:
        return _NONE
    if score == score:
        return table[np.int64((score + _LIMIT) * _PER_SCORE)]
    return score


@_inline
@no_type_check
def _update(hidden, error, outputs, output_rows, labels, n, learning_rate, table, gains):
    """Ask a vector all questions, move the outputs, write the vector's own step to `error`.

    All scores are of the outputs as they were; rows are taken two at a time, which halves what is
    read of the vector.

    Returns:
        Whether all scores are finite.
    """
    d = len(hidden)
    finite = True
    j = 0
    while j < n:
        a, b = output_rows[j], output_rows[min(j + 1, n - 1)]
        first = second = np.float32(0)
        for k in range(d):
            first += hidden[k] * outputs[a, k]
            second += hidden[k] * outputs[b, k]
        gains[j] = (labels[j] - _sigmoid(first, table)) * learning_rate
        finite &= first - first == 0
        if j + 1 < n:
            gains[j + 1] = (labels[j + 1] - _sigmoid(second, table)) * learning_rate
            finite &= second - second == 0
        j += 2
    for k in range(d):
        error[k] = 0
    j = 0
    while j < n:
        a, g = output_rows[j], gains[j]
        if j + 1 < n and a != output_rows[j + 1]:
            b, h = output_rows[j + 1], gains[j + 1]
            for k in range(d):
                x, u, v = hidden[k], outputs[a, k], outputs[b, k]
                error[k] += g * u + h * v
                outputs[a, k] = u + g * x
                outputs[b, k] = v + h * x
            j += 2
        else:
            for k in range(d):
                error[k] += g * outputs[a, k]
                outputs[a, k] += g * hidden[k]
            j += 1
    return finite


@_fast
@no_type_check
def _loss(hidden, outputs, output_rows, labels, n):
    """Return what the answers cost: minus the sum of their log-probabilities."""
    total = 0.0
    for j in range(n):
        row = output_rows[j]
        score = np.float32(0)
        for k in range(len(hidden)):
            score += hidden[k] * outputs[row, k]
        wrong = -score if labels[j] == _ONE else score
        total += max(wrong, 0.0) + math.log1p(math.exp(-abs(wrong)))
    return total


@_inline
@no_type_check
def _draw_window(state, window, shrink):
    """Return how far a window reaches, and the state."""
    if not shrink:
        return window, state
    state += _GAMMA
    return window - np.int64(((splitmix64(state) >> _HALF) * np.uint64(window)) >> _HALF), state


@_inline
@no_type_check
def _add(offsets, pieces, row, vector, scale, inputs) -> None:
    """Add a vector to all rows of a word."""
    for i in range(offsets[row], offsets[row + 1]):
        at = pieces[i]
        for k in range(len(vector)):
            inputs[at, k] += scale * vector[k]


@_inline
@no_type_check
def _sum(offsets, pieces, row, inputs, vector) -> None:
    """Add all rows of a word to a vector."""
    for i in range(offsets[row], offsets[row + 1]):
        at = pieces[i]
        for k in range(len(vector)):
            vector[k] += inputs[at, k]


@_inline
@no_type_check
def _scale(vector, factor) -> None:
    for k in range(len(vector)):
        vector[k] *= factor


@_inline
@no_type_check
def _sum_context(rows, low, center, high, offsets, pieces, inputs, vector):
    """Write the sum of all rows of a word's neighbors; return how many these are."""
    n = 0
    for k in range(len(vector)):
        vector[k] = 0
    for other in range(low, high):
        if other != center:
            _sum(offsets, pieces, rows[other], inputs, vector)
            n += offsets[rows[other] + 1] - offsets[rows[other]]
    return n


@_fast
@no_type_check
def skipgram(
    rows, bounds, offsets_in_corpus, n_sentences, row_parts, inputs, outputs, tree, alias_entries,
    n_negatives, window, shrink, learning_rates, key, table,
):  # fmt: skip
    """Learn from sentences: each word's vector is asked for each of its neighbors.

    The vector of a word with n-grams is the mean of its rows. It is kept aside while its neighbors
    are asked for, and moves after each; the rows get the sum of all steps at the end. That is what
    moving all rows after each would give, because no row is an output.

    `rows`, `bounds` and `offsets_in_corpus` are as of `gather`, `row_parts` of `ngrams` and
    `row_shares`, `tree` as of `huffman_paths` (for 0 negatives), `alias_entries` as of
    `alias_table`. The rate at a place is `learning_rates`: (first, what it loses a place, the
    least). `table` is of the probabilities of scores.

    Returns:
        (loss, pairs that it is of, pairs, whether all is finite).
    """
    offsets, pieces, shares = row_parts
    paths, nodes, codes = tree
    d = inputs.shape[1]
    hidden, error = np.empty(d, np.float32), np.empty(d, np.float32)
    before = np.empty(d, np.float32)
    room = max(n_negatives + 1, _MAX_CODE_LENGTH)
    asked, answers = np.empty(room, np.int64), np.empty(room, np.float32)
    gains = np.empty(room, np.float32)
    loss, n_loss, n_pairs, finite = 0.0, 0, 0, True
    for s in range(n_sentences):
        rate = np.float32(
            max(learning_rates[0] - learning_rates[1] * offsets_in_corpus[s], learning_rates[2])
        )
        state = splitmix64(key ^ splitmix64(np.uint64(offsets_in_corpus[s])))
        begin, end = bounds[s], bounds[s + 1]
        for center in range(begin, end):
            reach, state = _draw_window(state, window, shrink)
            low, high = max(begin, center - reach), min(end, center + reach + 1)
            if high - low < 2:
                continue
            row = rows[center]
            n_pieces = np.float32(offsets[row + 1] - offsets[row])
            for k in range(d):
                hidden[k] = 0
            _sum(offsets, pieces, row, inputs, hidden)
            for k in range(d):
                hidden[k] /= n_pieces
                before[k] = 0
            share = shares[row]
            for other in range(low, high):
                if other == center:
                    continue
                n, state = _output_targets(
                    rows[other],
                    state,
                    alias_entries,
                    n_negatives,
                    paths,
                    nodes,
                    codes,
                    asked,
                    answers,
                )
                if center % _LOSS_EVERY == 0:
                    loss += _loss(hidden, outputs, asked, answers, n)
                    n_loss += 1
                finite &= _update(hidden, error, outputs, asked, answers, n, rate, table, gains)
                for k in range(d):
                    before[k] += error[k]
                    hidden[k] += share * error[k]
            n_pairs += high - low - 1
            _add(offsets, pieces, row, before, _ONE, inputs)
    return loss, n_loss, n_pairs, finite


@_fast
@no_type_check
def cbow(
    rows, bounds, offsets_in_corpus, n_sentences, row_parts, inputs, outputs, tree, alias_entries,
    n_negatives, window, shrink, learning_rates, key, table, mean, divide_gradient,
):  # fmt: skip
    """Learn from sentences: the vectors of each word's neighbors, together, are asked for the word.

    All is as of `skipgram`. The vector is the mean of the neighbors' rows, or their sum. Each row
    gets all of the mean's step, or, `divide_gradient`, its part.

    Returns:
        As of `skipgram`; a pair is a word and all its neighbors.
    """
    offsets, pieces, _ = row_parts
    paths, nodes, codes = tree
    d = inputs.shape[1]
    hidden, error = np.empty(d, np.float32), np.empty(d, np.float32)
    room = max(n_negatives + 1, _MAX_CODE_LENGTH)
    asked, answers = np.empty(room, np.int64), np.empty(room, np.float32)
    gains = np.empty(room, np.float32)
    loss, n_loss, n_pairs, finite = 0.0, 0, 0, True
    for s in range(n_sentences):
        rate = np.float32(
            max(learning_rates[0] - learning_rates[1] * offsets_in_corpus[s], learning_rates[2])
        )
        state = splitmix64(key ^ splitmix64(np.uint64(offsets_in_corpus[s])))
        begin, end = bounds[s], bounds[s + 1]
        for center in range(begin, end):
            reach, state = _draw_window(state, window, shrink)
            low, high = max(begin, center - reach), min(end, center + reach + 1)
            if high - low < 2:
                continue
            n_pieces = _sum_context(rows, low, center, high, offsets, pieces, inputs, hidden)
            part = _ONE / np.float32(n_pieces)
            _scale(hidden, part if mean else _ONE)
            n, state = _output_targets(
                rows[center], state, alias_entries, n_negatives, paths, nodes, codes, asked, answers
            )
            if center % _LOSS_EVERY == 0:
                loss += _loss(hidden, outputs, asked, answers, n)
                n_loss += 1
            finite &= _update(hidden, error, outputs, asked, answers, n, rate, table, gains)
            scale = part if mean and divide_gradient else _ONE
            for other in range(low, high):
                if other != center:
                    _add(offsets, pieces, rows[other], error, scale, inputs)
            n_pairs += 1
    return loss, n_loss, n_pairs, finite


@_compiled
@no_type_check
def _count(keys, values, used, row, column, weight):
    """Add to a pair in the open-addressed table; return how many it has."""
    mask = np.uint64(len(keys) - 1)
    key = ((np.uint64(row) << _HALF) | np.uint64(column)) + np.uint64(1)  # 0: nothing is there
    at = splitmix64(key) & mask
    while keys[np.int64(at)] != 0 and keys[np.int64(at)] != key:
        at = (at + np.uint64(1)) & mask
    if keys[np.int64(at)] == 0:
        keys[np.int64(at)] = key
        used += 1
    values[np.int64(at)] += weight
    return used


@_compiled
@no_type_check
def count_pairs(
    rows, bounds, n_sentences, weights, symmetric, limits, starts, dense, keys, values, used
):
    """Add the weights of all words and those before them to the dense block and the table.

    `rows` and `bounds` are as of `gather`; `weights` of a neighbor at distance 1, 2, ... Columns
    below its limit are, of each row, in the dense block, from its start on. The table has
    (row << 32 | column) + 1 as keys; `used` of them are taken, which is returned.
    """
    window = len(weights)
    for s in range(n_sentences):
        begin = bounds[s]
        for center in range(begin, bounds[s + 1]):
            row = rows[center]
            for other in range(max(begin, center - window), center):
                column, weight = rows[other], weights[center - other - 1]
                if column < limits[row]:
                    dense[starts[row] + column] += weight
                    if symmetric:
                        dense[starts[column] + row] += weight
                else:
                    used = _count(keys, values, used, row, column, weight)
                    if symmetric:
                        used = _count(keys, values, used, column, row, weight)
    return used


@_compiled
@no_type_check
def dense_pairs(limits, starts, dense, keys, values):
    """Write what is in the dense block as sorted pairs; return how many."""
    n = 0
    for row in range(len(limits)):
        for column in range(limits[row]):
            weight = dense[starts[row] + column]
            if weight != 0:
                keys[n] = (np.uint64(row) << _HALF) | np.uint64(column)
                values[n] = weight
                n += 1
    return n


@_compiled
@no_type_check
def read_blocks(offsets, columns, values, begins, ends, rows_out, columns_out, values_out) -> None:
    """Copy blocks of pairs (begin, end) of a matrix in rows to triples, one after another."""
    at = 0
    for block in range(len(begins)):
        row = np.searchsorted(offsets, begins[block], "right") - 1
        for i in range(begins[block], ends[block]):
            while offsets[row + 1] <= i:
                row += 1
            rows_out[at], columns_out[at], values_out[at] = row, columns[i], values[i]
            at += 1


@_fast
@no_type_check
def glove(
    order, rows, columns, values, words, contexts, word_biases, context_biases, squares_words,
    squares_contexts, squares_word_biases, squares_context_biases, x_max, power, learning_rate,
):  # fmt: skip
    """Learn the logarithms of counts, pair by pair (Pennington et al. 2014).

    AdaGrad's sums are of steps, which have the rate in them, and begin at 1 (released code).

    Returns:
        (loss, whether all is finite).
    """
    d = words.shape[1]
    total, finite = 0.0, True
    for i in order:
        row, column, x = rows[i], columns[i], values[i]
        score = np.float32(0)
        for k in range(d):
            score += words[row, k] * contexts[column, k]
        gap = score + word_biases[row] + context_biases[column] - np.float32(math.log(x))
        weight = np.float32(min((x / x_max) ** power, 1.0))
        finite &= gap - gap == 0
        total += 0.5 * weight * gap * gap
        step = np.float32(weight * gap * learning_rate)
        for k in range(d):
            p, q = step * contexts[column, k], step * words[row, k]
            words[row, k] -= p / np.sqrt(squares_words[row, k])
            contexts[column, k] -= q / np.sqrt(squares_contexts[column, k])
            squares_words[row, k] += p * p
            squares_contexts[column, k] += q * q
        word_biases[row] -= step / np.sqrt(squares_word_biases[row])
        context_biases[column] -= step / np.sqrt(squares_context_biases[column])
        squares_word_biases[row] += step * step
        squares_context_biases[column] += step * step
    return total, finite
