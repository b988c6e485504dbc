"""Rows for losses of probabilities and of their logarithms."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, positive, probabilities, sample

SAMPLES = [
    *(
        sample("bce_loss", X=x, Label=label)
        for x, label in (
            (probabilities(3, 4), np.array([[0.0, 1.0, 0.5, 0.0]] * 3)), (np.array([0.25]), np.array([1.0])),
            (floats(0, 2), floats(0, 2)),
        )
    ),
    *(
        sample("nll_loss", X=floats(*shape), Label=ints(0, shape[1], shape[0], *shape[2:]), reduction=how, **given)
        for shape in ((5, 3), (2, 3, 2, 2), (1, 1))
        for how in ("none", "mean", "sum")
        for given in ({}, {"Weight": positive(shape[1]), "ignore_index": 0})
    ),
    sample("nll_loss", X=floats(0, 3), Label=ints(0, 3, 0)),
]  # fmt: skip
