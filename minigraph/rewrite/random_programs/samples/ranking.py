"""Rows for losses of scores that should be in order."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import distinct, floats, ints, sample

_SIGNS = np.array([[1.0], [-1.0], [1.0]])

SAMPLES = [
    *(
        sample("rank_loss", Label=label, Left=3 * floats(*label.shape), Right=floats(*label.shape))
        for label in (np.array([[1.0], [0.0], [0.5]]), np.ones((1, 1)), np.ones((0, 1)))
    ),
    *(
        sample("margin_rank_loss", Label=label, X1=distinct(*label.shape), X2=floats(*label.shape), margin=margin)
        for label, margin in ((_SIGNS, 0.1), (_SIGNS, 1.5), (np.ones((1, 1)), 0.0), (np.ones((0, 1)), 0.1))
    ),
    *(
        sample("bpr_loss", X=2 * floats(*x), Label=ints(0, x[-1], *x[:-1], 1))
        for x in ((4, 3), (2, 3, 5), (1, 2), (0, 3))
    ),
    *(
        sample("teacher_student_sigmoid_loss", X=2 * floats(*label.shape), Label=label, **bounds)
        for label in (np.array([[-2.0], [-1.0], [0.3], [1.4], [0.0], [1.0]]), np.ones((1, 1)), np.ones((0, 1)))
        for bounds in ({}, {"soft_max_up_bound": 30.0, "soft_max_lower_bound": -30.0})
    ),
]
