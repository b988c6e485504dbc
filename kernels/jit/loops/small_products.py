"""Batches of products of a few rows with a few others: ``out[b, i, j] = alpha * sum(x[b, i] * y[b, j])``."""

REASSOCIATED = ("dot",)
CONTRACTED = ("add_both",)


def dot(x, y):
    total = x.dtype.type(0)
    for k in range(x.size):
        total += x[k] * y[k]
    return total


def add_both(factor, x, y, d_x, d_y):
    for k in range(x.size):
        d_x[k] += factor * y[k]
        d_y[k] += factor * x[k]


def row_products(x, y, alpha, out, begin, end):
    for b in range(begin, end):
        for i in range(x.shape[1]):
            for j in range(y.shape[1]):
                out[b, i, j] = alpha * dot(x[b, i], y[b, j])


def row_products_grad(x, y, alpha, d, d_x, d_y, begin, end):
    for b in range(begin, end):
        d_x[b] = 0
        d_y[b] = 0
        for i in range(x.shape[1]):
            for j in range(y.shape[1]):
                add_both(alpha * d[b, i, j], x[b, i], y[b, j], d_x[b, i], d_y[b, j])
