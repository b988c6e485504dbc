"""Sums over the paths of conditional random fields, and their best paths, sequence by sequence.

A sum over tags is the innermost but one loop, so that the innermost one is vectorized. `starts` and `lengths` say which
rows a sequence has.
"""

import numpy as np

from minigraph.kernels.jit.loops.exponentials import exp
from minigraph.kernels.jit.loops.functions64 import log

CONTRACTED = ("add_scaled",)


def add_scaled(x, factor, out):
    for j in range(out.size):
        out[j] += factor * x[j]


def copy(x, out):
    # An element at a time: numba takes two seconds longer to compile an assignment of arrays, whose shapes may differ.
    for j in range(out.size):
        out[j] = x[j]


def shared(x):
    """Divide elements by their sum, and return the sum."""
    total = 0.0
    for j in range(x.size):
        total += x[j]
    for j in range(x.size):
        x[j] /= total
    return total


def losses(emission, transition, weights, top, tags, starts, lengths, alpha, exps, out):
    """The negative logarithm of the share of each path `tags` among all; `exps` is given for all rows.

    `weights` are the exponentials of `transition` less its largest element `top`.
    """
    now, before, own = np.empty(weights.shape[1]), np.empty(weights.shape[1]), np.empty(weights.shape[1])
    for row in range(emission.shape[0]):
        exponentials(emission[row], own)
        for tag in range(own.size):
            exps[row, tag] = own[tag]
    for sequence in range(lengths.size):
        log_sum = score = 0.0
        for step in range(lengths[sequence]):
            row = starts[sequence] + step
            peak = exponentials(emission[row], own)
            if step:
                now[:] = 0
                for tag in range(now.size):
                    add_scaled(weights[2 + tag], before[tag], now)
                score += transition[2 + tags[row - 1], tags[row]]
            else:
                copy(weights[0], now)
                score += transition[0, tags[row]]
            for tag in range(now.size):
                now[tag] *= own[tag]
            log_sum += log(shared(now)) + peak + top
            for tag in range(now.size):
                before[tag] = now[tag]
                alpha[row, tag] = now[tag]
            score += emission[row, tags[row]]
        if lengths[sequence]:
            ends = 0.0
            for tag in range(now.size):
                ends += now[tag] * weights[1, tag]
            log_sum += log(ends) + top
            score += transition[1, tags[starts[sequence] + lengths[sequence] - 1]]
        out[sequence] = log_sum - score


def exponentials(x, out):
    """``exp(x - peak)``, and the peak, which is the largest element."""
    peak = np.float64(x[0])
    for j in range(1, x.size):
        peak = peak if peak > x[j] else np.float64(x[j])
    for j in range(x.size):
        out[j] = exp(np.float64(x[j]) - peak)
    return peak


def add_pairs(before, beta, after, factor, pairs):
    """Add the share of each pair of tags among all, times `factor` and without the weight of the pair."""
    total = 0.0
    for tag in range(beta.size):
        total += before[tag] * beta[tag]
    for tag in range(beta.size):
        add_scaled(after, factor * before[tag] / total, pairs[tag])


def gradients(weights, back, tags, starts, lengths, alpha, exps, d, d_emission, d_weights):
    """Gradients of the losses; `d_weights`, those of transition, holds zeros.

    `back` are the weights of pairs, later tags first.
    """
    count = weights.shape[1]
    beta, after, marginal = np.empty(count), np.empty(count), np.empty(count)
    pairs = np.zeros((count, count))
    for sequence in range(lengths.size):
        start, own = starts[sequence], d[sequence]
        for row in range(start + lengths[sequence] - 1, start - 1, -1):
            is_last = row == start + lengths[sequence] - 1
            if is_last:
                copy(weights[1], beta)
            else:
                # The sums over the paths that go on with a tag, its own exponential among their factors.
                for tag in range(count):
                    after[tag] = beta[tag] * exps[row + 1, tag]
                beta[:] = 0
                for tag in range(count):
                    add_scaled(back[tag], after[tag], beta)
                add_pairs(alpha[row], beta, after, own, pairs)
                d_weights[2 + tags[row], tags[row + 1]] -= own
            shared(beta)
            for tag in range(count):
                marginal[tag] = alpha[row, tag] * beta[tag]
            shared(marginal)
            marginal[tags[row]] -= 1
            for tag in range(count):
                marginal[tag] *= own
                d_emission[row, tag] = marginal[tag]
            if row == start:
                add_scaled(marginal, 1.0, d_weights[0])
            if is_last:
                add_scaled(marginal, 1.0, d_weights[1])
    for tag in range(count):
        for j in range(count):
            d_weights[2 + tag, j] += weights[2 + tag, j] * pairs[tag, j]


def best_paths(emission, transition, lengths, best, path):
    """`best` is to work in: the highest score of the paths that end in a tag, at each step."""
    for sequence in range(lengths.size):
        count = lengths[sequence]
        for step in range(count):
            now, own = best[step], emission[sequence, step]
            if step:
                before, reach = best[step - 1], transition[2]
                first = before[0]
                for j in range(now.size):
                    now[j] = first + reach[j]
                for tag in range(1, now.size):
                    reach = transition[2 + tag]
                    for j in range(now.size):
                        score = before[tag] + reach[j]
                        now[j] = score if score > now[j] else now[j]
            else:
                copy(transition[0], now)
            for tag in range(now.size):
                now[tag] += own[tag]
        for step in range(count - 1, -1, -1):
            # Sums in place: the step was read by the one after it already.
            total, found = best[step], 0
            for tag in range(total.size):
                total[tag] += transition[1, tag] if step == count - 1 else transition[2 + tag, path[sequence, step + 1]]
                if total[tag] > total[found]:
                    found = tag
            path[sequence, step] = found
