"""Distances of pairs of sequences."""


def edit_distances(a, b, a_counts, b_counts, row, result):
    """Write Levenshtein distances of pairs of sequences.

    `row` is working memory: the distances of the tokens of `a` so far to the first j tokens of `b`.
    """
    for pair in range(result.size):
        count = b_counts[pair]
        for j in range(count + 1):
            row[j] = j
        for i in range(a_counts[pair]):
            token, before, left = a[pair, i], row[0], i + 1
            row[0] = left
            for j in range(count):
                least = before + (token != b[pair, j])
                before = row[j + 1]
                least = min(least, min(before, left) + 1)
                row[j + 1] = left = least
        result[pair] = row[count]
