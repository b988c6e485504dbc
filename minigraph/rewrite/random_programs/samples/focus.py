"""Rows for parts that are chosen at random or by their values, and for centers of classes."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import distinct, floats, ints, sample

SAMPLES = [
    *(
        sample("random_crop", X=x, Seed=np.array([seed]), shape=shape)
        for x, shape in [
            (floats(3, 5, 6), [2, 3]), (ints(0, 9, 2, 3, 4), [4]), (floats(1, 1), [1]), (floats(0, 3), [2]),
        ]
        for seed in (7, -3)
    ),
    *(
        sample("similarity_focus", X=distinct(*x), axis=axis, indexes=indexes)
        for x, axis, indexes in [
            ((2, 3, 2, 4), 1, [0, 2]), ((2, 3, 2, 4), 2, [1]), ((2, 3, 2, 4), 3, [0, 3]), ((1, 1, 1, 1), 1, [0]),
            ((0, 2, 2, 2), 1, [0]),
        ]
    ),
    *(
        sample("center_loss", X=floats(*x), Label=label, Centers=floats(4, x[1]), CenterUpdateRate=np.array([0.3]),
               cluster_num=4, need_update=update, wrt="X")
        for x, label in [((3, 2), np.array([[1], [3], [1]])), ((2, 3), np.array([0, 2])), ((1, 1), np.array([[0]])),
                         ((0, 2), np.zeros((0, 1), "int64"))]
        for update in (False, True)
    ),
]  # fmt: skip
