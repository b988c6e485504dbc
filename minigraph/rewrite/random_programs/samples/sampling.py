"""Rows for images sampled between their elements, for positions, and for numbers of classes."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, sample

_CORNER = np.array([[[[-0.93, 0.41], [1.0, -1.0]]]])
_PLACES = np.random.default_rng(3).uniform(-1.6, 1.6, (2, 3, 4, 2)) + 0.013

SAMPLES = [
    sample("affine_grid", Theta=floats(2, 2, 3), output_shape=[2, 3, 4, 5]),
    sample("affine_grid", Theta=floats(2, 2, 3), OutputShape=np.array([2, 1, 3, 2], "int32")),
    sample("affine_grid", Theta=floats(1, 2, 3), output_shape=[1, 1, 1, 1]),
    sample("affine_grid", Theta=floats(0, 2, 3), output_shape=[0, 1, 2, 2]),
    # Far from the lines between elements, where the slope jumps.
    *(
        sample("grid_sampler", X=floats(*x), Grid=grid, dtypes=("float64", "float32"), tolerance=1e-5)
        for x, grid in [
            ((2, 3, 4, 5), _PLACES), ((1, 2, 3, 3), _CORNER[:, :, :1]), ((1, 1, 1, 1), _CORNER[:, :, :1]),
            ((0, 2, 3, 3), np.zeros((0, 2, 2, 2))),
        ]
    ),
    *(
        sample("add_position_encoding", X=floats(*x), **attrs)
        for x in ((2, 3, 6), (1, 4, 2), (1, 1, 2), (0, 2, 4))
        for attrs in ({}, {"alpha": 0.5, "beta": 2.0})
    ),
    *(
        sample("shard_index", X=ints(0, 20, *shape, dtype=dtype), index_num=20, nshards=3, shard_id=shard)
        for shape, dtype in (((5, 1), "int64"), ((2, 3, 1), "int32"), ((1, 1), "int64"), ((0, 1), "int64"))
        for shard in (0, 2)
    ),
    sample("shard_index", X=ints(0, 7, 5, 1), index_num=7, nshards=2, shard_id=1, ignore_value=-3),
    *(
        sample("hash", X=ints(0, 1000, *shape, dtype=dtype), num_hash=seeds, mod_by=size)
        for shape in ((3, 1), (2, 9), (1, 4), (0, 2))
        for dtype in ("int32", "int64")
        for seeds, size in ((1, 100000), (3, 17))
    ),
    *(
        sample("mean_iou", Predictions=ints(0, 3, *shape, dtype=dtype), Labels=ints(0, 3, *shape, dtype=dtype),
               num_classes=4)
        for shape in ((2, 3), (1, 1), (0, 2))
        for dtype in ("int32", "int64")
    ),
    sample(
        "mean_iou", Predictions=ints(0, 3, 4), Labels=ints(0, 3, 4), num_classes=3,
        InWrongs=[ints(0, 9, 3, dtype="int32")], InCorrects=[ints(0, 9, 3, dtype="int32")],
        InMeanIou=[np.array([0.5], "float32")],
    ),
    *(
        sample("precision_recall", MaxProbs=floats(rows, 1), Indices=ints(0, 3, rows, 1, dtype=dtype),
               Labels=ints(0, 3, rows, 1, dtype=dtype), class_number=4, **more)
        for rows, dtype, more in (
            (5, "int32", {}), (4, "int64", {"Weights": floats(4, 1) ** 2}), (0, "int32", {}),
            (3, "int32", {"StatesInfo": floats(4, 4) ** 2}),
        )
    ),
]  # fmt: skip
