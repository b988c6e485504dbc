"""Functions of one number of any type; `maximum`, `minimum` and `sign` keep NaN."""

import numpy as np


def where(condition, x, y):
    return x if condition else y


def maximum(x, y):
    return x if x >= y or x != x else y


def minimum(x, y):
    return x if x <= y or x != x else y


def absolute(x):
    return abs(x)


def sign(x):
    return np.sign(x)


def floor(x):
    return np.floor(x)


def ceil(x):
    return np.ceil(x)


def sqrt(x):
    return np.sqrt(x)
