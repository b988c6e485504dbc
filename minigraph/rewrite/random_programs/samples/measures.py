"""Rows for metrics of predictions, and for positions of the largest elements of windows."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import distinct, ints, probabilities, sample

_COUNTS = {"StatPos": ints(0, 5, 1, 8), "StatNeg": ints(0, 5, 1, 8)}
_STEPS = {"StatPos": ints(0, 5, 25), "StatNeg": ints(0, 5, 25)}

SAMPLES = [
    *(
        sample("auc", Predict=probabilities(rows, 2), Label=ints(0, 2, rows, 1), num_thresholds=7, **counts)
        for rows in (6, 1, 0)
        for counts in (
            {**_COUNTS, "slide_steps": 0},
            {"StatPos": ints(0, 5, 9), "StatNeg": ints(0, 5, 9), "slide_steps": 0},
            {**_STEPS, "slide_steps": 2},
        )
    ),
    sample("auc", Predict=np.array([[1.0], [0.0]]), Label=np.array([[1], [0]]), num_thresholds=7, slide_steps=0,
           StatPos=np.zeros((1, 8), "int64"), StatNeg=np.zeros((1, 8), "int64")),
    *(
        sample("max_pool2d_with_index", X=distinct(*shape), **attrs)
        for shape, attrs in (
            ((2, 3, 5, 4), {"ksize": [2, 3], "adaptive": True}), ((1, 2, 4, 4), {"ksize": [2, 2], "strides": [2, 2]}),
            ((1, 1, 5, 4), {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 1]}),
            ((2, 1, 3, 3), {"ksize": [1, 1], "global_pooling": True}), ((0, 1, 3, 3), {"ksize": [2, 2]}),
        )
    ),
]  # fmt: skip
