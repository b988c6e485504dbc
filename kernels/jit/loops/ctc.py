"""Sums over the paths of connectionist temporal classification, sequence by sequence, in float64."""

import numpy as np


def divided(x, count, least):
    """Divide the first `count` elements by their sum, or by `least` if that is larger; return the divisor."""
    total = 0.0
    for state in range(count):
        total += x[state]
    total = max(total, least)
    factor = 1 / total
    for state in range(count):
        x[state] *= factor
    return total


def come_from(before, skips, states, out):
    """Write for each state what paths reach it, from those before a step; a blank between labels may be left out."""
    out[0] = before[0]
    if states > 1:
        out[1] = before[1] + before[0]
    for state in range(2, states):
        out[state] = before[state] + before[state - 1] + skips[state] * before[state - 2]


def go_to(after, skips, states, out):
    """Write for each state what paths leave it, from those after a step."""
    for state in range(states - 2):
        out[state] = after[state] + after[state + 1] + skips[state + 2] * after[state + 2]
    if states > 1:
        out[states - 2] = after[states - 2] + after[states - 1]
    out[states - 1] = after[states - 1]


def path_shares(of_states, skips, ends, lengths, least, log_totals, share):
    """Write what `_scaled_sums` returns; return whether logarithms are needed.

    `skips` and `ends` are 0 or 1. `share` is to hold zeros where a sequence has ended.
    """
    states = skips.shape[1]
    backward, after = np.empty(states), np.empty(states)
    for sequence in range(lengths.size):
        count, log_total = lengths[sequence], 0.0
        skip, end = skips[sequence], ends[sequence]
        for step in range(count):
            now, own = share[step, sequence], of_states[step, sequence]
            if step:
                come_from(share[step - 1, sequence], skip, states, now)
            else:
                now[:2] = 1
            for state in range(states):
                now[state] *= own[state]
            log_total += np.log(divided(now, states, least))
        for step in range(count - 1, -1, -1):
            now = share[step, sequence]
            if step == count - 1:
                at_end = 0.0
                for state in range(states):
                    backward[state] = end[state]
                    at_end += now[state] * end[state]
                log_total += np.log(at_end)
            else:
                own = of_states[step + 1, sequence]
                for state in range(states):
                    after[state] = backward[state] * own[state]
                go_to(after, skip, states, backward)
            divided(backward, states, least)
            mass = 0.0
            for state in range(states):
                now[state] *= backward[state]
                mass += now[state]
            if not mass >= least:
                return True
            for state in range(states):
                now[state] /= mass
        log_totals[sequence] = log_total
    return False
