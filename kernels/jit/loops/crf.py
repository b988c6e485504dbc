"""Sums over the paths of conditional random fields, and their best paths, sequence by sequence.

A sum over tags is the innermost but one loop, so that the innermost one is vectorized.
"""

CONTRACTED = ("add_scaled",)


def add_scaled(x, factor, out):
    for j in range(out.size):
        out[j] += factor * x[j]


def shared(x):
    """Divide elements by their sum, and return the sum."""
    total = 0.0
    for j in range(x.size):
        total += x[j]
    for j in range(x.size):
        x[j] /= total
    return total


def forward(exps, weights, lengths, alpha, totals):
    """`alpha` holds zeros and `totals` ones where a sequence has ended."""
    for sequence in range(lengths.size):
        for step in range(lengths[sequence]):
            now, own = alpha[sequence, step], exps[sequence, step]
            if step:
                before = alpha[sequence, step - 1]
                for tag in range(now.size):
                    add_scaled(weights[2 + tag], before[tag], now)
            else:
                now[:] = weights[0]
            for tag in range(now.size):
                now[tag] *= own[tag]
            totals[sequence, step] = shared(now)


def backward(exps, weights, back, lengths, beta):
    """`beta` holds zeros, and `back` the weights of pairs, later tags first."""
    for sequence in range(lengths.size):
        for step in range(lengths[sequence] - 1, -1, -1):
            now = beta[sequence, step]
            if step + 1 < lengths[sequence]:
                for tag in range(now.size):
                    add_scaled(back[tag], beta[sequence, step + 1, tag] * exps[sequence, step + 1, tag], now)
            else:
                now[:] = weights[1]
            shared(now)


def best_paths(emission, transition, lengths, best, path):
    """`best` is to work in: the highest score of the paths that end in a tag, at each step."""
    for sequence in range(lengths.size):
        count = lengths[sequence]
        for step in range(count):
            now, own = best[step], emission[sequence, step]
            if step:
                before = best[step - 1]
                now[:] = before[0] + transition[2]
                for tag in range(1, now.size):
                    reach = transition[2 + tag]
                    for j in range(now.size):
                        score = before[tag] + reach[j]
                        now[j] = score if score > now[j] else now[j]
            else:
                now[:] = transition[0]
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
