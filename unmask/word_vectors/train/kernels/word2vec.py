"""Training loops of skip-gram and CBOW, compiled by numba.

The loops are stateless. Random numbers are a function of a key (of seed and epoch) and the position
in the corpus, so that training can start anywhere. The loops release the GIL: several threads may
update the same rows without locks (Hogwild, Niu et al. 2011, arXiv:1106.5730).
"""

# pyright: reportMissingParameterType=false, reportUntypedFunctionDecorator=false
import math
from typing import no_type_check

import numpy as np

from unmask.word_vectors.train.kernels.words import (
    GAMMA,
    HALF,
    fast,
    inline,
    sample_row,
    splitmix64,
    sum_rows,
)

_ONE, _NONE = np.float32(1), np.float32(0)
MAX_SCORE = 6.0
"""Beyond a score of this size a probability counts as 0 or 1 (MAX_EXP of the released code)."""
SIGMOID_STEPS = 1000
"""Probabilities in the table (EXP_TABLE_SIZE of the released code)."""
_LIMIT, _PER_SCORE = np.float32(MAX_SCORE), np.float32(SIGMOID_STEPS / (2 * MAX_SCORE))
_LOSS_EVERY = 32  # the loss is estimated on one center in this many
_MAX_CODE_LENGTH = (
    96  # no path of the tree is longer: counts of 64 bits end before the 96th Fibonacci number
)


@inline
@no_type_check
def _output_targets(
    row, state, alias_entries, n_negatives, offsets, nodes, codes, output_rows, labels
):
    """Write the output rows and binary labels of a target word; return (their number, state)."""
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
        state += GAMMA
        other = sample_row(splitmix64(state), alias_entries)
        if other != row:
            output_rows[n], labels[n] = other, _NONE
            n += 1
    return n, state


@inline
@no_type_check
def _sigmoid(score, table):
    if score >= _LIMIT:
        return _ONE
    if score <= -_LIMIT:
        return _NONE
    if score == score:
        return table[np.int64((score + _LIMIT) * _PER_SCORE)]
    return score


@inline
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


@fast
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


@inline
@no_type_check
def _draw_window(state, window, shrink):
    """Return how far a window reaches, and the state."""
    if not shrink:
        return window, state
    state += GAMMA
    return window - np.int64(((splitmix64(state) >> HALF) * np.uint64(window)) >> HALF), state


@inline
@no_type_check
def _add(offsets, pieces, row, vector, scale, inputs) -> None:
    """Add a vector to all rows of a word."""
    for i in range(offsets[row], offsets[row + 1]):
        at = pieces[i]
        for k in range(len(vector)):
            inputs[at, k] += scale * vector[k]


@inline
@no_type_check
def _scale(vector, factor) -> None:
    for k in range(len(vector)):
        vector[k] *= factor


@inline
@no_type_check
def _sum_context(rows, low, center, high, offsets, pieces, inputs, vector):
    """Write the sum of all rows of a word's neighbors; return how many these are."""
    n = 0
    for k in range(len(vector)):
        vector[k] = 0
    for other in range(low, high):
        if other != center:
            sum_rows(offsets, pieces, rows[other], inputs, vector)
            n += offsets[rows[other] + 1] - offsets[rows[other]]
    return n


@fast
@no_type_check
def skipgram(
    rows, bounds, offsets_in_corpus, n_sentences, row_parts, inputs, outputs, tree, alias_entries,
    n_negatives, window, shrink, learning_rates, key, table,
):  # fmt: skip
    """Train on sentences with skip-gram: predict each neighbor from each word.

    The vector of a word with n-grams is the mean of its rows. The mean is updated after each
    neighbor, and the rows receive the sum of all updates at the end. The result equals updating all
    rows after each neighbor, as no input row is an output row.

    `rows`, `bounds` and `offsets_in_corpus` are from `subsample`, `row_parts` from `ngram_rows` and
    `row_shares`, `tree` from `huffman_paths` (if `n_negatives` is 0), `alias_entries` from
    `alias_table`. `learning_rates` are (initial, decrease per token, minimum). `table` is the
    sigmoid table.

    Returns:
        (sum of sampled losses, number of sampled losses, number of pairs, whether all is finite).
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
            sum_rows(offsets, pieces, row, inputs, hidden)
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


@fast
@no_type_check
def cbow(
    rows, bounds, offsets_in_corpus, n_sentences, row_parts, inputs, outputs, tree, alias_entries,
    n_negatives, window, shrink, learning_rates, key, table, mean, divide_gradient,
):  # fmt: skip
    """Train on sentences with CBOW: predict each word from the combined vectors of its neighbors.

    Arguments are those of `skipgram`. The input is the mean of the neighbors' rows, or their sum.
    Each row receives the whole update of the mean, or with `divide_gradient` its share.

    Returns:
        As `skipgram`; a pair is a word with all its neighbors.
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
