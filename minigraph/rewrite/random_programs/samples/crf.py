"""Rows for conditional random fields."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, sample

_SIZES = [
    ((3, 5, 4), [3, 0, 5]),
    ((1, 1, 1), [1]),
    ((2, 4, 1), [4, 2]),
    ((2, 3, 5), [3, 3]),
    ((0, 3, 2), []),
    ((1, 4, 2), [0]),
]


def _chain(op, shape, lengths, **more):
    inputs = {"Emission": floats(*shape), "Transition": floats(shape[2] + 2, shape[2])}
    return sample(op, **inputs, Length=np.array(lengths, "int64"), dtypes=("float64", "float32"), **more)


SAMPLES = [
    *(_chain("linear_chain_crf", shape, n, Label=ints(0, shape[2], *shape[:2])) for shape, n in _SIZES),
    _chain("linear_chain_crf", (2, 3, 4), [[3], [2]], Label=ints(0, 4, 2, 3, 1)),
    *(_chain("crf_decoding", shape, n) for shape, n in _SIZES),
    *(_chain("crf_decoding", shape, n, Label=ints(0, shape[2], *shape[:2])) for shape, n in _SIZES),
]
