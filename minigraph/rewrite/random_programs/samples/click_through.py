"""Rows for parts of features, features normalized over all data, and shuffled rows."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, positive, sample

SAMPLES = [
    *(
        sample(op, X=[floats(*shape) for _ in range(count)], start_index=start, length=length)
        for op in ("partial_concat", "partial_sum")
        for shape, count, start, length in [
            ((3, 4), 2, 0, -1), ((3, 4), 3, 1, 2), ((2, 3), 2, -2, 1), ((2, 3), 1, -1, -1), ((1, 1), 2, 0, 1),
            ((0, 2), 2, 1, -1), ((2, 2), 2, 1, 0),
        ]
    ),
    *(sample(op, X=[ints(0, 9, 2, 3), ints(0, 9, 2, 3)], start_index=1) for op in ("partial_concat", "partial_sum")),
    *(
        sample("shuffle_batch", X=x, Seed=np.array([seed]))
        for x in (floats(5, 2), floats(2, 3, 2), ints(0, 9, 4, 1), floats(1, 1), floats(0, 2))
        for seed in (7, -3)
    ),
    *(
        # The first two columns get no gradient.
        sample("cvm", X=positive(rows, width), CVM=positive(rows, 2), use_cvm=use_cvm, wrt="")
        for rows, width in [(3, 5), (1, 2), (0, 3)]
        for use_cvm in (True, False)
    ),
    *(
        # The counts get no gradients either.
        sample("data_norm", X=floats(*x), BatchSize=positive(x[1]), BatchSum=floats(x[1]),
               BatchSquareSum=positive(x[1]), wrt="X scale_w bias" if learned else "X", **attrs,
               **({"scale_w": floats(x[1]), "bias": floats(x[1]), "enable_scale_and_shift": True} if learned else {}))
        for x, attrs in [((3, 4), {}), ((4, 6), {"slot_dim": 3}), ((2, 2), {"slot_dim": 1}), ((1, 1), {}), ((0, 2), {})]
        for learned in (False, True)
    ),
]  # fmt: skip
