"""Batches of products of a few rows with a few others: ``out[b, i, j] = alpha * sum(x[b, i] * y[b, j])``."""

REASSOCIATED = ("dot",)
CONTRACTED = ("row_products_grad",)


def dot(x, y):
    total = x.dtype.type(0)
    for k in range(x.size):
        total += x[k] * y[k]
    return total


def row_products(x, y, alpha, out, begin, end):
    for b in range(begin, end):
        for i in range(x.shape[1]):
            for j in range(y.shape[1]):
                out[b, i, j] = alpha * dot(x[b, i], y[b, j])


def row_products_grad(x, y, alpha, d, d_x, d_y, begin, end):
    zero = x.dtype.type(0)  # 0 + -0.0 is 0.0, as in a product of matrices
    for b in range(begin, end):
        for i in range(x.shape[1]):
            for j in range(y.shape[1]):
                factor = alpha * d[b, i, j]
                if j:
                    for k in range(x.shape[2]):
                        d_x[b, i, k] += factor * y[b, j, k]
                else:
                    for k in range(x.shape[2]):
                        d_x[b, i, k] = zero + factor * y[b, j, k]
                if i:
                    for k in range(x.shape[2]):
                        d_y[b, j, k] += factor * x[b, i, k]
                else:
                    for k in range(x.shape[2]):
                        d_y[b, j, k] = zero + factor * x[b, i, k]
