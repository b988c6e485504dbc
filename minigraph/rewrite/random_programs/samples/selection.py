"""Rows for picking along one dimension, adding where indices say, moving elements around and finding distinct ones."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, sample

SAMPLES = [
    *(
        sample("index_select", X=floats(*shape), Index=ints(0, size, count, dtype=dtype), dim=dim)
        for shape, size, count, dim in (((3, 4), 3, 5, 0), ((2, 3, 4), 4, 2, -1), ((1,), 1, 3, 0), ((3, 2), 2, 0, 1))
        for dtype in ("int32", "int64")
    ),
    sample("index_select", X=ints(0, 9, 3, 2), Index=ints(0, 3, 4)),
    *(
        sample("index_sample", X=floats(*shape), Index=ints(0, shape[1], shape[0], count, dtype=dtype))
        for shape, count in (((3, 4), 2), ((2, 1), 3), ((0, 2), 2), ((2, 3), 0))
        for dtype in ("int32", "int64")
    ),
    *(
        sample("multiplex", Ids=ints(0, 3, shape[0], 1, dtype="int32"), X=[floats(*shape) for _ in range(3)])
        for shape in ((4, 2), (3, 1), (2, 2, 2), (0, 3))
    ),
    *(
        sample("scatter_nd_add", X=floats(*x), Index=index, Updates=floats(*updates), known="Index")
        for x, index, updates in (
            ((4, 3), np.array([[1], [3], [1]]), (3, 3)), ((3, 4), np.array([[0, 1], [2, 3], [0, 1]], "int32"), (3,)),
            ((2, 3), np.array([[[1], [0]]]), (1, 2, 3)), ((3,), np.zeros((0, 1), "int64"), (0,)),
        )
    ),
    sample("scatter_nd_add", X=ints(0, 9, 4), Index=np.array([[1], [1]]), Updates=ints(0, 9, 2), known="Index"),
    *(
        sample("flip", X=x, dims=dims)
        for x in (floats(2, 3), ints(0, 9, 3, 1), floats(0, 2))
        for dims in ([0], [-1], [1, 0], [])
    ),
    *(
        sample("roll", X=x, shifts=shifts, dims=dims)
        for x in (floats(3, 4), ints(0, 9, 2, 2), floats(0, 2))
        for shifts, dims in (([1], [0]), ([-1, 5], [0, -1]), ([2, 1], [1, 1]), ([], []))
    ),
    *(
        sample(name, X=x, dtype=dtype)
        for name in ("unique", "unique_with_counts")
        for x in (ints(0, 4, 7), ints(0, 4, 5, dtype="int32"), np.array([2.0, 1.0, 2.0]), ints(0, 4, 0), floats(1))
        for dtype in (2, 3)
    ),
]  # fmt: skip
