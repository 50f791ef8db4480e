"""Loops over pairs of words, compiled by numba: counting them, and GloVe."""

# pyright: reportMissingParameterType=false, reportUntypedFunctionDecorator=false
import math
from typing import no_type_check

import numpy as np

from unmask.word_vectors.train.kernels.words import HALF, compiled, fast, splitmix64


@compiled
@no_type_check
def _count(keys, values, used, row, column, weight):
    """Add to a pair in the open-addressed table; return how many it has."""
    mask = np.uint64(len(keys) - 1)
    key = ((np.uint64(row) << HALF) | np.uint64(column)) + np.uint64(1)  # 0: empty slot
    at = splitmix64(key) & mask
    while keys[np.int64(at)] != 0 and keys[np.int64(at)] != key:
        at = (at + np.uint64(1)) & mask
    if keys[np.int64(at)] == 0:
        keys[np.int64(at)] = key
        used += 1
    values[np.int64(at)] += weight
    return used


@compiled
@no_type_check
def count_pairs(
    rows, bounds, n_sentences, weights, symmetric, limits, starts, dense, keys, values, used
):
    """Add the weights of all word pairs to the dense block and the hash table.

    `rows` and `bounds` are those of `subsample`; `weights` those of distances 1, 2, ... Each row
    has its first columns, up to its limit, in the dense block. The keys of the table are (row << 32
    | column) + 1. Returns the number of used slots, which is passed as `used`.
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


@compiled
@no_type_check
def dense_pairs(limits, starts, dense, keys, values):
    """Write what is in the dense block as sorted pairs; return how many."""
    n = 0
    for row in range(len(limits)):
        for column in range(limits[row]):
            weight = dense[starts[row] + column]
            if weight != 0:
                keys[n] = (np.uint64(row) << HALF) | np.uint64(column)
                values[n] = weight
                n += 1
    return n


@compiled
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


@fast
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
