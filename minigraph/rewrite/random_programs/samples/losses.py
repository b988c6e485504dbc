"""Rows for losses of probabilities."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, probabilities, sample

_TARGET = np.array([[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]])

SAMPLES = [
    *(
        sample("kldiv_loss", X=floats(*target.shape), Target=target, reduction=reduction)
        for target in (_TARGET, probabilities(2, 2, 3), np.ones(1), np.ones((0, 2)))
        for reduction in ("none", "mean", "sum", "batchmean")
    ),
    *(
        sample("label_smooth", X=x, epsilon=epsilon, **prior)
        for x in (_TARGET, np.ones((2, 1, 3)), np.ones((0, 3)))
        for epsilon in (0.0, 0.25, 1.0)
        for prior in ({}, {"PriorDist": probabilities(1, 3)})
    ),
]
