"""Convolutions over the rows of sequences; `ends` has for each row where its sequence ends."""

CONTRACTED = ("add_product",)


def add_product(x, y, out):
    for j in range(out.size):
        out[j] += x[j] * y[j]


def lookahead(x, weights, ends, out):
    """`out` holds zeros."""
    for i in range(x.shape[0]):
        for place in range(min(weights.shape[0], ends[i] - i)):
            add_product(x[i + place], weights[place], out[i])


def lookahead_grad(x, weights, d_out, ends, d_x, d_weights):
    """`d_x` and `d_weights` hold zeros; a part of `d_weights` for each of a few runs of rows."""
    parts, rows = d_weights.shape[0], x.shape[0]
    for i in range(rows):
        part = d_weights[i * parts // rows]
        for place in range(min(weights.shape[0], ends[i] - i)):
            add_product(d_out[i], weights[place], d_x[i + place])
            add_product(d_out[i], x[i + place], part[place])
