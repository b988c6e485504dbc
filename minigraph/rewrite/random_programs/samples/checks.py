"""Rows for questions about whole tensors, such as whether all elements are finite."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, sample

_SPECIAL = np.array([1.0, np.inf, np.nan, -np.inf])

SAMPLES = [
    *(sample(name, X=x) for name in ("isnan", "isinf") for x in (floats(3, 4), _SPECIAL, ints(0, 3, 4), floats(0, 2))),
    *(sample("is_empty", X=x) for x in (floats(3), floats(0, 2), ints(0, 3, 1))),
    *(sample("size", Input=x) for x in (floats(3, 4), floats(0, 2), ints(0, 3, 1))),
    *(
        sample("allclose", Input=x, Other=y, **attrs)
        for x, y in (
            (_SPECIAL, _SPECIAL), (np.ones((2, 3)), np.ones(3)), (np.ones(2), np.array([1.0, 1.25])),
            (floats(0, 2), floats(0, 2)), (ints(0, 3, 4), ints(0, 3, 4)),
        )
        for attrs in ({}, {"equal_nan": True}, {"atol": 0.5}, {"rtol": 0.5})
    ),
]  # fmt: skip
